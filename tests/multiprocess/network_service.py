"""A scheduler, servers and ranks, each on a host of its own (network.py)."""

import dataclasses

import harness
import network
import service as services


@dataclasses.dataclass
class Server:
    name: str
    host: network.Host
    process: object = None


class NetworkService(services.Watch):
    """Use it in a `with` statement. Hosts: `scheduler_host`, those of
    `servers`, and `rank_hosts`."""

    lease = services.LEASE

    def __init__(self, folder, net, servers, ranks):
        self._folder = folder
        self.net = net
        self.cluster = harness.Cluster(harness.BIN, folder / "logs")
        self.scheduler_host = net.add("scheduler")
        self.prefix = self.scheduler_host.prefix
        self.servers = [Server(f"server{index}", net.add(f"server{index}"))
                        for index in range(servers)]
        self.rank_hosts = [net.add(f"rank{rank}") for rank in range(ranks)]
        self.scheduler = None

    def __enter__(self):
        self.scheduler, self.address = self._start(
            "scheduler", "kronserve-scheduler", self.scheduler_host, {
                "store": f"sqlite:{self._folder / 'scheduler.db'}",
                "heartbeat": f"{services.HEARTBEAT}s",
                "lease": f"{self.lease}s"})
        for server in self.servers:
            server.process, _ = self._start(
                server.name, "kronserve-server", server.host,
                {"name": server.name, "scheduler": self.address,
                 **services.SERVER_OPTIONS})
        return self

    def __exit__(self, *_exception):
        self.net.heal()
        self.cluster.stop()

    def _start(self, name, program, host, options):
        # Nobody but the other hosts of this test can reach the address.
        return self.cluster.start_listening(
            name, program, {**options, "listen": f"{host.address}:0",
                            "insecure-bind": True}, host.prefix)

    def place_of_rank(self, rank):
        """(options, words before the command) of one rank."""
        host = self.rank_hosts[rank]
        return {"scheduler": self.address,
                "collective-host": host.address}, host.prefix

    def everybody_but(self, host):
        hosts = [self.scheduler_host, *self.rank_hosts,
                 *(server.host for server in self.servers)]
        return [other for other in hosts if other != host]
