"""Frames over TLS on sockets, through both pumps, however the bytes are cut."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given, settings, strategies as st

from pykclient.network.frames import UNLIMITED, UNLIMITED_SIZE, Frame, MemoryPool, NetworkSend, SimpleMemoryPool
from pykclient.network.selectable import SocketAddress
from pykclient.network.tls import ssl_transport_layer as ssl_transports
from pykclient.network.tls.ssl_factory import ContextSettings, SslFactory
from pykclient.network.tls.ssl_transport_layer import SslEngine, SslTransports
from tests.network.tls.engines import contexts
from tests.support.twins import both_forms

IMPLEMENTATIONS = ["python", "c"]


class Connection:
    """Our client over a socket, and the server's engine with its bytes in the test's hands."""

    def __init__(self, memory_pool: MemoryPool = UNLIMITED, max_size: int = UNLIMITED_SIZE) -> None:
        client, server = contexts()
        near, self.far = socket.socketpair()
        for sock in (near, self.far):
            sock.setblocking(False)
        transports = SslTransports(SslFactory(lambda: ContextSettings(client, ()), ()))
        self.transport = transports.new_transport(near, SocketAddress("::1", 9093, "localhost"))
        self.stream = transports.new_stream(self.transport, max_size, memory_pool, None)
        self.server = SslEngine(server, None)
        assert self.transport.finish_connect()
        for _ in range(10):
            self.transport.handshake()
            self.carry()
            self.server.handshake()
            self.far.sendall(self.server.output())
            if self.transport.ready and self.server.is_complete:
                break
        self.stream.ready = True

    def carry(self) -> None:
        """Take what the client has sent to the server's engine."""
        try:
            while received := self.far.recv(1 << 20):
                self.server.feed(received)
        except BlockingIOError:
            pass

    def received_by_server(self) -> bytes:
        self.carry()
        target = bytearray(1 << 20)
        count = self.server.read_into(memoryview(target))
        return bytes(target[: count or 0])

    def close(self) -> None:
        self.stream.close()
        self.transport.close()
        self.far.close()


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    forms = both_forms("pykclient.network.transport_layer", "byte_pump")
    monkeypatch.setattr(ssl_transports, "byte_pump", forms[IMPLEMENTATIONS.index(request.param)])


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def read_to_the_end(connection: Connection, frames: list[Frame]) -> None:
    while connection.stream.read(frames, False):
        pass


SIZES = st.lists(st.integers(1, 50_000), min_size=1, max_size=8).filter(lambda sizes: max(sizes) > 1_000)


@pytest.mark.usefixtures("implementation")
@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=6), SIZES, st.booleans(), st.booleans())
@settings(max_examples=40)
def test_frames_do_not_depend_on_cuts(sizes: list[int], cuts: list[int], one: bool, is_bounded: bool) -> None:
    pool = SimpleMemoryPool(2_000_000, 2_000_000, strict=False) if is_bounded else UNLIMITED
    connection = Connection(pool)
    payloads = [bytes([index]) * size for index, size in enumerate(sizes)]
    encrypted = connection.server.encrypt([framed(payload) for payload in payloads])
    frames: list[Frame] = []
    start = 0
    for index in range(100_000):
        if start >= len(encrypted) and len(frames) >= len(payloads):
            break
        piece = encrypted[start : start + cuts[index % len(cuts)]]
        start += connection.far.send(piece) if piece else 0
        connection.stream.read(frames, one)
    assert [bytes(frame) for frame in frames] == payloads
    assert not connection.stream.has_frame
    connection.close()


@pytest.mark.usefixtures("implementation")
def test_frame_is_sent_in_many_partial_writes() -> None:
    connection = Connection()
    connection.transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    payload = bytes(range(256)) * 8_000
    send = NetworkSend("0", [payload[:1000], payload[1000:]])
    received = b""
    for _ in range(100_000):
        if send.completed:
            break
        connection.stream.write(send)
        received += connection.received_by_server()
    assert len(received + connection.received_by_server()) == len(payload)
    assert received.startswith(payload[: len(received)])
    second = NetworkSend("0", [b"the next frame"])
    assert connection.stream.write(second) == len(b"the next frame")
    assert connection.received_by_server() == b"the next frame"
    connection.close()


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("is_told", [True, False])
def test_end_of_stream_raises_connection_error(is_told: bool) -> None:
    connection = Connection()
    connection.far.sendall(connection.server.encrypt([framed(b"last")]))
    if is_told:
        connection.far.sendall(connection.server.close_notify())
    connection.far.shutdown(socket.SHUT_WR)
    frames: list[Frame] = []
    with pytest.raises(ConnectionResetError, match=r"closed by the other side$"):
        read_to_the_end(connection, frames)
    assert frames == [b"last"]
    connection.close()


@pytest.mark.usefixtures("implementation")
def test_a_frame_cut_off_by_the_peer_raises_after_whole_frames() -> None:
    connection = Connection()
    connection.far.sendall(connection.server.encrypt([framed(b"whole"), framed(b"half" * 1000)[:100]]))
    connection.far.shutdown(socket.SHUT_WR)
    frames: list[Frame] = []
    with pytest.raises(ConnectionResetError, match="in the middle of a frame"):
        read_to_the_end(connection, frames)
    assert frames == [b"whole"]
    connection.close()


@pytest.mark.usefixtures("implementation")
def test_client_sends_close_notify() -> None:
    connection = Connection()
    connection.stream.write(NetworkSend("0", [b"x"]))
    connection.stream.read([], False)  # the server's session tickets: closing before would reset the connection
    connection.stream.close()
    connection.transport.close()
    target = bytearray(10)
    while received := connection.far.recv(1 << 16):
        connection.server.feed(received)
    assert connection.server.read_into(memoryview(target)) == 1
    assert connection.server.read_into(memoryview(target)) == 0
    connection.far.close()


@pytest.mark.usefixtures("implementation")
def test_a_damaged_record_ends_the_connection() -> None:
    connection = Connection()
    connection.far.sendall(connection.server.encrypt([framed(b"good")]))
    frames: list[Frame] = []
    connection.stream.read(frames, False)
    damaged = bytearray(connection.server.encrypt([framed(b"bad")]))
    damaged[-1] ^= 1
    connection.far.sendall(damaged)
    with pytest.raises(ConnectionResetError, match=r"the TLS connection to localhost:9093 is broken: .*bad record mac"):
        connection.stream.read(frames, False)
    assert frames == [b"good"]
    connection.close()
