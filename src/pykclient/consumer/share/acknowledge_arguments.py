"""The arguments of ``acknowledge``."""

from __future__ import annotations

from typing import Any, NamedTuple

from pykclient.consumer import arguments
from pykclient.consumer.share.acknowledge_type import AcknowledgeType
from pykclient.errors import IllegalArgumentError
from pykclient.types import ConsumerRecord, TopicPartition


class AcknowledgeArguments(NamedTuple):
    """The record to acknowledge. Without ``record``, it is one for which the last poll has raised an error."""

    record: ConsumerRecord[Any, Any] | None
    tp: TopicPartition
    offset: int
    kind: AcknowledgeType


def acknowledge_arguments(args: tuple[Any, ...]) -> AcknowledgeArguments:
    """Return the checked arguments of ``acknowledge(record)``, or of its forms with a type or with an offset.

    Raises:
        IllegalArgumentError: an argument is wrong.
    """
    if args and isinstance(args[0], ConsumerRecord) and len(args) <= 2:
        record = args[0]
        tp = TopicPartition(record.topic, record.partition)
        return AcknowledgeArguments(record, tp, record.offset, _acknowledge_type(*args[1:]))
    if len(args) == 4:
        topic, partition, offset, kind = args
        tp = arguments.partition((topic, partition))
        return AcknowledgeArguments(None, tp, arguments.offset(offset), _acknowledge_type(kind))
    raise IllegalArgumentError(
        "write acknowledge(record), acknowledge(record, type) or acknowledge(topic, partition, offset, type)"
    )


def _acknowledge_type(kind: Any = AcknowledgeType.ACCEPT) -> AcknowledgeType:
    if not isinstance(kind, AcknowledgeType):
        raise IllegalArgumentError(f"an acknowledgement has one of the types AcknowledgeType, not {kind!r}")
    return kind
