"""The compiled form of ``avro_writing.py``: the same function, with parts as structs in C."""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from array import array

from pykclient.schema_registry.avro_writing import DAMAGED, NULL as NULL_REASON, SEVERAL, TOO_LARGE, UnfitError

# As in avro_writing.py, which a test compares.
cdef enum:
    CONSTANT, BIT, INTEGER, FIXED, TEXT, REST, DECIMAL, RECORD, LIST, TAGGED

KINDS = (CONSTANT, BIT, INTEGER, FIXED, TEXT, REST, DECIMAL, RECORD, LIST, TAGGED)


cdef struct Node:
    int kind
    Py_ssize_t first
    Py_ssize_t length
    Py_ssize_t width
    const uint8_t *validity
    const uint8_t *data
    Py_ssize_t size  # of data
    const int32_t *narrow  # offsets, of one of the two widths
    const int64_t *wide
    const uint8_t *null
    Py_ssize_t null_size  # -1: null does not fit
    const uint8_t *written
    Py_ssize_t written_size
    int count
    Node *children
    void *part  # the Part, which outlives this


cdef struct Out:
    uint8_t *start
    Py_ssize_t size
    Py_ssize_t capacity
    void *owner  # a bytearray


cdef int unfit(Node *node, reason) except -1:
    raise UnfitError(<object>node.part, reason)


cdef int grow(Out *out, Py_ssize_t more) except -1:
    cdef Py_ssize_t capacity = max(2 * out.capacity, out.size + more + 64)
    PyByteArray_Resize(<object>out.owner, capacity)
    out.start = <uint8_t *>PyByteArray_AS_STRING(<object>out.owner)
    out.capacity = capacity
    return 0


cdef inline int append(Out *out, const uint8_t *data, Py_ssize_t size) except -1:
    if size > out.capacity - out.size:
        grow(out, size)
    memcpy(out.start + out.size, data, size)
    out.size += size
    return 0


cdef inline int append_long(Out *out, int64_t value) except -1:
    cdef uint64_t left = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    if out.capacity - out.size < 10:
        grow(out, 10)
    while left > 0x7F:
        out.start[out.size] = <uint8_t>(left & 0x7F | 0x80)
        out.size += 1
        left >>= 7
    out.start[out.size] = <uint8_t>left
    out.size += 1
    return 0


cdef inline bint is_valid(Node *node, Py_ssize_t row) noexcept:
    cdef Py_ssize_t bit = node.first + row
    return node.validity == NULL or node.validity[bit >> 3] >> (bit & 7) & 1


cdef inline int read_range(Node *node, Py_ssize_t place, Py_ssize_t most, Py_ssize_t *start, Py_ssize_t *end) except -1:
    if node.narrow != NULL:
        start[0], end[0] = node.narrow[place], node.narrow[place + 1]
    else:
        start[0], end[0] = <Py_ssize_t>node.wide[place], <Py_ssize_t>node.wide[place + 1]
    if not 0 <= start[0] <= end[0] <= most:
        unfit(node, DAMAGED)
    return 0


cdef int write_decimal(Node *node, Py_ssize_t place, Out *out) except -1:
    cdef const uint8_t *data = node.data + 16 * place
    cdef uint8_t sign = 0xFF if data[15] & 0x80 else 0
    cdef Py_ssize_t at, needed = 16, size
    cdef bint is_power = True
    cdef uint8_t *to
    # As few as have the sign in their first bit.
    while needed > 1 and data[needed - 1] == sign and not (data[needed - 2] ^ sign) & 0x80:
        needed -= 1
    size = node.width
    if size:
        if size < needed:
            unfit(node, TOO_LARGE)
    else:
        size = needed
        # fastavro writes one more for -128, -32768 and so on.
        if sign and data[needed - 1] == 0x80:
            for at in range(needed - 1):
                if data[at]:
                    is_power = False
            size += is_power
        append_long(out, size)
    if size > out.capacity - out.size:
        grow(out, size)
    to = out.start + out.size
    for at in range(size):
        to[size - 1 - at] = data[at] if at < 16 else sign
    out.size += size
    return 0


cdef int write_tagged(Node *node, Py_ssize_t row, Out *out) except -1:
    cdef int place, chosen = -1
    for place in range(node.count):
        if is_valid(&node.children[place], row):
            if chosen >= 0:
                unfit(node, SEVERAL)
            chosen = place
    if chosen >= 0:
        return write(&node.children[chosen], row, out)
    if node.null_size < 0:
        unfit(node, NULL_REASON)
    return append(out, node.null, node.null_size)


