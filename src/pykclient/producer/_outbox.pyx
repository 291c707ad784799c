"""The compiled form of ``outbox.py``.

C code handles only the common cases, and leaves all others to Python before it has changed anything: limits, errors and
their texts, waits, retries, transactions, codecs, batches with listeners. What it knows of are its own classes, and the
protocols of ``outbox.py``.

The lock of a partition's queue guards the counters of its batch, builder and sticky partition, with and without the
GIL. What is read without that lock is replaced as a whole, never changed: the metadata, the dict of topics, the current
sticky partition. The dicts only grow.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.pythread cimport (
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
)
from libc.stdint cimport int16_t, int32_t, int64_t

from pykclient.record._memory_records_builder cimport (
    LACKS_MEMORY,
    AppendState,
    append_record,
    estimated_size,
    is_full,
    is_plain,
    is_timestamp,
    new_builder,
    new_object_of,
    put_header,
    size_of,
    size_of_headers,
    takes_default_records,
    unchanging,
)
from pykclient.record._record_writing cimport size_of_bytes

from collections import deque
from heapq import heappush as _heappush

from pykclient.clock import FOREVER_MS, HERE, SYSTEM_CLOCK, interrupting
from pykclient.producer import outbox as python
from pykclient.record import MemoryRecordsBuilder
from pykclient.record.compression import NO_COMPRESSION, CompressionRatioEstimator, CompressionType
from pykclient.record.memory_records_builder import (
    BORROWED_AT_ONCE,
    COMPRESSION_RATE_ESTIMATION_FACTOR,
    compute_attributes,
    spare_records as _spare_records,
)
from pykclient.record.record_batch import (
    CURRENT_MAGIC_VALUE,
    MAX_INT32,
    MAX_RECORD_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
)
from pykclient.types import CREATE_TIME

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define IS_FREE_THREADED 1
    #else
    #define IS_FREE_THREADED 0
    #endif

    /* Until Python 3.11, any allocation of a tuple may start the garbage collector, and that a __del__. */
    #if PY_VERSION_HEX < 0x030C0000
    #define pause_collector PyGC_Disable
    static inline void resume_collector(int was_enabled) { if (was_enabled) PyGC_Enable(); }
    #else
    static inline int pause_collector(void) { return 0; }
    static inline void resume_collector(int was_enabled) {}
    #endif

    /* Memory of dead futures, for the next ones: most programs drop the future of each ``send`` at once. Allocating
     * one, and having the garbage collector track it and forget it, costs as much as appending a record. Only the GIL
     * guards this, so builds without one keep none. A spare object's _result is None. */
    #define MAX_SPARE_FUTURES 1024
    static PyObject *spare_futures[MAX_SPARE_FUTURES];
    static int spare_count = 0;
    static PyTypeObject *spare_type = NULL;
    static Py_ssize_t result_offset = 0;

    static void dealloc_future(PyObject *self) {
        PyTypeObject *type = Py_TYPE(self);
        PyObject **place = (PyObject **)((char *)self + result_offset);
        PyObject *result = *place;
        PyObject_GC_UnTrack(self);
        *place = Py_NewRef(Py_None);
        Py_XDECREF(result);
        if (type == spare_type && spare_count < MAX_SPARE_FUTURES) {
            spare_futures[spare_count++] = self;
        } else {
            Py_DECREF(Py_None);
            type->tp_free(self);
        }
        Py_DECREF(type);
    }

    /* Keep the memory of futures of this type, whose instances have nothing but the fields of FutureState. */
    static void keep_spare_futures(PyObject *type_object, Py_ssize_t offset) {
        PyTypeObject *type = (PyTypeObject *)type_object;
        if (IS_FREE_THREADED || type->tp_basicsize != type->tp_base->tp_basicsize || type->tp_itemsize
            || type->tp_finalize || type->tp_del || !PyType_IS_GC(type)) return;
        result_offset = offset;
        spare_type = (PyTypeObject *)Py_NewRef(type_object);
        type->tp_dealloc = dealloc_future;
    }

    static inline PyObject *new_future_of(PyObject *type, PyObject *no_arguments) {
        if (type == (PyObject *)spare_type && spare_count) return PyObject_Init(spare_futures[--spare_count], spare_type);
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, no_arguments, NULL);
    }
    """
    bint IS_FREE_THREADED
    int pause_collector()
    void resume_collector(int was_enabled)
    void keep_spare_futures(object type, Py_ssize_t result_offset)
    object new_future_of(object type, object no_arguments)
    bint PyObject_IS_GC(object value)
    void PyObject_GC_UnTrack(PyObject *object)
    int PyObject_GC_IsTracked(PyObject *object)


cdef object here = HERE, heappush = _heappush, python_batch = python.BatchState
cdef object try_append_python = python_batch.try_append, close_python = python_batch.close
cdef object set_producer_state_python = python_batch.set_producer_state
cdef object drain_python = python.drain_queues
cdef object queued = python.QUEUED, drained = python.DRAINED, answered = python.ANSWERED, done = python.DONE
cdef object succeeded = python.SUCCEEDED, full_due_ms = python.FULL
cdef object system_clock = SYSTEM_CLOCK, no_compression = NO_COMPRESSION
cdef int64_t no_offset = python.NO_OFFSET, no_timestamp = python.NO_TIMESTAMP, no_producer_id = NO_PRODUCER_ID
cdef int64_t smallest_capacity = python.SMALLEST_CAPACITY, borrowed_at_once = BORROWED_AT_ONCE
cdef double estimation_factor = COMPRESSION_RATE_ESTIMATION_FACTOR
cdef object estimation = CompressionRatioEstimator.estimation, spare_records = _spare_records
cdef int64_t overhead_alone = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD
cdef int64_t forever_ms = FOREVER_MS, rest_ms = python.REST_MS, max_sequence = MAX_INT32
cdef int no_epoch = NO_PRODUCER_EPOCH, no_sequence = NO_SEQUENCE
cdef Py_ssize_t most_outdated = python.MOST_OUTDATED
cdef int64_t batch_overhead = RECORD_BATCH_OVERHEAD, max_int32 = MAX_INT32
cdef int current_magic = CURRENT_MAGIC_VALUE, create_time = CREATE_TIME
cdef int16_t plain_attributes = compute_attributes(CompressionType.NONE, CREATE_TIME)
cdef int16_t attributes_in_transaction = compute_attributes(CompressionType.NONE, CREATE_TIME, True)
cdef tuple _no_arguments = ()


