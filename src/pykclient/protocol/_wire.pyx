"""The compiled form of ``wire.py``.

It handles what is complete and valid. Anything else, and rare types, are left to a Python reader or writer that starts
at the current position, so that errors are raised and worded in one place.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport (
    INT32_MAX,
    INT32_MIN,
    UINT32_MAX,
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)
from libc.string cimport memcpy

from pykclient.protocol.wire import _COPY_BELOW, _MAX_INT16, Reader as PythonReader, Writer as PythonWriter, _uuids

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef Py_ssize_t longest_string = _MAX_INT16
cdef Py_ssize_t copy_below = _COPY_BELOW
cdef dict uuids = _uuids


cdef inline uint64_t number_at(const uint8_t *data, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int index
    for index in range(size):
        value = value << 8 | data[index]
    return value


cdef class Reader:
    """Reads values from ``buffer``, one after the other, from ``pos`` on. Thread: owner."""

    cdef Py_buffer view
    cdef const uint8_t *data
    cdef object buffer
    cdef public Py_ssize_t pos
    cdef readonly Py_ssize_t end

    def __cinit__(self, buffer, Py_ssize_t pos=0):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.buffer = buffer
        self.data = <const uint8_t *>self.view.buf
        self.pos = pos
        self.end = self.view.len

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef inline bint has(self, int64_t size) noexcept:
        return 0 <= self.pos <= self.end and 0 <= size <= self.end - self.pos

    cdef by_twin(self, str method, tuple arguments=()):
        """Call a method of the Python version, which starts at the current position, and continue where it ends."""
        twin = PythonReader(self.buffer, self.pos)
        try:
            return getattr(twin, method)(*arguments)
        finally:
            self.pos = twin.pos

    @property
    def remaining(self) -> int:
        return self.end - self.pos

    # --- fixed size ----------------------------------------------------------------------------------------------------

    def unpack(self, layout) -> tuple:
        cdef Py_ssize_t size = layout.size
        if not self.has(size):
            return self.by_twin("unpack", (layout,))
        values = layout.unpack_from(self.buffer, self.pos)
        self.pos += size
        return values

    cdef inline const uint8_t *take(self, int size) noexcept:
        """Return the address of the next bytes, or NULL if there are too few."""
        cdef const uint8_t *found
        if not self.has(size):
            return NULL
        found = self.data + self.pos
        self.pos += size
        return found

    def boolean(self) -> bool:
        cdef const uint8_t *found = self.take(1)
        return self.by_twin("boolean") if found == NULL else found[0] != 0

    def int8(self) -> int:
        cdef const uint8_t *found = self.take(1)
        return self.by_twin("int8") if found == NULL else <int8_t>found[0]

    def int16(self) -> int:
        cdef const uint8_t *found = self.take(2)
        return self.by_twin("int16") if found == NULL else <int16_t>number_at(found, 2)

    def uint16(self) -> int:
        cdef const uint8_t *found = self.take(2)
        return self.by_twin("uint16") if found == NULL else <uint16_t>number_at(found, 2)

    def int32(self) -> int:
        cdef const uint8_t *found = self.take(4)
        return self.by_twin("int32") if found == NULL else <int32_t>number_at(found, 4)

    def uint32(self) -> int:
        cdef const uint8_t *found = self.take(4)
        return self.by_twin("uint32") if found == NULL else <uint32_t>number_at(found, 4)

    def int64(self) -> int:
        cdef const uint8_t *found = self.take(8)
        return self.by_twin("int64") if found == NULL else <int64_t>number_at(found, 8)

    def float64(self) -> float:
        return self.by_twin("float64")

    def uuid(self):
        if self.has(16):
            known = uuids.get(PyBytes_FromStringAndSize(<const char *>self.data + self.pos, 16))
            if known is not None:
                self.pos += 16
                return known
        return self.by_twin("uuid")

    # --- varints -------------------------------------------------------------------------------------------------------

    cdef int64_t next_uvarint(self) noexcept:
        """Read an unsigned 32-bit integer. Return -1, and read nothing, if the Python version must handle it."""
        cdef uint64_t value = 0
        cdef Py_ssize_t pos = self.pos
        cdef int shift
        if pos < 0:
            return -1
        for shift in range(0, 35, 7):
            if pos >= self.end:
                return -1
            value |= <uint64_t>(self.data[pos] & 0x7F) << shift
            pos += 1
            if self.data[pos - 1] < 0x80:
                if value > 0xFFFFFFFF:
                    return -1
                self.pos = pos
                return <int64_t>value
        return -1

    def uvarint(self) -> int:
        cdef int64_t value = self.next_uvarint()
        return self.by_twin("uvarint") if value < 0 else value

    def varint(self) -> int:
        cdef int64_t value = self.next_uvarint()
        return self.by_twin("varint") if value < 0 else (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        return self.by_twin("varlong")

    # --- strings and bytes ---------------------------------------------------------------------------------------------

    cdef bint next_length(self, bint flexible, bint is_short, int64_t *length) noexcept:
        """Read a length, -1 for null. Return false, and read nothing, if the Python version must handle it."""
        cdef int64_t value
        cdef const uint8_t *found
        if flexible:
            value = self.next_uvarint()
            length[0] = value - 1
            return value >= 0
        found = self.take(2 if is_short else 4)
        if found == NULL:
            return False
        length[0] = <int16_t>number_at(found, 2) if is_short else <int32_t>number_at(found, 4)
        return True

    def nullable_string(self, bint flexible) -> str | None:
        cdef Py_ssize_t begun = self.pos
        cdef int64_t length
        if self.next_length(flexible, True, &length):
            if length == -1:
                return None
            if length <= longest_string and self.has(length):
                try:
                    text = PyUnicode_DecodeUTF8(<const char *>self.data + self.pos, <Py_ssize_t>length, NULL)
                except UnicodeDecodeError:
                    pass
                else:
                    self.pos += <Py_ssize_t>length
                    return text
            self.pos = begun
        return self.by_twin("nullable_string", (flexible,))

    def string(self, bint flexible) -> str:
        cdef Py_ssize_t begun = self.pos
        text = self.nullable_string(flexible)
        if text is None:
            self.pos = begun
            return self.by_twin("string", (flexible,))
        return text

    def nullable_bytes(self, bint flexible) -> bytes | None:
        cdef Py_ssize_t begun = self.pos
        cdef int64_t length
        if self.next_length(flexible, False, &length):
            if length == -1:
                return None
            if self.has(length):
                self.pos += <Py_ssize_t>length
                return PyBytes_FromStringAndSize(
                    <const char *>self.data + self.pos - length, <Py_ssize_t>length
                )
            self.pos = begun
        return self.by_twin("nullable_bytes", (flexible,))

    def bytes_(self, bint flexible) -> bytes:
        cdef Py_ssize_t begun = self.pos
        value = self.nullable_bytes(flexible)
        if value is None:
            self.pos = begun
            return self.by_twin("bytes_", (flexible,))
        return value

    def nullable_records(self, bint flexible):
        cdef Py_ssize_t begun = self.pos
        cdef int64_t length
        if self.next_length(flexible, False, &length):
            if length == -1:
                return None
            if self.has(length):
                self.pos += <Py_ssize_t>length
                return memoryview(self.buffer)[self.pos - <Py_ssize_t>length : self.pos]
            self.pos = begun
        return self.by_twin("nullable_records", (flexible,))

    def records(self, bint flexible):
        cdef Py_ssize_t begun = self.pos
        value = self.nullable_records(flexible)
        if value is None:
            self.pos = begun
            return self.by_twin("records", (flexible,))
        return value

    # --- arrays --------------------------------------------------------------------------------------------------------

    def nullable_array_length(self, bint flexible) -> int:
        cdef Py_ssize_t begun = self.pos
        cdef int64_t length
        if self.next_length(flexible, False, &length):
            if -1 <= length <= self.end - self.pos:
                return length
            self.pos = begun
        return self.by_twin("nullable_array_length", (flexible,))

    def array_length(self, bint flexible) -> int:
        cdef Py_ssize_t begun = self.pos
        cdef int64_t length
        if self.next_length(flexible, False, &length):
            if 0 <= length <= self.end - self.pos:
                return length
            self.pos = begun
        return self.by_twin("array_length", (flexible,))

    cdef list next_int32s(self, bint flexible):
        """Read an array. Return None, and read nothing, if the Python version must handle it."""
        cdef Py_ssize_t begun = self.pos
        cdef Py_ssize_t index
        cdef int64_t length
        if self.next_length(flexible, False, &length):
            if length >= 0 and self.has(4 * length):
                self.pos += <Py_ssize_t>(4 * length)
                return [
                    <int32_t>number_at(self.data + self.pos - 4 * (length - index), 4) for index in range(length)
                ]
            self.pos = begun
        return None

    def nullable_int32_array(self, bint flexible) -> list | None:
        found = self.next_int32s(flexible)
        return self.by_twin("nullable_int32_array", (flexible,)) if found is None else found

    def int32_array(self, bint flexible) -> list:
        found = self.next_int32s(flexible)
        return self.by_twin("int32_array", (flexible,)) if found is None else found

    # --- tagged fields -------------------------------------------------------------------------------------------------

    def tags(self) -> dict | None:
        if self.has(1) and not self.data[self.pos]:
            self.pos += 1
            return None
        return self.by_twin("tags")

    def tag(self) -> tuple:
        cdef Py_ssize_t begun = self.pos
        cdef int64_t tag = self.next_uvarint()
        cdef int64_t size = -1 if tag < 0 else self.next_uvarint()
        if self.has(size):
            return tag, self.pos + size
        self.pos = begun
        return self.by_twin("tag")

    def end_tag(self, tag, end) -> None:
        if self.pos != end:
            self.by_twin("end_tag", (tag, end))

    def raw(self, Py_ssize_t end) -> bytes:
        cdef Py_ssize_t size = end - self.pos
        if not self.has(size):
            return self.by_twin("raw", (end,))
        self.pos = end
        return PyBytes_FromStringAndSize(<const char *>self.data + end - size, size)


cdef inline bint is_between(value, int64_t least, int64_t most, int64_t *number) except -1:
    """Set ``number`` and return true if ``value`` is an int in this range."""
    cdef int overflow
    if type(value) is not int:
        return False
    number[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    return overflow == 0 and least <= number[0] <= most


cdef class Writer:
    """Collects the buffers of one message. Thread: owner."""

    cdef bytearray buf
    cdef list sealed
    cdef Py_ssize_t sealed_size

    def __cinit__(self):
        self.buf = bytearray()
        self.sealed = []
        self.sealed_size = 0

    cdef by_twin(self, str method, tuple arguments):
        """Call a method of the Python version, which continues in this writer's buffers. It must not seal one."""
        twin = PythonWriter()
        twin._buf = self.buf
        twin._sealed = self.sealed
        getattr(twin, method)(*arguments)

    cdef inline uint8_t *grow(self, Py_ssize_t size) except NULL:
        """Return the address of ``size`` new bytes at the end."""
        cdef Py_ssize_t before = PyByteArray_GET_SIZE(self.buf)
        PyByteArray_Resize(self.buf, before + size)
        return <uint8_t *>PyByteArray_AS_STRING(self.buf) + before

    cdef inline int append_number(self, int64_t value, int size) except -1:
        cdef uint8_t *to = self.grow(size)
        cdef int index
        for index in range(size):
            to[index] = <uint8_t>(value >> (8 * (size - 1 - index)))
        return 0

    cdef inline int append_uvarint(self, uint64_t value) except -1:
        cdef int size = 1
        cdef int index
        cdef uint8_t *to
        while value >> (7 * size):
            size += 1
        to = self.grow(size)
        for index in range(size - 1):
            to[index] = <uint8_t>(value & 0x7F | 0x80)
            value >>= 7
        to[size - 1] = <uint8_t>value
        return 0

    @property
    def size(self) -> int:
        return self.sealed_size + PyByteArray_GET_SIZE(self.buf)

    def buffers(self) -> list:
        return [*self.sealed, self.buf] if self.buf else self.sealed

    def getvalue(self) -> bytes:
        return b"".join(self.buffers()) if self.sealed else bytes(self.buf)

    def patch_int32(self, position, value) -> None:
        cdef int64_t at, number
        cdef uint8_t *to
        cdef int index
        first = self.sealed[0] if self.sealed else self.buf
        if (
            type(first) is not bytearray
            or not is_between(position, 0, PyByteArray_GET_SIZE(first) - 4, &at)
            or not is_between(value, INT32_MIN, INT32_MAX, &number)
        ):
            self.by_twin("patch_int32", (position, value))
            return
        to = <uint8_t *>PyByteArray_AS_STRING(first) + at
        for index in range(4):
            to[index] = <uint8_t>(number >> (24 - 8 * index))

    # --- fixed size ----------------------------------------------------------------------------------------------------

    def pack(self, layout, *values) -> None:
        try:
            packed = layout.pack(*values)
        except Exception:
            self.by_twin("pack", (layout, *values))
        else:
            self.buf += packed

    def boolean(self, value) -> None:
        self.append_number(1 if value else 0, 1)

    def int8(self, value) -> None:
        cdef int64_t number
        if is_between(value, -128, 127, &number):
            self.append_number(number, 1)
        else:
            self.by_twin("int8", (value,))

    def int16(self, value) -> None:
        cdef int64_t number
        if is_between(value, -32768, 32767, &number):
            self.append_number(number, 2)
        else:
            self.by_twin("int16", (value,))

    def uint16(self, value) -> None:
        cdef int64_t number
        if is_between(value, 0, 65535, &number):
            self.append_number(number, 2)
        else:
            self.by_twin("uint16", (value,))

    def int32(self, value) -> None:
        cdef int64_t number
        if is_between(value, INT32_MIN, INT32_MAX, &number):
            self.append_number(number, 4)
        else:
            self.by_twin("int32", (value,))

    def uint32(self, value) -> None:
        cdef int64_t number
        if is_between(value, 0, UINT32_MAX, &number):
            self.append_number(number, 4)
        else:
            self.by_twin("uint32", (value,))

    def int64(self, value) -> None:
        cdef int overflow
        cdef int64_t number
        if type(value) is int:
            number = PyLong_AsLongLongAndOverflow(value, &overflow)
            if not overflow:
                self.append_number(number, 8)
                return
        self.by_twin("int64", (value,))

    def float64(self, value) -> None:
        self.by_twin("float64", (value,))

    def uuid(self, value) -> None:
        self.buf += value.int.to_bytes(16, "big")

    # --- varints -------------------------------------------------------------------------------------------------------

    def uvarint(self, value) -> None:
        cdef int64_t number
        if is_between(value, 0, UINT32_MAX, &number):
            self.append_uvarint(number)
        else:
            self.by_twin("uvarint", (value,))

    def varint(self, value) -> None:
        self.by_twin("varint", (value,))

    def varlong(self, value) -> None:
        self.by_twin("varlong", (value,))

    # --- strings and bytes ---------------------------------------------------------------------------------------------

    def string(self, value, flexible) -> None:
        cdef Py_ssize_t length
        cdef const char *text = NULL
        if type(value) is str:
            try:
                text = PyUnicode_AsUTF8AndSize(value, &length)
            except UnicodeEncodeError:
                length = -1
            if 0 <= length <= longest_string:
                if flexible:
                    self.append_uvarint(length + 1)
                else:
                    self.append_number(length, 2)
                memcpy(self.grow(length), text, length)
                return
        self.by_twin("string", (value, flexible))

    def nullable_string(self, value, flexible) -> None:
        if value is not None:
            self.string(value, flexible)
        elif flexible:
            self.append_number(0, 1)
        else:
            self.append_number(-1, 2)

    def bytes_(self, value, flexible) -> None:
        cdef Py_ssize_t length
        if type(value) is bytes:
            length = PyBytes_GET_SIZE(value)
            self.array_length(length, flexible)
            memcpy(self.grow(length), PyBytes_AS_STRING(value), length)
        else:
            self.by_twin("bytes_", (value, flexible))

    def nullable_bytes(self, value, flexible) -> None:
        if value is None:
            self.array_length(-1, flexible)
        else:
            self.bytes_(value, flexible)

    def records(self, value, flexible) -> None:
        cdef Py_ssize_t length
        segments = value if isinstance(value, (list, tuple)) else (value,)
        self.array_length(sum(map(len, segments)), flexible)
        for segment in segments:
            length = len(segment)
            if length < copy_below:
                self.buf += segment
                continue
            if self.buf:
                self.sealed.append(self.buf)
            self.sealed.append(segment)
            self.sealed_size += PyByteArray_GET_SIZE(self.buf) + length
            self.buf = bytearray()

    def nullable_records(self, value, flexible) -> None:
        if value is None:
            self.array_length(-1, flexible)
        else:
            self.records(value, flexible)

    # --- arrays --------------------------------------------------------------------------------------------------------

    def array_length(self, length, flexible) -> None:
        cdef int64_t number
        if not is_between(length, -1, INT32_MAX, &number):
            self.by_twin("array_length", (length, flexible))
        elif flexible:
            self.append_uvarint(number + 1)
        else:
            self.append_number(number, 4)

    def int32_array(self, values, flexible) -> None:
        self.by_twin("int32_array", (values, flexible))

    def nullable_int32_array(self, values, flexible) -> None:
        self.by_twin("nullable_int32_array", (values, flexible))

    # --- tagged fields -------------------------------------------------------------------------------------------------

    def tags(self, tags) -> None:
        if tags:
            self.by_twin("tags", (tags,))
        else:
            self.append_number(0, 1)
