"""Columns of rows into batches. Twins: ``record/row_columns.py`` and, for ``hash_partitions``,
``producer/partitioner/columns.py``.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pykclient._speedups.murmur2 cimport murmur2_of
from pykclient._speedups.record_writing cimport size_of_bytes, size_of_varint, write_bytes, write_varint, zigzag

from pykclient.errors import IllegalArgumentError

cdef enum:
    LARGEST_RECORD_OVERHEAD = 21
    BATCH_OVERHEAD = 61


# --- columns of rows -----------------------------------------------------------------------------------------------

cdef class Column:
    # A BytesColumn whose buffers are held; without one, every row is null.
    cdef Py_buffer _offsets, _data, _validity
    cdef const int64_t *offsets
    cdef const uint8_t *data
    cdef const uint8_t *validity
    cdef Py_ssize_t length, data_size, validity_offset, validity_bits
    cdef bint has_offsets, has_data, has_validity

    def __cinit__(self, object column):
        self.offsets = NULL
        self.validity = NULL
        self.length = -1
        if column is None:
            return
        PyObject_GetBuffer(column.offsets, &self._offsets, PyBUF_SIMPLE)
        self.has_offsets = True
        PyObject_GetBuffer(column.data, &self._data, PyBUF_SIMPLE)
        self.has_data = True
        self.offsets = <const int64_t *>self._offsets.buf
        self.data = <const uint8_t *>self._data.buf
        self.data_size = self._data.len
        self.length = self._offsets.len // 8 - 1
        if column.validity is not None:
            PyObject_GetBuffer(column.validity, &self._validity, PyBUF_SIMPLE)
            self.has_validity = True
            self.validity = <const uint8_t *>self._validity.buf
            self.validity_offset = column.validity_offset
            self.validity_bits = self._validity.len * 8

    def __dealloc__(self):
        if self.has_validity:
            PyBuffer_Release(&self._validity)
        if self.has_data:
            PyBuffer_Release(&self._data)
        if self.has_offsets:
            PyBuffer_Release(&self._offsets)


cdef inline int get(Column column, Py_ssize_t row, const uint8_t **data, Py_ssize_t *size) except -1:
    """A row's bytes; a size of -1 for null."""
    cdef Py_ssize_t bit
    cdef int64_t start, end
    size[0] = -1
    data[0] = NULL
    if column.offsets == NULL:
        return 0
    if row < 0 or row >= column.length:
        raise IndexError(f"there is no row {row} in a column of {column.length}")
    if column.validity != NULL:
        bit = column.validity_offset + row
        if bit < 0 or bit >= column.validity_bits:
            raise IndexError(f"there is no bit {bit} in a column's validity")
        if not column.validity[bit >> 3] >> (bit & 7) & 1:
            return 0
    start = column.offsets[row]
    end = column.offsets[row + 1]
    if not 0 <= start <= end <= column.data_size:
        raise IllegalArgumentError(f"row {row} is at {start} to {end} of {column.data_size} bytes")
    data[0] = column.data + start
    size[0] = end - start
    return 0


cdef class Table:
    # Rows with their buffers held.
    cdef Column keys, values, headers
    cdef bytes shared_headers
    cdef const uint8_t *no_headers
    cdef Py_ssize_t no_headers_size
    cdef Py_buffer _timestamps
    cdef const int64_t *timestamps
    cdef Py_ssize_t timestamps_count
    cdef int64_t timestamp_ms
    cdef bint has_timestamps

    def __cinit__(self, object rows):
        cdef object headers = rows.headers
        self.keys = Column(rows.keys)
        self.values = Column(rows.values)
        self.shared_headers = (headers or b"\x00") if headers is None or isinstance(headers, bytes) else b"\x00"
        self.headers = Column(None if headers is None or isinstance(headers, bytes) else headers)
        self.no_headers = <const uint8_t *>PyBytes_AS_STRING(self.shared_headers)
        self.no_headers_size = PyBytes_GET_SIZE(self.shared_headers)
        self.timestamp_ms = rows.timestamp_ms
        self.timestamps = NULL
        if rows.timestamps is not None:
            PyObject_GetBuffer(rows.timestamps, &self._timestamps, PyBUF_SIMPLE)
            self.has_timestamps = True
            self.timestamps = <const int64_t *>self._timestamps.buf
            self.timestamps_count = self._timestamps.len // 8

    def __dealloc__(self):
        if self.has_timestamps:
            PyBuffer_Release(&self._timestamps)


cdef inline int get_headers(Table table, Py_ssize_t row, const uint8_t **data, Py_ssize_t *size) except -1:
    get(table.headers, row, data, size)
    if size[0] <= 0:
        data[0] = table.no_headers
        size[0] = table.no_headers_size
    return 0


cdef inline int get_timestamp(Table table, Py_ssize_t row, int64_t *timestamp) except -1:
    timestamp[0] = -1
    if table.timestamps != NULL:
        if row < 0 or row >= table.timestamps_count:
            raise IndexError(f"there is no row {row} in {table.timestamps_count} timestamps")
        timestamp[0] = table.timestamps[row]
    if timestamp[0] == -1:
        timestamp[0] = table.timestamp_ms
    return 0


