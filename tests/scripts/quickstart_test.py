"""scripts/quickstart.py from outside, over stand-ins for the programs."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import processes_test

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "quickstart.py"


def command_lines():
    """The command lines of all processes, zombies left out."""
    lines = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue  # Ended meanwhile.
    return "\n".join(lines)


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.logs = pathlib.Path(folder.name) / "logs"
        self.command = [
            sys.executable, "-B", str(SCRIPT), "--dataset=digits",
            "--epochs=2", f"--keep-logs={self.logs}",
            f"--bin-dir={processes_test.bin_dir(folder.name)}"]

    def environment(self, mode):
        return {**os.environ, "FAKE_MODE": mode}

    def run_it(self, mode=""):
        run = subprocess.run(self.command, capture_output=True, text=True,
                             env=self.environment(mode), timeout=50,
                             check=False)
        last = run.stdout.splitlines()[-1]
        self.assertTrue(last.startswith("RESULT "), run.stdout + run.stderr)
        return run, json.loads(last[len("RESULT "):])

    def test_reports_table_curves_and_result(self):
        run, result = self.run_it()
        self.assertIn("layers preconditioned", run.stdout)
        self.assertIn("K-FAC: step 8: epoch 2/2", run.stdout)
        self.assertTrue((self.logs / "curves.svg").read_text()
                        .startswith("<svg"))
        self.assertEqual(result["final_accuracy"],
                         {"kfac": 0.9, "sgd": 0.8, "adam": 0.8})
        self.assertEqual((result["servers"], result["workers"]), (2, 2))

    def test_fallbacks_are_said_and_fail(self):
        run, result = self.run_it("fallbacks")
        self.assertEqual(run.returncode, 1)
        self.assertEqual(result["status"], "failed")
        self.assertEqual(result["fallback_steps"], 2)
        self.assertIn("step 3: fall back: fc1 (unreachable)", run.stdout)

    def test_failed_worker_is_named_with_its_log(self):
        run, result = self.run_it("worker fails")
        self.assertEqual(run.returncode, 1)
        self.assertIn("kfac-seed1-rank1 ended with status 1", run.stderr)
        self.assertIn("cannot read the data set", run.stderr)
        self.assertEqual(result["status"], "failed")

    def test_signals_stop_every_process(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            script = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env=self.environment("worker hangs"))
            self.addCleanup(script.kill)
            log = self.logs / "kfac-seed1-rank1.log"
            deadline = time.monotonic() + 30
            while not log.exists() and time.monotonic() < deadline:
                time.sleep(0.02)  # For a process of its own, not for a thread.
            script.send_signal(number)
            _, errors = script.communicate(timeout=30)
            self.assertEqual(script.returncode, 128 + number, errors)
            self.assertIn("every process has ended", errors)
            self.assertNotIn(str(self.logs), command_lines())
            log.unlink()

    def test_bad_options_end_with_two(self):
        for words in (["--dataset=mnist"], ["--servers=0"], ["--colour=red"]):
            run = subprocess.run([sys.executable, "-B", str(SCRIPT)] + words,
                                 capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 2, words)
            self.assertIn("error:", run.stderr)


if __name__ == "__main__":
    unittest.main()
