# The layout of a record in format 2, shared by all modules that iterate over records.
#
# `read_record` accepts exactly the records that the Python decoders accept. The caller leaves all others to them, so
# that errors are raised and worded in one place.

from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef struct Fields:
    const uint8_t *key  # NULL for None, like value
    Py_ssize_t key_size  # -1 for None
    const uint8_t *value
    Py_ssize_t value_size
    const uint8_t *headers  # after their number
    Py_ssize_t headers_count
    const uint8_t *end
    int64_t timestamp_delta
    int32_t offset_delta


cdef inline const uint8_t *read_varint(const uint8_t *pos, const uint8_t *end, uint32_t *zigzag) noexcept nogil:
    """Read a varint of at most five bytes; return its end, or NULL if that is not before ``end``."""
    cdef uint32_t result, byte
    cdef int shift = 7
    if pos >= end:
        return NULL
    result = pos[0]
    pos += 1
    if result > 0x7F:
        result &= 0x7F
        while True:
            if pos >= end or shift > 28:
                return NULL
            byte = pos[0]
            pos += 1
            result |= (byte & 0x7F) << shift
            if byte <= 0x7F:
                break
            shift += 7
    zigzag[0] = result
    return pos


cdef inline const uint8_t *read_varlong(const uint8_t *pos, const uint8_t *end, uint64_t *zigzag) noexcept nogil:
    """Read a varint of at most ten bytes; return its end, or NULL if that is not before ``end``."""
    cdef uint64_t result, byte
    cdef int shift = 7
    if pos >= end:
        return NULL
    result = pos[0]
    pos += 1
    if result > 0x7F:
        result &= 0x7F
        while True:
            if pos >= end or shift > 63:
                return NULL
            byte = pos[0]
            pos += 1
            result |= (byte & 0x7F) << shift
            if byte <= 0x7F:
                break
            shift += 7
    zigzag[0] = result
    return pos


cdef inline const uint8_t *read_bytes(
    const uint8_t *pos, const uint8_t *end, const uint8_t **data, Py_ssize_t *size
) noexcept nogil:
    """Read bytes preceded by their size, which is odd (negative) for None."""
    cdef uint32_t zigzag = 0
    pos = read_varint(pos, end, &zigzag)
    if pos == NULL:
        return NULL
    if zigzag & 1:
        data[0] = NULL
        size[0] = -1
        return pos
    if zigzag >> 1 > end - pos:
        return NULL
    data[0] = pos
    size[0] = zigzag >> 1
    return pos + size[0]


cdef inline const uint8_t *read_headers(const uint8_t *pos, const uint8_t *end, Py_ssize_t count) noexcept nogil:
    """Return the end of ``count`` headers."""
    cdef const uint8_t *data = NULL
    cdef Py_ssize_t size = 0, i
    for i in range(count):
        pos = read_bytes(pos, end, &data, &size)
        if pos == NULL or size < 0:
            return NULL
        pos = read_bytes(pos, end, &data, &size)
        if pos == NULL:
            return NULL
    return pos


cdef inline const uint8_t *read_short(const uint8_t *pos, uint32_t *zigzag) noexcept nogil:
    """Read a varint of at most two bytes, which must exist; return NULL if it has more."""
    zigzag[0] = pos[0]
    if pos[0] <= 0x7F:
        return pos + 1
    if pos[1] > 0x7F:
        return NULL
    zigzag[0] += (<uint32_t>pos[1] << 7) - 0x80
    return pos + 2


cdef inline bint read_plain_record(const uint8_t *pos, const uint8_t *end, Fields *fields) noexcept nogil:
    """Do what ``read_record`` does for a record without headers whose numbers have at most two bytes, in half the time.

    Return false for any other record. Nearly all records are of this kind.
    """
    cdef uint32_t zigzag = 0
    if end - pos < 2:
        return False
    pos = read_short(pos, &zigzag)
    # From here to the key's size there are at most 7 bytes.
    if pos == NULL or zigzag & 1 or zigzag < 14 or zigzag >> 1 > end - pos:
        return False
    end = pos + (zigzag >> 1)
    pos = read_short(pos + 1, &zigzag)
    if pos == NULL:
        return False
    fields.timestamp_delta = <int64_t>(zigzag >> 1) ^ -<int64_t>(zigzag & 1)
    pos = read_short(pos, &zigzag)
    if pos == NULL:
        return False
    fields.offset_delta = <int32_t>(zigzag >> 1) ^ -<int32_t>(zigzag & 1)
    pos = read_short(pos, &zigzag)
    if pos == NULL:
        return False
    if zigzag & 1:
        fields.key = NULL
        fields.key_size = -1
    else:
        fields.key = pos
        fields.key_size = zigzag >> 1
        if fields.key_size > end - pos:
            return False
        pos += fields.key_size
    if end - pos < 2:
        return False
    pos = read_short(pos, &zigzag)
    if pos == NULL:
        return False
    if zigzag & 1:
        fields.value = NULL
        fields.value_size = -1
    else:
        fields.value = pos
        fields.value_size = zigzag >> 1
        if fields.value_size > end - pos:
            return False
        pos += fields.value_size
    if pos + 1 != end or pos[0]:
        return False
    fields.headers = fields.end = end
    fields.headers_count = 0
    return True


cdef inline bint read_record(const uint8_t *pos, const uint8_t *end, Fields *fields) noexcept nogil:
    """Return whether a record starts at ``pos``, fills its declared length, and ends before ``end``."""
    return read_plain_record(pos, end, fields) or read_any_record(pos, end, fields)


cdef inline bint read_any_record(const uint8_t *pos, const uint8_t *end, Fields *fields) noexcept nogil:
    cdef uint32_t zigzag = 0
    cdef uint64_t long_zigzag = 0
    pos = read_varint(pos, end, &zigzag)
    if pos == NULL or zigzag & 1 or zigzag >> 1 > end - pos or not zigzag:
        return False
    end = pos + (zigzag >> 1)
    # A byte of attributes, none of which are defined, precedes the timestamp.
    pos = read_varlong(pos + 1, end, &long_zigzag)
    if pos == NULL:
        return False
    fields.timestamp_delta = <int64_t>(long_zigzag >> 1) ^ -<int64_t>(long_zigzag & 1)
    pos = read_varint(pos, end, &zigzag)
    if pos == NULL:
        return False
    fields.offset_delta = <int32_t>(zigzag >> 1) ^ -<int32_t>(zigzag & 1)
    pos = read_bytes(pos, end, &fields.key, &fields.key_size)
    if pos == NULL:
        return False
    pos = read_bytes(pos, end, &fields.value, &fields.value_size)
    if pos == NULL:
        return False
    pos = read_varint(pos, end, &zigzag)
    if pos == NULL or zigzag & 1:
        return False
    fields.headers = pos
    fields.headers_count = zigzag >> 1
    if zigzag:
        # A header has at least two bytes.
        if fields.headers_count > (end - pos) // 2:
            return False
        pos = read_headers(pos, end, fields.headers_count)
    fields.end = end
    return pos == end


cdef inline bint add(int64_t base, int64_t delta, int64_t *total) noexcept nogil:
    """Return whether the sum fits into 64 bits."""
    if (base > INT64_MAX - delta) if delta >= 0 else (base < INT64_MIN - delta):
        return False
    total[0] = base + delta
    return True
