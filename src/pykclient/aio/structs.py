"""The values that the asyncio clients take and return, under aiokafka's names."""

from __future__ import annotations

from typing import NamedTuple

from pykclient.types import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

__all__ = ["ConsumerRecord", "OffsetAndMetadata", "OffsetAndTimestamp", "RecordMetadata", "TopicPartition"]

#: Values of ``RecordMetadata.timestamp_type``.
CREATE_TIME, LOG_APPEND_TIME = 0, 1


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
