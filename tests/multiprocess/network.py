"""Hosts on this machine: network namespaces with veth pairs and a router.

  with network.Network() as net:
      a, b = net.add("a"), net.add("b")
      net.drop(a, b)   # Packets between them vanish; no reset, no ICMP.
      net.heal()

Needs CAP_SYS_ADMIN and CAP_NET_ADMIN: unusable() says why it cannot be used.
Nothing is changed outside the namespaces, which leaving the block removes; so
are those of runs that were killed.
"""

import dataclasses
import functools
import os
import re
import subprocess

PREFIX = "kronserve"
SUBNET = "10.199"


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@dataclasses.dataclass(frozen=True)
class Host:
    """A namespace with one address; `prefix` starts a command in it."""
    namespace: str
    address: str

    @property
    def prefix(self):
        return ["ip", "netns", "exec", self.namespace]


class Network:

    def __init__(self):
        self._name = f"{PREFIX}-{os.getpid()}"
        self._namespaces = []
        self._drops = []

    def __enter__(self):
        remove_leftovers()
        try:
            self._router = self._add_namespace("router")
            subprocess.run(
                ["ip", "netns", "exec", self._router, "sh", "-c",
                 "echo 1 >/proc/sys/net/ipv4/ip_forward"], check=True)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_exception):
        self._remove()

    def _add_namespace(self, name):
        namespace = f"{self._name}-{name}"
        ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def _remove(self):
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], check=False)
        self._namespaces = []

    def add(self, name):
        index = len(self._namespaces)
        namespace = self._add_namespace(name)
        gateway = f"{SUBNET}.{index}.1"
        host = Host(namespace, f"{SUBNET}.{index}.2")
        link = f"to{index}"
        ip("-n", self._router, "link", "add", link, "type", "veth",
           "peer", "name", "eth0", "netns", namespace)
        for where, device, address in ((self._router, link, gateway),
                                       (namespace, "eth0", host.address)):
            ip("-n", where, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", where, "link", "set", device, "up")
        ip("-n", namespace, "route", "add", "default", "via", gateway)
        return host

    def drop_from(self, source, sink=None):
        """Packets of `source` (to `sink`; without it, to anybody) vanish."""
        rule = ["from", source.address, "iif", "to" + _index(source)]
        rule += ["to", sink.address] if sink else []
        rule += ["priority", "1", "blackhole"]
        ip("-n", self._router, "rule", "add", *rule)
        self._drops.append(rule)

    def drop(self, one, other):
        self.drop_from(one, other)
        self.drop_from(other, one)

    def isolate(self, host, others):
        for other in others:
            self.drop(host, other)

    def heal(self):
        for rule in self._drops:
            ip("-n", self._router, "rule", "del", *rule)
        self._drops = []


def _index(host):
    return host.address.split(".")[2]


def remove_leftovers():
    """Namespaces of runs whose process is gone."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0]
        match = re.match(rf"{PREFIX}-(\d+)-", name)
        if match and not os.path.exists(f"/proc/{match.group(1)}"):
            ip("netns", "del", name)


@functools.lru_cache(maxsize=None)
def unusable():
    """Why namespaces cannot be used here; empty when they can."""
    try:
        with Network() as net:
            one, other = net.add("a"), net.add("b")
            net.drop(one, other)
            net.heal()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces are not permitted here: {error}"
    return ""
