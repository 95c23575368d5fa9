"""A scheduler and servers whose processes and links a test can break.

Every server is reached through a proxy (its `door`) and reaches the scheduler
through another (its `uplink`); the ranks reach the scheduler through one more.
"""

import dataclasses
import json

import faults
import harness
import proxy

# Short, so that tests are; long enough for a busy machine to keep them.
HEARTBEAT = 0.3
LEASE = 2.0
# Measured beside other tests, equal servers look unequal, and one may get all
# layers.
SERVER_OPTIONS = {"cost-probe": "default"}


class Watch:
    """What the scheduler at `address` tells; `prefix` starts kronctl."""

    address = None
    prefix = ()

    def status(self):
        """`kronctl status`; None while the scheduler does not answer."""
        code, out, _ = harness.run("kronctl", "status", "--json",
                                   f"--scheduler={self.address}",
                                   "--timeout=2s", prefix=self.prefix)
        return json.loads(out) if code == 0 else None

    def job(self, name="digits"):
        status = self.status()
        return next((job for job in status["jobs"] if job["name"] == name),
                    None) if status else None

    def owners(self, name="digits"):
        """{layer: server} of the job; empty when nobody knows."""
        job = self.job(name)
        return {row["name"]: row["owner"] for row in job["layers"]} if job else {}

    def owns_nothing(self, server, job="digits"):
        """True when the owners are known, and `server` is none of them."""
        owners = self.owners(job)
        return bool(owners) and server.name not in owners.values()


@dataclasses.dataclass
class Server:
    name: str
    options: dict
    door: proxy.Proxy
    uplink: proxy.Proxy
    process: object = None
    starts: int = 0  # Each has a log of its own.


class Service(Watch):
    """Use it in a `with` statement, as harness.Cluster, which it owns."""

    def __init__(self, folder, servers, heartbeat=HEARTBEAT, lease=LEASE,
                 server_options=None):
        self.lease = lease
        self.cluster = harness.Cluster(harness.BIN, folder / "logs")
        self._state_file = folder / "scheduler.db"
        self._scheduler_options = {
            "listen": f"127.0.0.1:{proxy.free_port()}",
            "store": f"sqlite:{self._state_file}",
            "heartbeat": f"{heartbeat}s", "lease": f"{lease}s"}
        self.address = self._scheduler_options["listen"]
        self.rank_uplink = proxy.Proxy(self.address)
        self.scheduler = None
        self._scheduler_starts = 0
        self.servers = [
            Server(f"server{index}", dict(server_options or {}), proxy.Proxy(),
                   proxy.Proxy(self.address))
            for index in range(servers)]

    def __enter__(self):
        self.start_scheduler()
        for server in self.servers:
            self.start_server(server)
        return self

    def __exit__(self, *_exception):
        for process in self.cluster.processes():
            if process.exit_code() is None:
                faults.thaw(process)
        self.heal()
        self.cluster.stop()
        for link in self.links():
            link.close()

    def links(self):
        return [self.rank_uplink] + [link for server in self.servers
                                     for link in (server.door, server.uplink)]

    def place_of_rank(self, _rank):
        """(options, words before the command) of one rank."""
        return {"scheduler": self.rank_uplink.address}, ()

    def scheduler_links(self):
        return [self.rank_uplink] + [one.uplink for one in self.servers]

    def state_files(self):
        """Those of the scheduler's store."""
        return list(self._state_file.parent.glob(self._state_file.name + "*"))

    def heal(self):
        for link in self.links():
            link.heal()

    def start_scheduler(self):
        self._scheduler_starts += 1
        self.scheduler, _ = self.cluster.start_listening(
            f"scheduler-{self._scheduler_starts}", "kronserve-scheduler", self._scheduler_options)

    def start_server(self, server):
        """Starts the process anew, with a new incarnation and port."""
        server.starts += 1
        server.process, server.door.target = self.cluster.start_listening(
            f"{server.name}-{server.starts}", "kronserve-server",
            {"name": server.name, "scheduler": server.uplink.address,
             **SERVER_OPTIONS,
             "advertise": server.door.address, **server.options})

    def isolate(self, server, action):
        """`action` is "silence" or "cut"; for both of the server's links."""
        getattr(server.door, action)()
        getattr(server.uplink, action)()

    def server(self, name):
        return next(one for one in self.servers if one.name == name)

    def pin(self, server, job="digits"):
        """Asks for all layers of the job on `server`; the exit code."""
        return harness.run("kronctl", "pin", job, "--all",
                           f"--server={server.name}",
                           f"--scheduler={self.address}", "--timeout=2s")[0]

    def unpin(self, job="digits"):
        return harness.run("kronctl", "pin", job, "--all", "--undo",
                           f"--scheduler={self.address}", "--timeout=2s")[0]

    def ask(self, server):
        """`kronctl server`, past its door; None when it does not answer."""
        code, out, _ = harness.run("kronctl", "server", "--json",
                                   f"--address={server.door.target}",
                                   "--timeout=2s")
        return json.loads(out) if code == 0 else None
