"""Appending records to batches.

Twins: ``record/memory_records_builder.py``, ``producer/producer_batch.py``, ``producer/accumulator_state.py``,
``producer/future.py``, ``producer/kafka_producer.py``, ``aio/awaited_records.py``.

This module has two kinds of code. *State classes* store the fields that each record changes as C numbers. The Python
classes inherit from them, so that everything but the hot methods is written once. *Functions* are these hot methods:
each handles only the common case, and passes all other cases to its Python twin before it has changed anything. So
limits, errors and their texts are in one place.

The locks are those of the twins. The lock of a partition's queue guards the counters of its batch, builder and sticky
partition, with and without the GIL. Data that is read without that lock (metadata, the current sticky partition) is
replaced as a whole, never changed. It is read with ``getattr``, which is safe with and without the GIL. The
accumulator's dicts only grow. `SendPath` caches its last route only where the GIL guards that: see `SendPath.route`.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from cpython.pythread cimport (
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
    PyThread_type_lock,
)
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc

from pykclient.producer.partitioner._murmur_hash cimport murmur2_of
from pykclient.record._record_writing cimport size_of_bytes, size_of_varint, write_bytes, write_varint, zigzag

from pykclient.reentry import interrupting

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

    /* The offset of a slot in the instances of a class; 0 if the attribute is not a slot. */
    #include <structmember.h>
    static Py_ssize_t slot_offset(PyObject *type, PyObject *name) {
        PyObject *slot = PyObject_GetAttr(type, name);
        Py_ssize_t offset = 0;
        if (slot == NULL) { PyErr_Clear(); return 0; }
        if (Py_TYPE(slot) == &PyMemberDescr_Type && ((PyMemberDescrObject *)slot)->d_member->type == T_OBJECT_EX)
            offset = ((PyMemberDescrObject *)slot)->d_member->offset;
        Py_DECREF(slot);
        return offset;
    }

    /* getattr, without the lookup if the attribute is a slot and the GIL makes that safe. */
    static inline PyObject *read_slot(PyObject *object, Py_ssize_t offset, PyObject *name) {
        if (!IS_FREE_THREADED && offset > 0) {
            PyObject *value = *(PyObject **)((char *)object + offset);
            if (value != NULL) return Py_NewRef(value);
        }
        return PyObject_GetAttr(object, name);
    }

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

    #define NEW_TUPLE_OF(type, arguments) PyTuple_Type.tp_new((PyTypeObject *)(type), arguments, NULL)
    """
    bint IS_FREE_THREADED
    int64_t wall_clock_ms() nogil
    Py_ssize_t slot_offset(object type, object name) noexcept
    object read_slot(object object, Py_ssize_t offset, object name)
    void keep_spare_futures(object type, Py_ssize_t result_offset)
    object new_future_of(object type, object no_arguments)
    object NEW_TUPLE_OF(object type, object arguments)
    void PyObject_GC_Track(PyObject *object)
    void PyObject_GC_UnTrack(PyObject *object)
    int PyObject_GC_IsTracked(PyObject *object)

cdef enum:
    HEADER_AND_LARGEST_OVERHEAD = 61 + 21  # RECORD_BATCH_OVERHEAD, MAX_RECORD_OVERHEAD
    RECORD_OVERHEAD = 128  # as in kafka_producer.py
    LACKS_MEMORY = -2


# --- common cases ------------------------------------------------------------------------------------------------------

cdef inline bint is_plain(object data) noexcept:
    """Return True for bytes or None, but not for subclasses, which may override anything."""
    return data is None or type(data) is bytes


cdef inline Py_ssize_t size_of(object data) noexcept:
    return -1 if data is None else PyBytes_GET_SIZE(data)


cdef inline const char *start_of(object data) noexcept:
    return NULL if data is None else PyBytes_AS_STRING(data)


cdef bint is_timestamp(object timestamp, int64_t *value) except -1:
    """Return whether ``timestamp`` is an int from -1 to 2^63 - 2: the difference of any two fits in 64 bits."""
    cdef int overflow = 0
    if type(timestamp) is not int:
        return False
    value[0] = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
    return not overflow and -1 <= value[0] < INT64_MAX


cdef inline object unchanging(object headers):
    """Return headers that no other thread can change between measuring and writing them."""
    return tuple(<list>headers) if type(headers) is list else headers


