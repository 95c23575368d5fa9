"""Table and RESULT of the main job."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
from kronlocal import report, training  # noqa: E402


def run(rows, **fields):
    values = {"steps": 100, "seconds": 4.0, "waited_seconds": 1.0,
              "end": "completed",
              "final_accuracy": rows[-1][3], "layers": 3,
              "layers_preconditioned": 3, **fields}
    return training.Outcome(evals=rows, **values)


# (step, epoch, seconds, accuracy)
FAST = [(50, 0, 2.0, 0.86), (100, 1, 4.0, 0.88)]
SLOW = [(50, 0, 1.0, 0.70), (100, 1, 2.0, 0.86)]
SIZE = {"servers": 2, "workers": 2}


def outcomes(kfac, count=1):
    return {"kfac": [kfac] * count, "sgd": [run(SLOW)] * count,
            "adam": [run(FAST)] * count}


class ResultTest(unittest.TestCase):
    def test_good_run_is_ok_and_has_exactly_the_promised_keys(self):
        values = report.result("digits", 0.87, outcomes(run(FAST)), SIZE, [1])
        self.assertEqual(values, {
            "dataset": "digits", "target_accuracy": 0.87,
            "steps_to_target": {"kfac": 100, "sgd": None, "adam": 100},
            "seconds_to_target": {"kfac": 4.0, "sgd": None, "adam": 4.0},
            "final_accuracy": {"kfac": 0.88, "sgd": 0.86, "adam": 0.88},
            "fallback_steps": 0, "layers_preconditioned": 3,
            "servers": 2, "workers": 2, "seeds": [1], "status": "ok"})

    def test_fallbacks_fail(self):
        kfac = run(FAST, fallback_steps=4, fallen_back_layers={"fc1": 4})
        values = report.result("digits", 0.87, outcomes(kfac), SIZE, [1])
        self.assertEqual(values["status"], "failed")
        self.assertEqual(values["reasons"], ["4 steps with fallbacks of fc1"])

    def test_layers_that_were_never_preconditioned_fail(self):
        kfac = run(FAST, layers_preconditioned=2)
        values = report.result("digits", 0.87, outcomes(kfac), SIZE, [1])
        self.assertEqual(values["reasons"],
                         ["2 of 3 registered layers preconditioned"])

    def test_run_without_layers_fails(self):
        kfac = run(FAST, layers=0, layers_preconditioned=0)
        values = report.result("digits", 0.87, outcomes(kfac), SIZE, [1])
        self.assertEqual(values["status"], "failed")

    def test_missed_target_fails(self):
        values = report.result("digits", 0.87, outcomes(run(SLOW)), SIZE, [1])
        self.assertEqual(values["reasons"],
                         ["K-FAC did not reach the target accuracy 0.87"])

    def test_divergence_is_named(self):
        kfac = run(SLOW, end="diverged")
        values = report.result("digits", 0.87, outcomes(kfac), SIZE, [1])
        self.assertIn("0.87 (diverged)", values["reasons"][0])

    def test_seeds_are_reported_by_their_median(self):
        steps = [[(step, 0, step / 10, 0.9)] for step in (30, 10, 20)]
        several = {name: [run(rows) for rows in steps]
                   for name in report.ORDER}
        values = report.result("digits", 0.87, several, SIZE, [1, 2, 3])
        self.assertEqual(values["steps_to_target"]["kfac"], 20)
        self.assertEqual(values["seconds_to_target"]["sgd"], 2.0)
        several["sgd"][1] = run(SLOW)
        values = report.result("digits", 0.87, several, SIZE, [1, 2, 3])
        self.assertIsNone(values["steps_to_target"]["sgd"])


class TableTest(unittest.TestCase):
    def test_shows_epochs_targets_waits_and_layers(self):
        runs = outcomes(run(FAST))
        values = report.result("digits", 0.87, runs, SIZE, [1])
        lines = [line.split() for line in report.table(0.87, runs, values)]
        self.assertEqual(lines[0], ["K-FAC", "SGD", "Adam"])
        self.assertEqual(lines[1],
                         "accuracy, epoch 1, % 86.00 70.00 86.00".split())
        self.assertEqual(lines[2],
                         "accuracy, epoch 2, % 88.00 86.00 88.00".split())
        self.assertEqual(lines[3], "steps to 87 % 100 - 100".split())
        self.assertEqual(lines[4], "seconds to 87 % 4.0 - 4.0".split())
        self.assertEqual(lines[5],
                         "milliseconds per step 40.0 40.0 40.0".split())
        self.assertEqual(lines[6], "share of a step waiting for the service, "
                         "% 25.0 25.0 25.0".split())
        self.assertEqual(lines[7], "share of a step averaging gradients, "
                         "% 0.0 0.0 0.0".split())
        self.assertEqual(lines[8], "steps with fallbacks 0".split())
        self.assertEqual(lines[9], "layers preconditioned 3 of 3".split())


if __name__ == "__main__":
    unittest.main()
