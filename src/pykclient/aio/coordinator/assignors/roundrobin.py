"""aiokafka's module of this name."""

from __future__ import annotations

from pykclient.consumer.assignors.round_robin_assignor import RoundRobinAssignor

RoundRobinPartitionAssignor = RoundRobinAssignor

__all__ = ["RoundRobinPartitionAssignor"]
