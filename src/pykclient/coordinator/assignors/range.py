"""The range assignor under kafka-python's name."""

from __future__ import annotations

from pykclient.consumer.assignors.range_assignor import RangeAssignor as RangePartitionAssignor

__all__ = ["RangePartitionAssignor"]
