# The fields of a ConsumerRecord, for compiled modules that create many.

from cpython.object cimport PyObject

cdef extern from *:
    """
    #ifndef PYKCLIENT_RECORD_OBJECT
    #define PYKCLIENT_RECORD_OBJECT
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
        PyObject *dict;
    } RecordObject;
    #endif
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


cdef object new_record()
