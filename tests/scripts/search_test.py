"""The grid search of scripts/tune.py."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
from kronlocal import search  # noqa: E402


def run(grid, score, trials):
    scores = {}
    while len(scores) < trials:
        point = grid.next(scores)
        scores[point] = score(point)
    return scores


class AxisTest(unittest.TestCase):
    def test_values(self):
        lr = search.geometric("lr", 0.1, 2)
        self.assertEqual([lr.value(i) for i in (-1, 0, 2)], [0.05, 0.1, 0.4])
        momentum = search.one_minus("momentum", 0.1)
        self.assertEqual([momentum.value(i) for i in (-3, -1, 0, 1)],
                         [0.2, 0.8, 0.9, 0.95])
        self.assertIsNone(momentum.value(-4))


class GridSearchTest(unittest.TestCase):
    def setUp(self):
        self.grid = search.GridSearch(
            (search.geometric("lr", 1, 2), search.geometric("damping", 1, 10)),
            range(-1, 2), range(-1, 2))

    def test_start_grid_comes_first_and_is_enough_when_its_middle_is_best(self):
        scores = run(self.grid, lambda p: p[0] ** 2 + p[1] ** 2, 9)
        self.assertEqual(set(scores), {(i, j) for i in (-1, 0, 1)
                                       for j in (-1, 0, 1)})
        self.assertEqual(self.grid.best(scores), (0, 0))
        self.assertTrue(self.grid.interior(scores))

    def test_corner_is_not_interior(self):
        scores = run(self.grid, lambda p: -p[0] - p[1], 9)
        self.assertEqual(self.grid.best(scores), (1, 1))
        self.assertFalse(self.grid.interior(scores))

    def test_grows_towards_the_best_point(self):
        # Minimum at (4, -3), two and three lines outside of the start grid.
        scores = run(self.grid,
                     lambda p: (p[0] - 4) ** 2 + (p[1] + 3) ** 2, 30)
        self.assertEqual(self.grid.best(scores), (4, -3))
        self.assertTrue(self.grid.interior(scores))

    def test_end_of_an_axis_counts_as_a_side(self):
        grid = search.GridSearch(
            (search.geometric("lr", 1, 2), search.one_minus("momentum", 0.1)),
            range(-1, 2), range(-1, 2))
        scores = run(grid, lambda p: p[0] ** 2 + p[1], 25)
        self.assertEqual(grid.options(grid.best(scores)),
                         {"lr": 1.0, "momentum": 0.2})
        self.assertTrue(grid.interior(scores))


if __name__ == "__main__":
    unittest.main()
