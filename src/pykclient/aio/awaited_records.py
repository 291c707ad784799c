"""The asyncio futures of the records of a batch, set all at once when the batch completes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, cast

from pykclient.aio.loop_driver import MemoryLine
from pykclient.aio.structs import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata
from pykclient.errors import TransactionAbortedError
from pykclient.implementation import use_compiled
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.producer.outbox import NO_OFFSET, NO_TIMESTAMP
from pykclient.types import Headers

if TYPE_CHECKING:
    from pykclient.aio.loop_driver import Resumption
    from pykclient.producer.future import FutureRecordMetadata, ProduceRequestResult


#: The future of one record: what the broker reported. With ``acks=0`` it is None, which the type leaves out.
RecordFuture = asyncio.Future[RecordMetadata]


class AwaitedRecords:
    """Sets the futures of one batch's records when the batch completes.

    A producer has one such listener per batch instead of one per record. With ``acks=0`` there is no position, and the
    futures get None. The future of a record that is alone in its batch, and that one task waits for, has its callback
    put into ``resumed`` instead of into the loop's queue, if that is given. Thread: the loop's.
    """

    __slots__ = ("_futures", "_has_acks", "_records", "_resumed")

    def __init__(self, has_acks: bool, resumed: list[Resumption] | None = None) -> None:
        self._has_acks = has_acks
        self._resumed = resumed
        self._records: list[FutureRecordMetadata] = []
        self._futures: list[RecordFuture] = []

    def add(self, record: FutureRecordMetadata, future: RecordFuture) -> None:
        self._records.append(record)
        self._futures.append(future)

    def __call__(self, first: FutureRecordMetadata) -> None:
        if self._resumed is not None and len(self._records) == 1 and first.value is not None:
            future = self._futures[0]
            # A loop may have futures of its own, without this.
            callbacks = None if future.get_loop().is_closed() else getattr(future, "_callbacks", None)
            if callbacks and len(callbacks) == 1:
                wakeup, context = callbacks[0]
                future.remove_done_callback(wakeup)
                self._resumed.append((future, wakeup, context))
        settle(self._records, self._futures, self._has_acks)


def attach(
    record: FutureRecordMetadata, future: RecordFuture, has_acks: bool, resumed: list[Resumption] | None = None
) -> None:
    """Set ``future`` when the pending ``record`` succeeds or fails."""
    listeners = record.locate()[0].listeners
    if listeners and type(listeners[-1][1]) is AwaitedRecords:
        listeners[-1][1].add(record, future)
        return
    awaited = AwaitedRecords(has_acks, resumed)
    awaited.add(record, future)
    record.add_listener(awaited)


def settle(records: list[FutureRecordMetadata], futures: list[RecordFuture], has_acks: bool) -> None:
    """Set the futures of one batch's records, except cancelled ones.

    If the batch was split, futures of parts that have not completed are left to the results of these.
    """
    if futures[0].get_loop().is_closed():
        return  # nothing waits for them any more
    for record, future in zip(records, futures, strict=True):
        if future.done():
            continue
        result, index = record.locate()
        if not result.completed:
            attach(record, future, has_acks)
        elif result.error_for is not None:
            error = result.error_for(index)
            future.set_exception(_own(error))
            if isinstance(error, TransactionAbortedError):
                # The application aborts, and need not look at the futures: asyncio must not complain if nobody does.
                future.exception()
        else:
            metadata = metadata_of(result, index, record.timestamp_ms) if has_acks else None
            future.set_result(cast("RecordMetadata", metadata))


def _own(error: Exception) -> Exception:
    """Return a copy of an error that the records of a batch, and the producer, share.

    Else the traceback of each task that awaits a future would grow the other's, and live as long as the producer.
    """
    own = copy(error)
    own.__cause__ = error.__cause__
    return own


def metadata_of(result: ProduceRequestResult, index: int, timestamp_ms: int) -> RecordMetadata:
    """Return the metadata of the record at ``index`` of a batch that was written."""
    topic_partition = result.topic_partition
    base_offset, log_append_time_ms = result.base_offset, result.log_append_time_ms
    timestamp_type = LOG_APPEND_TIME
    if log_append_time_ms == NO_TIMESTAMP:
        log_append_time_ms, timestamp_type = timestamp_ms, CREATE_TIME
    return RecordMetadata(
        topic_partition.topic,
        topic_partition.partition,
        topic_partition,
        NO_OFFSET if base_offset == NO_OFFSET else base_offset + index,
        log_append_time_ms,
        timestamp_type,
    )


class AwaitedSends:
    """Sends the common records of an AIOKafkaProducer at once, if it has neither serializers nor interceptors.

    The Python form leaves all records to ``AIOKafkaProducer._send``. Thread: the loop's.
    """

    __slots__ = ()

    def __init__(
        self,
        producer: KafkaProducer[Any, Any],
        loop: asyncio.AbstractEventLoop,
        create_future: Callable[[], RecordFuture],
        has_acks: bool,
        memory: MemoryLine,
        resumed: list[Resumption],
    ) -> None: ...

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
        may_start_batch: bool,
    ) -> RecordFuture | None:
        """Append a common record, and return its asyncio future; None if the full path must run.

        Only with ``may_start_batch`` a record may start a batch: the caller then leaves the thread to the loop, and
        waits for the future, so that ``AwaitedRecords`` may put it into ``resumed``. Such a caller has checked that the
        loop runs on this thread.
        """
        return None


use_compiled(__name__)
