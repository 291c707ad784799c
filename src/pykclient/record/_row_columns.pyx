"""The compiled form of ``row_columns.py``: columns of rows into batches."""

from cpython.buffer cimport (
    PyBUF_FULL_RO,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyBuffer_ToContiguous,
    PyObject_GetBuffer,
)
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from sys import byteorder

from pykclient.record._record_writing cimport size_of_bytes, size_of_varint, write_bytes, write_varint, zigzag

from pykclient.errors import IllegalArgumentError
from pykclient.record.row_columns import _MULTIPLIER, _SEED, MAX_RECORD_OVERHEAD, NO_HEADERS, RECORD_BATCH_OVERHEAD

cdef enum:
    ROWS_WITHOUT_LOCK = 256  # the number of rows for which releasing the GIL pays

cdef bint IS_LITTLE = byteorder == "little"
cdef Py_ssize_t OVERHEAD = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD
cdef bytes no_headers = NO_HEADERS


# The address of empty data, because NULL means null.
cdef uint8_t NOTHING = 0


cdef class Column:
    def __cinit__(self, object column):
        if column is None:
            return
        PyObject_GetBuffer(column.offsets, &self._offsets, PyBUF_SIMPLE)
        self.has_offsets = True
        PyObject_GetBuffer(column.data, &self._data, PyBUF_SIMPLE)
        self.has_data = True
        self.bytes.offsets = <const int64_t *>self._offsets.buf
        self.bytes.data = <const uint8_t *>self._data.buf
        if self.bytes.data == NULL:
            self.bytes.data = &NOTHING
        self.bytes.data_size = self._data.len
        self.bytes.length = self._offsets.len // 8 - 1
        if column.validity is not None:
            PyObject_GetBuffer(column.validity, &self._validity, PyBUF_SIMPLE)
            self.has_validity = True
            self.bytes.validity = <const uint8_t *>self._validity.buf
            self.bytes.validity_offset = column.validity_offset
            self.bytes.validity_bits = self._validity.len * 8

    def __dealloc__(self):
        if self.has_validity:
            PyBuffer_Release(&self._validity)
        if self.has_data:
            PyBuffer_Release(&self._data)
        if self.has_offsets:
            PyBuffer_Release(&self._offsets)

    cdef int blame(self, Py_ssize_t row) except -1:
        """Raise the error of a row, if it is this column's."""
        cdef const uint8_t *data
        cdef Py_ssize_t size, bit
        if fetch(&self.bytes, row, &data, &size):
            return 0
        if row < 0 or row >= self.bytes.length:
            raise IndexError(f"there is no row {row} in a column of {self.bytes.length}")
        if self.bytes.validity != NULL:
            bit = self.bytes.validity_offset + row
            if bit < 0 or bit >= self.bytes.validity_bits:
                raise IndexError(f"there is no bit {bit} in a column's validity")
        raise IllegalArgumentError(
            f"row {row} is at {self.bytes.offsets[row]} to {self.bytes.offsets[row + 1]} of "
            f"{self.bytes.data_size} bytes"
        )


cdef struct Source:
    # The columns of rows.
    Bytes keys
    Bytes values
    Bytes headers
    const uint8_t *no_headers  # for rows without headers
    Py_ssize_t no_headers_size
    const int64_t *timestamps  # NULL: all rows have the following timestamp, as do rows with -1
    Py_ssize_t timestamps_count
    int64_t timestamp_ms


cdef struct Record:
    # The parts of a row; the size of null is -1.
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers
    Py_ssize_t key_size
    Py_ssize_t value_size
    Py_ssize_t headers_size
    int64_t timestamp


cdef inline bint read_row(const Source *rows, Py_ssize_t row, Record *record) noexcept nogil:
    """Return false if the row cannot be read: see `Table.blame`."""
    record.timestamp = -1
    if rows.timestamps != NULL:
        if row < 0 or row >= rows.timestamps_count:
            return False
        record.timestamp = rows.timestamps[row]
    if record.timestamp == -1:
        record.timestamp = rows.timestamp_ms
    if not fetch(&rows.keys, row, &record.key, &record.key_size):
        return False
    if not fetch(&rows.values, row, &record.value, &record.value_size):
        return False
    if not fetch(&rows.headers, row, &record.headers, &record.headers_size):
        return False
    if record.headers_size <= 0:
        record.headers = rows.no_headers
        record.headers_size = rows.no_headers_size
    return True


