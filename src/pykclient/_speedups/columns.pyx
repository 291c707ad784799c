"""Batches into columns and columns into batches. Twins: ``record/columns.py``, ``record/row_columns.py`` and, for
``hash_partitions``, ``producer/partitioner/hashing.py``.

``decode`` stops in front of what is broken or unusual, and the twin goes on from there, so that there is one place in
which errors are raised.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from pykclient._speedups.record_layout cimport Fields, add, read_bytes, read_record

from pykclient.errors import IllegalArgumentError

# Length, attributes, timestamp, offset, key, value and headers have a byte each at least.
cdef enum:
    SMALLEST_RECORD = 7
    LARGEST_RECORD_OVERHEAD = 21
    BATCH_OVERHEAD = 61
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


cdef inline Py_ssize_t varint_size(uint64_t zigzag) noexcept:
    cdef Py_ssize_t size = 1
    while zigzag > 0x7F:
        zigzag >>= 7
        size += 1
    return size


cdef inline uint64_t zigzag_of(int64_t value) noexcept:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline uint8_t *put_varint(uint8_t *at, uint64_t zigzag) noexcept:
    while zigzag > 0x7F:
        at[0] = <uint8_t>(zigzag & 0x7F | 0x80)
        zigzag >>= 7
        at += 1
    at[0] = <uint8_t>zigzag
    return at + 1


cdef inline Py_ssize_t nullable_size(Py_ssize_t size) noexcept:
    return 1 if size < 0 else varint_size(zigzag_of(size)) + size


cdef inline uint8_t *put_nullable(uint8_t *at, const uint8_t *data, Py_ssize_t size) noexcept:
    at = put_varint(at, zigzag_of(size) if size >= 0 else 1)
    if size > 0:
        memcpy(at, data, size)
        at += size
    return at


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
            time_zigzag = zigzag_of(timestamp - base_timestamp)
            offset_zigzag = zigzag_of(offset_delta + count)
            body = 1 + varint_size(time_zigzag) + varint_size(offset_zigzag) + headers_size
            body += nullable_size(key_size) + nullable_size(value_size)
            record = varint_size(zigzag_of(body)) + body
            if size and <Py_ssize_t>(size * size_factor) + record > room:
                break
            if position + record > capacity:
                capacity = position + record + (position >> 1)
                PyByteArray_Resize(target, capacity)
                start = <uint8_t *>PyByteArray_AS_STRING(target)
            at = put_varint(start + position, zigzag_of(body))
            at[0] = 0
            at = put_varint(at + 1, time_zigzag)
            at = put_varint(at, offset_zigzag)
            at = put_nullable(at, key, key_size)
            at = put_nullable(at, value, value_size)
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
        total += nullable_size(size)
        get(table.values, row, &data, &size)
        total += nullable_size(size)
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


cdef inline uint32_t murmur2(const uint8_t *data, Py_ssize_t size) noexcept:
    cdef uint32_t hashed = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t word
    cdef Py_ssize_t i
    for i in range(size >> 2):
        word = data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        data += 4
        word *= <uint32_t>0x5BD1E995
        word ^= word >> 24
        word *= <uint32_t>0x5BD1E995
        hashed *= <uint32_t>0x5BD1E995
        hashed ^= word
    size &= 3
    if size:
        if size == 3:
            hashed ^= <uint32_t>data[2] << 16
        if size >= 2:
            hashed ^= <uint32_t>data[1] << 8
        hashed ^= data[0]
        hashed *= <uint32_t>0x5BD1E995
    hashed ^= hashed >> 13
    hashed *= <uint32_t>0x5BD1E995
    return hashed ^ hashed >> 15


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
                    of_row[row] = <int32_t>((murmur2(data, size) & 0x7FFFFFFF) % count)
    finally:
        PyBuffer_Release(&view)
