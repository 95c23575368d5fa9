"""Shows a run while it goes: a bar on a terminal, plain lines elsewhere."""

import shutil
import sys


class Progress:
    """Feed it the events of one run, then call finish()."""

    def __init__(self, title, spec, stream=sys.stdout):
        self._title = title
        self._epochs = spec.epochs
        self._total_steps = spec.epochs * spec.steps_per_epoch
        self._stream = stream
        self._terminal = stream.isatty()
        self._loss = None
        self._accuracy = None
        self._share = 0.0
        self._next_line = 0.0  # Share at which a line is due; a log wants few.
        self._seconds = 0.0
        self._epoch = 0

    def event(self, event):
        kind = event["event"]
        if kind == "step":
            self._step(event)
        elif kind == "eval":
            self._accuracy = event["accuracy"]
            self._seconds = event["seconds"]
            if not self._terminal and self._share >= self._next_line:
                self._next_line = self._share + 0.1
                self._line(event)
        elif kind == "fallback":
            self._say(f"{self._title}: step {event['step']}: "
                      f"{describe_fallback(event)}")
        if self._terminal:
            self._draw()

    def _step(self, event):
        loss = event["loss"]
        # The loss of single batches jumps; people want to see it fall.
        self._loss = loss if self._loss is None else (
            0.9 * self._loss + 0.1 * loss)
        self._seconds = event["seconds"]
        self._epoch = event["epoch"]
        self._share = min(1.0, (event["step"] + 1) / self._total_steps)

    def _text(self):
        parts = [f"epoch {min(self._epoch + 1, self._epochs)}/{self._epochs}"]
        if self._loss is not None:
            parts.append(f"loss {self._loss:.3f}")
        if self._accuracy is not None:
            parts.append(f"accuracy {100 * self._accuracy:.2f} %")
        parts.append(f"{self._seconds:.1f} s")
        return "  ".join(parts)

    def _draw(self):
        text = self._text()
        width = shutil.get_terminal_size().columns - len(text) - 16
        width = max(10, min(30, width))
        filled = round(width * self._share)
        bar = "#" * filled + "." * (width - filled)
        self._stream.write(f"\r\x1b[K{self._title:>5} [{bar}] {text}")
        self._stream.flush()

    def _line(self, event):
        self._say(f"{self._title}: step {event['step']}: {self._text()}")

    def _say(self, line):
        start = "\r\x1b[K" if self._terminal else ""
        self._stream.write(f"{start}{line}\n")
        self._stream.flush()

    def finish(self, outcome):
        self._share = 1.0
        self._say(f"{self._title}: {outcome.steps} steps in "
                  f"{outcome.seconds:.1f} s, accuracy "
                  f"{100 * outcome.final_accuracy:.2f} %")


def describe_fallback(event):
    if not event["layers"]:
        return "all layers are preconditioned again"
    return "fall back: " + ", ".join(
        f"{layer['name']} ({layer['reason']})" for layer in event["layers"])
