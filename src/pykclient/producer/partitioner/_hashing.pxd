# Kafka's murmur2, the hash that chooses a key's partition. Python version: producer/partitioner/hashing.py.

from libc.stdint cimport uint8_t, uint32_t


cdef inline uint32_t murmur2_of(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t multiplier = 0x5BD1E995
    cdef uint32_t hashed = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t word
    while size >= 4:
        word = data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        word *= multiplier
        hashed = hashed * multiplier ^ (word ^ word >> 24) * multiplier
        data += 4
        size -= 4
    if size:
        word = data[0]
        if size > 1:
            word |= <uint32_t>data[1] << 8
        if size > 2:
            word |= <uint32_t>data[2] << 16
        hashed = (hashed ^ word) * multiplier
    hashed = (hashed ^ hashed >> 13) * multiplier
    return hashed ^ hashed >> 15
