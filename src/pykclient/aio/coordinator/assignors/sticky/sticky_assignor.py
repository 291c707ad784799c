"""aiokafka's module of this name."""

from __future__ import annotations

from pykclient.consumer.assignors.sticky_assignor import StickyAssignor

StickyPartitionAssignor = StickyAssignor

__all__ = ["StickyPartitionAssignor"]
