"""The compiled form of ``arrow.py``: columns as Arrow arrays, through Arrow's C data interface.

An array holds the buffers of its column, or a copy of those that are small, and releases them when Arrow does. Columns
with unusual contents are left to the Python form.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from pykclient.record.arrow import _SMALL, array_of

cdef extern from "Python.h":
    int Py_IsInitialized() nogil

cdef Py_ssize_t small = _SMALL

cdef enum:
    # The most that one column needs: that of headers.
    MAX_NODES = 4
    MAX_BUFFERS = 9

# The structure of the C data interface.
cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *) noexcept nogil
    void *private_data


cdef struct Held:
    # An array with the arrays inside of it, and all that they refer to. Arrow has a copy of the first one.
    ArrowArray nodes[MAX_NODES]
    ArrowArray *children[MAX_NODES]
    const void *buffers[MAX_BUFFERS]
    Py_buffer views[MAX_BUFFERS]
    void *copies[MAX_BUFFERS]
    int node_count
    int buffer_count
    int view_count
    int copy_count


cdef void release_child(ArrowArray *array) noexcept nogil:
    array.release = NULL


cdef void release(ArrowArray *array) noexcept nogil:
    """Release an array that Arrow no longer needs. Thread: any, with or without the GIL."""
    cdef Held *held = <Held *>array.private_data
    cdef int index
    array.release = NULL
    if held.view_count and Py_IsInitialized():
        with gil:
            for index in range(held.view_count):
                PyBuffer_Release(&held.views[index])
    for index in range(held.copy_count):
        free(held.copies[index])
    free(held)


cdef ArrowArray *add_node(Held *held, int64_t length, int64_t null_count, int n_buffers) noexcept:
    """Add an array, whose buffers are added next. The first one is the array that the others are part of."""
    cdef ArrowArray *node = &held.nodes[held.node_count]
    node.length = length
    node.null_count = null_count
    node.n_buffers = n_buffers
    node.buffers = &held.buffers[held.buffer_count]
    node.children = &held.children[held.node_count]
    node.release = release if held.node_count == 0 else release_child
    node.private_data = held
    held.node_count += 1
    return node


cdef void add_child(ArrowArray *parent, ArrowArray *child) noexcept:
    """Add a child of an array. All children of an array are added before another array is."""
    parent.children[parent.n_children] = child
    parent.n_children += 1


cdef void *add_space(Held *held, Py_ssize_t size) except NULL:
    """Add a buffer, and return its memory."""
    cdef void *space = malloc(size if size > 0 else 1)
    if space == NULL:
        raise MemoryError()
    held.copies[held.copy_count] = space
    held.copy_count += 1
    held.buffers[held.buffer_count] = space
    held.buffer_count += 1
    return space


cdef int add_buffer(Held *held, object buffer, Py_ssize_t size) except -1:
    """Add the first ``size`` bytes of a bytearray; a copy if so little is used that it should not retain the buffer."""
    cdef Py_ssize_t capacity = PyByteArray_GET_SIZE(buffer)
    cdef Py_buffer *view
    if capacity > small and size < capacity >> 1:
        memcpy(add_space(held, size), PyByteArray_AS_STRING(buffer), size)
        return 0
    view = &held.views[held.view_count]
    PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
    held.view_count += 1
    held.buffers[held.buffer_count] = view.buf
    held.buffer_count += 1
    return 0


cdef int add_validity(Held *held, object column) except -1:
    if column.null_count:
        add_buffer(held, column.validity, (<Py_ssize_t>column.rows + 7) >> 3)
    else:
        held.buffer_count += 1  # NULL: there are no nulls
    return 0


cdef ArrowArray *add_bytes(Held *held, object column) except NULL:
    """Add an array of BinaryBuffers."""
    cdef ArrowArray *node = add_node(held, column.rows, column.null_count, 3)
    add_validity(held, column)
    add_buffer(held, column.offsets, 4 * (<Py_ssize_t>column.rows + 1))
    add_buffer(held, column.data, column.data_size)
    return node


cdef int add_numbers(Held *held, object columns, object buffer) except -1:
    """Add an array of 64-bit numbers."""
    add_node(held, columns.rows, 0, 2)
    held.buffer_count += 1
    add_buffer(held, buffer, 8 * <Py_ssize_t>columns.rows)
    return 0


cdef int add_headers(Held *held, object columns) except -1:
    cdef object headers = columns.headers
    cdef ArrowArray *pairs
    cdef ArrowArray *rows = add_node(held, columns.rows, 0, 2)
    held.buffer_count += 1
    add_buffer(held, headers.offsets, 4 * (<Py_ssize_t>columns.rows + 1))
    pairs = &held.nodes[1]
    add_child(rows, pairs)
    add_node(held, headers.names.rows, 0, 1)
    held.buffer_count += 1
    add_child(pairs, add_bytes(held, headers.names))
    add_child(pairs, add_bytes(held, headers.values))
    return 0


cdef int32_t *add_int32s(Held *held, int64_t rows) except NULL:
    """Add an array of 32-bit numbers, and return their place."""
    add_node(held, rows, 0, 2)
    held.buffer_count += 1
    return <int32_t *>add_space(held, 4 * <Py_ssize_t>rows)


cdef inline int32_t *repeat(int32_t *at, int32_t value, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        at[index] = value
    return at + count


cdef int add_topics(Held *held, object columns) except -1:
    cdef dict numbers = {}
    cdef int32_t *at = add_int32s(held, columns.rows)
    cdef int32_t end = 0
    cdef list names
    for run in columns.runs:
        at = repeat(at, numbers.setdefault(run.topic, len(numbers)), run.rows)
    names = [topic.encode() for topic in numbers]
    held.nodes[0].dictionary = add_node(held, len(names), 0, 3)
    held.buffer_count += 1
    at = <int32_t *>add_space(held, 4 * (len(names) + 1))
    at[0] = 0
    for name in names:
        at += 1
        end += <int32_t>PyBytes_GET_SIZE(name)
        at[0] = end
    data = b"".join(names)
    memcpy(add_space(held, end), PyBytes_AS_STRING(data), end)
    return 0


cdef int add_partitions(Held *held, object columns) except -1:
    cdef int32_t *at = add_int32s(held, columns.rows)
    for run in columns.runs:
        at = repeat(at, run.partition, run.rows)
    return 0


cdef int add_epochs(Held *held, object columns) except -1:
    cdef int32_t *at = add_int32s(held, columns.rows)
    for run in columns.runs:
        at = repeat(at, run.leader_epoch, run.rows)
    return 0


cdef int add_timestamp_types(Held *held, object columns) except -1:
    cdef int8_t *at
    add_node(held, columns.rows, 0, 2)
    held.buffer_count += 1
    at = <int8_t *>add_space(held, columns.rows)
    for run in columns.runs:
        memset(at, <int8_t>run.timestamp_type, <Py_ssize_t>run.rows)
        at += <Py_ssize_t>run.rows
    return 0


cdef int add_column(Held *held, str name, object columns) except -1:
    if name == "topic":
        return add_topics(held, columns)
    if name == "partition":
        return add_partitions(held, columns)
    if name == "offset":
        return add_numbers(held, columns, columns.offsets)
    if name == "timestamp":
        return add_numbers(held, columns, columns.timestamps)
    if name == "timestamp_type":
        return add_timestamp_types(held, columns)
    if name == "leader_epoch":
        return add_epochs(held, columns)
    if name == "headers":
        return add_headers(held, columns)
    add_bytes(held, columns.keys if name == "key" else columns.values)
    return 0


cdef bint is_unusual(str name, object columns) except -1:
    """Return whether the column has views, or numbers that stand for null."""
    if name == "key" or name == "value":
        return columns.views
    if name == "timestamp":
        return columns.has_missing_timestamps
    if name == "leader_epoch":
        for run in columns.runs:
            if run.leader_epoch < 0:
                return True
    return False


def arrays(object columns, tuple types, object import_array) -> list:
    cdef Held *held
    cdef ArrowArray array
    cdef list made = []
    cdef str name
    for name, type in zip(columns.names, types):
        if is_unusual(name, columns):
            made.append(array_of(columns, name, type))
            continue
        held = <Held *>calloc(1, sizeof(Held))
        if held == NULL:
            raise MemoryError()
        # Arrow takes the array out of this copy, unless it fails before.
        memset(&array, 0, sizeof(array))
        array.private_data = held
        array.release = release
        try:
            add_column(held, name, columns)
            array = held.nodes[0]
            made.append(import_array(<uintptr_t>&array, type))
        finally:
            if array.release != NULL:
                release(&array)
    return made
