"""Share fetches that wait until records can be acquired (Java: DelayedShareFetch)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import OffsetOutOfRangeError
from pykclient.protocol.messages.share_fetch import ShareFetchResponse
from pykclient.record.memory_records import MemoryRecords
from pykclient.testing.delayed_operation import DelayedOperation
from pykclient.testing.log.log_types import FetchIsolation
from pykclient.testing.replica.fetch_params import FetchParams, FetchPartitionData, PartitionFetch
from pykclient.testing.share.record_acquirer import AcquireRequest

if TYPE_CHECKING:
    from pykclient.testing.replica.replica_manager import ReplicaManager
    from pykclient.testing.share.share_partition import SharePartition

PartitionData = ShareFetchResponse.PartitionData
Results = dict["SharePartition", PartitionData]
_Reads = list[tuple["SharePartition", PartitionFetch, FetchPartitionData]]


class ShareFetch(NamedTuple):
    """The parameters of a share fetch, and its share partitions in the order in which they are read."""

    params: FetchParams
    request: AcquireRequest
    share_partitions: list[SharePartition]


class DelayedShareFetch(DelayedOperation):
    """Completes when ``min_bytes`` of acquirable records can be read, after an error, or when the wait expires.

    Records are acquired only when it completes, so two waiting members do not take them from each other. Thread: loop.
    """

    __slots__ = ("_fetch", "_manager", "_reads", "_respond")

    def __init__(self, fetch: ShareFetch, manager: ReplicaManager, respond: Callable[[Results], None]) -> None:
        super().__init__(fetch.params.max_wait_ms)
        self._fetch = fetch
        self._manager = manager
        self._respond = respond
        self._reads: _Reads | None = None

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 - all partitions count together
        reads = self._read()
        size = sum(data.size_in_bytes for _, _, data in reads)
        if not any(data.error_code for _, _, data in reads) and (not size or size < self._fetch.params.min_bytes):
            return False
        self._reads = reads
        return self.force_complete()

    def on_complete(self) -> None:
        reads = self._read() if self._reads is None else self._reads
        left = self._fetch.request.max_records
        results: Results = {}
        for share_partition, fetch, data in reads:
            result = self._acquire(share_partition, fetch, data, left)
            results[share_partition] = result
            left -= sum(records.last_offset - records.first_offset + 1 for records in result.acquired_records)
        self._respond(results)

    def _read(self) -> _Reads:
        """Read from the partitions with records to acquire, each an equal share of the bytes."""
        acquirable = [each for each in self._fetch.share_partitions if each.is_active and each.can_acquire_records()]
        if not acquirable:
            return []
        max_bytes = self._fetch.params.max_bytes // len(acquirable)
        fetches = [
            PartitionFetch(each.topic_partition, each.next_fetch_offset(), max_bytes, topic_id=each.key.topic_id)
            for each in acquirable
        ]
        reads = self._manager.read_from_log(self._fetch.params, fetches, update=False)
        return [
            (share_partition, fetch, self._without_future(fetch, data))
            for share_partition, (fetch, data) in zip(acquirable, reads, strict=True)
        ]

    def _without_future(self, fetch: PartitionFetch, data: FetchPartitionData) -> FetchPartitionData:
        """Return ``data``, but no error for an offset after the end of the log.

        The log was truncated by an unclean election, so these records do not exist yet.
        """
        if data.error_code == OffsetOutOfRangeError.code:
            partition = self._manager.partition(fetch.topic_partition)
            if partition is not None and partition.log is not None:
                if fetch.fetch_offset > partition.log.log_start_offset:
                    return FetchPartitionData()
                return FetchPartitionData(data.error_code, log_start_offset=partition.log.log_start_offset)
        return data

    def _acquire(
        self, share_partition: SharePartition, fetch: PartitionFetch, data: FetchPartitionData, left: int
    ) -> PartitionData:
        result = PartitionData(partition_index=fetch.topic_partition.partition, records=b"")
        if data.error_code == OffsetOutOfRangeError.code and data.log_start_offset >= 0:
            share_partition.move_start(data.log_start_offset)
            return result
        if data.error_code:
            result.error_code = data.error_code
            return result
        batches = [batch for view in data.records for batch in MemoryRecords(view).batches()]
        acquirer = share_partition.acquirer()
        request = self._fetch.request._replace(max_records=left)
        acquired = acquirer.acquire(request, fetch.fetch_offset, batches)
        if self._fetch.params.isolation == FetchIsolation.TXN_COMMITTED and data.aborted_transactions:
            acquired = acquirer.archive_aborted(acquired, batches, data.aborted_transactions)
            share_partition.records.advance()
        if acquired:
            first, last = acquired[0].first_offset, acquired[-1].last_offset
            wanted = [batch.buffer for batch in batches if batch.last_offset >= first and batch.base_offset <= last]
            result.acquired_records = acquired
            result.records = wanted  # type: ignore[assignment]  # the writer accepts several pieces
        return result


def isolation_of(*, read_committed: bool) -> str:
    """Return how far a share group reads."""
    return FetchIsolation.TXN_COMMITTED if read_committed else FetchIsolation.HIGH_WATERMARK
