"""Frames between the parties of a memory network: order, delays, faults, and the life of connections."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import IllegalArgumentError, IllegalStateError
from pykclient.network.frames import NetworkSend
from pykclient.network.selectable import SocketAddress
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.memory_network import PERFECT, LinkPolicy, MemoryNetwork, MemorySelector
from tests.support.mock_clock import MockClock

ADDRESS = SocketAddress("b", 9092, "b")


class Two:
    """A client's and a server's selector."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.loop = EventLoop(self.clock)
        self.links = LinkPolicy(random.Random(7))
        self.network = MemoryNetwork(self.loop, self.links)
        self.news: list[str] = []
        self.client = MemorySelector(self.network, "client:a", on_news=lambda: self.news.append("client"))
        self.server = MemorySelector(self.network, "broker-1")
        self.accepted = 0
        self.listen()

    def listen(self) -> None:
        self.network.listen("b", 9092, "broker-1", self._accept)

    def _accept(self, sock: object) -> None:
        self.accepted += 1
        self.server.register(f"s{self.accepted}", sock)  # type: ignore[arg-type]

    def run(self, duration_ms: int = 0) -> None:
        end_ms = self.clock.now_ms() + duration_ms
        while True:
            wait_ms = self.loop.run_due()
            left_ms = end_ms - self.clock.now_ms()
            if wait_ms and left_ms <= 0:
                break
            self.clock.advance(min(wait_ms, left_ms))
        assert self.loop.failure is None

    def connect(self) -> None:
        self.client.connect("c", ADDRESS, -1, -1)
        self.run()
        self.client.poll(0)
        assert self.client.connected == ["c"]
        assert self.client.is_channel_ready("c")

    def received(self) -> list[bytes]:
        self.server.poll(0)
        return [bytes(receive.payload) for receive in self.server.completed_receives]

    def answers(self) -> list[bytes]:
        self.client.poll(0)
        return [bytes(receive.payload) for receive in self.client.completed_receives]


def send(destination: str, payload: bytes, expect_response: bool = True) -> NetworkSend:
    return NetworkSend(destination, [len(payload).to_bytes(4, "big"), payload], expect_response)


def test_frames_arrive_whole_and_in_order_in_both_directions() -> None:
    two = Two()
    two.connect()
    for number in range(3):
        two.client.send(send("c", b"request %d" % number))
    two.client.send(NetworkSend("c", [b"\0\0\0\x04one "]))
    two.client.send(NetworkSend("c", [b"\0\0\0\x08", b"in ", memoryview(b"three")]))
    two.client.send(NetworkSend("c", [b"\0\0\0\0"]))
    assert two.received() == []
    two.run()
    assert two.received() == [b"request 0", b"request 1", b"request 2", b"one ", b"in three", b""]
    two.server.send(send("s1", b"answer"))
    two.run()
    assert two.answers() == [b"answer"]


def test_frame_of_many_buffers_arrives_whole() -> None:
    two = Two()
    two.connect()
    pieces = [bytes([index % 251]) for index in range(3000)]
    frame = NetworkSend("c", [len(pieces).to_bytes(4, "big"), *pieces])
    two.client.send(frame)
    assert frame.completed
    two.run()
    assert two.received() == [b"".join(pieces)]


def test_news_is_reported_once_until_the_next_poll() -> None:
    two = Two()
    two.connect()
    two.news.clear()
    two.server.send(send("s1", b"1"))
    two.server.send(send("s1", b"2"))
    two.run()
    assert two.news == ["client"]
    assert two.client.has_news
    assert two.answers() == [b"1", b"2"]
    assert not two.client.has_news
    two.client.wakeup()
    two.client.wakeup()
    assert two.news == ["client", "client"]


def test_send_without_response_is_reported_as_news() -> None:
    two = Two()
    two.connect()
    two.client.send(send("c", b"1"))
    assert not two.client.has_news
    two.client.send(send("c", b"2", expect_response=False))
    assert two.client.has_news
    two.client.poll(0)
    assert len(two.client.completed_sends) == 2


def test_blocking_poll_waits_unless_there_is_news() -> None:
    two = Two()
    waits: list[int] = []

    class WaitingSelector(MemorySelector):
        def _wait(self, timeout_ms: int) -> None:
            waits.append(timeout_ms)
            two.run(timeout_ms)

    two.client = WaitingSelector(two.network, "client:a")
    two.client.connect("c", ADDRESS, -1, -1)
    two.client.poll(5)
    assert (two.client.connected, waits) == (["c"], [5])
    two.client.wakeup()
    two.client.poll(5)
    two.client.poll(0)
    assert waits == [5]


