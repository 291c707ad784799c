"""Fetches that wait for enough bytes (Java: DelayedFetch)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from pykclient.errors import BrokerError
from pykclient.testing.delayed_operation import DelayedOperation
from pykclient.testing.log.log_types import FetchIsolation

if TYPE_CHECKING:
    from pykclient.testing.replica.fetch_params import FetchParams, FetchPartitionData, PartitionFetch
    from pykclient.testing.replica.replica_manager import ReplicaManager

    FetchResults = list[tuple[PartitionFetch, FetchPartitionData]]


class DelayedFetch(DelayedOperation):
    """Answers when ``min_bytes`` can be read, when one partition has an error, or after the longest wait.

    Only the partition that has changed is looked at, so that a session over many partitions waits at no cost. Where
    consumers read from followers, a follower is told at once of a high watermark that has risen (KIP-392).
    Thread: loop.
    """

    __slots__ = ("_bytes", "_fetches", "_high_watermarks", "_manager", "_params", "_respond")

    def __init__(
        self,
        params: FetchParams,
        results: FetchResults,
        manager: ReplicaManager,
        respond: Callable[[FetchResults], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._params = params
        self._fetches = {fetch.topic_partition: fetch for fetch, _ in results}
        self._manager = manager
        self._respond = respond
        # What can be read of each partition.
        self._bytes: dict[Hashable, int] = {
            fetch.topic_partition: data.size_in_bytes for fetch, data in results if data.size_in_bytes
        }

        self._high_watermarks: dict[Hashable, int] = {}
        if params.is_from_follower and manager.replica_selector is not None:
            self._high_watermarks = {fetch.topic_partition: data.high_watermark for fetch, data in results}

    def try_complete(self, key: Hashable | None) -> bool:
        if key is None:
            # What there was has been read just now, and was not enough.
            return False
        fetch = self._fetches[key]  # type: ignore[index]
        params = self._params
        partition, error_code = self._manager.get_partition_or_error(fetch.topic_partition)
        if partition is None or error_code:
            return self.force_complete()
        if self._high_watermarks and partition.high_watermark > self._high_watermarks[key]:
            return self.force_complete()
        if params.min_bytes <= 1 and fetch.current_leader_epoch in (-1, partition.leader_epoch):
            readable = partition.is_leader or (params.client_metadata is not None and not params.is_from_follower)
            # An offset beyond the log's end is an error, which the reader is told.
            end = partition.end_offset(params.isolation)
            if readable and end <= fetch.fetch_offset <= partition.end_offset(FetchIsolation.LOG_END):
                return False
            return self.force_complete()
        try:
            data = partition.fetch_records(params, fetch, fetch.max_bytes, min_one_message=True, update=False)
        except BrokerError:
            return self.force_complete()
        if data.diverging_epoch is not None:
            return self.force_complete()
        self._bytes[key] = data.size_in_bytes
        return sum(self._bytes.values()) >= params.min_bytes and self.force_complete()

    def on_complete(self) -> None:
        self._respond(self._manager.read_from_log(self._params, list(self._fetches.values()), update=False))