# --- queues ------------------------------------------------------------------------------------------------------------

@cython.final
cdef class Mutex:
    """A lock that C code takes without a Python call. Waiting for it cannot be interrupted.

    The lock is not reentrant. A signal handler or a ``__del__`` that interrupts its holder, and needs the lock, gets an
    IllegalStateError instead of waiting forever.

    With a GIL, the GIL guards ``is_held``. ``lock`` then serves only threads that found the mutex held: after each
    release, it is free for a moment for one of them.
    """


    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError
        if not IS_FREE_THREADED:
            PyThread_acquire_lock(self.lock, 0)

    def __dealloc__(self):
        if self.lock != NULL:
            if not IS_FREE_THREADED:
                PyThread_release_lock(self.lock)
            PyThread_free_lock(self.lock)

    cdef int acquire(self) except -1:
        """Take the lock; return whether it was free, so that no other thread had a turn."""
        cdef unsigned long here = PyThread_get_thread_ident()
        cdef int was_free = 1
        if IS_FREE_THREADED:
            if not PyThread_acquire_lock(self.lock, 0):
                was_free = 0
                if self.owner == here:
                    raise interrupting("A producer's method")
                with nogil:
                    PyThread_acquire_lock(self.lock, 1)
        elif self.is_held:
            was_free = 0
            if self.owner == here:
                raise interrupting("A producer's method")
            self.waiting += 1
            while self.is_held:  # another thread may have taken the lock first
                with nogil:
                    PyThread_acquire_lock(self.lock, 1)
            self.waiting -= 1
        self.is_held = True
        self.owner = here
        return was_free

    cdef void release(self) noexcept:
        self.owner = 0
        if IS_FREE_THREADED:
            PyThread_release_lock(self.lock)
            return
        self.is_held = False
        if self.waiting:
            PyThread_release_lock(self.lock)

    def __enter__(self):
        self.acquire()

    def __exit__(self, error_type, error, traceback):
        self.release()


def new_lock():
    return Mutex()


cdef class QueueState:
    """The state of a PartitionQueue."""


    def __init__(self, topic_partition, batches):
        self.topic_partition = topic_partition
        self.batches = batches
        self.lock = Mutex()


@cython.final
cdef class StickyPartitionInfo:
    """The current partition and the bytes appended to it. Changes only under the lock of the partition's queue."""


    def __init__(self, partition):
        self.partition = partition
        self.produced_bytes = 0


cdef class StickyState:
    """The current partition of a topic. Any thread replaces it, and reads it without a lock."""

    cdef object current(self):
        with cython.critical_section(self):  # nothing with a GIL
            return self.partition_info

    @property
    def sticky(self):
        return self.current()

    @sticky.setter
    def sticky(self, value):
        with cython.critical_section(self):
            self.partition_info = value


# --- memory ------------------------------------------------------------------------------------------------------------

cdef enum:
    REFUSED = 0
    LENT = 1
    LEFT_TO_PYTHON = 2


cdef class Loan:
    """Memory that a thread has taken from the pool. It has no references but to bytes, so it is part of no cycle."""

    def __init__(self):
        pass


cdef class PoolState:
    """The free memory of a BufferPool."""

    def __init__(self, memory, kept_sizes):
        self.total_memory = memory
        self._lock = Mutex()
        self._available = memory
        self._free = {size: deque() for size in kept_sizes}
        self._waiters = deque()
        self.returned = deque()

    @property
    def available_about(self):
        return self._available + self._kept


cdef class BorrowedMemory(Loan):
    """The memory that a batch has borrowed beyond its buffer, as it grew."""

    def __init__(self, PoolState pool not None):
        self._pool = pool

    def __del__(self):
        if self.size:  # an exception has ended an append before its new batch was in a queue
            self._pool.returned.append(self)

    def borrow(self, size, if_plenty=False):
        cdef int64_t left = self._pool.total_memory // 2 if if_plenty else 0
        cdef int outcome = lend_more(self._pool, self, size, left)
        return self._pool.lend_more(self, size, left) if outcome == LEFT_TO_PYTHON else outcome == LENT

    def give_back(self, kept=0):
        if self.size > kept and not take_back(self._pool, self, kept):
            self._pool.take_back(self, kept)


@cython.final
cdef class Lender:
    """Creates the loans of a pool's batches that borrow memory."""

    def __init__(self, PoolState pool not None):
        self._pool = pool

    def __call__(self):
        return BorrowedMemory(self._pool)


