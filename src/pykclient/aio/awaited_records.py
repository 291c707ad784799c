"""The asyncio futures of the records of a batch, set all at once when the batch completes."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING

from pykclient.aio.structs import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata
from pykclient.implementation import use_compiled
from pykclient.producer.future import NO_OFFSET, NO_TIMESTAMP

if TYPE_CHECKING:
    from pykclient.producer.future import FutureRecordMetadata, ProduceRequestResult


#: The future of one record: what the broker reported, or None with ``acks=0``.
RecordFuture = asyncio.Future[RecordMetadata | None]


class AwaitedRecords:
    """Records of one batch and their futures, as a listener of the batch's result.

    A producer has one such listener per batch instead of one per record. With ``acks=0`` there is no position, and the
    futures get None. Thread: the loop's.
    """

    __slots__ = ("_futures", "_has_acks", "_records")

    def __init__(self, has_acks: bool) -> None:
        self._has_acks = has_acks
        self._records: list[FutureRecordMetadata] = []
        self._futures: list[RecordFuture] = []

    def add(self, record: FutureRecordMetadata, future: RecordFuture) -> None:
        self._records.append(record)
        self._futures.append(future)

    def __call__(self, first: FutureRecordMetadata) -> None:  # noqa: ARG002 - the first of the records
        settle(self._records, self._futures, self._has_acks)


def attach(record: FutureRecordMetadata, future: RecordFuture, has_acks: bool) -> None:
    """Set ``future`` when ``record``, which is not done, has succeeded or failed."""
    listeners = record.locate()[0].listeners
    if listeners and type(listeners[-1][1]) is AwaitedRecords:
        listeners[-1][1].add(record, future)
        return
    awaited = AwaitedRecords(has_acks)
    awaited.add(record, future)
    record.add_listener(awaited)


def settle(records: list[FutureRecordMetadata], futures: list[RecordFuture], has_acks: bool) -> None:
    """Set the futures of records that were in one batch, and leave alone those that were cancelled.

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
            future.set_exception(_own(result.error_for(index)))
        else:
            future.set_result(metadata_of(result, index, record.timestamp_ms) if has_acks else None)


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


use_compiled(__name__)