def encode_rows(
    bytearray target not None,
    Py_ssize_t position,
    object rows,
    object indices,
    Py_ssize_t first,
    Py_ssize_t stop,
    int64_t base_timestamp,
    int64_t offset_delta,
    Py_ssize_t size,
    double size_factor,
    Py_ssize_t room,
    Py_ssize_t max_size,
):
    """Twin of ``encode_rows_python``."""
    cdef Table table = Table(rows)
    cdef Py_buffer view
    cdef const int32_t *numbers = NULL
    cdef bint has_indices = indices is not None
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef const uint8_t *headers
    cdef Py_ssize_t key_size, value_size, headers_size, body, record, row, count = 0, largest = 0, capacity
    cdef int64_t timestamp, max_timestamp = -1
    cdef uint64_t time_zigzag, offset_zigzag
    cdef uint8_t *start = <uint8_t *>PyByteArray_AS_STRING(target)
    cdef uint8_t *at
    capacity = PyByteArray_GET_SIZE(target)
    if not 0 <= position <= capacity:
        raise IllegalArgumentError(f"position {position} is not in a buffer of {capacity} bytes")
    if has_indices:
        PyObject_GetBuffer(indices, &view, PyBUF_SIMPLE)
        numbers = <const int32_t *>view.buf
    try:
        if has_indices and (first < 0 or stop > view.len // 4):
            raise IndexError(f"rows {first} to {stop} are not in {view.len // 4}")
        while first + count < stop and size < max_size:
            row = numbers[first + count] if has_indices else first + count
            get_timestamp(table, row, &timestamp)
            get(table.keys, row, &key, &key_size)
            get(table.values, row, &value, &value_size)
            get_headers(table, row, &headers, &headers_size)
            time_zigzag = zigzag(timestamp - base_timestamp)
            offset_zigzag = zigzag(offset_delta + count)
            body = 1 + size_of_varint(time_zigzag) + size_of_varint(offset_zigzag) + headers_size
            body += size_of_bytes(key_size) + size_of_bytes(value_size)
            record = size_of_varint(zigzag(body)) + body
            if size and <Py_ssize_t>(size * size_factor) + record > room:
                break
            if position + record > capacity:
                capacity = position + record + (position >> 1)
                PyByteArray_Resize(target, capacity)
                start = <uint8_t *>PyByteArray_AS_STRING(target)
            at = write_varint(start + position, zigzag(body))
            at[0] = 0
            at = write_varint(at + 1, time_zigzag)
            at = write_varint(at, offset_zigzag)
            at = write_bytes(at, <const char *>key, key_size)
            at = write_bytes(at, <const char *>value, value_size)
            memcpy(at, headers, headers_size)
            position += record
            size += record
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if record > largest:
                largest = record
            count += 1
    finally:
        if has_indices:
            PyBuffer_Release(&view)
    return count, position, size, max_timestamp, largest


def oversized(object rows, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t limit):
    """Twin of ``oversized_python``."""
    cdef Table table = Table(rows)
    cdef const uint8_t *data
    cdef Py_ssize_t row, size, total
    cdef list found = []
    for row in range(start, stop):
        get_headers(table, row, &data, &size)
        total = BATCH_OVERHEAD + LARGEST_RECORD_OVERHEAD + size
        get(table.keys, row, &data, &size)
        total += size_of_bytes(size)
        get(table.values, row, &data, &size)
        total += size_of_bytes(size)
        if total > limit:
            found.append(row)
    return found


def group_rows(object numbers, Py_ssize_t start, Py_ssize_t stop):
    """Twin of ``group_rows_python``."""
    cdef Py_buffer view
    cdef const int32_t *of_row
    cdef Py_ssize_t row, total
    cdef int32_t lowest, highest
    cdef object sizes, rows, row_view
    cdef int32_t *places
    cdef int32_t *out
    cdef Py_ssize_t number, place, before
    cdef list groups = []
    PyObject_GetBuffer(numbers, &view, PyBUF_SIMPLE)
    try:
        if start >= stop:
            return groups
        if start < 0 or stop > view.len // 4:
            raise IndexError(f"rows {start} to {stop} are not in {view.len // 4}")
        of_row = <const int32_t *>view.buf
        lowest = highest = of_row[start]
        for row in range(start, stop):
            if of_row[row] < lowest:
                lowest = of_row[row]
            elif of_row[row] > highest:
                highest = of_row[row]
        # Counting sort: numbers are partitions, of which there are few.
        total = <Py_ssize_t>highest - lowest + 1
        sizes = bytearray(4 * total)
        rows = bytearray(4 * (stop - start))
        places = <int32_t *>PyByteArray_AS_STRING(sizes)
        out = <int32_t *>PyByteArray_AS_STRING(rows)
        for row in range(start, stop):
            places[of_row[row] - lowest] += 1
        before = 0
        for number in range(total):
            place = places[number]
            places[number] = <int32_t>before
            before += place
        for row in range(start, stop):
            number = of_row[row] - lowest
            out[places[number]] = <int32_t>row
            places[number] += 1
        row_view = memoryview(rows).cast("i")
        before = 0
        for number in range(total):
            if places[number] > before:
                groups.append((number + lowest, row_view[before : places[number]]))
                before = places[number]
        return groups
    finally:
        PyBuffer_Release(&view)


def hash_partitions(object keys, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, object numbers):
    """Twin of ``hash_partitions_python``."""
    cdef Column column = Column(keys)
    cdef Py_buffer view
    cdef int32_t *of_row
    cdef const uint8_t *data
    cdef Py_ssize_t row, size
    if count < 1:
        raise IllegalArgumentError(f"a topic cannot have {count} partitions")
    PyObject_GetBuffer(numbers, &view, PyBUF_WRITABLE)
    try:
        if start < 0 or stop > view.len // 4:
            raise IndexError(f"rows {start} to {stop} are not in {view.len // 4}")
        of_row = <int32_t *>view.buf
        for row in range(start, stop):
            if of_row[row] == -1:
                get(column, row, &data, &size)
                if size >= 0:
                    of_row[row] = <int32_t>((murmur2_of(data, size) & 0x7FFFFFFF) % count)
    finally:
        PyBuffer_Release(&view)
