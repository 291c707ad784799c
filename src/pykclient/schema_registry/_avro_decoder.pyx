"""The compiled form of ``avro_decoder.py``: the same classes, with columns that are written in C."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from pykclient.errors import SerializationError
from pykclient.schema_registry.avro_decoder import MOST_EMPTY
from pykclient.schema_registry.avro_nodes import DEEPEST

# As in avro_nodes.py, which a test compares.
cdef enum:
    BITS, FIXED, BYTES, LIST, STRUCT

cdef enum:
    NULL_STEP, BOOLEAN, LONG, LONG_TO_FLOAT, FLOAT, FLOAT_TO_DOUBLE, DOUBLE, TEXT, RAW, ENUM, DECIMAL, RECORD, ARRAY, MAP,
    UNION, TAGGED_UNION, DEFAULT, FAIL

FORMS = (BITS, FIXED, BYTES, LIST, STRUCT)
STEPS = (
    NULL_STEP, BOOLEAN, LONG, LONG_TO_FLOAT, FLOAT, FLOAT_TO_DOUBLE, DOUBLE, TEXT, RAW, ENUM, DECIMAL, RECORD, ARRAY, MAP,
    UNION, TAGGED_UNION, DEFAULT, FAIL,
)

cdef int64_t _MOST_EMPTY = MOST_EMPTY
cdef int _DEEPEST = DEEPEST


cdef struct Col:
    int form
    Py_ssize_t width
    int64_t length
    int64_t null_count
    uint8_t *data
    Py_ssize_t size  # bytes of data
    Py_ssize_t capacity
    int32_t *offsets
    Py_ssize_t offsets_capacity
    uint8_t *validity
    Py_ssize_t validity_capacity
    int count
    Col **children
    void *owner  # the Column, which outlives this


cdef class Column:
    """A column that grows."""

    cdef Col c
    cdef bytearray _data, _offsets, _validity
    cdef readonly list children

    def __cinit__(self, int form, Py_ssize_t width, children):
        cdef int place
        cdef Column child
        self._data, self._offsets, self._validity = bytearray(), bytearray(4), bytearray()
        self.children = list(children)
        self.c.form = form
        self.c.width = width
        self.c.owner = <void *>self
        self.c.offsets = <int32_t *>PyByteArray_AS_STRING(self._offsets)
        self.c.offsets_capacity = 1
        self.c.count = len(self.children)
        if self.c.count:
            self.c.children = <Col **>calloc(self.c.count, sizeof(Col *))
            if self.c.children == NULL:
                raise MemoryError
        for place in range(self.c.count):
            child = self.children[place]
            self.c.children[place] = &child.c

    def __dealloc__(self):
        free(self.c.children)

    @property
    def form(self):
        return self.c.form

    @property
    def width(self):
        return self.c.width

    @property
    def length(self):
        return self.c.length

    @property
    def null_count(self):
        return self.c.null_count

    def buffers(self):
        """Return the number of values and of nulls, the validity (None: all are valid), the offsets and the data."""
        cdef Col *c = &self.c
        cdef Py_ssize_t size = (c.length + 7) >> 3 if c.form == BITS else c.size
        PyByteArray_Resize(self._data, size)
        c.capacity = size
        c.data = <uint8_t *>PyByteArray_AS_STRING(self._data)
        if c.form == BYTES or c.form == LIST:
            PyByteArray_Resize(self._offsets, 4 * (c.length + 1))
            c.offsets_capacity = c.length + 1
            c.offsets = <int32_t *>PyByteArray_AS_STRING(self._offsets)
        if c.null_count:
            PyByteArray_Resize(self._validity, (c.length + 7) >> 3)
            c.validity_capacity = (c.length + 7) >> 3
            c.validity = <uint8_t *>PyByteArray_AS_STRING(self._validity)
        return c.length, c.null_count, self._validity if c.null_count else None, self._offsets, self._data

    def add_null(self):
        """Add null."""
        add_null(&self.c)

    def truncate(self, int64_t length):
        """Remove all values from ``length`` on, including incomplete ones."""
        truncate(&self.c, length)


cdef int grow_data(Col *c, Py_ssize_t more) except -1:
    cdef Column owner = <Column>c.owner
    cdef Py_ssize_t capacity = max(2 * c.capacity, c.size + more, 1024)
    PyByteArray_Resize(owner._data, capacity)
    c.data = <uint8_t *>PyByteArray_AS_STRING(owner._data)
    if c.form == BITS:
        memset(c.data + c.capacity, 0, capacity - c.capacity)
    c.capacity = capacity
    return 0


cdef int grow_offsets(Col *c, Py_ssize_t least) except -1:
    cdef Column owner = <Column>c.owner
    cdef Py_ssize_t capacity = max(2 * c.offsets_capacity, least, 256)
    PyByteArray_Resize(owner._offsets, 4 * capacity)
    c.offsets = <int32_t *>PyByteArray_AS_STRING(owner._offsets)
    c.offsets_capacity = capacity
    return 0


cdef int grow_validity(Col *c) except -1:
    cdef Column owner = <Column>c.owner
    cdef Py_ssize_t capacity = max(2 * c.validity_capacity, 64, (c.length >> 3) + 1)
    PyByteArray_Resize(owner._validity, capacity)
    c.validity = <uint8_t *>PyByteArray_AS_STRING(owner._validity)
    memset(c.validity + c.validity_capacity, 0xFF, capacity - c.validity_capacity)
    c.validity_capacity = capacity
    return 0


cdef int reserve(Col *c, int64_t rows) except -1:
    """Make room for ``rows`` more values, as far as their sizes are known: a column that grows is copied."""
    cdef int place
    if c.form == FIXED:
        if c.capacity < c.size + rows * c.width:
            grow_data(c, rows * c.width)
    elif c.form == BITS:
        if c.capacity <= (c.length + rows) >> 3:
            grow_data(c, ((c.length + rows) >> 3) + 1)
    elif c.form == BYTES or c.form == LIST:
        if c.offsets_capacity <= c.length + rows:
            grow_offsets(c, c.length + rows + 1)
    elif c.form == STRUCT:
        for place in range(c.count):
            reserve(c.children[place], rows)
    return 0


cdef inline int clear_valid(Col *c) except -1:
    """Make the next value null. Validity has bits only as far as there are nulls, and the rest is set when it grows."""
    if c.length >> 3 >= c.validity_capacity:
        grow_validity(c)
    c.validity[c.length >> 3] &= ~(1 << (c.length & 7))
    c.null_count += 1
    return 0


cdef inline uint8_t *room(Col *c, Py_ssize_t size) except NULL:
    """Return the place of ``size`` more bytes of data, which count as added."""
    if c.size + size > c.capacity or c.data == NULL:
        grow_data(c, size)
    c.size += size
    return c.data + c.size - size


cdef int fail(text) except -1:
    """Raise; apart from the functions that call it, so that they are small enough to be inlined."""
    raise SerializationError(text)


cdef inline int end_offset(Col *c, int64_t end) except -1:
    if end > INT32_MAX:
        fail("a column of more than 2 GiB: poll for fewer records (max_bytes)")
    if c.length + 1 >= c.offsets_capacity:
        grow_offsets(c, 0)
    c.offsets[c.length + 1] = <int32_t>end
    c.length += 1
    return 0


cdef inline int add_bit(Col *c, int bit) except -1:
    if c.length >> 3 >= c.capacity:
        grow_data(c, 0)
    c.size = (c.length >> 3) + 1
    if bit:
        c.data[c.length >> 3] |= 1 << (c.length & 7)
    else:
        c.data[c.length >> 3] &= ~(1 << (c.length & 7))
    c.length += 1
    return 0


cdef int add_null(Col *c) except -1:
    cdef int place
    clear_valid(c)
    if c.form == BITS:
        return add_bit(c, 0)
    if c.form == FIXED:
        if c.width:
            memset(room(c, c.width), 0, c.width)
    elif c.form == STRUCT:
        for place in range(c.count):
            add_null(c.children[place])
    else:
        return end_offset(c, c.offsets[c.length])
    c.length += 1
    return 0


cdef int truncate(Col *c, int64_t length) except -1:
    cdef int64_t at
    cdef int place
    for at in range(length, c.length):
        if at >> 3 < c.validity_capacity and not c.validity[at >> 3] >> (at & 7) & 1:
            c.null_count -= 1
            c.validity[at >> 3] |= 1 << (at & 7)
    # A value that is not complete may have its bit cleared already.
    if c.length >> 3 < c.validity_capacity and not c.validity[c.length >> 3] >> (c.length & 7) & 1:
        c.null_count -= 1
        c.validity[c.length >> 3] |= 1 << (c.length & 7)
    c.length = min(c.length, length)
    if c.form == BITS:
        c.size = (c.length + 7) >> 3
    elif c.form == FIXED:
        c.size = c.length * c.width
    elif c.form == BYTES:
        c.size = c.offsets[c.length]
    elif c.form == LIST:
        truncate(c.children[0], c.offsets[c.length])
    else:
        for place in range(c.count):
            truncate(c.children[place], c.length)
    return 0


# --- steps -----------------------------------------------------------------------------------------------------------

cdef struct Node:
    int kind
    Col *column
    Py_ssize_t size
    int count
    Node **steps
    int32_t *mapping
    int mapped
    const uint8_t *data
    Py_ssize_t data_size
    void *text
    Node *next  # of those that the decoder frees


cdef struct Source:
    const uint8_t *p
    const uint8_t *end


cdef int fail_at_end() except -1:
    raise IndexError("the bytes end inside of a value")


cdef int read_long_number(Source *s, int64_t *value) except -1:
    cdef const uint8_t *p = s.p
    cdef uint64_t found = 0, byte
    cdef int shift = 0
    while True:
        if p == s.end:
            fail_at_end()
        byte = p[0]
        p += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            fail("a number of more than 64 bits")
    s.p = p
    value[0] = <int64_t>(found >> 1) ^ -<int64_t>(found & 1)
    return 0


cdef inline int read_long(Source *s, int64_t *value) except -1:
    cdef uint8_t byte
    if s.p == s.end or s.p[0] >= 0x80:
        return read_long_number(s, value)
    byte = s.p[0]  # most sizes and branches have one byte
    s.p += 1
    value[0] = byte >> 1 ^ -<int64_t>(byte & 1)
    return 0


cdef inline int read_size(Source *s, int64_t *size) except -1:
    read_long(s, size)
    if size[0] < 0:
        fail(f"a negative size: {size[0]}")
    if size[0] > s.end - s.p:
        fail_at_end()
    return 0


cdef inline int need(Source *s, Py_ssize_t size) except -1:
    if s.end - s.p < size:
        fail_at_end()
    return 0


cdef inline int check_text(const uint8_t *data, Py_ssize_t size) except -1:
    cdef Py_ssize_t at = 0
    cdef uint64_t word
    while at + 8 <= size:
        memcpy(&word, data + at, 8)
        if word & <uint64_t>0x8080808080808080:
            break
        at += 8
    while at < size and data[at] < 0x80:
        at += 1
    if at < size:
        try:
            PyUnicode_DecodeUTF8(<const char *>data + at, size - at, NULL)
        except UnicodeDecodeError:
            raise SerializationError("a string that is not UTF-8") from None
    return 0


cdef int read_text(Node *node, Source *s) except -1:
    cdef int64_t size
    cdef Col *c = node.column
    read_size(s, &size)
    if node.size:
        check_text(s.p, size)
    if c != NULL:
        if size <= 16 and s.end - s.p >= 16 and c.size + 16 <= c.capacity:
            memcpy(c.data + c.size, s.p, 16)  # a fixed size is no call; the next value overwrites the rest
            c.size += size
        else:
            memcpy(room(c, size), s.p, size)
        end_offset(c, c.size)
    s.p += size
    return 0


cdef int read_number(Node *node, Source *s) except -1:
    cdef int64_t value
    cdef int32_t narrow
    cdef double double_value
    cdef float float_value
    cdef Col *c = node.column
    read_long(s, &value)
    if node.kind == LONG and c != NULL and c.width == 8:
        memcpy(room(c, 8), &value, 8)
        c.length += 1
        return 0
    if node.kind == ENUM:
        if not 0 <= value < node.mapped:
            raise SerializationError(f"there is no symbol {value} of {node.mapped} in an enum")
        value = node.mapping[value]
        if value < 0:
            raise SerializationError(<object>node.text)
    if c == NULL:
        return 0
    if node.kind == LONG_TO_FLOAT:
        if c.width == 4:
            float_value = <float><double>value
            memcpy(room(c, 4), &float_value, 4)
        else:
            double_value = <double>value
            memcpy(room(c, 8), &double_value, 8)
    else:
        if not INT32_MIN <= value <= INT32_MAX:
            raise SerializationError("a number of more than 32 bits")
        narrow = <int32_t>value
        memcpy(room(c, 4), &narrow, 4)
    c.length += 1
    return 0


cdef int read_decimal(Node *node, Source *s) except -1:
    cdef int64_t size = node.size
    cdef Py_ssize_t at
    cdef uint8_t *out
    cdef uint8_t sign
    if not size:
        read_size(s, &size)
    need(s, size)
    if node.column == NULL:
        s.p += size
        return 0
    sign = 0xFF if size and s.p[0] & 0x80 else 0
    for at in range(size - 16):
        if s.p[at] != sign:
            raise SerializationError("a decimal of more than 16 bytes")
    if size > 16 and (s.p[size - 16] ^ sign) & 0x80:
        raise SerializationError("a decimal of more than 16 bytes")
    out = room(node.column, 16)
    memset(out, sign, 16)
    for at in range(min(size, 16)):
        out[at] = s.p[size - 1 - at]
    node.column.length += 1
    s.p += size
    return 0


cdef inline int read_fixed(Node *node, Source *s) except -1:
    cdef Py_ssize_t size = 8 if node.kind == DOUBLE else 4 if node.kind == FLOAT else node.size
    cdef uint8_t *to
    need(s, size)
    if node.column != NULL:
        to = room(node.column, size)
        if size == 8:  # a constant size is no call
            memcpy(to, s.p, 8)
        elif size == 4:
            memcpy(to, s.p, 4)
        else:
            memcpy(to, s.p, size)
        node.column.length += 1
    s.p += size
    return 0


cdef inline int read_boolean(Node *node, Source *s) except -1:
    need(s, 1)
    if s.p[0] > 1:
        fail(f"{s.p[0]} is no boolean")
    if node.column != NULL:
        add_bit(node.column, s.p[0])
    s.p += 1
    return 0


cdef inline bint begins(const uint8_t *data, const uint8_t *wanted, Py_ssize_t size) noexcept:
    """Return whether data begins with a prefix, which mostly is five bytes."""
    cdef uint32_t first, second
    if size == 5:  # a constant size is no call
        memcpy(&first, data, 4)
        memcpy(&second, wanted, 4)
        return first == second and data[4] == wanted[4]
    return memcmp(data, wanted, size) == 0


cdef int read_list(Node *node, Source *s, int depth) except -1:
    cdef int64_t count, ignored, empty = 0
    while True:
        read_long(s, &count)
        if count == 0:
            break
        if count < 0:
            if count == -count:
                raise SerializationError(f"{count} values do not fit into {s.end - s.p} bytes")
            count = -count
            read_long(s, &ignored)
        if count > s.end - s.p:
            if count > _MOST_EMPTY - empty:
                raise SerializationError(f"{count} values do not fit into {s.end - s.p} bytes")
            empty += count
        for ignored in range(count):
            read(node.steps[0], s, depth + 1)
    if node.column != NULL:
        end_offset(node.column, node.column.children[0].length)
    return 0


cdef int read(Node *node, Source *s, int depth) except -1:
    cdef int64_t value
    cdef int place, kind = node.kind
    cdef Col *c = node.column
    cdef Source inner
    cdef float float_value
    cdef double double_value
    if kind == LONG or kind == LONG_TO_FLOAT or kind == ENUM:
        read_number(node, s)
    elif kind == TEXT:
        read_text(node, s)
    elif kind == UNION:
        read_long(s, &value)
        if not 0 <= value < node.count:
            raise SerializationError(f"there is no branch {value} of {node.count} in a union")
        if depth >= _DEEPEST:
            raise SerializationError(f"values are nested more than {_DEEPEST} times")
        read(node.steps[value], s, depth + 1)
    elif kind == DOUBLE or kind == RAW or kind == FLOAT:
        read_fixed(node, s)
    elif kind == RECORD or kind == TAGGED_UNION:
        if depth >= _DEEPEST and node.count:
            raise SerializationError(f"values are nested more than {_DEEPEST} times")
        for place in range(node.count):
            read(node.steps[place], s, depth + 1)
        if c != NULL:
            c.length += 1
    elif kind == NULL_STEP:
        if c != NULL:
            add_null(c)
    elif kind == BOOLEAN:
        read_boolean(node, s)
    elif kind == FLOAT_TO_DOUBLE:
        need(s, 4)
        memcpy(&float_value, s.p, 4)
        s.p += 4
        double_value = float_value
        if c != NULL:
            memcpy(room(c, 8), &double_value, 8)
            c.length += 1
    elif kind == DECIMAL:
        read_decimal(node, s)
    elif kind == ARRAY or kind == MAP:
        if depth >= _DEEPEST:
            raise SerializationError(f"values are nested more than {_DEEPEST} times")
        read_list(node, s, depth)
    elif kind == DEFAULT:
        inner.p = node.data
        inner.end = node.data + node.data_size
        read(node.steps[0], &inner, depth + 1)
    else:
        raise SerializationError(<object>node.text)
    return 0


# --- rows ------------------------------------------------------------------------------------------------------------

cdef enum:
    MAX_INLINE = 12  # bytes that are in a view

cdef class Rows:
    """The rows of an array of bytes."""

    cdef readonly Py_ssize_t size
    cdef object _offsets, _views
    cdef list _buffers
    # The same, which the objects keep alive. NULL for None.
    cdef const uint8_t *bits
    cdef const int *offsets
    cdef const uint8_t *views
    cdef Source *buffers
    cdef Py_ssize_t first
    cdef int count
    cdef object _bits

    def __cinit__(self, Py_ssize_t size, bits, Py_ssize_t first, offsets, views, buffers):
        cdef const uint8_t[::1] data
        cdef const int[::1] places
        cdef int number
        self._bits, self._offsets, self._views, self._buffers = bits, offsets, views, list(buffers)
        self.size, self.first = size, first
        if bits is not None:
            data = bits
            if size < 0 or first < 0 or data.shape[0] < (first + size + 7) >> 3:
                raise IndexError("validity")
            self.bits = &data[0] if data.shape[0] else NULL
        if views is not None:
            data = views
            if data.shape[0] < 16 * size:
                raise IndexError("views")
            self.views = &data[0] if data.shape[0] else NULL
        elif size:
            places = offsets
            if places.shape[0] <= size:
                raise IndexError("offsets")
            self.offsets = &places[0]
        self.count = len(self._buffers)
        self.buffers = <Source *>calloc(self.count + 1, sizeof(Source))
        if self.buffers == NULL:
            raise MemoryError
        for number in range(self.count):
            data = self._buffers[number]
            self.buffers[number].p = &data[0] if data.shape[0] else <const uint8_t *>self.buffers  # of no bytes
            self.buffers[number].end = self.buffers[number].p + data.shape[0]

    def __dealloc__(self):
        free(self.buffers)

    cdef inline bint has_null(self, Py_ssize_t row) noexcept:
        return self.bits != NULL and not self.bits[(self.first + row) >> 3] >> ((self.first + row) & 7) & 1

    cdef inline const uint8_t *find(self, Py_ssize_t row, Source *found) noexcept:
        """Find the bytes of a row, and return the end of the memory that they are in; NULL if they are in none."""
        cdef int32_t size, number = 0, begin
        cdef const uint8_t *view
        cdef Source *buffer
        if self.views != NULL:
            view = self.views + 16 * row
            memcpy(&size, view, 4)
            if 0 <= size <= MAX_INLINE:
                found.p = view + 4
                found.end = found.p + size
                return self.views + 16 * self.size
            memcpy(&number, view + 8, 4)
            memcpy(&begin, view + 12, 4)
        else:
            begin = self.offsets[row]
            size = self.offsets[row + 1] - begin if self.offsets[row + 1] >= begin else -1
        if not 0 <= number < self.count:
            return NULL
        buffer = &self.buffers[number]
        if begin < 0 or size < 0 or <int64_t>begin + size > buffer.end - buffer.p:
            return NULL
        found.p = buffer.p + begin
        found.end = found.p + size
        return buffer.end

    def is_null(self, Py_ssize_t row):
        """Return whether a row is null."""
        if not 0 <= row < self.size:
            raise IndexError(row)
        return bool(self.has_null(row))

    def value(self, Py_ssize_t row):
        """Return the bytes of a row, which is not null."""
        cdef Source found
        cdef Py_ssize_t begin
        cdef int32_t number = 0
        if not 0 <= row < self.size:
            raise IndexError(row)
        if self.find(row, &found) == NULL:
            raise SerializationError("a row that is outside of its buffer")
        if self.views != NULL:
            if found.p == self.views + 16 * row + 4:
                return self._views[16 * row + 4 : 16 * row + 4 + (found.end - found.p)]
            memcpy(&number, self.views + 16 * row + 8, 4)
        begin = found.p - self.buffers[number].p
        return self._buffers[number][begin : begin + (found.end - found.p)]

    def next_other(self, Py_ssize_t row, bytes prefix):
        """Return the next row after ``row`` that is null or does not begin with ``prefix``, or the end."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
        cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(prefix)
        cdef Source found
        if row < 0:
            raise IndexError(row)
        row += 1
        while (
            row < self.size
            and not self.has_null(row)
            and self.find(row, &found) != NULL
            and found.end - found.p >= size
            and begins(found.p, wanted, size)
        ):
            row += 1
        return row


