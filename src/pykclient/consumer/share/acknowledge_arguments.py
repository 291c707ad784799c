"""The arguments of ``acknowledge``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pykclient.argument_values import shown
from pykclient.consumer import consumer_arguments
from pykclient.consumer.share.acknowledge_type import AcknowledgeType
from pykclient.errors import IllegalArgumentError
from pykclient.record.record_batch import MAX_INT32, MAX_INT64
from pykclient.types import ConsumerRecord, TopicPartition

#: The columns that say which records the rows are.
_PLACE = ("topic", "partition", "offset")


class AcknowledgeArguments(NamedTuple):
    """The records to acknowledge. ``is_failed``: one for which the last poll has raised an error."""

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
        tp = consumer_arguments.partition((topic, partition))
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
