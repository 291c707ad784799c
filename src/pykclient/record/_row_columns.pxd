# Columns of bytes, for the compiled modules that read them.

from libc.stdint cimport int64_t, uint8_t


cdef struct Bytes:
    const int64_t *offsets  # NULL: all rows are null
    const uint8_t *data
    const uint8_t *validity  # NULL: no row is null
    Py_ssize_t length
    Py_ssize_t data_size
    Py_ssize_t validity_offset
    Py_ssize_t validity_bits


cdef inline bint fetch(const Bytes *column, Py_ssize_t row, const uint8_t **data, Py_ssize_t *size) noexcept nogil:
    """Get a row's bytes, with a size of -1 for null.

    Return false if the offsets are outside the buffers: see `blame`.
    """
    cdef Py_ssize_t bit
    cdef int64_t start, end
    size[0] = -1
    data[0] = NULL
    if column.offsets == NULL:
        return True
    if row < 0 or row >= column.length:
        return False
    if column.validity != NULL:
        bit = column.validity_offset + row
        if bit < 0 or bit >= column.validity_bits:
            return False
        if not column.validity[bit >> 3] >> (bit & 7) & 1:
            return True
    start = column.offsets[row]
    end = column.offsets[row + 1]
    if not 0 <= start <= end <= column.data_size:
        return False
    data[0] = column.data + start
    size[0] = end - start
    return True


cdef class Column:
    # The held buffers of a BytesColumn; without one, all rows are null.
    cdef Py_buffer _offsets, _data, _validity
    cdef Bytes bytes
    cdef bint has_offsets, has_data, has_validity
    cdef int blame(self, Py_ssize_t row) except -1
