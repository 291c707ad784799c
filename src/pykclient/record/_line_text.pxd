# The text of a record: what `RecordText.of` in `lines.py` returns, written into memory that is large enough.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pykclient.record._record_layout cimport Fields, read_bytes

cdef enum:
    # In a program, a piece consists of its field, its encoding, two unused bytes, the size of its text, and the text.
    PIECE_SIZE = 8
    # Digits and sign of 64 bits.
    NUMBER_SIZE = 20
    # An escape such as \u001f.
    ESCAPE_SIZE = 6
    # Quotes and names in {"key": "", "value_base64": ""}, and a member's in "_base64": "".
    HEADER_SIZE_IN_JSON = 48
    MEMBER_SIZE = 24


cdef struct Program:
    # The pieces, and bounds of the size of a text: so much, and for each byte of a key, a value, and all headers.
    const uint8_t *start
    const uint8_t *end
    Py_ssize_t fixed_size
    Py_ssize_t per_key_byte
    Py_ssize_t per_value_byte
    Py_ssize_t per_headers_byte
    Py_ssize_t per_header
    bint has_headers


cdef struct Piece:
    uint8_t field
    uint8_t encoding
    Py_ssize_t size
    const uint8_t *text


cdef inline const uint8_t *read_piece(const uint8_t *pos, Piece *piece) noexcept nogil:
    cdef int32_t size
    memcpy(&size, pos + 4, 4)
    piece.field, piece.encoding, piece.size, piece.text = pos[0], pos[1], size, pos + PIECE_SIZE
    return pos + PIECE_SIZE + size


cdef inline Py_ssize_t growth(uint8_t encoding) noexcept nogil:
    """Return how many bytes of text a byte becomes at most."""
    if encoding == c"j":
        return ESCAPE_SIZE
    return 1 if encoding == c"p" else 2


cdef inline void begin_program(Program *program, bytes pieces):
    """Prepare for writing texts. ``pieces`` must outlive the program."""
    cdef Piece piece
    cdef const uint8_t *pos
    program.start = pos = <const uint8_t *>PyBytes_AS_STRING(pieces)
    program.end = pos + PyBytes_GET_SIZE(pieces)
    program.fixed_size = program.per_key_byte = program.per_value_byte = 0
    program.per_headers_byte = program.per_header = 0
    program.has_headers = False
    while pos < program.end:
        pos = read_piece(pos, &piece)
        program.fixed_size += piece.size + MEMBER_SIZE
        if piece.field == c"k":
            program.per_key_byte += growth(piece.encoding)
        elif piece.field == c"s":
            program.per_value_byte += growth(piece.encoding)
        elif piece.field == c"h":
            program.has_headers = True
            program.per_headers_byte += growth(piece.encoding)
            program.per_header += piece.size + HEADER_SIZE_IN_JSON


cdef inline Py_ssize_t text_bound(Program *program, Fields *fields) noexcept nogil:
    """Return how large the text of a record is at most."""
    cdef Py_ssize_t size = program.fixed_size
    if fields.key_size > 0:
        size += program.per_key_byte * fields.key_size
    if fields.value_size > 0:
        size += program.per_value_byte * fields.value_size
    if fields.headers_count:
        size += program.per_headers_byte * (fields.end - fields.headers) + program.per_header * fields.headers_count
    return size