# --- programs --------------------------------------------------------------------------------------------------------

# The fields of a record, one after the other, as operations of one loop, which writes into room that is there already.
# It reads blocks of what records usually have. A row that it cannot read, for whatever reason, is read again by
# ``read``, which has the checks and the errors.

cdef enum:
    OP_END, OP_LONG, OP_INT, OP_TEXT, OP_EIGHT, OP_FOUR, OP_RAW, OP_BOOLEAN, OP_ENUM, OP_NULLABLE, OP_SKIP_NUMBER,
    OP_SKIP_TEXT, OP_SKIP_RAW, OP_OTHER

cdef enum:
    SPARE = 16  # bytes that are copied at once
    MOST_NUMBER = 10  # bytes of a number
    MOST_OPERATIONS = 1000
    DEEPEST_PROGRAM = 8
    BLOCK = 128  # rows
    MOST_BLOCK_BYTES = 1 << 16

cdef struct Op:
    int code
    int null_byte  # the branch of null, for OP_NULLABLE, whose value's operation is the next
    int value_byte
    int depth
    Py_ssize_t size
    Col *column
    Node *node


cdef inline uint64_t word_of(const uint8_t *p) noexcept:
    cdef uint64_t word
    memcpy(&word, p, 8)
    return word


cdef inline const uint8_t *varint(const uint8_t *p, int64_t *value) noexcept:
    """Read a number from ten bytes that are there, and return the place after it; NULL if it has more than 64 bits."""
    cdef uint64_t word
    cdef int size
    if p[0] < 0x80:
        value[0] = p[0] >> 1 ^ -<int64_t>(p[0] & 1)
        return p + 1
    if p[1] < 0x80:
        word = p[0] & 0x7F | <uint64_t>p[1] << 7
        value[0] = <int64_t>(word >> 1) ^ -<int64_t>(word & 1)
        return p + 2
    # Branches, which processors predict, rather than arithmetic, whose result the next value would have to wait for.
    if p[2] < 0x80:
        size = 3
    elif p[3] < 0x80:
        size = 4
    elif p[4] < 0x80:
        size = 5
    elif p[5] < 0x80:
        size = 6
    elif p[6] < 0x80:
        size = 7
    else:
        size = 8
    word = word_of(p) << (64 - 8 * size) >> (64 - 8 * size)
    word = (word & <uint64_t>0x7F007F007F007F00) >> 1 | word & <uint64_t>0x007F007F007F007F
    word = (word & <uint64_t>0x3FFF00003FFF0000) >> 2 | word & <uint64_t>0x00003FFF00003FFF
    word = (word & <uint64_t>0x0FFFFFFF00000000) >> 4 | word & <uint64_t>0x000000000FFFFFFF
    if size == 8 and p[7] >= 0x80:
        size = 9
        word |= <uint64_t>(p[8] & 0x7F) << 56
        if p[8] >= 0x80:
            size = 10
            word |= <uint64_t>p[9] << 63
            if p[9] >= 0x80:
                return NULL
    value[0] = <int64_t>(word >> 1) ^ -<int64_t>(word & 1)
    return p + size


