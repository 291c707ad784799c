"""The fetchers of a broker, one for each leader it follows (Java: ReplicaFetcherManager)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykclient.testing.replica.replica_fetcher_thread import ReplicaFetcherThread
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.replica.replica_manager import ReplicaManager


class InitialFetchState(NamedTuple):
    """The starting point of a follower. ``init_offset`` is its high watermark, for logs without leader epochs."""

    topic_id: UUID
    leader: Node
    current_leader_epoch: int
    init_offset: int


class ReplicaFetcherManager:
    """Assigns each followed partition to the fetcher of its leader. Thread: loop."""

    def __init__(self, broker: Broker, manager: ReplicaManager) -> None:
        self._broker = broker
        self._manager = manager
        self._fetchers: dict[int, ReplicaFetcherThread] = {}

    def add_fetcher_for_partitions(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Start to follow partitions that are not followed."""
        by_leader: dict[int, dict[TopicPartition, InitialFetchState]] = {}
        for topic_partition, initial in partitions.items():
            by_leader.setdefault(initial.leader.id, {})[topic_partition] = initial
        for leader_id, initials in by_leader.items():
            fetcher = self._fetchers.get(leader_id)
            if fetcher is None:
                leader = next(iter(initials.values())).leader
                fetcher = self._fetchers[leader_id] = ReplicaFetcherThread(self._broker, self._manager, leader)
            fetcher.add_partitions(initials)
        self._shutdown_idle_fetcher_threads()

    def remove_fetcher_for_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop following partitions."""
        partitions = list(partitions)
        for fetcher in self._fetchers.values():
            fetcher.remove_partitions(partitions)

    def fetcher(self, leader_id: int) -> ReplicaFetcherThread | None:
        """Return the fetcher that reads from a broker, if there is one."""
        return self._fetchers.get(leader_id)

    def _shutdown_idle_fetcher_threads(self) -> None:
        for leader_id, fetcher in list(self._fetchers.items()):
            if not fetcher.partition_count:
                fetcher.shutdown()
                del self._fetchers[leader_id]

    def shutdown(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.shutdown()
        self._fetchers.clear()
