"""The compiled form of ``pool_state.py``, and lending memory without a wait."""

cimport cython
from cpython.bytearray cimport PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from libc.stdint cimport int64_t

from collections import deque

from pykclient.producer._queue_state cimport Mutex
from pykclient.record._append_state cimport AppendState

cdef enum:
    REFUSED = 0
    LENT = 1
    LEFT_TO_PYTHON = 2


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


cdef class BorrowedMemory(Loan):
    """The memory that a batch has borrowed beyond its buffer, as it grew."""

    def __init__(self, PoolState pool not None):
        self._pool = pool

    def __del__(self):
        if self.size:  # an exception has ended an append before its new batch was in a queue
            self._pool.returned.append(self)

    def borrow(self, size, if_plenty=False):
        cdef int64_t left = self._pool.total_memory // 2 if if_plenty else 0
        cdef int outcome = lend_more(self._pool, self, size, left)
        return self._pool.lend_more(self, size, left) if outcome == LEFT_TO_PYTHON else outcome == LENT

    def give_back(self, kept=0):
        if self.size > kept:
            self._pool.take_back(self, kept)


@cython.final
cdef class Lender:
    """Creates the loans of a pool's batches that borrow memory."""

    def __init__(self, PoolState pool not None):
        self._pool = pool

    def __call__(self):
        return BorrowedMemory(self._pool)


cdef int take_in(PoolState pool) except -1:
    """Take back returned loans, as ``BufferPool._take_in`` does if no thread is in line. The caller holds the lock.

    Stop at a subclass: dropping it may run Python code, and so a signal handler, while this thread holds the lock.
    """
    cdef Loan loan
    cdef object free
    while pool.returned and (type(pool.returned[0]) is Loan or type(pool.returned[0]) is BorrowedMemory):
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


cdef int lend_more(PoolState pool, Loan borrowed, int64_t size, int64_t left) except -1:
    """Lend ``size`` bytes without a buffer, as ``BufferPool.lend_more`` does; leave it to that in uncommon cases."""
    pool._lock.acquire()
    try:
        if pool._waiters:
            return LEFT_TO_PYTHON
        take_in(pool)
        if pool.returned:
            return LEFT_TO_PYTHON
        if pool.waiting_elsewhere or pool._closed or pool._available + pool._kept < size + left:
            return REFUSED
        if pool._available < size:  # kept buffers have to be released
            return LEFT_TO_PYTHON
        pool._available -= size
        borrowed.size += size
        return LENT
    finally:
        pool._lock.release()


cdef bint borrow_for_record(AppendState builder) except -1:
    """Borrow memory as ``MemoryRecordsBuilder._borrow`` does, for the record that the builder last had no memory for.

    Only for uncompressed batches. Return False if Python must do it.
    """
    cdef int64_t limit = builder._size_limit
    cdef int64_t missing = builder._uncompressed_size + builder.refused_size - limit
    cdef int64_t allowed = builder._max_uncompressed_size - limit
    cdef int64_t more = min(max(min(limit, builder._room - limit), missing), allowed)
    cdef PoolState pool
    if (
        missing > allowed
        or builder._records is not builder._buffer
        or builder._size_factor != 1
        or type(builder._lender) is not Lender
        or not (builder.memory is None or type(builder.memory) is BorrowedMemory)
    ):
        return False
    pool = (<Lender>builder._lender)._pool
    if builder.memory is None:
        builder.memory = BorrowedMemory(pool)
    if lend_more(pool, <BorrowedMemory>builder.memory, more, 0) != LENT:
        return False
    builder._size_limit = limit + more
    return True
