"""The objects that each record and each batch pass through, from ``send`` to the broker's response.

A record goes into the open batch of its partition's queue, or into a new one (``Outbox``). The sender files the queues
by node and due time, drains their batches, and completes them (the functions at the end). The classes hold the state of
a queue, a batch, a result, a future, the memory and the sequence numbers; the modules of their subclasses add what is
done once in a while: ProducerBatch, ProduceRequestResult, FutureRecordMetadata, BufferPool, PartitionQueue.

The compiled form is one module. It stores numbers as C integers, handles the usual records and batches, and leaves all
others to Python before it has changed anything. It knows no sender and no configuration, and of metadata only the
snapshot that a route was taken from.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from pykclient.clock import HERE, SYSTEM_CLOCK
from pykclient.implementation import use_compiled
from pykclient.record.compression import CompressionType
from pykclient.record.memory_records_builder import (
    AppendState as AppendState,  # the compiled form uses its compiled form
)
from pykclient.types import Header, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pykclient.clock import Clock
    from pykclient.network.metadata import MetadataSnapshot
    from pykclient.record import MemoryRecordsBuilder
    from pykclient.record.compression import Compression
    from pykclient.record.record_batch import Buffer

#: The offset and the time that a broker did not tell.
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1

#: The due time of a full batch: before all others.
FULL: Final = -1

#: The smallest part of ``buffer.memory`` that a batch starts with, unless ``batch.size`` is less.
SMALLEST_CAPACITY: Final = 512

#: After this pause, assume that the broker may have forgotten the producer. Brokers forget after
#: ``producer.id.expiration.ms``, a day by default. Assuming it too early costs one round trip.
REST_MS: Final = 60_000

#: The number of outdated entries in the heap of a node's queues at which it is rebuilt.
MOST_OUTDATED: Final = 100

# --- the states of a batch -----------------------------------------------------------------------------------------

QUEUED: Final = "QUEUED"
DRAINED: Final = "DRAINED"
SENT: Final = "SENT"
GIVEN_UP: Final = "GIVEN_UP"
ANSWERED: Final = "ANSWERED"
DONE: Final = "DONE"

STATES = (QUEUED, DRAINED, SENT, GIVEN_UP, ANSWERED, DONE)

#: The allowed next states of each state.
MOVES: dict[str, frozenset[str]] = {
    QUEUED: frozenset((DRAINED,)),
    DRAINED: frozenset((SENT, QUEUED, DONE)),
    SENT: frozenset((ANSWERED, GIVEN_UP)),
    GIVEN_UP: frozenset((ANSWERED,)),
    ANSWERED: frozenset((QUEUED, DONE)),
    DONE: frozenset(),
}


#: The final state of a batch that was written; the others are in future.py.
SUCCEEDED: Final = "SUCCEEDED"


# --- queues -----------------------------------------------------------------------------------------------------------


def new_lock() -> threading.Lock:
    """Return a lock. The compiled form returns one that C code takes without a Python call."""
    return threading.Lock()


class QueueState:
    """The state of a queue. The compiled form stores numbers as C integers."""

    __slots__ = (
        "batches",
        "due_ms",
        "last_batch_bytes",
        "leader",
        "leader_epoch",
        "lock",
        "snapshot",
        "topic_info",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, batches: deque[Any]) -> None:
        self.topic_partition = topic_partition
        self.lock = new_lock()  # guards: batches, the open batch, the sticky partition's produced_bytes
        self.batches = batches
        self.last_batch_bytes = 0  # the size of the last batch sent


class StickyPartitionInfo:
    """The current partition and the bytes appended to it. Changes only under the lock of the partition's queue."""

    __slots__ = ("partition", "produced_bytes")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.produced_bytes = 0


class StickyState:
    """The current partition of a topic. Any thread replaces it, and reads it without a lock."""

    __slots__ = ("sticky",)
    sticky: StickyPartitionInfo | None


# --- memory -----------------------------------------------------------------------------------------------------------


class LendingPool(Protocol):
    """The part of a BufferPool used by batches that borrow memory."""

    total_memory: int
    returned: deque[Loan]

    def lend_more(self, borrowed: BorrowedMemory, size: int, left: int) -> bool: ...

    def take_back(self, borrowed: BorrowedMemory, kept: int) -> None: ...


