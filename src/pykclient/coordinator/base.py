"""The states of a group member under kafka-python's module name."""

from __future__ import annotations

from pykclient.types import MemberState

__all__ = ["MemberState"]