cdef int write(Node *node, Py_ssize_t row, Out *out) except -1:
    cdef Py_ssize_t place = node.first + row, start, end
    cdef int kind = node.kind, child
    cdef int32_t narrow
    cdef int64_t wide
    if not is_valid(node, row):
        if node.null_size < 0:
            unfit(node, NULL_REASON)
        return append(out, node.null, node.null_size)
    if kind == TAGGED:
        return write_tagged(node, row, out)
    if node.written_size:
        append(out, node.written, node.written_size)
    if kind == INTEGER:
        if node.width == 8:
            memcpy(&wide, node.data + 8 * place, 8)
        else:
            memcpy(&narrow, node.data + 4 * place, 4)
            wide = narrow
        append_long(out, wide)
    elif kind == TEXT or kind == REST:
        read_range(node, place, node.size, &start, &end)
        if kind == TEXT:
            append_long(out, end - start)
        append(out, node.data + start, end - start)
    elif kind == FIXED:
        append(out, node.data + node.width * place, node.width)
    elif kind == RECORD:
        for child in range(node.count):
            write(&node.children[child], row, out)
    elif kind == BIT:
        if out.size == out.capacity:
            grow(out, 1)
        out.start[out.size] = node.data[place >> 3] >> (place & 7) & 1
        out.size += 1
    elif kind == DECIMAL:
        write_decimal(node, place, out)
    elif kind == LIST:
        read_range(node, place, node.children[0].length, &start, &end)
        if end > start:
            append_long(out, end - start)
            while start < end:
                write(&node.children[0], start, out)
                start += 1
        append_long(out, 0)
    return 0


cdef class _Tree:
    """The parts as nodes, and the buffers that they point to."""

    cdef Node root
    cdef list _views

    def __cinit__(self, part):
        self._views = []
        self._fill(&self.root, part)

    def __dealloc__(self):
        _free(&self.root)

    cdef const uint8_t *_buffer(self, given, Py_ssize_t least) except? NULL:
        """Return the address of a buffer that has at least so many bytes."""
        cdef _View view = _View(given)
        if view.buffer.len < least:
            raise IndexError(f"{view.buffer.len} bytes instead of {least}")
        self._views.append(view)
        return <const uint8_t *>view.buffer.buf

    cdef int _fill(self, Node *node, part) except -1:
        cdef Py_ssize_t least = 0, rows
        cdef bytes written = part.written, null = part.null
        cdef int place
        node.kind, node.first, node.length, node.width = part.kind, part.first, part.length, part.width
        node.part = <void *>part
        rows = node.first + node.length
        if node.first < 0 or node.length < 0 or node.width < 0:
            raise IndexError(node.first)
        if part.validity is not None:
            node.validity = self._buffer(part.validity, (rows + 7) >> 3)
        if node.kind == BIT:
            least = (rows + 7) >> 3
        elif node.kind == INTEGER or node.kind == FIXED:
            if node.kind == INTEGER and node.width != 4 and node.width != 8:
                raise IndexError(node.width)
            least = rows * node.width
        elif node.kind == DECIMAL:
            least = 16 * rows
        node.data = self._buffer(part.data, least if node.length else 0)
        node.size = len(part.data)
        if node.kind == TEXT or node.kind == REST or node.kind == LIST:
            offsets = part.offsets
            least = (rows + 1) * offsets.itemsize if node.length else 0
            if offsets.itemsize == 4:
                node.narrow = <const int32_t *>self._buffer(offsets, least)
            else:
                node.wide = <const int64_t *>self._buffer(offsets, least)
        node.written, node.written_size = <const uint8_t *>PyBytes_AS_STRING(written), PyBytes_GET_SIZE(written)
        node.null_size = -1
        if null is not None:
            node.null, node.null_size = <const uint8_t *>PyBytes_AS_STRING(null), PyBytes_GET_SIZE(null)
        children = part.children
        if children:
            node.children = <Node *>calloc(len(children), sizeof(Node))
            if node.children == NULL:
                raise MemoryError
            node.count = len(children)
            for place in range(node.count):
                self._fill(&node.children[place], children[place])
                if node.kind != LIST and node.children[place].length < node.length:
                    raise IndexError(node.children[place].length)
        elif node.kind == LIST:
            raise IndexError("a list has no items")
        return 0


cdef void _free(Node *node) noexcept:
    cdef int place
    for place in range(node.count):
        _free(&node.children[place])
    free(node.children)


cdef class _View:
    """A buffer that stays where it is."""

    cdef Py_buffer buffer
    cdef bint _is_held

    def __cinit__(self, given):
        PyObject_GetBuffer(given, &self.buffer, PyBUF_SIMPLE)
        self._is_held = True

    def __dealloc__(self):
        if self._is_held:
            PyBuffer_Release(&self.buffer)


def encode(root, Py_ssize_t rows, bytes prefix):
    """Return the bytes of all rows and their offsets; see the Python form."""
    cdef _Tree tree = _Tree(root)
    cdef Node *node = &tree.root
    cdef Py_ssize_t row = 0, prefix_size = PyBytes_GET_SIZE(prefix)
    cdef bytearray made = bytearray()
    cdef Out out = Out(NULL, 0, 0, <void *>made)
    cdef int64_t[::1] offsets
    if not 0 <= rows <= node.length:
        raise IndexError(rows)
    places = array("q", bytes(8 * (rows + 1)))
    offsets = places
    grow(&out, rows * (prefix_size + 32))
    try:
        for row in range(rows):
            if is_valid(node, row):
                append(&out, <const uint8_t *>PyBytes_AS_STRING(prefix), prefix_size)
                write(node, row, &out)
            offsets[row + 1] = out.size
    except UnfitError as error:
        error.row = row
        raise
    PyByteArray_Resize(made, out.size)
    return made, places
