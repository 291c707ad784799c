"""Subscriptions, assignments, positions and the state table (Java: SubscriptionStateTest)."""

from __future__ import annotations

import re

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pykclient.consumer import subscription_state
from pykclient.consumer.subscription_state import (
    AWAIT_RESET,
    AWAIT_VALIDATION,
    FETCHING,
    IGNORED,
    INITIALIZING,
    TRANSITIONS,
    FetchPosition,
    FetchState,
    SubscriptionState,
    TopicPartitionState,
)
from pykclient.consumer.values import READ_COMMITTED, READ_UNCOMMITTED, AutoOffsetResetStrategy
from pykclient.errors import IllegalArgumentError, IllegalStateError, NoOffsetForPartitionError
from pykclient.log_context import LogContext
from pykclient.network.metadata import NO_LEADER_OR_EPOCH, LeaderAndEpoch
from pykclient.types import Node, OffsetAndMetadata, TopicPartition

TP0 = TopicPartition("a", 0)
TP1 = TopicPartition("a", 1)
TPB = TopicPartition("b", 0)
LEADER = LeaderAndEpoch(Node(1, "h", 9092), 5)
STATES = (INITIALIZING, FETCHING, AWAIT_RESET, AWAIT_VALIDATION)


def make(strategy: str = "earliest") -> SubscriptionState:
    return SubscriptionState(LogContext(), AutoOffsetResetStrategy.from_string(strategy))


def assigned(*partitions: TopicPartition, strategy: str = "earliest") -> SubscriptionState:
    state = make(strategy)
    state.assign_from_user(partitions)
    return state


# --- the table -------------------------------------------------------------------------------------------------------


def _in_state(state: FetchState) -> TopicPartitionState:
    partition = TopicPartitionState()
    if state is FETCHING:
        partition.seek_validated(FetchPosition(1))
    elif state is AWAIT_RESET:
        partition.reset(AutoOffsetResetStrategy.LATEST)
    elif state is AWAIT_VALIDATION:
        partition.seek_unvalidated(FetchPosition(1, 2, LEADER))
    assert partition.fetch_state is state
    return partition


@pytest.mark.parametrize("target", STATES)
@pytest.mark.parametrize("source", STATES)
def test_only_listed_transitions_are_allowed(source: FetchState, target: FetchState) -> None:
    partition = _in_state(source)
    if target in TRANSITIONS[source]:
        assert partition._move(target, FetchPosition(3))
        assert partition.fetch_state is target
        assert (partition.position is not None) == target.requires_position
    elif (source, target) in IGNORED:
        assert not partition._move(target, FetchPosition(3))
        assert partition.fetch_state is source
    else:
        with pytest.raises(IllegalStateError, match=f"{source} to {target}"):
            partition._move(target, FetchPosition(3))


@pytest.mark.parametrize("target", [FETCHING, AWAIT_VALIDATION])
def test_valid_states_need_a_position(target: FetchState) -> None:
    with pytest.raises(IllegalStateError, match="without a position"):
        _in_state(INITIALIZING)._move(target, None)


def fetchable(state: SubscriptionState) -> list[TopicPartition]:
    """Return the fetchable partitions, those that have waited longest first."""
    return [tp for tp in state.assigned_partitions_list() if state.fetch_node_id(tp) is not None]


def test_only_a_valid_position_can_advance() -> None:
    state = assigned(TP0)
    with pytest.raises(IllegalStateError, match="INITIALIZING"):
        state.set_position(TP0, FetchPosition(1))
    state.seek(TP0, 5)
    state.set_position(TP0, FetchPosition(6, 1, LEADER))
    assert state.position(TP0) == FetchPosition(6, 1, LEADER)


def test_positions_are_formatted_for_logs() -> None:
    assert str(FetchPosition(7)) == "7"
    assert str(FetchPosition(7, 2, LEADER)) == "7 (after epoch 2 led by node 1 in epoch 5)"


# --- subscriptions ---------------------------------------------------------------------------------------------------