cdef Py_ssize_t size_of_headers(object headers) except -2:
    """Return the size of a record's headers and their count; -1 if the twin must handle them."""
    cdef Py_ssize_t size, name_size
    cdef object header, name
    if type(headers) is not tuple:
        return -1
    size = size_of_varint(<uint64_t>len(headers) << 1)
    for header in headers:
        if type(header) is not tuple or len(<tuple>header) != 2:
            return -1
        name = (<tuple>header)[0]
        if type(name) is not str or not is_plain((<tuple>header)[1]):
            return -1
        try:
            PyUnicode_AsUTF8AndSize(name, &name_size)
        except UnicodeEncodeError:
            return -1
        size += size_of_bytes(name_size) + size_of_bytes(size_of((<tuple>header)[1]))
    return size


cdef uint8_t *write_headers(uint8_t *at, object headers) except NULL:
    """Write headers measured by `size_of_headers`."""
    cdef Py_ssize_t name_size
    cdef const char *name
    cdef object header, value
    at = write_varint(at, <uint64_t>len(headers) << 1)
    for header in headers:
        name = PyUnicode_AsUTF8AndSize((<tuple>header)[0], &name_size)
        at = write_bytes(at, name, name_size)
        value = (<tuple>header)[1]
        at = write_bytes(at, start_of(value), size_of(value))
    return at


# --- state -------------------------------------------------------------------------------------------------------------

cdef class AppendState:
    """The fields of a MemoryRecordsBuilder that each record changes. Numbers have at most 64 bits."""

    cdef public object _records
    cdef public int64_t _position
    cdef public int64_t _room
    cdef public int64_t _uncompressed_size
    cdef public int64_t _size_limit
    cdef public double _size_factor
    cdef public int64_t _max_timestamp
    cdef public int64_t base_offset
    cdef public int64_t num_records
    cdef public int magic
    cdef public bint is_control_batch
    cdef public bint _append_closed
    cdef bint has_base_timestamp
    cdef int64_t base_timestamp
    cdef bint has_last_offset
    cdef int64_t last_offset

    @property
    def _base_timestamp(self):
        return self.base_timestamp if self.has_base_timestamp else None

    @_base_timestamp.setter
    def _base_timestamp(self, value):
        self.has_base_timestamp = value is not None
        self.base_timestamp = 0 if value is None else value

    @property
    def _last_offset(self):
        return self.last_offset if self.has_last_offset else None

    @_last_offset.setter
    def _last_offset(self, value):
        self.has_last_offset = value is not None
        self.last_offset = -1 if value is None else value


cdef class BatchState:
    """The fields of a ProducerBatch that each record changes or that its futures need."""

    cdef type _future_type
    cdef public AppendState _builder
    cdef public object produce_future
    cdef public bint is_open
    cdef public int64_t max_record_size
    cdef public int64_t appended_bytes

    @property
    def record_count(self):
        return self._builder.num_records

    @property
    def future_type(self):
        """A subclass of FutureState that adds no fields."""
        return self._future_type

    @future_type.setter
    def future_type(self, type future_type not None):
        if not issubclass(future_type, FutureState) or future_type.__new__ is not FutureState.__new__:
            raise TypeError(f"{future_type!r} does not create its instances like FutureState")
        self._future_type = future_type


@cython.no_gc
cdef class FutureState:
    """The fields of a FutureRecordMetadata.

    There is one per record, so the garbage collector does not track them. While a future has listeners it is part of a
    reference cycle, which ends with its batch: a result drops its listeners when it is set.
    """

    cdef public object _result
    cdef public Py_ssize_t index
    cdef public int64_t _timestamp_ms
    cdef public Py_ssize_t _key_size
    cdef public Py_ssize_t _value_size


cdef tuple _no_arguments = ()


def keep_spares(type future_type not None):
    """Keep the memory of dead instances of ``future_type`` for new ones. It adds no fields to FutureState."""
    cdef FutureState future = <FutureState>new_future_of(future_type, _no_arguments)
    if future_type.__base__ is FutureState and not future_type.__dictoffset__ and not future_type.__weakrefoffset__:
        # The address of an object's field cannot be taken; ``_result`` lies directly before ``index``.
        keep_spare_futures(future_type, <char *>&future.index - <char *><PyObject *>future - sizeof(PyObject *))


