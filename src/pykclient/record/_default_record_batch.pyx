"""The compiled form of ``default_record_batch.py``: the header of a batch."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pykclient.record.record_batch import crc32c
from pykclient.record.default_record_batch import OFFSET_OF_ATTRIBUTES
from pykclient.record.default_record_batch import write_header as write_header_python
from pykclient.record.record_batch import CURRENT_MAGIC_VALUE, LOG_OVERHEAD, RECORD_BATCH_OVERHEAD

cdef object _crc32c = crc32c
cdef Py_ssize_t _attributes_at = OFFSET_OF_ATTRIBUTES, _log_overhead = LOG_OVERHEAD, _overhead = RECORD_BATCH_OVERHEAD
cdef uint8_t _magic = CURRENT_MAGIC_VALUE


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
    at[0] = _magic
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
