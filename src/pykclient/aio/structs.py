"""The values that the asyncio clients take and return, under aiokafka's names."""

from __future__ import annotations

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

    class _RecordType(type(types.ConsumerRecord)):
        def __instancecheck__(cls, instance: object) -> bool:
            return (
                isinstance(instance, types.ConsumerRecord)
                if cls is ConsumerRecord
                else super().__instancecheck__(instance)
            )

        def __call__(cls, topic: str, partition: int, *fields: Any, **named: Any) -> types.ConsumerRecord:
            if len(fields) > len(_RECORD_FIELDS):
                raise TypeError(f"a ConsumerRecord has 11 fields, not {len(fields) + 2}")
            given = dict(zip(_RECORD_FIELDS, fields, strict=False))
            make = types.ConsumerRecord if cls is ConsumerRecord else super().__call__
            return make(topic, partition, **given, **named)

    class ConsumerRecord(types.ConsumerRecord[types.K, types.V], metaclass=_RecordType):
        """Makes records from positional arguments in aiokafka's order, and has all records as instances."""

        __slots__ = ()


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
