"""The compiled form of ``batch_start.py``: starting a batch with a common record.

It handles only the common case, and leaves all other cases to Python before it has changed anything: waits for memory,
switches of the sticky partition, errors.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t

from pykclient.producer._pool_state cimport Loan, PoolState, lend_at_once
from pykclient.producer._queue_state cimport QueueState, StickyPartitionInfo
from pykclient.producer._record_fields cimport BatchState, FutureState, ResultState, new_future
from pykclient.producer._send_path cimport Place, Route, SendPath, SendState, size_alone
from pykclient.record._append_state cimport (
    AppendState,
    append_record,
    estimated_size,
    is_full,
    new_builder,
    new_object_of,
)

from pykclient.producer.batch_start import SMALLEST_CAPACITY
from pykclient.producer.producer_batch import QUEUED
from pykclient.producer.future import NO_OFFSET, NO_TIMESTAMP, FutureRecordMetadata, ProduceRequestResult
from pykclient.producer.producer_batch import ProducerBatch
from pykclient.producer.waiting_queues import FULL
from pykclient.record import MemoryRecordsBuilder
from pykclient.record.compression import NO_COMPRESSION
from pykclient.record.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from pykclient.reentry import HERE

cdef object here = HERE
cdef object queued = QUEUED, full_due_ms = FULL
cdef tuple no_arguments = ()
cdef int64_t smallest_capacity = SMALLEST_CAPACITY, no_offset = NO_OFFSET
cdef int64_t no_timestamp = NO_TIMESTAMP, no_producer_id = NO_PRODUCER_ID
cdef int no_epoch = NO_PRODUCER_EPOCH, no_sequence = NO_SEQUENCE


cdef class BatchStart:
    """The parts of an accumulator of uncompressed batches that a new batch needs."""

    def __init__(
        self,
        PoolState pool,
        waiting,
        incomplete,
        clock,
        sender_thread,
        lender,
        *,
        batch_size,
        linger_ms,
        max_uncompressed_size,
    ):
        self.pool = pool
        self.waiting = waiting
        self.changed_queues = waiting.changed_queues
        self.incomplete = incomplete
        self.clock = clock
        self.sender_thread = sender_thread
        self.results_lock = sender_thread.results_lock
        self.lender = lender
        self.compression = NO_COMPRESSION
        self.batch_type = ProducerBatch
        self.builder_type = MemoryRecordsBuilder
        self.future_type = FutureRecordMetadata
        self.result_type = ProduceRequestResult
        self.batch_size = batch_size
        self.linger_ms = linger_ms
        self.max_uncompressed_size = max_uncompressed_size


cdef BatchState new_batch(BatchStart start, object topic_partition, object buffer, int64_t size, int64_t now_ms):
    """Return a new batch in `buffer` of `size` bytes, as the accumulator makes it."""
    cdef bint borrows = size < start.batch_size
    cdef int64_t largest = max(start.max_uncompressed_size, size)
    cdef BatchState batch = <BatchState>new_object_of(start.batch_type, no_arguments)
    cdef ResultState result = <ResultState>new_object_of(start.result_type, no_arguments)
    result._clock = start.clock
    result.sender_thread = start.sender_thread
    result.topic_partition = topic_partition
    result.base_offset = no_offset
    result.log_append_time_ms = no_timestamp
    result._lock = start.results_lock
    result._waiting = ()
    result.listeners = []
    batch._clock = start.clock
    batch.topic_partition = topic_partition
    batch.created_ms = batch.last_attempt_ms = now_ms
    batch.produce_future = result
    batch._future_type = start.future_type
    batch.state = queued
    batch.is_open = True
    batch.compression_ratio = 1.0
    if borrows:
        batch._builder = new_builder(
            start.builder_type,
            buffer,
            start.compression,
            start.batch_size,
            start.lender,
            largest,
        )
    else:
        batch._builder = new_builder(start.builder_type, buffer, start.compression, size, None, 0x7FFFFFFF)
    batch.producer_id = no_producer_id
    batch.producer_epoch = no_epoch
    batch.base_sequence = no_sequence
    return batch


cdef int64_t capacity_of_next_batch(BatchStart start, QueueState queue) noexcept:
    """Return `RecordAccumulator._capacity_of_next_batch` for an uncompressed batch."""
    cdef int64_t capacity
    if (start.pool._available + start.pool._kept) * 2 >= start.pool.total_memory:
        return start.batch_size
    capacity = max(queue.last_batch_bytes * 9 // 8, smallest_capacity)
    return min(capacity, start.batch_size)


cdef FutureState start_batch(
    BatchStart start,
    SendPath path,
    Route route,
    Place *place,
    int64_t timestamp,
    object key,
    object value,
    object headers,
    Py_ssize_t headers_size,
    object on_delivery,
    bint *wakes,
):
    """Append a record of plain bytes to a new batch; return None, with nothing changed, where Python must do it.

    Set `wakes` if the sender must be woken. `place` is as `append_plain` has left it.
    """
    cdef StickyPartitionInfo sticky = None
    cdef QueueState queue
    cdef BatchState batch
    cdef FutureState future = None
    cdef Loan loan
    cdef object found
    cdef tuple entry
    cdef int64_t number = place.number
    cdef int64_t size, alone, now_ms
    cdef bint is_due
    cdef Py_ssize_t count
    wakes[0] = False
    if start is None or path.is_transactional or path.is_closed or path.refuses or here.mark._is_owned():
        return None
    if number < 0:
        found = route.partitioner.current()
        if found is None:
            return None
        sticky = <StickyPartitionInfo>found
        number = sticky.partition
    queue = path.queue(route, number, sticky)
    if queue is None or (place.full != NULL and <object>place.full is not queue):
        return None
    alone = size_alone(key, value, headers_size)
    if sticky is not None and sticky.produced_bytes + alone >= start.batch_size:
        return None  # the partition may have to change now
    size = max(alone, capacity_of_next_batch(start, queue))
    loan = Loan()
    try:
        if not lend_at_once(start.pool, loan, size):
            return None
        now_ms = start.clock.now_ms()
        batch = new_batch(start, queue.topic_partition, loan.buffer, size, now_ms)
        batch.loan = loan
        # Created before taking the lock: a new tuple may start the garbage collector, and that a __del__ that calls
        # send().
        entry = None if on_delivery is None else (None, on_delivery, True)
        queue.lock.acquire()
        try:
            count = len(queue.batches)
            if (
                path.is_closed
                or path.refuses
                or (
                    sticky is not None
                    and (
                        route.partitioner.current() is not sticky or sticky.produced_bytes + alone >= start.batch_size
                    )
                )
                or (count and (<BatchState>queue.batches[count - 1]).is_open)  # another thread's
                or append_record(batch._builder, timestamp, key, value, headers, headers_size) <= 0
            ):
                return None
            future = new_future(batch, timestamp, key, value, batch._builder._uncompressed_size)
            if entry is not None:
                Py_INCREF(future)
                PyTuple_SET_ITEM(entry, 0, future)
                Py_DECREF(None)  # the future has replaced it
                batch.produce_future.listeners.append(entry)
            if sticky is not None:
                sticky.produced_bytes += estimated_size(batch._builder)
            start.incomplete[batch] = None
            loan.belongs_to_batch = True
            queue.batches.append(batch)
            start.changed_queues.append(queue)
            if place.full != NULL:
                start.changed_queues.append(queue)  # twice, as Python: for the batch that is full, and for the new one
            is_due = place.full != NULL or count or is_full(batch._builder)
        finally:
            queue.lock.release()
    finally:
        if loan.size and not loan.belongs_to_batch:
            start.pool.returned.append(loan)
            start.pool.take_in_returned()
    # Python's ints: the time of the next look may have more than 64 bits.
    if (full_due_ms if is_due else now_ms + start.linger_ms) < start.waiting.next_look_ms:
        found = queue.node
        wakes[0] = found is None or not found.is_blocked
    return future


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

    `place` is as `append_plain` has left it. Raises what `_send_in_new_batch` does.
    """
    cdef bint wakes
    cdef FutureState future = start_batch(
        path.start, path, route, place, timestamp, key, value, headers, headers_size, on_delivery, &wakes
    )
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
