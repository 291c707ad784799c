"""A selector that someone else waits for, as an event loop does: by its descriptor and its bound."""

from __future__ import annotations

import contextlib
import io
import random
import select
import selectors
import socket
import struct
import threading

import pytest

from pykclient.clock import FOREVER_MS, SYSTEM_CLOCK
from pykclient.implementation import python_form
from pykclient.network import selector as selector_module
from pykclient.network.frames import NetworkSend
from pykclient.network.selector import Selector, SelectorConfig, new_poller
from tests.network.test_selector import (
    DEFAULT,
    BlockingConnect,
    Server,
    connect,
    frame,
    implementation,
    make,
    recv_exactly,
    selector,
    server,
)
from tests.support.mock_clock import MockClock

__all__ = ["implementation", "selector", "server"]  # fixtures

#: The most that any wait in here takes; none does unless it fails.
PATIENCE_S = 30


def is_readable(selector: Selector, timeout_s: float = 0) -> bool:
    return bool(select.select([selector.fileno()], [], [], timeout_s)[0])


def bound_ms(selector: Selector) -> int:
    return selector.wait_bound_ms(SYSTEM_CLOCK.now_ms())


def test_the_descriptor_is_readable_while_data_waits(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    selector.poll(0)
    assert not is_readable(selector)
    sock.sendall(frame(b"hello"))
    assert is_readable(selector, PATIENCE_S)
    assert is_readable(selector)
    selector.poll(0)
    assert [bytes(receive.payload) for receive in selector.completed_receives] == [b"hello"]
    assert not is_readable(selector)


def test_a_wakeup_makes_the_descriptor_readable_once(selector: Selector) -> None:
    assert not is_readable(selector)
    for _ in range(3):
        waker = threading.Thread(target=selector.wakeup)
        waker.start()
        assert is_readable(selector, PATIENCE_S)
        waker.join()
        selector.wakeup()
        selector.poll(0)
        assert not is_readable(selector)


def test_a_large_frame_leaves_with_the_next_poll(selector: Selector, server: Server) -> None:
    sock = connect(selector, server)
    payload = bytes(100_000)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(recv_exactly(sock, 4 + len(payload))))
    reader.start()
    selector.send(NetworkSend("0", [frame(payload)]))
    channel = selector.channel("0")
    assert channel is not None
    while channel.send is not None:
        assert is_readable(selector, min(bound_ms(selector) / 1000, PATIENCE_S)) or not bound_ms(selector)
        selector.poll(0)
    reader.join(PATIENCE_S)
    assert received == [frame(payload)]


def test_frame_without_response_makes_poll_due(selector: Selector, server: Server) -> None:
    connect(selector, server)
    selector.send(NetworkSend("0", [frame(b"fire and forget")], expect_response=False))
    assert bound_ms(selector) == 0
    selector.poll(0)
    assert len(selector.completed_sends) == 1
    assert bound_ms(selector) > 0


def test_failed_send_makes_poll_due(selector: Selector, server: Server) -> None:
    connect(selector, server)
    channel = selector.channel("0")
    assert channel is not None
    channel.sock.shutdown(socket.SHUT_WR)
    selector.send(NetworkSend("0", [frame(b"lost")]))
    assert bound_ms(selector) == 0
    selector.poll(0)
    assert list(selector.disconnected) == ["0"]


def test_immediate_connection_makes_descriptor_readable(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    selector = make()
    monkeypatch.setattr(socket, "socket", BlockingConnect)
    selector.connect("0", server.address, DEFAULT, DEFAULT)
    monkeypatch.undo()
    assert is_readable(selector, PATIENCE_S)
    selector.poll(0)
    assert selector.connected == ["0"]
    selector.close()


def test_leftover_frames_make_poll_due(server: Server) -> None:
    selector = make(SelectorConfig(one_receive_per_poll=True))
    sock = connect(selector, server)
    sock.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
    received: list[bytes] = []
    while len(received) < 3:
        assert bound_ms(selector) == 0 or is_readable(selector, PATIENCE_S)
        selector.poll(0)
        received += [bytes(receive.payload) for receive in selector.completed_receives]
    assert received == [b"1", b"2", b"3"]
    assert bound_ms(selector) > 0
    selector.close()


def test_idle_client_publishes_metrics_only_when_read() -> None:
    clock = MockClock()
    selector = make(clock=clock)
    for _ in range(3):
        selector.poll(0)
        clock.advance(10)
    assert selector.wait_bound_ms(clock.now_ms()) == FOREVER_MS
    sensor = selector.metrics.sensor("select-time:")
    (total,) = [metric for metric in sensor.metrics if metric.metric_name.name == "select-total"]
    assert total.metric_value() == 3
    assert total.metric_value() == 3  # published once
    selector.close()


def test_idle_connection_bounds_wait_and_is_closed(server: Server) -> None:
    clock = MockClock()
    selector = make(SelectorConfig(connections_max_idle_ms=1_000), clock=clock)
    connect(selector, server)
    start_ms = clock.now_ms()
    for _ in range(20):
        if selector.disconnected:
            break
        clock.advance(selector.wait_bound_ms(clock.now_ms()))
        selector.poll(0)
    assert list(selector.disconnected) == ["0"]
    assert 1_000 < clock.now_ms() - start_ms < 2_500
    selector.close()


def test_fileno_raises_without_epoll_or_kqueue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector_module, "new_poller", python_form(new_poller))
    monkeypatch.setattr(selectors, "DefaultSelector", selectors.SelectSelector)
    selector = make()
    with pytest.raises(io.UnsupportedOperation, match="needs a system with epoll or kqueue"):
        selector.fileno()
    selector.close()