@cython.final
cdef class Mutex:
    """A lock that C code takes without a Python call. Waiting for it cannot be interrupted.

    The lock is not reentrant. A signal handler or a ``__del__`` that interrupts its holder, and needs the lock, gets an
    IllegalStateError instead of waiting forever.

    With a GIL, the GIL guards ``is_held``. ``lock`` then serves only threads that found the mutex held: after each
    release, it is free for a moment for one of them.
    """

    cdef PyThread_type_lock lock
    cdef bint is_held
    cdef Py_ssize_t waiting
    cdef unsigned long owner  # set while held; another thread may read it, and sees that it is not the owner

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

    cdef inline int acquire(self) except -1:
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

    cdef inline void release(self) noexcept:
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


@cython.final
cdef class StickyPartitionInfo:
    """The current partition and the bytes appended to it. Changes only under the lock of the partition's queue."""

    cdef readonly Py_ssize_t partition
    cdef public int64_t produced_bytes
    cdef QueueState queue  # of that partition, once it has a record: see `SendPath.queue`

    def __init__(self, partition):
        self.partition = partition
        self.produced_bytes = 0


cdef class QueueState:
    """The state of a PartitionQueue."""

    cdef readonly object topic_partition
    cdef readonly object batches
    cdef readonly Mutex lock

    def __init__(self, topic_partition, batches):
        self.topic_partition = topic_partition
        self.batches = batches
        self.lock = Mutex()


# --- appending ---------------------------------------------------------------------------------------------------------

cdef int64_t append_record(
    AppendState state, int64_t timestamp, object key, object value, object headers, Py_ssize_t headers_size
) except -1:
    """Append a record of plain bytes with its headers, whose size is known.

    Return its size in bytes, 0 if the batch has no room for it, or LACKS_MEMORY if the twin must borrow memory first.
    """
    cdef int64_t base_timestamp = state.base_timestamp if state.has_base_timestamp else timestamp
    cdef int64_t offset = state.last_offset + 1 if state.has_last_offset else state.base_offset
    cdef uint64_t timestamp_delta = zigzag(timestamp - base_timestamp)
    cdef uint64_t offset_delta = zigzag(offset - state.base_offset)
    cdef Py_ssize_t key_size = size_of(key), value_size = size_of(value)
    cdef int64_t body_size = (
        1
        + size_of_varint(timestamp_delta)
        + size_of_varint(offset_delta)
        + size_of_bytes(key_size)
        + size_of_bytes(value_size)
        + headers_size
    )
    cdef int64_t size = size_of_varint(<uint64_t>body_size << 1) + body_size
    cdef int64_t end
    cdef uint8_t *at
    if state._uncompressed_size:
        if <int64_t>(state._uncompressed_size * state._size_factor) + size > state._room:
            return 0
        if size > state._size_limit - state._uncompressed_size:
            return LACKS_MEMORY
    end = state._position + size
    if end > PyByteArray_GET_SIZE(state._records):
        try:
            PyByteArray_Resize(state._records, end)
        except BufferError:
            state._leave_buffer()
            PyByteArray_Resize(state._records, end)
    at = <uint8_t *>PyByteArray_AS_STRING(state._records) + state._position
    at = write_varint(at, <uint64_t>body_size << 1)
    at[0] = 0
    at = write_varint(at + 1, timestamp_delta)
    at = write_varint(at, offset_delta)
    at = write_bytes(at, start_of(key), key_size)
    at = write_bytes(at, start_of(value), value_size)
    if headers_size == 1:
        at[0] = 0
    else:
        write_headers(at, headers)
    state._position = end
    state._uncompressed_size += size
    state.has_last_offset = True
    state.last_offset = offset
    state.num_records += 1
    if timestamp > state._max_timestamp:
        state._max_timestamp = timestamp
    state.has_base_timestamp = True
    state.base_timestamp = base_timestamp
    return size


cdef inline bint takes_default_records(AppendState state) noexcept:
    """Return whether the builder is open, of format v2, and has valid offsets; otherwise its twin decides."""
    return (
        not state._append_closed
        and state.magic >= 2
        and not state.is_control_batch
        and type(state._records) is bytearray
        and state._position <= PyByteArray_GET_SIZE(state._records)
        and state.last_offset != INT64_MAX
    )


def try_append_to_builder(AppendState self, timestamp_ms, key, value, headers=()):
    """Append a record (twin: MemoryRecordsBuilder._try_append_python)."""
    cdef int64_t timestamp, size
    cdef Py_ssize_t headers_size
    cdef object written
    if is_plain(key) and is_plain(value) and is_timestamp(timestamp_ms, &timestamp) and takes_default_records(self):
        written = unchanging(headers)
        headers_size = size_of_headers(written) if written else 1
        if headers_size > 0:
            size = append_record(self, timestamp, key, value, written, headers_size)
            if size != LACKS_MEMORY:
                return size
    return self._try_append_python(timestamp_ms, key, value, headers)


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