class Loan:
    """Memory lent by the pool to a thread or a batch.

    The thread creates the loan before it asks for memory. The pool records here what it lends, in the same step in
    which it counts it as lent. So after an exception anywhere, there is either no loan, or one that its owner still
    holds and returns. Thread: owner.
    """

    __slots__ = ("belongs_to_batch", "buffer", "queued", "size")

    def __init__(self) -> None:
        #: A buffer of ``size`` bytes; None if there is no loan, or if memory is reserved but not allocated.
        self.buffer: bytearray | None = None
        #: The number of bytes lent; 0 once they were returned.
        self.size = 0
        #: True once a batch in a queue uses the memory, and returns it.
        self.belongs_to_batch = False
        #: The number of bytes for which a RowBacklog counts the batch.
        self.queued = 0


class BorrowedMemory(Loan):
    """The memory that a batch has borrowed beyond its buffer, as it grew.

    Thread: owner (the thread that holds the lock of the batch's queue, then the sender).
    """

    __slots__ = ("_pool",)

    def __init__(self, pool: LendingPool) -> None:
        # As in Loan, without the call: there may be one for each batch.
        self.buffer = None
        self.size = 0
        self.belongs_to_batch = False
        self.queued = 0
        self._pool = pool

    def __del__(self) -> None:
        # An exception can end an append before its new batch is in a queue. No lock may be taken here. Even
        # ``__init__`` may not have completed.
        if getattr(self, "size", 0):
            self._pool.returned.append(self)

    def borrow(self, size: int, if_plenty: bool = False) -> bool:
        """Borrow ``size`` more bytes without waiting.

        Return False if too few bytes are free, or other threads wait for memory. With ``if_plenty``, half of all memory
        must stay free.
        """
        return self._pool.lend_more(self, size, self._pool.total_memory // 2 if if_plenty else 0)

    def give_back(self, kept: int = 0) -> None:
        """Return all but ``kept`` bytes of the borrowed memory to the pool."""
        if self.size > kept:
            self._pool.take_back(self, kept)


class Lender:
    """Creates the loans of a pool's batches that borrow memory. Thread: any."""

    __slots__ = ("_pool",)

    def __init__(self, pool: LendingPool) -> None:
        self._pool = pool

    def __call__(self) -> BorrowedMemory:
        return BorrowedMemory(self._pool)


class PoolState:
    """The free memory of a BufferPool. The compiled form stores numbers as C integers."""

    __slots__ = (
        "_available",
        "_closed",
        "_free",
        "_kept",
        "_lock",
        "_waiters",
        "returned",
        "total_memory",
        "waiting_elsewhere",
    )

    def __init__(self, memory: int, kept_sizes: tuple[int, ...]) -> None:
        self.total_memory = memory
        self._lock = new_lock()  # guards: _available, _closed, _free, _kept, _waiters
        self._available = memory  # excludes the buffers in _free
        #: The free buffers that are kept, by their size, and the sum of their sizes.
        self._free: dict[int, deque[bytearray]] = {size: deque() for size in kept_sizes}
        self._kept = 0
        self._waiters: deque[Any] = deque()  # of BufferPool
        self._closed = False
        #: Loans that are no longer needed. Appending one takes no lock, so nothing can interrupt it. The next thread
        #: that uses the pool takes them back.
        self.returned: deque[Loan] = deque()
        #: The number of callers that wait for memory in a line of their own.
        self.waiting_elsewhere = 0

    @property
    def available_about(self) -> int:
        """The approximate number of bytes not lent, read without the lock."""
        return self._available + self._kept


# --- records, batches and their results -------------------------------------------------------------------------------


class SharedDelivery:
    """An ``on_delivery`` of adjacent records of a batch, which is stored with the first one's future, and told once."""

    __slots__ = ()

    def takes(self, on_delivery: Any, timestamp_ms: int) -> bool:
        """Stand for the batch's next record, too; return False if its ``on_delivery`` must be stored."""
        return on_delivery is self

    def after(self, count: int) -> SharedDelivery:
        """Return the delivery of all records but the first ``count``, once a split has moved them to another batch."""
        return self

    def take(self, future: Any) -> None:
        """Take the outcome of the records; ``future`` is the first one's, and done. Thread: the sender's."""
        raise NotImplementedError


def add_delivery(listeners: list[Any], future: Any, on_delivery: Callable[..., object]) -> None:
    """Add the ``on_delivery`` of a batch's next record to the listeners, unless that of the previous one takes it."""
    last = listeners[-1][1] if listeners else None
    if not isinstance(last, SharedDelivery) or not last.takes(on_delivery, future.timestamp_ms):
        listeners.append((future, on_delivery, True))


def put_last_first(listeners: list[Any]) -> None:
    """Sort the listeners of a batch in descending order of their records; they are called from the end."""
    listeners.sort(key=_index)
    listeners.reverse()


def _index(listener: tuple[Any, ...]) -> int:
    index: int = listener[0].index
    return index


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

    def __init__(self, topic_partition: TopicPartition, clock: Clock = SYSTEM_CLOCK, sender_thread: Any = None) -> None:
        self._clock = clock
        #: The SenderThread that will set this result; None if unknown, or once it has.
        self.sender_thread = sender_thread
        self.topic_partition = topic_partition
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        #: The number of the batch's records, and when it was created; set with the result.
        self.record_count = 0
        self.created_ms = 0
        #: Returns the error of the record at a place in the batch; None when the batch succeeded.
        self.error_for: Callable[[int], Exception] | None = None
        #: After a split: pairs of the place of a part's first record and the part's result, in order.
        self.parts: list[Any] | None = None
        # guards: completed, settled, _waiting, listeners. One lock for all results of a producer: each of them needs it
        # for moments only, and a lock of its own would be another object for each batch.
        self._lock = new_lock() if sender_thread is None else sender_thread.results_lock
        #: True once this result is set, so that futures can read it; its parts, after a split, may not be.
        self.completed = False
        #: True once this result is set and its listeners have been called.
        self.settled = False
        self._waiting: tuple[Any, ...] = ()  # one for each thread in ``await_``
        self.listeners: list[Any] = []

    def settle_at_once(self) -> bool:
        """Publish a result without listeners, and wake waiting threads; return False if it has listeners."""
        with HERE.mark, self._lock:
            if self.listeners:
                return False
            self.completed = True
            self.settled = True  # this and the next two statements are those of ``_settle``
            self.sender_thread = None
            waiting, self._waiting = self._waiting, ()
        for signal in waiting:  # without the lock
            signal.set()
        return True


class FutureState:
    """The fields of a future. The compiled form stores numbers as C integers."""

    __slots__ = ("_key_size", "_result", "_timestamp_ms", "_value_size", "index")


def keep_spares(future_type: type[FutureState]) -> None:
    """Keep the memory of dead instances of ``future_type`` for new ones. It adds no fields to FutureState.

    Only the compiled form does so.
    """


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
    #: The types of a result, of a future, as the subclass has them.
    result_type: ClassVar[type[ResultState]]
    future_type: ClassVar[Callable[..., FutureState]]

    def __init__(
        self,
        topic_partition: TopicPartition,
        builder: MemoryRecordsBuilder,
        created_ms: int,
        is_split_batch: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        sender_thread: Any = None,
    ) -> None:
        self._clock = clock  # for threads that wait for a future
        self.topic_partition = topic_partition
        self.created_ms = created_ms
        self.produce_future = self.result_type(topic_partition, clock, sender_thread)
        self.max_record_size = 0
        self.attempts = 0
        self.retry_backoff_ms = 0
        #: True if the batch was sent before.
        self.in_retry = False
        #: Where the batch is. Only BatchRegister changes it, except that a new batch starts in its queue.
        self.state = QUEUED
        #: The result, once it is decided.
        self.final_state: str | None = None
        #: The pool's memory. A batch created by a split has none: the pool does not count these.
        self.loan: Any = None
        self.is_split_batch = is_split_batch
        self.is_open = True
        #: The uncompressed size of the last append.
        self.appended_bytes = 0
        #: True if the batch's sequence number changed after the batch was closed (KIP-360).
        self.sequence_has_been_reset = False
        #: True if the records may be in the log as part of the batch that this one was split from.
        self.may_be_written = False
        #: The size of the closed batch, and its compressed size divided by its uncompressed size.
        self.size_in_bytes = 0
        self.compression_ratio = 1.0
        self.last_attempt_ms = created_ms
        self.drained_ms = 0
        self.current_leader_epoch: int | None = None
        self._attempts_when_leader_last_changed = 0
        self._builder = builder
        self.producer_id = builder.producer_id
        self.producer_epoch = builder.producer_epoch
        self.base_sequence = builder.base_sequence

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

    def try_append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header],
        on_delivery: Callable[..., object] | None,
    ) -> Any:
        """Append a record; return None if there is no room for it. The caller holds the queue's lock."""
        size = self._builder.try_append(timestamp_ms, key, value, headers)
        if not size:
            return None
        self.appended_bytes = size
        if size > self.max_record_size:  # noqa: PLR1730 - max() is a call
            self.max_record_size = size
        index = self._builder.num_records - 1
        result = self.produce_future
        future = self.future_type(
            result, index, timestamp_ms, -1 if key is None else len(key), -1 if value is None else len(value)
        )
        if on_delivery is not None:
            add_delivery(result.listeners, future, on_delivery)
        return future

    def close(self) -> None:
        """Compress the records and write the header; ``records`` then returns the bytes to send."""
        builder = self._builder
        builder.close()
        self.size_in_bytes = builder.estimated_size_in_bytes
        self.compression_ratio = builder.compression_ratio
        self.sequence_has_been_reset = False

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool = False
    ) -> None:
        """Number the batch, and mark it as part of a transaction if ``is_transactional``."""
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence, is_transactional)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    def decide(
        self,
        final_state: str,
        base_offset: int,
        log_append_time_ms: int,
        error_for: Callable[[int], Exception] | None = None,
    ) -> bool:
        """Set the result of all records, without publishing it; ``error_for`` returns the error for an index.

        Return False, and change nothing, if the batch has already failed or been aborted.

        Raises:
            IllegalStateError: nothing may follow the result that was decided before.
        """
        if self.final_state is not None:
            return self._decided_before(final_state)
        result = self.produce_future
        result.base_offset = base_offset
        result.log_append_time_ms = log_append_time_ms
        result.error_for = error_for
        result.record_count = self.record_count
        result.created_ms = self.created_ms
        self.final_state = final_state
        return True

    def _decided_before(self, final_state: str) -> bool:
        """Return False if the result may still be reported for a batch that has one, and changes nothing."""
        raise NotImplementedError


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


