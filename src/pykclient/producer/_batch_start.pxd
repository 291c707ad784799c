# Starting batches, for the compiled ``send``.

from libc.stdint cimport int64_t

from pykclient.producer._pool_state cimport PoolState
from pykclient.producer._record_fields cimport FutureState
from pykclient.producer._send_path cimport Place, Route, SendPath, SendState


cdef class BatchStart:
    cdef PoolState pool
    cdef object waiting
    cdef object changed_queues
    cdef dict incomplete
    cdef object clock
    cdef object sender_thread
    cdef object results_lock
    cdef object lender
    cdef object compression
    cdef object linger_ms
    cdef type batch_type
    cdef type builder_type
    cdef type future_type
    cdef type result_type
    cdef int64_t batch_size
    cdef int64_t max_uncompressed_size


cdef FutureState append_in_new_batch(
    SendState producer,
    object topic,
    SendPath path,
    Route route,
    Place *place,
    int64_t timestamp,
    object key,
    object value,
    object headers,
    Py_ssize_t headers_size,
    object on_delivery,
)
