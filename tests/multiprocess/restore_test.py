"""A server is killed: its layers come back from checkpoints, or are said to be
lost."""

import pathlib
import tempfile
import time
import unittest

import faults
import harness
import job as jobs
import service as services


class Case(unittest.TestCase):

    def start(self, directory_of):
        """Two servers and a stepping job; `directory_of(index)` is where a
        server keeps checkpoints."""
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.service = services.Service(self.folder, 2)
        for index, server in enumerate(self.service.servers):
            directory = directory_of(self.folder, index)
            server.options = {"checkpoint-interval": "500ms",
                              "checkpoint-dir": directory}
        self.enterContext(self.service)
        self.job = jobs.Job(self.service, ranks=2)
        self.job.start_well()
        self.owners = self.service.owners()
        self.victim = self.service.server(self.owners["fc2"])
        self.lost = {layer for layer, owner in self.owners.items()
                     if owner == self.victim.name}

    def state_recovery(self):
        """{what each server says}."""
        return {server["state_recovery"]
                for server in self.service.status()["servers"]}

    def kill_and_wait(self):
        """Returns {layer: how it began again}."""
        since = time.monotonic()
        faults.kill(self.victim.process)
        self.job.wait_for("another owner", lambda:
                          self.service.owns_nothing(self.victim), 30)
        took = self.job.wait_until_whole(since)
        print(f"{self.id()}: whole again after {took:.1f} s")
        def recoveries():
            job = self.service.job()
            found = {job["layers"][one["layer"]]["name"]: one
                     for one in job["recoveries"]} if job else {}
            return self.lost <= found.keys() and found
        return self.job.wait_for("a report of each layer", recoveries, 20)


class Shared(Case):

    def setUp(self):
        self.start(lambda folder, _: folder / "checkpoints")
        self.job.wait_for("the peers' markers",
                          lambda: self.state_recovery() == {"shared"}, 20)

    def test_a_killed_server_s_layers_are_restored(self):
        end = time.monotonic() + 2  # Four intervals.
        self.job.wait_for("checkpoints", lambda: time.monotonic() > end)
        before = {row["name"]: row for row in
                  self.service.ask(self.victim)["layers"]}
        found = self.kill_and_wait()
        for layer in self.lost:
            recovery = found[layer]
            self.assertEqual(recovery["source"], "background_checkpoint",
                             recovery)
            # What it lacks is the steps of some intervals, not the state.
            self.assertGreater(recovery["restored_through"],
                               before[layer]["closed_through"] // 2)
        survivor = next(one for one in self.service.servers
                        if one != self.victim)
        after = {row["name"]: row for row in
                 self.service.ask(survivor)["layers"]}
        for layer in self.lost:
            self.assertGreater(after[layer]["updates"],
                               before[layer]["updates"] // 2)
        self.job.stop()
        self.job.assert_ranks_agree()
        code, out, err = harness.run("kronctl", "verify",
                                     self.folder / "checkpoints")
        self.assertEqual(code, 0, out + err)

    def test_a_job_checkpoint_is_written_while_the_job_trains(self):
        code, out, err = harness.run(
            "kronctl", "checkpoint", "digits", "--id=one", "--wait",
            f"--scheduler={self.service.address}", timeout=30)
        self.assertEqual(code, 0, err)
        self.assertIn("complete", out)
        self.assertEqual(self.service.job()["checkpoint"], "one")
        mark = self.job.step()
        self.job.run_on(50)
        self.assertEqual(self.job.fallback_steps(mark), [])
        self.job.stop()
        code, out, err = harness.run("kronctl", "verify",
                                     self.folder / "checkpoints/digits/one")
        self.assertEqual(code, 0, out + err)


class Separate(Case):

    def test_it_is_said_before_and_after(self):
        self.start(lambda folder, index: folder / f"checkpoints{index}")
        self.job.wait_for("the missing markers",
                          lambda: self.state_recovery() == {"none"}, 20)
        code, out, _ = harness.run(
            "kronctl", "status", f"--scheduler={self.service.address}")
        self.assertEqual(code, 0)
        self.assertIn("state recovery: none", out)
        found = self.kill_and_wait()
        for layer in self.lost:
            self.assertEqual(found[layer]["source"], "factors", found[layer])
            self.assertEqual(found[layer]["restored_through"], -1)
        _, out, _ = harness.run(
            "kronctl", "status", f"--scheduler={self.service.address}")
        for layer in self.lost:
            self.assertIn(f"'{layer}' began", out)
        self.job.stop()
        self.job.assert_ranks_agree()


if __name__ == "__main__":
    harness.main()
