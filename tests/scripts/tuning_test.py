"""scripts/tune.py over made-up learning curves."""

import dataclasses
import math
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
import tune  # noqa: E402
from kronlocal import report, search, training  # noqa: E402
from kronlocal import tuning_plan, tuning_report  # noqa: E402


class MadeUpTrials:
    """Accuracy grows like 1 - exp(-steps / time); `time` is least at `best`,
    {optimizer: (first index, second index)}."""

    def __init__(self, plan, best):
        self.plan = plan
        self.best = best
        self.runs = []

    def run(self, optimizer, options, seed):
        self.runs.append((optimizer, tuple(options.values()), seed))
        grid = search.GridSearch(*self.plan.grids[optimizer])
        goal = grid.options(self.best[optimizer])
        time = 60 if optimizer == "kfac" else 150
        for value, best in zip(options.values(), goal.values()):
            time += 100 * abs(math.log(value / best))
        rows = [(step, step // 100, step / 100,
                 0.9 * (1 - math.exp(-step / time)))
                for step in range(20, 100 * self.plan.epochs, 20)]
        return training.Outcome(evals=rows, final_accuracy=rows[-1][3])


def outcome(*accuracies):
    return training.Outcome(evals=[(20 * (k + 1), 0, k, accuracy)
                                   for k, accuracy in enumerate(accuracies)])


class TuningTest(unittest.TestCase):
    def setUp(self):
        self.plan = tuning_plan.PLANS["fashion-mnist"]

    def tuned(self, **best):
        trials = MadeUpTrials(self.plan, {
            "sgd": (0, 0), "adam": (0, 0), "kfac": (0, 0), **best})
        tuning = tune.Tuning("fashion-mnist", trials)
        tuning.run()
        return tuning

    def test_every_optimizer_gets_the_same_number_of_trials(self):
        tuning = self.tuned(kfac=(2, -1))
        counts = {len(points) for points in tuning.outcomes.values()}
        self.assertEqual(counts, {tuning.trial_count})

    def test_all_get_more_trials_when_one_needs_them(self):
        tuning = self.tuned(kfac=(6, 0))
        self.assertGreater(tuning.trial_count, self.plan.trials)
        self.assertEqual(tuning.best("kfac"), (6, 0))
        self.assertEqual({len(points) for points in tuning.outcomes.values()},
                         {tuning.trial_count})

    def test_best_points_are_interior_and_become_the_settings(self):
        tuning = self.tuned(sgd=(1, 0), kfac=(-1, 2))
        for name in report.ORDER:
            self.assertTrue(tuning.grid(name).interior(tuning.scores(name)))
        settings = tuning.settings()
        self.assertEqual(settings["optimizers"]["sgd"]["lr"],
                         tuning.grid("sgd").axes[0].value(1))
        self.assertEqual(settings["optimizers"]["kfac"]["damping"],
                         tuning.grid("kfac").axes[1].value(2))

    def test_target_is_sgds_best_less_the_margin(self):
        tuning = self.tuned()
        best = max(tune.final(run) for run in tuning.outcomes["sgd"].values())
        self.assertAlmostEqual(tuning.target, best - self.plan.margin,
                               delta=0.001)
        self.assertLess(tuning.quick_target, tuning.target)

    def test_best_points_run_with_three_seeds(self):
        tuning = self.tuned()
        for name in report.ORDER:
            self.assertEqual(len(tuning.seeds[name]), 3)
            seeds = {seed for optimizer, _, seed in tuning._trials.runs
                     if optimizer == name}
            self.assertEqual(seeds, {1, 2, 3})

    def test_page_has_grids_best_points_and_keeps_other_sections(self):
        section = tuning_report.section(self.tuned())
        self.assertIn("| lr \\ damping |", section)
        self.assertRegex(section, r"\| K-FAC \| \d+ / \d+ \|")
        self.assertEqual(section.count("**"), 6)  # One bold cell per grid.
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tuning.md"
            tuning_report.replace(path, "fashion-mnist", section)
            tuning_report.replace(path, "digits", "### K-FAC\n\nold\n")
            tuning_report.replace(path, "digits", "### K-FAC\n\nnew\n")
            page = path.read_text()
        self.assertIn("| lr \\ damping |", page)
        self.assertIn("new", page)
        self.assertNotIn("old\n", page)
        self.assertEqual(page.count("# Tuning"), 1)


class ScoreTest(unittest.TestCase):
    def test_reaching_counts_before_accuracy(self):
        early = outcome(0.9, 0.9, 0.5, 0.5)
        late = outcome(0.5, 0.9, 0.95, 0.95)
        never = outcome(0.8, 0.8, 0.8, 0.8)
        diverged = training.Outcome()
        scores = [tune.score(run, 0.9)
                  for run in (early, late, never, diverged)]
        self.assertEqual(scores, sorted(scores))

    def test_one_lucky_evaluation_does_not_settle(self):
        self.assertEqual(outcome(0.5, 0.9, 0.5, 0.5, 0.9, 0.5, 0.9)
                         .settled_at(0.9), 100)
        self.assertIsNone(outcome(0.9, 0.5, 0.5, 0.9).settled_at(0.9))

    def test_outcome_survives_the_cache(self):
        run = training.Outcome(evals=[(20, 0, 1.5, 0.9)], steps=20)
        copy = training.Outcome(**dataclasses.asdict(run))
        self.assertEqual(copy.to_target(0.9), (20, 1.5))


if __name__ == "__main__":
    unittest.main()
