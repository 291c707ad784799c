"""The compiled form of ``columns.py``: batches into columns. For columns into batches there is ``_row_columns.pyx``.

It stops before anything broken or unusual, and the Python form continues from there, so that errors are raised in one
place. It knows nothing of the Python form but its public interface. It keeps the GIL: a batch takes microseconds, while
getting the GIL back from a CPU-bound thread takes milliseconds.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from pykclient.record._batch_layout cimport HEADER_SIZE, Header, is_cut_off, read_header
from pykclient.record._line_text cimport Program, begin_program, has_valid_names, text_bound, write_text
from pykclient.record._record_layout cimport Fields, add, read_bytes, read_record

from pykclient.errors import CorruptRecordError, KafkaError, UnsupportedCompressionTypeError
from pykclient.record.columns import ColumnCursor as PythonCursor
from pykclient.record.compression import decompressed

cdef enum:
    # Length, attributes, timestamp, offset, key, value and headers have at least one byte each.
    SMALLEST_RECORD = 7
    MAX_INLINE = 12


# --- bytearrays that grow ------------------------------------------------------------------------------------------

cdef struct Out:
    # A bytearray that is written after its first `size` bytes; NULL for None.
    void *object
    uint8_t *start
    Py_ssize_t size
    Py_ssize_t capacity


cdef void begin(Out *out, object target, Py_ssize_t size) noexcept:
    out.object = NULL
    if target is not None:
        out.object = <void *>target
        out.start = <uint8_t *>PyByteArray_AS_STRING(target)
        out.size = size
        out.capacity = PyByteArray_GET_SIZE(target)


cdef int grow(Out *out, Py_ssize_t more) except -1:
    cdef Py_ssize_t capacity = out.size + more
    capacity += capacity >> 1
    PyByteArray_Resize(<object>out.object, capacity)
    out.start = <uint8_t *>PyByteArray_AS_STRING(<object>out.object)
    out.capacity = capacity
    return 0


cdef inline int reserve(Out *out, Py_ssize_t more) except -1:
    if out.object != NULL and out.size + more > out.capacity:
        grow(out, more)
    return 0


cdef inline void put(Out *out, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    memcpy(out.start + out.size, data, size)
    out.size += size


cdef inline void put_int32(Out *out, int32_t value) noexcept nogil:
    memcpy(out.start + out.size, &value, 4)
    out.size += 4


cdef inline void put_int64(Out *out, int64_t value) noexcept nogil:
    memcpy(out.start + out.size, &value, 8)
    out.size += 8


cdef struct BytesOut:
    # BinaryBuffers with `places` as offsets, or ViewBuffers with `places` as views; NULL for None. Views without `data`
    # refer to the source, others to `data`.
    void *column
    bint is_view
    bint is_referenced  # true if any view refers to the source, or to `data`
    Out places
    Out data
    Out validity
    Py_ssize_t rows
    Py_ssize_t null_count
    int32_t source  # the number of the source in views


cdef int begin_bytes(BytesOut *out, object column, bint is_view, object source) except -1:
    """Begin a column. Views refer to ``source``; None means to copy what they refer to."""
    out.column = out.places.object = out.data.object = out.validity.object = NULL
    if column is None:
        return 0
    out.column = <void *>column
    out.is_view = is_view
    out.is_referenced = False
    out.rows = column.rows
    out.null_count = column.null_count
    begin(&out.validity, column.validity, (out.rows + 7) >> 3)
    if is_view:
        begin(&out.places, column.views, 16 * out.rows)
        out.source = column.next_index(source)
    else:
        begin(&out.places, column.offsets, 4 * (out.rows + 1))
    if not is_view or source is None:
        begin(&out.data, column.data, column.data_size)
    return 0


cdef int reserve_rows(BytesOut *out, Py_ssize_t rows) except -1:
    """Make room for the fixed-size part of ``rows`` more rows."""
    cdef Py_ssize_t bits
    if out.column == NULL:
        return 0
    reserve(&out.places, rows * (16 if out.is_view else 4))
    bits = ((out.rows + rows + 7) >> 3) - out.validity.size
    if bits > 0:
        reserve(&out.validity, bits)
        memset(out.validity.start + out.validity.size, 0xFF, bits)
        out.validity.size += bits
    return 0


cdef int finish_bytes(BytesOut *out, object source) except -1:
    if out.column == NULL:
        return 0
    (<object>out.column).rows = out.rows
    (<object>out.column).null_count = out.null_count
    if out.data.object != NULL:
        (<object>out.column).data_size = out.data.size
    if out.is_view and out.is_referenced:
        (<object>out.column).source_index(source)
    return 0


cdef inline bint has_room(BytesOut *out, Py_ssize_t size) noexcept nogil:
    return out.data.object == NULL or size <= out.data.capacity - out.data.size


cdef inline void put_bytes(BytesOut *out, const uint8_t *data, Py_ssize_t size, const uint8_t *start) noexcept nogil:
    """Add a row, for which there is room; ``size`` is -1 for null. Positions in views are relative to ``start``."""
    cdef uint8_t *view
    cdef int32_t number
    if size < 0:
        out.validity.start[out.rows >> 3] &= ~(1 << (out.rows & 7))
        out.null_count += 1
    if out.is_view:
        view = out.places.start + out.places.size
        out.places.size += 16
        if size <= MAX_INLINE:
            memset(view, 0, 16)
            if size > 0:
                number = <int32_t>size
                memcpy(view, &number, 4)
                memcpy(view + 4, data, size)
        else:
            out.is_referenced = True
            number = <int32_t>size
            memcpy(view, &number, 4)
            memcpy(view + 4, data, 4)
            memcpy(view + 8, &out.source, 4)
            number = <int32_t>(data - start if out.data.object == NULL else out.data.size)
            memcpy(view + 12, &number, 4)
            if out.data.object != NULL:
                put(&out.data, data, size)
    else:
        if size > 0:
            put(&out.data, data, size)
        put_int32(&out.places, <int32_t>out.data.size)
    out.rows += 1


# --- records as lines ----------------------------------------------------------------------------------------------

cdef struct Lines:
    # A LineBuffer; NULL for None.
    void *object
    Out data
    Program program


cdef int begin_lines(Lines *out, object lines) except -1:
    out.object = NULL
    begin(&out.data, None, 0)
    if lines is None:
        return 0
    out.object = <void *>lines
    begin_program(&out.program, lines.record_text.program)
    begin(&out.data, lines.data, lines.size_bytes)
    return 0


cdef inline void put_line(Lines *out, Fields *fields, int64_t offset, int64_t time) noexcept nogil:
    """Add the text of a record, for which there is room."""
    cdef uint8_t *start = out.data.start
    out.data.size = write_text(start + out.data.size, &out.program, fields, offset, time) - start


# --- records into columns ------------------------------------------------------------------------------------------

cdef struct Batch:
    const uint8_t *source  # the origin of positions in views
    const uint8_t *at  # the next record
    const uint8_t *end
    Py_ssize_t remaining
    int64_t base_offset
    int64_t base_timestamp
    bint has_append_time
    int64_t append_time


cdef struct Rows:
    # The buffers of `Columns` while rows are added.
    Out offsets
    Out timestamps
    Out lists
    BytesOut keys
    BytesOut values
    BytesOut names
    BytesOut contents
    Lines lines
    Py_ssize_t count
    Py_ssize_t left  # the number of rows still wanted
    Py_ssize_t size_bytes
    Py_ssize_t max_bytes
    int64_t next_offset
    int64_t end_offset  # the first offset that is not wanted
    bint has_missing
    bint is_full


cdef enum Stop:
    AT_END  # of the batch, or of the wanted rows
    AT_STRANGE  # something for the Python version
    AT_FULL
    AT_END_OFFSET
    AT_LARGE  # no room for this record
    AT_HEADERS


cdef int begin_rows(
    Rows *rows, object columns, Py_ssize_t left, int64_t next_offset, int64_t end_offset, object source
) except -1:
    cdef object headers = columns.headers
    cdef bint is_view = columns.views
    rows.count = columns.rows
    rows.left = left
    rows.size_bytes = columns.size_bytes
    rows.max_bytes = columns.max_bytes
    rows.next_offset = next_offset
    rows.end_offset = end_offset
    rows.has_missing = columns.has_missing_timestamps
    rows.is_full = columns.is_full
    begin(&rows.offsets, columns.offsets, 8 * rows.count)
    begin(&rows.timestamps, columns.timestamps, 8 * rows.count)
    begin(&rows.lists, None if headers is None else headers.offsets, 4 * (rows.count + 1))
    begin_bytes(&rows.names, None if headers is None else headers.names, False, None)
    begin_bytes(&rows.contents, None if headers is None else headers.values, False, None)
    begin_bytes(&rows.keys, columns.keys, is_view, source)
    begin_bytes(&rows.values, columns.values, is_view, source)
    begin_lines(&rows.lines, columns.lines)
    return 0


cdef int finish_rows(Rows *rows, object columns, object source) except -1:
    columns.rows = rows.count
    columns.size_bytes = rows.size_bytes
    columns.is_full = rows.is_full
    columns.has_missing_timestamps = rows.has_missing
    finish_bytes(&rows.keys, source)
    finish_bytes(&rows.values, source)
    finish_bytes(&rows.names, source)
    finish_bytes(&rows.contents, source)
    if rows.lines.object != NULL:
        (<object>rows.lines.object).size_bytes = rows.lines.data.size
    return 0


cdef inline void put_row(Rows *rows, Batch *batch, Fields *fields, int64_t offset, int64_t time) noexcept nogil:
    if rows.offsets.object != NULL:
        put_int64(&rows.offsets, offset)
    if batch.has_append_time:
        time = batch.append_time
    if rows.timestamps.object != NULL:
        if time == -1:
            rows.has_missing = True
        put_int64(&rows.timestamps, time)
    if rows.keys.column != NULL:
        put_bytes(&rows.keys, fields.key, fields.key_size, batch.source)
    if rows.values.column != NULL:
        put_bytes(&rows.values, fields.value, fields.value_size, batch.source)
    if rows.lists.object != NULL:
        put_int32(&rows.lists, <int32_t>rows.names.rows)
    if rows.lines.object != NULL:
        put_line(&rows.lines, fields, offset, time)
    rows.count += 1
    rows.left -= 1
    rows.size_bytes += fields.end - batch.at
    rows.next_offset = offset + 1


cdef inline Stop read_one(Batch *batch, Rows *rows, Fields *fields, bint has_put_headers) noexcept nogil:
    cdef int64_t offset = 0, time = 0
    if not read_record(batch.at, batch.end, fields) or (batch.remaining == 1 and fields.end != batch.end):
        return AT_STRANGE
    if not add(batch.base_offset, fields.offset_delta, &offset) or offset == INT64_MAX:
        return AT_STRANGE
    if not add(batch.base_timestamp, fields.timestamp_delta, &time):
        return AT_STRANGE
    if offset >= rows.end_offset:
        rows.next_offset = max(rows.next_offset, rows.end_offset)
        return AT_END_OFFSET
    if offset >= rows.next_offset:
        if rows.count and rows.size_bytes + fields.end - batch.at > rows.max_bytes:
            rows.is_full = True
            return AT_FULL
        if not has_room(&rows.keys, fields.key_size) or not has_room(&rows.values, fields.value_size):
            return AT_LARGE
        if rows.lines.object != NULL:
            if rows.lines.program.has_headers and not has_valid_names(fields):
                return AT_STRANGE
            if text_bound(&rows.lines.program, fields) > rows.lines.data.capacity - rows.lines.data.size:
                return AT_LARGE
        if fields.headers_count and rows.lists.object != NULL and not has_put_headers:
            return AT_HEADERS
        put_row(rows, batch, fields, offset, time)
    batch.at = fields.end
    batch.remaining -= 1
    return AT_END


cdef Stop read_rows(Batch *batch, Rows *rows) except *:
    """Read rows up to the end of the batch, or as many as are wanted; return why it stopped."""
    cdef Fields fields
    cdef Stop stop = AT_END
    cdef bint has_put_headers = False
    # The number of records in the header cannot be trusted; the number of bytes can.
    cdef Py_ssize_t count = min(rows.left, min(batch.remaining, (batch.end - batch.at) // SMALLEST_RECORD))
    if count < 0:
        count = 0
    reserve(&rows.offsets, 8 * count)
    reserve(&rows.timestamps, 8 * count)
    reserve(&rows.lists, 4 * count)
    reserve_rows(&rows.keys, count)
    reserve_rows(&rows.values, count)
    if count == batch.remaining:
        reserve(&rows.values.data, batch.end - batch.at)
        reserve(&rows.lines.data, batch.end - batch.at)
    while rows.left > 0 and batch.remaining > 0:
        stop = read_one(batch, rows, &fields, has_put_headers)
        has_put_headers = False
        if stop == AT_LARGE:
            reserve(&rows.keys.data, max(fields.key_size, 0))
            reserve(&rows.values.data, max(fields.value_size, 0))
            if rows.lines.object != NULL:
                reserve(&rows.lines.data, text_bound(&rows.lines.program, &fields))
        elif stop == AT_HEADERS:
            put_headers(rows, &fields)
            has_put_headers = True
        elif stop != AT_END:
            break
    return stop


cdef inline bint is_ascii(const uint8_t *data, Py_ssize_t size) noexcept:
    cdef uint8_t bits = 0
    cdef Py_ssize_t i
    for i in range(size):
        bits |= data[i]
    return bits < 0x80


cdef int put_headers(Rows *rows, Fields *fields) except -1:
    """Add the headers of the next row, which `read_record` has validated."""
    cdef const uint8_t *pos = fields.headers
    cdef const uint8_t *data = NULL
    cdef Py_ssize_t size = 0, i
    cdef bytes name
    reserve_rows(&rows.names, fields.headers_count)
    reserve_rows(&rows.contents, fields.headers_count)
    # The replacement of an invalid byte takes three bytes.
    reserve(&rows.names.data, 3 * (fields.end - pos))
    reserve(&rows.contents.data, fields.end - pos)
    for i in range(fields.headers_count):
        pos = read_bytes(pos, fields.end, &data, &size)
        if is_ascii(data, size):
            put_bytes(&rows.names, data, size, NULL)
        else:
            # As in Java, a name that is not UTF-8 does not make the record unreadable.
            name = PyUnicode_DecodeUTF8(<const char *>data, size, "replace").encode()
            put_bytes(&rows.names, <const uint8_t *>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), NULL)
        pos = read_bytes(pos, fields.end, &data, &size)
        put_bytes(&rows.contents, data, size, NULL)
    return 0


cdef class ColumnCursor:
    is_columnar = True

    cdef object _batch, _topic, _partition, _run, _limit, _data, _append_time
    cdef Py_ssize_t _pos, _remaining
    cdef int64_t _base_offset, _base_timestamp
    cdef object _python  # the Python form, if it must read the rest of the batch
    cdef readonly object next_offset
    cdef readonly Py_ssize_t bytes_read, records_read
    cdef readonly bint exhausted

    def __init__(
        self,
        object batch,
        object topic,
        object partition,
        object from_offset,
        object max_decompressed_bytes,
        object data=None,
    ):
        self._batch = batch
        self._topic = topic
        self._partition = partition
        self._run = topic, partition, batch.partition_leader_epoch, batch.timestamp_type
        self._limit = max_decompressed_bytes
        self._data = data
        self._pos = 0
        self._python = None
        self.next_offset = from_offset
        self.bytes_read = 0
        self.records_read = 0
        if batch.magic < 2 or not -1 <= from_offset <= INT64_MAX:
            self._leave_to_python()
            self.exhausted = self._python.exhausted
            return
        self._append_time = batch.log_append_time
        self._base_offset = batch.base_offset
        self._base_timestamp = batch.base_timestamp
        self._remaining = batch.count
        self.exhausted = self._remaining == 0

    cdef int _leave_to_python(self) except -1:
        """Let the Python form read the rest. It leaves out records below ``next_offset``, which were read before."""
        self._python = PythonCursor(
            self._batch, self._topic, self._partition, self.next_offset, self._limit, self._data
        )
        self._data = b""
        return 0

    def read_into(self, object columns, Py_ssize_t max_rows, int64_t end_offset=INT64_MAX):
        cdef Py_ssize_t added = 0
        if self.exhausted or max_rows <= 0:
            return 0
        if self._python is None:
            if self._data is None:
                if self._base_offset >= end_offset:
                    self.next_offset = max(self.next_offset, end_offset)  # without decompressing the batch
                    return 0
                self._data = self._batch.record_view(self._limit)
            added = self._read(columns, max_rows, end_offset)
            if self._remaining and added < max_rows and not columns.is_full and self.next_offset < end_offset:
                self._leave_to_python()
        if self._python is not None:
            added = self._continue_in_python(columns, max_rows, end_offset, added)
        if self.exhausted:
            self._data = b""
        return added

    cdef Py_ssize_t _read(self, object columns, Py_ssize_t max_rows, int64_t end_offset) except -1:
        """Add the next ordinary records."""
        cdef Py_buffer view
        cdef Batch batch
        cdef Rows rows
        cdef Py_ssize_t rows_before = columns.rows, size_before = columns.size_bytes, added
        # The decompressed bytes are temporary.
        cdef object source = self._data if isinstance(self._data, memoryview) else None
        if columns.lines is not None:
            columns.lines.record_text.set_partition(self._topic, self._partition)
        if self.next_offset >= end_offset:
            return 0
        PyObject_GetBuffer(self._data, &view, PyBUF_SIMPLE)
        try:
            batch.source = <const uint8_t *>view.buf
            batch.at = batch.source + self._pos
            batch.end = batch.source + view.len
            batch.remaining = self._remaining
            batch.base_offset = self._base_offset
            batch.base_timestamp = self._base_timestamp
            batch.has_append_time = self._append_time is not None
            batch.append_time = self._append_time if batch.has_append_time else 0
            begin_rows(&rows, columns, max_rows, self.next_offset, end_offset, source)
            try:
                read_rows(&batch, &rows)
            finally:
                finish_rows(&rows, columns, source)
                self._pos = batch.at - batch.source
                self._remaining = batch.remaining
                self.next_offset = rows.next_offset
        finally:
            PyBuffer_Release(&view)
        added = columns.rows - rows_before
        if added:
            columns.add_run(self._run, added)
            self.records_read += added
            self.bytes_read += <Py_ssize_t>columns.size_bytes - size_before
        self.exhausted = self._remaining == 0
        return added

    cdef Py_ssize_t _continue_in_python(
        self, object columns, Py_ssize_t max_rows, int64_t end_offset, Py_ssize_t added
    ) except -1:
        """Add more records to ``added`` ones, and return the number of all."""
        cdef object python = self._python
        cdef Py_ssize_t bytes_before = python.bytes_read, records_before = python.records_read
        try:
            added += <Py_ssize_t>python.read_into(columns, max_rows - added, end_offset)
        except KafkaError:
            if not added:
                raise
        finally:
            self.next_offset = python.next_offset
            self.bytes_read += <Py_ssize_t>python.bytes_read - bytes_before
            self.records_read += <Py_ssize_t>python.records_read - records_before
            self.exhausted = python.exhausted
        return added


# --- batches into columns ------------------------------------------------------------------------------------------

def decode_batches(
    object records,
    Py_ssize_t pos,
    int64_t next_offset,
    object checksum,
    bint takes_transactional,
    object topic,
    object partition,
    object columns,
    Py_ssize_t max_rows,
    object max_decompressed_bytes,
    int64_t end_offset=INT64_MAX,
):
    cdef Py_buffer view, decompressed_view
    cdef Batch batch
    cdef Rows rows
    cdef const uint8_t *start
    cdef Header header
    cdef Py_ssize_t count
    cdef int64_t offset, batch_end = 0
    cdef int32_t last_epoch = -1, run_epoch = 0
    cdef int timestamp_type, run_type = 0
    cdef Py_ssize_t run_rows = 0
    cdef bint is_inside = False, is_at_end
    # What views refer to; None while the batches are compressed.
    cdef object source = records, data, left_data = None
    if columns.lines is not None:
        columns.lines.record_text.set_partition(topic, partition)
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        batch.source = <const uint8_t *>view.buf
        begin_rows(&rows, columns, max_rows, next_offset, end_offset, records)
        try:
            while rows.left > 0 and rows.next_offset < end_offset:
                start = batch.source + pos
                if not read_header(start, view.len - pos, takes_transactional, &header):
                    break
                if checksum is not None:
                    if <uint32_t>checksum(records[pos + 21 : pos + header.size]) != header.checksum:
                        break
                if header.base_offset >= end_offset:
                    break
                if header.codec:
                    if header.count > rows.left or header.next_offset > end_offset:
                        break  # a cursor keeps the decompressed records for the next call
                    try:
                        data = decompressed(
                            header.codec, records[pos + HEADER_SIZE : pos + header.size], max_decompressed_bytes
                        )
                    except (CorruptRecordError, UnsupportedCompressionTypeError):
                        break
                if (source is None) != (header.codec != 0):
                    finish_rows(&rows, columns, source)
                    source = None if header.codec else records
                    begin_rows(&rows, columns, rows.left, rows.next_offset, end_offset, source)
                batch.at = start + HEADER_SIZE
                batch.end = start + header.size
                batch.remaining = header.count
                batch.base_offset = header.base_offset
                batch.base_timestamp = header.base_timestamp
                batch.has_append_time = header.has_append_time
                batch.append_time = header.max_timestamp
                count = rows.count
                offset = rows.next_offset
                if header.codec:
                    PyObject_GetBuffer(data, &decompressed_view, PyBUF_SIMPLE)
                    try:
                        batch.at = <const uint8_t *>decompressed_view.buf
                        batch.end = batch.at + decompressed_view.len
                        read_rows(&batch, &rows)
                    finally:
                        PyBuffer_Release(&decompressed_view)
                else:
                    read_rows(&batch, &rows)
                count = rows.count - count
                if batch.remaining and header.codec:
                    left_data = data
                if batch.remaining and not count:
                    # A cursor handles a batch from which nothing was read.
                    rows.next_offset = offset
                    break
                if count:
                    timestamp_type = 1 if batch.has_append_time else 0
                    if run_rows and (header.leader_epoch != run_epoch or timestamp_type != run_type):
                        columns.add_run((topic, partition, run_epoch, run_type), run_rows)
                        run_rows = 0
                    run_epoch = header.leader_epoch
                    run_type = timestamp_type
                    run_rows += count
                if batch.remaining:
                    is_inside = count > 0
                    break
                last_epoch = header.leader_epoch
                batch_end = header.next_offset
                pos += header.size
        finally:
            finish_rows(&rows, columns, source)
            if run_rows:
                columns.add_run((topic, partition, run_epoch, run_type), run_rows)
        is_at_end = not is_inside and is_cut_off(batch.source + pos, view.len - pos)
        return pos, rows.next_offset, is_inside, is_at_end, last_epoch, batch_end, left_data
    finally:
        PyBuffer_Release(&view)
