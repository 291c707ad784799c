"""The hash of keys under the module name of kafka-python 1 and 2."""

from __future__ import annotations

from pykclient.partitioner.default import murmur2

__all__ = ["murmur2"]
