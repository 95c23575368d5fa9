"""The bar and the lines of scripts/quickstart.py."""

import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
from kronlocal import progress, training  # noqa: E402

SPEC = training.Spec(dataset="digits", optimizer="kfac", options={}, epochs=2,
                     steps_per_epoch=10)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def step(number, loss):
    return {"event": "step", "step": number, "epoch": number // 10,
            "loss": loss, "seconds": number / 10}


class ProgressTest(unittest.TestCase):
    def test_bar_shows_share_loss_accuracy_and_time(self):
        terminal = Terminal()
        bar = progress.Progress("K-FAC", SPEC, terminal)
        bar.event(step(9, 0.5))
        bar.event({"event": "eval", "step": 10, "epoch": 0, "seconds": 0.9,
                   "accuracy": 0.8125})
        last = terminal.getvalue().split("\r")[-1]
        cells = last[last.index("[", 5) + 1:last.index("]")]
        # 10 of 20 steps; blanks are dots.
        self.assertEqual(cells.count("#"), cells.count("."))
        for words in ("epoch 1/2", "loss 0.500", "accuracy 81.25 %", "0.9 s"):
            self.assertIn(words, last)
        self.assertNotIn("\n", terminal.getvalue())

    def test_without_a_terminal_there_is_a_line_per_tenth_of_the_run(self):
        stream = io.StringIO()
        bar = progress.Progress("SGD", SPEC, stream)
        for number in range(20):
            bar.event(step(number, 1.0))
            bar.event({"event": "eval", "step": number + 1, "epoch": 0,
                       "seconds": 0.0, "accuracy": 0.5})
        self.assertIn(stream.getvalue().count("\n"), range(7, 12))

    def test_line_shows_step_loss_accuracy_and_time(self):
        stream = io.StringIO()
        bar = progress.Progress("SGD", SPEC, stream)
        for number in range(12):
            bar.event(step(number, 1.0))
        bar.event({"event": "eval", "step": 12, "epoch": 1, "seconds": 1.2,
                   "accuracy": 0.5})
        self.assertEqual(stream.getvalue(),
                         "SGD: step 12: epoch 2/2  loss 1.000  "
                         "accuracy 50.00 %  1.2 s\n")

    def test_fallbacks_are_named_and_their_end_is_said(self):
        stream = io.StringIO()
        bar = progress.Progress("K-FAC", SPEC, stream)
        layer = {"name": "fc1", "reason": "unreachable", "message": "x"}
        bar.event({"event": "fallback", "step": 3, "layers": [layer]})
        bar.event({"event": "fallback", "step": 5, "layers": []})
        self.assertEqual(stream.getvalue(),
                         "K-FAC: step 3: fall back: fc1 (unreachable)\n"
                         "K-FAC: step 5: all layers are preconditioned "
                         "again\n")


if __name__ == "__main__":
    unittest.main()
