# Closing batches, for the compiled modules that do.

from pykclient.record._append_state cimport AppendState


cdef bint close_plain(AppendState state) except -1
