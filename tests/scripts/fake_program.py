#!/usr/bin/env python3
"""Stands in for all programs; FAKE_MODE says how it should go wrong."""

import json
import os
import pathlib
import signal
import sys

MODE = os.environ.get("FAKE_MODE", "")
NAME = pathlib.Path(sys.argv[0]).name
FLAGS = dict(word[2:].split("=", 1) if "=" in word else (word[2:], "true")
             for word in sys.argv[1:])


def serve():
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == f"{NAME} fails":
        sys.exit(f"{NAME}: port in use")
    path = pathlib.Path(FLAGS["address-file"])
    path.with_suffix(".new").write_text("127.0.0.1:7000\n")
    path.with_suffix(".new").rename(path)
    while True:
        signal.pause()


def events():
    best = 0.9 if FLAGS["optimizer"] == "kfac" else 0.8
    for step in range(int(FLAGS["epochs"]) * 4):
        yield {"event": "step", "step": step, "epoch": step // 4,
               "loss": 1.0 / (step + 1), "seconds": 0.1 * step,
               "waited_seconds": 0.01 * step}
    yield {"event": "eval", "step": step + 1, "epoch": step // 4,
           "seconds": 0.1 * step, "accuracy": best}
    fallbacks = 2 if MODE == "fallbacks" else 0
    if fallbacks:
        yield {"event": "fallback", "step": 3, "layers": [
            {"name": "fc1", "reason": "unreachable", "message": "refused"}]}
    kfac = FLAGS["optimizer"] == "kfac"
    yield {"event": "done", "steps": step + 1, "seconds": 0.1 * step,
           "waited_seconds": 0.01 * step, "exchange_seconds": 0.0,
           "end": "completed", "final_accuracy": best,
           "fallback_steps": fallbacks if kfac else 0,
           "layers": 3 if kfac else 0,
           "layers_preconditioned": 3 if kfac else 0,
           "fallen_back_layers": (
               {"fc1": fallbacks} if fallbacks and kfac else {})}


def work():
    if MODE == "worker fails" and FLAGS["rank"] == "1":
        sys.exit("rank 1: cannot read the data set")
    if MODE == "worker hangs":
        signal.pause()
    if "events" in FLAGS:
        with open(FLAGS["events"], "w", encoding="utf-8") as file:
            for event in events():
                file.write(json.dumps(event) + "\n")


if __name__ == "__main__":
    if NAME == "kronserve-worker":
        work()
    else:
        serve()