# --- records on their way into batches --------------------------------------------------------------------------------


class Outbox:
    """The part of a RecordAccumulator through which the compiled ``send`` appends records.

    It does what ``RecordAccumulator.append`` does, where that neither waits nor fails. The metadata, the accumulator
    and the transaction manager set the attributes whenever they change. Thread: any.
    """

    __slots__ = ("_batch_size", "_is_compressed", "_pool", "is_closed", "refuses", "snapshot", "topics")

    def __init__(
        self,
        pool: PoolState,
        waiting: LooksAtQueues,
        incomplete: dict[Any, None],
        clock: Clock,
        sender_thread: Any,
        lender: Callable[[], Any],
        batch_type: type[BatchState],
        *,
        batch_size: int,
        linger_ms: int,
        max_uncompressed_size: int,
        compression: Compression,
        is_transactional: bool,
    ) -> None:
        """``incomplete`` gets the new batches. Sizes are in bytes."""
        self._pool = pool
        self._batch_size = batch_size
        self._is_compressed = compression.type is not CompressionType.NONE
        #: True once the accumulator accepts no more records.
        self.is_closed = False
        #: True while the transaction manager accepts no records: the Python ``send`` raises the error.
        self.refuses = False
        #: The latest metadata.
        self.snapshot: MetadataSnapshot | None = None
        #: The accumulator's queues by topic.
        self.topics: Mapping[str, Any] | None = None

    def capacity_of_next_batch(self, queue: QueueState) -> int:
        """Return the initial capacity of the partition's next batch: ``batch.size``, or less if memory is short.

        Then it is a little more than the size of the partition's last batch. The batch borrows more as it grows. So
        memory suffices for more partitions than with ``batch.size`` bytes each, and is full of records when it is out.
        """
        pool = self._pool
        # With a codec, batches borrow ahead until half of the memory is left, so that does not mean that memory is
        # short.
        if pool.available_about * (4 if self._is_compressed else 2) >= pool.total_memory:
            return self._batch_size
        capacity: int = queue.last_batch_bytes * 9 // 8
        if capacity < SMALLEST_CAPACITY:  # noqa: PLR1730 - max() is a call
            capacity = SMALLEST_CAPACITY
        return capacity if capacity < self._batch_size else self._batch_size


