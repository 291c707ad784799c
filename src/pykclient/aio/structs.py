"""The values that the asyncio clients take and return, under aiokafka's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient import types
from pykclient.types import OffsetAndMetadata, TopicPartition

__all__ = ["ConsumerRecord", "OffsetAndMetadata", "OffsetAndTimestamp", "RecordMetadata", "TopicPartition"]

#: Values of ``RecordMetadata.timestamp_type``.
CREATE_TIME, LOG_APPEND_TIME = 0, 1

#: The positional arguments of aiokafka's ConsumerRecord after the topic and the partition.
_RECORD_FIELDS = (
    *("offset", "timestamp", "timestamp_type", "key", "value", "checksum"),
    *("serialized_key_size", "serialized_value_size", "headers"),
)

if TYPE_CHECKING:
    from pykclient.types import ConsumerRecord
else:

    def _named(fields: tuple[Any, ...]) -> dict[str, Any]:
        if len(fields) > len(_RECORD_FIELDS):
            raise TypeError(f"a ConsumerRecord has 11 fields, not {len(fields) + 2}")
        return dict(zip(_RECORD_FIELDS, fields, strict=False))

    class _RecordType(type(types.ConsumerRecord)):
        """Has the records of all clients as instances, and makes such ones; derived classes make their own."""

        def __instancecheck__(cls, instance: object) -> bool:
            if cls is ConsumerRecord:
                return isinstance(instance, types.ConsumerRecord)
            return super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            if cls is ConsumerRecord:
                return issubclass(subclass, types.ConsumerRecord)
            return super().__subclasscheck__(subclass)

        def __call__(cls, *fields: Any, **named: Any) -> types.ConsumerRecord:
            if cls is ConsumerRecord:
                return types.ConsumerRecord(*fields[:2], **_named(fields[2:]), **named)
            return super().__call__(*fields, **named)

    class ConsumerRecord(types.ConsumerRecord[types.K, types.V], metaclass=_RecordType):
        """A record whose positional arguments are in aiokafka's order."""

        __slots__ = ()

        def __init__(self, topic: str, partition: int, *fields: Any, **named: Any) -> None:
            super().__init__(topic, partition, **_named(fields), **named)

        @classmethod
        def _make(cls, values: Iterable[Any]) -> types.ConsumerRecord:
            """Return a record with the values of all fields, in the order in which records unpack."""
            return cls(**dict(zip(cls._fields, values, strict=True)))


class OffsetAndTimestamp(NamedTuple):
    """An offset, and the time of its record in milliseconds since the epoch; aiokafka's has no leader epoch."""

    offset: int
    timestamp: int


class RecordMetadata(NamedTuple):
    """The position of an acknowledged record, with aiokafka's fields in its order.

    ``timestamp`` is in milliseconds since the epoch. ``timestamp_type`` is 0 if the producer set it and 1 if the broker
    did. ``log_start_offset`` is always -1: the producer does not keep it.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    timestamp_type: int
    log_start_offset: int = -1
