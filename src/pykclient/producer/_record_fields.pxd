# The fields of batches and futures, for the compiled modules that append records.

from libc.stdint cimport int64_t

from pykclient.record._append_state cimport AppendState


cdef class BatchState:
    cdef type _future_type
    cdef public AppendState _builder
    cdef public object produce_future
    cdef public bint is_open
    cdef public int64_t max_record_size
    cdef public int64_t appended_bytes


cdef class FutureState:
    cdef public object _result
    cdef public Py_ssize_t index
    cdef public int64_t _timestamp_ms
    cdef public Py_ssize_t _key_size
    cdef public Py_ssize_t _value_size


cdef FutureState new_future(BatchState batch, int64_t timestamp, object key, object value, int64_t size)


cdef class SharedDelivery:
    pass


cdef inline bint is_shared(list listeners, object on_delivery):
    """Return whether the batch's last record has the same delivery, and shares it (Python: add_delivery)."""
    cdef Py_ssize_t count = len(listeners)
    return count > 0 and (<tuple>listeners[count - 1])[1] is on_delivery and isinstance(on_delivery, SharedDelivery)
