"""Batches into columns. Twin: ``record/columns.py``; for columns into batches there is ``rows.pyx``.

``decode`` stops in front of what is broken or unusual, and the twin goes on from there, so that there is one place in
which errors are raised.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from pykclient._speedups.record_layout cimport Fields, add, read_bytes, read_record

# Length, attributes, timestamp, offset, key, value and headers have a byte each at least.
cdef enum:
    SMALLEST_RECORD = 7
    MAX_INLINE = 12


# --- bytearrays that grow ------------------------------------------------------------------------------------------

cdef struct Out:
    # A bytearray that is being written at its end; None is NULL. `finish` cuts off what was not used.
    void *object
    uint8_t *start
    Py_ssize_t size
    Py_ssize_t capacity


cdef void begin(Out *out, object target) noexcept:
    out.object = NULL
    if target is not None:
        out.object = <void *>target
        out.start = <uint8_t *>PyByteArray_AS_STRING(target)
        out.size = out.capacity = PyByteArray_GET_SIZE(target)


cdef int grow(Out *out, Py_ssize_t more) except -1:
    cdef Py_ssize_t capacity = out.size + more
    capacity += capacity >> 2
    PyByteArray_Resize(<object>out.object, capacity)
    out.start = <uint8_t *>PyByteArray_AS_STRING(<object>out.object)
    out.capacity = capacity
    return 0


cdef inline int reserve(Out *out, Py_ssize_t more) except -1:
    if out.size + more > out.capacity:
        grow(out, more)
    return 0


cdef int finish(Out *out) except -1:
    if out.object != NULL and out.capacity != out.size:
        PyByteArray_Resize(<object>out.object, out.size)
    return 0


cdef inline void put(Out *out, const void *data, Py_ssize_t size) noexcept:
    memcpy(out.start + out.size, data, size)
    out.size += size


cdef inline void put_int32(Out *out, int32_t value) noexcept:
    memcpy(out.start + out.size, &value, 4)
    out.size += 4


cdef inline void put_int64(Out *out, int64_t value) noexcept:
    memcpy(out.start + out.size, &value, 8)
    out.size += 8


# --- decoding ------------------------------------------------------------------------------------------------------

cdef struct BytesOut:
    # BinaryBuffers or ViewBuffers; `places` are offsets or views.
    void *column
    bint is_view
    Out places
    Out data
    Out validity
    Py_ssize_t rows
    Py_ssize_t null_count
    int32_t source


cdef int begin_bytes(BytesOut *out, object column, bint is_view) except -1:
    out.column = NULL
    out.places.object = out.data.object = out.validity.object = NULL
    if column is None:
        return 0
    out.column = <void *>column
    out.is_view = is_view
    out.source = -1
    out.rows = column.rows
    out.null_count = column.null_count
    begin(&out.places, column.views if is_view else column.offsets)
    begin(&out.data, None if is_view else column.data)
    begin(&out.validity, column.validity)
    return 0


cdef int reserve_rows(BytesOut *out, Py_ssize_t rows) except -1:
    """Room for what each of so many more rows needs; their bytes come on top."""
    cdef Py_ssize_t bits
    reserve(&out.places, rows * (16 if out.is_view else 4))
    bits = ((out.rows + rows + 7) >> 3) - out.validity.size
    if bits > 0:
        reserve(&out.validity, bits)
        memset(out.validity.start + out.validity.size, 0xFF, bits)
        out.validity.size += bits
    return 0


cdef int finish_bytes(BytesOut *out) except -1:
    if out.column == NULL:
        return 0
    out.validity.size = (out.rows + 7) >> 3
    (<object>out.column).rows = out.rows
    (<object>out.column).null_count = out.null_count
    finish(&out.places)
    finish(&out.data)
    finish(&out.validity)
    return 0


cdef inline int put_bytes(
    BytesOut *out, const uint8_t *data, Py_ssize_t size, const uint8_t *start, object source
) except -1:
    """A row; ``size`` is -1 for null. For views ``data`` lies in ``source``, which begins at ``start``."""
    cdef uint8_t *view
    cdef int32_t number
    if size < 0:
        out.validity.start[out.rows >> 3] &= ~(1 << (out.rows & 7))
        out.null_count += 1
    if out.is_view:
        if size > MAX_INLINE and out.source < 0:
            out.source = (<object>out.column).source_index(source)
        view = out.places.start + out.places.size
        out.places.size += 16
        if size <= MAX_INLINE:
            memset(view, 0, 16)
            if size > 0:
                number = <int32_t>size
                memcpy(view, &number, 4)
                memcpy(view + 4, data, size)
        else:
            number = <int32_t>size
            memcpy(view, &number, 4)
            memcpy(view + 4, data, 4)
            memcpy(view + 8, &out.source, 4)
            number = <int32_t>(data - start)
            memcpy(view + 12, &number, 4)
    else:
        if size > 0:
            reserve(&out.data, size)
            put(&out.data, data, size)
        put_int32(&out.places, <int32_t>out.data.size)
    out.rows += 1
    return 0


cdef inline bint is_ascii(const uint8_t *data, Py_ssize_t size) noexcept:
    cdef uint8_t bits = 0
    cdef Py_ssize_t i
    for i in range(size):
        bits |= data[i]
    return bits < 0x80


cdef int put_headers(Out *lists, BytesOut *names, BytesOut *values, Fields *fields) except -1:
    """A row of headers, which `read_record` has found to be in order."""
    cdef const uint8_t *pos = fields.headers
    cdef const uint8_t *data
    cdef Py_ssize_t size, i
    cdef bytes name
    if fields.headers_count:
        reserve_rows(names, fields.headers_count)
        reserve_rows(values, fields.headers_count)
    for i in range(fields.headers_count):
        pos = read_bytes(pos, fields.end, &data, &size)
        if is_ascii(data, size):
            put_bytes(names, data, size, NULL, None)
        else:
            # As Java does: a name that is not UTF-8 does not make the record unreadable.
            name = PyUnicode_DecodeUTF8(<const char *>data, size, "replace").encode()
            put_bytes(names, <const uint8_t *>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), NULL, None)
        pos = read_bytes(pos, fields.end, &data, &size)
        put_bytes(values, data, size, NULL, None)
    put_int32(lists, <int32_t>names.rows)
    return 0


def decode(
    object data,
    Py_ssize_t pos,
    Py_ssize_t remaining,
    Py_ssize_t max_rows,
    int64_t next_offset,
    int64_t base_offset,
    int64_t base_timestamp,
    object log_append_time,
    object columns,
):
    """Add to ``columns`` up to ``max_rows`` of the ``remaining`` records from ``pos`` on, those from ``next_offset``.

    Returns where it stopped: ``(pos, remaining, next_offset)``.
    """
    cdef Py_buffer view
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef Out offsets, timestamps, lists
    cdef BytesOut keys, values, names, contents
    cdef object headers = columns.headers
    cdef bint is_view = columns.views
    cdef bint has_missing = columns.has_missing_timestamps
    cdef bint is_full = columns.is_full
    cdef Py_ssize_t rows = columns.rows, size_bytes = columns.size_bytes, max_bytes = columns.max_bytes
    cdef Py_ssize_t capacity, size
    cdef bint has_log_append_time = log_append_time is not None
    cdef int64_t append_time = log_append_time if has_log_append_time else 0
    cdef int64_t offset, time
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    start = <const uint8_t *>view.buf
    end = start + view.len
    at = start + pos
    begin(&offsets, columns.offsets)
    begin(&timestamps, columns.timestamps)
    begin(&lists, None if headers is None else headers.offsets)
    begin_bytes(&keys, columns.keys, is_view)
    begin_bytes(&values, columns.values, is_view)
    begin_bytes(&names, None if headers is None else headers.names, False)
    begin_bytes(&contents, None if headers is None else headers.values, False)
    try:
        # What the header says of the number of records is not to be believed, their bytes are.
        capacity = max(0, min(max_rows, min(remaining, (end - at) // SMALLEST_RECORD)))
        if offsets.object != NULL:
            reserve(&offsets, capacity * 8)
        if timestamps.object != NULL:
            reserve(&timestamps, capacity * 8)
        if lists.object != NULL:
            reserve(&lists, capacity * 4)
        if keys.column != NULL:
            reserve_rows(&keys, capacity)
        if values.column != NULL:
            reserve_rows(&values, capacity)
        while max_rows > 0 and remaining > 0:
            if not read_record(at, end, &fields) or (remaining == 1 and fields.end != end):
                break
            if not add(base_offset, fields.offset_delta, &offset) or offset == INT64_MAX:
                break
            if not add(base_timestamp, fields.timestamp_delta, &time):
                break
            if offset >= next_offset:
                size = fields.end - at
                if rows and size_bytes + size > max_bytes:
                    is_full = True
                    break
                # All that may need memory comes before the row counts.
                if values.column != NULL and not is_view and fields.value_size > 0:
                    reserve(&values.data, fields.value_size)
                if keys.column != NULL and not is_view and fields.key_size > 0:
                    reserve(&keys.data, fields.key_size)
                if lists.object != NULL:
                    put_headers(&lists, &names, &contents, &fields)
                if keys.column != NULL:
                    put_bytes(&keys, fields.key, fields.key_size, start, data)
                if values.column != NULL:
                    put_bytes(&values, fields.value, fields.value_size, start, data)
                if offsets.object != NULL:
                    put_int64(&offsets, offset)
                if timestamps.object != NULL:
                    if has_log_append_time:
                        time = append_time
                    if time == -1:
                        has_missing = True
                    put_int64(&timestamps, time)
                rows += 1
                size_bytes += size
                next_offset = offset + 1
                max_rows -= 1
            at = fields.end
            remaining -= 1
        return at - start, remaining, next_offset
    finally:
        columns.rows = rows
        columns.size_bytes = size_bytes
        columns.is_full = is_full
        columns.has_missing_timestamps = has_missing
        finish(&offsets)
        finish(&timestamps)
        finish(&lists)
        finish_bytes(&keys)
        finish_bytes(&values)
        finish_bytes(&names)
        finish_bytes(&contents)
        PyBuffer_Release(&view)
