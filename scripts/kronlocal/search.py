"""Search on a grid of two axes that widens itself where it has to."""

import dataclasses
import typing


@dataclasses.dataclass(frozen=True)
class Axis:
    """Values of one option; an index outside of `value` gives None."""
    option: str
    value: typing.Callable[[int], typing.Optional[float]]


def geometric(option, middle, factor):
    """middle * factor^index, to three digits."""
    return Axis(option, lambda index: float(f"{middle * factor ** index:.3g}"))


def one_minus(option, distance):
    """1 - distance * 2^-index while that is at least 0: for momentum."""
    def value(index):
        result = round(1 - distance * 2.0 ** -index, 6)
        return result if result >= 0 else None
    return Axis(option, value)


class GridSearch:
    """Says which grid point to try next; lower scores are better.

    The start grid comes first. After that the untried neighbours of the best
    point, nearest first: the grid grows to where the best point is, until the
    best one has neighbours on all four sides, and then around it.
    """

    def __init__(self, axes, first, second):
        """`first` and `second` are the index ranges of the start grid."""
        self.axes = axes
        self._start = [(i, j) for i in first for j in second]

    def options(self, point):
        return {axis.option: axis.value(index)
                for axis, index in zip(self.axes, point)}

    def valid(self, point):
        return all(value is not None for value in self.options(point).values())

    @staticmethod
    def best(scores):
        return min(scores, key=lambda point: (scores[point], point))

    def sides(self, point):
        i, j = point
        return [side for side in ((i - 1, j), (i + 1, j), (i, j - 1),
                                  (i, j + 1)) if self.valid(side)]

    def interior(self, scores):
        """True when every side of the best point was tried."""
        return bool(scores) and all(side in scores for side in
                                    self.sides(self.best(scores)))

    def start(self):
        return [point for point in self._start if self.valid(point)]

    def next(self, scores):
        """The point to try after those of `scores` {point: score}."""
        for point in self.start():
            if point not in scores:
                return point
        i, j = self.best(scores)
        for distance in range(1, 20):
            ring = sorted((abs(a) + abs(b), i + a, j + b)
                          for a in range(-distance, distance + 1)
                          for b in range(-distance, distance + 1))
            for _, a, b in ring:
                if (a, b) not in scores and self.valid((a, b)):
                    return a, b
        raise ValueError("the grid is used up")
