"""Decodes records of format v2 from the bytes of a batch.

Twins: ``record/record_cursor.py`` and ``record/default_record.py``; of ConsumerRecord, ``types.py``.

Both functions stop before anything broken or unusual and tell their callers where. The twin continues from there. So
errors are raised in one place only, and the C code handles only well-formed records.

ConsumerRecord is a C type whose fields are members, so ``decode`` stores them without calling ``__init__``, which is most
of the cost of a record in Python. It inherits all methods from the Python class that its twin inherits from.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memcmp

from pykclient.record._record_layout cimport Fields, add, read_bytes, read_record

from pykclient.consumer_record_base import RECORD_SLOTS, ConsumerRecordBase

cdef extern from *:
    """
    #include <structmember.h>

    typedef struct {
        PyObject_HEAD
        PyObject *topic;
        PyObject *partition;
        PyObject *leader_epoch;
        PyObject *offset;
        PyObject *timestamp;
        PyObject *timestamp_type;
        PyObject *key;
        PyObject *value;
        PyObject *headers;
        PyObject *serialized_key_size;
        PyObject *serialized_value_size;
        PyObject *delivery_count;
    } RecordObject;

    static PyTypeObject *record_type;

    #define FIELD(name, field) {name, T_OBJECT_EX, offsetof(RecordObject, field), 0, NULL}
    static PyMemberDef record_members[] = {
        FIELD("topic", topic),
        FIELD("partition", partition),
        FIELD("leader_epoch", leader_epoch),
        FIELD("offset", offset),
        FIELD("timestamp", timestamp),
        FIELD("timestamp_type", timestamp_type),
        FIELD("key", key),
        FIELD("value", value),
        FIELD("_headers", headers),
        FIELD("serialized_key_size", serialized_key_size),
        FIELD("serialized_value_size", serialized_value_size),
        FIELD("delivery_count", delivery_count),
        {NULL, 0, 0, 0, NULL}
    };

    #ifdef Py_GIL_DISABLED
    #define LOCK_RECORD(record) Py_BEGIN_CRITICAL_SECTION(record)
    #define UNLOCK_RECORD() Py_END_CRITICAL_SECTION()
    #else
    #define LOCK_RECORD(record)
    #define UNLOCK_RECORD()
    /* A linked list of freed records whose memory is reused, about as many as two polls return. */
    #define MAX_SPARE 1024
    static RecordObject *spare = NULL;
    static Py_ssize_t spare_count = 0;
    #endif

    /* Return a record that the GC does not track; its fields are not set. */
    static inline PyObject *new_record(void) {
    #ifndef Py_GIL_DISABLED
        RecordObject *record = spare;
        if (record != NULL) {
            spare = (RecordObject *)record->topic;
            spare_count--;
            return PyObject_Init((PyObject *)record, record_type);
        }
    #endif
        return (PyObject *)PyObject_GC_New(RecordObject, record_type);
    }

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

    static int record_traverse(PyObject *self, visitproc visit, void *arg) {
        RecordObject *record = (RecordObject *)self;
        Py_VISIT(Py_TYPE(self));
        Py_VISIT(record->topic);
        Py_VISIT(record->partition);
        Py_VISIT(record->leader_epoch);
        Py_VISIT(record->offset);
        Py_VISIT(record->timestamp);
        Py_VISIT(record->timestamp_type);
        Py_VISIT(record->key);
        Py_VISIT(record->value);
        Py_VISIT(record->headers);
        Py_VISIT(record->serialized_key_size);
        Py_VISIT(record->serialized_value_size);
        Py_VISIT(record->delivery_count);
        return 0;
    }

    static int record_clear(PyObject *self) {
        RecordObject *record = (RecordObject *)self;
        Py_CLEAR(record->topic);
        Py_CLEAR(record->partition);
        Py_CLEAR(record->leader_epoch);
        Py_CLEAR(record->offset);
        Py_CLEAR(record->timestamp);
        Py_CLEAR(record->timestamp_type);
        Py_CLEAR(record->key);
        Py_CLEAR(record->value);
        Py_CLEAR(record->headers);
        Py_CLEAR(record->serialized_key_size);
        Py_CLEAR(record->serialized_value_size);
        Py_CLEAR(record->delivery_count);
        return 0;
    }

    static void release_record(PyObject *self) {
        RecordObject *record = (RecordObject *)self;
        PyTypeObject *type = Py_TYPE(self);
        Py_XDECREF(record->topic);
        Py_XDECREF(record->partition);
        Py_XDECREF(record->leader_epoch);
        Py_XDECREF(record->offset);
        Py_XDECREF(record->timestamp);
        Py_XDECREF(record->timestamp_type);
        Py_XDECREF(record->key);
        Py_XDECREF(record->value);
        Py_XDECREF(record->headers);
        Py_XDECREF(record->serialized_key_size);
        Py_XDECREF(record->serialized_value_size);
        Py_XDECREF(record->delivery_count);
    #ifndef Py_GIL_DISABLED
        if (type == record_type && spare_count < MAX_SPARE) {
            record->topic = (PyObject *)spare;
            spare = record;
            spare_count++;
        } else
    #endif
            type->tp_free(self);
        Py_DECREF(type);
    }

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

    static PyType_Slot record_slots[] = {
        {Py_tp_members, record_members},
        {Py_tp_setattro, record_setattro},
        {Py_tp_traverse, record_traverse},
        {Py_tp_clear, record_clear},
        {Py_tp_dealloc, record_dealloc},
        {0, NULL}
    };

    static PyType_Spec record_spec = {
        .name = "pykclient.types.ConsumerRecord",
        .basicsize = sizeof(RecordObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = record_slots,
    };

    static PyObject *new_record_type(PyObject *base) {
        PyObject *type = PyType_FromSpecWithBases(&record_spec, base);
        record_type = (PyTypeObject *)Py_XNewRef(type);
        return type;
    }
    """
    ctypedef struct RecordObject:
        PyObject *topic
        PyObject *partition
        PyObject *leader_epoch
        PyObject *offset
        PyObject *timestamp
        PyObject *timestamp_type
        PyObject *key
        PyObject *value
        PyObject *headers
        PyObject *serialized_key_size
        PyObject *serialized_value_size
        PyObject *delivery_count

    object new_record_type(object base)
    object new_record()
    PyObject *Py_NewRef(object value)
    bint PyObject_IS_GC(object value)
    void PyObject_GC_Track(object record)

ConsumerRecord = new_record_type(ConsumerRecordBase)
ConsumerRecord.__name__ = "ConsumerRecord"  # messages then leave the module out, as for a class of Python
ConsumerRecord.__doc__ = ConsumerRecordBase.__doc__
ConsumerRecord.__slots__ = RECORD_SLOTS  # copying and pickling go by it


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
    cdef RecordObject *new
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
            # From here on nothing can fail and leave a field without a value.
            offset_object = offset
            record = new_record()
            new = <RecordObject *>record
            new.topic = Py_NewRef(topic)
            new.partition = Py_NewRef(partition)
            new.leader_epoch = Py_NewRef(epoch)
            new.offset = Py_NewRef(offset_object)
            new.timestamp = Py_NewRef(timestamp)
            new.timestamp_type = Py_NewRef(timestamp_type)
            new.key = Py_NewRef(key)
            new.value = Py_NewRef(value)
            new.headers = Py_NewRef(headers)
            new.serialized_key_size = Py_NewRef(key_size)
            new.serialized_value_size = Py_NewRef(value_size)
            new.delivery_count = Py_NewRef(None)
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
