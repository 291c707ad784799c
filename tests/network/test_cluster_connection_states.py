"""Connection states: every transition in the table, and no other."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pykclient.errors import IllegalStateError, SaslAuthenticationError
from pykclient.log_context import LogContext
from pykclient.network import channel_state
from pykclient.network.channel_state import ChannelState
from pykclient.network.cluster_connection_states import (
    AUTHENTICATION_FAILED,
    CHECKING_API_VERSIONS,
    CONNECTING,
    DISCONNECTED,
    MOVES,
    READY,
    SLOW_LOOKUP_MS,
    BackoffConfig,
    ClusterConnectionStates,
)
from pykclient.network.host_resolver import Lookup


def make() -> ClusterConnectionStates:
    return ClusterConnectionStates(BackoffConfig(50, 1_000, 100, 800), LogContext(), random.Random(3))


ACTIONS = {
    CONNECTING: lambda states: states.connecting("0", 0, "h"),
    CHECKING_API_VERSIONS: lambda states: states.checking_api_versions("0"),
    READY: lambda states: states.ready("0"),
    DISCONNECTED: lambda states: states.disconnected("0", 0),
    AUTHENTICATION_FAILED: lambda states: states.authentication_failed("0", 0, SaslAuthenticationError("no")),
}

PATHS = {
    CONNECTING: [CONNECTING],
    CHECKING_API_VERSIONS: [CONNECTING, CHECKING_API_VERSIONS],
    READY: [CONNECTING, READY],
    DISCONNECTED: [CONNECTING, DISCONNECTED],
    AUTHENTICATION_FAILED: [CONNECTING, DISCONNECTED, AUTHENTICATION_FAILED],
}


@pytest.mark.parametrize(("start", "end"), list(itertools.product(MOVES, repeat=2)))
def test_connection_states_follow_table_of_moves(start: str, end: str) -> None:
    states = make()
    for step in PATHS[start]:
        ACTIONS[step](states)
    assert states.state_of("0") == start
    if end in MOVES[start]:
        ACTIONS[end](states)
        assert states.state_of("0") == end
    else:
        with pytest.raises(IllegalStateError, match=f"from {start} to {end}"):
            ACTIONS[end](states)
        assert states.state_of("0") == start


@pytest.mark.parametrize(("start", "end"), list(itertools.product(channel_state.MOVES, repeat=2)))
def test_channel_states_follow_table_of_moves(start: str, end: str) -> None:
    state = ChannelState(start, remote_address="h:1")
    if end in channel_state.MOVES[start]:
        moved = state.move_to(end)
        assert (moved.state, moved.remote_address) == (end, "h:1")
    else:
        with pytest.raises(IllegalStateError, match=f"from {start} to {end}"):
            state.move_to(end)


def test_unknown_node_can_connect_without_delay() -> None:
    states = make()
    assert states.can_connect("0", 0)
    assert not states.is_disconnected("0")
    assert states.connection_delay_ms("0", 0) == states.poll_delay_ms("0", 0) == 0
    states.throttle("0", 100)
    assert states.throttle_delay_ms("0", 0) == 0
    with pytest.raises(IllegalStateError, match="never was"):
        states.disconnected("0", 0)


def test_setup_timeouts_grow_and_are_reset() -> None:
    states = make()
    timeouts = []
    now_ms = 0
    for _ in range(5):
        states.connecting("0", now_ms, "h")
        timeout_ms = states.connection_setup_timeout_ms("0")
        timeouts.append(timeout_ms)
        assert states.nodes_with_connection_setup_timeout(now_ms + timeout_ms) == []
        assert states.nodes_with_connection_setup_timeout(now_ms + timeout_ms + 1) == ["0"]
        states.disconnected("0", now_ms)
        assert not states.can_connect("0", now_ms)
        now_ms += 2_000
    for attempt, timeout_ms in enumerate(timeouts):
        assert min(80 * 2**attempt, 640) - 1 <= timeout_ms <= min(120 * 2**attempt, 800)
    states.connecting("0", now_ms, "h")
    states.checking_api_versions("0")
    assert states.connection_setup_timeout_ms("0") <= 120
    assert states.nodes_with_connection_setup_timeout(now_ms + 10_000) == []


def test_a_throttle_never_gets_shorter() -> None:
    states = make()
    states.connecting("0", 0, "h")
    states.ready("0")
    states.throttle("0", 100)
    states.throttle("0", 50)
    assert states.throttle_delay_ms("0", 10) == states.poll_delay_ms("0", 10) == 90
    assert not states.is_ready("0", 99)
    assert states.is_ready("0", 100)


def test_node_with_new_host_starts_without_backoff() -> None:
    states = make()
    states.connecting("0", 0, "old")
    for _ in range(5):
        states.disconnected("0", 0)
    states.connecting("0", 5_000, "new")
    assert states.current_address("0") is None
    lookup = Lookup()
    states.resolving("0", lookup)
    assert states.is_resolving("0")
    lookup.finish(["new"])
    states.resolved("0", 5_000)
    assert states.current_address("0") == "new"
    states.disconnected("0", 5_000)
    assert states.connection_delay_ms("0", 5_000) <= 60


def test_a_look_up_is_a_part_of_connecting() -> None:
    states = make()
    told: list[str] = []
    states.connecting("0", 0, "h")
    lookup = Lookup(lambda: told.append("0"))
    states.resolving("0", lookup)
    assert states.is_connecting("0")
    assert states.finished_lookups() == []
    assert not states.is_lookup_slow("0", SLOW_LOOKUP_MS)
    assert states.is_lookup_slow("0", SLOW_LOOKUP_MS + 1)
    assert states.nodes_with_connection_setup_timeout(121) == ["0"]
    lookup.finish(["10.0.0.1"])
    assert told == ["0"]
    assert states.finished_lookups() == ["0"]
    states.resolved("0", 5_000)
    assert states.finished_lookups() == []
    assert not states.is_resolving("0")
    assert states.nodes_with_connection_setup_timeout(5_079) == []  # the lookup's time does not count
    with pytest.raises(IllegalStateError, match="not being looked up"):
        states.resolved("0", 5_000)


@pytest.mark.parametrize("end", ["disconnected", "remove", "close"])
def test_lookup_is_cancelled_with_its_connection(end: str) -> None:
    states = make()
    states.connecting("0", 0, "h")
    lookup = Lookup(lambda: pytest.fail("nobody wants to know any more"))
    states.resolving("0", lookup)
    {
        "disconnected": lambda: states.disconnected("0", 0),
        "remove": lambda: states.remove("0"),
        "close": states.close,
    }[end]()
    lookup.finish(["10.0.0.1"])
    assert states.finished_lookups() == []
    assert not states.is_resolving("0")


class Connections(RuleBasedStateMachine):
    """Any sequence of legal transitions keeps the state consistent."""

    def __init__(self) -> None:
        super().__init__()
        self.states = make()
        self.now_ms = 0
        self.state: str | None = None

    @rule(passed_ms=st.integers(0, 2_000))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule(end=st.sampled_from(sorted(MOVES)))
    def move(self, end: str) -> None:
        if self.state is None and end != CONNECTING:
            return
        if self.state is not None and end not in MOVES[self.state]:
            return
        if end == CONNECTING:
            self.states.connecting("0", self.now_ms, "h")
        elif end == DISCONNECTED:
            self.states.disconnected("0", self.now_ms)
        else:
            ACTIONS[end](self.states)
        self.state = end

    @invariant()
    def answers_agree(self) -> None:
        states, now_ms = self.states, self.now_ms
        assert states.is_connecting("0") == (self.state == CONNECTING)
        assert states.is_ready("0", now_ms) == states.has_ready_nodes(now_ms) == (self.state == READY)
        if states.can_connect("0", now_ms):
            assert states.connection_delay_ms("0", now_ms) == 0
        elif states.is_disconnected("0"):
            assert 0 < states.connection_delay_ms("0", now_ms) <= 1_000
        assert not (states.is_connected("0") and states.is_disconnected("0"))


TestConnections = Connections.TestCase
