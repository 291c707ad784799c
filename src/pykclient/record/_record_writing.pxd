# Encoding of records in format 2, shared by all modules that write records. For decoding see record_layout.pxd.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t size_of_varint(uint64_t number) noexcept nogil:
    """Return the encoded size of a number in zigzag form."""
    if number <= 0x7F:
        return 1
    if number <= 0x3FFF:
        return 2
    cdef Py_ssize_t size = 3
    number >>= 21
    while number:
        number >>= 7
        size += 1
    return size


cdef inline uint8_t *write_varint(uint8_t *at, uint64_t number) noexcept nogil:
    while number > 0x7F:
        at[0] = <uint8_t>(number & 0x7F | 0x80)
        at += 1
        number >>= 7
    at[0] = <uint8_t>number
    return at + 1


cdef inline Py_ssize_t size_of_bytes(Py_ssize_t size) noexcept nogil:
    """Return the encoded size of bytes preceded by their size; ``size`` is -1 for None."""
    return 1 if size < 0 else size_of_varint(<uint64_t>size << 1) + size


cdef inline uint8_t *write_bytes(uint8_t *at, const char *data, Py_ssize_t size) noexcept nogil:
    if size < 0:
        at[0] = 1
        return at + 1
    at = write_varint(at, <uint64_t>size << 1)
    memcpy(at, data, size)
    return at + size