class LooksAtQueues(Protocol):
    """The part of WaitingQueues that decides whether a new batch must wake the sender."""

    changed_queues: deque[Any]
    next_look_ms: int


# --- batches on their way to the sender and back ----------------------------------------------------------------------


class Drain:
    """The batches drained for a request so far. Thread: io."""

    __slots__ = ("max_size", "now_ms", "of_node", "queues", "ready", "size")

    def __init__(self, of_node: QueuesOfNode, max_size: int, now_ms: int) -> None:
        self.of_node = of_node
        self.max_size = max_size
        self.now_ms = now_ms
        #: The batches, and the sum of their sizes in bytes.
        self.ready: list[Any] = []
        self.size = 0
        #: The queues from which a batch was taken.
        self.queues: list[Any] = []


class QueuesOfNode(Protocol):
    """The queues that have batches for one node, see WaitingQueues."""

    #: True if the node could take no request at the last check.
    is_blocked: bool
    #: True if the last drain left batches that are due.
    has_due_rest: bool

    @property
    def waiting(self) -> Collection[Any]: ...

    def remove(self, queue: Any) -> None: ...


class FilesQueues(Protocol):
    """The part of WaitingQueues that ``file_queues`` uses."""

    delivery_timeout_ms: int
    linger_ms: int
    muted: dict[TopicPartition, Any]
    next_expiry_ms: int

    def file_queue(self, queue: Any, snapshot: MetadataSnapshot) -> None: ...


