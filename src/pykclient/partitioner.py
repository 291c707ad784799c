"""Partitioners under kafka-python's module name, for programs written for it.

Their home is pykclient.producer.partitioner. kafka-python's two choose alike for records with a key, and so do these:
MurmurHash2 of it. Records without one go to the built-in sticky partition (KIP-794) with both, where kafka-python's
default takes one at random for each record.
"""

from __future__ import annotations

from pykclient.producer.partitioner import Partitioner, murmur2
from pykclient.producer.partitioner.partitioners import Murmur2RandomPartitioner as DefaultPartitioner
from pykclient.producer.partitioner.partitioners import Murmur2RandomPartitioner as StickyPartitioner

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner", "murmur2"]
