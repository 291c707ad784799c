"""The compiled form of ``record_fields.py``."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pykclient.record._append_state cimport AppendState, estimated_size, is_full, size_of

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define IS_FREE_THREADED 1
    #else
    #define IS_FREE_THREADED 0
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
    void keep_spare_futures(object type, Py_ssize_t result_offset)
    object new_future_of(object type, object no_arguments)
    void PyObject_GC_UnTrack(PyObject *object)
    int PyObject_GC_IsTracked(PyObject *object)


cdef class ResultState:
    """The fields of a ProduceRequestResult."""


cdef class BatchState:
    """The fields of a ProducerBatch."""


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


cdef tuple _no_arguments = ()


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
    """An ``on_delivery`` that a batch keeps, and calls, once for adjacent records that have the same one."""
