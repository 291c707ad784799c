# The futures of a batch's records, for the compiled modules that add to them.

from cpython.object cimport PyObject

from pykclient.producer._record_fields cimport FutureState


cdef class AwaitedRecords:
    cdef PyObject **pairs  # each record, and behind it its future; owned
    cdef Py_ssize_t count, capacity
    cdef bint has_acks
    cdef list resumed
    cdef int keep(self, FutureState record, object future) except -1
    cdef int leave_to_python(self) except -1


cdef int untrack(object future) except -1
