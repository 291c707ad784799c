# The pool's memory, for the compiled modules that start batches.

from libc.stdint cimport int64_t

from pykclient.producer._queue_state cimport Mutex
from pykclient.record._append_state cimport AppendState


cdef class Loan:
    cdef public bytearray buffer
    cdef public int64_t size
    cdef public int64_t queued
    cdef public bint belongs_to_batch


cdef class PoolState:
    cdef public int64_t _available
    cdef public int64_t _kept
    cdef public int64_t total_memory
    cdef public bint _closed
    cdef public Mutex _lock
    cdef public dict _free
    cdef public object _waiters
    cdef public object returned
    cdef public int64_t waiting_elsewhere


cdef class BorrowedMemory(Loan):
    cdef readonly PoolState _pool


cdef class Lender:
    cdef readonly PoolState _pool


cdef bint borrow_for_record(AppendState builder) except -1
cdef bint lend_at_once(PoolState pool, Loan loan, int64_t size) except -1
