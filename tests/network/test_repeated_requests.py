"""Requests that the poller sends again by itself, on real sockets."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from pykclient.network.client_request import RepeatableRequest, Repetitions
from pykclient.network.frames import NetworkSend
from pykclient.network.selector import Selector, SelectorConfig
from tests.network.implementations import choose
from tests.network.test_selector import Server, connect, frame, make, poll_until, recv_exactly
from tests.support.mock_clock import MockClock

#: The rest of an empty response, after the correlation id.
EMPTY = b"empty"
#: The head of a request, the correlation id, some bytes, the epoch, and more bytes.
REQUEST = struct.pack(">ihhi3si5s", 20, 1, 17, 0, b"abc", 0, b"defgh")
PATIENCE_MS = 30_000


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "c")


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


def request(correlation_id: int, epoch: int) -> bytes:
    return struct.pack(">ihhi3si5s", 20, 1, 17, correlation_id, b"abc", epoch, b"defgh")


def response(correlation_id: int, rest: bytes = EMPTY) -> bytes:
    return frame(struct.pack(">i", correlation_id) + rest)


def repeatable(correlation_id: int = 7, epoch: int = 3, age_ms: int = 0) -> RepeatableRequest:
    """Return a request whose predecessor has the id before."""
    return RepeatableRequest(response(correlation_id - 1), REQUEST, 15, correlation_id, epoch, age_ms)


def repeat(selector: Selector, request: RepeatableRequest | None = None) -> Callable[[], Repetitions]:
    end = selector.repeat("0", repeatable() if request is None else request)
    assert end is not None
    return end


def payloads(selector: Selector) -> list[bytes]:
    return [bytes(receive.payload) for receive in selector.completed_receives]


def answer(sock: socket.socket, first_id: int, count: int, last: bytes) -> list[bytes]:
    """Send empty responses from ``first_id`` on, and then ``last``; return the requests that came in between."""
    found = []
    for correlation_id in range(first_id, first_id + count):
        sock.sendall(response(correlation_id))
        found.append(recv_exactly(sock, len(REQUEST)))
    sock.sendall(last)
    return found


@pytest.mark.parametrize("last", [response(10, b"data"), response(10, EMPTY + b"!"), response(11), response(9)])
def test_wait_continues_until_different_response(selector: Selector, server: Server, last: bytes) -> None:
    sock = connect(selector, server)
    end = repeat(selector)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.extend(answer(sock, 6, 4, last)))
    thread.start()
    selector.poll(PATIENCE_MS)
    thread.join()
    assert payloads(selector) == [last[4:]]
    assert selector.completed_sends == []
    assert found == [request(7, 3), request(8, 4), request(9, 5), request(10, 6)]
    done = end()
    assert (done.repeats, done.size_bytes) == (4, 4 * len(REQUEST))
    assert end().repeats == 0


def test_response_in_parts_repeats_request_once_complete(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    end = repeat(selector)
    for byte in response(6):
        sock.sendall(bytes((byte,)))
        selector.poll(5)
        assert payloads(selector) == []

    def read_and_wake() -> None:
        recv_exactly(sock, len(REQUEST))
        selector.wakeup()

    thread = threading.Thread(target=read_and_wake)
    thread.start()
    selector.poll(PATIENCE_MS)
    thread.join()
    assert end().repeats == 1


@pytest.mark.parametrize("behind", [response(7), b"\0"])
def test_response_followed_by_more_bytes_is_reported(selector: Selector, server: Server, behind: bytes) -> None:
    sock = connect(selector, server)
    end = repeat(selector)
    sock.sendall(response(6) + behind)
    found = poll_until(selector, lambda: selector.completed_receives)
    assert found == [response(6)[4:], response(7)[4:]][: 1 + (len(behind) > 1)]
    assert end().repeats == 0


def test_response_after_end_of_repeated_request_is_reported(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    repeat(selector)()
    sock.sendall(response(6))
    assert poll_until(selector, lambda: selector.completed_receives) == [response(6)[4:]]


def test_wakeup_ends_wait_of_repeated_request(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    end = repeat(selector)

    def answer_and_wake() -> None:
        answer(sock, 6, 2, b"")
        selector.wakeup()

    thread = threading.Thread(target=answer_and_wake)
    thread.start()
    selector.poll(PATIENCE_MS)
    thread.join()
    assert payloads(selector) == []
    assert end().repeats == 2


def test_end_of_stream_ends_wait(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    end = repeat(selector)

    def answer_and_close() -> None:
        answer(sock, 6, 2, b"")
        sock.close()

    thread = threading.Thread(target=answer_and_close)
    thread.start()
    poll_until(selector, lambda: "0" in selector.disconnected)
    thread.join()
    end()
    assert selector.repeat("0", repeatable()) is None


def test_busy_connection_takes_no_repeated_request(selector: Selector, server: Server) -> None:
    assert selector.repeat("0", repeatable()) is None, "there is none"
    sock = connect(selector, server)
    selector.mute("0")
    assert selector.repeat("0", repeatable()) is None, "it is muted"
    selector.unmute("0")
    selector.send(NetworkSend("0", [bytes(8 << 20)]))
    assert selector.repeat("0", repeatable()) is None, "a frame is being sent"
    thread = threading.Thread(target=recv_exactly, args=(sock, 8 << 20))
    thread.start()
    poll_until(selector, lambda: selector.completed_sends)
    thread.join()
    sock.sendall(response(6)[:5])
    poll_until(selector, lambda: bool(selector.channels()[0].traffic.bytes_received))
    assert selector.repeat("0", repeatable()) is None, "a frame is being received"


@pytest.mark.parametrize("implementation", ["python", "c with other streams"])
def test_python_streams_take_no_repeated_request(
    implementation: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, implementation)
    selector = make()
    connect(selector, server)
    assert selector.repeat("0", repeatable()) is None
    selector.close()


def test_repeated_requests_count_as_traffic(server: Server) -> None:
    clock = MockClock()
    selector = make(SelectorConfig(connections_max_idle_ms=1_000), clock=clock)
    sock = connect(selector, server)
    clock.advance(900)
    end = repeat(selector, repeatable(age_ms=5_000))
    [channel] = selector.channels()
    traffic = channel.traffic
    before = traffic.bytes_received, traffic.io_count, traffic.responses

    def answer_and_wake() -> None:
        answer(sock, 6, 3, b"")
        selector.wakeup()

    thread = threading.Thread(target=answer_and_wake)
    thread.start()
    selector.poll(PATIENCE_MS)
    thread.join()
    done = end()
    assert done.repeats == 3
    assert done.since_ms >= 0
    assert done.most_ms >= 5_000 > done.least_ms >= 0
    assert done.total_ms >= done.most_ms
    assert done.latencies_ms.count == done.throttle_times_ms.count == 3
    assert (traffic.requests, traffic.request_bytes, traffic.request_max) == (3, 3 * len(REQUEST), len(REQUEST))
    assert traffic.bytes_sent == 3 * len(REQUEST)
    after = traffic.bytes_received, traffic.io_count, traffic.responses
    assert [a - b for a, b in zip(after, before, strict=True)] == [3 * len(response(6)), 6, 3]
    clock.advance(200)
    selector.poll(0)
    assert selector.is_channel_ready("0"), "it was in use"
    selector.close()
