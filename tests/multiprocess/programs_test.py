"""Every program: help, version, faults all at once, signals, bad surroundings.
"""

import pathlib
import shutil
import signal
import socket
import tempfile
import time
import unittest

import harness


class Programs(unittest.TestCase):

    def test_help_teaches_and_version_is_short(self):
        for program in harness.PROGRAMS:
            with self.subTest(program=program):
                code, out, err = harness.run(program, "--help")
                self.assertEqual((code, err), (0, ""))
                self.assertIn(program, out)
                self.assertGreater(len(out.splitlines()), 8)
                code, out, err = harness.run(program, "--version")
                self.assertEqual((code, err), (0, ""))
                self.assertRegex(out, rf"^{program} \d+\.\d+\.\d+\n$")

    def test_all_faults_are_reported_at_once(self):
        for program, words, named in (
                ("kronserve-scheduler", ("--lissten=x", "--lease=soon"),
                 ("lissten", "listen", "lease", "soon")),
                ("kronserve-server", ("--threds=2", "--memory-limit=much"),
                 ("threds", "memory-limit", "much")),
                ("kronserve-worker", ("--rnk=2", "--batch=none"),
                 ("rnk", "batch", "none")),
                ("kronctl", ("status", "--scedular=x", "--json=perhaps"),
                 ("scedular", "json", "perhaps"))):
            with self.subTest(program=program):
                code, out, err = harness.run(program, *words)
                self.assertEqual((code, out), (2, ""))
                for word in named:
                    self.assertIn(word, err)

    def test_an_unreadable_config_is_named(self):
        for program in harness.PROGRAMS[:3]:
            with self.subTest(program=program):
                code, _, err = harness.run(program, "--config=/no/such/file")
                self.assertEqual(code, 2)
                self.assertIn("/no/such/file", err)

    def test_a_port_in_use_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for program, words in (
                    ("kronserve-scheduler", ("--store=memory",)),
                    ("kronserve-server",
                     ("--name=a", "--scheduler=127.0.0.1:1"))):
                with self.subTest(program=program):
                    code, _, err = harness.run(
                        program, f"--listen={address}", *words)
                    self.assertEqual(code, 1)
                    self.assertIn(address, err)
                    self.assertIn("in use", err)

    def test_a_second_scheduler_on_one_state_file_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            store = f"--store=sqlite:{directory}/state.db"
            cluster = harness.Cluster(harness.BIN, pathlib.Path(directory))
            try:
                cluster.start_listening("first", "kronserve-scheduler",
                                        {"listen": "127.0.0.1:0",
                                         "store": store.split("=")[1]})
                code, out, err = harness.run(
                    "kronserve-scheduler", "--listen=127.0.0.1:0", store)
            finally:
                cluster.stop()
            self.assertEqual((code, out), (1, ""))
            self.assertIn(f"{directory}/state.db", err)
            self.assertIn("in use by another scheduler", err)

    def test_only_loopback_without_tls(self):
        for program, words in (
                ("kronserve-scheduler", ("--store=memory",)),
                ("kronserve-server",
                 ("--name=a", "--scheduler=127.0.0.1:1"))):
            with self.subTest(program=program):
                code, _, err = harness.run(program, "--listen=0.0.0.0:0",
                                           *words)
                self.assertNotEqual(code, 0)
                self.assertIn("--insecure-bind", err)

    def test_a_missing_data_set_is_named(self):
        code, _, err = harness.run(
            "kronserve-worker", "--dataset=fashion-mnist",
            "--data-dir=/no/such/folder", "--optimizer=sgd")
        self.assertEqual(code, 1)
        self.assertIn("/no/such/folder", err)
        self.assertIn("dataset-fashion-mnist", err)

    def test_kronctl_says_when_nobody_answers(self):
        code, out, err = harness.run("kronctl", "status",
                                     "--scheduler=127.0.0.1:1")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("127.0.0.1:1", err)
        self.assertEqual(len(err.splitlines()), 1, err)

    def test_kronctl_verify_tells_good_from_damaged(self):
        golden = pathlib.Path(__file__).parents[1] / "data/checkpoint_v1"
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory, "mnist/checkpoints/c1")
            shutil.copytree(golden, folder)
            code, out, err = harness.run("kronctl", "verify", directory)
            self.assertEqual((code, err), (0, ""))
            self.assertRegex(out, r"mnist +c1 +1 +1041 +1 +387 B +good\n")
            layer = folder / "layer.kron"
            layer.write_bytes(layer.read_bytes()[:-1])
            code, out, err = harness.run("kronctl", "verify",
                                         f"{directory}/mnist/c1")
            self.assertEqual((code, err), (1, ""))
            self.assertIn(f"'{layer}': size: 107 bytes for tensors, the "
                          "header lists 108", out)
        code, out, err = harness.run("kronctl", "verify", directory)
        self.assertEqual((code, out), (1, ""))
        self.assertIn(directory, err)

    def test_sigterm_ends_idle_processes(self):
        with tempfile.TemporaryDirectory() as folder, \
                harness.Cluster(harness.BIN, folder) as cluster:
            cluster.start_service(1)
            worker = cluster.start("worker", "kronserve-worker", {
                "scheduler": cluster.scheduler_address, "job": "alone",
                "rank": 0, "world-size": 2, "dataset": "digits",
                "optimizer": "sgd"})
            log = pathlib.Path(worker.log)
            harness.wait_for("the worker's start",
                             lambda: log.read_text().strip() != "")
            for process in reversed(cluster.processes()):
                with self.subTest(process=process.name):
                    begin = time.monotonic()
                    process.signal(signal.SIGTERM)
                    code = harness.wait_for_exit(process, 10)
                    self.assertEqual(code, 0, process.log_tail())
                    self.assertLess(time.monotonic() - begin, 5)


if __name__ == "__main__":
    harness.main()