cdef inline bint is_ascii(const uint8_t *p, Py_ssize_t size) noexcept:
    """Return whether a text is ASCII; bytes follow it."""
    cdef uint64_t found = 0
    while size > 8:
        found |= word_of(p)
        p += 8
        size -= 8
    if size > 0:
        found |= word_of(p) << (64 - 8 * size)
    return not found & <uint64_t>0x8080808080808080


cdef int is_utf8(const uint8_t *p, Py_ssize_t size) except -1:
    try:
        check_text(p, size)
    except SerializationError:
        return False
    return True


cdef int is_other(const Op *op, Source *s) except -1:
    """Read a value by its step, and return whether that was possible."""
    try:
        read(op.node, s, op.depth)
    except (IndexError, SerializationError):
        return False
    return True


cdef int put_null(Col *c, Py_ssize_t place) except -1:
    """Write null as value number ``place``, which is not counted yet."""
    if place >> 3 >= c.validity_capacity:
        c.length = place
        grow_validity(c)
    c.validity[place >> 3] &= ~(1 << (place & 7))
    c.null_count += 1
    if c.form == BYTES:
        c.offsets[place + 1] = c.offsets[place]
    elif c.form == BITS:
        c.data[place >> 3] &= ~(1 << (place & 7))
    else:
        memset(c.data + place * c.width, 0, c.width)
    return 0


