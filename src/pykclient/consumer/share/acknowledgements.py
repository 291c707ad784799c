"""Acknowledgements of records: the application's arguments, those of one partition, and a request without a fetch.

Java: AcknowledgeType, Acknowledgements, AcknowledgementBatch, AcknowledgeRequestState.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient import topic_names
from pykclient.argument_values import shown
from pykclient.consumer import consumer_arguments
from pykclient.consumer.application_driver import RequestFuture
from pykclient.errors import IllegalArgumentError
from pykclient.record.record_batch import MAX_INT32, MAX_INT64
from pykclient.types import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pykclient.errors import KafkaError
    from pykclient.types import TopicIdPartition


class AcknowledgeType(IntEnum):
    """The outcome of processing a record; the numbers are those of the protocol."""

    #: The record was processed.
    ACCEPT = 1
    #: The record was not processed. Deliver it again, to any member of the group.
    RELEASE = 2
    #: The record cannot be processed. Do not deliver it again.
    REJECT = 3
    #: The record is still being processed. Lock it for another full period (KIP-1222).
    RENEW = 4


#: The columns that say which records the rows are.
_PLACE = ("topic", "partition", "offset")


class AcknowledgeArguments(NamedTuple):
    """The records to acknowledge. ``is_failed`` means a record for which the last poll raised an error."""

    places: Sequence[tuple[TopicPartition, int]]
    kind: AcknowledgeType
    is_failed: bool = False


def acknowledge_arguments(args: tuple[Any, ...]) -> AcknowledgeArguments:
    """Return the checked arguments of ``acknowledge``, in any of its forms.

    Raises:
        IllegalArgumentError: an argument is wrong.
    """
    if args and len(args) <= 2:
        what = args[0]
        if isinstance(what, ConsumerRecord):
            place = TopicPartition(what.topic, what.partition), what.offset
            if not _is_place(*place[0], place[1]):
                raise IllegalArgumentError(
                    "the record to acknowledge is not one of poll(): its topic must be a str, "
                    "and its partition and offset must be integers from 0 on"
                )
            return AcknowledgeArguments((place,), _acknowledge_type(*args[1:]))
        if hasattr(what, "schema") and hasattr(what, "column"):
            return AcknowledgeArguments(_places(what), _acknowledge_type(*args[1:]))
    if len(args) == 4:
        topic, partition, offset, kind = args
        tp = topic_names.partition((topic, partition))
        return AcknowledgeArguments(((tp, consumer_arguments.offset(offset)),), _acknowledge_type(kind), is_failed=True)
    raise IllegalArgumentError(
        "write acknowledge(record), acknowledge(rows) with columns of poll_arrow(), either with a type as second "
        "argument, or acknowledge(topic, partition, offset, type)"
    )


def commit_callback(value: Any) -> Any:
    """Return an acknowledgement commit callback, or None.

    Raises:
        IllegalArgumentError: it cannot be called.
    """
    if value is not None and not callable(value):
        raise IllegalArgumentError(
            f"an acknowledgement commit callback is a function of offsets and error, not {shown(value)}"
        )
    return value


def _is_place(topic: object, partition: object, offset: object) -> bool:
    return (
        type(topic) is str
        and type(partition) is int
        and 0 <= partition <= MAX_INT32
        and type(offset) is int
        and 0 <= offset <= MAX_INT64
    )


def _places(rows: Any) -> list[tuple[TopicPartition, int]]:
    """Return partition and offset of each row of a pyarrow.RecordBatch or pyarrow.Table."""
    missing = [name for name in _PLACE if name not in rows.schema.names]
    if missing:
        raise IllegalArgumentError(
            f"the rows to acknowledge have no column {missing[0]!r}: poll_arrow(columns=...) must include "
            f"{', '.join(_PLACE)}"
        )
    topics, partitions, offsets = (rows.column(name).to_pylist() for name in _PLACE)
    if not all(map(_is_place, topics, partitions, offsets)):
        raise IllegalArgumentError(
            f"the rows to acknowledge are not of poll_arrow(): {', '.join(_PLACE)} must be names and integers from 0 on"
        )
    found: dict[tuple[str, int], TopicPartition] = {}
    return [
        (found.get((topic, number)) or found.setdefault((topic, number), TopicPartition(topic, number)), offset)
        for topic, number, offset in zip(topics, partitions, offsets, strict=True)
    ]


def _acknowledge_type(kind: Any = AcknowledgeType.ACCEPT) -> AcknowledgeType:
    if not isinstance(kind, AcknowledgeType):
        raise IllegalArgumentError(f"an acknowledgement has one of the types AcknowledgeType, not {shown(kind)}")
    return kind


#: The protocol's type of an offset without a record.
GAP = 0
#: From this number on, neighbouring offsets with the same type become a batch of their own, which has the type once.
MIN_UNIFORM_BATCH = 11


class AcknowledgementBatch(NamedTuple):
    """The types of a range of offsets. A single type stands for all offsets of the range."""

    first_offset: int
    last_offset: int
    types: list[int]


class Acknowledgements:
    """The acknowledgement types of a partition's records by offset, and the broker's answer once ``is_done``.

    Thread: the holder of the I/O lease once they are on their way, the application before that.
    """

    __slots__ = ("error", "is_done", "types")

    def __init__(self, types: Mapping[int, int] | None = None) -> None:
        self.types: dict[int, int] = dict(types or {})
        self.is_done = False
        self.error: KafkaError | None = None

    def __len__(self) -> int:
        return len(self.types)

    @property
    def has_renewals(self) -> bool:
        """True if a lock is to be renewed."""
        return AcknowledgeType.RENEW in self.types.values()

    def merge(self, other: Acknowledgements) -> None:
        """Add the acknowledgements of ``other``, which replace those of the same offsets."""
        self.types.update(other.types)

    def complete(self, error: KafkaError | None) -> None:
        """Store the broker's answer: None means success."""
        self.error = error
        self.is_done = True

    def batches(self) -> list[AcknowledgementBatch]:
        """Return the ranges to send, in the order of their offsets."""
        batches: list[AcknowledgementBatch] = []
        mixed: AcknowledgementBatch | None = None  # collects runs that are too short for a batch of their own
        for first, last, kind in self._runs():
            count = last - first + 1
            if count >= MIN_UNIFORM_BATCH:
                batches.append(AcknowledgementBatch(first, last, [kind]))
                mixed = None
            elif mixed is not None and mixed.last_offset == first - 1:
                mixed = mixed._replace(last_offset=last)
                mixed.types.extend([kind] * count)
                batches[-1] = mixed
            else:
                mixed = AcknowledgementBatch(first, last, [kind] * count)
                batches.append(mixed)
        return [batch._replace(types=batch.types[:1]) if len(set(batch.types)) == 1 else batch for batch in batches]

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield ranges of adjacent offsets with the same type."""
        run: tuple[int, int, int] | None = None
        for offset, kind in sorted(self.types.items()):
            if run is not None and offset == run[1] + 1 and kind == run[2]:
                run = (run[0], offset, kind)
                continue
            if run is not None:
                yield run
            run = (offset, offset, kind)
        if run is not None:
            yield run


class NodeAcknowledgements(NamedTuple):
    """Acknowledgements of a partition for the broker that has delivered its records."""

    node_id: int
    partition: TopicIdPartition
    acknowledgements: Acknowledgements


#: Called with a partition, its acknowledgements with the broker's answer, and the new period of their locks, if known.
Completed = Callable[["TopicIdPartition", "Acknowledgements", "int | None"], object]


class AcknowledgeOperation:
    """The acknowledgements of one commit for one broker, until all are answered.

    ``is_last`` ends the session as well. Thread: the holder of the I/O lease.
    """

    def __init__(
        self,
        waiting: dict[TopicIdPartition, Acknowledgements],
        deadline_ms: int,
        on_completed: Completed,
        *,
        is_last: bool = False,
    ) -> None:
        self.waiting = waiting  # without an answer yet, or to be sent again
        self.deadline_ms = deadline_ms
        self.is_last = is_last
        self.not_before_ms = 0
        self.attempts = 0
        self._on_completed = on_completed
        #: Done when all acknowledgements are answered.
        self.done: RequestFuture[None] = RequestFuture()

    def complete(self, partition: TopicIdPartition, error: KafkaError | None, lock_timeout_ms: int | None) -> None:
        """Complete the acknowledgements of one partition."""
        acknowledgements = self.waiting.pop(partition)
        acknowledgements.complete(error)
        self._on_completed(partition, acknowledgements, lock_timeout_ms)

    def fail_all(self, error: KafkaError) -> None:
        """Complete all waiting acknowledgements with ``error``."""
        for partition in list(self.waiting):
            self.complete(partition, error, None)

    def finish(self) -> None:
        """Mark the operation as done."""
        if not self.done.is_done:
            self.done.complete(None)
