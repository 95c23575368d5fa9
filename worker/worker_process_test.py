"""The real kronserve-worker: options, errors, signals. No other process.

Usage: worker_process_test.py PATH_OF_KRONSERVE_WORKER
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = None
DEADLINE_SECONDS = 20


def run(*args, env=None):
    return subprocess.run([BINARY, *args], capture_output=True, text=True,
                          timeout=DEADLINE_SECONDS, check=False,
                          env={**os.environ, **(env or {})})


class WorkerProcessTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def start(self, *args):
        process = subprocess.Popen([BINARY, *args], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def test_answers_help_and_version(self):
        help_text = run("--help")
        self.assertEqual(help_text.returncode, 0)
        self.assertIn("--factor-update-steps", help_text.stdout)
        version = run("--version")
        self.assertEqual(version.returncode, 0)
        self.assertIn("kronserve-worker", version.stdout)

    def test_printed_config_is_a_config(self):
        shown = run("--optimizer=sgd", "--batch=128", "--print-config")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("batch = 128", shown.stdout)
        config = self.path / "worker.conf"
        config.write_text(shown.stdout)
        again = run(f"--config={config}", "--print-config")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout, shown.stdout)

    def test_all_bad_options_are_named_and_exit_is_2(self):
        bad = run("--optimizer=kfac", "--batch=0", "--wrong=1", "--rank=9")
        self.assertEqual(bad.returncode, 2)
        for part in ("scheduler", "batch", "wrong", "rank 9"):
            self.assertIn(part, bad.stderr)
        bad = run("--optimizer=sgd", env={"WORLD_SIZE": "many"})
        self.assertEqual(bad.returncode, 2)
        self.assertIn("WORLD_SIZE='many'", bad.stderr)

    def test_a_missing_data_set_names_the_package(self):
        missing = run("--optimizer=sgd", f"--data-dir={self.path}")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("dataset-fashion-mnist", missing.stderr)
        self.assertIn(str(self.path), missing.stderr)

    def test_files_that_cannot_be_written_are_named(self):
        failed = run("--optimizer=sgd", "--dataset=digits",
                     "--events=/no/such/folder/events")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("/no/such/folder/events", failed.stderr)

    def test_trains_digits_alone_and_says_how_it_went(self):
        events = self.path / "events"
        hashes = self.path / "hashes"
        trained = run("--optimizer=sgd", "--dataset=digits", "--batch=64",
                      "--lr=0.05", "--epochs=8", "--hidden=48",
                      "--target-accuracy=0.9", "--verify-replicas",
                      f"--hash-log={hashes}", f"--events={events}")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("completed: 176 steps", trained.stdout)
        lines = [json.loads(line) for line in events.read_text().splitlines()]
        self.assertEqual([line["event"] for line in lines].count("step"), 176)
        done = lines[-1]
        self.assertEqual(done["event"], "done")
        self.assertGreater(done["final_accuracy"], 0.9)
        self.assertLess(done["steps_to_target"], 176)
        self.assertEqual(done["layers"], 0)
        self.assertEqual(len(hashes.read_text().splitlines()), 176)

    def test_the_same_seed_gives_the_same_parameters(self):
        logs = []
        for name in ("one", "two"):
            log = self.path / name
            trained = run("--optimizer=adam", "--dataset=digits", "--batch=64",
                          "--max-steps=20", f"--hash-log={log}")
            self.assertEqual(trained.returncode, 0, trained.stderr)
            logs.append(log.read_text())
        self.assertEqual(logs[0], logs[1])

    def test_a_diverging_run_says_so_and_fails(self):
        diverged = run("--optimizer=sgd", "--dataset=digits", "--lr=1000000",
                       "--progress=never")
        self.assertEqual(diverged.returncode, 1)
        self.assertIn("loss is not finite", diverged.stderr)

    def test_sigterm_stops_training_after_its_step(self):
        events = self.path / "events"
        process = self.start("--optimizer=sgd", "--dataset=digits",
                             "--batch=64", "--epochs=1000000",
                             f"--events={events}")
        process.stderr.readline()  # The first evaluation.
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        self.assertLess(time.monotonic() - started, 5)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("stopped by a signal after step", out)
        last = json.loads(events.read_text().splitlines()[-1])
        self.assertEqual(last["end"], "stopped")

    def test_sigterm_ends_the_wait_for_a_job(self):
        # Port 1 has no listener: the worker waits for a scheduler.
        process = self.start("--optimizer=kfac", "--dataset=digits",
                             "--scheduler=127.0.0.1:1", "--join-timeout=10m")
        self.assertIn("waiting for the job", process.stderr.readline())
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=DEADLINE_SECONDS)
        self.assertLess(time.monotonic() - started, 5)
        self.assertEqual(process.returncode, 0, err)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
