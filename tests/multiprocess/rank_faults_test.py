"""A rank hangs or is cut off; elastic_test.py has those that are killed.

The others notice after the collective timeout, train on without it, and take
it in again when it is back.
"""

import pathlib
import tempfile
import time
import unittest

import faults
import harness
import job as jobs
import network
import network_service
import service as services

RANKS = 3
BUDGET = 1.0  # Seconds; of jobs.OPTIONS.
OPTIONS = {"elastic": True, "min-ranks": 2, "collective-timeout":
           f"{4 * BUDGET}s"}


class Case(unittest.TestCase):

    def folder(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        return pathlib.Path(temporary.name)

    def wait_for_world(self, job, ranks, since):
        """Until a world of so many ranks has taken steps."""
        def newest():
            worlds = [seen.event for seen in job.seen if seen.kind == "world"]
            return worlds and worlds[-1]["ranks"] == ranks
        job.wait_for(f"a world of {ranks} ranks", newest, 40)
        job.run_on(5)
        print(f"{self.id()}: {ranks} ranks train {time.monotonic() - since:.1f}"
              " s after")

    def check_end(self, job):
        """The end of all ranks in the same bytes."""
        job.stop()
        hashes = job.hashes()
        last = min(max(int(step) for step in steps)
                   for steps in hashes.values())
        self.assertEqual(
            len({steps[str(last)] for steps in hashes.values()}), 1)

    def lose_and_return(self, job, lose, find):
        job.start_well()
        since = time.monotonic()
        lose()
        self.wait_for_world(job, RANKS - 1, since)
        since = time.monotonic()
        find()
        self.wait_for_world(job, RANKS, since)
        self.check_end(job)


class Process(Case):

    def test_frozen_past_its_lease(self):
        service = self.enterContext(services.Service(self.folder(), 2))
        job = jobs.Job(service, RANKS, **OPTIONS)
        self.lose_and_return(job, lambda: faults.freeze(job.workers[1]),
                             lambda: faults.thaw(job.workers[1]))

    def test_frozen_for_less_than_the_collective_timeout(self):
        """All wait for it, and nothing else happens."""
        service = self.enterContext(services.Service(self.folder(), 2))
        job = jobs.Job(service, RANKS, **OPTIONS)
        job.start_well()
        faults.freeze(job.workers[1])
        end = time.monotonic() + 2 * BUDGET
        job.wait_for("two budgets", lambda: time.monotonic() > end)
        faults.thaw(job.workers[1])
        job.run_on(100)
        self.assertEqual(service.job()["world_version"], 1)
        job.stop()
        job.assert_ranks_agree()


@unittest.skipIf(network.unusable(), network.unusable())
class Network(Case):

    def setUp(self):
        self.net = self.enterContext(network.Network())
        self.service = self.enterContext(network_service.NetworkService(
            self.folder(), self.net, servers=2, ranks=RANKS))
        self.job = jobs.Job(self.service, RANKS, **OPTIONS)

    def test_in_a_black_hole(self):
        host = self.service.rank_hosts[1]
        self.lose_and_return(
            self.job, lambda: self.net.isolate(
                host, self.service.everybody_but(host)), self.net.heal)

    def test_two_ranks_apart(self):
        """Each reaches everybody else; the job goes on once they meet."""
        self.job.start_well()
        since = time.monotonic()
        self.net.drop(self.service.rank_hosts[1], self.service.rank_hosts[2])
        end = since + 6 * BUDGET
        self.job.wait_for("the collective timeout",
                          lambda: time.monotonic() > end)
        self.net.heal()
        self.wait_for_world(self.job, RANKS, since)
        self.check_end(self.job)


if __name__ == "__main__":
    harness.main()