def test_kinds_of_subscription_exclude_each_other() -> None:
    state = make()
    assert state.subscribe({"a"})
    assert not state.subscribe({"a"})
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        state.assign_from_user({TP0})
    with pytest.raises(IllegalStateError, match="exclude each other"):
        state.subscribe_pattern(re.compile("a.*"))
    state.unsubscribe()
    state.subscribe_pattern(re.compile("a.*"))
    with pytest.raises(IllegalStateError, match="exclude each other"):
        state.subscribe({"a"})
    state.unsubscribe()
    assert state.has_no_subscription_or_user_assignment()
    state.assign_from_user({TP0})
    with pytest.raises(IllegalStateError, match="exclude each other"):
        state.subscribe({"a"})


def test_patterns_match_whole_names() -> None:
    state = make()
    state.subscribe_pattern(re.compile("ab*"))
    assert state.matches_subscribed_pattern("abb")
    assert not state.matches_subscribed_pattern("abc")
    assert not state.matches_subscribed_pattern("xab")
    assert state.subscribe_from_pattern({"abb"})
    assert state.subscription() == {"abb"}
    with pytest.raises(IllegalArgumentError):
        assigned(TP0).subscribe_from_pattern({"abb"})


def test_group_subscription_adds_topics_to_the_metadata() -> None:
    state = make()
    state.subscribe({"a"})
    assert state.group_subscribe({"a", "b"})
    assert state.metadata_topics() == {"a", "b"}
    assert state.needs_metadata("b")
    assert not state.group_subscribe({"a"})
    state.reset_group_subscription()
    assert state.metadata_topics() == {"a"}
    with pytest.raises(IllegalStateError):
        assigned(TP0).group_subscribe({"a"})


def test_group_assignment_keeps_positions_of_kept_partitions() -> None:
    state = make()
    with pytest.raises(IllegalArgumentError):
        state.assign_from_subscribed([TP0])
    state.subscribe({"a"})
    state.assign_from_subscribed([TP0])
    first_id = state.assignment_id
    state.seek(TP0, 7)
    state.assign_from_subscribed([TP1, TP0])
    assert state.assignment_id != first_id
    assert state.valid_position(TP0) == FetchPosition(7)
    assert state.initializing_partitions() == {TP1}
    assert state.check_assignment_matched_subscription([TP0])
    assert not state.check_assignment_matched_subscription([TPB])


def test_assigned_partition_of_unsubscribed_topic_is_not_fetched() -> None:
    state = make()
    state.subscribe({"a"})
    state.assign_from_subscribed([TP0])
    state.seek(TP0, 0)
    assert state.is_fetchable(TP0)
    state.subscribe({"b"})
    assert not state.is_fetchable(TP0)
    state.subscribe({"a", "b"})
    assert state.is_fetchable(TP0)


def test_added_partitions_wait_for_the_listener() -> None:
    state = make()
    state.subscribe({"a"})
    state.assign_from_subscribed_awaiting_callback([TP0, TP1], [TP1])
    for tp in (TP0, TP1):
        state.seek(tp, 0)
    assert fetchable(state) == [TP0]
    state.enable_partitions_awaiting_callback([TP1])
    assert fetchable(state) == [TP0, TP1]


def test_manual_assignment_replaces_the_previous_one() -> None:
    state = assigned(TP0)
    assert state.subscription() == frozenset()
    assert state.metadata_topics() == {"a"}
    assert not state.assign_from_user({TP0})
    assert state.assign_from_user({TPB})
    assert state.assigned_partitions() == {TPB}
    assert not state.is_assigned(TP0)
    with pytest.raises(IllegalStateError, match="a-0 is not assigned"):
        state.position(TP0)
    assert state.position_or_none(TP0) is None
    state.unsubscribe()
    assert state.num_assigned_partitions() == 0


# --- positions -------------------------------------------------------------------------------------------------------


def test_seek_and_reset_change_the_position() -> None:
    state = assigned(TP0)
    assert state.without_position
    state.seek(TP0, 5)
    assert not state.without_position
    assert state.all_consumed() == {TP0: OffsetAndMetadata(5)}
    state.request_offset_reset((TP0,))
    assert state.is_offset_reset_needed(TP0)
    assert state.reset_strategy(TP0) == AutoOffsetResetStrategy.EARLIEST
    assert state.position(TP0) is None
    assert state.all_consumed() == {}
    state.request_offset_reset([TP0], AutoOffsetResetStrategy.LATEST)
    assert state.reset_strategy(TP0) == AutoOffsetResetStrategy.LATEST
    state.seek(TP0, 1)
    assert not state.is_offset_reset_needed(TP0)


