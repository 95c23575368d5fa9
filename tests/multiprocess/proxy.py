"""A TCP hop between two processes that a test can silence or cut.

It runs everywhere, without rights. What it cannot do: drop the first packet of
a connection (the kernel answers for it), or stand between ranks, which find
one another by themselves. network.py can, where namespaces are permitted.
"""

import contextlib
import socket
import threading

CHUNK = 1 << 16


def free_port():
    """A port that no outgoing connection of this machine will take, so that a
    process can come back to it after it was away."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest = int(file.read().split()[0])
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = lowest // 2 + probe.getsockname()[1] % (lowest // 2)
        with socket.socket() as probe:
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise AssertionError("no free port below the ephemeral ones")


class Proxy:
    """Forwards what reaches `address` to `target` (host:port).

    target   may be changed; later connections go there.
    silence() drops both directions, or one, as a network that loses packets:
             connections stay, nothing arrives, new ones are not served.
    cut()    ends all connections and refuses new ones.
    heal()   forwards again, also what was held back (TCP would repeat it).
    """

    def __init__(self, target=None):
        self.target = target
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._flows = {"in": threading.Event(), "out": threading.Event()}
        self._lock = threading.Lock()
        self._sockets = set()
        self._listener = None
        self.heal()

    def silence(self, *directions):
        for direction in directions or ("in", "out"):
            self._flows[direction].clear()

    def cut(self):
        self.close()
        self._let_flow()  # What is held back finds its connection gone.

    def heal(self):
        self._let_flow()
        with self._lock:
            if self._listener is None:
                self._listener = socket.create_server(
                    ("127.0.0.1", self._port), backlog=128)
                self._run(self._accept, self._listener)

    def close(self):
        with self._lock:
            listener, self._listener = self._listener, None
            sockets, self._sockets = self._sockets, set()
        for one in [*sockets, *([listener] if listener else [])]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _let_flow(self):
        for flow in self._flows.values():
            flow.set()

    @staticmethod
    def _run(function, *arguments):
        threading.Thread(target=function, args=arguments, daemon=True).start()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                self._run(self._connect, near, listener)

    def _connect(self, near, listener):
        for flow in self._flows.values():
            flow.wait()
        host, port = self.target.rsplit(":", 1)
        try:
            far = socket.create_connection((host, int(port)), timeout=5)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            served = self._listener is listener  # Not cut since it came.
            if served:
                self._sockets |= {near, far}
        if not served:
            near.close()
            far.close()
            return
        back = threading.Thread(
            target=self._pump, args=(far, near, self._flows["out"]),
            daemon=True)
        back.start()
        self._pump(near, far, self._flows["in"])
        back.join()
        with self._lock:
            self._sockets -= {near, far}
        near.close()
        far.close()

    @staticmethod
    def _pump(source, sink, flow):
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(CHUNK)
                flow.wait()
                if not data:
                    break
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
