"""Starts the programs of a cluster on loopback and stops every one of them."""

import ctypes
import os
import pathlib
import signal
import subprocess
import time

START_SECONDS = 30
# The programs promise to end within 5 seconds after SIGTERM.
GRACE_SECONDS = 8
PR_SET_PDEATHSIG = 1


class ClusterError(Exception):
    """A process could not be started, or ended when it should not."""


class Stopped(BaseException):
    """SIGINT, SIGTERM or SIGHUP came; `signal` is its number."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.signal = number


def raise_on_signals():
    """Turns the signals that end a script into Stopped, so that `with` works.
    """
    def handler(number, _frame):
        raise Stopped(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def _die_with_parent():
    # Covers a script that is killed without a chance to stop its processes.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """One running program, in a process group of its own."""

    def __init__(self, name, command, log):
        self.name = name
        self.log = log
        with open(log, "ab") as output:
            try:
                self._popen = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    preexec_fn=_die_with_parent)
            except OSError as error:
                raise ClusterError(
                    f"cannot start {command[0]}: {error.strerror}") from error

    @property
    def pid(self):
        return self._popen.pid

    def exit_code(self):
        """None while it runs; negative: the signal that ended it."""
        return self._popen.poll()

    def signal(self, number):
        try:
            os.killpg(self._popen.pid, number)
        except ProcessLookupError:
            pass

    def log_tail(self, lines=12):
        text = pathlib.Path(self.log).read_text(errors="replace")
        return "\n".join("    " + line for line in text.splitlines()[-lines:])

    def failure(self):
        code = self.exit_code()
        how = (f"ended with status {code}" if code >= 0
               else f"was ended by {signal.Signals(-code).name}")
        return f"{self.name} {how}; its log {self.log} ends:\n{self.log_tail()}"


def flags(options):
    """Options as words of a command line; None is left out."""
    words = []
    for name, value in options.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            words.append(f"--{name}={value}")
    return words


class Cluster:
    """A scheduler and servers on free ports of loopback.

    Use it in a `with` statement: leaving it stops everything it started.
    """

    def __init__(self, bin_dir, folder):
        self._bin_dir = pathlib.Path(bin_dir)
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._processes = []
        self.scheduler_address = None

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.stop()

    def start(self, name, program, options, prefix=()):
        """Starts one program; its output goes to <folder>/<name>.log.

        prefix  words before the command, such as those that enter a namespace.
        """
        path = self._bin_dir / program
        if not path.exists():
            raise ClusterError(f"{path} is missing; build it with "
                               "scripts/quickstart.sh, or give --bin-dir")
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        process = Process(name, [*prefix, str(path), *flags(options)], log)
        self._processes.append(process)
        return process

    def start_service(self, servers):
        """Starts one scheduler and `servers` servers; returns when all serve.
        """
        _, self.scheduler_address = self.start_listening(
            "scheduler", "kronserve-scheduler", {"store": "memory"})
        for index in range(servers):
            self.start_listening(
                f"server{index}", "kronserve-server",
                {"name": f"server{index}", "scheduler": self.scheduler_address})

    def start_listening(self, name, program, options, prefix=()):
        """Starts one program that serves; returns (process, its address)."""
        address_file = self.folder / f"{name}.address"
        address_file.unlink(missing_ok=True)
        process = self.start(name, program, {
            "listen": "127.0.0.1:0", "address-file": address_file, **options},
            prefix)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if address_file.exists():
                address = address_file.read_text().strip()
                if address:
                    return process, address
            if process.exit_code() is not None:
                raise ClusterError(process.failure())
            time.sleep(0.02)
        raise ClusterError(f"{name} did not serve within {START_SECONDS} s; "
                           f"its log ends:\n{process.log_tail()}")

    def processes(self):
        """Those it started and did not forget, in order."""
        return list(self._processes)

    def forget(self, processes):
        """Leaves out processes that have ended by themselves."""
        self._processes = [process for process in self._processes
                           if process not in processes]

    def _wait_until_ended(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(
                process.exit_code() is None for process in self._processes):
            time.sleep(0.02)

    def stop(self, grace=GRACE_SECONDS):
        """SIGTERM to every process group, again after a second (a server that
        drains does not wait any longer then), and SIGKILL after `grace`."""
        blocked = signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        try:
            for seconds in (1, grace - 1):
                for process in reversed(self._processes):
                    process.signal(signal.SIGTERM)
                self._wait_until_ended(seconds)
            for process in self._processes:
                process.signal(signal.SIGKILL)
            for process in self._processes:
                process._popen.wait()
            self._processes = []
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
