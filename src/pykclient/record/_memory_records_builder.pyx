"""The compiled form of ``memory_records_builder.py``: of what each record and each batch calls."""

from cpython.bytearray cimport PyByteArray_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t

from pykclient.record._append_state cimport (
    LACKS_MEMORY,
    AppendState,
    append_record,
    is_plain,
    is_timestamp,
    size_of_headers,
    takes_default_records,
    unchanging,
)

from pykclient.record._default_record_batch cimport put_header

from pykclient.record.compression import NO_COMPRESSION
from pykclient.record.compression_type import CompressionType
from pykclient.record.default_record_batch import compute_attributes
from pykclient.record.memory_records_builder import MemoryRecordsBuilder as PythonBuilder
from pykclient.record.record_batch import CURRENT_MAGIC_VALUE, MAX_INT32, NO_PRODUCER_ID, RECORD_BATCH_OVERHEAD
from pykclient.types import CREATE_TIME

cdef object try_append_python = PythonBuilder.try_append
cdef object close_python = PythonBuilder.close

cdef object _no_compression = NO_COMPRESSION
cdef int64_t _overhead = RECORD_BATCH_OVERHEAD, _no_producer_id = NO_PRODUCER_ID, _max_int32 = MAX_INT32
cdef int _magic = CURRENT_MAGIC_VALUE, _create_time = CREATE_TIME
cdef int16_t _attributes = compute_attributes(CompressionType.NONE, CREATE_TIME)
cdef int16_t _attributes_in_transaction = compute_attributes(CompressionType.NONE, CREATE_TIME, True)


cdef bint close_plain(AppendState state) except -1:
    """Close a builder of uncompressed records of an application, as ``MemoryRecordsBuilder.close`` does.

    Return False, with nothing changed, if the twin must close it.
    """
    cdef int64_t last_delta = state.last_offset - state.base_offset
    if (
        state.aborted
        or state.is_closed
        or state.magic != _magic
        or state.is_control_batch
        or state._records is not state._buffer
        or type(state._buffer) is not bytearray
        or state._header_size != _overhead
        or not 0 < state.num_records <= _max_int32
        or not (state.has_last_offset and state.has_base_timestamp and 0 <= last_delta <= _max_int32)
        or not state._uncompressed_size
        or state._timestamp_type != _create_time
        or state._delete_horizon_ms >= 0
        or not _overhead <= state._position <= min(PyByteArray_GET_SIZE(state._buffer), _max_int32)
        or state.compression is not _no_compression
    ):
        return False
    if state.producer_id == _no_producer_id:
        if state.is_transactional:
            return False
    elif not 0 <= state.producer_epoch <= 0x7FFF or state.base_sequence < 0:
        return False
    state._append_closed = True
    put_header(
        state._buffer,
        state._position,
        state.base_offset,
        <int32_t>last_delta,
        _attributes_in_transaction if state.is_transactional else _attributes,
        state.base_timestamp,
        state._max_timestamp,
        state.producer_id,
        <int16_t>state.producer_epoch,
        state.base_sequence,
        state._partition_leader_epoch,
        <int32_t>state.num_records,
    )
    state.compression_ratio = <double>(state._position - state._header_size) / state._uncompressed_size
    state.is_closed = True
    return True


class MemoryRecordsBuilder:
    def try_append(AppendState self, timestamp_ms, key, value, headers=()):
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
        return try_append_python(self, timestamp_ms, key, value, headers)

    def close(AppendState self):
        if not close_plain(self):
            close_python(self)
