"""The compiled form of ``send_path.py``: appending a common record of a producer.

It handles only the common case, and leaves all other cases to Python before it has changed anything. So limits, errors
and their texts are in one place.

The lock of a partition's queue guards the counters of its batch, builder and sticky partition, with and without the
GIL. What is read without that lock is replaced as a whole, never changed: the metadata, the dict of topics, the current
sticky partition. The dicts only grow. `SendPath` caches its last route only where the GIL guards that: see
`SendPath.route`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint8_t

from pykclient.producer._pool_state cimport borrow_for_record
from pykclient.producer._queue_state cimport QueueState, StickyPartitionInfo
from pykclient.producer._record_fields cimport BatchState, FutureState, is_shared, new_future
from pykclient.producer.partitioner._hashing cimport murmur2_of
from pykclient.record._append_state cimport LACKS_MEMORY, append_record, size_of, takes_default_records
from pykclient.record._record_writing cimport size_of_bytes

from pykclient.producer.partitioner.hashing import POSITIVE
from pykclient.producer.send_path import RECORD_OVERHEAD
from pykclient.record.record_batch import MAX_RECORD_OVERHEAD, RECORD_BATCH_OVERHEAD

cdef extern from *:
    """
    #include <time.h>

    #ifdef Py_GIL_DISABLED
    #define IS_FREE_THREADED 1
    #else
    #define IS_FREE_THREADED 0
    #endif

    /* Milliseconds since the epoch, like time.time_ns() in clock.py. */
    static inline int64_t wall_clock_ms(void) {
        struct timespec now;
        timespec_get(&now, TIME_UTC);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    """
    bint IS_FREE_THREADED
    int64_t wall_clock_ms() nogil

cdef int64_t record_overhead = RECORD_OVERHEAD
cdef int64_t overhead_alone = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD
cdef int64_t positive = POSITIVE


@cython.final
cdef class Route:
    """The data of a topic in one metadata snapshot and one of the accumulator's dicts. Immutable."""


@cython.final
cdef class SendPath:
    """The parts of a KafkaProducer that a common record needs, one lookup away. Thread: any."""

    def __init__(
        self,
        clock,
        key_serializer,
        value_serializer,
        *,
        is_transactional,
        plain_keys,
        plain_values,
        ignore_keys,
        max_record_size,
        batch_size,
        share,
    ):
        self.is_transactional = is_transactional
        self.clock = clock
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.plain_keys = plain_keys
        self.plain_values = plain_values
        self.ignore_keys = ignore_keys
        self.max_record_size = max_record_size
        self.switch_at = 2 * batch_size
        self.share = share

    @property
    def snapshot(self):
        with cython.critical_section(self):  # nothing with a GIL
            return self._snapshot

    @snapshot.setter
    def snapshot(self, value):
        with cython.critical_section(self):
            self._snapshot = value

    @property
    def topics(self):
        with cython.critical_section(self):
            return self._topics

    @topics.setter
    def topics(self, value):
        with cython.critical_section(self):
            self._topics = value

    cdef Route route(self, object topic):
        """Return the data of ``topic``; None if its metadata or its queues are missing."""
        cdef Route route
        cdef PyObject *found
        cdef object snapshot, topics
        with cython.critical_section(self):
            snapshot = self._snapshot
            topics = self._topics
        # The last route is valid until its snapshot or its dict is replaced. Only with the GIL is it safe to read an
        # attribute here while another thread replaces it, so builds without a GIL create a route per record.
        if not IS_FREE_THREADED:
            route = self.last_route
            if route is not None and topic is route.topic and snapshot is route.snapshot and topics is route.topics:
                return route
        if type(topic) is not str:
            return None
        route = Route()
        route.cluster = snapshot.cluster
        found = PyDict_GetItemWithError(route.cluster._partitions_by_topic, topic)
        if found == NULL:
            return None
        route.partition_count = len(<object>found)
        if IS_FREE_THREADED:
            route.info = topics.get(topic)
        else:
            found = PyDict_GetItemWithError(topics, topic)
            route.info = None if found == NULL else <object>found
        if route.info is None:
            return None
        route.partitioner = route.info.partitioner
        route.topic = topic
        route.snapshot = snapshot
        route.topics = topics
        if not IS_FREE_THREADED:
            self.last_route = route
        return route

    cdef QueueState queue(self, Route route, int64_t number, StickyPartitionInfo sticky):
        """Return the queue of partition ``number``, which is that of ``sticky`` if given; None if there is none yet."""
        cdef PyObject *found
        if IS_FREE_THREADED:
            return route.info.queues.get(number)
        if sticky is not None and sticky.queue is not None:
            return sticky.queue
        found = PyDict_GetItemWithError(route.info.queues, number)
        if found == NULL:
            return None
        if sticky is not None:
            sticky.queue = <QueueState>found
        return <QueueState>found

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
    ):
        """Append to the open batch; return None, with nothing appended, if there is none or it has no room.

        Set ``place.starts_batch`` if the queue has no batch, or a batch without room: that is then closed, and
        ``place.full`` is set.
        """
        cdef FutureState future = None
        cdef BatchState batch
        cdef Py_ssize_t count
        cdef int64_t size
        # Created before taking the lock: a new tuple may start the garbage collector, and that a __del__ that calls
        # send().
        cdef tuple entry = None if on_delivery is None else (None, on_delivery, True)
        cdef int was_free = queue.lock.acquire()
        try:
            count = len(queue.batches)
            # Another thread may have switched partitions while this one waited for the lock.
            if not count:
                place.starts_batch = True
            elif (
                not self.is_closed
                # A transaction that ends waits for the threads that hold this lock, and for no others.
                and not (self.is_transactional and self.refuses)
                and (sticky is None or (was_free and not IS_FREE_THREADED) or route.partitioner.current() is sticky)
            ):
                batch = queue.batches[count - 1]
                if takes_default_records(batch._builder):
                    size = append_record(batch._builder, timestamp, key, value, headers, headers_size)
                    if size == LACKS_MEMORY and borrow_for_record(batch._builder):
                        size = append_record(batch._builder, timestamp, key, value, headers, headers_size)
                    if size == 0:
                        batch.is_open = False
                        place.starts_batch = True
                        place.full = <PyObject *>queue
                    elif size > 0:
                        future = new_future(batch, timestamp, key, value, size)
                        if entry is not None and not is_shared(batch.produce_future.listeners, on_delivery):
                            Py_INCREF(future)
                            PyTuple_SET_ITEM(entry, 0, future)
                            Py_DECREF(None)  # the future has replaced it
                            batch.produce_future.listeners.append(entry)
                        if sticky is not None:
                            if sticky.produced_bytes + size < self.switch_at:
                                sticky.produced_bytes += size
                            else:
                                route.partitioner.update_partition_info(sticky, size, route.cluster, False)
        finally:
            queue.lock.release()
        return future


cdef class SendState:
    """The state of a KafkaProducer that its ``send`` reads first."""

    @property
    def _send_path(self):
        with cython.critical_section(self):
            return self.path

    @_send_path.setter
    def _send_path(self, SendPath value):
        with cython.critical_section(self):
            self.path = value


cdef int64_t size_alone(object key, object value, Py_ssize_t headers_size) noexcept:
    """Return an upper bound of the size of a batch with only this record."""
    return overhead_alone + size_of_bytes(size_of(key)) + size_of_bytes(size_of(value)) + headers_size


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
    if size > path.max_record_size or path.refuses:
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
    queue = path.queue(route, number, sticky)
    if queue is None:
        return None
    if not has_timestamp:
        timestamp[0] = wall_clock_ms() if path.clock is None else path.clock.wall_ms()
    return path.append(
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
