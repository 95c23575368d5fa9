"""What can happen to a process, and to the network around it."""

import os
import signal
import time


def kill(process):
    process.signal(signal.SIGKILL)


def terminate(process):
    process.signal(signal.SIGTERM)


def freeze(process):
    """Stops it where it is; its connections stay and answer nothing."""
    process.signal(signal.SIGSTOP)


def thaw(process):
    process.signal(signal.SIGCONT)


def is_stopped(process):
    with open(f"/proc/{process.pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


def burn(cores):
    """Starts as many busy processes; returns their ids, for put_out()."""
    ids = []
    for _ in range(cores):
        pid = os.fork()
        if pid == 0:
            end = time.monotonic() + 120  # Whatever happens to the test.
            while time.monotonic() < end:
                pass
            os._exit(0)
        ids.append(pid)
    return ids


def put_out(ids):
    for pid in ids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
