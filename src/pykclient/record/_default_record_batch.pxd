# Writing the header of a batch, for the compiled modules that close batches.

from libc.stdint cimport int16_t, int32_t, int64_t


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
) except -1
