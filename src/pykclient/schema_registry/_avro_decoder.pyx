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


# --- programs --------------------------------------------------------------------------------------------------------

# The fields of a record, one after the other, as operations of one loop, which writes into room that is there already.
# It reads what records usually have. A row that it cannot read, for whatever reason, is read again by ``read``, which
# has the checks and the errors.

cdef enum:
    OP_LONG, OP_INT, OP_TEXT, OP_EIGHT, OP_FOUR, OP_RAW, OP_BOOLEAN, OP_ENUM, OP_OTHER

cdef enum:
    SPARE = 16  # bytes that are copied at once
    MOST_NUMBER = 10  # bytes of a number
    MOST_OPERATIONS = 1000
    DEEPEST_PROGRAM = 8

cdef struct Op:
    int code
    int null_byte  # the branch of null in a union with it, and -1 without
    int value_byte
    int depth
    Col *column  # NULL skips the value
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


cdef int is_other(Op *op, Source *s) except -1:
    """Read a value by its step, and return whether that was possible."""
    try:
        read(op.node, s, op.depth)
    except (IndexError, SerializationError):
        return False
    return True


cdef inline int put_null(Col *c, Py_ssize_t place) except -1:
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
    if kind == LONG:
        return OP_INT if node.column != NULL and node.column.width == 4 else OP_LONG
    if kind == DOUBLE:
        return OP_EIGHT
    if kind == FLOAT:
        return OP_FOUR
    return OP_TEXT if kind == TEXT else OP_RAW if kind == RAW else OP_BOOLEAN if kind == BOOLEAN else (
        OP_ENUM if kind == ENUM else OP_OTHER
    )


cdef class Program:
    """The operations of a record."""

    cdef Op *ops
    cdef int count, capacity
    cdef Col **columns  # those that the operations write, and the structs that these are in
    cdef int column_count
    cdef Py_ssize_t reach  # the most bytes that operations read beyond a row

    def __cinit__(self):
        self.reach = SPARE

    def __dealloc__(self):
        free(self.ops)
        free(self.columns)

    cdef int add_record(self, Node *record, int depth) except -1:
        cdef int place
        cdef Node *step
        cdef void *grown
        if self.capacity < self.count + record.count:
            self.capacity = 2 * self.count + record.count
            grown = realloc(self.ops, self.capacity * sizeof(Op))
            if grown == NULL:
                raise MemoryError
            self.ops = <Op *>grown
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
        cdef int null = -1
        if step.kind == UNION and step.count == 2:
            null = 0 if step.steps[0].kind == NULL_STEP else 1
            value = step.steps[1 - null]
            if step.steps[null].kind != NULL_STEP or step.steps[null].column != value.column:
                value = step
        if self.count == self.capacity:
            self.capacity = 2 * self.capacity + 1
            grown = realloc(self.ops, self.capacity * sizeof(Op))
            if grown == NULL:
                raise MemoryError
            self.ops = <Op *>grown
        op = &self.ops[self.count]
        self.count += 1
        op.code = code_of(value)
        if op.code == OP_OTHER:
            value = step
        op.null_byte = -1 if value == step else 2 * null
        op.value_byte = 2 - 2 * null
        op.depth = depth
        op.column = value.column
        op.node = value
        self.reach += MOST_NUMBER + 1
        if op.code != OP_OTHER:
            self.add_column(op.column)
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

    cdef int read_row(self, const uint8_t *p, const uint8_t *end, Py_ssize_t place) except -1:
        """Read a row as value number ``place``, and return whether that was possible. ``reach`` bytes follow it."""
        cdef Op *op = self.ops
        cdef Op *last = self.ops + self.count
        cdef Col *c
        cdef int code
        cdef int64_t value, to
        cdef int32_t narrow
        cdef Source s
        while op != last:
            c = op.column
            if op.null_byte >= 0:
                if p[0] == op.null_byte:
                    p += 1
                    if c != NULL:
                        put_null(c, place)
                    op += 1
                    continue
                if p[0] != op.value_byte:
                    return False
                p += 1
            code = op.code
            if code == OP_LONG:
                p = varint(p, &value)
                if p == NULL:
                    return False
                if c != NULL:
                    memcpy(c.data + 8 * place, &value, 8)
            elif code == OP_TEXT:
                p = varint(p, &value)
                if p == NULL or value < 0 or value > end - p:
                    return False
                if op.node.size and not is_ascii(p, value) and not is_utf8(p, value):
                    return False
                if c != NULL:
                    to = c.offsets[place]
                    if to + value + SPARE > c.capacity:
                        if to + value > INT32_MAX:
                            return False
                        c.size = to
                        grow_data(c, value + SPARE)
                    if value <= SPARE:
                        memcpy(c.data + to, p, SPARE)  # a fixed size is no call; the next value overwrites the rest
                    else:
                        memcpy(c.data + to, p, value)
                    c.offsets[place + 1] = <int32_t>(to + value)
                p += value
            elif code == OP_EIGHT:
                if c != NULL:
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
                if c != NULL:
                    memcpy(c.data + 4 * place, p, 4)
                p += 4
            elif code == OP_ENUM:
                p = varint(p, &value)
                if p == NULL or not 0 <= value < op.node.mapped or op.node.mapping[value] < 0:
                    return False
                if c != NULL:
                    memcpy(c.data + 4 * place, &op.node.mapping[value], 4)
            elif code == OP_RAW:
                if op.node.size > end - p:
                    return False
                if c != NULL:
                    memcpy(c.data + op.node.size * place, p, op.node.size)
                p += op.node.size
            else:
                if p > end:
                    return False
                s.p, s.end = p, end
                if not is_other(op, &s):
                    return False
                p = s.p
            op += 1
        return p == end


