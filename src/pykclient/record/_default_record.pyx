"""The compiled form of ``default_record.py``.

It stops before anything broken or unusual, and the Python form continues from there. So errors are raised in one place
only, and the C code handles only well-formed records. It knows nothing of the Python form but its public interface.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from pykclient._consumer_record cimport RecordObject, new_record
from pykclient.record._batch_layout cimport HEADER_SIZE, Header, is_cut_off, read_header
from pykclient.record._record_layout cimport Fields, add, read_bytes, read_record

from pykclient.errors import KafkaError
from pykclient.record.default_record import (
    RecordCursor as PythonCursor,
    RecordsSummary,
    deserialization_error,
    summarize_records as summarize_records_python,
)

cdef extern from *:
    PyObject *Py_NewRef(object value)
    bint PyObject_IS_GC(object value)
    void PyObject_GC_Track(object record)


cdef struct Place:
    const uint8_t *at  # the next record
    const uint8_t *end  # of the batch
    Py_ssize_t remaining  # the number of records from there on
    Py_ssize_t bytes_read
    int64_t next_offset  # records with lower offsets are left out


cdef tuple _headers(Fields *fields):
    """Return the headers, which ``read_record`` has validated."""
    cdef const uint8_t *pos = fields.headers
    cdef const uint8_t *data = NULL
    cdef Py_ssize_t size = 0, i
    cdef tuple headers = PyTuple_New(fields.headers_count)
    cdef tuple header
    cdef object part
    for i in range(fields.headers_count):
        header = PyTuple_New(2)
        Py_INCREF(header)
        PyTuple_SET_ITEM(headers, i, header)
        pos = read_bytes(pos, fields.end, &data, &size)
        # As in Java, a name that is not UTF-8 does not make the record unreadable.
        part = PyUnicode_DecodeUTF8(<const char *>data, size, "replace")
        Py_INCREF(part)
        PyTuple_SET_ITEM(header, 0, part)
        pos = read_bytes(pos, fields.end, &data, &size)
        part = None if size < 0 else PyBytes_FromStringAndSize(<const char *>data, size)
        Py_INCREF(part)
        PyTuple_SET_ITEM(header, 1, part)
    return headers


cdef class RecordCursor:
    is_columnar = False

    cdef object _batch, _owner, _limit, _data, _base_offset, _base_timestamp, _append_time, _timestamp_type, _epoch
    cdef Py_ssize_t _pos, _remaining
    cdef object _python  # the Python form, if it must read the rest of the batch
    cdef readonly object next_offset
    cdef readonly Py_ssize_t bytes_read, records_read
    cdef readonly bint exhausted

    def __init__(self, object batch, object owner, object from_offset, object max_decompressed_bytes, object data=None):
        self._batch = batch
        self._owner = owner
        self._limit = max_decompressed_bytes
        self._data = data
        (
            self._base_offset,
            self._base_timestamp,
            self._append_time,
            self._timestamp_type,
            self._epoch,
        ) = batch.common_fields
        self._pos = 0
        self._remaining = batch.count
        self._python = None
        self.next_offset = from_offset
        self.bytes_read = 0
        self.records_read = 0
        self.exhausted = self._remaining == 0

    def next_records(self, Py_ssize_t max_records):
        cdef list records = []
        cdef object failure
        if self.exhausted or max_records <= 0:
            return records
        if self._data is None:
            self._data = self._batch.record_view(self._limit)
        if self._python is None:
            failure = self._decode(max_records, records)
            if failure is not None and not (records and isinstance(failure, KafkaError)):
                raise failure
            if self._remaining and len(records) < max_records and failure is None:
                self._python = PythonCursor(self._batch, self._owner, self.next_offset, self._limit, self._data)
                self._data = b""
        if self._python is not None:
            self._continue_in_python(max_records - len(records), records)
        if self.exhausted:
            self._data = b""
        return records

    cdef object _decode(self, Py_ssize_t max_records, list records):
        """Append the next ordinary records; return the error of a deserializer."""
        cdef Py_buffer buffer
        cdef Place place
        cdef object failure
        if not -1 <= self.next_offset <= INT64_MAX:
            return None
        PyObject_GetBuffer(self._data, &buffer, PyBUF_SIMPLE)
        try:
            place.at = <const uint8_t *>buffer.buf + self._pos
            place.end = <const uint8_t *>buffer.buf + buffer.len
            place.remaining = self._remaining
            place.bytes_read = 0
            place.next_offset = self.next_offset
            failure = decode(
                &place,
                max_records,
                self._base_offset,
                self._base_timestamp,
                self._append_time,
                self._timestamp_type,
                self._epoch,
                self._owner,
                records,
            )
            self._pos = place.at - <const uint8_t *>buffer.buf
        finally:
            PyBuffer_Release(&buffer)
        self._remaining = place.remaining
        self.next_offset = place.next_offset
        self.bytes_read += place.bytes_read
        self.records_read += len(records)
        self.exhausted = self._remaining == 0
        return failure

    cdef int _continue_in_python(self, Py_ssize_t max_records, list records) except -1:
        """Append more records. The Python form leaves out those below ``next_offset``, which were read before."""
        cdef object python = self._python
        cdef Py_ssize_t bytes_before = python.bytes_read, records_before = python.records_read
        try:
            records += python.next_records(max_records)
        except KafkaError:
            # The second: an error of a signal handler.
            if not records or python.records_read != records_before:
                raise
        finally:
            self.next_offset = python.next_offset
            self.bytes_read += <Py_ssize_t>python.bytes_read - bytes_before
            self.records_read += <Py_ssize_t>python.records_read - records_before
            self.exhausted = python.exhausted
        return 0


def decode_batches(
    object buffer,
    Py_ssize_t pos,
    Py_ssize_t inside,
    Py_ssize_t remaining,
    int64_t next_offset,
    object checksum,
    bint takes_transactional,
    object owner,
    Py_ssize_t max_records,
):
    cdef Py_buffer view
    cdef Place place
    cdef Header header
    cdef const uint8_t *start
    cdef list records = []
    cdef Py_ssize_t begun_with
    cdef int32_t epoch = -1
    cdef int64_t batch_end = 0
    cdef object failure = None, timestamp_type, append_time
    cdef bint is_at_end
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        place.bytes_read = 0
        place.next_offset = next_offset
        while len(records) < max_records:
            start = <const uint8_t *>view.buf + pos
            if not read_header(start, view.len - pos, takes_transactional, &header) or header.codec:
                break
            if not remaining:
                if checksum is not None:
                    if <uint32_t>checksum(buffer[pos + 21 : pos + header.size]) != header.checksum:
                        break
                inside = HEADER_SIZE
                remaining = header.count
            begun_with = len(records)
            place.at = start + inside
            place.end = start + header.size
            place.remaining = remaining
            timestamp_type = 1 if header.has_append_time else 0
            append_time = header.max_timestamp if header.has_append_time else None
            failure = decode(
                &place,
                max_records - begun_with,
                header.base_offset,
                header.base_timestamp,
                append_time,
                timestamp_type,
                None if header.leader_epoch == -1 else header.leader_epoch,
                owner,
                records,
            )
            epoch = header.leader_epoch
            remaining = place.remaining
            if remaining:
                inside = place.at - start
                break
            batch_end = header.next_offset
            pos += header.size
        is_at_end = not remaining and is_cut_off(<const uint8_t *>view.buf + pos, view.len - pos)
        return (
            records,
            place.next_offset,
            pos,
            inside,
            remaining,
            place.bytes_read,
            epoch,
            batch_end,
            is_at_end,
            failure,
        )
    finally:
        PyBuffer_Release(&view)


cdef object decode(
    Place *place,
    Py_ssize_t max_records,
    int64_t base_offset,
    int64_t base_timestamp,
    object log_append_time,
    object timestamp_type,
    object epoch,
    object owner,
    list records,
):
    """Append up to ``max_records`` records of a batch, and move ``place`` past them.

    If fewer were appended and some remain, ``place`` is before a record that the Python form must decode, or before one
    whose deserializer raised. In the latter case, return the error to raise, otherwise None.
    """
    cdef const uint8_t *end = place.end
    cdef const uint8_t *at = place.at
    cdef Py_ssize_t remaining = place.remaining
    cdef int64_t next_offset = place.next_offset
    cdef Fields fields
    cdef int64_t offset, time, last_time = 0
    cdef Py_ssize_t bytes_read = 0, last_size = -1
    # Neighbours share equal objects: times, sizes, headers.
    cdef object timestamp = log_append_time
    cdef object minus_one = -1, size_object = minus_one, key_size, value_size
    cdef const uint8_t *last_headers = NULL
    cdef Py_ssize_t headers_size, last_headers_size = 0
    cdef object no_headers, shared_headers, headers
    cdef bint has_time = log_append_time is not None
    cdef RecordObject *new
    cdef object record, offset_object, key, value, raw_key, raw_value, part
    cdef object failure = None
    topic, partition, deserialize_key, deserialize_value, headers_type = owner
    cdef bint are_plain = headers_type is tuple
    no_headers = shared_headers = headers_type()
    cdef bint has_key_deserializer = deserialize_key is not None
    cdef bint has_value_deserializer = deserialize_value is not None
    cdef bint is_deserialized = has_key_deserializer or has_value_deserializer
    cdef bint is_strange = PyObject_IS_GC(topic) or PyObject_IS_GC(partition)  # usually False: they are str and int
    while max_records > 0 and remaining > 0:
        if not read_record(at, end, &fields) or (remaining == 1 and fields.end != end):
            break
        if not add(base_offset, fields.offset_delta, &offset) or offset == INT64_MAX:
            break
        if not add(base_timestamp, fields.timestamp_delta, &time):
            break
        if offset >= next_offset:
            if fields.headers_count == 0:
                headers = no_headers
            else:
                headers_size = fields.end - fields.headers
                if headers_size != last_headers_size or memcmp(fields.headers, last_headers, headers_size) != 0:
                    shared_headers = _headers(&fields) if are_plain else headers_type(_headers(&fields))
                    last_headers = fields.headers
                    last_headers_size = headers_size
                headers = shared_headers
            if log_append_time is None and (not has_time or time != last_time):
                timestamp = time
                last_time = time
                has_time = True
            if fields.key_size < 0:
                key = None
                key_size = minus_one
            else:
                key = PyBytes_FromStringAndSize(<const char *>fields.key, fields.key_size)
                key_size = fields.key_size
            if fields.value_size < 0:
                value = None
                value_size = minus_one
            else:
                value = PyBytes_FromStringAndSize(<const char *>fields.value, fields.value_size)
                if fields.value_size != last_size:
                    last_size = fields.value_size
                    size_object = last_size
                value_size = size_object
            if is_deserialized:
                raw_key = key
                raw_value = value
                part = "key"
                try:
                    if has_key_deserializer and raw_key is not None:
                        key = deserialize_key(topic, headers, raw_key)
                    part = "value"
                    if has_value_deserializer and raw_value is not None:
                        value = deserialize_value(topic, headers, raw_value)
                except Exception as error:
                    failure = deserialization_error(
                        owner, part, (offset, timestamp, raw_key, raw_value, headers), timestamp_type, epoch, error
                    )
                    failure.__cause__ = error
                    break
                except BaseException as error:
                    failure = error
                    break
            # From here on nothing can fail and leave a field without a value.
            offset_object = offset
            record = new_record()
            new = <RecordObject *>record
            new.topic = Py_NewRef(topic)
            new.partition = Py_NewRef(partition)
            new.leader_epoch = Py_NewRef(epoch)
            new.offset = Py_NewRef(offset_object)
            new.timestamp = Py_NewRef(timestamp)
            new.timestamp_type = Py_NewRef(timestamp_type)
            new.key = Py_NewRef(key)
            new.value = Py_NewRef(value)
            new.headers = Py_NewRef(headers)
            new.serialized_key_size = Py_NewRef(key_size)
            new.serialized_value_size = Py_NewRef(value_size)
            new.delivery_count = Py_NewRef(None)
            # Objects that the GC does not track cannot be part of a cycle. Tracking thousands of records costs more
            # than making them. Headers are tuples of immutable objects until the application asks for the list.
            # `record_setattro` handles that, and later assignments.
            if is_strange or (is_deserialized and (PyObject_IS_GC(key) or PyObject_IS_GC(value))):
                PyObject_GC_Track(record)
            records.append(record)
            next_offset = offset + 1
            max_records -= 1
            bytes_read += fields.end - at
        at = fields.end
        remaining -= 1
    place.at = at
    place.remaining = remaining
    place.next_offset = next_offset
    place.bytes_read += bytes_read
    return failure


def summarize_records(object data, Py_ssize_t count, int64_t base_timestamp):
    summary = summarize(data, count, base_timestamp)
    return summarize_records_python(data, count, base_timestamp) if summary is None else summary


cdef object summarize(object data, Py_ssize_t count, int64_t base_timestamp):
    """Return the summary of ``count`` records; None if they are broken: the Python form then raises the error."""
    cdef Py_buffer buffer
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef int64_t time, min_timestamp = -1, max_timestamp = -1
    cdef bint all_have_keys = True, offsets_follow = True
    cdef Py_ssize_t i
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>buffer.buf
        end = at + buffer.len
        for i in range(count):
            if not read_record(at, end, &fields) or not add(base_timestamp, fields.timestamp_delta, &time):
                return None
            if time > max_timestamp:
                max_timestamp = time
            if time != -1 and (min_timestamp == -1 or time < min_timestamp):
                min_timestamp = time
            if fields.offset_delta != i:
                offsets_follow = False
            if fields.key_size < 0:
                all_have_keys = False
            at = fields.end
        if at != end:
            return None
    finally:
        PyBuffer_Release(&buffer)
    return RecordsSummary(min_timestamp, max_timestamp, all_have_keys, offsets_follow)
