#!/usr/bin/env python3
"""Finds the settings that scripts/quickstart.py ships.

Each optimizer gets the same number of trials on a grid of two of its options.
The grid grows until the best point has tried neighbours on all four sides;
when that needs more trials for one optimizer, all get as many. Order of work:

  1. SGD's start grid. The target accuracy is fixed from it: the best accuracy
     at the end of its epochs, less a margin.
  2. All optimizers: score = steps until the accuracy has settled at the target
     (an evaluation, and one of the next two), then final accuracy.
  3. Best points again with three seeds: median and worst.

Trials are kept in build/tune and never repeated, so the script can be run in
pieces: with --budget it stops in time (exit status 3) and goes on from there.
Writes scripts/quickstart_settings.json and docs/tuning.md.
"""

import argparse
import dataclasses
import hashlib
import json
import math
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from kronlocal import processes, report, search, training  # noqa: E402
from kronlocal import tuning_plan as plan  # noqa: E402
from kronlocal import tuning_report  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
SETTINGS = ROOT / "scripts" / "quickstart_settings.json"
DOCS = ROOT / "docs" / "tuning.md"
CACHE = ROOT / "build" / "tune"
MORE_TRIALS = 4


class OutOfBudget(Exception):
    """The time given by --budget is used up."""


class Trials:
    """Runs trials on a small cluster, or finds them in the cache."""

    def __init__(self, dataset, bin_dir, budget):
        self._plan = plan.PLANS[dataset]
        self._dataset = dataset
        self._deadline = time.monotonic() + budget
        self._bin_dir = bin_dir
        self._cluster = None
        self._folder = CACHE / dataset
        self._folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        if self._cluster is not None:
            self._cluster.stop()

    def run(self, optimizer, options, seed):
        """The Outcome of one trial over all epochs."""
        spec = training.Spec(
            dataset=self._dataset, optimizer=optimizer,
            options={**self._plan.fixed[optimizer], **options},
            model=self._plan.model, epochs=self._plan.epochs,
            eval_every=self._plan.eval_every, seed=seed, workers=1)
        key = json.dumps(dataclasses.asdict(spec), sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        path = self._folder / f"{optimizer}-{digest}.json"
        if path.exists():
            stored = json.loads(path.read_text())
            return training.Outcome(**stored["outcome"])
        if time.monotonic() > self._deadline:
            raise OutOfBudget
        outcome = self._train(spec)
        path.write_text(json.dumps({"spec": json.loads(key),
                                    "outcome": dataclasses.asdict(outcome)}))
        print(f"{self._dataset} {optimizer} {options} seed {seed}: "
              f"{100 * outcome.final_accuracy:.2f} % in "
              f"{outcome.seconds:.1f} s, {outcome.fallback_steps} fallbacks",
              flush=True)
        return outcome

    def _train(self, spec):
        if self._cluster is None:
            self._cluster = processes.Cluster(self._bin_dir,
                                              self._folder / "logs")
            self._cluster.start_service(servers=1)
        return training.train(self._cluster, spec)


def score(outcome, target):
    """Lower is better: steps until settled at the target, then accuracy."""
    steps = outcome.settled_at(target)
    return (math.inf if steps is None else steps, -final(outcome))


def final(outcome):
    """Median accuracy of the last three evaluations: single ones jump."""
    last = [accuracy for _, _, _, accuracy in outcome.evals[-3:]]
    return statistics.median(last) if last else 0.0


def round_down(value, digits=3):
    return math.floor(value * 10 ** digits) / 10 ** digits


def end_of_epochs(outcome, epochs):
    """The outcome cut off after `epochs`."""
    kept = [row for row in outcome.evals if row[1] < epochs]
    return training.Outcome(evals=kept)


class Tuning:
    """The whole search for one data set."""

    def __init__(self, dataset, trials):
        self.dataset = dataset
        self.plan = plan.PLANS[dataset]
        self._trials = trials
        self.outcomes = {name: {} for name in report.ORDER}
        self.target = None
        self.quick_target = None
        self.trial_count = self.plan.trials

    def run(self):
        self._fix_targets()
        while True:
            for optimizer in ("sgd", "adam", "kfac"):
                self._search(optimizer)
            if all(self.grid(name).interior(self.scores(name))
                   for name in report.ORDER):
                break
            self.trial_count += MORE_TRIALS
        self.seeds = {name: [self._trials.run(
            name, self.grid(name).options(self.best(name)), seed)
            for seed in plan.SEEDS] for name in report.ORDER}

    def grid(self, optimizer):
        return search.GridSearch(*self.plan.grids[optimizer])

    def scores(self, optimizer):
        return {point: score(outcome, self.target)
                for point, outcome in self.outcomes[optimizer].items()}

    def best(self, optimizer):
        return self.grid(optimizer).best(self.scores(optimizer))

    def _try(self, optimizer, point):
        self.outcomes[optimizer][point] = self._trials.run(
            optimizer, self.grid(optimizer).options(point), plan.SEEDS[0])

    def _fix_targets(self):
        grid = self.grid("sgd")
        for point in grid.start():
            self._try("sgd", point)
        runs = self.outcomes["sgd"].values()
        self.target = round_down(
            max(final(run) for run in runs) - self.plan.margin)
        self.quick_target = round_down(max(
            final(end_of_epochs(run, self.plan.quick_epochs))
            for run in runs) - self.plan.margin)

    def _search(self, optimizer):
        grid = self.grid(optimizer)
        while len(self.outcomes[optimizer]) < self.trial_count:
            self._try(optimizer, grid.next(self.scores(optimizer)))

    def settings(self):
        """What quickstart.py reads."""
        length = {"eval_every": self.plan.eval_every}
        return {
            "title": self.plan.title,
            "model": self.plan.model,
            "train_rows": self.plan.train_rows,
            "full": {"epochs": self.plan.epochs,
                     "target_accuracy": self.target, **length},
            "quick": {"epochs": self.plan.quick_epochs,
                      "target_accuracy": self.quick_target, **length},
            "optimizers": {
                name: {**self.plan.fixed[name],
                       **self.grid(name).options(self.best(name))}
                for name in report.ORDER},
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=sorted(plan.PLANS), required=True)
    parser.add_argument("--budget", type=float, default=math.inf,
                        metavar="SECONDS", help="begin no trial after this")
    parser.add_argument("--bin-dir", type=pathlib.Path, metavar="DIR",
                        default=ROOT / "build" / "cpu-release" / "bin")
    options = parser.parse_args()
    processes.raise_on_signals()
    try:
        with Trials(options.dataset, options.bin_dir, options.budget) as trials:
            tuning = Tuning(options.dataset, trials)
            tuning.run()
    except OutOfBudget:
        print("out of budget; run again to go on")
        return 3
    except processes.ClusterError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except processes.Stopped as stopped:
        print(f"stopped by {stopped}", file=sys.stderr)
        return 128 + stopped.signal
    settings = json.loads(SETTINGS.read_text()) if SETTINGS.exists() else {}
    settings[options.dataset] = tuning.settings()
    SETTINGS.write_text(json.dumps(settings, indent=2) + "\n")
    section = tuning_report.section(tuning)
    tuning_report.replace(DOCS, options.dataset, section)
    print(section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