cdef class Table:
    # Rows whose buffers are held.
    cdef Source source
    cdef Column keys, values, headers
    cdef bytes shared_headers
    cdef Py_buffer _timestamps
    cdef bint has_timestamps

    def __cinit__(self, object rows):
        cdef object headers = rows.headers
        cdef bint is_shared = headers is None or isinstance(headers, bytes)
        self.keys = Column(rows.keys)
        self.values = Column(rows.values)
        self.headers = Column(None if is_shared else headers)
        self.shared_headers = headers if is_shared and headers else no_headers
        self.source.keys = self.keys.bytes
        self.source.values = self.values.bytes
        self.source.headers = self.headers.bytes
        self.source.no_headers = <const uint8_t *>PyBytes_AS_STRING(self.shared_headers)
        self.source.no_headers_size = PyBytes_GET_SIZE(self.shared_headers)
        self.source.timestamp_ms = rows.timestamp_ms
        if rows.timestamps is not None:
            PyObject_GetBuffer(rows.timestamps, &self._timestamps, PyBUF_SIMPLE)
            self.has_timestamps = True
            self.source.timestamps = <const int64_t *>self._timestamps.buf
            self.source.timestamps_count = self._timestamps.len // 8

    def __dealloc__(self):
        if self.has_timestamps:
            PyBuffer_Release(&self._timestamps)

    cdef int blame(self, Py_ssize_t row) except -1:
        """Raise the error that `read_row` has found."""
        if self.has_timestamps and (row < 0 or row >= self.source.timestamps_count):
            raise IndexError(f"there is no row {row} in {self.source.timestamps_count} timestamps")
        self.keys.blame(row)
        self.values.blame(row)
        self.headers.blame(row)
        return 0


cdef Table table_of(object rows):
    """Return the table of ``rows``, which is created once."""
    cdef object table = rows.held
    if table is None:
        table = rows.held = Table(rows)
    return table


# --- encoding ------------------------------------------------------------------------------------------------------

cdef enum Stop:
    ALL_ROWS  # or enough bytes
    NO_ROOM
    SHORT_BUFFER  # `needed` is the required number of bytes
    BAD_ROW


cdef struct Encoder:
    # The output, and its progress.
    uint8_t *start
    Py_ssize_t capacity
    Py_ssize_t needed
    Py_ssize_t position
    const int32_t *numbers  # NULL: the rows are adjacent
    Py_ssize_t next
    Py_ssize_t stop
    Py_ssize_t row
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t offset_delta
    Py_ssize_t size
    Py_ssize_t room
    Py_ssize_t max_size
    Py_ssize_t size_limit
    Py_ssize_t largest
    double size_factor


cdef inline bint is_plain(const Encoder *out, const Source *rows) noexcept nogil:
    """Return whether the rows are adjacent and have only values, none of them null."""
    cdef bint alone = rows.keys.offsets == NULL and rows.headers.offsets == NULL and rows.timestamps == NULL
    cdef bint there = rows.values.offsets != NULL and rows.values.validity == NULL
    return alone and there and out.numbers == NULL and out.next >= 0 and out.stop <= rows.values.length


