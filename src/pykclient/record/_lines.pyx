"""The compiled form of ``lines.py``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

cdef struct Text:
    const char *data
    Py_ssize_t size

cdef inline const char *find(const char *start, const char *end, Text wanted) noexcept nogil:
    """Return the first place of `wanted` between `start` and `end`, or NULL."""
    cdef const char *place = start
    while end - place >= wanted.size:
        place = <const char *>memchr(place, wanted.data[0], end - place - wanted.size + 1)
        if place == NULL or wanted.size == 1 or memcmp(place, wanted.data, wanted.size) == 0:
            return place
        place += 1
    return NULL

cdef enum:
    _USUAL_ROW_BYTES = 64

cdef class Filling:
    # A column that rows are added to, with as many bytes as the text has at most.
    cdef object offsets, data, validity
    cdef int64_t *ends
    cdef char *bytes
    cdef uint8_t *bits
    cdef Py_ssize_t rows, room, size

    def __cinit__(self, Py_ssize_t size):
        self.offsets = bytearray()
        self.make_room(size // _USUAL_ROW_BYTES + 1)
        self.ends[0] = 0
        self.data = PyBytes_FromStringAndSize(NULL, size)
        self.bytes = PyBytes_AS_STRING(self.data)

    cdef int make_room(self, Py_ssize_t room) except -1:
        PyByteArray_Resize(self.offsets, 8 * (room + 1))
        self.ends = <int64_t *>PyByteArray_AS_STRING(self.offsets)
        if self.validity is not None:
            self.validity.extend(b"\xff" * (((room + 7) >> 3) - len(self.validity)))
            self.bits = <uint8_t *>PyByteArray_AS_STRING(self.validity)
        self.room = room
        return 0

    cdef int add(self, const char *start, Py_ssize_t size) except -1:
        """Add a row; NULL adds a null."""
        cdef Py_ssize_t row = self.rows
        if row == self.room:
            self.make_room(2 * row)
        if start == NULL:
            if self.validity is None:
                self.validity = bytearray(b"\xff") * ((self.room + 7) >> 3)
                self.bits = <uint8_t *>PyByteArray_AS_STRING(self.validity)
            self.bits[row >> 3] &= ~(1 << (row & 7))
        else:
            memcpy(self.bytes + self.size, start, size)
            self.size += size
        self.rows = row + 1
        self.ends[self.rows] = self.size
        return 0

    cdef tuple parts(self):
        validity = None if self.validity is None else memoryview(self.validity)[: (self.rows + 7) >> 3]
        return memoryview(self.offsets).cast("q")[: self.rows + 1], memoryview(self.data)[: self.size], validity

def split_lines(object data, bytes delimiter not None, bytes key_delimiter, bint empty_is_null):
    cdef Text ends_record, ends_key
    cdef Py_buffer view
    if not delimiter or (key_delimiter is not None and not key_delimiter):
        raise ValueError("empty separator")
    ends_record.data, ends_record.size = PyBytes_AS_STRING(delimiter), PyBytes_GET_SIZE(delimiter)
    ends_key.data, ends_key.size = NULL, 0
    if key_delimiter is not None:
        ends_key.data, ends_key.size = PyBytes_AS_STRING(key_delimiter), PyBytes_GET_SIZE(key_delimiter)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return split(<const char *>view.buf, view.len, ends_record, ends_key, empty_is_null)
    finally:
        PyBuffer_Release(&view)

cdef tuple split(const char *place, Py_ssize_t size, Text ends_record, Text ends_key, bint empty_is_null):
    cdef bint has_keys = ends_key.data != NULL
    cdef const char *end = place + size
    cdef const char *start = place
    cdef const char *stop
    cdef const char *key_end
    cdef Filling values = Filling(size)
    cdef Filling keys = Filling(size) if has_keys else None
    while start < end:
        stop = find(start, end, ends_record)
        place = end if stop == NULL else stop + ends_record.size
        if stop == NULL:
            stop = end
        if has_keys:
            key_end = find(start, stop, ends_key)
            if key_end == NULL or (empty_is_null and key_end == start):
                keys.add(NULL, 0)
            else:
                keys.add(start, key_end - start)
            if key_end != NULL:
                start = key_end + ends_key.size
        if empty_is_null and start == stop:
            values.add(NULL, 0)
        else:
            values.add(start, stop - start)
        start = place
    return None if keys is None else keys.parts(), values.parts()
