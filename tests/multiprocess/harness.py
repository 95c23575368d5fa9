"""What the tests of the real programs share."""

import argparse
import pathlib
import select
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from kronlocal import processes  # noqa: E402 (after the path is set)

BIN = None
PROGRAMS = ("kronserve-scheduler", "kronserve-server", "kronserve-worker",
            "kronctl")


def run(program, *words, timeout=20, prefix=()):
    """Runs a program to its end; (exit code, stdout, stderr)."""
    done = subprocess.run([*prefix, BIN / program, *words], capture_output=True,
                          text=True, timeout=timeout, check=False,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def wait_for(what, condition, seconds=30):
    """Returns the first true value of `condition()`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        select.select([], [], [], 0.02)
    raise AssertionError(f"{what} did not happen within {seconds} s")


def wait_for_exit(process, seconds):
    wait_for(f"the end of {process.name}",
             lambda: process.exit_code() is not None, seconds)
    return process.exit_code()


def main():
    global BIN
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", type=pathlib.Path, required=True)
    arguments, rest = parser.parse_known_args()
    BIN = arguments.bin_dir
    unittest.main(module="__main__", argv=[sys.argv[0], *rest], verbosity=2)


Cluster = processes.Cluster
