"""The compiled form of ``pool_state.py``."""

from collections import deque

from pykclient.producer._queue_state cimport Mutex


cdef class Loan:
    """Memory that a thread has taken from the pool. It has no references but to bytes, so it is part of no cycle."""

    def __init__(self):
        pass


cdef class PoolState:
    """The free memory of a BufferPool."""

    def __init__(self, memory, kept_sizes):
        self.total_memory = memory
        self._lock = Mutex()
        self._available = memory
        self._free = {size: deque() for size in kept_sizes}
        self._waiters = deque()
        self.returned = deque()
