"""The compiled form of ``default_record.py``: of what a broker checks."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from pykclient.record._record_layout cimport Fields, add, read_record

from pykclient.record.default_record import RecordsSummary, summarize_records as summarize_records_python


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
