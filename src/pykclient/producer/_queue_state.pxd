# The queues of partitions, for the compiled modules that append records.

from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int64_t


cdef class Mutex:
    cdef PyThread_type_lock lock
    cdef bint is_held
    cdef Py_ssize_t waiting
    cdef unsigned long owner  # set while held; another thread may read it, and sees that it is not the owner
    cdef int acquire(self) except -1
    cdef void release(self) noexcept


cdef class QueueState:
    cdef readonly object topic_partition
    cdef readonly object batches
    cdef readonly Mutex lock
    cdef public int64_t last_batch_bytes
    cdef public int64_t due_ms
    cdef public object leader
    cdef public object leader_epoch
    cdef public object snapshot
    cdef public object topic_info


cdef class StickyPartitionInfo:
    cdef readonly Py_ssize_t partition
    cdef public int64_t produced_bytes
    cdef QueueState queue  # of that partition, once it has a record: see `SendPath.queue` in _send_path.pyx


cdef class StickyState:
    cdef object partition_info

    cdef object current(self)
