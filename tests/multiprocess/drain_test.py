"""Servers stop and start again under a stepping job, and no step notices."""

import pathlib
import statistics
import tempfile
import time
import unittest

import faults
import harness
import job as jobs
import service as services

BUDGET = 1.0  # Seconds; of jobs.OPTIONS.
# What a hand-over may add to a step: 0.1 s for the state of three small layers
# on an idle machine, and room for one that also runs other tests. A step that
# used up its budget waited longer.
HAND_OVER = 0.5 * BUDGET


class Case(unittest.TestCase):
    SERVERS = 2

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.service = services.Service(pathlib.Path(temporary.name),
                                        self.SERVERS)
        self.enterContext(self.service)
        self.job = jobs.Job(self.service, ranks=3)
        self.begun = self.job.start_well()
        self.before = self.service.owners()

    def is_alive(self, server):
        status = self.service.status()
        return status and any(
            one["name"] == server.name and one["state"] == "alive"
            for one in status["servers"])

    def wait_until_moved(self, server):
        self.job.wait_for(f"moves away from {server.name}",
                          lambda: self.service.owns_nothing(server), 30)

    def check_nobody_noticed(self, hand_over=HAND_OVER):
        """Ends the job; returns the waits of its steps."""
        self.job.stop()
        self.job.assert_ranks_agree()
        self.assertEqual(self.job.fallback_steps(self.begun), [])
        waits = [step["waited_seconds"] for step in self.job.steps()
                 if step["step"] > self.begun]
        median = statistics.median(waits)
        print(f"{self.id()}: waits of {len(waits)} steps: median "
              f"{median:.3f} s, longest {max(waits):.3f} s")
        self.assertLess(max(waits), 2 * median + hand_over)
        return waits


class Drain(Case):

    def test_sigterm_hands_over_and_ends(self):
        server = self.service.server(self.before["fc2"])
        begin = time.monotonic()
        faults.terminate(server.process)
        self.assertEqual(harness.wait_for_exit(server.process, 20), 0,
                         server.process.log_tail())
        print(f"{self.id()}: ended after {time.monotonic() - begin:.1f} s")
        self.assertTrue(self.service.owns_nothing(server))
        self.job.run_on(30)
        self.check_nobody_noticed()

    def test_a_drained_server_ends_at_once(self):
        server = self.service.server(self.before["fc2"])
        code, _, err = harness.run(
            "kronctl", "drain", server.name,
            f"--scheduler={self.service.address}")
        self.assertEqual(code, 0, err)
        self.wait_until_moved(server)
        self.job.run_on(30)
        begin = time.monotonic()
        faults.terminate(server.process)
        self.assertEqual(harness.wait_for_exit(server.process, 20), 0)
        self.assertLess(time.monotonic() - begin, 5)
        self.job.run_on(10)
        self.check_nobody_noticed()

    def test_a_second_sigterm_does_not_wait(self):
        """Nobody takes the layers while the scheduler is away."""
        server = self.service.server(self.before["fc2"])
        faults.kill(self.service.scheduler)
        faults.terminate(server.process)
        end = time.monotonic() + 2
        self.job.wait_for("two seconds of draining",
                          lambda: time.monotonic() > end)
        self.assertIsNone(server.process.exit_code())  # It goes on serving.
        self.assertEqual(self.job.fallback_steps(self.begun), [])
        begin = time.monotonic()
        faults.terminate(server.process)
        self.assertEqual(harness.wait_for_exit(server.process, 20), 0)
        self.assertLess(time.monotonic() - begin, 5)
        for layer, owner in self.before.items():
            if owner == server.name:
                self.assertIn(layer, server.process.log_tail(20))
        self.job.stop()
        self.job.assert_ranks_agree()


class RollingRestart(Case):
    SERVERS = 3

    def test_of_all_servers(self):
        for server in self.service.servers:
            self.job.wait_for(
                f"a layer on {server.name}", lambda one=server:
                one.name in self.service.owners().values(), 30)
            faults.terminate(server.process)
            self.assertEqual(harness.wait_for_exit(server.process, 30), 0,
                             server.process.log_tail())
            self.service.start_server(server)
            harness.wait_for(f"{server.name}'s return",
                             lambda one=server: self.is_alive(one), 20)
            self.job.run_on(30)
        # Nothing else runs beside this test.
        waits = self.check_nobody_noticed(hand_over=0.3)
        slow = [wait for wait in waits
                if wait > 2 * statistics.median(waits) + 0.1]
        print(f"{self.id()}: slow steps: {[round(wait, 3) for wait in slow]}")
        # Layers leave each server once, and come back to it once.
        self.assertLessEqual(len(slow), 2 * self.SERVERS, slow)


if __name__ == "__main__":
    harness.main()
