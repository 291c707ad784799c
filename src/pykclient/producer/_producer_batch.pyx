"""The compiled form of ``producer_batch.py``: of what each record calls."""

from libc.stdint cimport int64_t

from pykclient.producer._record_fields cimport BatchState, FutureState, is_shared, new_future
from pykclient.record._append_state cimport (
    LACKS_MEMORY,
    append_record,
    is_plain,
    is_timestamp,
    size_of_headers,
    takes_default_records,
    unchanging,
)

from pykclient.producer.producer_batch import ProducerBatch as PythonBatch

cdef object try_append_python = PythonBatch.try_append


class ProducerBatch:
    def try_append(BatchState self, timestamp_ms, key, value, headers, on_delivery):
        cdef int64_t timestamp, size
        cdef Py_ssize_t headers_size
        cdef FutureState future
        cdef object written
        if (
            is_plain(key)
            and is_plain(value)
            and is_timestamp(timestamp_ms, &timestamp)
            and self._builder is not None
            and takes_default_records(self._builder)
        ):
            written = unchanging(headers)
            headers_size = size_of_headers(written) if written else 1
            if headers_size > 0:
                size = append_record(self._builder, timestamp, key, value, written, headers_size)
                if not size:
                    return None
                if size != LACKS_MEMORY:
                    future = new_future(self, timestamp, key, value, size)
                    if on_delivery is not None and not is_shared(self.produce_future.listeners, on_delivery):
                        self.produce_future.listeners.append((future, on_delivery, True))
                    return future
        return try_append_python(self, timestamp_ms, key, value, headers, on_delivery)
