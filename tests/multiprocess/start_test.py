"""Any order of starting works; waiting ends in time and says for whom."""

import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import harness
import job as jobs
import proxy

PAUSE = 2.0  # Seconds between the starts.


def pause(processes, seconds=PAUSE):
    """Time passes; nobody may give up in it."""
    end = time.monotonic() + seconds
    harness.wait_for("a pause", lambda: time.monotonic() >= end, seconds + 10)
    for process in processes:
        if process.exit_code() is not None:
            raise AssertionError(process.failure())


def cannot_bind_hosts(hosts):
    """Why a process cannot get a host file of its own; empty if it can."""
    done = subprocess.run([*with_hosts(hosts), "true"], capture_output=True,
                          text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()


def with_hosts(hosts):
    """Words that start a command with `hosts` as its /etc/hosts."""
    return ["unshare", "--mount", "sh", "-c",
            'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts)]


class Start(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.cluster = harness.Cluster(harness.BIN, self.folder / "logs")
        self.enterContext(self.cluster)
        self.listen = f"127.0.0.1:{proxy.free_port()}"

    def start_rank(self, rank, world, scheduler=None, prefix=(), **options):
        return self.cluster.start(f"rank{rank}", "kronserve-worker", {
            **jobs.OPTIONS, "scheduler": scheduler or self.listen,
            "job": "digits", "rank": rank, "world-size": world,
            "node": f"node{rank}", "max-steps": 20, **options}, prefix)

    def start_server(self, scheduler=None, prefix=()):
        return self.cluster.start("server0", "kronserve-server", {
            "name": "server0", "scheduler": scheduler or self.listen}, prefix)

    def start_scheduler(self):
        return self.cluster.start("scheduler", "kronserve-scheduler", {
            "listen": self.listen, "store": "memory"})

    def check_end(self, workers):
        for worker in workers:
            self.assertEqual(harness.wait_for_exit(worker, 60), 0,
                             worker.log_tail())

    def test_workers_then_servers_then_scheduler(self):
        workers = [self.start_rank(rank, 2) for rank in range(2)]
        pause(workers)
        server = self.start_server()
        pause([*workers, server])
        self.start_scheduler()
        self.check_end(workers)

    def test_a_host_name_that_does_not_resolve_yet(self):
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n")
        reason = cannot_bind_hosts(hosts)
        if reason:
            self.skipTest(f"a mount namespace is not permitted: {reason}")
        name = f"kronserve-scheduler.test:{self.listen.split(':')[1]}"
        self.start_scheduler()
        prefix = with_hosts(hosts)
        server = self.start_server(name, prefix)
        workers = [self.start_rank(rank, 2, name, prefix) for rank in range(2)]
        pause([server, *workers], 5)
        # In place: the bind mount is of this file.
        with open(hosts, "a") as file:
            file.write("127.0.0.1 kronserve-scheduler.test\n")
            os.fsync(file.fileno())
        since = time.monotonic()
        self.check_end(workers)
        print(f"{self.id()}: trained {time.monotonic() - since:.1f} s after "
              "the name was there")

    def check_gives_up(self, worker, *named):
        begin = time.monotonic()
        self.assertEqual(harness.wait_for_exit(worker, 15), 1)
        self.assertLess(time.monotonic() - begin, 10)
        for word in named:
            self.assertIn(word, worker.log_tail(5))

    def test_a_scheduler_that_never_comes_is_named(self):
        self.check_gives_up(self.start_rank(0, 2, **{"join-timeout": "3s"}),
                            self.listen)

    def test_a_rank_that_never_comes_is_named(self):
        self.start_scheduler()
        self.start_server()
        self.check_gives_up(self.start_rank(0, 2, **{"join-timeout": "3s"}),
                            "rank 1")

    def test_servers_that_never_come_are_named(self):
        self.start_scheduler()
        workers = [self.start_rank(rank, 2, **{"join-timeout": "3s"})
                   for rank in range(2)]
        for worker in workers:
            self.check_gives_up(worker, "server")


if __name__ == "__main__":
    harness.main()
