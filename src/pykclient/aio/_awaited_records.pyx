"""The compiled form of ``awaited_records.py``."""

cimport cython
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc

from pykclient.producer._outbox cimport FutureState, Place, Route
from pykclient.producer._send cimport SendPath, SendState, append_in_new_batch, append_plain, checked_route
from pykclient.record._memory_records_builder cimport is_plain, size_of_headers, unchanging

from _asyncio import Future as AsyncioFuture
from asyncio import InvalidStateError

from pykclient.aio.awaited_records import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata, settle

cdef extern from *:
    """
    #define NEW_TUPLE_OF(type, arguments) PyTuple_Type.tp_new((PyTypeObject *)(type), arguments, NULL)
    """
    object NEW_TUPLE_OF(object type, object arguments)
    void PyObject_GC_Track(PyObject *object)
    void PyObject_GC_UnTrack(PyObject *object)
    int PyObject_GC_IsTracked(PyObject *object)


@cython.final
cdef class AwaitedRecords:
    """The records of a batch and their futures. Thread: the loop's.

    Many futures may be pending, and the garbage collector would look at all of them again and again. A pending future
    and one with a result are not part of a cycle that only the collector could end: the first is set some day, and the
    second refers to numbers and text. So they are not tracked. Futures that get an exception, or were cancelled, are.
    """

    cdef PyObject **pairs  # each record, and behind it its future; owned
    cdef Py_ssize_t count, capacity
    cdef bint has_acks
    cdef list resumed

    def __init__(self, bint has_acks, list resumed=None):
        self.has_acks = has_acks
        self.resumed = resumed

    def __dealloc__(self):
        cdef Py_ssize_t index
        for index in range(2 * self.count):
            Py_DECREF(<object>self.pairs[index])
        free(self.pairs)

    def add(self, FutureState record not None, future):
        self.keep(record, future)

    cdef int keep(self, FutureState record, object future) except -1:
        cdef void *grown
        if self.count == self.capacity:
            grown = realloc(self.pairs, 2 * (2 * self.capacity + 8) * sizeof(PyObject *))
            if grown == NULL:
                raise MemoryError
            self.pairs = <PyObject **>grown
            self.capacity = 2 * self.capacity + 8
        Py_INCREF(record)
        Py_INCREF(future)
        self.pairs[2 * self.count] = <PyObject *>record
        self.pairs[2 * self.count + 1] = <PyObject *>future
        self.count += 1
        return 0

    cdef int leave_to_python(self) except -1:
        """Settle the futures in Python, which handles what happens to whole batches: errors, splits, a closed loop."""
        cdef list records = [], futures = []
        cdef Py_ssize_t index
        for index in range(self.count):
            records.append(<object>self.pairs[2 * index])
            futures.append(<object>self.pairs[2 * index + 1])
            track(futures[index])
        settle(records, futures, self.has_acks)
        return 0

    def __call__(self, FutureState first not None):
        cdef object result = first._result
        cdef object topic_partition, topic, partition, timestamp, timestamp_type = LOG_APPEND_TIME, metadata = None
        cdef FutureState record
        cdef Py_ssize_t index
        cdef int64_t base_offset
        future = <object>self.pairs[1]
        if result.parts is not None or result.error_for is not None or future.get_loop().is_closed():
            self.leave_to_python()
            return
        if self.resumed is not None and self.count == 1:
            callbacks = getattr(future, "_callbacks", None)  # see the Python form
            if callbacks and len(callbacks) == 1:
                wakeup, context = callbacks[0]
                future.remove_done_callback(wakeup)
                self.resumed.append((future, wakeup, context))
        topic_partition = result.topic_partition
        topic, partition = topic_partition
        base_offset = result.base_offset
        timestamp = result.log_append_time_ms
        has_own = timestamp == -1
        if has_own:
            timestamp_type = CREATE_TIME
        for index in range(self.count):
            record = <FutureState>self.pairs[2 * index]
            future = <object>self.pairs[2 * index + 1]
            if self.has_acks:
                metadata = NEW_TUPLE_OF(
                    RecordMetadata,
                    ((
                        topic,
                        partition,
                        topic_partition,
                        -1 if base_offset < 0 else base_offset + record.index,
                        record._timestamp_ms if has_own else timestamp,
                        timestamp_type,
                        -1,
                    ),),
                )
                PyObject_GC_UnTrack(<PyObject *>metadata)
            try:
                future.set_result(metadata)
            except InvalidStateError:  # it was cancelled
                track(future)


cdef int track(object future) except -1:
    if type(future) is AsyncioFuture and not PyObject_GC_IsTracked(<PyObject *>future):
        PyObject_GC_Track(<PyObject *>future)
    return 0


cdef int untrack(object future) except -1:
    if type(future) is AsyncioFuture:
        PyObject_GC_UnTrack(<PyObject *>future)
    return 0


@cython.final
cdef class AwaitedSends:
    """Sends the common records of an AIOKafkaProducer at once. Thread: the loop's."""

    cdef SendState producer
    cdef object create_future, is_running, memory
    cdef unsigned long thread
    cdef list resumed
    cdef bint has_acks

    def __init__(self, producer, loop, create_future, bint has_acks, memory, list resumed not None):
        self.memory = memory
        self.resumed = resumed
        self.producer = producer
        self.create_future = create_future
        self.is_running = loop.is_running
        self.thread = PyThread_get_thread_ident()
        self.has_acks = has_acks

    def send(self, topic, value, key, partition, timestamp_ms, headers, bint may_start_batch):
        cdef object future, entry, written = None
        cdef list listeners
        cdef SendPath path
        cdef Route route
        cdef FutureState record
        cdef AwaitedRecords awaited
        cdef int64_t timestamp = 0
        cdef Place place
        cdef Py_ssize_t headers_size = 1
        cdef bint has_timestamp = timestamp_ms is not None
        with cython.critical_section(self.producer):  # nothing with a GIL
            path = <SendPath>self.producer.path
        if path is None or not is_plain(key) or not is_plain(value):
            return None
        # Asking asyncio for the running loop would cost a system call before Python 3.12.
        if not may_start_batch and (PyThread_get_thread_ident() != self.thread or not self.is_running()):
            return None
        route = checked_route(path, topic, partition, timestamp_ms, &place, &timestamp)
        if route is None:
            return None
        if headers is not None:
            written = unchanging(headers)
            headers_size = size_of_headers(written)
            if headers_size <= 0:
                return None
        record = append_plain(path, route, &place, key, value, written, headers_size, has_timestamp, &timestamp, None)
        if record is None:
            if not (may_start_batch and place.starts_batch and self.memory.is_empty):
                return None
            record = append_in_new_batch(
                self.producer, topic, path, route, &place, timestamp, key, value, written, headers_size, None
            )
            if record is None:
                return None
            if record._result.completed:  # the record was refused
                raise record.exception
        future = self.create_future()
        untrack(future)
        # All of this runs on the loop's thread, which also completes batches: the batch is still open.
        listeners = record._result.listeners
        entry = listeners[len(listeners) - 1] if listeners else None
        if entry is not None and type((<tuple>entry)[1]) is AwaitedRecords:
            awaited = <AwaitedRecords>(<tuple>entry)[1]
        else:
            awaited = AwaitedRecords(self.has_acks, self.resumed if may_start_batch else None)
            listeners.append((record, awaited, False))
        awaited.keep(record, future)
        return future
