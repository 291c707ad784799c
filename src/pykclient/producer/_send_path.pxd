# The way of a common record into a batch, for the compiled modules that send.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pykclient.producer._queue_state cimport QueueState, StickyPartitionInfo, StickyState
from pykclient.producer._record_fields cimport FutureState


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


cdef class SendPath:
    cdef public bint is_closed
    cdef public bint refuses
    cdef public object start
    cdef object _snapshot
    cdef object _topics
    cdef object clock
    cdef object key_serializer
    cdef object value_serializer
    cdef object share
    cdef bint is_transactional
    cdef bint plain_keys
    cdef bint plain_values
    cdef bint ignore_keys
    cdef int64_t max_record_size
    cdef int64_t switch_at
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


cdef class SendState:
    cdef SendPath path  # read it in a critical section: another thread may replace it


cdef int64_t size_alone(object key, object value, Py_ssize_t headers_size) noexcept
cdef FutureState append_plain(
    SendPath path,
    Route route,
    Place *place,
    object key_bytes,
    object value_bytes,
    object headers,
    Py_ssize_t headers_size,
    bint has_timestamp,
    int64_t *timestamp,
    object on_delivery,
)
