"""The compiled form of ``producer_batch.py``: of what each record and each batch calls."""

from libc.stdint cimport int64_t

from pykclient.producer._record_fields cimport BatchState, FutureState, ResultState, is_shared, new_future
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

from pykclient.record._memory_records_builder cimport close_plain

from pykclient.producer.producer_batch import ProducerBatch as PythonBatch

cdef object try_append_python = PythonBatch.try_append
cdef object close_python = PythonBatch.close
cdef object decide_python = PythonBatch.decide
cdef object set_producer_state_python = PythonBatch.set_producer_state


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

    def close(BatchState self):
        if not close_plain(self._builder):
            return close_python(self)
        self.size_in_bytes = self._builder._position
        self.compression_ratio = self._builder.compression_ratio
        self.sequence_has_been_reset = False

    def set_producer_state(BatchState self, producer_id, producer_epoch, base_sequence, is_transactional=False):
        cdef AppendState builder = self._builder
        if builder.is_closed:
            return set_producer_state_python(self, producer_id, producer_epoch, base_sequence, is_transactional)
        builder.producer_id = self.producer_id = producer_id
        builder.producer_epoch = self.producer_epoch = producer_epoch
        builder.base_sequence = self.base_sequence = base_sequence
        builder.is_transactional = is_transactional

    def decide(BatchState self, final_state, base_offset, log_append_time_ms, error_for=None):
        cdef ResultState result = self.produce_future
        if self.final_state is not None:
            return decide_python(self, final_state, base_offset, log_append_time_ms, error_for)
        result.base_offset = base_offset
        result.log_append_time_ms = log_append_time_ms
        result.error_for = error_for
        result.record_count = self._builder.num_records
        result.created_ms = self.created_ms
        self.final_state = final_state
        return True
