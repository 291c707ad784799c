"""The selector on real loopback sockets (after Java's SelectorTest)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import random
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.errors import IllegalStateError, SaslAuthenticationError, SslAuthenticationError
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network import channel_state
from pykclient.network.authenticator import Authenticator, Authenticators
from pykclient.network.channel_builders import ChannelBuilder
from pykclient.network.frames import Frame, NetworkSend, SimpleMemoryPool
from pykclient.network.kafka_channel import KafkaChannel
from pykclient.network.selectable import USE_DEFAULT_BUFFER_SIZE, SocketAddress
from pykclient.network.selector import Selector, SelectorConfig, SelectorMetrics
from pykclient.network.transport_layer import TransportLayer, Transports
from tests.kafka.ports import refusing_port
from tests.network.implementations import IMPLEMENTATIONS, choose
from tests.support.mock_clock import MockClock

DEFAULT = USE_DEFAULT_BUFFER_SIZE


@pytest.fixture(autouse=True, params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    choose(monkeypatch, name)
    return name


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def make(config: SelectorConfig | None = None, *, clock: Clock = SYSTEM_CLOCK, **options: object) -> Selector:
    return Selector(config or SelectorConfig(), Metrics(), clock, LogContext(), **options)  # type: ignore[arg-type]


def poll_until(selector: Selector, condition: Callable[[], object], polls: int = 200) -> list[bytes]:
    """Poll until ``condition`` holds, and return the received payloads."""
    payloads: list[bytes] = []
    for _ in range(polls):
        selector.poll(50)
        payloads += [bytes(receive.payload) for receive in selector.completed_receives]
        if condition():
            return payloads
    raise AssertionError("the condition never held")


class Server:
    """A server that accepts one connection at a time; the test itself reads and writes its sockets."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.accepted: list[socket.socket] = []

    @property
    def address(self) -> SocketAddress:
        return SocketAddress("127.0.0.1", self.port, "127.0.0.1")

    def accept(self) -> socket.socket:
        sock, _ = self.listener.accept()
        sock.settimeout(30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted.append(sock)
        return sock

    def close(self) -> None:
        for sock in (self.listener, *self.accepted):
            sock.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def selector() -> Iterator[Selector]:
    made = make()
    yield made
    made.close()


def connect(selector: Selector, server: Server, id: str = "0") -> socket.socket:
    selector.connect(id, server.address, DEFAULT, DEFAULT)
    sock = server.accept()
    poll_until(selector, lambda: selector.is_channel_ready(id))
    return sock


@contextlib.contextmanager
def record_waits(selector: Selector) -> Iterator[list[int]]:
    """Record the timeouts in milliseconds with which the selector asks the operating system for events."""
    poller = selector._poller
    waits: list[int] = []

    class Recording:
        def __getattr__(self, name: str) -> Any:
            return getattr(poller, name)

        def select(self, timeout_ms: int) -> list[tuple[KafkaChannel | None, int]]:
            waits.append(timeout_ms)
            return poller.select(timeout_ms)

    selector._poller = Recording()
    yield waits
    selector._poller = poller


def recv_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        assert chunk
        data += chunk
    return data


def test_buffer_sizes_are_set_only_if_given(
    selector: Selector, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A size that is set, even to what it is anyway, would stop the system from adapting it."""
    sizes: list[tuple[int, int]] = []

    def setsockopt(sock: socket.socket, level: int, option: int, value: int) -> None:
        if level == socket.SOL_SOCKET and option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sizes.append((option, value))
        super(socket.socket, sock).setsockopt(level, option, value)

    monkeypatch.setattr(socket.socket, "setsockopt", setsockopt)
    connect(selector, server, "left alone")
    assert sizes == []
    selector.connect("given", server.address, 100_000, 200_000)
    assert sizes == [(socket.SO_SNDBUF, 100_000), (socket.SO_RCVBUF, 200_000)]


def test_selector_connects_sends_and_receives(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    selector.send(NetworkSend("0", [frame(b"hello"), b""]))
    selector.poll(0)
    assert [send.destination_id for send in selector.completed_sends] == ["0"]
    assert recv_exactly(sock, 9) == frame(b"hello")
    sock.sendall(frame(b"world"))
    assert poll_until(selector, lambda: selector.completed_receives) == [b"world"]
    assert selector.completed_receives[0].source == "0"
    selector.poll(0)
    assert not selector.completed_receives
    assert not selector.completed_sends


class BlockingConnect(socket.socket):
    """A socket that connects synchronously, as some systems do on the loopback interface."""

    def connect_ex(self, address: object, /) -> int:
        self.setblocking(True)
        self.connect(address)  # type: ignore[arg-type]
        self.setblocking(False)
        return 0


def test_immediate_connection_is_reported_by_next_poll(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    selector = make()
    monkeypatch.setattr(socket, "socket", BlockingConnect)
    selector.connect("0", server.address, DEFAULT, DEFAULT)
    monkeypatch.undo()
    selector.poll(60_000)
    assert selector.connected == ["0"]
    assert selector.is_channel_ready("0")
    selector.close()


def test_connected_is_reported_once(selector: Selector, server: Server) -> None:
    selector.connect("0", server.address, 65536, 65536)
    server.accept()
    poll_until(selector, lambda: selector.connected == ["0"])
    selector.poll(0)
    assert selector.connected == []
    with pytest.raises(IllegalStateError, match="already"):
        selector.connect("0", server.address, DEFAULT, DEFAULT)


def test_selector_connects_over_ipv6(selector: Selector) -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        return  # no IPv6 on this machine
    with listener:
        selector.connect("0", SocketAddress("::1", listener.getsockname()[1], "::1"), DEFAULT, DEFAULT)
        listener.accept()[0].close()
        poll_until(selector, lambda: selector.disconnected or selector.connected)


def test_refused_connection_has_error(selector: Selector) -> None:
    with refusing_port() as port:
        address = SocketAddress("127.0.0.1", port, "localhost")
        try:
            selector.connect("0", address, DEFAULT, DEFAULT)
        except ConnectionRefusedError:
            return  # some systems refuse synchronously
        poll_until(selector, lambda: selector.disconnected)
    state = selector.disconnected["0"]
    assert state.state == channel_state.NOT_CONNECTED
    assert isinstance(state.cause, OSError)
    assert state.cause.errno == errno.ECONNREFUSED
    assert state.remote_address == f"127.0.0.1:{port}"
    assert not selector.channels()


def test_many_responses_in_one_read_come_in_order(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    expected = [str(number).encode() * 10 for number in range(500)]
    sock.sendall(b"".join(map(frame, expected)))
    payloads: list[bytes] = []
    while len(payloads) < len(expected):
        selector.poll(1000)
        payloads += [bytes(receive.payload) for receive in selector.completed_receives]
    assert payloads == expected


@pytest.mark.parametrize("size", [0, 1, 100, 64 * 1024 - 4, 64 * 1024 - 3, 64 * 1024, 3_000_000])
def test_frames_of_every_size_are_received(selector: Selector, server: Server, size: int) -> None:
    sock = connect(selector, server)
    payload = bytes(itertools.islice(itertools.cycle(range(251)), size))
    writer = threading.Thread(target=sock.sendall, args=(frame(payload) + frame(b"next"),))
    writer.start()
    payloads: list[bytes] = []
    while len(payloads) < 2:
        selector.poll(5000)
        payloads += [bytes(receive.payload) for receive in selector.completed_receives]
    writer.join()
    assert payloads == [payload, b"next"]


def test_frames_are_received_byte_by_byte(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    stream = frame(b"ab") + frame(b"") + frame(b"c")
    payloads: list[bytes] = []
    for index in range(len(stream)):
        sock.sendall(stream[index : index + 1])
        selector.poll(20)  # a frame that is not complete does not end the wait
        assert len(selector.completed_receives) <= 1
        payloads += [bytes(receive.payload) for receive in selector.completed_receives]
    assert payloads == [b"ab", b"", b"c"]


def test_frame_larger_than_socket_buffer_is_sent(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    parts = [bytes([number]) * 400_000 for number in range(20)]
    send = NetworkSend("0", [struct.pack(">i", 8_000_000), *parts])
    selector.send(send)
    assert not send.completed
    with pytest.raises(IllegalStateError, match="still sending"):
        selector.send(NetworkSend("0", [b"x"]))
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(recv_exactly(sock, 8_000_004)))
    reader.start()
    poll_until(selector, lambda: selector.completed_sends)
    reader.join()
    assert got[0][4:] == b"".join(parts)
    assert selector.channel("0") is not None


def test_frame_of_more_than_iov_max_buffers_is_sent(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    selector.send(NetworkSend("0", [struct.pack(">i", 3000), *[b"x"] * 3000]))
    assert recv_exactly(sock, 3004)[4:] == b"x" * 3000


@pytest.mark.parametrize("size", [1, 100_000])
def test_send_without_response_ends_wait(selector: Selector, server: Server, size: int) -> None:
    connect(selector, server)
    selector.send(NetworkSend("0", [frame(b"x" * size)], expect_response=False))
    started_ms = SYSTEM_CLOCK.now_ms()
    selector.poll(60_000)
    assert SYSTEM_CLOCK.now_ms() - started_ms < 30_000
    assert selector.completed_sends


def test_wakeup_ends_a_wait(selector: Selector) -> None:
    threading.Timer(0.05, selector.wakeup).start()
    selector.poll(60_000)
    selector.wakeup()
    selector.wakeup()
    selector.poll(60_000)  # the wakeup came before the poll
    started_ms = SYSTEM_CLOCK.now_ms()
    selector.poll(50)
    assert SYSTEM_CLOCK.now_ms() - started_ms >= 49


def test_end_of_stream_disconnects(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    sock.sendall(frame(b"last") + b"\0\0\0\x09half")
    sock.close()
    assert poll_until(selector, lambda: selector.disconnected) == [b"last"]
    state = selector.disconnected["0"]
    assert state.state == channel_state.READY
    assert "closed by the other side in the middle of a frame" in str(state.cause)
    with pytest.raises(IllegalStateError, match="no connection"):
        selector.send(NetworkSend("0", [b"x"]))


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_send_that_fails_shows_as_a_disconnection(selector: Selector, server: Server, size: int) -> None:
    sock = connect(selector, server)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()  # causes a connection reset
    for _ in range(200):
        if not selector.is_channel_ready("0"):
            break
        channel = selector.channel("0")
        assert channel is not None
        if channel.send is None:
            selector.send(NetworkSend("0", [frame(b"x" * size)]))
    selector.poll(60_000)
    assert not selector.is_channel_ready("0")
    assert isinstance(selector.disconnected["0"].cause, OSError)
    assert not selector.connected
    selector.poll(0)
    assert not selector.disconnected


def test_next_poll_handles_events_that_an_interrupted_poll_did_not(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    channel = selector.channel("0")
    sock.sendall(frame(b"a"))
    selector.send(NetworkSend("0", [frame(b"x" * 100_000)]))
    for _ in range(3):
        assert {told for told, _ in selector._poller.select(60_000)} == {channel}
    recv_exactly(sock, 100_004)
    assert poll_until(selector, lambda: selector.completed_receives) == [b"a"]
    assert [send.size for send in selector.completed_sends] == [100_004]
    selector.poll(20)
    assert not selector.completed_receives
    assert not selector.completed_sends


def test_closing_a_connection_releases_its_unwritten_frame(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    buffer = bytearray(100_000)
    selector.send(NetworkSend("0", [buffer]))
    selector.close_channel("0")
    buffer.clear()  # no view of it is left
    selector.poll(0)
    assert not selector.disconnected
    while sock.recv(1 << 16):
        pass
    connect(selector, server)
    selector.poll(0)


def test_closed_channel_is_not_reported_as_disconnected(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    selector.close_channel("0")
    selector.close_channel("0")
    assert sock.recv(10) == b""
    selector.poll(0)
    assert not selector.disconnected
    connect(selector, server)


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x02\x03\0\2\2\x28", b"\xff\xff\xff\xff"]
)
def test_garbage_closes_the_connection(selector: Selector, server: Server, garbage: bytes) -> None:
    sock = connect(selector, server)
    sock.sendall(garbage)
    poll_until(selector, lambda: selector.disconnected)
    assert "InvalidReceiveError" in repr(selector.disconnected["0"].cause)
    assert not selector.channels()


def test_tls_bytes_on_plaintext_connection_fail_authentication(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    sock.sendall(b"\x15\x03\x03\0\2\2\x28")
    poll_until(selector, lambda: selector.disconnected)
    error = selector.disconnected["0"].exception
    assert isinstance(error, SslAuthenticationError)
    assert re.fullmatch(r"the listener at 127\.0\.0\.1:\d+ speaks TLS .*", str(error))
    assert not selector.channels()


def test_the_size_limit_closes_the_connection(server: Server) -> None:
    selector = make(SelectorConfig(max_receive_size=10))
    sock = connect(selector, server)
    sock.sendall(frame(b"0123456789") + frame(b"0123456789a"))
    assert poll_until(selector, lambda: selector.disconnected) == [b"0123456789"]
    assert "exceeds the limit of 10" in str(selector.disconnected["0"].cause)
    selector.close()


# --- muting ----------------------------------------------------------------------------------------------------------


def test_a_muted_connection_is_not_read(selector: Selector, server: Server) -> None:
    sock, other = connect(selector, server, "0"), connect(selector, server, "1")
    selector.mute("0")
    sock.sendall(frame(b"a"))
    other.sendall(frame(b"b"))
    assert poll_until(selector, lambda: selector.completed_receives) == [b"b"]
    selector.poll(20)
    assert not selector.completed_receives
    selector.send(NetworkSend("0", [frame(b"x")]))  # a muted channel can still write
    assert recv_exactly(sock, 5) == frame(b"x")
    selector.unmute("0")
    assert poll_until(selector, lambda: selector.completed_receives) == [b"a"]
    selector.mute("0")
    sock.sendall(frame(b"c"))
    selector.poll(20)
    assert not selector.completed_receives
    selector.unmute("0")
    assert poll_until(selector, lambda: selector.completed_receives) == [b"c"]


def test_server_receives_one_request_per_poll() -> None:
    selector = make(SelectorConfig(one_receive_per_poll=True))
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    selector.register("c", accepted)
    assert selector.is_channel_ready("c")
    client.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
    assert poll_until(selector, lambda: selector.completed_receives) == [b"1"]
    selector.mute("c")
    selector.poll(20)
    assert not selector.completed_receives
    selector.send(NetworkSend("c", [frame(b"answer")]))
    selector.unmute("c")
    selector.poll(60_000)  # buffered data needs no socket event
    assert [bytes(receive.payload) for receive in selector.completed_receives] == [b"2"]
    client.close()  # with an unread request
    assert poll_until(selector, lambda: selector.disconnected) == [b"3"]
    assert selector.disconnected["c"].state == channel_state.READY
    selector.close()
    listener.close()


def test_polls_wait_again_once_all_buffered_requests_are_taken() -> None:
    selector = make(SelectorConfig(one_receive_per_poll=True))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        selector.register("c", listener.accept()[0])
    client.sendall(frame(b"1") + frame(b"2"))
    assert poll_until(selector, lambda: selector.completed_receives) == [b"1"]
    with record_waits(selector) as waits:
        selector.poll(60_000)
        assert [bytes(receive.payload) for receive in selector.completed_receives] == [b"2"]
        assert not any(waits)
        selector.poll(20)
        assert not selector.completed_receives
        assert sum(waits) == 20
    selector.close()
    client.close()


def test_connection_closed_by_peer_delivers_all_its_requests() -> None:
    selector = make(SelectorConfig(one_receive_per_poll=True))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    selector.register("c", accepted)
    expected = [str(number).encode() for number in range(10)]
    client.sendall(b"".join(map(frame, expected)))
    client.close()
    payloads: list[bytes] = []
    muted = False
    for _ in range(100):
        selector.poll(50)
        assert len(selector.completed_receives) <= 1
        payloads += [bytes(receive.payload) for receive in selector.completed_receives]
        if selector.disconnected:
            break
        if len(payloads) == 5 and not muted:
            muted = True
            selector.mute("c")
            selector.poll(20)
            assert not selector.completed_receives
            selector.unmute("c")
    assert payloads == expected
    selector.close()


def test_connections_wait_for_memory() -> None:
    pool = SimpleMemoryPool(1000, 600, strict=True)
    selector = make(SelectorConfig(one_receive_per_poll=True), memory_pool=pool)
    listener = socket.create_server(("127.0.0.1", 0))
    clients = []
    for number in range(3):
        clients.append(socket.create_connection(listener.getsockname()))
        selector.register(str(number), listener.accept()[0])
    for client in clients:
        client.sendall(frame(b"x" * 600))
    taken: list[Frame] = []
    for _ in range(10):
        selector.poll(10)
        taken += [receive.payload for receive in selector.completed_receives]
    assert len(taken) == 1
    assert pool.available_memory == 400
    for expected in (2, 3):
        pool.release(len(taken[-1]))
        for _ in range(10):
            selector.poll(10)
            taken += [receive.payload for receive in selector.completed_receives]
        assert len(taken) == expected
    selector.close()
    for sock in (listener, *clients):
        sock.close()


def test_scarce_memory_goes_to_all_connections_in_turn() -> None:
    """A connection that always has the next frame ready does not keep the others from memory."""
    pool = SimpleMemoryPool(1000, 1000, strict=False)
    selector = make(SelectorConfig(one_receive_per_poll=True), memory_pool=pool, rng=random.Random(1))
    assert pool.try_allocate(950) is not None
    clients = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for id in "012":
            clients.append(socket.create_connection(listener.getsockname()))
            selector.register(id, listener.accept()[0])
    for client in clients:
        client.sendall(frame(b"x" * 50) * 30)
    taken: list[str] = []
    for _ in range(60):
        if len(taken) == 30:
            break
        selector.poll(1000)
        for id, payload in selector.completed_receives:
            taken.append(id)
            pool.release(len(payload))
    assert len(taken) == 30
    assert set(taken[:10]) == set(taken[10:20]) == set(taken[20:]) == set("012")
    selector.close()
    for client in clients:
        client.close()


def test_explicitly_muted_connection_stays_muted_when_memory_returns() -> None:
    pool = SimpleMemoryPool(100, 100, strict=True)
    selector = make(memory_pool=pool)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        selector.register("c", listener.accept()[0])
    held = pool.try_allocate(100)
    assert held is not None
    client.sendall(frame(b"x" * 50))
    for _ in range(5):
        selector.poll(10)
    selector.mute("c")
    pool.release(100)
    for _ in range(5):
        selector.poll(10)
        assert not selector.completed_receives
    selector.unmute("c")
    assert poll_until(selector, lambda: selector.completed_receives) == [b"x" * 50]
    selector.close()
    client.close()


# --- idle connections ------------------------------------------------------------------------------------------------


def test_the_connection_idle_for_longest_is_closed_first(server: Server) -> None:
    clock = MockClock()
    selector = make(SelectorConfig(connections_max_idle_ms=1_000), clock=clock)
    first = connect(selector, server, "0")
    clock.advance(400)
    connect(selector, server, "1")
    clock.advance(400)
    first.sendall(frame(b"in use"))
    poll_until(selector, lambda: selector.completed_receives)
    clock.advance(601)  # "1" is idle for 1001 ms, "0" for 601
    selector.poll(0)
    assert selector.disconnected["1"].state == channel_state.EXPIRED
    assert selector.is_channel_ready("0")
    clock.advance(400)
    selector.poll(0)
    assert list(selector.disconnected) == ["0"]
    clock.advance(5_000)
    selector.poll(0)
    assert not selector.disconnected
    selector.close()


def test_sending_keeps_connection_from_being_idle(server: Server) -> None:
    clock = MockClock()
    selector = make(SelectorConfig(connections_max_idle_ms=1_000), clock=clock)
    connect(selector, server)
    for _ in range(5):  # like acks=0: the server never responds
        clock.advance(600)
        selector.send(NetworkSend("0", [frame(b"x")], False))
        selector.poll(0)
        assert not selector.disconnected
    clock.advance(1_001)
    selector.poll(0)
    assert selector.disconnected["0"].state == channel_state.EXPIRED
    selector.close()


def test_request_just_before_idle_limit_gets_its_response(server: Server) -> None:
    clock = MockClock()
    selector = make(SelectorConfig(connections_max_idle_ms=1_000), clock=clock)
    sock = connect(selector, server)
    clock.advance(999)
    selector.send(NetworkSend("0", [frame(b"request")]))
    clock.advance(2)
    selector.poll(0)
    assert not selector.disconnected
    sock.sendall(frame(b"response"))
    assert poll_until(selector, lambda: selector.completed_receives) == [b"response"]
    selector.close()


def test_idle_connections_stay_without_a_limit(server: Server) -> None:
    clock = MockClock()
    selector = make(clock=clock)
    connect(selector, server)
    clock.advance(1 << 40)
    selector.poll(0)
    assert selector.is_channel_ready("0")
    selector.close()


# --- authentication --------------------------------------------------------------------------------------------------


class Exchange(Authenticator):
    """A two-step client authentication: it sends ``who``, and ``secret`` after the server's ``go``."""

    def __init__(self, fails: bool = False) -> None:
        self._complete = False
        self.closed = False
        self.is_waiting = False
        self._fails = fails
        self._out: list[bytes] = [frame(b"who")]

    @property
    def complete(self) -> bool:
        return self._complete

    def next_frame(self, now_ms: int) -> Sequence[bytes] | None:
        return [self._out.pop(0)] if self._out and not self.is_waiting else None

    def start(self, resume: Callable[[], object]) -> None:
        self.resume = resume

    def begin_reauthentication(self) -> None:
        self._complete = False
        self.reauthenticate_ms = None
        self._out.append(frame(b"again"))

    def receive(self, frame_: Frame, now_ms: int) -> bool:
        if bytes(frame_).startswith(b"other"):
            return False
        if frame_ == b"go":
            self._out.append(frame(b"secret"))
        elif frame_ == b"welcome" and not self._fails:
            self._complete = True
        else:
            self._out.append(frame(b"bye"))
            raise SaslAuthenticationError("refused")
        return True

    def close(self) -> None:
        self.closed = True


class ExchangeAuthenticators(Authenticators):
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def new_authenticator(self, id: str, address: SocketAddress | None, transport: TransportLayer) -> Authenticator:
        return self._authenticator


def exchange_builder(authenticator: Authenticator) -> ChannelBuilder:
    return ChannelBuilder(Transports(), ExchangeAuthenticators(authenticator))


def test_channel_is_ready_after_authentication_frames(server: Server) -> None:
    exchange = Exchange()
    selector = make(channel_builder=exchange_builder(exchange))
    selector.connect("0", server.address, DEFAULT, DEFAULT)
    sock = server.accept()
    poll_until(selector, lambda: selector.connected)
    assert not selector.is_channel_ready("0")
    assert recv_exactly(sock, 7) == frame(b"who")
    sock.sendall(frame(b"go"))
    selector.poll(1000)
    assert recv_exactly(sock, 10) == frame(b"secret")
    assert not selector.is_channel_ready("0")
    sock.sendall(frame(b"welcome") + frame(b"a response"))
    assert poll_until(selector, lambda: selector.completed_receives) == [b"a response"]
    assert selector.is_channel_ready("0")
    selector.close()
    assert exchange.closed


def test_end_of_stream_during_authentication_disconnects(server: Server) -> None:
    selector = make(channel_builder=exchange_builder(Exchange()))
    selector.connect("0", server.address, DEFAULT, DEFAULT)
    server.accept().close()
    poll_until(selector, lambda: selector.disconnected)
    assert selector.disconnected["0"].state == channel_state.AUTHENTICATE
    selector.close()


@pytest.mark.parametrize("delay_ms", [0, 500])
def test_failed_authentication_may_close_with_delay(server: Server, delay_ms: int) -> None:
    clock = MockClock()
    config = SelectorConfig(failed_authentication_delay_ms=delay_ms)
    selector = make(config, clock=clock, channel_builder=exchange_builder(Exchange(fails=True)))
    selector.connect("0", server.address, DEFAULT, DEFAULT)
    sock = server.accept()
    poll_until(selector, lambda: selector.connected)
    recv_exactly(sock, 7)
    sock.sendall(frame(b"welcome"))
    if delay_ms:
        for _ in range(5):
            selector.poll(20)
            assert not selector.disconnected
        clock.advance(delay_ms)
    poll_until(selector, lambda: selector.disconnected)
    state = selector.disconnected["0"]
    assert state.state == channel_state.AUTHENTICATION_FAILED
    assert isinstance(state.exception, SaslAuthenticationError)
    assert recv_exactly(sock, 7) == frame(b"bye")
    assert sock.recv(1) == b""
    selector.close()


def test_poll_ends_when_delayed_close_is_due(server: Server) -> None:
    config = SelectorConfig(failed_authentication_delay_ms=50)
    selector = make(config, channel_builder=exchange_builder(Exchange(fails=True)))
    selector.connect("0", server.address, DEFAULT, DEFAULT)
    sock = server.accept()
    poll_until(selector, lambda: selector.connected)
    sock.sendall(frame(b"welcome"))
    for _ in range(3):  # one for the frame, one for the wait, and one more if the clock was early
        if not selector.disconnected:
            selector.poll(3_600_000)
    assert selector.disconnected["0"].state == channel_state.AUTHENTICATION_FAILED
    selector.close()


def test_reauthentication_does_not_disturb_requests(server: Server) -> None:
    clock, exchange = MockClock(), Exchange()
    selector = make(clock=clock, channel_builder=exchange_builder(exchange))
    selector.connect("0", server.address, DEFAULT, DEFAULT)
    sock = server.accept()
    poll_until(selector, lambda: selector.connected)
    recv_exactly(sock, 7)
    exchange.reauthenticate_ms = clock.now_ms() + 1_000
    sock.sendall(frame(b"welcome"))
    poll_until(selector, lambda: selector.is_channel_ready("0"))
    selector.send(NetworkSend("0", [frame(b"one")]))
    assert recv_exactly(sock, 7) == frame(b"one")
    clock.advance(1_000)
    selector.poll(0)  # it is due, but nothing is sent
    assert selector.is_channel_ready("0")
    selector.send(NetworkSend("0", [frame(b"two")]))
    assert not selector.is_channel_ready("0")
    assert selector.wait_bound_ms(clock.now_ms()) == 0
    selector.poll(0)
    assert recv_exactly(sock, 9) == frame(b"again")
    sock.sendall(frame(b"other: 1") + frame(b"other: 2"))
    received: list[bytes] = []
    while len(received) < 2:
        selector.poll(100)
        received += [bytes(receive.payload) for receive in selector.completed_receives]
    assert received == [b"other: 1", b"other: 2"]
    assert not selector.is_channel_ready("0")
    sock.sendall(frame(b"other: 3") + frame(b"welcome") + frame(b"other: 4"))
    while len(received) < 4:
        selector.poll(100)
        received += [bytes(receive.payload) for receive in selector.completed_receives]
    assert received[2:] == [b"other: 3", b"other: 4"]
    poll_until(selector, lambda: selector.completed_sends)
    assert recv_exactly(sock, 7) == frame(b"two")
    assert selector.is_channel_ready("0")
    values = selector.metrics._metrics.by_group()["selector-metrics"]
    assert values["successful-authentication-total"] == 1
    assert values["successful-reauthentication-total"] == 1
    selector.close()


def test_failed_reauthentication_closes_connection(server: Server) -> None:
    clock, exchange = MockClock(), Exchange()
    selector = make(clock=clock, channel_builder=exchange_builder(exchange))
    selector.connect("0", server.address, DEFAULT, DEFAULT)
    sock = server.accept()
    poll_until(selector, lambda: selector.connected)
    exchange.reauthenticate_ms = clock.now_ms()
    sock.sendall(frame(b"welcome"))
    poll_until(selector, lambda: selector.is_channel_ready("0"))
    selector.send(NetworkSend("0", [frame(b"two")]))
    sock.sendall(frame(b"other: 1") + frame(b"refused"))
    received: list[bytes] = []
    while not selector.disconnected:
        selector.poll(100)
        received += [bytes(receive.payload) for receive in selector.completed_receives]
    assert received == [b"other: 1"]
    assert selector.disconnected["0"].state == channel_state.AUTHENTICATION_FAILED
    values = selector.metrics._metrics.by_group()["selector-metrics"]
    assert values["failed-authentication-total"] == 0
    assert values["failed-reauthentication-total"] == 1
    selector.close()


def test_an_authentication_that_waits_is_resumed_from_another_thread(server: Server) -> None:
    exchange = Exchange()
    exchange.is_waiting = True
    selector = make(channel_builder=exchange_builder(exchange))
    selector.connect("0", server.address, DEFAULT, DEFAULT)
    sock = server.accept()
    poll_until(selector, lambda: selector.connected)
    selector.poll(50)
    exchange.is_waiting = False

    def resume() -> None:
        exchange.resume()

    thread = threading.Thread(target=resume)
    thread.start()
    selector.poll(60_000)
    thread.join()
    assert recv_exactly(sock, 7) == frame(b"who")
    selector.close()
    exchange.resume()  # too late, and harmless


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_selector_measures_traffic(server: Server) -> None:
    clock = MockClock()
    metrics = Metrics(clock=clock)
    selector = Selector(SelectorConfig(metrics_group_prefix="producer"), metrics, clock, LogContext())
    sock = connect(selector, server)
    for size in (10, 30):
        selector.send(NetworkSend("0", [b"\0" * size]))
    sock.sendall(frame(b"abc"))
    poll_until(selector, lambda: selector.completed_receives)
    clock.advance(1_000)
    selector.poll(0)
    values = metrics.by_group()
    total, node = values["producer-metrics"], values["producer-node-metrics.node-0"]
    assert total["connection-count"] == 1
    assert total["connection-creation-total"] == 1
    for group in (total, node):
        assert group["request-total"] == 2
        assert group["outgoing-byte-total"] == 40
        assert group["request-size-avg"] == 20
        assert group["request-size-max"] == 30
        assert group["response-total"] == 1
        assert group["incoming-byte-total"] == 7
    assert total["network-io-total"] == 3
    assert total["select-total"] > 0
    assert metrics.get_sensor("node-0.latency") is not None
    selector.close_channel("0")
    assert metrics.by_group()["producer-metrics"]["connection-close-total"] == 1
    selector.close()
    assert "producer-metrics" not in metrics.by_group()


def test_idle_poll_waits_its_timeout_in_few_system_calls(selector: Selector, server: Server) -> None:
    connect(selector, server)
    selector.poll(0)
    with record_waits(selector) as waits:
        started_ms = SYSTEM_CLOCK.now_ms()
        selector.poll(1_500)
        assert SYSTEM_CLOCK.now_ms() - started_ms >= 1_490
        assert len(waits) <= 2


def test_frame_arriving_in_parts_is_received_in_one_poll(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    payload = bytes(range(256)) * 1000
    stream = frame(payload)

    def dribble() -> None:
        for start in range(0, len(stream), 60_000):
            sock.sendall(stream[start : start + 60_000])
            threading.Event().wait(0.01)

    writer = threading.Thread(target=dribble)
    writer.start()
    assert poll_until(selector, lambda: selector.completed_receives) == [payload]
    writer.join()


def test_partial_frame_keeps_connection_from_being_idle(server: Server) -> None:
    clock = MockClock()
    selector = make(SelectorConfig(connections_max_idle_ms=1_000), clock=clock)
    sock = connect(selector, server)
    for part in (frame(b"12345")[:5], b"2", b"3"):
        clock.advance(900)
        sock.sendall(part)
        selector.poll(50)
        assert selector.is_channel_ready("0")
    sock.sendall(b"45")
    assert poll_until(selector, lambda: selector.completed_receives) == [b"12345"]
    selector.close()


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_come_back(server: Server, seed: int) -> None:
    """An echo server returns frames of all sizes on several connections while other threads wake the selector."""
    rng = random.Random(seed)
    selector = make()
    threads = []
    for id in "012":
        sock = connect(selector, server, id)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)

        def send_back(sock: socket.socket = sock) -> None:
            with contextlib.suppress(OSError):
                while data := sock.recv(1 << 16):
                    sock.sendall(data)

        threads.append(threading.Thread(target=send_back))
    stopped = threading.Event()

    def wake() -> None:
        while not stopped.wait(0.001):
            selector.wakeup()

    threads.append(threading.Thread(target=wake))
    for thread in threads:
        thread.start()
    sizes = [0, 1, 100, 20_000, 65_532, 65_533, 300_000]
    waiting = {id: [rng.randbytes(rng.choice(sizes)) for _ in range(30)] for id in "012"}
    expected = {id: list(payloads) for id, payloads in waiting.items()}
    came: dict[str, list[bytes]] = {id: [] for id in "012"}
    for _ in range(100_000):
        for id, payloads in waiting.items():
            channel = selector.channel(id)
            assert channel is not None, selector.disconnected
            # One payload in flight at a time, because the echo server does not read while its writes block.
            if payloads and channel.send is None and len(came[id]) + len(payloads) == 30:
                selector.send(NetworkSend(id, [frame(payloads.pop(0))]))
        selector.poll(rng.choice([0, 1, 100]))
        for id, payload in selector.completed_receives:
            came[id].append(bytes(payload))
        if all(len(payloads) == 30 for payloads in came.values()):
            break
    assert came == expected
    stopped.set()
    selector.close()
    for thread in threads:
        thread.join()


def test_metrics_read_by_other_threads_count_everything_once() -> None:
    metrics = Metrics()
    owner = SelectorMetrics(metrics, "selector", {}, False, int)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            metrics.by_group()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(5_000):
        traffic = owner.traffic(str(number % 7))
        traffic.bytes_sent += 3
        traffic.io_count += 1
        owner.polled(1, 2, number)
        if number % 100 == 0:
            owner.closed(str(number % 7))
    stop.set()
    for reader in readers:
        reader.join()
    values = metrics.by_group()["selector-metrics"]
    assert (values["outgoing-byte-total"], values["network-io-total"], values["select-total"]) == (15_000, 5_000, 5_000)
