"""Plain values under kafka-python's module name. They are defined in pykclient.types."""

from __future__ import annotations

from pykclient.types import (
    ConsumerGroupMetadata as ConsumerGroupMetadata,
    MemberState as MemberState,
    OffsetAndMetadata as OffsetAndMetadata,
    OffsetAndTimestamp as OffsetAndTimestamp,
    PartitionInfo as PartitionInfo,
    RecordMetadata as RecordMetadata,
    TopicPartition as TopicPartition,
)
