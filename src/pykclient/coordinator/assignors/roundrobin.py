"""The round-robin assignor under kafka-python's name."""

from __future__ import annotations

from pykclient.consumer.assignors.round_robin_assignor import RoundRobinAssignor as RoundRobinPartitionAssignor

__all__ = ["RoundRobinPartitionAssignor"]
