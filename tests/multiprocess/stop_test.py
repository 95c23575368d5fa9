"""SIGTERM while somebody holds a call open: the process ends in time."""

import contextlib
import pathlib
import socket
import struct
import tempfile
import time
import unittest

import faults
import harness
import service as services

GRACE = 10.0
DATA, HEADERS, SETTINGS = 0, 1, 4
END_HEADERS, ACK = 4, 1


def frame(kind, flags, stream, payload=b""):
    return (struct.pack(">I", len(payload))[1:]
            + struct.pack(">BBI", kind, flags, stream) + payload)


def literal(name, value):
    """A header that is not indexed (RFC 7541, 6.2.2)."""
    words = [word.encode() for word in (name, value)]
    return b"\0" + b"".join(bytes([len(word)]) + word for word in words)


class HalfSentStream:
    """A PushFactors call whose caller went silent in its first message.

    Written in HTTP/2's own frames: no library would stop in mid-message.
    """

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=5)
        headers = b"".join(literal(name, value) for name, value in (
            (":method", "POST"), (":scheme", "http"),
            (":path", "/kronserve.v1.Preconditioner/PushFactors"),
            (":authority", address), ("content-type", "application/grpc"),
            ("te", "trailers")))
        message = struct.pack(">BI", 0, 1000) + b"\x0a" * 10  # Of 1000 bytes.
        self._socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
            + frame(HEADERS, END_HEADERS, 1, headers)
            + frame(DATA, 0, 1, message))
        self._buffer = b""
        kind, flags, _ = self.read_frame()
        if kind != SETTINGS or flags == ACK:
            raise AssertionError(f"the server began with frame {kind}")
        self._socket.sendall(frame(SETTINGS, ACK, 0))

    def read_frame(self):
        """(kind, flags, stream); kind None at the end of the connection."""
        length = 9
        while len(self._buffer) < length:
            data = self._socket.recv(1 << 16)
            if not data:
                return None, 0, 0
            self._buffer += data
            if len(self._buffer) >= 9:
                length = 9 + int.from_bytes(self._buffer[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self._buffer[3:9])
        self._buffer = self._buffer[length:]
        return kind, flags, stream

    def wait_for_its_end(self, seconds):
        """Until the connection is over; fails when it stays open."""
        self._socket.settimeout(seconds)
        with self._socket, contextlib.suppress(ConnectionResetError):
            while self.read_frame()[0] is not None:
                pass


class Stop(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.service = services.Service(pathlib.Path(temporary.name), 1)
        self.enterContext(self.service)
        self.server = self.service.servers[0]

    def stop(self):
        """Seconds that the server takes to end, with status 0."""
        begin = time.monotonic()
        faults.terminate(self.server.process)
        code = harness.wait_for_exit(self.server.process, 2 * GRACE)
        self.assertEqual(code, 0, self.server.process.log_tail())
        return time.monotonic() - begin

    def test_with_a_half_sent_stream(self):
        stream = HalfSentStream(self.server.door.target)
        self.assertLess(self.stop(), GRACE)
        # A library reports the end of its connection as UNAVAILABLE.
        stream.wait_for_its_end(5)

    def test_with_a_hundred_of_them(self):
        streams = [HalfSentStream(self.server.door.target)
                   for _ in range(100)]
        self.assertLess(self.stop(), GRACE)
        for stream in streams:
            stream.wait_for_its_end(5)

    def test_the_scheduler_too(self):
        streams = [HalfSentStream(self.service.address) for _ in range(10)]
        faults.terminate(self.service.scheduler)
        code = harness.wait_for_exit(self.service.scheduler, GRACE)
        self.assertEqual(code, 0)
        for stream in streams:
            stream.wait_for_its_end(5)


if __name__ == "__main__":
    harness.main()