def test_late_reset_response_is_ignored() -> None:
    state = assigned(TP0)
    earliest, latest = AutoOffsetResetStrategy.EARLIEST, AutoOffsetResetStrategy.LATEST
    state.request_offset_reset((TP0,), latest)
    state.maybe_seek_unvalidated(TP0, FetchPosition(1), earliest)
    assert state.is_offset_reset_needed(TP0)
    state.maybe_seek_unvalidated(TP0, FetchPosition(2), latest)
    assert state.position(TP0) == FetchPosition(2)
    state.maybe_seek_unvalidated(TP0, FetchPosition(3), latest)
    assert state.position(TP0) == FetchPosition(2)
    state.maybe_seek_unvalidated(TP1, FetchPosition(3), latest)


def test_initializing_partitions_are_reset_or_raise() -> None:
    state = assigned(TP0, TP1)
    state.reset_initializing_positions(lambda tp: tp == TP0)
    assert state.partitions_needing_reset(0) == [TP0]
    assert state.initializing_partitions() == {TP1}
    state = assigned(TP0, strategy="none")
    with pytest.raises(NoOffsetForPartitionError, match="a-0") as caught:
        state.reset_initializing_positions()
    assert caught.value.partitions == {TP0}


def test_failed_resets_back_off() -> None:
    state = assigned(TP0)
    state.request_offset_reset((TP0,))
    state.set_next_allowed_retry([TP0], 100)
    assert state.partitions_needing_reset(99) == []
    assert state.partitions_needing_reset(100) == [TP0]
    state.request_failed([TP0, TP1], 200)
    assert state.partitions_needing_reset(150) == []


def test_paused_and_revoking_partitions_are_not_fetchable() -> None:
    state = assigned(TP0, TP1)
    state.seek(TP0, 0)
    state.pause(TP0)
    assert state.is_paused(TP0)
    assert state.paused_partitions() == {TP0}
    assert not state.is_fetchable(TP0)
    assert state.has_valid_position(TP0)
    state.resume(TP0)
    assert state.is_fetchable(TP0)
    state.mark_pending_revocation([TP0, TP1])
    assert not state.is_fetchable(TP0)
    assert state.initializing_partitions() == set()


def test_lag_and_lead_follow_the_log_offsets() -> None:
    state = assigned(TP0)
    assert state.lag_and_lead(TP0, READ_UNCOMMITTED) == (None, None)
    state.request_partition_end_offset(TP0)
    state.seek(TP0, 10)
    assert state.try_updating_offsets(TP0, high_watermark=30, last_stable_offset=20, log_start_offset=4)
    assert not state.partition_end_offset_requested(TP0)
    assert state.lag_and_lead(TP0, READ_UNCOMMITTED) == (20, 6)
    assert state.lag_and_lead(TP0, READ_COMMITTED) == (10, 6)
    assert state.lag_and_lead(TP1, READ_COMMITTED) == (None, None)  # not assigned
    assert not state.try_updating_offsets(TP1, high_watermark=1)


# --- validation ------------------------------------------------------------------------------------------------------


def test_new_leader_requires_validation() -> None:
    state = assigned(TP0)
    state.seek_unvalidated(TP0, FetchPosition(10, 3, LEADER))
    assert TP0 in state.partitions_needing_validation(1 << 60)
    assert state.maybe_complete_validation(TP0, FetchPosition(10, 3, LEADER), 12, 3) is None
    assert state.has_valid_position(TP0)
    new_leader = LeaderAndEpoch(Node(2, "h", 9092), 6)
    assert state.maybe_validate_position_for_current_leader(TP0, new_leader)
    assert not state.is_fetchable(TP0)
    assert state.partitions_needing_validation(0) == {TP0: FetchPosition(10, 3, new_leader)}
    state.complete_validation(TP0)
    assert state.position(TP0) == FetchPosition(10, 3, new_leader)


def test_positions_without_epochs_need_no_validation() -> None:
    state = assigned(TP0)
    state.seek_unvalidated(TP0, FetchPosition(10, None, LEADER))
    assert state.has_valid_position(TP0)
    assert not state.maybe_validate_position_for_current_leader(TP0, LeaderAndEpoch(Node(2, "h", 1), 6))
    assert state.position(TP0) == FetchPosition(10, None, LeaderAndEpoch(Node(2, "h", 1), 6))
    state.seek_unvalidated(TP0, FetchPosition(10, 1, LEADER))
    assert not state.maybe_validate_position_for_current_leader(
        TP0, LeaderAndEpoch(Node(2, "h", 1), 6), can_validate=False
    )
    assert state.has_valid_position(TP0)