def test_connection_without_a_listener_is_refused() -> None:
    two = Two()
    two.network.unlisten("b", 9092)
    two.client.connect("c", ADDRESS, -1, -1)
    two.run()
    two.client.poll(0)
    assert two.client.connected == []
    assert "b:9092 refused" in str(two.client.disconnected["c"].cause)
    two.listen()
    two.connect()


def test_address_has_one_listener_and_id_one_connection() -> None:
    two = Two()
    with pytest.raises(IllegalStateError, match="broker-1 listens at b:9092 already"):
        two.listen()
    two.connect()
    with pytest.raises(IllegalStateError, match="connection c already exists"):
        two.client.connect("c", ADDRESS, -1, -1)
    with pytest.raises(IllegalStateError, match="no connection x"):
        two.client.mute("x")


def test_disconnect_is_seen_after_all_sent_frames() -> None:
    two = Two()
    two.connect()
    two.server.send(send("s1", b"last"))
    two.server.close_channel("s1")
    assert two.server.disconnected == {}
    two.run()
    assert two.answers() == [b"last"]
    assert list(two.client.disconnected) == ["c"]
    two.client.poll(0)
    assert two.client.disconnected == {}
    assert not two.client.is_channel_ready("c")
    two.connect()  # the id can be reused


def test_bytes_sent_to_a_closed_end_are_lost() -> None:
    two = Two()
    two.connect()
    two.client.send(send("c", b"late"))
    two.server.reset_channel("s1")
    two.run()
    assert two.answers() == []
    assert "reset" in str(two.client.disconnected["c"].cause)


def test_muted_connection_is_not_read() -> None:
    two = Two()
    two.connect()
    two.server.mute("s1")
    two.client.send(send("c", b"1"))
    two.client.close()
    two.run()
    assert two.received() == []
    assert two.server.disconnected == {}
    two.server.unmute("s1")
    assert two.received() == [b"1"]
    assert list(two.server.disconnected) == ["s1"]


# --- faults --------------------------------------------------------------------------------------------------------


def test_delay_applies_per_direction_and_keeps_order() -> None:
    two = Two()
    two.links.set("client:*", "broker-1", delay_ms=30)
    two.client.connect("c", ADDRESS, -1, -1)
    two.run(59)
    two.client.poll(0)
    assert two.client.connected == []
    two.run(1)
    two.client.poll(0)
    assert two.client.connected == ["c"]
    two.client.send(send("c", b"slow"))
    two.links.heal()
    two.client.send(send("c", b"fast"))
    two.run(29)
    assert two.received() == []
    assert (two.network.in_transit("client:*"), two.network.in_transit("broker-1")) == (2, 0)
    assert two.network.last_arrival_ms() == two.loop.now_ms + 1
    two.run(1)
    assert two.received() == [b"slow", b"fast"]
    assert two.network.in_transit("*") == 0


def test_bandwidth_limit_delays_frames() -> None:
    two = Two()
    two.connect()
    two.links.set("client:a", "broker-1", bytes_per_second=1000)
    two.client.send(send("c", bytes(500)))
    two.client.send(send("c", bytes(500)))
    two.run(499)
    assert two.received() == []
    two.run(1)
    assert len(two.received()) == 1
    two.run(500)
    assert len(two.received()) == 1


@pytest.mark.parametrize("cut_first", [True, False])
def test_cut_link_delivers_after_healing(cut_first: bool) -> None:
    two = Two()
    two.connect()
    if cut_first:
        two.links.set("client:a", "broker-1", cut=True)
    two.client.send(send("c", b"1"))
    if not cut_first:
        two.links.set("client:a", "broker-1", cut=True)
    two.server.close_channel("s1") if cut_first else two.server.send(send("s1", b"answer"))
    two.run(60_000)
    assert two.received() == []
    assert two.answers() == []
    assert two.client.disconnected == {}
    two.links.heal()
    two.run()
    assert two.received() == ([] if cut_first else [b"1"])
    assert two.answers() == ([] if cut_first else [b"answer"])
    assert list(two.client.disconnected) == (["c"] if cut_first else [])


def test_one_way_cut_affects_one_direction() -> None:
    two = Two()
    two.connect()
    two.links.set("broker-1", "client:a", one_way=True, cut=True)
    two.client.send(send("c", b"1"))
    two.run()
    assert two.received() == [b"1"]
    two.server.send(send("s1", b"2"))
    two.run()
    assert two.answers() == []


