"""The SVG of the learning curves."""

import pathlib
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
from kronlocal import curves, training  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def run(accuracies):
    return training.Outcome(evals=[
        (50 * (k + 1), k // 4, 0.5 * (k + 1), accuracy)
        for k, accuracy in enumerate(accuracies)])


class TicksTest(unittest.TestCase):
    def test_are_round_and_inside(self):
        self.assertEqual(curves.ticks(0, 2345), [0, 500, 1000, 1500, 2000])
        self.assertEqual(curves.ticks(0.7, 0.9),
                         [0.7, 0.75, 0.8, 0.85, 0.9])
        self.assertEqual(curves.ticks(3, 3), [3])


class DrawTest(unittest.TestCase):
    def setUp(self):
        self.outcomes = {"kfac": [run([0.80, 0.86, 0.88]),
                                  run([0.79, 0.85, 0.87])],
                         "sgd": [run([0.60, 0.80, 0.86])],
                         "adam": [run([0.70, 0.82, 0.87])]}
        self.root = xml.etree.ElementTree.fromstring(
            curves.draw(self.outcomes, 0.87, "A < B"))

    def words(self):
        return [element.text for element in self.root.iter(SVG + "text")]

    def test_has_the_promised_size(self):
        self.assertEqual((self.root.get("width"), self.root.get("height")),
                         ("900", "420"))

    def test_has_a_curve_per_run_and_panel(self):
        self.assertEqual(len(list(self.root.iter(SVG + "polyline"))), 8)

    def test_names_axes_curves_target_and_title(self):
        for words in ("A < B", "steps", "seconds of training",
                      "test accuracy, %", "K-FAC (service)", "SGD", "Adam",
                      "target 87 %"):
            self.assertIn(words, self.words())

    def test_first_curve_stands_where_the_numbers_say(self):
        # Steps 50..150 of 150: a third, two thirds and the whole of the panel.
        points = next(self.root.iter(SVG + "polyline")).get("points").split()
        xs = [float(point.split(",")[0]) for point in points]
        for x, share in zip(xs, (1 / 3, 2 / 3, 1)):
            self.assertAlmostEqual(
                x, curves.LEFT + share * curves.PANEL_WIDTH, delta=0.06)
        ys = [float(point.split(",")[1]) for point in points]
        self.assertGreater(ys[0], ys[1])  # Better is higher: smaller y.
        self.assertGreater(ys[1], ys[2])

    def test_runs_without_evaluations_are_drawn_empty(self):
        xml.etree.ElementTree.fromstring(
            curves.draw({"kfac": [training.Outcome()]}, 0.9, "none"))


if __name__ == "__main__":
    unittest.main()
