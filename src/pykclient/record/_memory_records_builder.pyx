"""The compiled form of ``AppendState`` in ``memory_records_builder.py``, and the encoding of a record into a batch.

C code handles only the common case, and leaves all other cases to Python before it has changed anything. So limits,
errors and their texts are in one place.

The caller guards a batch and its fields: the producer with the lock of the partition's queue, with and without the GIL.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pykclient.record._record_writing cimport size_of_bytes, size_of_varint, write_bytes, write_varint, zigzag

from pykclient.record.memory_records_builder import OFFSET_OF_ATTRIBUTES, write_header as write_header_python
from pykclient.record.record_batch import (
    LOG_OVERHEAD,
    crc32c as _crc32c,
    CURRENT_MAGIC_VALUE,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
)
from pykclient.types import CREATE_TIME

cdef tuple _no_arguments = ()
cdef Py_ssize_t _attributes_at = OFFSET_OF_ATTRIBUTES, _log_overhead = LOG_OVERHEAD
cdef int64_t _overhead = RECORD_BATCH_OVERHEAD, _no_timestamp = NO_TIMESTAMP, _no_producer_id = NO_PRODUCER_ID
cdef int _magic = CURRENT_MAGIC_VALUE, _no_epoch = NO_PRODUCER_EPOCH, _no_sequence = NO_SEQUENCE
cdef int _no_leader_epoch = NO_PARTITION_LEADER_EPOCH, _create_time = CREATE_TIME


# --- common cases ------------------------------------------------------------------------------------------------------

cdef bint is_timestamp(object timestamp, int64_t *value) except -1:
    """Return whether ``timestamp`` is an int from -1 to 2^63 - 2: the difference of any two fits in 64 bits."""
    cdef int overflow = 0
    if type(timestamp) is not int:
        return False
    value[0] = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
    return not overflow and -1 <= value[0] < INT64_MAX


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
    """The fields of a MemoryRecordsBuilder. Numbers have at most 64 bits."""

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

    def try_append(self, timestamp_ms, key, value, headers=()):
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
        return self._try_append(timestamp_ms, key, value, headers)


cdef int64_t append_record(
    AppendState state, int64_t timestamp, object key, object value, object headers, Py_ssize_t headers_size
) except -1:
    """Append a record of plain bytes with its headers, whose size is known.

    Return its size in bytes, 0 if the batch has no room for it, or LACKS_MEMORY if memory must be borrowed first.
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
            state.refused_size = size
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


cdef AppendState new_builder(
    type builder_type,
    object buffer,
    object compression,
    int64_t write_limit,
    object lender,
    int64_t max_uncompressed_size,
    object records,
    double size_factor,
):
    """Return a builder, as ``MemoryRecordsBuilder`` does with these arguments.

    `buffer` is a bytearray with at least the size of a header. With a codec, `records` is another one.
    """
    cdef AppendState state = <AppendState>new_object_of(builder_type, _no_arguments)
    state.magic = _magic
    state.compression = compression
    state.write_limit = write_limit
    state.producer_id = _no_producer_id
    state.producer_epoch = _no_epoch
    state.base_sequence = _no_sequence
    state.compression_ratio = 1.0
    state._timestamp_type = _create_time
    state._log_append_time = _no_timestamp
    state._partition_leader_epoch = _no_leader_epoch
    state._delete_horizon_ms = _no_timestamp
    state._buffer = buffer
    state._records = buffer if records is None else records
    state._header_size = _overhead
    state._position = _overhead if records is None else 0
    state._room = write_limit - _overhead
    state._size_factor = size_factor
    state._lender = lender
    state._max_uncompressed_size = max_uncompressed_size
    state._size_limit = INT64_MAX if lender is None else PyByteArray_GET_SIZE(buffer) - state._position
    state._max_timestamp = _no_timestamp
    state._offset_of_max_timestamp = -1
    state.last_offset = -1
    return state


cdef inline uint8_t *put(uint8_t *at, uint64_t value, int size) noexcept:
    """Write the lowest `size` bytes of a number, the highest first; return the place behind them."""
    cdef int i
    for i in range(size):
        at[i] = <uint8_t>(value >> (8 * (size - 1 - i)))
    return at + size


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
) except -1:
    """Write the header of the batch in the first `end` bytes of a bytearray that is long enough."""
    cdef uint8_t *at = <uint8_t *>PyByteArray_AS_STRING(buffer) + _attributes_at
    at = put(at, <uint64_t>attributes, 2)
    at = put(at, <uint64_t>last_offset_delta, 4)
    at = put(at, <uint64_t>base_timestamp, 8)
    at = put(at, <uint64_t>max_timestamp, 8)
    at = put(at, <uint64_t>producer_id, 8)
    at = put(at, <uint64_t>producer_epoch, 2)
    at = put(at, <uint64_t>base_sequence, 4)
    put(at, <uint64_t>count, 4)
    cdef uint32_t checksum = _crc32c(memoryview(buffer)[_attributes_at:end])
    at = <uint8_t *>PyByteArray_AS_STRING(buffer)
    at = put(at, <uint64_t>base_offset, 8)
    at = put(at, <uint64_t>(end - _log_overhead), 4)
    at = put(at, <uint64_t>leader_epoch, 4)
    at[0] = <uint8_t>_magic
    put(at + 1, checksum, 4)
    return 0


def write_header(
    buffer,
    size,
    *,
    base_offset,
    last_offset_delta,
    attributes,
    base_timestamp,
    max_timestamp,
    producer_id,
    producer_epoch,
    base_sequence,
    partition_leader_epoch,
    count,
):
    cdef int64_t offset = 0, base = 0, largest = 0, producer = 0
    cdef int32_t delta = 0, sequence = 0, records = 0, leader_epoch = 0
    cdef int16_t flags = 0, epoch = 0
    cdef Py_ssize_t end
    try:
        # C would take floats and cut them off.
        if not (
            type(base_offset) is type(base_timestamp) is type(max_timestamp) is type(producer_id) is int
            and type(last_offset_delta) is type(base_sequence) is type(count) is type(partition_leader_epoch) is int
            and type(attributes) is type(producer_epoch) is type(size) is int
        ):
            raise TypeError
        offset, base, largest, producer = base_offset, base_timestamp, max_timestamp, producer_id
        delta, sequence, records, leader_epoch = last_offset_delta, base_sequence, count, partition_leader_epoch
        flags, epoch, end = attributes, producer_epoch, size
    except (OverflowError, TypeError):
        end = -1
    if type(buffer) is not bytearray or not _overhead <= end <= min(PyByteArray_GET_SIZE(buffer), 0x7FFFFFFF):
        return write_header_python(
            buffer,
            size,
            base_offset=base_offset,
            last_offset_delta=last_offset_delta,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            partition_leader_epoch=partition_leader_epoch,
            count=count,
        )
    put_header(
        buffer, end, offset, delta, flags, base, largest, producer, epoch, sequence, leader_epoch, records
    )
