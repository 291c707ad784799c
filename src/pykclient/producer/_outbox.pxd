# The outbox, for the compiled modules that send records.

from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int64_t

from pykclient.record._memory_records_builder cimport AppendState


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
    cdef QueueState queue  # of that partition, once it has a record: see `Outbox.queue`


cdef class StickyState:
    cdef object partition_info

    cdef object current(self)


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


cdef class ResultState:
    cdef public object _clock
    cdef public Mutex _lock
    cdef public object _waiting
    cdef public object error_for
    cdef public object listeners
    cdef public object parts
    cdef public object sender_thread
    cdef public object topic_partition
    cdef public int64_t base_offset
    cdef public int64_t created_ms
    cdef public int64_t log_append_time_ms
    cdef public int64_t record_count
    cdef public bint completed
    cdef public bint settled


cdef class BatchState:
    cdef type _future_type
    cdef public AppendState _builder
    cdef public ResultState produce_future
    cdef public object _clock
    cdef public object current_leader_epoch
    cdef public object final_state
    cdef public object loan
    cdef public object state
    cdef public object topic_partition
    cdef public int64_t _attempts_when_leader_last_changed
    cdef public int64_t appended_bytes
    cdef public int64_t attempts
    cdef public int64_t created_ms
    cdef public int64_t drained_ms
    cdef public int64_t last_attempt_ms
    cdef public int64_t max_record_size
    cdef public int64_t producer_id
    cdef public int64_t retry_backoff_ms
    cdef public int64_t size_in_bytes
    cdef public double compression_ratio
    cdef public int base_sequence
    cdef public int producer_epoch
    cdef public bint in_retry
    cdef public bint is_open
    cdef public bint is_split_batch
    cdef public bint may_be_written
    cdef public bint sequence_has_been_reset


cdef class FutureState:
    cdef public object _result
    cdef public Py_ssize_t index
    cdef public int64_t _timestamp_ms
    cdef public Py_ssize_t _key_size
    cdef public Py_ssize_t _value_size


cdef FutureState new_future(BatchState batch, int64_t timestamp, object key, object value, int64_t size)


cdef class TxnPartitionState:
    cdef public list in_flight
    cdef public object producer_id_and_epoch
    cdef public object topic_partition
    cdef public int64_t last_acked_offset
    cdef public int64_t last_acked_sequence
    cdef public int64_t last_numbered_ms
    cdef public int64_t next_sequence
    cdef public bint is_known_to_broker


cdef class SharedDelivery:
    cpdef bint takes(self, on_delivery, int64_t timestamp_ms) except -1


cdef struct Place:
    int64_t number  # of the partition; negative if the sticky one is used
    bint starts_batch  # the record needs a new batch
    PyObject *full  # the queue whose batch had no room; borrowed from the topic, which never drops a queue


cdef class Route:
    cdef object topic
    cdef object snapshot
    cdef object topics
    cdef object cluster
    cdef object info
    cdef StickyState partitioner
    cdef Py_ssize_t partition_count


cdef class Outbox:
    cdef public bint is_closed
    cdef public bint refuses
    cdef object _snapshot
    cdef object _topics
    cdef object clock
    cdef PoolState pool
    cdef object waiting
    cdef object changed_queues
    cdef dict incomplete
    cdef object sender_thread
    cdef object lender
    cdef object batch_type
    cdef type builder_type
    cdef bint is_transactional
    cdef object compression
    cdef bint is_compressed
    cdef int64_t batch_size
    cdef int64_t switch_at
    cdef int64_t linger_ms
    cdef int64_t max_uncompressed_size
    cdef Route last_route

    cdef Route route(self, object topic)
    cdef QueueState queue(self, Route route, int64_t number, StickyPartitionInfo sticky)
    cdef FutureState append(
        self,
        QueueState queue,
        Route route,
        StickyPartitionInfo sticky,
        int64_t timestamp,
        object key,
        object value,
        object headers,
        Py_ssize_t headers_size,
        object on_delivery,
        Place *place,
    )


cdef int64_t size_alone(object key, object value, Py_ssize_t headers_size) noexcept
cdef FutureState start_batch(
    Outbox outbox,
    Route route,
    Place *place,
    int64_t timestamp,
    object key,
    object value,
    object headers,
    Py_ssize_t headers_size,
    object on_delivery,
    bint *wakes,
)
