"""The compiled form of ``memory_records_builder.py``: of what each record calls."""

from libc.stdint cimport int64_t

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

from pykclient.record.memory_records_builder import MemoryRecordsBuilder as PythonBuilder

cdef object try_append_python = PythonBuilder.try_append


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
