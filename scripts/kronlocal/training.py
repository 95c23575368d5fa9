"""One training run: starts the workers, follows rank 0's events."""

import dataclasses
import json
import time

from kronlocal import processes

# No run of ours is silent for so long; a stuck one must not block a script.
SILENCE_SECONDS = 180
NODES = 2


@dataclasses.dataclass
class Spec:
    """What to train, and how."""
    dataset: str
    optimizer: str
    options: dict  # Worker options: lr, momentum, damping, ...
    epochs: int
    seed: int = 1
    workers: int = 2
    target: float = None
    eval_every: int = 50
    model: dict = dataclasses.field(default_factory=dict)
    steps_per_epoch: int = 1  # For the progress bar only.

    @property
    def name(self):
        return f"{self.optimizer}-seed{self.seed}"


@dataclasses.dataclass
class Outcome:
    """What a run showed. Accuracies are on the test set, from 0 to 1."""
    # [(step, epoch, seconds, accuracy)], by step.
    evals: list = dataclasses.field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    waited_seconds: float = 0.0  # For the service.
    exchange_seconds: float = 0.0  # Averaging gradients over the ranks.
    final_accuracy: float = 0.0
    fallback_steps: int = 0
    layers: int = 0
    layers_preconditioned: int = 0
    # {name: steps}
    fallen_back_layers: dict = dataclasses.field(default_factory=dict)
    end: str = ""

    def to_target(self, target):
        """(steps, seconds) until the first evaluation at or above `target`;
        (None, None) when there was none."""
        for step, _, seconds, accuracy in self.evals:
            if accuracy >= target:
                return step, seconds
        return None, None

    def settled_at(self, target):
        """Steps until an evaluation at or above `target` with at least one of
        the next two: harder to hit by luck. None if never."""
        good = [row[3] >= target for row in self.evals]
        for index, row in enumerate(self.evals):
            if good[index] and any(good[index + 1:index + 3]):
                return row[0]
        return None

    def epoch_accuracies(self):
        """Accuracy at the last evaluation of each epoch, in order."""
        last = {epoch: accuracy for _, epoch, _, accuracy in self.evals}
        return [last[epoch] for epoch in sorted(last)]


class EventFile:
    """Reads the whole lines that were added to a file since the last time."""

    def __init__(self, path):
        self._path = path
        self._offset = 0

    def read(self):
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._offset += end
        return [json.loads(line) for line in data[:end].splitlines() if line]


def absorb(outcome, event):
    """Adds one event of rank 0 to `outcome`; True when it was the last."""
    kind = event["event"]
    if kind == "eval":
        outcome.evals.append((event["step"], event["epoch"], event["seconds"],
                              event["accuracy"]))
    if kind != "done":
        return False
    for field in ("steps", "seconds", "waited_seconds", "exchange_seconds",
                  "final_accuracy", "fallback_steps", "layers",
                  "layers_preconditioned", "fallen_back_layers", "end"):
        setattr(outcome, field, event[field])
    return True


def start_workers(cluster, spec, events):
    workers = []
    for rank in range(spec.workers):
        options = {
            "scheduler": cluster.scheduler_address,
            "job": spec.name,
            "rank": rank,
            "world-size": spec.workers,
            "node": f"node{rank % NODES}",
            "dataset": spec.dataset,
            **spec.model,
            "optimizer": spec.optimizer,
            "epochs": spec.epochs,
            "seed": spec.seed,
            "eval-every": spec.eval_every,
            "target-accuracy": spec.target,
            "events": events if rank == 0 else None,
            **spec.options,
        }
        workers.append(cluster.start(f"{spec.name}-rank{rank}",
                                     "kronserve-worker", options))
    return workers


def train(cluster, spec, on_event=lambda event: None):
    """Runs `spec` to its end; `on_event` sees every event of rank 0.

    Raises ClusterError when a worker fails, or nothing happens for long.
    """
    events = cluster.folder / f"{spec.name}.events"
    events.unlink(missing_ok=True)
    workers = start_workers(cluster, spec, events)
    reader = EventFile(events)
    outcome = Outcome()
    done = False
    last_sign = time.monotonic()
    while True:
        ended = [worker.exit_code() for worker in workers]
        for event in reader.read():
            last_sign = time.monotonic()
            done = absorb(outcome, event) or done
            on_event(event)
        for worker, code in zip(workers, ended):
            if code not in (None, 0):
                raise processes.ClusterError(worker.failure())
        if all(code == 0 for code in ended):
            break
        if time.monotonic() - last_sign > SILENCE_SECONDS:
            raise processes.ClusterError(
                f"{spec.name} reported nothing for {SILENCE_SECONDS} s; see "
                f"{workers[0].log}")
        time.sleep(0.05)
    cluster.forget(workers)
    if not done:
        raise processes.ClusterError(
            f"{spec.name} ended without a last event in {events}")
    return outcome
