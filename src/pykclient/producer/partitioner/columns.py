"""The default partitioner for a whole column of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import IllegalArgumentError
from pykclient.implementation import use_compiled
from pykclient.producer.partitioner.hashing import POSITIVE
from pykclient.producer.partitioner.murmur_hash import murmur2
from pykclient.record.row_columns import UNCHOSEN

if TYPE_CHECKING:
    from pykclient.record.row_columns import BytesColumn


def hash_partitions(keys: BytesColumn | None, start: int, stop: int, count: int, numbers: memoryview) -> None:
    """Write the partitions of rows that have a key, but no partition yet, into ``numbers``, a view of int32.

    Raises:
        IllegalArgumentError: ``count``, the number of partitions, is not positive.
    """
    if count < 1:
        raise IllegalArgumentError(f"a topic cannot have {count} partitions")
    if keys is None:
        return
    for row in range(start, stop):
        if numbers[row] == UNCHOSEN:
            key = keys[row]
            if key is not None:
                numbers[row] = (murmur2(key) & POSITIVE) % count


use_compiled(__name__)
