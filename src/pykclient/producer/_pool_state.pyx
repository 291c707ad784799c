"""The compiled form of ``pool_state.py``, and lending memory without a wait."""

from cpython.bytearray cimport PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from libc.stdint cimport int64_t

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


cdef int take_in(PoolState pool) except -1:
    """Take back returned loans, as ``BufferPool._take_in`` does if no thread is in line. The caller holds the lock.

    Stop at a subclass: dropping it may run Python code, and so a signal handler, while this thread holds the lock.
    """
    cdef Loan loan
    cdef object free
    while pool.returned and type(pool.returned[0]) is Loan:
        loan = pool.returned[0]
        free = None if loan.buffer is None else pool._free.get(loan.size)
        if free is not None and loan.size == PyByteArray_GET_SIZE(loan.buffer):
            free.append(loan.buffer)
            pool._kept += loan.size
        else:
            pool._available += loan.size
        loan.size = 0
        loan.buffer = None
        pool.returned.popleft()
    return 0


cdef bint lend_at_once(PoolState pool, Loan loan, int64_t size) except -1:
    """Lend a buffer of ``size`` bytes, as ``BufferPool.allocate`` does; return False if that must wait or fail.

    The caller returns the loan, also after an exception.
    """
    cdef object free
    pool._lock.acquire()
    try:
        if pool._waiters or pool._closed:
            return False
        take_in(pool)
        free = pool._free.get(size)
        if free:
            loan.buffer = free.pop()
            loan.size = size
            pool._kept -= size
            return True
        if pool._available < size:  # kept buffers would have to be released
            return False
        pool._available -= size
        loan.size = size
    finally:
        pool._lock.release()
    loan.buffer = PyByteArray_FromStringAndSize(NULL, size)
    return True
