"""Decodes records of format v2 from the bytes of a batch.

Twins: ``record/record_cursor.py`` and ``record/default_record.py``.

Both functions stop before anything broken or unusual and tell their callers where. The twin continues from there. So
errors are raised in one place only, and the C code handles only well-formed records.

A ConsumerRecord is a Python class with slots. This module fills the slots in place, without calling ``__init__``, which
is most of the cost of a record in Python.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memcmp

from pykclient._speedups.record_layout cimport Fields, add, read_bytes, read_record

from pykclient.types import ConsumerRecord

cdef extern from *:
    """
    #include <structmember.h>

    /* The offset of a slot in the instances of a class; -1 with an error set if there is no such slot. */
    static Py_ssize_t slot_offset(PyObject *type, PyObject *name) {
        PyObject *slot = PyObject_GetAttr(type, name);
        Py_ssize_t offset = -1;
        if (slot == NULL) return -1;
        if (Py_TYPE(slot) == &PyMemberDescr_Type && ((PyMemberDescrObject *)slot)->d_member->type == T_OBJECT_EX)
            offset = ((PyMemberDescrObject *)slot)->d_member->offset;
        else
            PyErr_Format(PyExc_ImportError, "%R is not a slot", slot);
        Py_DECREF(slot);
        return offset;
    }

    /* True if instances have the slots and nothing else. */
    static int has_nothing_but_slots(PyObject *type, Py_ssize_t count) {
        return ((PyTypeObject *)type)->tp_basicsize == (Py_ssize_t)(sizeof(PyObject) + count * sizeof(PyObject *))
            && ((PyTypeObject *)type)->tp_dictoffset == 0;
    }

    #define FILL_SLOT(record, offset, value) (*(PyObject **)((char *)(record) + (offset)) = Py_NewRef(value))
    #define SLOTS(record) ((PyObject **)((record) + 1))

    static PyTypeObject *record_type;
    static Py_ssize_t slot_count;

    #ifdef Py_GIL_DISABLED
    #define LOCK_RECORD(record) Py_BEGIN_CRITICAL_SECTION(record)
    #define UNLOCK_RECORD() Py_END_CRITICAL_SECTION()
    #else
    #define LOCK_RECORD(record)
    #define UNLOCK_RECORD()
    #endif

    /* Let the GC track a record as soon as an object is assigned that could be part of a cycle. */
    static int record_setattro(PyObject *record, PyObject *name, PyObject *value) {
        if (value != NULL && PyObject_IS_GC(value)) {
            /* Two threads may be here, and tracking a record twice aborts the process. */
            LOCK_RECORD(record);
            if (!PyObject_GC_IsTracked(record)) PyObject_GC_Track(record);
            UNLOCK_RECORD();
        }
        return PyObject_GenericSetAttr(record, name, value);
    }

    #ifdef Py_GIL_DISABLED
    #define NEW_INSTANCE() ((PyObject *)PyObject_GC_New(PyObject, record_type))
    #else
    /* A linked list of freed records whose memory is reused, about as many as two polls return. */
    #define MAX_SPARE 1024
    static PyObject *spare = NULL;
    static Py_ssize_t spare_count = 0;

    static inline PyObject *NEW_INSTANCE(void) {
        PyObject *record = spare;
        if (record == NULL) return (PyObject *)PyObject_GC_New(PyObject, record_type);
        spare = SLOTS(record)[0];
        spare_count--;
        return PyObject_Init(record, record_type);
    }

    static void release_record(PyObject *record) {
        PyTypeObject *type = Py_TYPE(record);
        PyObject **slots = SLOTS(record);
        for (Py_ssize_t i = 0; i < slot_count; i++) Py_XDECREF(slots[i]);
        if (type == record_type && spare_count < MAX_SPARE) {
            slots[0] = spare;
            spare = record;
            spare_count++;
        } else {
            type->tp_free(record);
        }
        Py_DECREF(type);
    }

    /* As Python's own tp_dealloc, which would inspect the class for each instance. */
    static void record_dealloc(PyObject *record) {
        if (PyObject_GC_IsTracked(record)) {
            /* Its values may refer to other records, and a long chain of records must not exhaust the stack. */
            PyObject_GC_UnTrack(record);
            Py_TRASHCAN_BEGIN(record, record_dealloc)
            release_record(record);
            Py_TRASHCAN_END
        } else {
            release_record(record);
        }
    }
    #endif

    /* Install the functions above in the type of the records. */
    static void take_charge_of(PyObject *type, Py_ssize_t count) {
        record_type = (PyTypeObject *)Py_NewRef(type);
        slot_count = count;
        record_type->tp_setattro = record_setattro;
    #ifndef Py_GIL_DISABLED
        record_type->tp_dealloc = record_dealloc;
    #endif
        PyType_Modified(record_type);
    }
    """
    Py_ssize_t slot_offset(object type, object name) except -1
    bint has_nothing_but_slots(object type, Py_ssize_t count)
    void take_charge_of(object type, Py_ssize_t count)
    object NEW_INSTANCE()  # not tracked by the GC; its slots must be filled before anything else happens
    void FILL_SLOT(object record, Py_ssize_t offset, object value)
    bint PyObject_IS_GC(object value)
    void PyObject_GC_Track(object record)

if not has_nothing_but_slots(ConsumerRecord, len(ConsumerRecord.__slots__)):
    raise ImportError("the slots of ConsumerRecord are not those that this module was compiled for; build it again")

take_charge_of(ConsumerRecord, len(ConsumerRecord.__slots__))
cdef Py_ssize_t _TOPIC = slot_offset(ConsumerRecord, "topic")
cdef Py_ssize_t _PARTITION = slot_offset(ConsumerRecord, "partition")
cdef Py_ssize_t _LEADER_EPOCH = slot_offset(ConsumerRecord, "leader_epoch")
cdef Py_ssize_t _OFFSET = slot_offset(ConsumerRecord, "offset")
cdef Py_ssize_t _TIMESTAMP = slot_offset(ConsumerRecord, "timestamp")
cdef Py_ssize_t _TIMESTAMP_TYPE = slot_offset(ConsumerRecord, "timestamp_type")
cdef Py_ssize_t _KEY = slot_offset(ConsumerRecord, "key")
cdef Py_ssize_t _VALUE = slot_offset(ConsumerRecord, "value")
cdef Py_ssize_t _HEADERS = slot_offset(ConsumerRecord, "_headers")
cdef Py_ssize_t _KEY_SIZE = slot_offset(ConsumerRecord, "serialized_key_size")
cdef Py_ssize_t _VALUE_SIZE = slot_offset(ConsumerRecord, "serialized_value_size")


cdef tuple _headers(Fields *fields):
    """Return the headers, which ``read_record`` has validated."""
    cdef const uint8_t *pos = fields.headers
    cdef const uint8_t *data = NULL
    cdef Py_ssize_t size = 0, i
    cdef tuple headers = PyTuple_New(fields.headers_count)
    cdef tuple header
    cdef object part
    for i in range(fields.headers_count):
        header = PyTuple_New(2)
        Py_INCREF(header)
        PyTuple_SET_ITEM(headers, i, header)
        pos = read_bytes(pos, fields.end, &data, &size)
        # As in Java, a name that is not UTF-8 does not make the record unreadable.
        part = PyUnicode_DecodeUTF8(<const char *>data, size, "replace")
        Py_INCREF(part)
        PyTuple_SET_ITEM(header, 0, part)
        pos = read_bytes(pos, fields.end, &data, &size)
        part = None if size < 0 else PyBytes_FromStringAndSize(<const char *>data, size)
        Py_INCREF(part)
        PyTuple_SET_ITEM(header, 1, part)
    return headers


def decode(
    object data,
    Py_ssize_t pos,
    Py_ssize_t remaining,
    Py_ssize_t max_records,
    object next_offset,
    int64_t base_offset,
    int64_t base_timestamp,
    object log_append_time,
    object timestamp_type,
    object epoch,
    object owner,
    list records not None,
    object deserialization_error,
):
    """Append up to ``max_records`` records to ``records``, from ``pos`` on, without offsets below ``next_offset``.

    ``remaining`` is the number of records from ``pos`` on. Return the point where decoding stopped, as ``(pos,
    remaining, next_offset, bytes_read, failure)``. If fewer than ``max_records`` were appended and some remain, the
    point is before a record that the twin must decode, or before one whose deserializer raised. In the latter case,
    ``failure`` is the error to raise.
    """
    cdef Py_buffer buffer
    if not -1 <= next_offset <= INT64_MAX:
        return pos, remaining, next_offset, 0, None
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return _decode(
            <const uint8_t *>buffer.buf,
            buffer.len,
            pos,
            remaining,
            max_records,
            next_offset,
            base_offset,
            base_timestamp,
            log_append_time,
            timestamp_type,
            epoch,
            owner,
            records,
            deserialization_error,
        )
    finally:
        PyBuffer_Release(&buffer)


cdef tuple _decode(
    const uint8_t *start,
    Py_ssize_t size,
    Py_ssize_t pos,
    Py_ssize_t remaining,
    Py_ssize_t max_records,
    int64_t next_offset,
    int64_t base_offset,
    int64_t base_timestamp,
    object log_append_time,
    object timestamp_type,
    object epoch,
    object owner,
    list records,
    object deserialization_error,
):
    cdef const uint8_t *end = start + size
    cdef const uint8_t *at = start + pos
    cdef Fields fields
    cdef int64_t offset, time, last_time = 0
    cdef Py_ssize_t bytes_read = 0, last_size = -1
    # Neighbours share equal objects: times, sizes, headers.
    cdef object timestamp = log_append_time
    cdef object minus_one = -1, size_object = minus_one, key_size, value_size
    cdef const uint8_t *last_headers = NULL
    cdef Py_ssize_t headers_size, last_headers_size = 0
    cdef tuple no_headers = (), shared_headers = no_headers, headers
    cdef bint has_time = log_append_time is not None
    cdef object record, offset_object, key, value, raw_key, raw_value, part
    cdef object failure = None
    topic, partition, deserialize_key, deserialize_value = owner
    cdef bint has_key_deserializer = deserialize_key is not None
    cdef bint has_value_deserializer = deserialize_value is not None
    cdef bint is_deserialized = has_key_deserializer or has_value_deserializer
    cdef bint is_strange = PyObject_IS_GC(topic) or PyObject_IS_GC(partition)  # usually False: they are str and int
    while max_records > 0 and remaining > 0:
        if not read_record(at, end, &fields) or (remaining == 1 and fields.end != end):
            break
        if not add(base_offset, fields.offset_delta, &offset) or offset == INT64_MAX:
            break
        if not add(base_timestamp, fields.timestamp_delta, &time):
            break
        if offset >= next_offset:
            if fields.headers_count == 0:
                headers = no_headers
            else:
                headers_size = fields.end - fields.headers
                if headers_size != last_headers_size or memcmp(fields.headers, last_headers, headers_size) != 0:
                    shared_headers = _headers(&fields)
                    last_headers = fields.headers
                    last_headers_size = headers_size
                headers = shared_headers
            if log_append_time is None and (not has_time or time != last_time):
                timestamp = time
                last_time = time
                has_time = True
            if fields.key_size < 0:
                key = None
                key_size = minus_one
            else:
                key = PyBytes_FromStringAndSize(<const char *>fields.key, fields.key_size)
                key_size = fields.key_size
            if fields.value_size < 0:
                value = None
                value_size = minus_one
            else:
                value = PyBytes_FromStringAndSize(<const char *>fields.value, fields.value_size)
                if fields.value_size != last_size:
                    last_size = fields.value_size
                    size_object = last_size
                value_size = size_object
            if is_deserialized:
                raw_key = key
                raw_value = value
                part = "key"
                try:
                    if has_key_deserializer and raw_key is not None:
                        key = deserialize_key(topic, headers, raw_key)
                    part = "value"
                    if has_value_deserializer and raw_value is not None:
                        value = deserialize_value(topic, headers, raw_value)
                except Exception as error:
                    failure = deserialization_error(
                        owner, part, (offset, timestamp, raw_key, raw_value, headers), timestamp_type, epoch, error
                    )
                    failure.__cause__ = error
                    break
                except BaseException as error:
                    failure = error
                    break
            # From here on nothing can fail and leave a slot empty.
            offset_object = offset
            record = NEW_INSTANCE()
            FILL_SLOT(record, _TOPIC, topic)
            FILL_SLOT(record, _PARTITION, partition)
            FILL_SLOT(record, _LEADER_EPOCH, epoch)
            FILL_SLOT(record, _OFFSET, offset_object)
            FILL_SLOT(record, _TIMESTAMP, timestamp)
            FILL_SLOT(record, _TIMESTAMP_TYPE, timestamp_type)
            FILL_SLOT(record, _KEY, key)
            FILL_SLOT(record, _VALUE, value)
            FILL_SLOT(record, _HEADERS, headers)
            FILL_SLOT(record, _KEY_SIZE, key_size)
            FILL_SLOT(record, _VALUE_SIZE, value_size)
            # Objects that the GC does not track cannot be part of a cycle. Tracking thousands of records costs more
            # than making them. Headers are tuples of immutable objects until the application asks for the list.
            # `record_setattro` handles that, and later assignments.
            if is_strange or (is_deserialized and (PyObject_IS_GC(key) or PyObject_IS_GC(value))):
                PyObject_GC_Track(record)
            records.append(record)
            next_offset = offset + 1
            max_records -= 1
            bytes_read += fields.end - at
        at = fields.end
        remaining -= 1
    return at - start, remaining, next_offset, bytes_read, failure


def summarize(object data, Py_ssize_t count, int64_t base_timestamp):
    """Return ``(min_timestamp, max_timestamp, all_have_keys, offsets_follow)`` of ``count`` records.

    Return None if the records are broken; the twin then raises the error.
    """
    cdef Py_buffer buffer
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Fields fields
    cdef int64_t time, min_timestamp = -1, max_timestamp = -1
    cdef bint all_have_keys = True, offsets_follow = True
    cdef Py_ssize_t i
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>buffer.buf
        end = at + buffer.len
        for i in range(count):
            if not read_record(at, end, &fields) or not add(base_timestamp, fields.timestamp_delta, &time):
                return None
            if time > max_timestamp:
                max_timestamp = time
            if time != -1 and (min_timestamp == -1 or time < min_timestamp):
                min_timestamp = time
            if fields.offset_delta != i:
                offsets_follow = False
            if fields.key_size < 0:
                all_have_keys = False
            at = fields.end
        if at != end:
            return None
    finally:
        PyBuffer_Release(&buffer)
    return min_timestamp, max_timestamp, all_have_keys, offsets_follow
