# Appending records to batches and writing headers, for the compiled modules that do.

from cpython.bytearray cimport PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t

cdef extern from *:
    """
    #ifndef PYKCLIENT_NEW_OBJECT_OF
    #define PYKCLIENT_NEW_OBJECT_OF
    /* Return an instance whose ``__init__`` was not called. */
    static inline PyObject *new_object_of(PyObject *type, PyObject *no_arguments) {
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, no_arguments, NULL);
    }
    #endif
    """
    object new_object_of(object type, object no_arguments)

cdef enum:
    LACKS_MEMORY = -2


cdef inline bint is_plain(object data) noexcept:
    """Return True for bytes or None, but not for subclasses, which may override anything."""
    return data is None or type(data) is bytes


cdef inline Py_ssize_t size_of(object data) noexcept:
    return -1 if data is None else PyBytes_GET_SIZE(data)


cdef inline const char *start_of(object data) noexcept:
    return NULL if data is None else PyBytes_AS_STRING(data)


cdef inline object unchanging(object headers):
    """Return headers that no other thread can change between measuring and writing them."""
    return tuple(<list>headers) if type(headers) is list else headers


cdef bint is_timestamp(object timestamp, int64_t *value) except -1
cdef Py_ssize_t size_of_headers(object headers) except -2


cdef class AppendState:
    cdef public object _records
    cdef public object _buffer
    cdef public object _lender
    cdef public object compression
    cdef public object memory
    cdef public int64_t _position
    cdef public int64_t _room
    cdef public int64_t _uncompressed_size
    cdef public int64_t _size_limit
    cdef public int64_t _max_timestamp
    cdef public int64_t _delete_horizon_ms
    cdef public int64_t _header_size
    cdef public int64_t _log_append_time
    cdef public int64_t _max_uncompressed_size
    cdef public int64_t _offset_of_max_timestamp
    cdef public int64_t base_offset
    cdef public int64_t num_records
    cdef public int64_t producer_id
    cdef public int64_t write_limit
    cdef public double _size_factor
    cdef public double compression_ratio
    cdef public int _partition_leader_epoch
    cdef public int _timestamp_type
    cdef public int base_sequence
    cdef public int magic
    cdef public int producer_epoch
    cdef public bint _append_closed
    cdef public bint aborted
    cdef public bint is_closed
    cdef public bint is_control_batch
    cdef public bint is_transactional
    cdef bint has_base_timestamp
    cdef int64_t base_timestamp
    cdef bint has_last_offset
    cdef int64_t last_offset
    cdef int64_t refused_size  # of the record for which `append_record` last lacked memory


cdef int64_t append_record(
    AppendState state, int64_t timestamp, object key, object value, object headers, Py_ssize_t headers_size
) except -1


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


cdef inline int64_t estimated_size(AppendState state) noexcept:
    """Return `estimated_size_in_bytes` of a builder."""
    if state.is_closed:
        return state._position
    return state._header_size + <int64_t>(state._uncompressed_size * state._size_factor)


cdef inline bint is_full(AppendState state) noexcept:
    """Return `is_full` of a builder."""
    return state._append_closed or (
        state.num_records > 0
        and state.write_limit <= state._header_size + <int64_t>(state._uncompressed_size * state._size_factor)
    )


cdef AppendState new_builder(
    type builder_type,
    object buffer,
    object compression,
    int64_t write_limit,
    object lender,
    int64_t max_uncompressed_size,
    object records,
    double size_factor,
)


cdef int put_header(
    object buffer,
    Py_ssize_t end,
    int64_t base_offset,
    int32_t last_offset_delta,
    int16_t attributes,
    int64_t base_timestamp,
    int64_t max_timestamp,
    int64_t producer_id,
    int16_t producer_epoch,
    int32_t base_sequence,
    int32_t leader_epoch,
    int32_t count,
) except -1
