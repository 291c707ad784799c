"""Partitioners as kafka-python has them, for programs written for it.

They work in a producer, by themselves with any object that has kafka-python's methods of cluster metadata, and as a
function of ``(key, all_partitions, available_partitions)``. Java's kind is ``pykclient.Partitioner``.

Keyed records go to the same partitions as with kafka-python, by MurmurHash2 of the key. In a producer, records without
a key go to the built-in sticky partition (KIP-794).
"""

from __future__ import annotations

from pykclient.partitioner.abc import Partitioner
from pykclient.partitioner.default import DefaultPartitioner, murmur2
from pykclient.partitioner.roundrobin import RoundRobinPartitioner
from pykclient.partitioner.sticky import StickyPartitioner

__all__ = ["DefaultPartitioner", "Partitioner", "RoundRobinPartitioner", "StickyPartitioner", "murmur2"]