def test_no_leader_changes_nothing() -> None:
    state = assigned(TP0)
    state.seek_validated(TP0, FetchPosition(10, 1, LEADER))
    assert not state.maybe_validate_position_for_current_leader(TP0, NO_LEADER_OR_EPOCH)
    assert state.position(TP0) == FetchPosition(10, 1, LEADER)


@pytest.mark.parametrize(("end", "expected"), [((8, 2), FetchPosition(8, 2, LEADER)), ((-1, -1), None)])
def test_truncation_with_a_policy_moves_the_position(end: tuple[int, int], expected: FetchPosition | None) -> None:
    state = assigned(TP0)
    position = FetchPosition(10, 3, LEADER)
    state.seek_unvalidated(TP0, position)
    assert state.maybe_complete_validation(TP0, position, *end) is None
    assert state.position(TP0) == expected
    assert state.is_offset_reset_needed(TP0) == (expected is None)


@pytest.mark.parametrize(("end", "divergent"), [((8, 2), OffsetAndMetadata(8, "", 2)), ((-1, -1), None)])
def test_truncation_without_a_policy_is_returned(end: tuple[int, int], divergent: OffsetAndMetadata | None) -> None:
    state = assigned(TP0, strategy="none")
    position = FetchPosition(10, 3, LEADER)
    state.seek_unvalidated(TP0, position)
    truncation = state.maybe_complete_validation(TP0, position, *end)
    assert truncation == subscription_state.LogTruncation(TP0, position, divergent)
    assert TP0 in state.partitions_needing_validation(1 << 60)


def test_validation_of_a_changed_position_is_ignored() -> None:
    state = assigned(TP0)
    position = FetchPosition(10, 3, LEADER)
    state.seek_unvalidated(TP0, position)
    state.seek_unvalidated(TP0, FetchPosition(20, 3, LEADER))
    assert state.maybe_complete_validation(TP0, position, 1, 1) is None
    assert state.position(TP0) == FetchPosition(20, 3, LEADER)
    state.request_offset_reset((TP0,))
    assert state.maybe_complete_validation(TP0, position, 1, 1) is None
    assert state.maybe_complete_validation(TP1, position, 1, 1) is None
    assert state.is_offset_reset_needed(TP0)


# --- the indexes -----------------------------------------------------------------------------------------------------


def test_delivered_partitions_move_to_the_end() -> None:
    state = assigned(TP0, TP1, TPB)
    for tp in (TP0, TP1, TPB):
        state.seek_validated(tp, FetchPosition(0, None, LEADER))
    assigned_before = state.assigned_partitions_list()
    state.move_partition_to_end(assigned_before[0])
    expected = [*assigned_before[1:], assigned_before[0]]
    assert fetchable(state) == expected
    assert list(state.fetchable_partitions_of(1)) == expected
    state.move_partition_to_end(TopicPartition("c", 0))


PARTITIONS = [TopicPartition("a", index) for index in range(3)] + [TopicPartition("b", 0)]
partitions = st.sampled_from(PARTITIONS)
leaders = st.sampled_from([NO_LEADER_OR_EPOCH, LEADER, LeaderAndEpoch(Node(2, "h", 9092), 7)])