cdef inline Stop encode_with(Encoder *encoder, const Source *columns, bint plain) noexcept nogil:
    """Encode rows until there is a reason to stop.

    ``plain`` is a constant in each call, so the compiler makes two versions; the one for plain rows checks only what
    can differ between these.
    """
    # Copies, because the compiler must assume that the output may alias any of these.
    cdef Encoder out = encoder[0]
    cdef Source rows = columns[0]
    cdef Record record
    cdef uint64_t timestamp, offset
    cdef Py_ssize_t body, size, estimate
    cdef int64_t begin, end
    cdef uint8_t *at
    cdef Stop why = ALL_ROWS
    if plain:
        record.key = NULL
        record.key_size = -1
        record.headers = rows.no_headers
        record.headers_size = rows.no_headers_size
        record.timestamp = rows.timestamp_ms
    while out.next < out.stop and out.size < out.max_size:
        if plain:
            out.row = out.next
            begin = rows.values.offsets[out.row]
            end = rows.values.offsets[out.row + 1]
            if not 0 <= begin <= end <= rows.values.data_size:
                why = BAD_ROW
                break
            record.value = rows.values.data + begin
            record.value_size = end - begin
        else:
            out.row = out.numbers[out.next] if out.numbers != NULL else out.next
            if not read_row(&rows, out.row, &record):
                why = BAD_ROW
                break
        timestamp = zigzag(record.timestamp - out.base_timestamp)
        offset = zigzag(out.offset_delta)
        body = 1 + size_of_varint(timestamp) + size_of_varint(offset)
        body += size_of_bytes(record.key_size) + size_of_bytes(record.value_size) + record.headers_size
        size = size_of_varint(<uint64_t>body << 1) + body
        if out.size:
            estimate = out.size if out.size_factor == 1.0 else <Py_ssize_t>(out.size * out.size_factor)
            if estimate + size > out.room or size > out.size_limit - out.size:
                why = NO_ROOM
                break
        if out.position + size > out.capacity:
            out.needed = out.position + size
            why = SHORT_BUFFER
            break
        at = write_varint(out.start + out.position, <uint64_t>body << 1)
        at[0] = 0
        at = write_varint(at + 1, timestamp)
        at = write_varint(at, offset)
        at = write_bytes(at, <const char *>record.key, record.key_size)
        at = write_bytes(at, <const char *>record.value, record.value_size)
        if record.headers_size == 1:  # no headers: too small for a call
            at[0] = record.headers[0]
        else:
            memcpy(at, record.headers, record.headers_size)
        out.position += size
        out.size += size
        out.next += 1
        out.offset_delta += 1
        if record.timestamp > out.max_timestamp:
            out.max_timestamp = record.timestamp
        if size > out.largest:
            out.largest = size
    encoder[0] = out
    return why


