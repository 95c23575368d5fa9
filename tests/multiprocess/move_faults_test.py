"""The sender, the receiver or the scheduler of a move is killed in one of its
phases. The layer is served again, with its averages or with their loss named.
"""

import pathlib
import tempfile
import time
import unittest

import faults
import harness
import job as jobs
import service as services

LAYER = "fc2"
BUDGET = 1.0  # Seconds; of jobs.OPTIONS.
LONG = 0.7 * BUDGET


class MoveFaults(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        self.service = services.Service(
            folder, 3, server_options={"checkpoint-interval": "500ms",
                                       "checkpoint-dir": folder / "shared"})
        self.enterContext(self.service)
        self.job = jobs.Job(self.service, ranks=2)
        self.begun = self.job.start_well()
        owners = self.service.owners()
        self.sender = self.service.server(owners[LAYER])
        self.receiver = next(one for one in self.service.servers
                             if one is not self.sender)

    def layer_at(self, server):
        """The layer's row in `kronctl server`; {} where it is not held."""
        held = self.service.ask(server)
        return next((row for row in held["layers"] if row["name"] == LAYER),
                    {}) if held else {}

    def row(self):
        """The layer's row in `kronctl status`; {} while nobody answers."""
        job = self.service.job()
        return next((row for row in job["layers"] if row["name"] == LAYER),
                    {}) if job else {}

    def is_in(self, phase, server):
        return self.layer_at(server).get("phase") == phase

    # The phases.

    def planned(self):
        """The cut is ahead: the sender answers, the receiver waits."""
        code, _, err = harness.run(
            "kronctl", "pin", "digits", LAYER, f"--server={self.receiver.name}",
            f"--scheduler={self.service.address}")
        self.assertEqual(code, 0, err)
        self.job.wait_for("the plan", lambda: self.is_in("leaving", self.sender)
                          and self.is_in("awaited", self.receiver), 20)
        return self.row()["from_step"]

    def on_its_way(self):
        """The sender sends; the receiver is frozen and takes nothing."""
        cut = self.planned()
        self.job.run_to(cut - 20)
        faults.freeze(self.receiver.process)
        self.job.run_to(cut)

    def arrived(self):
        """The receiver holds the layer; the scheduler may not know yet."""
        self.planned()
        self.job.wait_for("the layer", lambda:
                          self.is_in("owned", self.receiver), 20)

    # Who is killed.

    def check_after(self, fault):
        since = time.monotonic()
        fault()
        if self.receiver.process.exit_code() is None:
            faults.thaw(self.receiver.process)
        owner = self.job.wait_for("a living owner", self.living_owner, 30)
        took = self.job.wait_until_whole(since)
        self.job.run_on(20)
        print(f"{self.id()}: whole again after {took:.1f} s, at {owner.name}")
        self.check_state(owner)
        self.job.stop()
        self.job.assert_ranks_agree()
        # One for the killed one, one for the frozen one.
        long_steps = self.job.long_steps(self.begun, LONG)
        self.assertLessEqual(len(long_steps), 2, long_steps)

    def living_owner(self):
        """Where the layer is, once its owner is alive and has it."""
        name = self.row().get("owner")
        if not name:
            return None
        owner = self.service.server(name)
        alive = owner.process.exit_code() is None
        return owner if alive and self.is_in("owned", owner) else None

    def check_state(self, owner):
        """All updates are there, or what is missing is named."""
        layer = self.layer_at(owner)
        every = jobs.OPTIONS["factor-update-steps"]
        lost = layer["closed_through"] // every + 1 - layer["updates"]
        job = self.service.job()
        named = [one for one in job["recoveries"] if one["from_step"] > 0
                 and job["layers"][one["layer"]]["name"] == LAYER]
        print(f"{self.id()}: {layer['updates']} updates, {lost} missing, "
              f"{[one['source'] for one in named]}")
        # Pushes of the steps in which the layer was out of reach, and the
        # rounds that were open then.
        gap = len(self.job.fallback_steps(self.begun)) // every + 5
        if not named:
            self.assertLessEqual(lost, gap)
            return
        begun_at = named[-1]["from_step"] - named[-1]["restored_through"]
        self.assertLessEqual(lost, begun_at // every + gap, named)

    def kill_sender(self):
        self.check_after(lambda: faults.kill(self.sender.process))

    def kill_receiver(self):
        self.check_after(lambda: faults.kill(self.receiver.process))

    def kill_scheduler(self):
        def fault():
            faults.kill(self.service.scheduler)
            self.service.start_scheduler()
        self.check_after(fault)

    def test_planned_sender(self):
        self.planned()
        self.kill_sender()

    def test_planned_receiver(self):
        self.planned()
        self.kill_receiver()

    def test_planned_scheduler(self):
        self.planned()
        self.kill_scheduler()

    def test_on_its_way_sender(self):
        self.on_its_way()
        self.kill_sender()

    def test_on_its_way_receiver(self):
        self.on_its_way()
        self.kill_receiver()

    def test_on_its_way_scheduler(self):
        self.on_its_way()
        self.kill_scheduler()

    def test_arrived_sender(self):
        self.arrived()
        self.kill_sender()

    def test_arrived_receiver(self):
        self.arrived()
        self.kill_receiver()

    def test_arrived_scheduler(self):
        self.arrived()
        self.kill_scheduler()


if __name__ == "__main__":
    harness.main()
