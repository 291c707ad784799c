"""The cooperative sticky assignor under kafka-python's module name."""

from __future__ import annotations

from pykclient.consumer.assignors.cooperative_sticky_assignor import CooperativeStickyAssignor

__all__ = ["CooperativeStickyAssignor"]