def settled(selector: Selector) -> None:
    """Poll until nothing is left to do."""
    while is_readable(selector):
        selector.poll(0)


def test_busy_connection_does_not_starve_others(selector: Selector, server: Server) -> None:
    """The compiled poller reads from the connection that was the only one with data, and does not look at others."""
    busy, other = connect(selector, server, "0"), connect(selector, server, "1")
    settled(selector)
    for _ in range(3):
        busy.sendall(frame(b"busy"))
        assert is_readable(selector, PATIENCE_S)
        selector.poll(0)
    other.sendall(frame(b"other"))
    polls = 0
    while ("1", b"other") not in [(id, bytes(payload)) for id, payload in selector.completed_receives]:
        assert polls <= 17
        busy.sendall(frame(b"busy"))
        assert is_readable(selector, PATIENCE_S)
        selector.poll(0)
        polls += 1
    settled(selector)
    assert not selector.disconnected


@pytest.mark.parametrize("ending", ["nothing", "part", "end", "reset", "muted", "wakeup", "closed"])
def test_poll_reports_changes_after_data_stops(selector: Selector, server: Server, ending: str) -> None:
    """Whatever has become of the connection that had data the last times, a poll reports it as if it had not."""
    sock = connect(selector, server)
    settled(selector)
    for _ in range(3):
        sock.sendall(frame(b"data"))
        assert is_readable(selector, PATIENCE_S)
        selector.poll(0)
    if ending == "part":
        sock.sendall(frame(b"more")[:5])
        assert is_readable(selector, PATIENCE_S)
    elif ending == "end":
        sock.close()
        assert is_readable(selector, PATIENCE_S)
    elif ending == "reset":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        assert is_readable(selector, PATIENCE_S)
    elif ending == "muted":
        selector.mute("0")
        sock.sendall(frame(b"more"))
    elif ending == "wakeup":
        selector.wakeup()
        assert is_readable(selector, PATIENCE_S)
    elif ending == "closed":
        selector.close_channel("0")
    selector.poll(0)
    assert not selector.completed_receives
    assert list(selector.disconnected) == (["0"] if ending in ("end", "reset") else [])
    assert not is_readable(selector)
    if ending == "part":
        sock.sendall(frame(b"more")[5:])
    elif ending == "muted":
        selector.unmute("0")
    elif ending in ("nothing", "wakeup"):
        sock.sendall(frame(b"more"))
    else:
        return
    assert is_readable(selector, PATIENCE_S)
    selector.poll(0)
    assert [bytes(receive.payload) for receive in selector.completed_receives] == [b"more"]


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_come_back_to_a_loop(server: Server, seed: int) -> None:
    """As ``test_any_bytes_come_back``, but the wait is for the descriptor."""
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
    for thread in threads:
        thread.start()
    sizes = [0, 1, 100, 20_000, 65_532, 65_533, 300_000]
    waiting = {id: [rng.randbytes(rng.choice(sizes)) for _ in range(30)] for id in "012"}
    expected = {id: list(payloads) for id, payloads in waiting.items()}
    came: dict[str, list[bytes]] = {id: [] for id in "012"}
    while came != expected:
        for id, payloads in waiting.items():
            channel = selector.channel(id)
            assert channel is not None, selector.disconnected
            if payloads and channel.send is None and len(came[id]) + len(payloads) == 30:
                selector.send(NetworkSend(id, [frame(payloads.pop(0))]))
        wait_ms = min(bound_ms(selector), 1000 * PATIENCE_S)
        if not is_readable(selector, wait_ms / 1000):
            assert wait_ms < 1000 * PATIENCE_S, "nothing is due, and nothing comes"
        selector.poll(0)
        for id, payload in selector.completed_receives:
            came[id].append(bytes(payload))
    selector.close()
    for thread in threads:
        thread.join()