class IndexMachine(RuleBasedStateMachine):
    """After any sequence of operations, the indexes equal a scan of all partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.state = make()
        self.state.subscribe({"a", "b"})
        self.now_ms = 0
        self.told: dict[int, dict[TopicPartition, FetchPosition]] = {}

    def _assigned(self, tp: TopicPartition) -> bool:
        return self.state.is_assigned(tp)

    @rule(chosen=st.lists(partitions, unique=True))
    def assign(self, chosen: list[TopicPartition]) -> None:
        self.state.assign_from_subscribed(chosen)

    @rule(topics=st.sampled_from([{"a"}, {"b"}, {"a", "b"}]))
    def subscribe(self, topics: set[str]) -> None:
        self.state.subscribe(topics)

    @rule(tp=partitions, leader=leaders, epoch=st.sampled_from([None, 1]))
    def seek(self, tp: TopicPartition, leader: LeaderAndEpoch, epoch: int | None) -> None:
        if self._assigned(tp):
            self.state.seek_unvalidated(tp, FetchPosition(1, epoch, leader))

    @rule(tp=partitions, leader=leaders, can_validate=st.booleans())
    def new_leader(self, tp: TopicPartition, leader: LeaderAndEpoch, can_validate: bool) -> None:
        self.state.maybe_validate_position_for_current_leader(tp, leader, can_validate=can_validate)

    @rule(tp=partitions, action=st.sampled_from(["reset", "pause", "resume", "complete_validation", "revoke"]))
    def act(self, tp: TopicPartition, action: str) -> None:
        if not self._assigned(tp):
            return
        if action == "reset":
            self.state.request_offset_reset((tp,))
        elif action == "pause":
            self.state.pause(tp)
        elif action == "resume":
            self.state.resume(tp)
        elif action == "revoke":
            self.state.mark_pending_revocation([tp])
        else:
            self.state.complete_validation(tp)

    @rule(tp=partitions, leader=leaders)
    def deliver(self, tp: TopicPartition, leader: LeaderAndEpoch) -> None:
        if self.state.has_valid_position(tp):
            self.state.set_position(tp, FetchPosition(2, 1, leader))
            self.state.move_partition_to_end(tp)

    @rule(tp=partitions, replica=st.sampled_from([1, 9]))
    def prefer(self, tp: TopicPartition, replica: int) -> None:
        self.state.try_updating_preferred_read_replica(tp, replica, self.now_ms + 10)

    @rule(tp=partitions)
    def unprefer(self, tp: TopicPartition) -> None:
        self.state.clear_preferred_read_replica(tp)

    @rule(node_id=st.sampled_from([1, 2, 9]), everything=st.booleans())
    def tell(self, node_id: int, everything: bool) -> None:
        """A full listing followed by the changes gives the partitions to fetch from a node."""
        if everything or node_id not in self.told:
            self.told[node_id] = self.state.fetchable_partitions_of(node_id)
            return
        for tp, position in self.state.take_changes_of(node_id).items():
            if position is None:
                self.told[node_id].pop(tp, None)
            else:
                self.told[node_id][tp] = position
        group = self.state._index.fetchable.get(node_id, {})
        assert self.told[node_id] == {tp: state.position for tp, state in group.items()}

    @rule(by_ms=st.integers(1, 20))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.state.expire_preferred_read_replicas(self.now_ms)

    @invariant()
    def indexes_are_right(self) -> None:
        index = self.state._index
        fetchable: dict[int, list[TopicPartition]] = {}
        for tp, state in index.assignment.items():
            assert (tp in index.without_position) == (not state.has_valid_position)
            assert (tp in index.leased) == (state.preferred_read_replica is not None)
            if state.is_fetchable and tp.topic in self.state.subscription():
                fetchable.setdefault(state.fetch_node_id, []).append(tp)
        assert {node: set(group) for node, group in index.fetchable.items()} == {
            node: set(group) for node, group in fetchable.items()
        }
        assert set(index.without_position) | set(index.leased) <= set(index.assignment)


TestIndexes = IndexMachine.TestCase
TestIndexes.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_assignment_clears_pending_revocation() -> None:
    state = make()
    state.subscribe({TP0.topic})
    state.assign_from_subscribed([TP0])
    state.seek_validated(TP0, FetchPosition(1, None, LEADER))
    state.mark_pending_revocation([TP0])
    assert not state.is_fetchable(TP0)
    state.assign_from_subscribed([TP0])
    assert state.is_fetchable(TP0)


def test_unchanged_leader_changes_nothing() -> None:
    state = assigned(TP0)
    state.seek_validated(TP0, FetchPosition(1, 4, LEADER))
    assert state.take_changes_of(1) == {TP0: FetchPosition(1, 4, LEADER)}
    again = LeaderAndEpoch(Node(1, "h", 9092), 5)
    assert not state.maybe_validate_position_for_current_leader(TP0, again)
    assert state.take_changes_of(1) == {}
    later = LeaderAndEpoch(Node(1, "h", 9092), 6)
    assert state.maybe_validate_position_for_current_leader(TP0, later)
    assert state.maybe_validate_position_for_current_leader(TP0, later)  # its validation request is still to be sent
    assert state.take_changes_of(1) == {TP0: None}
