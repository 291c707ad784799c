"""The sticky assignor under kafka-python's name."""

from __future__ import annotations

from pykclient.consumer.assignors.sticky_assignor import StickyAssignor as StickyPartitionAssignor

__all__ = ["StickyPartitionAssignor"]
