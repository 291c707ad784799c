"""aiokafka's module of this name."""

from __future__ import annotations

from pykclient.consumer.assignors.range_assignor import RangeAssignor

RangePartitionAssignor = RangeAssignor

__all__ = ["RangePartitionAssignor"]
