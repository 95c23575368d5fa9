"""Starting and stopping processes."""

import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
from kronlocal import processes  # noqa: E402

FAKE = pathlib.Path(__file__).with_name("fake_program.py")


def bin_dir(folder):
    path = pathlib.Path(folder) / "bin"
    path.mkdir()
    for name in ("kronserve-scheduler", "kronserve-server",
                 "kronserve-worker"):
        copy = path / name
        copy.write_text(FAKE.read_text().replace(
            "#!/usr/bin/env python3", f"#!{sys.executable} -B", 1))
        copy.chmod(0o755)
    return path


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class ClusterTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cluster = processes.Cluster(bin_dir(folder.name),
                                         self.folder / "run")
        self.addCleanup(os.environ.pop, "FAKE_MODE", None)

    def pids(self):
        return [process.pid for process in self.cluster._processes]

    def test_starts_a_scheduler_and_servers_and_stops_them(self):
        with self.cluster as cluster:
            cluster.start_service(servers=2)
            self.assertEqual(cluster.scheduler_address, "127.0.0.1:7000")
            pids = self.pids()
            self.assertEqual(len(pids), 3)
            self.assertTrue(all(alive(pid) for pid in pids))
        self.assertFalse(any(alive(pid) for pid in pids))

    def test_kills_after_the_grace_what_does_not_listen(self):
        os.environ["FAKE_MODE"] = "stubborn"
        self.cluster.start_service(servers=1)
        pids = self.pids()
        start = time.monotonic()
        self.cluster.stop(grace=0.3)
        self.assertLess(time.monotonic() - start, 10)
        self.assertFalse(any(alive(pid) for pid in pids))

    def test_program_that_fails_at_start_is_named_with_its_log(self):
        os.environ["FAKE_MODE"] = "kronserve-server fails"
        with self.assertRaisesRegex(
                processes.ClusterError,
                "(?s)server0 ended with status 1.*port in use"):
            self.cluster.start_service(servers=1)
        self.cluster.stop()

    def test_missing_program_is_named(self):
        with self.assertRaisesRegex(processes.ClusterError,
                                    "kronctl is missing; build it"):
            self.cluster.start("ctl", "kronctl", {})

    def test_stops_everything_when_a_signal_comes(self):
        handlers = {number: signal.getsignal(number) for number in
                    (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        self.addCleanup(lambda: [signal.signal(number, handler)
                                 for number, handler in handlers.items()])
        processes.raise_on_signals()
        with self.assertRaises(processes.Stopped) as stopped:
            with self.cluster as cluster:
                cluster.start_service(servers=1)
                pids = self.pids()
                os.kill(os.getpid(), signal.SIGTERM)
        self.assertEqual(stopped.exception.signal, signal.SIGTERM)
        self.assertFalse(any(alive(pid) for pid in pids))


class FlagsTest(unittest.TestCase):
    def test_true_is_bare_none_and_false_are_left_out(self):
        self.assertEqual(
            processes.flags({"lr": 0.1, "progress": True, "events": None,
                             "deterministic": False, "rank": 0}),
            ["--lr=0.1", "--progress", "--rank=0"])


if __name__ == "__main__":
    unittest.main()