def test_connecting_over_a_cut_link_waits_for_healing() -> None:
    two = Two()
    two.links.partition(["client:*"], ["broker-1", "broker-2"])
    two.client.connect("c", ADDRESS, -1, -1)
    two.run(1000)
    two.client.poll(0)
    assert (two.client.connected, two.client.disconnected) == ([], {})
    two.links.heal()
    two.run()
    two.client.poll(0)
    assert two.client.connected == ["c"]


def test_pending_connection_can_be_closed() -> None:
    two = Two()
    two.links.set("*", "*", cut=True)
    two.client.connect("c", ADDRESS, -1, -1)
    two.run()
    two.client.close_channel("c")
    two.links.heal()
    two.run()
    assert two.accepted == 0
    two.client.connect("c", ADDRESS, -1, -1)
    two.loop.run_due()
    two.client.close_channel("c")
    two.run()
    two.server.poll(0)
    assert two.client.connected == []


def test_reset_link_breaks_both_ends_and_refuses_connections() -> None:
    two = Two()
    two.connect()
    two.links.set("client:a", "broker-1", reset=True)
    two.run()
    two.client.poll(0)
    two.server.poll(0)
    assert (list(two.client.disconnected), list(two.server.disconnected)) == (["c"], ["s1"])
    two.client.connect("c", ADDRESS, -1, -1)
    two.run()
    two.client.poll(0)
    assert list(two.client.disconnected) == ["c"]


def test_paused_party_accepts_connections_but_gets_nothing() -> None:
    two = Two()
    two.network.pause("broker-1")
    two.connect()
    two.client.send(send("c", b"1"))
    two.run(1000)
    assert two.received() == []
    two.network.resume("broker-1")
    two.run()
    assert two.received() == [b"1"]


# --- the policy ----------------------------------------------------------------------------------------------------


def test_rules_of_one_link_are_combined() -> None:
    links = LinkPolicy(random.Random(1))
    assert links.link("client:a", "broker-1") is PERFECT
    links.set("client:*", "broker-1", delay_ms=10)
    links.set("client:*", "broker-1", bytes_per_second=5.0)
    links.set("*", "broker-*", delay_ms=3, jitter_ms=2)
    link = links.link("client:a", "broker-1")
    assert (link.delay_ms, link.jitter_ms, link.bytes_per_second, link.cut) == (10, 2, 5.0, False)
    assert links.link("client:a", "broker-2").delay_ms == 3
    assert links.link("client:a", "coordination").perfect
    links.heal("broker-1", "client:*")
    assert links.link("client:a", "broker-1").bytes_per_second is None
    assert links.active
    links.heal()
    assert not links.active


def test_partition_affects_only_parties_of_its_groups() -> None:
    links = LinkPolicy(random.Random(1))
    changes: list[int] = []
    links.subscribe(lambda: changes.append(1))
    links.partition(["broker-1", "client:a"], ["broker-2", "client:*"])
    assert links.is_cut("broker-1", "broker-2")
    assert links.is_cut("broker-2", "client:a")
    assert links.is_cut("client:b", "client:a")
    assert not links.is_cut("client:b", "broker-2")
    assert not links.is_cut("broker-1", "coordination")
    assert len(changes) == 1


@pytest.mark.parametrize("wrong", [{"delay_ms": -1}, {"jitter_ms": -1}, {"bytes_per_second": 0}])
def test_invalid_links_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(IllegalArgumentError):
        LinkPolicy(random.Random(1)).set("a", "b", **wrong)  # type: ignore[arg-type]


@given(st.data())
def test_frames_arrive_once_and_in_order_over_any_links(data: st.DataObject) -> None:
    two = Two()
    two.connect()
    sent: list[bytes] = []
    received: list[bytes] = []
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(
            st.sampled_from(["send", "send", "run", "delay", "cut", "narrow", "heal", "pause", "resume"])
        )
        if action == "send":
            sent.append(b"%d" % len(sent))
            two.client.send(send("c", sent[-1]))
        elif action == "run":
            two.run(data.draw(st.integers(0, 50)))
            received += two.received()
        elif action == "delay":
            two.links.set("client:*", "broker-1", delay_ms=data.draw(st.integers(0, 40)), jitter_ms=30)
        elif action == "cut":
            two.links.set("client:a", "broker-1", cut=True)
        elif action == "narrow":
            two.links.set("client:a", "broker-1", bytes_per_second=100)
        elif action == "heal":
            two.links.heal()
        else:
            getattr(two.network, action)("broker-1")
        assert received == sent[: len(received)]
    two.links.heal()
    two.network.resume("broker-1")
    two.run(60_000)
    assert received + two.received() == sent
