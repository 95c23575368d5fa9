"""Busy is not dead: refreshes longer than the lease, and no core to spare."""

import os
import pathlib
import tempfile
import time
import unittest

import faults
import harness
import job as jobs
import service as services

LEASE = 1.0
HEARTBEAT = 0.2
# fc1 is [3000, 65] and fc2 [10, 3001]: each has a factor of this side, whose
# refresh takes seconds beside the burners.
SIDE = 3000


class Busy(unittest.TestCase):

    def test_a_server_that_factorises_keeps_its_lease(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        service = services.Service(pathlib.Path(temporary.name), 1,
                                   heartbeat=HEARTBEAT, lease=LEASE)
        # Before any thread of the service's proxies exists.
        burners = faults.burn(2 * os.cpu_count())
        self.addCleanup(faults.put_out, burners)
        self.enterContext(service)
        job = jobs.Job(service, ranks=1, **{
            "hidden": str(SIDE), "step-budget": "60s",
            "collective-timeout": "300s", "factor-update-steps": 1,
            "inv-update-steps": 1})
        job.run_to(0, 120)
        before = service.job()
        states, busy = [], []
        end = time.monotonic() + 10 * LEASE
        while time.monotonic() < end:
            job.read()
            server = service.status()["servers"][0]
            states.append((server["state"], server["heartbeat_age_seconds"]))
            busy.append(server["refresh_busy_seconds"])
        print(f"{self.id()}: {busy[-1] - busy[0]:.1f} s of refreshes in "
              f"{10 * LEASE:.0f} s, heartbeats at most "
              f"{max(age for _, age in states):.2f} s old")
        self.assertNotIn("dead", [state for state, _ in states])
        # It was busy, and says so.
        self.assertGreater(busy[-1] - busy[0], 2 * LEASE)
        self.assertEqual(service.job()["epoch"], before["epoch"])


if __name__ == "__main__":
    harness.main()
