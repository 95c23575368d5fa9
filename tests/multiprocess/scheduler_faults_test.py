"""The scheduler dies, stops, hangs or is cut off: no step may notice.

With --long it stays away for 30 seconds and for ten leases.
"""

import pathlib
import sys
import tempfile
import time
import unittest

import faults
import harness
import job as jobs
import service as services

# A member may need two seconds to find a scheduler that is back (its retries
# and its channel's, one each); a fresh lease has to be longer.
LEASE = 2.5
HEARTBEAT = 0.3
LONG_WORD = "--long"
AWAY = max(30.0, 10 * LEASE) if LONG_WORD in sys.argv else 2 * LEASE
sys.argv = [word for word in sys.argv if word != LONG_WORD]


class Case(unittest.TestCase):
    """Two servers and a stepping job of two ranks."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.service = services.Service(pathlib.Path(temporary.name), 2,
                                        heartbeat=HEARTBEAT, lease=LEASE)
        self.enterContext(self.service)
        self.job = jobs.Job(self.service, ranks=2)
        self.begun = self.job.start_well()
        self.before = self.service.job()

    def stay_away(self, seconds=AWAY):
        end = time.monotonic() + seconds
        mark = self.job.step()
        self.job.wait_for("the end of the absence",
                          lambda: time.monotonic() >= end, seconds + 10)
        self.assertGreater(self.job.step(), mark + 10)  # It trained on.

    def check_nobody_noticed(self):
        """Members came back by themselves, and nothing was moved."""
        def known():
            job = self.service.job()
            return job and job["state"] == "running" and job
        after = harness.wait_for("the job's return", known, 20)
        # What the first leases after a start would do wrong shows by then.
        self.stay_away(2 * LEASE)
        after = harness.wait_for("an answer", self.service.job, 10)
        for fact in ("epoch", "world_version", "layers"):
            self.assertEqual(after[fact], self.before[fact], fact)
        for server in self.service.status()["servers"]:
            self.assertEqual(server["state"], "alive", server)
        self.job.stop()
        self.assertEqual(self.job.fallback_steps(self.begun), [])
        self.job.assert_ranks_agree()


class SchedulerProcess(Case):

    def test_killed_and_started_again(self):
        faults.kill(self.service.scheduler)
        self.stay_away()
        self.service.start_scheduler()
        self.check_nobody_noticed()

    def test_stopped_and_started_again(self):
        faults.terminate(self.service.scheduler)
        self.assertEqual(
            harness.wait_for_exit(self.service.scheduler, 10), 0)
        self.stay_away()
        self.service.start_scheduler()
        self.check_nobody_noticed()

    def test_frozen(self):
        """Its own absence is nobody's silence."""
        faults.freeze(self.service.scheduler)
        self.stay_away()
        faults.thaw(self.service.scheduler)
        self.check_nobody_noticed()

    def test_started_again_on_an_empty_store(self):
        faults.kill(self.service.scheduler)
        for file in self.service.state_files():
            file.unlink()
        self.stay_away(LEASE)
        self.service.start_scheduler()
        harness.wait_for("the job's return", self.service.job, 20)
        self.stay_away(2 * LEASE)
        after = self.service.job()
        self.assertEqual(self.service.owners(), {
            row["name"]: row["owner"] for row in self.before["layers"]})
        self.assertGreaterEqual(after["epoch"], self.before["epoch"])
        self.job.stop()
        self.assertEqual(self.job.fallback_steps(self.begun), [])
        self.job.assert_ranks_agree()

    def test_a_server_that_died_meanwhile_is_found(self):
        owners = self.service.owners()
        victim = self.service.server(owners["fc2"])
        faults.kill(self.service.scheduler)
        self.job.run_on(20)
        faults.kill(victim.process)
        self.stay_away(2 * LEASE)
        self.service.start_scheduler()
        since = time.monotonic()
        self.job.wait_for(
            "another owner", lambda: self.service.owners().get("fc2")
            not in (None, victim.name), 30)
        took = self.job.wait_until_whole(since)
        print(f"{self.id()}: whole {took:.1f} s after the restart")
        # One fresh lease for every member, then as any lost server.
        self.assertLess(took, 2 * (LEASE + HEARTBEAT) + 2)
        # Who was alive kept what it had.
        for layer, owner in owners.items():
            if owner != victim.name:
                self.assertEqual(self.service.owners()[layer], owner)
        self.job.stop()
        self.job.assert_ranks_agree()


class SchedulerNetwork(Case):
    """The scheduler is alive and hears nobody: leases stand still."""

    def each_link(self, action):
        for link in self.service.scheduler_links():
            getattr(link, action)()

    def test_silent(self):
        self.each_link("silence")
        self.stay_away()
        self.service.heal()
        self.check_nobody_noticed()

    def test_cut_off(self):
        self.each_link("cut")
        self.stay_away()
        self.service.heal()
        self.check_nobody_noticed()


if __name__ == "__main__":
    harness.main()
