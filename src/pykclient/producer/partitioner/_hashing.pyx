"""The compiled form of ``hashing.py``; C code takes the hash from ``_hashing.pxd``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t, uint32_t

from pykclient.record._row_columns cimport Column, fetch

from pykclient.errors import IllegalArgumentError
from pykclient.producer.partitioner.hashing import POSITIVE, UNCHOSEN
from pykclient.producer.partitioner.hashing import murmur2 as murmur2_python

cdef uint32_t positive = POSITIVE
cdef int32_t unchosen = UNCHOSEN


def murmur2(object data):
    if type(data) is not bytes:
        return murmur2_python(data)
    return murmur2_of(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def hash_partitions(object keys, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t count, object numbers):
    """The twin of ``hash_partitions``."""
    cdef Column column = Column(keys)
    cdef Py_buffer view
    cdef int32_t *of_row
    cdef const uint8_t *data
    cdef Py_ssize_t row, size
    if count < 1:
        raise IllegalArgumentError(f"a topic cannot have {count} partitions")
    PyObject_GetBuffer(numbers, &view, PyBUF_WRITABLE)
    try:
        if start < 0 or stop > view.len // 4:
            raise IndexError(f"rows {start} to {stop} are not in {view.len // 4}")
        of_row = <int32_t *>view.buf
        for row in range(start, stop):
            if of_row[row] == unchosen:
                if not fetch(&column.bytes, row, &data, &size):
                    column.blame(row)
                if size >= 0:
                    of_row[row] = <int32_t>((murmur2_of(data, size) & positive) % count)
    finally:
        PyBuffer_Release(&view)
