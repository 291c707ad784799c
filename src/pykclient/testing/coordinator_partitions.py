"""The choice of a coordinator: the leader of the partition that stores the state."""

from __future__ import annotations

from functools import lru_cache


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of a coordinator's topic that stores a group or a transactional id."""
    hash = java_hash(key)
    # Java's Utils.abs maps the smallest int, which has no positive counterpart, to 0.
    return 0 if hash == -(1 << 31) else abs(hash) % partition_count


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``, which is computed from UTF-16."""
    data = text.encode("utf-16-be", "surrogatepass")
    hash = 0
    for index in range(0, len(data), 2):
        hash = (31 * hash + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return hash - (1 << 32) if hash >= 1 << 31 else hash