cdef void set_length(Col *c, int64_t length) noexcept:
    """Count the values that a program has written."""
    c.length = length
    if c.form == BITS:
        c.size = (length + 7) >> 3
    elif c.form == FIXED:
        c.size = length * c.width
    elif c.form == BYTES:
        c.size = c.offsets[length]


cdef int code_of(Node *node) noexcept:
    """Return the operation that reads a value; OP_OTHER if none does."""
    cdef int kind = node.kind
    cdef bint is_skipped = node.column == NULL
    if kind == LONG:
        return OP_SKIP_NUMBER if is_skipped else OP_INT if node.column.width == 4 else OP_LONG
    if kind == TEXT:
        return OP_SKIP_TEXT if is_skipped else OP_TEXT
    if kind == DOUBLE or kind == FLOAT or kind == RAW:
        return OP_SKIP_RAW if is_skipped else OP_EIGHT if kind == DOUBLE else OP_FOUR if kind == FLOAT else OP_RAW
    return OP_BOOLEAN if kind == BOOLEAN else OP_ENUM if kind == ENUM else OP_OTHER


cdef int read_row(const Op *op, const uint8_t *p, const uint8_t *end, Py_ssize_t place) except -1:
    """Read a row as value number ``place``, and return whether that was possible. ``reach`` bytes follow it.

    Texts are not checked, and columns have room for all bytes of the row.
    """
    cdef Col *c
    cdef int code
    cdef int64_t value, to
    cdef int32_t narrow
    cdef Source s
    while True:
        c = op.column
        code = op.code
        if code == OP_LONG:
            p = varint(p, &value)
            if p == NULL:
                return False
            memcpy(c.data + 8 * place, &value, 8)
        elif code == OP_TEXT:
            p = varint(p, &value)
            if p == NULL or value < 0 or value > end - p:
                return False
            to = c.offsets[place]
            c.offsets[place + 1] = <int32_t>(to + value)
            if value <= SPARE:
                memcpy(c.data + to, p, SPARE)  # a fixed size is no call; the next value overwrites the rest
            else:
                memcpy(c.data + to, p, value)
            p += value
        elif code == OP_NULLABLE:
            if p[0] == op.null_byte:
                p += 1
                if c != NULL:
                    put_null(c, place)
                op += 2
                continue
            if p[0] != op.value_byte:
                return False
            p += 1
        elif code == OP_EIGHT:
            memcpy(c.data + 8 * place, p, 8)
            p += 8
        elif code == OP_INT:
            p = varint(p, &value)
            narrow = <int32_t>value
            if p == NULL or narrow != value:
                return False
            memcpy(c.data + 4 * place, &narrow, 4)
        elif code == OP_BOOLEAN:
            if p[0] > 1:
                return False
            if c != NULL:
                c.data[place >> 3] = c.data[place >> 3] & ~(1 << (place & 7)) | p[0] << (place & 7)
            p += 1
        elif code == OP_FOUR:
            memcpy(c.data + 4 * place, p, 4)
            p += 4
        elif code == OP_ENUM:
            p = varint(p, &value)
            if p == NULL or not 0 <= value < op.node.mapped or op.node.mapping[value] < 0:
                return False
            if c != NULL:
                memcpy(c.data + 4 * place, &op.node.mapping[value], 4)
        elif code == OP_RAW or code == OP_SKIP_RAW:
            if op.size > end - p:
                return False
            if code == OP_RAW:
                memcpy(c.data + op.size * place, p, op.size)
            p += op.size
        elif code == OP_SKIP_NUMBER:
            p = varint(p, &value)
            if p == NULL:
                return False
        elif code == OP_SKIP_TEXT:
            p = varint(p, &value)
            if p == NULL or value < 0 or value > end - p:
                return False
            if op.size and not is_ascii(p, value) and not is_utf8(p, value):
                return False
            p += value
        elif code == OP_END:
            return p == end
        else:
            if p > end:
                return False
            s.p, s.end = p, end
            if not is_other(op, &s):
                return False
            p = s.p
        op += 1