cdef int take_in(PoolState pool) except -1:
    """Take back returned loans, as ``BufferPool._take_in`` does if no thread is in line. The caller holds the lock.

    Stop at a subclass: dropping it may run Python code, and so a signal handler, while this thread holds the lock.
    """
    cdef Loan loan
    cdef object free
    while pool.returned and (type(pool.returned[0]) is Loan or type(pool.returned[0]) is BorrowedMemory):
        loan = pool.returned[0]
        free = None if loan.buffer is None else pool._free.get(loan.size)
        if free is not None and loan.size == PyByteArray_GET_SIZE(loan.buffer):
            free.append(loan.buffer)
            pool._kept += loan.size
        else:
            pool._available += loan.size
        loan.size = 0
        loan.buffer = None
        pool.returned.popleft()
    return 0


cdef bint take_back(PoolState pool, Loan borrowed, int64_t kept) except -1:
    """Take back all but ``kept`` bytes, as ``BufferPool.take_back`` does; return False if Python must do it."""
    pool._lock.acquire()
    try:
        if pool._waiters:
            return False
        pool._available += borrowed.size - kept
        borrowed.size = kept
        take_in(pool)
    finally:
        pool._lock.release()
    return True


cdef int release_kept(PoolState pool, int64_t size) except -1:
    """Release kept buffers, as ``BufferPool._release`` does, until ``size`` bytes are available."""
    cdef int64_t buffer_size
    for buffer_size, free in pool._free.items():
        while free and pool._available < size:
            free.popleft()
            pool._kept -= buffer_size
            pool._available += buffer_size
    return 0


cdef bint lend_at_once(PoolState pool, Loan loan, int64_t size, int64_t to_borrow) except -1:
    """Lend a buffer of ``size`` bytes, as ``BufferPool.allocate`` does; return False if that must wait or fail.

    The caller returns the loan, also after an exception.
    """
    cdef object free
    pool._lock.acquire()
    try:
        if pool._waiters or pool._closed:
            return False
        take_in(pool)
        if to_borrow and pool._available + pool._kept < size + min(to_borrow, pool.total_memory - size):
            return False
        free = pool._free.get(size)
        if free:
            loan.buffer = free.pop()
            loan.size = size
            pool._kept -= size
            return True
        if pool._available < size:
            if pool._available + pool._kept < size:
                return False
            release_kept(pool, size)
        pool._available -= size
        loan.size = size
    finally:
        pool._lock.release()
    loan.buffer = PyByteArray_FromStringAndSize(NULL, size)
    return True


cdef int lend_more(PoolState pool, Loan borrowed, int64_t size, int64_t left) except -1:
    """Lend ``size`` bytes without a buffer, as ``BufferPool.lend_more`` does; leave it to that in uncommon cases."""
    pool._lock.acquire()
    try:
        if pool._waiters:
            return LEFT_TO_PYTHON
        take_in(pool)
        if pool.returned:
            return LEFT_TO_PYTHON
        if pool.waiting_elsewhere or pool._closed or pool._available + pool._kept < size + left:
            return REFUSED
        if pool._available < size:
            release_kept(pool, size)
        pool._available -= size
        borrowed.size += size
        return LENT
    finally:
        pool._lock.release()


cdef int64_t expected_need(AppendState builder) noexcept:
    """Return what ``MemoryRecordsBuilder._expected_need`` does."""
    cdef int64_t limit = builder._size_limit
    cdef int64_t times = 1 if builder.compression is no_compression else borrowed_at_once
    return min(times * limit, <int64_t>(builder._room / builder._size_factor) - limit)


