"""Packets vanish between hosts: the first one of a connection, too.

Skipped, with the reason, where network namespaces are not permitted;
server_faults_test.py and scheduler_faults_test.py do what is possible there.
"""

import pathlib
import tempfile
import time
import unittest

import harness
import job as jobs
import network
import network_service

BUDGET = 1.0  # Seconds; of jobs.OPTIONS.
LONG = 0.7 * BUDGET


@unittest.skipIf(network.unusable(), network.unusable())
class NetworkFaults(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.net = self.enterContext(network.Network())
        self.service = network_service.NetworkService(
            pathlib.Path(temporary.name), self.net, servers=2, ranks=3)
        self.enterContext(self.service)
        self.job = jobs.Job(self.service, ranks=3)
        self.begun = self.job.start_well()
        owner = self.service.owners()["fc2"]
        self.victim = next(server for server in self.service.servers
                           if server.name == owner)
        self.lost = {layer for layer, name in self.service.owners().items()
                     if name == owner}

    def check_job(self, most_long_steps):
        self.job.stop()
        self.job.assert_ranks_agree()
        long_steps = self.job.long_steps(self.begun, LONG)
        self.assertLessEqual(len(long_steps), most_long_steps, long_steps)
        for wait in long_steps.values():
            self.assertLess(wait, BUDGET + LONG)

    def check_only_lost_layers_fell_back(self):
        self.assertLessEqual(self.job.fallen_back(self.begun), self.lost)

    def wait_until_replaced(self, since):
        self.job.wait_for("another owner of all layers", lambda:
                          self.service.owns_nothing(self.victim), 30)
        took = self.job.wait_until_whole(since)
        print(f"{self.id()}: whole again after {took:.1f} s")

    def test_a_server_in_a_black_hole(self):
        since = time.monotonic()
        self.net.isolate(self.victim.host,
                         self.service.everybody_but(self.victim.host))
        self.wait_until_replaced(since)
        self.net.heal()
        self.job.run_on(100)
        self.check_job(most_long_steps=1)
        self.check_only_lost_layers_fell_back()

    def test_a_server_and_the_scheduler_apart(self):
        since = time.monotonic()
        self.net.drop(self.victim.host, self.service.scheduler_host)
        self.wait_until_replaced(since)
        self.check_job(most_long_steps=0)
        self.check_only_lost_layers_fell_back()

    def test_the_scheduler_and_everybody_apart(self):
        host = self.service.scheduler_host
        self.net.isolate(host, self.service.everybody_but(host))
        end = time.monotonic() + 2 * self.service.lease
        self.job.wait_for("two leases", lambda: time.monotonic() > end, 30)
        self.job.stop()
        self.assertEqual(self.job.fallback_steps(self.begun), [])
        self.job.assert_ranks_agree()

    def test_one_rank_and_one_server_apart(self):
        """All ranks fall back alike, for the layers of that server alone."""
        self.net.drop(self.victim.host, self.service.rank_hosts[1])
        self.job.wait_for("a fallback", lambda: not self.job.is_whole())
        self.job.run_on(100)
        since = time.monotonic()
        self.net.heal()
        self.job.wait_until_whole(since)
        print(f"{self.id()}: whole {time.monotonic() - since:.1f} s after "
              "the network")
        # The scheduler sees nothing wrong with the server.
        self.assertIn(self.victim.name, self.service.owners().values())
        self.check_job(most_long_steps=1)
        self.check_only_lost_layers_fell_back()

    def test_a_server_that_no_rank_can_reach(self):
        """Its heartbeats arrive, so it keeps its layers, which fall back."""
        for host in self.service.rank_hosts:
            self.net.drop(self.victim.host, host)
        end = time.monotonic() + 2 * self.service.lease
        self.job.wait_for("two leases", lambda: time.monotonic() > end, 30)
        since = time.monotonic()
        self.net.heal()
        self.job.wait_until_whole(since)
        self.check_job(most_long_steps=1)
        self.check_only_lost_layers_fell_back()


if __name__ == "__main__":
    harness.main()
