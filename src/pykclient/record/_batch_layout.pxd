# The layout of the header of a batch, shared by the modules that read batch after batch.

from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    LOG_OVERHEAD = 12
    HEADER_SIZE_UP_TO_MAGIC = 17
    HEADER_SIZE = 61
    SMALLEST_BATCH = 14  # of any format, without the overhead
    COMPRESSION_MASK = 0x07
    LOG_APPEND_TIME_FLAG = 0x08
    TRANSACTIONAL_FLAG = 0x10
    CONTROL_FLAG = 0x20


cdef struct Header:
    Py_ssize_t size  # of the whole batch
    int64_t base_offset
    int64_t next_offset  # after the batch
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t leader_epoch
    int32_t count
    uint32_t checksum
    int codec  # 0: not compressed
    bint has_append_time


cdef inline uint32_t read_uint32(const uint8_t *at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int64_t read_int64(const uint8_t *at) noexcept nogil:
    return <int64_t>(<uint64_t>read_uint32(at) << 32 | read_uint32(at + 4))


cdef inline bint read_header(const uint8_t *start, Py_ssize_t left, bint takes_transactional, Header *header) noexcept nogil:
    """Read the header of a batch that needs no decision, except for its checksum and its codec, and is whole.

    Return false for any other of the ``left`` bytes from ``start`` on.
    """
    cdef int attributes
    cdef int32_t last_offset_delta
    if left < HEADER_SIZE:
        return False
    header.size = read_uint32(start + 8)
    header.size += LOG_OVERHEAD
    header.count = <int32_t>read_uint32(start + 57)
    if header.size < HEADER_SIZE or header.size > left or start[16] != 2 or header.count <= 0:
        return False
    attributes = start[22]
    if attributes & CONTROL_FLAG:
        return False
    if attributes & TRANSACTIONAL_FLAG and not takes_transactional:
        return False
    header.base_offset = read_int64(start)
    last_offset_delta = <int32_t>read_uint32(start + 23)
    if not 0 <= header.base_offset < INT64_MAX - INT32_MAX or last_offset_delta < 0:
        return False
    header.next_offset = header.base_offset + last_offset_delta + 1
    header.leader_epoch = <int32_t>read_uint32(start + 12)
    header.checksum = read_uint32(start + 17)
    header.base_timestamp = read_int64(start + 27)
    header.max_timestamp = read_int64(start + 35)
    header.codec = attributes & COMPRESSION_MASK
    header.has_append_time = attributes & LOG_APPEND_TIME_FLAG
    return True


cdef inline bint is_cut_off(const uint8_t *start, Py_ssize_t left) noexcept nogil:
    """Return whether ``left`` bytes are not enough for another batch. False for what the Python version must handle."""
    cdef int32_t size
    if left < LOG_OVERHEAD:
        return True
    size = <int32_t>read_uint32(start + 8)
    if size < SMALLEST_BATCH:
        return False
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return True
    return start[16] <= 2 and <Py_ssize_t>size + LOG_OVERHEAD > left