def next_other(
    const uint8_t[::1] data, const int[::1] offsets, Py_ssize_t row, Py_ssize_t end_row, bytes prefix
):
    """Return the next row after ``row`` whose value does not begin with ``prefix``, or ``end_row``."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
    cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(prefix)
    if end_row > offsets.shape[0] - 1 or row < 0:
        raise IndexError(end_row)
    row += 1
    if row < end_row and not 0 <= offsets[row] <= offsets[end_row] <= data.shape[0]:
        raise IndexError("offsets")
    while (
        row < end_row
        and offsets[row + 1] - offsets[row] >= size
        and begins(&data[0] + offsets[row], wanted, size)
    ):
        row += 1
    return row


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
            self._program.add_record(self._root, 1)

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

    def decode(
        self,
        const uint8_t[::1] data,
        const int[::1] offsets,
        const uint8_t[::1] validity,
        Py_ssize_t bit,
        Py_ssize_t row,
        Py_ssize_t end_row,
        bytes prefix,
    ):
        """Read the rows from ``row`` on that begin with ``prefix``, up to ``end_row``; see the Python form."""
        cdef Col *root = self._root.column
        cdef const uint8_t *start = &data[0] if data.shape[0] else NULL
        if end_row > offsets.shape[0] - 1 or row < 0:
            raise IndexError(end_row)
        if row < end_row and not 0 <= offsets[row] <= offsets[end_row] <= data.shape[0]:
            raise IndexError("offsets")
        self._row = row
        if end_row > row:
            reserve(root, end_row - row)
        try:
            self._rows(start, start + data.shape[0], offsets, validity, bit, end_row, prefix)
        except IndexError as error:
            truncate(root, self._complete)
            return self._row, str(error)
        except SerializationError as error:
            truncate(root, self._complete)
            return self._row, str(error)
        return self._row, None

    cdef int _run(
        self,
        const uint8_t *start,
        const uint8_t *data_end,
        const int[::1] offsets,
        const uint8_t[::1] validity,
        Py_ssize_t bit,
        Py_ssize_t end_row,
        bytes prefix,
    ) except -1:
        """Read rows by the program, up to one that it cannot read."""
        cdef Program program = self._program
        cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix), row = self._row, at
        cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(prefix)
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef Col *root = self._root.column
        cdef int64_t place = root.length
        cdef bint is_cut = False
        cdef int column
        while row < end_row:
            at = bit + row
            if validity is not None and not validity[at >> 3] >> (at & 7) & 1:
                break
            p = start + offsets[row]
            end = start + offsets[row + 1]
            if data_end - end < program.reach or end - p < size or not begins(p, wanted, size):
                break
            if not program.read_row(p + size, end, place):
                is_cut = True
                break
            place += 1
            row += 1
        for column in range(program.column_count):
            set_length(program.columns[column], place)
        if is_cut:
            truncate(root, place)
        self._row = row
        self._complete = place
        return 0

    cdef int _rows(
        self,
        const uint8_t *start,
        const uint8_t *data_end,
        const int[::1] offsets,
        const uint8_t[::1] validity,
        Py_ssize_t bit,
        Py_ssize_t end_row,
        bytes prefix,
    ) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix), at
        cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(prefix)
        cdef Source s
        cdef Col *root = self._root.column
        cdef bint has_validity = validity is not None
        self._complete = root.length
        while self._row < end_row:
            if self._program is not None:
                self._run(start, data_end, offsets, validity, bit, end_row, prefix)
                if self._row == end_row:
                    return 0
            at = bit + self._row
            if has_validity and not validity[at >> 3] >> (at & 7) & 1:
                add_null(root)
            else:
                s.p = start + offsets[self._row]
                s.end = start + offsets[self._row + 1]
                if s.end - s.p < size or not begins(s.p, wanted, size):
                    return 0
                s.p += size
                read(self._root, &s, 0)
                if s.p != s.end:
                    raise SerializationError(f"{s.end - s.p} bytes are left after the value")
            self._row += 1
            self._complete = root.length
        return 0