cdef class SharedDelivery:
    """Twin: ``producer/future.py``."""


cdef inline bint is_shared(list listeners, object on_delivery):
    """Return whether the batch's last record has the same delivery, and shares it (twin: add_delivery)."""
    cdef Py_ssize_t count = len(listeners)
    return count > 0 and (<tuple>listeners[count - 1])[1] is on_delivery and isinstance(on_delivery, SharedDelivery)


def try_append_to_batch(BatchState self, timestamp_ms, key, value, headers, on_delivery):
    """Append a record (twin: ProducerBatch._try_append_python)."""
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
                if on_delivery is not None and not is_shared(self.produce_future.listeners, on_delivery):
                    self.produce_future.listeners.append((future, on_delivery, True))
                return future
    return self._try_append_python(timestamp_ms, key, value, headers, on_delivery)


# --- sending -----------------------------------------------------------------------------------------------------------

cdef struct Place:
    int64_t number  # of the partition; negative if the sticky one is used
    bint starts_batch  # the record needs a new batch
    PyObject *full  # the queue whose batch had no room; borrowed from the topic, which never drops a queue


@cython.final
cdef class Route:
    """The data of a topic in one metadata snapshot and one of the accumulator's dicts. Immutable."""

    cdef object topic
    cdef object snapshot
    cdef object topics
    cdef object cluster
    cdef object info
    cdef object partitioner
    cdef Py_ssize_t sticky_offset
    cdef Py_ssize_t partition_count

    cdef inline object sticky(self):
        return read_slot(self.partitioner, self.sticky_offset, "sticky")


@cython.final
cdef class SendPath:
    """The parts of a KafkaProducer that a common record needs, one lookup away.

    If ``clock`` is None, records get the machine's time. ``plain_keys`` and ``plain_values``: bytes and None need no
    serializer. Thread: any.
    """

    cdef object accumulator
    cdef Py_ssize_t topics_offset
    cdef Py_ssize_t closed_offset
    cdef object metadata
    cdef Py_ssize_t snapshot_offset
    cdef object transaction_manager
    cdef Py_ssize_t state_offset
    cdef object ready
    cdef object fatal_error
    cdef bint is_transactional
    cdef object clock
    cdef object key_serializer
    cdef object value_serializer
    cdef bint plain_keys
    cdef bint plain_values
    cdef bint ignore_keys
    cdef int64_t max_record_size
    cdef int64_t switch_at
    cdef object share
    cdef Route last_route

    def __init__(
        self,
        accumulator,
        metadata,
        transaction_manager,
        ready,
        fatal_error,
        is_transactional,
        clock,
        key_serializer,
        value_serializer,
        *,
        plain_keys,
        plain_values,
        ignore_keys,
        max_record_size,
        batch_size,
        share,
    ):
        self.accumulator = accumulator
        self.topics_offset = slot_offset(type(accumulator), "_topics")
        self.closed_offset = slot_offset(type(accumulator), "_closed")
        self.metadata = metadata
        self.snapshot_offset = slot_offset(type(metadata), "_snapshot")
        self.transaction_manager = transaction_manager
        self.state_offset = slot_offset(type(transaction_manager), "_state")
        self.ready = ready
        self.fatal_error = fatal_error
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

    cdef Route route(self, object topic):
        """Return the data of ``topic``; None if its metadata or its queues are missing."""
        cdef Route route
        cdef PyObject *found
        snapshot = read_slot(self.metadata, self.snapshot_offset, "_snapshot")
        topics = read_slot(self.accumulator, self.topics_offset, "_topics")
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
        route.sticky_offset = slot_offset(type(route.partitioner), "sticky")
        route.topic = topic
        route.snapshot = snapshot
        route.topics = topics
        if not IS_FREE_THREADED:
            self.last_route = route
        return route

    cdef bint refuses(self) except -1:
        """Return whether the state does not allow sending. Outside of a transaction the Python method says why."""
        if self.transaction_manager is None:
            return False
        state = read_slot(self.transaction_manager, self.state_offset, "_state")
        # The states are constants, so the identity test decides most cases.
        return state is not self.ready and (self.is_transactional or state == self.fatal_error)

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
                not <bint>read_slot(self.accumulator, self.closed_offset, "_closed")
                # A transaction that ends waits for the threads that hold this lock, and for no others.
                and not (self.is_transactional and self.refuses())
                and (sticky is None or (was_free and not IS_FREE_THREADED) or route.sticky() is sticky)
            ):
                batch = queue.batches[count - 1]
                if takes_default_records(batch._builder):
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


