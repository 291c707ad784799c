"""The compiled form of ``consumer_record.py``.

ConsumerRecord is a C type whose fields are members, so a decoder stores them without calling ``__init__``, which is most
of the cost of a record in Python. It inherits all methods from the Python class that its Python form inherits from.
"""

from pykclient.consumer_record_base import RECORD_SLOTS, ConsumerRecordBase

cdef extern from *:
    """
    #include <structmember.h>

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
        {"__dictoffset__", T_PYSSIZET, offsetof(RecordObject, dict), READONLY, NULL},
        {NULL, 0, 0, 0, NULL}
    };

    static PyGetSetDef record_getset[] = {
        {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL}
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
    static PyObject *allocate_record(void) {
        RecordObject *record;
    #ifndef Py_GIL_DISABLED
        record = spare;
        if (record != NULL) {
            spare = (RecordObject *)record->topic;
            spare_count--;
            record->dict = NULL;
            return PyObject_Init((PyObject *)record, record_type);
        }
    #endif
        record = PyObject_GC_New(RecordObject, record_type);
        if (record != NULL) record->dict = NULL;
        return (PyObject *)record;
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
        Py_VISIT(record->dict);
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
        Py_CLEAR(record->dict);
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
        Py_XDECREF(record->dict);
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
        {Py_tp_getset, record_getset},
        {Py_tp_setattro, record_setattro},
        {Py_tp_traverse, record_traverse},
        {Py_tp_clear, record_clear},
        {Py_tp_dealloc, record_dealloc},
        {0, NULL}
    };

    static PyType_Spec record_spec = {
        .name = "pykclient.consumer_record.ConsumerRecord",
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

    object new_record_type(object base)
    object allocate_record()

ConsumerRecord = new_record_type(ConsumerRecordBase)
ConsumerRecord.__name__ = "ConsumerRecord"  # messages then leave the module out, as for a class of Python
ConsumerRecord.__doc__ = ConsumerRecordBase.__doc__
ConsumerRecord.__slots__ = (*RECORD_SLOTS, "__dict__")  # copying and pickling go by it


cdef object new_record():
    """Return a record that the garbage collector does not track; the caller sets all fields."""
    return allocate_record()
