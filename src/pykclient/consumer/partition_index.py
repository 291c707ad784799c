"""Indexes of the assigned partitions, so that no request walks thousands of them to find a few."""

from __future__ import annotations

from collections.abc import Iterator

from pykclient.consumer.fetch_state import TopicPartitionState
from pykclient.types import TopicPartition


class PartitionIndex:
    """The assignment in order, and indexes of it.

    - ``without_position``: the partitions that cannot be fetched until a reset or validation completes.
    - ``fetchable``: the fetchable partitions by the id of the node to fetch from; no empty groups.
    - ``changed``: by node id, the partitions to tell that node about: added, removed, or with a new position.
    - ``leased``: the partitions fetched from a preferred replica for a limited time.

    The order makes fetching fair: a partition that has delivered moves to the end. Thread: owner.
    """

    __slots__ = ("assignment", "changed", "fetchable", "leased", "without_position")

    def __init__(self) -> None:
        self.assignment: dict[TopicPartition, TopicPartitionState] = {}
        self.without_position: dict[TopicPartition, TopicPartitionState] = {}
        self.fetchable: dict[int, dict[TopicPartition, TopicPartitionState]] = {}
        self.changed: dict[int, dict[TopicPartition, None]] = {}
        self.leased: dict[TopicPartition, TopicPartitionState] = {}

    def file(self, tp: TopicPartition, state: TopicPartitionState, wanted: bool) -> None:
        """Update the indexes after a change of ``state``; with ``wanted`` False the partition is not fetched."""
        if state.fetch_state.has_valid_position:
            self.without_position.pop(tp, None)
        else:
            self.without_position[tp] = state
        node_id = state.fetch_node_id if wanted and state.is_fetchable else None
        if node_id != state.group_node:
            self._unfile(tp, state)
            if node_id is not None:
                self.fetchable.setdefault(node_id, {})[tp] = state
                state.group_node = node_id
        self.touch(tp, state)
        if state.preferred_read_replica is None:
            self.leased.pop(tp, None)
        else:
            self.leased[tp] = state

    def _unfile(self, tp: TopicPartition, state: TopicPartitionState) -> None:
        if state.group_node is not None:
            group = self.fetchable[state.group_node]
            del group[tp]
            if not group:
                del self.fetchable[state.group_node]
            self.changed.setdefault(state.group_node, {})[tp] = None
            state.group_node = None

    def touch(self, tp: TopicPartition, state: TopicPartitionState) -> None:
        """Note that the position of ``tp`` has changed."""
        if state.group_node is not None:
            self.changed.setdefault(state.group_node, {})[tp] = None

    def replace(self, assignment: dict[TopicPartition, TopicPartitionState]) -> None:
        """Start again with ``assignment``, none of which is filed yet."""
        for node_id, group in self.fetchable.items():
            self.changed.setdefault(node_id, {}).update(dict.fromkeys(group))
        for state in self.assignment.values():
            state.group_node = None
        self.without_position.clear()
        self.fetchable.clear()
        self.leased.clear()
        self.assignment = assignment

    def move_to_end(self, tp: TopicPartition) -> None:
        """Move ``tp`` to the end of the order; do nothing if it is not assigned."""
        assignment = self.assignment
        state = assignment.get(tp)
        if state is None:
            return
        # No call in between: a signal handler that raised there would lose the partition.
        del assignment[tp]
        assignment[tp] = state
        if state.group_node is not None:
            group = self.fetchable[state.group_node]
            del group[tp]
            group[tp] = state

    def expired_leases(self, now_ms: int) -> list[tuple[TopicPartition, TopicPartitionState]]:
        return [
            (tp, state)
            for tp, state in self.leased.items()
            if state.preferred_read_replica_expires_ms is not None and now_ms > state.preferred_read_replica_expires_ms
        ]

    def __iter__(self) -> Iterator[tuple[TopicPartition, TopicPartitionState]]:
        return iter(self.assignment.items())