cdef int borrow_ahead(AppendState builder, PoolState pool) except -1:
    """Borrow memory for a new batch, as ``MemoryRecordsBuilder.borrow_ahead`` does."""
    cdef int64_t expected = min(expected_need(builder), builder._max_uncompressed_size - builder._size_limit)
    cdef int result
    if expected <= 0:
        return 0
    builder.memory = BorrowedMemory(pool)
    result = lend_more(pool, <BorrowedMemory>builder.memory, expected, pool.total_memory // 2)
    if result == LENT:
        builder._size_limit += expected
    elif result == LEFT_TO_PYTHON:
        (<object>builder).borrow_ahead()
    return 0


cdef bint borrow_for_record(AppendState builder) except -1:
    """Borrow memory as ``MemoryRecordsBuilder._borrow`` does, for the record that the builder last had no memory for.

    Return False if Python must do it.
    """
    cdef int64_t limit = builder._size_limit
    cdef int64_t missing = builder._uncompressed_size + builder.refused_size - limit
    cdef int64_t allowed = builder._max_uncompressed_size - limit
    cdef int64_t more = min(max(expected_need(builder), missing), allowed)
    cdef PoolState pool
    if (
        missing > allowed
        or type(builder._lender) is not Lender
        or not (builder.memory is None or type(builder.memory) is BorrowedMemory)
    ):
        return False
    pool = (<Lender>builder._lender)._pool
    if builder.memory is None:
        builder.memory = BorrowedMemory(pool)
    if lend_more(pool, <BorrowedMemory>builder.memory, more, 0) != LENT:
        return False
    builder._size_limit = limit + more
    return True


# --- records, batches and their results --------------------------------------------------------------------------------

cdef class ResultState:
    """The fields of a ProduceRequestResult."""

    def __init__(self, topic_partition, clock=system_clock, sender_thread=None):
        self._clock = clock
        self.sender_thread = sender_thread
        self.topic_partition = topic_partition
        self.base_offset = no_offset
        self.log_append_time_ms = no_timestamp
        self._lock = Mutex() if sender_thread is None else sender_thread.results_lock
        self._waiting = ()
        self.listeners = []

    def settle_at_once(self):
        return settle_at_once(self)


cdef object put_last_first_python = python.put_last_first


def put_last_first(list listeners not None):
    cdef Py_ssize_t number, last = -1
    for entry in listeners:  # deliveries are in order, only callbacks of futures may not be
        if not isinstance((<tuple?>entry)[0], FutureState):
            return put_last_first_python(listeners)
        number = (<FutureState>(<tuple>entry)[0]).index
        if number < last:
            return put_last_first_python(listeners)
        last = number
    listeners.reverse()


cdef bint settle_at_once(ResultState result) except -1:
    cdef object waiting
    result._lock.acquire()
    try:
        if result.listeners:
            return False
        waiting = result._waiting
        result.completed = True
        result.settled = True
        result.sender_thread = None
        result._waiting = ()
    finally:
        result._lock.release()
    for signal in waiting:
        signal.set()
    return True


cdef class BatchState:
    """The fields of a ProducerBatch."""

    def __init__(
        self, topic_partition, builder, created_ms, is_split_batch=False, clock=system_clock, sender_thread=None
    ):
        cdef object kind = type(self)
        self._clock = clock
        self.topic_partition = topic_partition
        self.created_ms = created_ms
        self.last_attempt_ms = created_ms
        self.produce_future = kind.result_type(topic_partition, clock, sender_thread)
        self._future_type = kind.future_type
        self.state = queued
        self.is_split_batch = is_split_batch
        self.is_open = True
        self.compression_ratio = 1.0
        self._builder = builder
        self.producer_id = self._builder.producer_id
        self.producer_epoch = self._builder.producer_epoch
        self.base_sequence = self._builder.base_sequence

    @property
    def record_count(self):
        return self._builder.num_records

    @property
    def records(self):
        cdef AppendState builder = self._builder
        if builder.is_closed and type(builder._buffer) is bytearray:
            return memoryview(builder._buffer)[: builder._position]
        return (<object>builder).build()

    @property
    def borrowed(self):
        return self._builder.memory

    @property
    def is_full(self):
        return not self.is_open or is_full(self._builder)

    @property
    def estimated_size_in_bytes(self):
        return estimated_size(self._builder)

    def try_append(self, timestamp_ms, key, value, headers, on_delivery):
        cdef int64_t timestamp, size
        cdef Py_ssize_t headers_size
        cdef FutureState future
        cdef object written
        if (
            is_plain(key)
            and is_plain(value)
            and is_timestamp(timestamp_ms, &timestamp)
            and self._builder is not None
            and takes_default_records(self._builder)
        ):
            written = unchanging(headers)
            headers_size = size_of_headers(written) if written else 1
            if headers_size > 0:
                size = append_record(self._builder, timestamp, key, value, written, headers_size)
                if not size:
                    return None
                if size != LACKS_MEMORY:
                    future = new_future(self, timestamp, key, value, size)
                    if on_delivery is not None:
                        add_delivery(self.produce_future.listeners, future, on_delivery)
                    return future
        return try_append_python(self, timestamp_ms, key, value, headers, on_delivery)

    def close(self):
        close_batch(self)

    def set_producer_state(self, producer_id, producer_epoch, base_sequence, is_transactional=False):
        cdef AppendState builder = self._builder
        if builder.is_closed:
            return set_producer_state_python(self, producer_id, producer_epoch, base_sequence, is_transactional)
        builder.producer_id = self.producer_id = producer_id
        builder.producer_epoch = self.producer_epoch = producer_epoch
        builder.base_sequence = self.base_sequence = base_sequence
        builder.is_transactional = is_transactional

    def decide(self, final_state, base_offset, log_append_time_ms, error_for=None):
        if self.final_state is not None:
            return self._decided_before(final_state)
        decide(self, final_state, base_offset, log_append_time_ms, error_for)
        return True


cdef int decide(
    BatchState batch, object final_state, int64_t base_offset, int64_t log_append_time_ms, object error_for
) except -1:
    cdef ResultState result = batch.produce_future
    result.base_offset = base_offset
    result.log_append_time_ms = log_append_time_ms
    result.error_for = error_for
    result.record_count = batch._builder.num_records
    result.created_ms = batch.created_ms
    batch.final_state = final_state
    return 0


cdef bint close_plain(AppendState state) except -1:
    """Close a builder of records of an application, as ``MemoryRecordsBuilder.close`` does.

    Return False if the twin must close it. Its records may then be compressed, but nothing else has changed.
    """
    cdef int16_t attributes
    cdef int64_t last_delta = state.last_offset - state.base_offset
    if (
        state.aborted
        or state.is_closed
        or state.magic != current_magic
        or state.is_control_batch
        or type(state._buffer) is not bytearray
        or state._header_size != batch_overhead
        or not 0 < state.num_records <= max_int32
        or not (state.has_last_offset and state.has_base_timestamp and 0 <= last_delta <= max_int32)
        or not state._uncompressed_size
        or state._timestamp_type != create_time
        or state._delete_horizon_ms >= 0
    ):
        return False
    if state.producer_id == no_producer_id:
        if state.is_transactional:
            return False
    elif not 0 <= state.producer_epoch <= 0x7FFF or state.base_sequence < 0:
        return False
    attributes = attributes_in_transaction if state.is_transactional else plain_attributes
    if state.compression is not no_compression:
        attributes |= <int16_t>state.compression.type.id
        if state._records is not state._buffer:
            (<object>state).close_for_record_appends()
    if (
        state._records is not state._buffer
        or type(state._buffer) is not bytearray
        or not batch_overhead <= state._position <= min(PyByteArray_GET_SIZE(state._buffer), max_int32)
    ):
        return False
    state._append_closed = True
    put_header(
        state._buffer,
        state._position,
        state.base_offset,
        <int32_t>last_delta,
        attributes,
        state.base_timestamp,
        state._max_timestamp,
        state.producer_id,
        <int16_t>state.producer_epoch,
        state.base_sequence,
        state._partition_leader_epoch,
        <int32_t>state.num_records,
    )
    state.compression_ratio = <double>(state._position - state._header_size) / state._uncompressed_size
    state.is_closed = True
    return True


cdef int close_batch(BatchState batch) except -1:
    if not close_plain(batch._builder):
        close_python(batch)
        return 0
    batch.size_in_bytes = batch._builder._position
    batch.compression_ratio = batch._builder.compression_ratio
    batch.sequence_has_been_reset = False
    return 0


@cython.no_gc
cdef class FutureState:
    """The fields of a FutureRecordMetadata.

    There is one per record, so the garbage collector does not track them. While a future has listeners it is part of a
    reference cycle, which ends with its batch: a result drops its listeners when it is set.
    """


def keep_spares(type future_type not None):
    cdef FutureState future = <FutureState>new_future_of(future_type, _no_arguments)
    if future_type.__base__ is FutureState and not future_type.__dictoffset__ and not future_type.__weakrefoffset__:
        # The address of an object's field cannot be taken; ``_result`` lies directly before ``index``.
        keep_spare_futures(future_type, <char *>&future.index - <char *><PyObject *>future - sizeof(PyObject *))


cdef FutureState new_future(BatchState batch, int64_t timestamp, object key, object value, int64_t size):
    """Count the appended record and return its future."""
    cdef FutureState future = <FutureState>new_future_of(batch._future_type, _no_arguments)
    if PyObject_GC_IsTracked(<PyObject *>future):  # as instances of all Python classes, see FutureState
        PyObject_GC_UnTrack(<PyObject *>future)
    future._result = batch.produce_future
    future.index = batch._builder.num_records - 1
    future._timestamp_ms = timestamp
    future._key_size = size_of(key)
    future._value_size = size_of(value)
    batch.appended_bytes = size
    if size > batch.max_record_size:
        batch.max_record_size = size
    return future


cdef class TxnPartitionState:
    """The fields of a TxnPartitionEntry."""


cdef class SharedDelivery:
    """An ``on_delivery`` of adjacent records of a batch, which is stored with the first one's future, and told once."""

    cpdef bint takes(self, on_delivery, int64_t timestamp_ms) except -1:
        return on_delivery is self

    def after(self, count):
        return self

    def take(self, future):
        raise NotImplementedError


cdef int add_delivery(list listeners, FutureState future, object on_delivery) except -1:
    """Do what Python's ``add_delivery`` does. The caller holds the queue's lock, which a ``__del__`` might need."""
    cdef Py_ssize_t count = len(listeners)
    cdef object last
    cdef tuple entry
    cdef int was_enabled
    if count:
        last = (<tuple>listeners[count - 1])[1]
        if isinstance(last, SharedDelivery) and (
            last is on_delivery or (<SharedDelivery>last).takes(on_delivery, future._timestamp_ms)
        ):
            return 0
    was_enabled = pause_collector()
    try:
        entry = (future, on_delivery, True)
    finally:
        resume_collector(was_enabled)
    if not PyObject_IS_GC(on_delivery):
        PyObject_GC_UnTrack(<PyObject *>entry)  # as the collector would, but before it looks at thousands of them
    listeners.append(entry)
    return 0


# --- records on their way into batches ---------------------------------------------------------------------------------

@cython.final
cdef class Route:
    """The data of a topic in one metadata snapshot and one of the accumulator's dicts. Immutable."""


@cython.final
cdef class Outbox:
    """The part of a RecordAccumulator through which the compiled ``send`` appends records. Thread: any."""

    def __init__(
        self,
        PoolState pool not None,
        waiting,
        dict incomplete not None,
        clock,
        sender_thread,
        lender,
        batch_type,
        *,
        batch_size,
        linger_ms,
        max_uncompressed_size,
        compression,
        is_transactional,
    ):
        self.pool = pool
        self.waiting = waiting
        self.changed_queues = waiting.changed_queues
        self.incomplete = incomplete
        self.clock = clock
        self.sender_thread = sender_thread
        self.lender = lender
        self.batch_type = batch_type
        self.builder_type = MemoryRecordsBuilder
        self.batch_size = batch_size
        self.switch_at = 2 * batch_size
        self.linger_ms = linger_ms
        self.max_uncompressed_size = max_uncompressed_size
        self.is_compressed = compression.type is not CompressionType.NONE
        self.compression = compression if self.is_compressed else no_compression
        self.is_transactional = is_transactional

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

    def capacity_of_next_batch(self, QueueState queue not None):
        return capacity_of_next_batch(self, queue)

    cdef Route route(self, object topic):
        """Return the data of ``topic``; None if its metadata or its queues are missing."""
        cdef Route route
        cdef object snapshot, topics, count, info
        with cython.critical_section(self):
            snapshot = self._snapshot
            topics = self._topics
        # The last route is valid until its snapshot or its dict is replaced. Only with the GIL is it safe to read an
        # attribute here while another thread replaces it, so builds without a GIL create a route per record.
        if not IS_FREE_THREADED:
            route = self.last_route
            if route is not None and topic is route.topic and snapshot is route.snapshot and topics is route.topics:
                return route
        if type(topic) is not str or snapshot is None:
            return None
        count = snapshot.cluster.partition_count_for_topic(topic)
        info = topics.get(topic)
        if count is None or info is None:
            return None
        route = Route()
        route.cluster = snapshot.cluster
        route.partition_count = count
        route.info = info
        route.partitioner = info.partitioner
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
                        if on_delivery is not None:
                            add_delivery(batch.produce_future.listeners, future, on_delivery)
                        if sticky is not None:
                            if sticky.produced_bytes + size < self.switch_at:
                                sticky.produced_bytes += size
                            else:
                                route.partitioner.update_partition_info(sticky, size, route.cluster, False)
        finally:
            queue.lock.release()
        return future


cdef int64_t size_alone(object key, object value, Py_ssize_t headers_size) noexcept:
    """Return an upper bound of the size of a batch with only this record."""
    return overhead_alone + size_of_bytes(size_of(key)) + size_of_bytes(size_of(value)) + headers_size


cdef BatchState new_batch(
    Outbox outbox, object topic_partition, object buffer, int64_t size, double ratio, int64_t now_ms
):
    """Return a new batch in `buffer` of `size` bytes, as the accumulator makes it.

    `ratio` is the expected one of compressed to uncompressed size; it is not used without a codec.
    """
    cdef AppendState builder
    cdef object records
    cdef int64_t limit, most
    if size >= outbox.batch_size and not outbox.is_compressed:
        builder = new_builder(outbox.builder_type, buffer, no_compression, size, None, 0x7FFFFFFF, None, 1)
    else:
        limit = max(size, outbox.batch_size)
        most = max(size, outbox.max_uncompressed_size)
        records = spare_records() if outbox.is_compressed else None
        builder = new_builder(
            outbox.builder_type,
            buffer,
            outbox.compression,
            limit,
            outbox.lender,
            most,
            records,
            ratio * estimation_factor if outbox.is_compressed else 1,
        )
    if outbox.is_compressed:
        borrow_ahead(builder, outbox.pool)
    return outbox.batch_type(topic_partition, builder, now_ms, False, outbox.clock, outbox.sender_thread)


cdef int64_t capacity_of_next_batch(Outbox outbox, QueueState queue) noexcept:
    cdef int64_t capacity
    if (outbox.pool._available + outbox.pool._kept) * (4 if outbox.is_compressed else 2) >= outbox.pool.total_memory:
        return outbox.batch_size
    capacity = max(queue.last_batch_bytes * 9 // 8, smallest_capacity)
    return min(capacity, outbox.batch_size)


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
):
    """Append a record of plain bytes to a new batch; return None, with nothing appended, where Python must do it.

    Set `wakes` if the sender must be woken; after an exception, it must be. `place` is as `Outbox.append` has left it.
    """
    cdef StickyPartitionInfo sticky = None
    cdef QueueState queue, full = None
    cdef BatchState batch
    cdef FutureState future = None
    cdef Loan loan
    cdef int64_t number = place.number
    cdef int64_t size, alone, now_ms, to_borrow = 0
    cdef double ratio = 1
    cdef bint is_due
    cdef Py_ssize_t count
    wakes[0] = False
    if outbox.is_transactional or outbox.is_closed or outbox.refuses or here.mark._is_owned():
        return None
    if place.full != NULL:
        full = <QueueState>place.full
    if number < 0:
        sticky = current_partition(outbox, route)
        if sticky is None:
            return None
        number = sticky.partition
    queue = outbox.queue(route, number, sticky)
    if queue is None:
        return None
    alone = size_alone(key, value, headers_size)
    size = max(alone, capacity_of_next_batch(outbox, queue))
    if outbox.is_compressed:
        ratio = estimation(route.topic, outbox.compression.type)
        if ratio < 1:
            to_borrow = <int64_t>min(size / ratio - size, borrowed_at_once * size, outbox.max_uncompressed_size)
    loan = Loan()
    try:
        if not lend_at_once(outbox.pool, loan, size, to_borrow):
            return None
        now_ms = outbox.clock.now_ms()
        batch = new_batch(outbox, queue.topic_partition, loan.buffer, size, ratio, now_ms)
        batch.loan = loan
        queue.lock.acquire()
        try:
            count = len(queue.batches)
            if (
                outbox.is_closed
                or outbox.refuses
                or (
                    sticky is not None
                    and (route.partitioner.current() is not sticky or sticky.produced_bytes >= outbox.batch_size)
                )
                or (count and (<BatchState>queue.batches[count - 1]).is_open)  # another thread's
                or append_record(batch._builder, timestamp, key, value, headers, headers_size) <= 0
            ):
                return None
            future = new_future(batch, timestamp, key, value, batch._builder._uncompressed_size)
            if on_delivery is not None:
                add_delivery(batch.produce_future.listeners, future, on_delivery)
            outbox.incomplete[batch] = None
            loan.belongs_to_batch = True
            queue.batches.append(batch)
            if full is not None:
                outbox.changed_queues.append(full)  # as Python: for the batch that is full, and for the new one
            outbox.changed_queues.append(queue)
            is_due = full is queue or count or is_full(batch._builder)
            if sticky is not None:
                sticky.produced_bytes += estimated_size(batch._builder)
                if sticky.produced_bytes >= (outbox.batch_size if is_full(batch._builder) else outbox.switch_at):
                    route.partitioner.update_partition_info(sticky, 0, route.cluster, True)
        finally:
            queue.lock.release()
    finally:
        if loan.size and not loan.belongs_to_batch:
            outbox.pool.returned.append(loan)
            outbox.pool.take_in_returned()
    # Python's ints: the time of the next look may have more than 64 bits.
    wakes[0] = needs_wakeup(outbox, queue, full_due_ms if is_due else now_ms + outbox.linger_ms) or (
        full is not None and full is not queue and needs_wakeup(outbox, full, full_due_ms)
    )
    return future


cdef StickyPartitionInfo current_partition(Outbox outbox, Route route):
    """Return the partition of the next batch, after a switch that an open batch had postponed; None if there is none."""
    cdef object found = route.partitioner.current()
    cdef StickyPartitionInfo sticky
    cdef QueueState queue
    cdef Py_ssize_t count
    if found is None or (<StickyPartitionInfo>found).produced_bytes < outbox.batch_size:
        return found
    sticky = <StickyPartitionInfo>found
    queue = outbox.queue(route, sticky.partition, sticky)
    if queue is None:
        return None
    queue.lock.acquire()
    try:
        count = len(queue.batches)
        if route.partitioner.current() is sticky and (not count or is_full_batch(queue.batches[count - 1])):
            route.partitioner.update_partition_info(sticky, 0, route.cluster, True)
    finally:
        queue.lock.release()
    return route.partitioner.current()


cdef bint needs_wakeup(Outbox outbox, QueueState queue, object due_ms) except -1:
    """Return what ``WaitingQueues.needs_wakeup`` does."""
    cdef object node
    if due_ms >= outbox.waiting.next_look_ms:
        return False
    node = queue.node
    return node is None or not node.is_blocked


# --- batches on their way to the sender and back -----------------------------------------------------------------------

def file_queues(waiting, dict queues, snapshot):
    cdef object file_python = waiting.file_queue, nodes = waiting.nodes, muted = waiting.muted
    cdef object leader = None, of_node = None, numbers = None
    cdef list heap = None
    cdef dict of_leader = None
    cdef QueueState queue
    cdef BatchState first
    cdef Py_ssize_t count
    cdef int64_t due_ms, expiry_ms
    cdef int64_t next_expiry_ms = waiting.next_expiry_ms
    cdef int64_t linger_ms = waiting.linger_ms, delivery_timeout_ms = waiting.delivery_timeout_ms
    for queue in queues:
        if queue.leader is not leader and queue.leader is not None:
            leader = queue.leader
            of_node = nodes.get(leader.id)
            if of_node is not None:
                of_leader, heap, numbers = of_node.waiting, of_node.due, of_node.numbers
        first = None
        due_ms = 0
        if queue.snapshot is snapshot and queue.leader is leader and of_node is not None:
            queue.lock.acquire()
            try:
                count = len(queue.batches)
                if count:
                    first = queue.batches[0]
                    if first.retry_backoff_ms or not (
                        first.current_leader_epoch is None or first.current_leader_epoch is queue.leader_epoch
                    ):
                        first = None
                if first is not None:
                    expiry_ms = first.created_ms + delivery_timeout_ms
                    if expiry_ms < next_expiry_ms:
                        next_expiry_ms = expiry_ms
                    if first.current_leader_epoch is None and queue.leader_epoch is not None:
                        first._attempts_when_leader_last_changed = first.attempts
                        first.current_leader_epoch = queue.leader_epoch
                    if linger_ms and count == 1 and first.is_open and not is_full(first._builder):
                        due_ms = max(due_ms, first.last_attempt_ms + linger_ms)
            finally:
                queue.lock.release()
        if first is None:
            waiting.next_expiry_ms = next_expiry_ms
            file_python(queue, snapshot)
            next_expiry_ms = waiting.next_expiry_ms
            leader = of_node = None  # the node may be a new one
            continue
        queue.topic_info.changes += 1
        if muted and queue.topic_partition in muted:
            due_ms = forever_ms
        of_leader.setdefault(queue)
        if queue.node is of_node and queue.due_ms == due_ms:
            continue
        queue.node = of_node
        queue.due_ms = due_ms
        if due_ms == forever_ms:
            continue
        heappush(heap, (due_ms, next(numbers), queue))
        if len(heap) > 2 * len(of_leader) + most_outdated:
            of_node.drop_outdated()
            heap = of_node.due
    waiting.next_expiry_ms = next_expiry_ms


# --- draining ----------------------------------------------------------------------------------------------------------

cdef TxnPartitionState entry_for(object entries, QueueState queue, BatchState first, object producer_id_and_epoch):
    """Return the sequence numbers of the queue's partition if `first` may be sent now; None where Python must tell."""
    cdef AppendState builder = first._builder
    cdef PyObject *found = PyDict_GetItemWithError(entries, queue.topic_partition)
    cdef TxnPartitionState entry
    if found == NULL:
        return None
    entry = <TxnPartitionState>found
    if (
        first.base_sequence != no_sequence
        or builder.is_closed
        or entry.producer_id_and_epoch is not producer_id_and_epoch
        or (entry.in_flight and not entry.is_known_to_broker)
        or entry.next_sequence + builder.num_records - 1 > max_sequence
    ):
        return None
    return entry


cdef int number(
    TxnPartitionState entry, BatchState batch, int64_t producer_id, int producer_epoch, int64_t now_ms
) except -1:
    """Do what ``ProducerIdManager.number`` does with a batch for which there is an entry, and numbers."""
    cdef AppendState builder = batch._builder
    cdef BatchState last
    if not entry.in_flight and now_ms - entry.last_numbered_ms >= rest_ms:
        entry.is_known_to_broker = False
    entry.last_numbered_ms = now_ms
    builder.producer_id = batch.producer_id = producer_id
    builder.producer_epoch = batch.producer_epoch = producer_epoch
    builder.base_sequence = batch.base_sequence = <int>entry.next_sequence
    builder.is_transactional = False
    entry.next_sequence += builder.num_records
    if entry.in_flight:
        last = entry.in_flight[len(entry.in_flight) - 1]
        if (
            last.producer_id != producer_id
            or last.producer_epoch != producer_epoch
            or last.base_sequence > batch.base_sequence
        ):
            (<object>entry).add_in_flight_batch(batch)
            return 0
    entry.in_flight.append(batch)
    return 0


cdef bint is_full_batch(BatchState batch) noexcept:
    return not batch.is_open or is_full(batch._builder)


def drain_queues(accumulator, drain):
    cdef object manager = accumulator.id_manager, waiting = accumulator.waiting, of_node = drain.of_node
    cdef object backlog = accumulator.backlog, muted = waiting.muted, changed_queues = waiting.changed_queues
    cdef object producer_id_and_epoch = None
    cdef object entries = None
    cdef dict held = accumulator.held
    cdef int64_t producer_id = 0, most = drain.max_size, now_ms = drain.now_ms, size = 0
    cdef int producer_epoch = 0
    cdef bint is_numbered = manager is not None
    cdef bint is_compressed = accumulator.is_compressed
    cdef list ready = drain.ready, queues = drain.queues
    cdef QueueState queue
    cdef BatchState first
    cdef TxnPartitionState entry = None
    cdef Py_ssize_t count
    cdef bint is_left
    if accumulator.is_ordered:
        drain_python(accumulator, drain)
        return
    if is_numbered:
        if manager.is_transactional or not manager.is_settled or not manager.numbers_as_usual:
            drain_python(accumulator, drain)
            return
        producer_id_and_epoch = manager.producer_id_and_epoch
        producer_id, producer_epoch = producer_id_and_epoch
        if producer_id < 0 or producer_epoch < 0:
            drain_python(accumulator, drain)
            return
        entries = manager.entries
    for queue in of_node.waiting:
        if muted and queue.topic_partition in muted:
            continue
        is_left = False
        first = None
        queue.lock.acquire()
        try:
            count = len(queue.batches)
            if not count:
                continue
            first = queue.batches[0]
            if first.retry_backoff_ms or first.state is not queued:
                is_left = True
            elif ready and size + estimated_size(first._builder) > most:
                of_node.has_due_rest = True
                break
            elif first.loan is not None and backlog is not None and (<Loan>first.loan).queued:
                is_left = True
            elif is_numbered:
                entry = entry_for(entries, queue, first, producer_id_and_epoch)
                is_left = entry is None
            if not is_left:
                held[first] = None
                first.state = drained
                queue.batches.popleft()
                if count > 1:
                    changed_queues.append(queue)
                    if count > 2 or is_full_batch(queue.batches[0]):
                        of_node.has_due_rest = True
        finally:
            queue.lock.release()
        if is_left:
            drain.size = size
            if not accumulator.drain_queue(queue, drain):
                break
            size = drain.size
            continue
        queues.append(queue)
        try:
            if is_numbered:
                number(entry, first, producer_id, producer_epoch, now_ms)
            (<object>first).close()
        except Exception as error:
            accumulator.fail_to_close(first, error)
            continue
        if is_compressed:
            accumulator.learn_ratio(first)
        queue.last_batch_bytes = first.size_in_bytes
        size += first.size_in_bytes
        if first.drained_ms < now_ms:
            first.drained_ms = now_ms
        ready.append(first)


# --- completing --------------------------------------------------------------------------------------------------------

cdef int note(TxnPartitionState entry, BatchState batch, int64_t base_offset) except -1:
    """Do what ``ProducerIdManager.handle_completed_batch`` does with a batch that has succeeded in time."""
    cdef int64_t count = batch._builder.num_records
    cdef int64_t producer_id
    cdef int producer_epoch
    producer_id, producer_epoch = entry.producer_id_and_epoch
    if producer_id == batch.producer_id and producer_epoch == batch.producer_epoch:
        entry.last_acked_sequence = max(entry.last_acked_sequence, batch.base_sequence + count - 1)
        entry.is_known_to_broker = True
    if base_offset != no_offset and base_offset + count - 1 > entry.last_acked_offset:
        entry.last_acked_offset = base_offset + count - 1
    if entry.in_flight and entry.in_flight[0] is batch:
        del entry.in_flight[0]
    else:
        (<object>entry).remove_in_flight_batch(batch)
    return 0


def succeed_written(register, dict batches, topic, written):
    cdef list strangers = [], late = []
    cdef object manager = register.id_manager, results = register.results
    cdef object returned = register.returned
    cdef dict held = register.held, incomplete = register.incomplete
    cdef object entries = None
    cdef tuple fields
    cdef object index, found
    cdef PyObject *entry = NULL
    cdef BatchState batch
    cdef int64_t base_offset, log_append_time_ms
    cdef bint is_common = not register.is_ordered
    if manager is not None:
        entries = manager.entries
        is_common = is_common and manager.numbers_as_usual
    for fields in written:
        index, base_offset, log_append_time_ms = fields[0], fields[2], fields[3]
        found = batches.pop((topic, index), None)
        if found is None:
            strangers.append(index)
            continue
        batch = <BatchState?>found
        if is_common and manager is not None:
            entry = PyDict_GetItemWithError(entries, batch.topic_partition)
        if (
            not is_common
            or batch.final_state is not None
            or batch.state is not answered
            or (manager is not None and entry == NULL)
        ):
            if not register.succeed(found, base_offset, log_append_time_ms):
                late.append(found)
            continue
        decide(batch, succeeded, base_offset, log_append_time_ms, None)
        if manager is not None:
            note(<TxnPartitionState>entry, batch, base_offset)
        if batch.produce_future.listeners:
            register.conclude(found, returned.append)
            continue
        if batch._builder.memory is not None:
            returned.append(batch._builder.memory)
        if batch.loan is not None:
            returned.append(batch.loan)
        if batch.produce_future.settled or settle_at_once(batch.produce_future):
            incomplete.pop(found, None)
        else:
            results.append(found)
        batch.state = done
        held.pop(found, None)
    return strangers, late
