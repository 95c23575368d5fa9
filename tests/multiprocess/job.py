"""A training job of the real workers, and what it reports of itself."""

import dataclasses
import statistics
import time

import faults
import harness
from kronlocal import training

# Three layers; the hidden ones are large enough to have work to do.
OPTIONS = {"dataset": "digits", "hidden": "64,32", "batch": 64,
           "optimizer": "kfac", "lr": 0.05, "damping": 0.03,
           "epochs": 1000000, "verify-replicas": True, "eval-every": 1000,
           "step-budget": "1s", "factor-update-steps": 2,
           "inv-update-steps": 4}
LAYERS = ("fc1", "fc2", "fc3")


@dataclasses.dataclass(frozen=True)
class Seen:
    """An event of rank 0 and when this process read it."""
    event: dict
    at: float

    @property
    def kind(self):
        return self.event["event"]


class Job:
    """Ranks 0 to `ranks` - 1, on as many nodes."""

    def __init__(self, service, ranks, name="digits", **options):
        self._folder = service.cluster.folder
        self._ranks = ranks
        self.seen = []
        events = self._folder / f"{name}.events"
        events.unlink(missing_ok=True)
        self._reader = training.EventFile(events)
        self._service = service
        self._options = {**OPTIONS, "job": name, **options}
        self._events = events
        self.workers = [None] * ranks
        for rank in range(ranks):
            self.start_rank(rank)

    def start_rank(self, rank):
        """Starts a rank, also in the place of one that has ended."""
        place, prefix = self._service.place_of_rank(rank)
        self.workers[rank] = self._service.cluster.start(
            f"{self._options['job']}-rank{rank}", "kronserve-worker",
            {"rank": rank, "world-size": self._ranks, "node": f"node{rank}",
             "hash-log": self._hash_log(rank),
             "events": self._events if rank == 0 else None, **place,
             **self._options}, prefix)

    def forget_rank(self, rank):
        """Goes on without a rank that was killed."""
        self.workers[rank] = None

    def _running(self):
        return [worker for worker in self.workers if worker is not None]

    def _hash_log(self, rank):
        return self._folder / f"rank{rank}.hashes"

    def read(self):
        """Takes in what rank 0 reported; fails when a rank has failed."""
        for worker in self._running():
            if worker.exit_code() not in (None, 0):
                raise AssertionError(worker.failure())
        now = time.monotonic()
        self.seen += [Seen(event, now) for event in self._reader.read()]

    def wait_for(self, what, condition, seconds=60):
        """Reads until `condition()`; returns its value."""
        def look():
            self.read()
            return condition()
        return harness.wait_for(what, look, seconds)

    def steps(self):
        return [seen.event for seen in self.seen if seen.kind == "step"]

    def step(self):
        """Newest step; -1 before the first."""
        return next((seen.event["step"] for seen in reversed(self.seen)
                     if seen.kind == "step"), -1)

    def run_to(self, step, seconds=60):
        self.wait_for(f"step {step}", lambda: self.step() >= step, seconds)

    def run_on(self, steps, seconds=60):
        self.read()
        self.run_to(self.step() + steps, seconds)

    def is_whole(self):
        """True when no layer fell back in the newest step."""
        steps = self.steps()
        return bool(steps) and steps[-1]["fallbacks"] == 0

    def wait_until_whole(self, since, seconds=60):
        """Until a step that began after `since` had no fallback; returns the
        seconds from `since` to then."""
        first = self.step() + 2
        self.wait_for("a step without fallbacks",
                      lambda: self.step() >= first and self.is_whole(),
                      seconds)
        return time.monotonic() - since

    def start_well(self):
        """Past the first refresh, in which layers may fall back."""
        self.run_to(20)
        self.wait_until_whole(time.monotonic())
        return self.step()

    def long_steps(self, after, seconds):
        """Steps later than `after` that waited longer for the service."""
        return {step["step"]: step["waited_seconds"] for step in self.steps()
                if step["step"] > after and step["waited_seconds"] > seconds}

    def fallback_steps(self, after):
        return [step["step"] for step in self.steps()
                if step["step"] > after and step["fallbacks"] > 0]

    def fallen_back(self, after):
        """Names of the layers that fell back in steps later than `after`."""
        return {layer["name"] for seen in self.seen
                if seen.kind == "fallback" and seen.event["step"] > after
                for layer in seen.event["layers"]}

    def calm_wait(self, until):
        """Median wait of the steps up to `until`."""
        return statistics.median(step["waited_seconds"] for step in
                                 self.steps() if step["step"] <= until)

    def stop(self):
        """Ends all ranks after their step; returns the "done" event."""
        for worker in self._running():
            faults.terminate(worker)
        return self.finish(20)

    def finish(self, seconds):
        """Waits for the end of all ranks; returns the "done" event."""
        for worker in self._running():
            code = harness.wait_for_exit(worker, seconds)
            if code != 0:
                raise AssertionError(worker.failure())
        self.read()
        done = self.seen[-1].event
        if done["event"] != "done":
            raise AssertionError(f"the last event is {done}")
        return done

    def hashes(self):
        """{rank: {step: hash of its parameters after it}}."""
        return {rank: dict(line.split() for line in
                           self._hash_log(rank).read_text().splitlines())
                for rank in range(self._ranks)}

    def assert_ranks_agree(self):
        """Each step of each rank ended in the same bytes, and it trained."""
        hashes = self.hashes()
        first = hashes[0]
        for rank, other in hashes.items():
            for step in first.keys() & other.keys():
                if other[step] != first[step]:
                    raise AssertionError(f"rank {rank} differs at step {step}")
            if len(first.keys() ^ other.keys()) > 1:
                raise AssertionError(f"rank {rank} took other steps than 0")
        if len(set(first.values())) < len(first):
            raise AssertionError("parameters did not change in some step")