cdef int64_t first_damaged(Col *c, int64_t begin, int64_t end) except -1:
    """Return the first of the texts from ``begin`` on that is not UTF-8; ``end`` if there is none."""
    cdef const uint8_t *data = c.data
    cdef const uint8_t *p = data + c.offsets[begin]
    cdef Py_ssize_t size = c.offsets[end] - c.offsets[begin], at = 0
    cdef uint64_t found = 0
    while at + 32 <= size:
        found |= word_of(p + at) | word_of(p + at + 8) | word_of(p + at + 16) | word_of(p + at + 24)
        at += 32
    while at < size:
        found |= <uint64_t>p[at] << 56
        at += 1
    if not found & <uint64_t>0x8080808080808080:
        return end
    if is_utf8(p, size):
        # All texts are if none begins inside of a character.
        while begin < end and (c.offsets[begin] == c.offsets[end] or data[c.offsets[begin]] & 0xC0 != 0x80):
            begin += 1
        if begin == end:
            return end
        # The one before ends inside of it.
        begin -= 1
    while begin < end and is_utf8(data + c.offsets[begin], c.offsets[begin + 1] - c.offsets[begin]):
        begin += 1
    return begin


cdef class Program:
    """The operations of a record."""

    cdef Op *ops
    cdef int count, capacity
    cdef Col **columns  # those that the operations write, and the structs that these are in
    cdef int column_count
    cdef Col **texts  # those of OP_TEXT
    cdef bint *are_checked  # for each of them, whether it must be UTF-8
    cdef int text_count
    cdef Py_ssize_t reach  # the most bytes that operations read beyond a row

    def __cinit__(self):
        self.reach = SPARE

    def __dealloc__(self):
        free(self.ops)
        free(self.columns)
        free(self.texts)
        free(self.are_checked)

    cdef Op *add_op(self, int code, Node *node, int depth) except NULL:
        cdef Op *op
        cdef void *grown
        if self.count == self.capacity:
            self.capacity = 2 * self.capacity + 8
            grown = realloc(self.ops, self.capacity * sizeof(Op))
            if grown == NULL:
                raise MemoryError
            self.ops = <Op *>grown
        op = &self.ops[self.count]
        self.count += 1
        op.code = code
        op.null_byte = op.value_byte = -1
        op.depth = depth
        op.node = node
        op.column = NULL
        op.size = 0
        if node != NULL:
            op.column = node.column
            op.size = 8 if node.kind == DOUBLE else 4 if node.kind == FLOAT else node.size
        self.reach += MOST_NUMBER + 1
        return op

    cdef int add_root(self, Node *record) except -1:
        self.add_record(record, 1)
        self.add_op(OP_END, NULL, 0)
        return 0

    cdef int add_record(self, Node *record, int depth) except -1:
        cdef int place
        cdef Node *step
        self.add_column(record.column)
        for place in range(record.count):
            step = record.steps[place]
            if step.kind == RECORD and depth < DEEPEST_PROGRAM and self.count + step.count < MOST_OPERATIONS:
                self.add_record(step, depth + 1)
            else:
                self.add_value(step, depth)
        return 0

    cdef int add_value(self, Node *step, int depth) except -1:
        cdef Op *op
        cdef Node *value = step
        cdef int null = -1, code
        if step.kind == UNION and step.count == 2:
            null = 0 if step.steps[0].kind == NULL_STEP else 1
            value = step.steps[1 - null]
            if step.steps[null].kind != NULL_STEP or step.steps[null].column != value.column:
                value = step
        code = code_of(value)
        if code == OP_OTHER:
            value = step
        elif value != step:
            op = self.add_op(OP_NULLABLE, value, depth)
            op.null_byte = 2 * null
            op.value_byte = 2 - 2 * null
        self.add_op(code, value, depth)
        if code != OP_OTHER:
            self.add_column(value.column)
        if code == OP_TEXT:
            self.add_text(value)
        return 0

    cdef int add_column(self, Col *column) except -1:
        cdef void *grown
        if column == NULL:
            return 0
        grown = realloc(self.columns, (self.column_count + 1) * sizeof(Col *))
        if grown == NULL:
            raise MemoryError
        self.columns = <Col **>grown
        self.columns[self.column_count] = column
        self.column_count += 1
        return 0

    cdef int add_text(self, Node *node) except -1:
        cdef void *grown = realloc(self.texts, (self.text_count + 1) * sizeof(Col *))
        if grown == NULL:
            raise MemoryError
        self.texts = <Col **>grown
        grown = realloc(self.are_checked, (self.text_count + 1) * sizeof(bint))
        if grown == NULL:
            raise MemoryError
        self.are_checked = <bint *>grown
        self.texts[self.text_count] = node.column
        self.are_checked[self.text_count] = node.size != 0
        self.text_count += 1
        return 0

    cdef int make_room(self, Py_ssize_t size) except -1:
        """Make room for so many bytes in each column of texts, and return whether there can be."""
        cdef int number
        cdef Col *c
        for number in range(self.text_count):
            c = self.texts[number]
            if c.size + size > INT32_MAX:
                return False
            if c.size + size + SPARE > c.capacity:
                grow_data(c, size + SPARE)
        return True

    cdef Py_ssize_t read_block(self, Rows rows, Py_ssize_t row, bytes prefix, Col *root) except -1:
        """Read some of the rows from ``row`` on, and return how many: none if the first one cannot be read."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix), total = 0, count = 0, done = 0
        cdef Py_ssize_t most = min(<Py_ssize_t>BLOCK, rows.size - row)
        cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(prefix)
        cdef const uint8_t *limit
        cdef Source found[BLOCK]
        cdef Source *source
        cdef int64_t place = root.length, end
        cdef int number
        while count < most:
            if rows.has_null(row + count):
                break
            source = &found[count]
            limit = rows.find(row + count, source)
            if limit == NULL or limit - source.end < self.reach or source.end - source.p < size:
                break
            if not begins(source.p, wanted, size):
                break
            total += source.end - source.p
            if total > MOST_BLOCK_BYTES:
                break
            source.p += size
            count += 1
        if not count or not self.make_room(total):
            return 0
        while done < count and read_row(self.ops, found[done].p, found[done].end, place + done):
            done += 1
        end = place + done
        for number in range(self.text_count):
            if self.are_checked[number]:
                end = first_damaged(self.texts[number], place, end)
        for number in range(self.column_count):
            set_length(self.columns[number], place + done)
        if end < place + count:
            truncate(root, end)
        return end - place


cdef class Decoder:
    """Reads the records of one writer into columns."""

    cdef object _step  # whose texts and defaults the nodes refer to
    cdef list _columns
    cdef dict _known
    cdef Node *_root
    cdef Py_ssize_t _row
    cdef int64_t _complete
    cdef Node *_nodes
    cdef Program _program  # None if rows are no records

    def __cinit__(self, root, columns):
        self._step = root
        self._columns = list(columns)
        self._known = {}
        self._nodes = NULL
        self._root = self._compile(root)
        if self._root.kind == RECORD:
            self._program = Program()
            self._program.add_root(self._root)

    def __dealloc__(self):
        cdef Node *node
        while self._nodes != NULL:
            node = self._nodes
            self._nodes = node.next
            free(node.steps)
            free(node.mapping)
            free(node)

    cdef Node *_compile(self, step) except NULL:
        cdef Node *node
        cdef int place
        known = self._known.get(id(step))
        if known is not None:
            return <Node *><size_t>known
        node = <Node *>calloc(1, sizeof(Node))
        if node == NULL:
            raise MemoryError
        node.next = self._nodes
        self._nodes = node
        self._known[id(step)] = <size_t>node
        node.kind = step.kind
        node.size = step.size
        if step.column >= 0:
            node.column = &(<Column?>self._columns[step.column]).c
        node.data = <const uint8_t *>PyBytes_AS_STRING(step.data)
        node.data_size = PyBytes_GET_SIZE(step.data)
        node.text = <void *>step.text
        steps, mapping = step.steps, step.mapping
        if mapping:
            node.mapping = <int32_t *>calloc(len(mapping), sizeof(int32_t))
            if node.mapping == NULL:
                raise MemoryError
            node.mapped = len(mapping)
            for place in range(node.mapped):
                node.mapping[place] = mapping[place]
        if steps:
            node.steps = <Node **>calloc(len(steps), sizeof(Node *))
            if node.steps == NULL:
                raise MemoryError
            node.count = len(steps)
            for place in range(node.count):
                node.steps[place] = self._compile(steps[place])
        return node

    def decode(self, Rows rows, Py_ssize_t row, bytes prefix):
        """Read the rows from ``row`` on that begin with ``prefix``; see the Python form."""
        cdef Col *root = self._root.column
        if row < 0:
            raise IndexError(row)
        self._row = row
        self._complete = root.length
        if rows.size > row:
            reserve(root, rows.size - row)
        try:
            self._rows(rows, prefix)
        except IndexError as error:
            truncate(root, self._complete)
            return self._row, str(error)
        except SerializationError as error:
            truncate(root, self._complete)
            return self._row, str(error)
        return self._row, None

    cdef int _rows(self, Rows rows, bytes prefix) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix), count
        cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(prefix)
        cdef Source s
        cdef Col *root = self._root.column
        while self._row < rows.size:
            if self._program is not None:
                count = self._program.read_block(rows, self._row, prefix, root)
                if count:
                    self._row += count
                    self._complete = root.length
                    continue
            if rows.has_null(self._row):
                add_null(root)
            else:
                if rows.find(self._row, &s) == NULL:
                    fail("a row that is outside of its buffer")
                if s.end - s.p < size or not begins(s.p, wanted, size):
                    return 0
                s.p += size
                read(self._root, &s, 0)
                if s.p != s.end:
                    raise SerializationError(f"{s.end - s.p} bytes are left after the value")
            self._row += 1
            self._complete = root.length
        return 0
