"""The fields of batches, of their results, of the futures of their records, and of sequence numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient.implementation import use_compiled
from pykclient.record.append_state import AppendState as AppendState  # the compiled form uses its compiled form

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pykclient.clock import Clock
    from pykclient.record import MemoryRecordsBuilder
    from pykclient.record.record_batch import Buffer
    from pykclient.types import TopicPartition


class BatchState:
    """The fields of a ProducerBatch. The compiled form stores numbers as C integers."""

    __slots__ = (
        "_attempts_when_leader_last_changed",
        "_builder",
        "_clock",
        "appended_bytes",
        "attempts",
        "base_sequence",
        "compression_ratio",
        "created_ms",
        "current_leader_epoch",
        "drained_ms",
        "final_state",
        "future_type",
        "in_retry",
        "is_open",
        "is_split_batch",
        "last_attempt_ms",
        "loan",
        "max_record_size",
        "may_be_written",
        "produce_future",
        "producer_epoch",
        "producer_id",
        "retry_backoff_ms",
        "sequence_has_been_reset",
        "size_in_bytes",
        "state",
        "topic_partition",
    )
    _attempts_when_leader_last_changed: int
    _builder: MemoryRecordsBuilder
    _clock: Clock
    appended_bytes: int
    attempts: int
    base_sequence: int
    compression_ratio: float
    created_ms: int
    current_leader_epoch: int | None
    drained_ms: int
    final_state: str | None
    in_retry: bool
    is_open: bool
    is_split_batch: bool
    last_attempt_ms: int
    max_record_size: int
    may_be_written: bool
    producer_epoch: int
    producer_id: int
    retry_backoff_ms: int
    sequence_has_been_reset: bool
    size_in_bytes: int
    state: str
    topic_partition: TopicPartition

    @property
    def record_count(self) -> int:
        """The number of records, counted by the builder as it appends, so that the two cannot differ."""
        return self._builder.num_records

    @property
    def records(self) -> Buffer:
        """A view of the bytes to send."""
        return self._builder.build()

    @property
    def borrowed(self) -> Any:
        """The memory that the batch has borrowed beyond its loan; None before it first needs some."""
        return self._builder.memory

    @property
    def is_full(self) -> bool:
        """True if the batch accepts no more records."""
        return not self.is_open or self._builder.is_full

    @property
    def estimated_size_in_bytes(self) -> int:
        """The size in bytes; while the batch is open, estimated from the compression ratio so far."""
        return self._builder.estimated_size_in_bytes


class ResultState:
    """The fields of a ProduceRequestResult. The compiled form stores numbers as C integers."""

    __slots__ = (
        "_clock",
        "_lock",
        "_waiting",
        "base_offset",
        "completed",
        "created_ms",
        "error_for",
        "listeners",
        "log_append_time_ms",
        "parts",
        "record_count",
        "sender_thread",
        "settled",
        "topic_partition",
    )
    _clock: Clock
    _lock: threading.Lock
    base_offset: int
    completed: bool
    created_ms: int
    error_for: Callable[[int], Exception] | None
    log_append_time_ms: int
    record_count: int
    settled: bool
    topic_partition: TopicPartition


class FutureState:
    """The fields of a future. The compiled form stores numbers as C integers."""

    __slots__ = ("_key_size", "_result", "_timestamp_ms", "_value_size", "index")


class TxnPartitionState:
    """The fields of a TxnPartitionEntry. The compiled form stores numbers as C integers."""

    __slots__ = (
        "in_flight",
        "is_known_to_broker",
        "last_acked_offset",
        "last_acked_sequence",
        "last_numbered_ms",
        "next_sequence",
        "producer_id_and_epoch",
        "topic_partition",
    )
    in_flight: list[Any]
    is_known_to_broker: bool
    last_acked_offset: int
    last_acked_sequence: int
    last_numbered_ms: int
    next_sequence: int
    producer_id_and_epoch: Any
    topic_partition: TopicPartition


class SharedDelivery:
    """An ``on_delivery`` that a batch keeps, and calls, once for adjacent records that have the same one."""

    __slots__ = ()


def keep_spares(future_type: type[FutureState]) -> None:
    """Keep the memory of dead instances of ``future_type`` for new ones. It adds no fields to FutureState.

    Only the compiled form does so.
    """


use_compiled(__name__)
