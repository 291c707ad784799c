"""The compiled form of ``awaited_sends.py``."""

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t

from pykclient.aio._awaited_records cimport AwaitedRecords, untrack
from pykclient.producer._batch_start cimport append_in_new_batch
from pykclient.producer._record_fields cimport FutureState
from pykclient.producer._send_path cimport Place, Route, SendPath, SendState, append_plain
from pykclient.record._append_state cimport is_plain, is_timestamp, size_of_headers, unchanging

from pykclient.producer.buffer_pool import MustWait


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
            path = self.producer.path
        if path is None or not is_plain(key) or not is_plain(value):
            return None
        # Asking asyncio for the running loop would cost a system call before Python 3.12.
        if not may_start_batch and (PyThread_get_thread_ident() != self.thread or not self.is_running()):
            return None
        route = path.route(topic)
        if route is None:
            return None
        place.number = -1
        if partition is not None and not (
            is_timestamp(partition, &place.number) and 0 <= place.number < route.partition_count
        ):
            return None
        if has_timestamp and not (is_timestamp(timestamp_ms, &timestamp) and timestamp >= 0):
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
            try:
                record = append_in_new_batch(
                    self.producer, topic, path, route, &place, timestamp, key, value, written, headers_size, None
                )
            except MustWait:
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
