"""Ranks are killed, come back and stay away: the others train on."""

import pathlib
import tempfile
import time
import unittest

import faults
import harness
import job as jobs
import service as services

STEPS = 1500
RANKS = 3
# From a loss or a return until the new world trains: a lease runs out, another
# one to wait for those who may still come, and the ranks connect.
RECOVERY_SECONDS = 6


class Elastic(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.service = services.Service(pathlib.Path(temporary.name), 2)
        self.enterContext(self.service)

    def start(self, **options):
        return jobs.Job(self.service, RANKS,
                        **{"elastic": True, "min-ranks": 2,
                           "max-steps": STEPS, **options})

    def world(self, job, ranks):
        """Waits for the newest world to have so many ranks and to train.

        That a rank was lost, or is back, was caused just before.
        """
        begin = time.monotonic()

        def look():
            worlds = [seen.event for seen in job.seen if seen.kind == "world"]
            return worlds and worlds[-1]["ranks"] == ranks and worlds[-1]
        world = job.wait_for(f"a world of {ranks} ranks", look, 20)
        job.run_on(5)
        took = time.monotonic() - begin
        print(f"{self.id()}: {ranks} ranks train after {took:.1f} s")
        self.assertLess(took, RECOVERY_SECONDS)
        return world

    def assert_same_end(self, job, ranks):
        """The last steps of `ranks` ended in the same bytes."""
        hashes = job.hashes()
        for step in range(STEPS - 20, STEPS):
            values = {hashes[rank][str(step)] for rank in ranks}
            self.assertEqual(len(values), 1, f"step {step}")

    def test_a_killed_rank_comes_back_and_another_stays_away(self):
        job = self.start()
        job.run_to(30)
        faults.kill(job.workers[1])
        killed_at = job.step()
        job.start_rank(1)
        world = self.world(job, 3)
        self.assertEqual(world["restart_count"], 1)
        # No step is lost, and none is taken twice over.
        self.assertGreaterEqual(world["start_step"], killed_at)
        self.assertEqual(self.service.job()["world_version"], 2)

        faults.kill(job.workers[2])
        job.forget_rank(2)
        world = self.world(job, 2)
        status = self.service.job()
        self.assertEqual([rank["node"] for rank in status["ranks"]],
                         ["node0", "node1"])
        done = job.finish(60)
        self.assertEqual(done["steps"], STEPS)
        self.assertGreater(done["final_accuracy"], 0.9)
        self.assert_same_end(job, (0, 1))

    def test_a_rank_joins_a_world_that_went_on_without_it(self):
        job = self.start(**{"max-steps": 0})
        job.run_to(10)
        faults.kill(job.workers[1])
        job.forget_rank(1)
        self.world(job, 2)  # Ranks 0 and 2, as 0 and 1.
        job.start_rank(1)
        self.world(job, 3)
        self.assertEqual(job.stop()["end"], "stopped")
        hashes = job.hashes()
        last = min(max(int(step) for step in hashes[rank]) for rank in range(3))
        values = {hashes[rank][str(last)] for rank in range(3)}
        self.assertEqual(len(values), 1)

    def test_without_elastic_a_lost_rank_ends_the_job(self):
        job = self.start(**{"elastic": None, "min-ranks": None})
        job.run_to(10)
        faults.kill(job.workers[1])
        for rank in (0, 2):
            code = harness.wait_for_exit(job.workers[rank], 20)
            self.assertEqual(code, 1)


if __name__ == "__main__":
    harness.main()
