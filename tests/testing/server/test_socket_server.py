"""The server on real sockets: listeners that open and close, limits, and hostile peers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from pykclient.clock import SYSTEM_CLOCK
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.testing.config import ClusterConfig
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.request_channel import Request
from pykclient.testing.server.socket_server import SocketServer
from tests.support.wait import eventually
from tests.testing.server.running import Peer, RunningServer
from tests.testing.server.support import HeartbeatHandler, frame, heartbeat_handler


@pytest.fixture(autouse=True)
def handler() -> Iterator[HeartbeatHandler]:
    with heartbeat_handler() as handler:
        yield handler


def is_served(server: RunningServer, broker: int = 1) -> bool:
    with server.connect(broker) as peer:
        peer.send(frame(77))
        return peer.correlation_id() == 77


def test_many_requests_at_once_are_answered_in_order() -> None:
    with RunningServer() as server, server.connect() as peer:
        for _ in range(3):
            peer.send(b"".join(frame(id) for id in range(200)))
            assert [peer.correlation_id() for _ in range(200)] == list(range(200))


def test_brokers_share_a_processor_and_keep_their_ports() -> None:
    with RunningServer(3) as server:
        assert len(set(server.ports.values())) == 3
        first = server.connect(2)
        first.send(frame(1))
        assert first.correlation_id() == 1
        for reset in (False, True):
            server.stop(server.brokers[2], reset=reset)
            assert first.closed
            with pytest.raises(ConnectionRefusedError):
                server.connect(2)
            assert is_served(server, 1)
            assert is_served(server, 3)
            server.open(server.brokers[2])
            first.sock.close()
            first = server.connect(2)
            first.send(frame(2))
            assert first.correlation_id() == 2
        first.sock.close()


def test_port_of_a_stopped_broker_stays_reserved() -> None:
    with RunningServer() as server:
        server.stop(server.brokers[1])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.ports[1]))
        server.open(server.brokers[1])
        assert is_served(server)


def test_consecutive_ports_and_taken_ports_are_handled() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = SocketServer(ClusterConfig(1, port=port), EventLoop(SYSTEM_CLOCK))
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use"):
            server.bind([1])
        server.close()
        server.close()


def test_paused_broker_accepts_and_answers_later(handler: HeartbeatHandler) -> None:
    with RunningServer(2) as server:
        broker = server.brokers[1]
        broker.paused = True
        with server.connect(1) as peer:
            # More data than the server reads from a connection that has to wait.
            sender = threading.Thread(target=peer.send, args=(b"".join(frame(id) for id in range(20_000)),))
            sender.start()
            assert is_served(server, 2)
            assert len(handler.requests) == 1

            def go_on() -> None:
                broker.resume()
                server.server.resume(broker)

            server.thread.call(go_on)
            assert [peer.correlation_id() for _ in range(20_000)] == list(range(20_000))
            sender.join()


# --- peers that mean no good ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        struct.pack(">i", -1),
        struct.pack(">i", -(1 << 31)),
        struct.pack(">i", (1 << 31) - 1),
        struct.pack(">i", 100_001) + bytes(100),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 100) + b"\xff" * 100,
        frame(1)[:4] + b"\x00\x0c\x00\x63" + frame(1)[8:],
    ],
    ids=["HTTP", "TLS", "-1", "min", "max", "over the limit", "empty", "short", "noise", "version"],
)
def test_garbage_closes_only_its_connection(garbage: bytes) -> None:
    with RunningServer(socket_request_max_bytes=100_000) as server, server.connect() as good, server.connect() as bad:
        good.send(frame(1))
        bad.send(garbage)
        assert bad.closed
        assert good.correlation_id() == 1
        good.send(frame(2))
        assert good.correlation_id() == 2


def test_requests_before_garbage_take_effect(handler: HeartbeatHandler) -> None:
    with RunningServer() as server, server.connect() as peer:
        peer.send(frame(1) + struct.pack(">i", -5))
        assert peer.closed
        eventually(lambda: [request.header.correlation_id for request in handler.requests] == [1])


def test_slow_writers_do_not_delay_others() -> None:
    with RunningServer() as server, server.connect() as slow:
        for byte in frame(5):
            slow.send(bytes([byte]))
            assert is_served(server)
        assert slow.correlation_id() == 5


def test_incomplete_frame_does_not_stop_the_server() -> None:
    with RunningServer() as server:
        with server.connect() as peer:
            peer.send(frame(1)[:10])
            assert is_served(server)
        assert is_served(server)
        processor = server.server._processor
        assert processor is not None
        eventually(lambda: not processor._connections, what="all connections to be forgotten")


def test_announced_sizes_allocate_no_memory() -> None:
    with RunningServer() as server:
        peers = [server.connect() for _ in range(50)]
        for peer in peers:
            peer.send(struct.pack(">i", 100_000_000) + b"x")
        assert is_served(server)
        for peer in peers:
            peer.sock.close()


def test_unread_responses_limit_the_served_requests(handler: HeartbeatHandler) -> None:
    def large_answer(request: Request) -> None:
        request.respond(HeartbeatResponse() if request.client_id == "c" else LargeResponse())

    class LargeResponse(HeartbeatResponse):
        def write(self, w: object, version: int) -> None:
            w.raw(bytes(1_000_000)) if hasattr(w, "raw") else w.bytes_(bytes(1_000_000), False)  # type: ignore[attr-defined]

    handler.answer = large_answer
    with RunningServer() as server, Peer(server.ports[1], receive_buffer=4096) as peer:
        peer.sock.settimeout(1.0)
        with pytest.raises(TimeoutError):
            peer.send(frame(1, "never-reads") * 2_000_000)
        assert is_served(server)
        served = sum(request.client_id == "never-reads" for request in handler.requests)
        assert served < 10
        processor = server.server._processor
        assert processor is not None
        (connection,) = (c for c in processor._connections.values() if c.client_id == "never-reads")
        assert sum(len(frame) for frame, _ in connection.backlog) < 10_000_000


def test_flooding_client_does_not_starve_others(handler: HeartbeatHandler) -> None:
    with RunningServer() as server, server.connect() as flooder, server.connect() as other:
        for peer in (flooder, other):
            peer.send(frame(1))
            peer.answer()
        handler.requests.clear()
        held = threading.Event()
        holder = threading.Thread(target=server.thread.call, args=(lambda: held.wait(10),))
        holder.start()
        flooder.send(frame(1, "flood") * 1000)
        other.send(frame(9))
        held.set()
        assert other.correlation_id() == 9
        for _ in range(1000):
            flooder.answer()
        holder.join()
        turn = next(index for index, request in enumerate(handler.requests) if request.client_id == "c")
        assert turn < 100


def test_many_connections_are_served() -> None:
    with RunningServer() as server:
        peers = [server.connect() for _ in range(300)]
        for id, peer in enumerate(peers):
            peer.send(frame(id))
        assert [peer.correlation_id() for peer in peers] == list(range(300))
        for peer in peers:
            peer.sock.close()
        processor = server.server._processor
        assert processor is not None
        eventually(lambda: not processor._connections)
        assert server.server._selector.metrics._traffic == {}


def test_idle_connections_are_closed() -> None:
    with RunningServer(connections_max_idle_ms=1000) as server, server.connect() as peer:
        peer.send(frame(1))
        assert peer.correlation_id() == 1
        waker = threading.Event()
        assert eventually(lambda: server.thread.call(lambda: True) and peer_closed(peer), 30.0)
        waker.set()


def peer_closed(peer: Peer) -> bool:
    peer.sock.setblocking(False)
    try:
        return peer.sock.recv(1) == b""
    except BlockingIOError:
        return False
    finally:
        peer.sock.settimeout(5)


def test_connections_per_ip_are_limited() -> None:
    with RunningServer(max_connections_per_ip=2) as server, server.connect() as first, server.connect() as second:
        for peer in (first, second):
            peer.send(frame(1))
            assert peer.correlation_id() == 1
        with server.connect() as third:
            assert third.closed
        second.sock.close()
        eventually(lambda: server_takes_another(server))


def server_takes_another(server: RunningServer) -> bool:
    with server.connect() as peer:
        try:
            peer.send(frame(1))
            return peer.correlation_id() == 1
        except (EOFError, ConnectionError):
            return False


def test_clients_connect_while_brokers_restart() -> None:
    with RunningServer(2) as server:
        stopping = threading.Event()
        refused: list[int] = []

        def connect_all_the_time() -> None:
            while not stopping.is_set():
                try:
                    is_served(server, 1)
                except (EOFError, ConnectionError):
                    refused.append(1)

        clients = [threading.Thread(target=connect_all_the_time) for _ in range(3)]
        for client in clients:
            client.start()
        for turn in range(20):
            server.stop(server.brokers[1], reset=turn % 2 == 0)
            assert is_served(server, 2)
            server.open(server.brokers[1])
            eventually(lambda: server_takes_another(server), every_s=0.001)
        stopping.set()
        for client in clients:
            client.join()
        assert is_served(server, 1)


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_host_names_and_ipv6_are_bound(host: str) -> None:
    server = SocketServer(ClusterConfig(1, host=host), EventLoop(SYSTEM_CLOCK))
    try:
        (port,) = server.bind([1]).values()
    except OSError:
        pytest.skip(f"no {host} on this machine")
    finally:
        server.close()
    assert port > 0