cdef object _last_type = None
cdef Py_ssize_t _last_offset = 0


cdef object send_path_of(object producer):
    """Return the producer's ``_send_path``. The offset of its slot is looked up once per class."""
    global _last_type, _last_offset
    if IS_FREE_THREADED:
        return producer._send_path
    if type(producer) is not _last_type:
        _last_offset = slot_offset(type(producer), "_send_path")
        _last_type = type(producer)
    return read_slot(producer, _last_offset, "_send_path")


cdef int64_t size_alone(object key, object value, Py_ssize_t headers_size) noexcept:
    """Return an upper bound of the size of a batch with only this record (estimate_size_in_bytes_upper_bound)."""
    return HEADER_AND_LARGEST_OVERHEAD + size_of_bytes(size_of(key)) + size_of_bytes(size_of(value)) + headers_size


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
        size += RECORD_OVERHEAD
    else:
        size = size_alone(key_bytes, value_bytes, headers_size)
    if size > path.max_record_size or path.refuses():
        return None
    if number < 0:
        if key_bytes is not None and not path.ignore_keys:
            number = (
                murmur2_of(<const uint8_t *>PyBytes_AS_STRING(key_bytes), PyBytes_GET_SIZE(key_bytes)) & 0x7FFFFFFF
            ) % route.partition_count
            place.number = number
        else:
            found = route.sticky()
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


