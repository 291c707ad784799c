"""The parameters and results of a fetch, per partition (Java: FetchParams, FetchPartitionData)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing.log.log_types import AbortedTxn, FetchIsolation, OffsetAndEpoch

if TYPE_CHECKING:
    from pykclient.record.record_batch import Buffer
    from pykclient.types import TopicPartition

#: Replica ids of readers that are not replicas (Java: FetchRequest).
CONSUMER_REPLICA_ID = -1
UNKNOWN_OFFSET = -1
NO_EPOCH = -1


class ClientMetadata(NamedTuple):
    """The properties of a consumer that may be sent to another replica (KIP-392)."""

    rack_id: str
    client_id: str
    client_host: str


class FetchParams(NamedTuple):
    """The parameters of a fetch that apply to all partitions.

    Without ``client_metadata`` only the leader may respond. With ``hard_max_bytes`` even the first batch is cut off if
    it is larger than the limit.
    """

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: str
    client_metadata: ClientMetadata | None = None
    hard_max_bytes: bool = False

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0


class PartitionFetch:
    """The fetch request for one partition (Java: FetchRequest.PartitionData).

    ``current_leader_epoch`` and ``last_fetched_epoch`` are -1 if the request does not contain them;
    ``log_start_offset`` is the follower's own. Thread: loop.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        fetch_offset: int,
        max_bytes: int,
        *,
        topic_id: UUID = ZERO_UUID,
        log_start_offset: int = UNKNOWN_OFFSET,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch

    def __repr__(self) -> str:
        return f"PartitionFetch({self.topic_partition}, from={self.fetch_offset}, max_bytes={self.max_bytes})"


class FetchPartitionData:
    """The response for one partition.

    ``records`` are views of the log. Offsets are -1 with an error. ``diverging_epoch`` tells a reader where its log
    diverged from this one; ``preferred_read_replica`` sends a consumer to another broker. Thread: loop.
    """

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "records",
        "size_in_bytes",
    )

    def __init__(
        self,
        error_code: int = 0,
        high_watermark: int = UNKNOWN_OFFSET,
        last_stable_offset: int = UNKNOWN_OFFSET,
        log_start_offset: int = UNKNOWN_OFFSET,
        records: Sequence[Buffer] = (),
        size_in_bytes: int = 0,
        aborted_transactions: list[AbortedTxn] | None = None,
        diverging_epoch: OffsetAndEpoch | None = None,
        preferred_read_replica: int | None = None,
    ) -> None:
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.size_in_bytes = size_in_bytes
        self.aborted_transactions = aborted_transactions
        self.diverging_epoch = diverging_epoch
        self.preferred_read_replica = preferred_read_replica

    def __repr__(self) -> str:
        return (
            f"FetchPartitionData(error={self.error_code}, high_watermark={self.high_watermark}, "
            f"bytes={self.size_in_bytes})"
        )


def isolation_of(replica_id: int, isolation_level: int) -> str:
    """Return how far a reader may see. Level 0 is read_uncommitted, 1 is read_committed; followers see everything."""
    if replica_id != CONSUMER_REPLICA_ID:
        return FetchIsolation.LOG_END
    return FetchIsolation.TXN_COMMITTED if isolation_level == 1 else FetchIsolation.HIGH_WATERMARK
