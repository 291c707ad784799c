"""The compiled form of ``send.py``: sending a common record, for the blocking producer and for that of asyncio.

It handles only the common case, and leaves all other cases to Python before it has changed anything. So limits, errors
and their texts are in one place.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from pykclient.producer._outbox cimport (
    FutureState,
    Outbox,
    Place,
    QueueState,
    Route,
    StickyPartitionInfo,
    size_alone,
    start_batch,
)
from pykclient.producer.partitioner._hashing cimport murmur2_of
from pykclient.record._memory_records_builder cimport is_plain, is_timestamp, size_of, size_of_headers, unchanging

from types import GenericAlias

from pykclient.producer import send as python
from pykclient.producer.partitioner.hashing import POSITIVE

cdef extern from *:
    """
    #include <time.h>

    /* Milliseconds since the epoch, like time.time_ns() in clock.py. */
    static inline int64_t wall_clock_ms(void) {
        struct timespec now;
        timespec_get(&now, TIME_UTC);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    """
    int64_t wall_clock_ms() nogil

cdef int64_t record_overhead = python.RECORD_OVERHEAD
cdef int64_t positive = POSITIVE


@cython.final
cdef class SendPath:
    """The settings of a producer that a common record needs. Immutable. Thread: any."""

    def __init__(
        self,
        Outbox outbox not None,
        clock,
        key_serializer,
        value_serializer,
        *,
        plain_keys,
        plain_values,
        ignore_keys,
        max_record_size,
        share,
    ):
        self.outbox = outbox
        self.clock = clock
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.plain_keys = plain_keys
        self.plain_values = plain_values
        self.ignore_keys = ignore_keys
        self.max_record_size = max_record_size
        self.share = share


cdef Route checked_route(
    SendPath path, object topic, object partition, object timestamp_ms, Place *place, int64_t *timestamp
):
    """Return the data of a known topic, and set `place.number` and `timestamp`; return None where Python must look."""
    cdef Route route = path.outbox.route(topic)
    place.number = -1
    if route is None:
        return None
    if partition is not None and not (
        is_timestamp(partition, &place.number) and 0 <= place.number < route.partition_count
    ):
        return None
    if timestamp_ms is not None and not (is_timestamp(timestamp_ms, timestamp) and timestamp[0] >= 0):
        return None
    return route


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
):
    """Append a record of plain bytes to an open batch; return None, with nothing appended, where that is not possible.

    ``place.number`` is the record's own partition, or negative; a partition chosen by key is stored there. A record
    without a timestamp gets the current time, which is stored in ``timestamp``.
    """
    cdef QueueState queue
    cdef StickyPartitionInfo sticky = None
    cdef object found
    cdef int64_t number = place.number
    cdef int64_t size = max(size_of(key_bytes), 0) + max(size_of(value_bytes), 0)
    place.starts_batch = False
    place.full = NULL
    if headers_size == 1:
        size += record_overhead
    else:
        size = size_alone(key_bytes, value_bytes, headers_size)
    if size > path.max_record_size or path.outbox.refuses:
        return None
    if number < 0:
        if key_bytes is not None and not path.ignore_keys:
            number = (
                murmur2_of(<const uint8_t *>PyBytes_AS_STRING(key_bytes), PyBytes_GET_SIZE(key_bytes)) & positive
            ) % route.partition_count
            place.number = number
        else:
            found = route.partitioner.current()
            if found is None:
                return None
            sticky = <StickyPartitionInfo>found
            number = sticky.partition
    queue = path.outbox.queue(route, number, sticky)
    if queue is None:
        return None
    if not has_timestamp:
        timestamp[0] = wall_clock_ms() if path.clock is None else path.clock.wall_ms()
    return path.outbox.append(
        queue,
        route,
        sticky,
        timestamp[0],
        key_bytes,
        value_bytes,
        headers,
        headers_size,
        on_delivery,
        place,
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
):
    """Append a record of plain bytes to a new batch, in C code or in Python, and wake the sender if that is needed.

    `place` is as `append_plain` has left it. Returns and raises what `_send_in_new_batch` does.
    """
    cdef bint wakes
    cdef FutureState future
    try:
        future = start_batch(
            path.outbox, route, place, timestamp, key, value, headers, headers_size, on_delivery, &wakes
        )
    except BaseException:  # raised by a signal handler, such as KeyboardInterrupt
        producer._sender.wakeup()
        raise
    if future is None:
        return producer._send_in_new_batch(
            topic,
            None if place.number < 0 else place.number,
            (timestamp, key, value, () if headers is None else headers, on_delivery),
            size_alone(key, value, headers_size),
            route.info,
            route.cluster,
            None if place.full == NULL else <object>place.full,
        )
    if wakes:
        producer._wake_for_new_batch()
    return future


cdef class SendState:
    """``send`` of a producer, and the path of its common records. Thread: any."""

    __class_getitem__ = classmethod(GenericAlias)

    @property
    def _send_path(self):
        with cython.critical_section(self):  # nothing with a GIL
            return self.path

    @_send_path.setter
    def _send_path(self, value):
        with cython.critical_section(self):
            self.path = value

    def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None, on_delivery=None):
        return send_record(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)


cdef object send_record(
    SendState producer,
    object topic,
    object value,
    object key,
    object headers,
    object partition,
    object timestamp_ms,
    object on_delivery,
):
    """Do what ``send`` does, for compiled callers, too."""
    cdef SendPath path
    cdef Route route
    cdef FutureState future
    cdef int64_t timestamp = 0
    cdef Place place
    cdef bint has_timestamp = timestamp_ms is not None
    cdef Py_ssize_t headers_size = 1
    cdef object key_bytes = key, value_bytes = value, serialized = None, written = None
    with cython.critical_section(producer):  # nothing with a GIL
        path = <SendPath>producer.path
    if path is None:
        return producer._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    route = checked_route(path, topic, partition, timestamp_ms, &place, &timestamp)
    # The twin handles invalid arguments, before a serializer is called.
    if route is None or (on_delivery is not None and not callable(on_delivery)):
        return producer._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    if path.share is not None:
        headers, on_delivery = path.share(headers, on_delivery)
    if headers is not None:
        written = unchanging(headers)
        headers_size = size_of_headers(written)
        if headers_size < 0:
            return producer._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    if not (path.plain_keys and is_plain(key) and path.plain_values and is_plain(value)):
        try:
            if not (path.plain_keys and is_plain(key)):
                key_bytes = producer._serialize(path.key_serializer, "key", topic, headers, key)
            if not (path.plain_values and is_plain(value)):
                value_bytes = producer._serialize(path.value_serializer, "value", topic, headers, value)
        except Exception as error:
            return producer._failed_to_serialize(error, topic, partition, headers, on_delivery)
        serialized = (key_bytes, value_bytes)
        if headers is not None:  # a serializer may have added headers
            written = unchanging(headers)
            headers_size = size_of_headers(written)
    # Nothing changes until the record is appended, so the twin can still handle any uncommon case.
    if headers_size > 0:
        future = append_plain(
            path,
            route,
            &place,
            key_bytes,
            value_bytes,
            written,
            headers_size,
            has_timestamp,
            &timestamp,
            on_delivery,
        )
        if future is not None:
            return future
        if place.starts_batch:
            return append_in_new_batch(
                producer,
                topic,
                path,
                route,
                &place,
                timestamp,
                key_bytes,
                value_bytes,
                written,
                headers_size,
                on_delivery,
            )
        if not has_timestamp and timestamp:  # a clock is read once for each record
            timestamp_ms = timestamp
    if serialized is None:
        return producer._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    return producer._do_send(topic, value, key, headers, partition, timestamp_ms, on_delivery, serialized)


# For ``help``, and for tools that read signatures.
SendState.send.__doc__ = python.SendState.send.__doc__
SendState.send.__annotations__ = python.SendState.send.__annotations__
