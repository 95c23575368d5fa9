"""A job of real processes: it trains, is seen by kronctl, and survives."""

import json
import pathlib
import signal
import tempfile
import unittest

import harness
from kronlocal import training

LAYERS = ("fc1", "fc2", "fc3")


def hashes(folder, rank):
    text = (folder / f"rank{rank}.hashes").read_text()
    return dict(line.split() for line in text.splitlines())


class Training(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def start_job(self, cluster, **options):
        """Two ranks; returns (workers, reader of rank 0's events)."""
        events = self.folder / "events"
        workers = [
            cluster.start(f"rank{rank}", "kronserve-worker", {
                "scheduler": cluster.scheduler_address, "job": "digits",
                "rank": rank, "world-size": 2, "node": f"node{rank}",
                "dataset": "digits", "hidden": "32,16", "batch": 64,
                "optimizer": "kfac", "lr": 0.05, "damping": 0.03,
                "verify-replicas": True, "eval-every": 20,
                "hash-log": self.folder / f"rank{rank}.hashes",
                "events": events if rank == 0 else None, **options})
            for rank in range(2)]
        return workers, training.EventFile(events)

    def read_until(self, reader, workers, wanted, seconds=120):
        """Collects events until `wanted(event)`; fails when a worker does."""
        seen = []

        def look():
            for worker in workers:
                if worker.exit_code() not in (None, 0):
                    raise AssertionError(worker.failure())
            for event in reader.read():
                seen.append(event)
                if wanted(event):
                    return True
            return False

        harness.wait_for("an event of the training run", look, seconds)
        return seen

    def assert_ranks_agree(self, steps):
        first, second = hashes(self.folder, 0), hashes(self.folder, 1)
        self.assertEqual(first, second)
        self.assertEqual(len(first), steps)
        self.assertEqual(len(set(first.values())), steps)  # It trained.

    def test_trains_and_is_shown_by_kronctl(self):
        with harness.Cluster(harness.BIN, self.folder / "logs") as cluster:
            cluster.start_service(2)
            workers, reader = self.start_job(cluster, **{"max-steps": 600,
                                                         "epochs": 100})
            events = self.read_until(reader, workers,
                                     lambda e: e["event"] == "step")
            code, out, err = harness.run(
                "kronctl", "status", "--json",
                f"--scheduler={cluster.scheduler_address}")
            self.assertEqual((code, err), (0, ""))
            status = json.loads(out)
            job = next(j for j in status["jobs"] if j["name"] == "digits")
            self.assertEqual([row["name"] for row in job["layers"]],
                             list(LAYERS))
            owners = {row["owner"] for row in job["layers"]}
            self.assertEqual(owners, {"server0", "server1"})
            code, out, _ = harness.run(
                "kronctl", "status", f"--scheduler={cluster.scheduler_address}")
            self.assertEqual(code, 0)
            for word in (*LAYERS, "server0", "server1", "digits"):
                self.assertIn(word, out)
            self.assertNotIn("\x1b", out)  # No colours into a pipe.
            events += self.read_until(reader, workers,
                                      lambda e: e["event"] == "done")
            for worker in workers:
                self.assertEqual(harness.wait_for_exit(worker, 30), 0)
        done = events[-1]
        self.assertEqual(done["steps"], 600)  # So that kronctl finds it.
        self.assertEqual(done["fallback_steps"], 0)
        self.assertEqual(done["layers_preconditioned"], len(LAYERS))
        early = next(event for event in events
                     if event["event"] == "eval" and event["step"] == 200)
        self.assertGreater(early["accuracy"], 0.9)
        self.assertGreater(done["final_accuracy"], 0.9)
        self.assert_ranks_agree(600)

    def test_survives_a_killed_server(self):
        with harness.Cluster(harness.BIN, self.folder / "logs") as cluster:
            cluster.start_service(2)
            workers, reader = self.start_job(
                cluster, **{"max-steps": 3000, "epochs": 1000,
                            "step-budget": "1s"})
            self.read_until(reader, workers,
                            lambda e: e["event"] == "step" and e["step"] >= 50)
            victim = next(p for p in cluster.processes()
                          if p.name == "server1")
            victim.signal(signal.SIGKILL)
            events = self.read_until(reader, workers,
                                     lambda e: e["event"] == "done", 200)
            for worker in workers:
                self.assertEqual(harness.wait_for_exit(worker, 30), 0)
            told = workers[0].log_tail(200)
        done = events[-1]
        self.assertEqual(done["steps"], 3000)
        # The ranks share what they find: one budget in all, not one each.
        long_steps = [e["step"] for e in events
                      if e["event"] == "step" and e["waited_seconds"] > 0.7]
        self.assertLessEqual(len(long_steps), 1, long_steps)
        self.assertGreater(done["fallback_steps"], 0)
        fallen = set(done["fallen_back_layers"])
        self.assertTrue(fallen)
        self.assertTrue(fallen < set(LAYERS), fallen)  # The others went on.
        for layer in fallen:
            self.assertIn(layer, told)
        self.assert_ranks_agree(3000)


if __name__ == "__main__":
    harness.main()
