"""Draws learning curves as SVG: accuracy over steps and over seconds."""

import html
import math

WIDTH, HEIGHT = 900, 420
TOP, BOTTOM, LEFT, GAP, RIGHT = 64, 56, 62, 70, 20
PANEL_WIDTH = (WIDTH - LEFT - GAP - RIGHT) // 2
PANEL_HEIGHT = HEIGHT - TOP - BOTTOM
COLOURS = {"kfac": "#c2410c", "sgd": "#1d4ed8", "adam": "#15803d"}
LABELS = {"kfac": "K-FAC (service)", "sgd": "SGD", "adam": "Adam"}
INK, GREY, GRID = "#1f2937", "#6b7280", "#e5e7eb"


def ticks(low, high, count=5):
    """Round numbers from `low` to `high`, about `count` of them."""
    span = high - low
    if not span > 0:
        return [low]
    raw = span / count
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10)
                if unit * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]


def number(value):
    return f"{value:g}"


class Panel:
    """One pair of axes; `series` is [(optimizer, seed, [(x, accuracy)])]."""

    def __init__(self, left, x_label, series, accuracies):
        self._left = left
        self._x_label = x_label
        self._series = series
        self._x_max = max((x for _, _, points in series for x, _ in points),
                          default=1) or 1
        self._low, self._high = accuracies

    def x(self, value):
        return self._left + PANEL_WIDTH * value / self._x_max

    def y(self, value):
        share = (value - self._low) / (self._high - self._low)
        return TOP + PANEL_HEIGHT * (1 - share)

    def draw(self, target):
        yield from self._axes()
        y = self.y(target)
        yield (f'<line x1="{self._left}" y1="{y:.1f}" '
               f'x2="{self._left + PANEL_WIDTH}" y2="{y:.1f}" '
               f'stroke="{INK}" stroke-dasharray="5 4"/>')
        clip = f"panel{self._left}"
        yield (f'<clipPath id="{clip}"><rect x="{self._left}" y="{TOP}" '
               f'width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}"/></clipPath>'
               f'<g clip-path="url(#{clip})">')
        for optimizer, seed, points in self._series:
            yield self._curve(optimizer, seed, points)
        yield "</g>"
        # On top of the curves, with a rim that keeps it readable there.
        yield ('<g stroke="#ffffff" stroke-width="4" paint-order="stroke">'
               + text(self._left + PANEL_WIDTH - 4, y + 16,
                      f"target {100 * target:g} %", INK, "end") + "</g>")

    def _axes(self):
        bottom, right = TOP + PANEL_HEIGHT, self._left + PANEL_WIDTH
        for value in ticks(self._low, self._high):
            y = self.y(value)
            yield (f'<line x1="{self._left}" y1="{y:.1f}" x2="{right}" '
                   f'y2="{y:.1f}" stroke="{GRID}"/>')
            yield text(self._left - 6, y + 4, number(100 * value), GREY, "end")
        for value in ticks(0, self._x_max):
            x = self.x(value)
            yield (f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" '
                   f'y2="{bottom + 4}" stroke="{GREY}"/>')
            yield text(x, bottom + 18, number(value), GREY, "middle")
        yield (f'<path d="M{self._left} {TOP}V{bottom}H{right}" fill="none" '
               f'stroke="{GREY}"/>')
        yield text(self._left + PANEL_WIDTH / 2, bottom + 40, self._x_label,
                   INK, "middle")

    def _curve(self, optimizer, seed, points):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}"
                        for x, y in points)
        look = 'stroke-width="2.2"' if seed == 0 else (
            'stroke-width="1.2" stroke-opacity="0.45"')
        return (f'<polyline points="{path}" fill="none" {look} '
                f'stroke="{COLOURS[optimizer]}" stroke-linejoin="round"/>')


def text(x, y, words, colour, anchor="start", size=12):
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" '
            f'font-size="{size}" text-anchor="{anchor}">'
            f'{html.escape(words)}</text>')


def accuracy_range(outcomes, target):
    """Low and high end of the accuracy axis; the first, steep part of the
    curves is cut off, since the end is what is compared."""
    values = sorted(accuracy for runs in outcomes.values() for run in runs
                    for _, _, _, accuracy in run.evals)
    if not values:
        return 0.0, 1.0
    low = max(values[len(values) // 10], target - 0.15)
    low = math.floor(20 * min(low, target - 0.02)) / 20
    high = min(1.0, math.ceil(50 * max(values[-1], target + 0.005)) / 50)
    return max(0.0, low), high


def legend(optimizers):
    x = LEFT
    for optimizer in optimizers:
        yield (f'<line x1="{x}" y1="46" x2="{x + 26}" y2="46" '
               f'stroke="{COLOURS[optimizer]}" stroke-width="3"/>')
        yield text(x + 32, 50, LABELS[optimizer], INK)
        x += 62 + 6.5 * len(LABELS[optimizer])


def draw(outcomes, target, title):
    """SVG text. `outcomes` maps an optimizer to its runs, one per seed."""
    accuracies = accuracy_range(outcomes, target)

    def series(column):
        return [(optimizer, seed, [(row[column], row[3]) for row in run.evals])
                for optimizer, runs in outcomes.items()
                for seed, run in enumerate(runs)]

    panels = (Panel(LEFT, "steps", series(0), accuracies),
              Panel(LEFT + PANEL_WIDTH + GAP, "seconds of training", series(2),
                    accuracies))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 26, title, INK, size=16),
        *legend(outcomes),
        f'<text transform="translate(16 {TOP + PANEL_HEIGHT / 2:.0f}) '
        f'rotate(-90)" fill="{INK}" font-size="12" text-anchor="middle">'
        'test accuracy, %</text>',
    ]
    for panel in panels:
        parts += panel.draw(target)
    return "\n".join(parts + ["</svg>", ""])
