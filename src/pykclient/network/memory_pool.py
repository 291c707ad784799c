"""A bound on the memory of frames being received (KIP-72; Java: MemoryPool, SimpleMemoryPool)."""

from __future__ import annotations

import threading
from typing import Protocol

from pykclient.errors import IllegalArgumentError


class MemoryPool(Protocol):
    """A pool of buffer memory. A channel that gets none is muted meanwhile. Thread: any."""

    def try_allocate(self, size_bytes: int) -> bytearray | None:
        """Return a buffer of ``size_bytes``, or None if there is no memory now."""

    def release(self, size_bytes: int) -> None:
        """Return the memory of a buffer of this size to the pool."""

    @property
    def size(self) -> int | None:
        """Return the total memory in bytes, used or not; None without a bound."""

    @property
    def available_memory(self) -> int:
        """Return the free bytes. They can be negative in a pool that is not strict."""

    @property
    def is_out_of_memory(self) -> bool: ...


class UnlimitedMemoryPool:
    """A pool without a bound (Java: MemoryPool.NONE). Thread: any."""

    __slots__ = ()

    def try_allocate(self, size_bytes: int) -> bytearray | None:
        return bytearray(size_bytes)

    def release(self, size_bytes: int) -> None:
        """Do nothing, as nothing is counted."""

    @property
    def size(self) -> int | None:
        return None

    @property
    def available_memory(self) -> int:
        return (1 << 63) - 1

    @property
    def is_out_of_memory(self) -> bool:
        return False


UNLIMITED = UnlimitedMemoryPool()


class SimpleMemoryPool:
    """A pool that counts its memory.

    A strict pool refuses allocations that would exceed its size. Another one allocates as long as any memory is left,
    and so exceeds its size by at most one buffer.

    Thread: any.
    """

    __slots__ = ("_available", "_lock", "_max_single_bytes", "_size", "_strict")

    def __init__(self, size_bytes: int, max_single_allocation_bytes: int, strict: bool) -> None:
        if not 0 < max_single_allocation_bytes <= size_bytes:
            raise IllegalArgumentError(
                f"a pool of {size_bytes} bytes cannot give out buffers of up to {max_single_allocation_bytes} bytes"
            )
        self._lock = threading.Lock()  # guards: _available
        self._available = size_bytes
        self._size = size_bytes
        self._max_single_bytes = max_single_allocation_bytes
        self._strict = strict

    def try_allocate(self, size_bytes: int) -> bytearray | None:
        if not 0 < size_bytes <= self._max_single_bytes:
            raise IllegalArgumentError(
                f"a buffer of {size_bytes} bytes is not between 1 and {self._max_single_bytes} bytes"
            )
        with self._lock:
            if self._available < (size_bytes if self._strict else 1):
                return None
            self._available -= size_bytes
        return bytearray(size_bytes)

    def release(self, size_bytes: int) -> None:
        with self._lock:
            self._available += size_bytes

    @property
    def size(self) -> int | None:
        return self._size

    @property
    def available_memory(self) -> int:
        return self._available

    @property
    def is_out_of_memory(self) -> bool:
        return self._available <= 0
