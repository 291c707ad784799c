# Sending a record, for the producers of asyncio and in confluent-kafka's shape.

from libc.stdint cimport int64_t

from pykclient.producer._outbox cimport FutureState, Outbox, Place, Route


cdef class SendPath:
    cdef Outbox outbox
    cdef object clock
    cdef object key_serializer
    cdef object value_serializer
    cdef object share
    cdef bint plain_keys
    cdef bint plain_values
    cdef bint ignore_keys
    cdef int64_t max_record_size


cdef class SendState:
    cdef object path  # read it in a critical section: another thread may replace it


cdef Route checked_route(
    SendPath path, object topic, object partition, object timestamp_ms, Place *place, int64_t *timestamp
)
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
cdef object send_record(
    SendState producer,
    object topic,
    object value,
    object key,
    object headers,
    object partition,
    object timestamp_ms,
    object on_delivery,
)