class DrainsQueues(Protocol):
    """The part of a RecordAccumulator that ``drain_queues`` uses."""

    backlog: Any
    id_manager: Any
    is_compressed: bool
    is_ordered: bool

    @property
    def held(self) -> dict[Any, None]: ...

    def drain_queue(self, queue: Any, drain: Drain) -> bool: ...

    def learn_ratio(self, batch: Any) -> None: ...


class CompletesBatches(Protocol):
    """The part of a BatchRegister that ``succeed_written`` uses."""

    held: dict[Any, None]
    id_manager: Any
    incomplete: dict[Any, None]
    is_ordered: bool
    results: deque[Any]
    returned: deque[Loan]

    def succeed(self, batch: Any, base_offset: int, log_append_time_ms: int) -> bool: ...

    def conclude(self, batch: Any, deallocate: Callable[[Loan], object] | None = None) -> None: ...


def file_queues(waiting: FilesQueues, queues: dict[Any, None], snapshot: MetadataSnapshot) -> None:
    """Update ``queues``, which have changed, in ``waiting``."""
    for queue in queues:
        waiting.file_queue(queue, snapshot)


def drain_queues(accumulator: DrainsQueues, drain: Drain) -> None:
    """Drain one batch per queue of a node, until the request is full."""
    for queue in drain.of_node.waiting:
        if not accumulator.drain_queue(queue, drain):
            return


def succeed_written(
    register: CompletesBatches,
    batches: dict[tuple[str, int], Any],
    topic: str,
    written: Iterable[tuple[int, ...]],
) -> tuple[list[int], list[Any]]:
    """Complete held batches of ``topic`` with success, and remove them from ``batches``.

    ``written`` has the fields of a WrittenResponse for each. Return the partitions for which there is no batch, and the
    batches that were given up before.
    """
    strangers: list[int] = []
    late: list[Any] = []
    for index, _, base_offset, log_append_time_ms, *_ in written:
        batch = batches.pop((topic, index), None)
        if batch is None:
            strangers.append(index)
        elif not register.succeed(batch, base_offset, log_append_time_ms):
            late.append(batch)
    return strangers, late


use_compiled(__name__)