cdef inline uint8_t *write(uint8_t *at, const void *data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef inline uint8_t *write_number(uint8_t *at, int64_t number) noexcept nogil:
    cdef uint8_t digits[NUMBER_SIZE]
    cdef uint64_t rest = <uint64_t>number
    cdef int start = NUMBER_SIZE
    if number < 0:
        at[0] = c"-"
        at += 1
        rest = -rest
    while True:
        start -= 1
        digits[start] = c"0" + <uint8_t>(rest % 10)
        rest = rest // 10
        if not rest:
            return write(at, digits + start, NUMBER_SIZE - start)


cdef inline uint8_t *write_hex(uint8_t *at, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef const char *digits = b"0123456789abcdef"
    cdef Py_ssize_t i
    for i in range(size):
        at[2 * i] = digits[data[i] >> 4]
        at[2 * i + 1] = digits[data[i] & 0xF]
    return at + 2 * size


cdef inline uint8_t *write_base64(uint8_t *at, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef const char *digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef int bits
    while size > 0:
        bits = data[0] << 16 | (data[1] << 8 if size > 1 else 0) | (data[2] if size > 2 else 0)
        at[0] = digits[bits >> 18]
        at[1] = digits[bits >> 12 & 0x3F]
        at[2] = digits[bits >> 6 & 0x3F] if size > 1 else c"="
        at[3] = digits[bits & 0x3F] if size > 2 else c"="
        at += 4
        data += 3
        size -= 3
    return at


cdef inline int sequence_size(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Return the size of the character at ``data``, which is not ASCII; 0 if it is not UTF-8 (RFC 3629)."""
    cdef uint8_t first = data[0], lowest = 0x80, highest = 0xBF
    cdef int count, i
    if first < 0xC2 or first > 0xF4:
        return 0
    count = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if count > size:
        return 0
    if first == 0xE0:
        lowest = 0xA0
    elif first == 0xED:
        highest = 0x9F  # surrogates follow
    elif first == 0xF0:
        lowest = 0x90
    elif first == 0xF4:
        highest = 0x8F
    if data[1] < lowest or data[1] > highest:
        return 0
    for i in range(2, count):
        if data[i] & 0xC0 != 0x80:
            return 0
    return count


cdef inline uint64_t without(uint64_t word, uint64_t byte) noexcept nogil:
    """Return 0 if no byte of ``word`` equals ``byte``, which is repeated in each byte."""
    word ^= byte
    return (word - 0x0101010101010101ULL) & ~word


cdef inline bint is_plain(uint64_t word) noexcept nogil:
    """Return whether all eight bytes are ASCII that JSON writes as it is."""
    cdef uint64_t found = word | ((word - 0x2020202020202020ULL) & ~word)
    found |= without(word, 0x2222222222222222ULL) | without(word, 0x5C5C5C5C5C5C5C5CULL)
    return found & 0x8080808080808080ULL == 0


cdef inline uint8_t *write_escape(uint8_t *at, uint8_t byte) noexcept nogil:
    cdef const char *digits = b"0123456789abcdef"
    at[0] = c"\\"
    if byte == c'"' or byte == c"\\":
        at[1] = byte
    elif byte == c"\n":
        at[1] = c"n"
    elif byte == c"\r":
        at[1] = c"r"
    elif byte == c"\t":
        at[1] = c"t"
    elif byte == c"\b":
        at[1] = c"b"
    elif byte == c"\f":
        at[1] = c"f"
    else:
        write(at + 1, b"u00", 3)
        at[4] = digits[byte >> 4]
        at[5] = digits[byte & 0xF]
        return at + 6
    return at + 2


cdef inline uint8_t *write_string(uint8_t *at, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Write a string of JSON; return NULL if the data is not UTF-8."""
    cdef const uint8_t *end = data + size
    cdef uint64_t word
    cdef int count
    at[0] = c'"'
    at += 1
    while data < end:
        while end - data >= 8:
            memcpy(&word, data, 8)
            if not is_plain(word):
                break
            memcpy(at, &word, 8)
            at += 8
            data += 8
        while data < end and 0x20 <= data[0] < 0x80 and data[0] != c'"' and data[0] != c"\\":
            at[0] = data[0]
            at += 1
            data += 1
        if data == end:
            break
        if data[0] < 0x80:
            at = write_escape(at, data[0])
            data += 1
        while data < end and data[0] >= 0x80:
            count = sequence_size(data, end - data)
            if count == 0:
                return NULL
            at = write(at, data, count)
            data += count
    at[0] = c'"'
    return at + 1


cdef inline uint8_t *write_member(
    uint8_t *at, const void *name, Py_ssize_t name_size, const uint8_t *data, Py_ssize_t size
) noexcept nogil:
    cdef uint8_t *end
    at[0] = c'"'
    at = write(at + 1, name, name_size)
    if size < 0:
        return write(at, b'": null', 7)
    end = write_string(write(at, b'": ', 3), data, size)
    if end == NULL:
        end = write_base64(write(at, b'_base64": "', 11), data, size)
        end[0] = c'"'
        end += 1
    return end


cdef inline uint8_t *write_bytes(uint8_t *at, Piece *piece, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    if piece.encoding == c"j":
        return write_member(at, piece.text, piece.size, data, size)
    if size < 0:
        return write(at, piece.text, piece.size)
    if piece.encoding == c"x":
        return write_hex(at, data, size)
    if piece.encoding == c"b":
        return write_base64(at, data, size)
    return write(at, data, size)


cdef inline uint8_t *write_headers(uint8_t *at, Piece *piece, Fields *fields) noexcept nogil:
    cdef const uint8_t *pos = fields.headers
    cdef const uint8_t *data = NULL
    cdef Py_ssize_t size = 0, i
    cdef bint is_json = piece.encoding == c"j"
    for i in range(fields.headers_count):
        if i > 0:
            at = write(at, b", ", 2 if is_json else 1)
        pos = read_bytes(pos, fields.end, &data, &size)
        if is_json:
            at = write(at, b'{"key": ', 8)
            at = write_string(at, data, size)
            at = write(at, b", ", 2)
        else:
            at = write(at, data, size)
            at[0] = c"="
            at += 1
        pos = read_bytes(pos, fields.end, &data, &size)
        if is_json:
            at = write_member(at, b"value", 5, data, size)
            at[0] = c"}"
            at += 1
        elif size < 0:
            at = write(at, piece.text, piece.size)
        else:
            at = write(at, data, size)
    return at


cdef inline bint has_valid_names(Fields *fields) noexcept nogil:
    """Return whether all names of headers are UTF-8."""
    cdef const uint8_t *pos = fields.headers
    cdef const uint8_t *data = NULL
    cdef Py_ssize_t size = 0, i
    cdef int count
    for i in range(fields.headers_count):
        pos = read_bytes(pos, fields.end, &data, &size)
        while size > 0:
            count = 1 if data[0] < 0x80 else sequence_size(data, size)
            if count == 0:
                return False
            data += count
            size -= count
        pos = read_bytes(pos, fields.end, &data, &size)
    return True


cdef inline uint8_t *write_text(
    uint8_t *at, Program *program, Fields *fields, int64_t offset, int64_t time
) noexcept nogil:
    """Write the text of a record whose headers have valid names; return the end. ``text_bound`` says what it needs."""
    cdef const uint8_t *pos = program.start
    cdef Piece piece
    while pos < program.end:
        pos = read_piece(pos, &piece)
        if piece.field == c" ":
            if piece.size == 1:
                at[0] = piece.text[0]
                at += 1
            else:
                at = write(at, piece.text, piece.size)
        elif piece.field == c"s":
            at = write_bytes(at, &piece, fields.value, fields.value_size)
        elif piece.field == c"k":
            at = write_bytes(at, &piece, fields.key, fields.key_size)
        elif piece.field == c"o":
            at = write_number(at, offset)
        elif piece.field == c"T":
            if time < 0 and piece.encoding == c"j":
                at = write(at, b"null", 4)
            else:
                at = write_number(at, time)
        elif piece.field == c"h":
            at = write_headers(at, &piece, fields)
        else:
            at = write_number(at, fields.key_size if piece.field == c"K" else fields.value_size)
    return at
