"""A job goes on from a job checkpoint as if nothing had happened."""

import pathlib
import re
import tempfile
import unittest

import harness
import job as jobs
import service as services

STEPS = 20


class Resume(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        self.directory = folder / "checkpoints"
        self.directory.mkdir()
        self.service = services.Service(
            folder, 2, server_options={"checkpoint-dir": self.directory})
        self.enterContext(self.service)

    def start(self, ranks, **options):
        return jobs.Job(self.service, ranks, **{
            "deterministic": True, "step-budget": None, "accumulation": 4,
            "factor-update-steps": 3, "inv-update-steps": 10,
            "checkpoint-dir": self.directory, **options})

    def saved(self):
        """(id, step) of the newest checkpoint with the trainer's part."""
        files = sorted(self.directory.glob("digits/checkpoints/*/TRAINER"),
                       key=lambda file: file.stat().st_mtime)
        for file in reversed(files):
            found = re.search(r"checkpoint is complete.* id=%s step=(\d+)" %
                              file.parent.name, self.log(0))
            if found:
                return file.parent.name, int(found.group(1))
        return None

    def log(self, rank):
        return self.job.workers[rank].log_tail(100000)

    def test_the_next_steps_are_bit_equal(self):
        self.job = self.start(3, **{"checkpoint-every": 13})
        name, cut = self.job.wait_for("a checkpoint", self.saved, 60)
        self.job.run_to(cut + STEPS + 1)
        self.job.stop()
        whole = self.job.hashes()
        code, out, err = harness.run("kronctl", "verify", self.directory)
        self.assertEqual((code, err), (0, ""), out)

        resumed = self.start(3, **{"resume": name, "restart-count": 1,
                                   "max-steps": cut + STEPS + 1})
        done = resumed.finish(60)
        self.assertEqual(done["steps"], STEPS)
        for rank, steps in resumed.hashes().items():
            self.assertEqual(set(steps),
                             {str(cut + 1 + i) for i in range(STEPS)})
            for step, value in steps.items():
                self.assertEqual(value, whole[rank][step],
                                 f"rank {rank}, step {step}, cut {cut}")

    def test_an_unknown_checkpoint_is_named(self):
        code, _, err = harness.run(
            "kronserve-worker", "--optimizer=kfac", "--dataset=digits",
            f"--scheduler={self.service.address}", "--resume=nothing",
            f"--checkpoint-dir={self.directory}")
        self.assertEqual(code, 1)
        self.assertIn("nothing/TRAINER", err)


if __name__ == "__main__":
    harness.main()