cdef Stop encode(Encoder *out, const Source *rows) noexcept nogil:
    if is_plain(out, rows):
        return encode_with(out, rows, True)
    return encode_with(out, rows, False)


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
    Py_ssize_t size_limit,
):
    """The twin of ``encode_rows``."""
    cdef Table table = table_of(rows)
    cdef Py_buffer numbers, written
    cdef bint has_indices = indices is not None
    cdef Encoder out
    cdef Stop why
    if not 0 <= position <= PyByteArray_GET_SIZE(target):
        raise IllegalArgumentError(f"position {position} is not in a buffer of {PyByteArray_GET_SIZE(target)} bytes")
    out.position = position
    out.numbers = NULL
    out.next = first
    out.stop = stop
    out.base_timestamp = base_timestamp
    out.max_timestamp = -1
    out.offset_delta = offset_delta
    out.size = size
    out.room = room
    out.max_size = max_size
    out.size_limit = size_limit
    out.largest = 0
    out.size_factor = size_factor
    if has_indices:
        PyObject_GetBuffer(indices, &numbers, PyBUF_SIMPLE)
        out.numbers = <const int32_t *>numbers.buf
    try:
        if has_indices and (first < 0 or stop > numbers.len // 4):
            raise IndexError(f"rows {first} to {stop} are not in {numbers.len // 4}")
        while True:
            # While it is held, no thread can shorten it without the GIL.
            PyObject_GetBuffer(target, &written, PyBUF_SIMPLE)
            out.start = <uint8_t *>written.buf
            out.capacity = written.len
            if out.stop - out.next < ROWS_WITHOUT_LOCK:
                why = encode(&out, &table.source)
            else:
                with nogil:
                    why = encode(&out, &table.source)
            PyBuffer_Release(&written)
            if why == BAD_ROW:
                table.blame(out.row)
            if why != SHORT_BUFFER:
                break
            PyByteArray_Resize(target, max(out.needed, min(out.needed + (out.needed >> 1), size_limit)))
    finally:
        if has_indices:
            PyBuffer_Release(&numbers)
    return out.next - first, out.position, out.size, out.max_timestamp, out.largest


cdef bint largest_of(const Bytes *column, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t *largest) noexcept nogil:
    """Get the size of the largest of some rows.

    Return false if offsets are outside the data: see `largest_or_blame`.
    """
    cdef int64_t begin, end, size, most = 0, least = 0
    cdef Py_ssize_t row
    largest[0] = 0
    if column.offsets == NULL:
        return True
    begin = column.offsets[start]
    if begin < 0:
        return False
    for row in range(start, stop):
        end = column.offsets[row + 1]
        # Unsigned, because offsets may have any value.
        size = <int64_t>(<uint64_t>end - <uint64_t>begin)
        least = min(least, size)
        most = max(most, size)
        begin = end
    largest[0] = most
    return least >= 0 and most <= column.data_size and 0 <= begin <= column.data_size


cdef Py_ssize_t largest_or_blame(Column column, Py_ssize_t start, Py_ssize_t stop) except -1:
    cdef Py_ssize_t largest, row
    cdef int64_t begin, end
    cdef Bytes *bytes = &column.bytes
    if bytes.offsets != NULL and (start < 0 or stop > bytes.length):
        raise IndexError(f"rows {start} to {stop} are not in a column of {bytes.length}")
    if not largest_of(bytes, start, stop, &largest):
        for row in range(start, stop):
            begin, end = bytes.offsets[row], bytes.offsets[row + 1]
            if not 0 <= begin <= end <= bytes.data_size:
                raise IllegalArgumentError(f"row {row} is at {begin} to {end} of {bytes.data_size} bytes")
    return largest


def upper_bound(object rows, Py_ssize_t start, Py_ssize_t stop):
    """The twin of ``upper_bound``."""
    cdef Table table = table_of(rows)
    cdef Py_ssize_t size, largest
    if start >= stop:
        return 0
    size = table.source.no_headers_size
    if table.headers.has_offsets:
        size = max(1, largest_or_blame(table.headers, start, stop))
    for column in (table.keys, table.values):
        largest = largest_or_blame(column, start, stop)
        size += size_of_bytes(largest)
    return OVERHEAD + size


def oversized(object rows, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t limit):
    """The twin of ``oversized``."""
    cdef Table table = table_of(rows)
    cdef Record record
    cdef Py_ssize_t row, size
    cdef list found = []
    for row in range(start, stop):
        if not read_row(&table.source, row, &record):
            table.blame(row)
        size = OVERHEAD + record.headers_size
        size += size_of_bytes(record.key_size) + size_of_bytes(record.value_size)
        if size > limit:
            found.append(row)
    return found


def group_rows(object numbers, Py_ssize_t start, Py_ssize_t stop):
    """The twin of ``group_rows``."""
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
        # Counting sort, because there are few partitions.
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


# --- fingerprints --------------------------------------------------------------------------------------------------

cdef uint64_t MULTIPLIER = _MULTIPLIER
cdef uint64_t SEED = _SEED


cdef inline uint64_t mixed(uint64_t hashed, uint64_t word) noexcept nogil:
    hashed = ((hashed ^ word) + SEED) * MULTIPLIER
    return hashed ^ (hashed >> 35)


cdef inline uint64_t mixed_bytes(uint64_t hashed, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word
    cdef Py_ssize_t at = 0, byte
    hashed = mixed(hashed, <uint64_t>(size + 1))
    while size - at >= 8:
        memcpy(&word, data + at, 8)
        hashed = mixed(hashed, word if IS_LITTLE else swapped(word))
        at += 8
    if at < size:
        word = 0
        for byte in range(size - at):
            word |= <uint64_t>data[at + byte] << (8 * byte)
        hashed = mixed(hashed, word)
    return hashed


cdef inline uint64_t swapped(uint64_t word) noexcept nogil:
    cdef uint64_t result = 0
    cdef int byte
    for byte in range(8):
        result = (result << 8) | (word & 0xFF)
        word >>= 8
    return result


cdef Py_ssize_t fingerprint_of(const Source *rows, Py_ssize_t count, uint64_t seed, uint64_t *total) noexcept nogil:
    """Add the hashes of rows to ``total``. Return the first row that cannot be read, or -1."""
    cdef Record record
    cdef Py_ssize_t row
    cdef uint64_t hashed
    for row in range(count):
        if not read_row(rows, row, &record):
            return row
        hashed = mixed_bytes(seed, record.key, record.key_size)
        hashed = mixed_bytes(hashed, record.value, record.value_size)
        hashed = mixed_bytes(hashed, record.headers, record.headers_size)
        hashed = (hashed ^ (hashed >> 29)) * SEED
        total[0] += hashed ^ (hashed >> 32)
    return -1


def fingerprint(object rows, object seed=0):
    """The twin of ``fingerprint``."""
    cdef Table table = table_of(rows)
    cdef Py_ssize_t count = rows.count, bad
    cdef uint64_t total = 0, start = seed & 0xFFFFFFFFFFFFFFFF
    with nogil:
        bad = fingerprint_of(&table.source, count, start, &total)
    if bad >= 0:
        table.blame(bad)
    return total


# --- columns of objects --------------------------------------------------------------------------------------------

cdef object new_offsets(Py_ssize_t rows):
    return bytearray(8 * (rows + 1))


def gather(object values):
    """The twin of ``gather``."""
    cdef tuple items = tuple(values)  # a copy, so that it cannot change between the two passes
    cdef Py_ssize_t rows = len(items), row, end = 0
    cdef object offsets = new_offsets(rows), bits = None, value, data
    cdef int64_t *ends = <int64_t *>PyByteArray_AS_STRING(offsets)
    cdef uint8_t *validity = NULL
    cdef char *out
    cdef Py_buffer view
    for row in range(rows):
        value = items[row]
        if type(value) is bytes:
            end += PyBytes_GET_SIZE(value)
        elif value is None:
            if validity == NULL:
                bits = bytearray(b"\xff") * ((rows + 7) >> 3)
                validity = <uint8_t *>PyByteArray_AS_STRING(bits)
            validity[row >> 3] &= ~(1 << (row & 7))
        elif isinstance(value, (bytes, bytearray, memoryview)):
            end += value.nbytes if isinstance(value, memoryview) else len(value)
        else:
            raise IllegalArgumentError(f"row {row} is {type(value).__name__}; it must be bytes or None")
        ends[row + 1] = end
    data = PyBytes_FromStringAndSize(NULL, end)
    out = PyBytes_AS_STRING(data)
    for row in range(rows):
        value = items[row]
        if type(value) is bytes:
            memcpy(out + ends[row], PyBytes_AS_STRING(value), ends[row + 1] - ends[row])
        elif value is not None:
            PyObject_GetBuffer(value, &view, PyBUF_FULL_RO)
            try:
                if view.len != ends[row + 1] - ends[row]:
                    raise BufferError(f"row {row} changed its size meanwhile")
                PyBuffer_ToContiguous(out + ends[row], &view, view.len, b"C")
            finally:
                PyBuffer_Release(&view)
    return memoryview(offsets).cast("q"), data, None if bits is None else memoryview(bits)


def widened(object offsets):
    cdef Py_buffer narrow
    cdef Py_ssize_t index, count
    cdef bytearray wide
    cdef int64_t *places
    PyObject_GetBuffer(offsets, &narrow, PyBUF_SIMPLE)
    try:
        count = narrow.len // 4
        wide = PyByteArray_FromStringAndSize(NULL, 8 * count)
        places = <int64_t *>PyByteArray_AS_STRING(wide)
        for index in range(count):
            places[index] = (<const int32_t *>narrow.buf)[index]
    finally:
        PyBuffer_Release(&narrow)
    return memoryview(wide).cast("q")


def gather_headers(object places, object names, object values):
    """The twin of ``gather_headers``."""
    cdef Column name_column = Column(names), value_column = Column(values)
    cdef Py_buffer view
    cdef const int64_t *starts
    cdef const uint8_t *data
    cdef Py_ssize_t rows, row, header, name_size, size, total = 0
    cdef object offsets, encoded
    cdef int64_t *ends
    cdef uint8_t *at
    PyObject_GetBuffer(places, &view, PyBUF_SIMPLE)
    try:
        starts = <const int64_t *>view.buf
        rows = max(0, view.len // 8 - 1)
        offsets = new_offsets(rows)
        ends = <int64_t *>PyByteArray_AS_STRING(offsets)
        for row in range(rows):
            total += size_of_varint(<uint64_t>max(0, starts[row + 1] - starts[row]) << 1)
            for header in range(starts[row], starts[row + 1]):
                if not fetch(&name_column.bytes, header, &data, &name_size):
                    name_column.blame(header)
                if not fetch(&value_column.bytes, header, &data, &size):
                    value_column.blame(header)
                if name_size < 0:
                    raise IllegalArgumentError(f"header {header} has no name")
                total += size_of_bytes(name_size) + size_of_bytes(size)
            ends[row + 1] = total
        encoded = PyBytes_FromStringAndSize(NULL, total)
        at = <uint8_t *>PyBytes_AS_STRING(encoded)
        for row in range(rows):
            at = write_varint(at, <uint64_t>max(0, starts[row + 1] - starts[row]) << 1)
            for header in range(starts[row], starts[row + 1]):
                fetch(&name_column.bytes, header, &data, &size)
                at = write_bytes(at, <const char *>data, size)
                fetch(&value_column.bytes, header, &data, &size)
                at = write_bytes(at, <const char *>data, size)
        return memoryview(offsets).cast("q"), encoded, None
    finally:
        PyBuffer_Release(&view)