def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None, on_delivery=None):
    """Append a record to a batch, to be sent soon (twin: KafkaProducer._send_python)."""
    cdef object found
    cdef SendPath path
    cdef Route route
    cdef FutureState future
    cdef int64_t timestamp = 0
    cdef Place place
    cdef bint has_timestamp = timestamp_ms is not None
    cdef Py_ssize_t headers_size = 1
    cdef object key_bytes = key, value_bytes = value, serialized = None, written = None
    found = send_path_of(self)
    if type(found) is not SendPath:
        return self._send_python(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    path = <SendPath>found
    route = path.route(topic)
    place.number = -1
    if route is None or (
        partition is not None
        and not (is_timestamp(partition, &place.number) and 0 <= place.number < route.partition_count)
    ):
        return self._send_python(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    # The twin handles invalid arguments, before a serializer is called.
    if on_delivery is not None and not callable(on_delivery):
        return self._send_python(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    if timestamp_ms is not None and not (is_timestamp(timestamp_ms, &timestamp) and timestamp >= 0):
        return self._send_python(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    if path.share is not None:
        headers, on_delivery = path.share(headers, on_delivery)
    if headers is not None:
        written = unchanging(headers)
        headers_size = size_of_headers(written)
        if headers_size < 0:
            return self._send_python(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    if not (path.plain_keys and is_plain(key) and path.plain_values and is_plain(value)):
        try:
            if not (path.plain_keys and is_plain(key)):
                key_bytes = self._serialize(path.key_serializer, "key", topic, headers, key)
            if not (path.plain_values and is_plain(value)):
                value_bytes = self._serialize(path.value_serializer, "value", topic, headers, value)
        except Exception as error:
            return self._failed_to_serialize(error, topic, partition, headers, on_delivery)
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
            return self._send_in_new_batch(
                topic,
                None if place.number < 0 else place.number,
                (timestamp, key_bytes, value_bytes, () if written is None else written, on_delivery),
                size_alone(key_bytes, value_bytes, headers_size),
                route.info,
                route.cluster,
                None if place.full == NULL else <object>place.full,
            )
        if not has_timestamp and timestamp:  # a clock is read once for each record
            timestamp_ms = timestamp
    if serialized is None:
        return self._send_python(topic, value, key, headers, partition, timestamp_ms, on_delivery)
    return self._do_send(topic, value, key, headers, partition, timestamp_ms, on_delivery, serialized)


# --- asyncio -----------------------------------------------------------------------------------------------------------

cdef object _asyncio_future = None  # the C class, once a record was sent


@cython.final
cdef class AwaitedRecords:
    """Twin of ``aio.awaited_records.AwaitedRecords``. Thread: the loop's.

    Many futures may be pending, and the garbage collector would look at all of them again and again. A pending future
    and one with a result are not part of a cycle that only the collector could end: the first is set some day, and the
    second refers to numbers and text. So they are not tracked. Futures that get an exception, or were cancelled, are.
    """

    cdef PyObject **pairs  # each record, and behind it its future; owned
    cdef Py_ssize_t count, capacity
    cdef bint has_acks

    def __init__(self, bint has_acks):
        self.has_acks = has_acks

    def __dealloc__(self):
        cdef Py_ssize_t index
        for index in range(2 * self.count):
            Py_DECREF(<object>self.pairs[index])
        free(self.pairs)

    def add(self, FutureState record not None, future):
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

    cdef int leave_to_python(self) except -1:
        """Settle the futures in Python, which handles what happens to whole batches: errors, splits, a closed loop."""
        from pykclient.aio.awaited_records import settle

        cdef list records = [], futures = []
        cdef Py_ssize_t index
        for index in range(self.count):
            records.append(<object>self.pairs[2 * index])
            futures.append(<object>self.pairs[2 * index + 1])
            track(futures[index])
        settle(records, futures, self.has_acks)
        return 0

    def __call__(self, FutureState first not None):
        from pykclient.aio.awaited_records import CREATE_TIME, LOG_APPEND_TIME, InvalidStateError, RecordMetadata

        cdef object result = first._result
        cdef object topic_partition, topic, partition, timestamp, timestamp_type = LOG_APPEND_TIME, metadata = None
        cdef FutureState record
        cdef Py_ssize_t index
        cdef int64_t base_offset
        future = <object>self.pairs[1]
        if result.parts is not None or result.error_for is not None or future.get_loop().is_closed():
            self.leave_to_python()
            return
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


cdef inline int track(object future) except -1:
    if type(future) is _asyncio_future and not PyObject_GC_IsTracked(<PyObject *>future):
        PyObject_GC_Track(<PyObject *>future)
    return 0


@cython.final
cdef class AwaitedSends:
    """The compiled path of an AIOKafkaProducer without serializers and interceptors. Thread: the loop's."""

    cdef object producer, create_future, is_running, memory, must_wait
    cdef unsigned long thread
    cdef bint has_acks

    def __init__(self, producer, loop, create_future, bint has_acks, memory):
        from pykclient.producer.buffer_pool import MustWait

        self.memory = memory
        self.must_wait = MustWait
        self.producer = producer
        self.create_future = create_future
        self.is_running = loop.is_running
        self.thread = PyThread_get_thread_ident()
        self.has_acks = has_acks

    def send(self, topic, value, key, partition, timestamp_ms, headers, bint may_start_batch):
        """Append a common record, and return an asyncio future for it; None leaves it to Python.

        Only with ``may_start_batch`` a record may start a batch: the caller then leaves the thread to the loop.

        Nothing has happened then. The rest is in ``AIOKafkaProducer._send``.
        """
        global _asyncio_future
        cdef object found = send_path_of(self.producer)
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
        if type(found) is not SendPath or not is_plain(key) or not is_plain(value):
            return None
        # Asking asyncio for the running loop would cost a system call before Python 3.12.
        if PyThread_get_thread_ident() != self.thread or not self.is_running():
            return None
        path = <SendPath>found
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
                record = self.producer._send_in_new_batch(
                    topic,
                    None if place.number < 0 else place.number,
                    (timestamp, key, value, () if written is None else written, None),
                    size_alone(key, value, headers_size),
                    route.info,
                    route.cluster,
                    None if place.full == NULL else <object>place.full,
                )
            except self.must_wait:
                return None
            error = record.exception
            if error is not None:
                raise error
        future = self.create_future()
        if _asyncio_future is None:
            from _asyncio import Future as _asyncio_future
        if type(future) is _asyncio_future:
            PyObject_GC_UnTrack(<PyObject *>future)
        # All of this runs on the loop's thread, which also completes batches: the batch is still open.
        listeners = record._result.listeners
        entry = listeners[len(listeners) - 1] if listeners else None
        if entry is not None and type((<tuple>entry)[1]) is AwaitedRecords:
            awaited = <AwaitedRecords>(<tuple>entry)[1]
        else:
            awaited = AwaitedRecords(self.has_acks)
            listeners.append((record, awaited, False))
        awaited.add(record, future)
        return future
