"""The compiled form of ``frames.py``."""

cimport cython
from libc.stdint cimport int64_t

from pykclient.network.frames import IOV_MAX

cdef Py_ssize_t most_pieces = IOV_MAX


@cython.final
@cython.freelist(8)
cdef class NetworkSend:
    """The frame of the requests in flight of a client: few exist at a time. Thread: owner."""

    cdef readonly object destination_id
    cdef readonly bint expect_response
    cdef list buffers
    cdef Py_ssize_t next
    cdef readonly int64_t size, remaining
    cdef readonly bint completed

    def __init__(self, destination_id, buffers, expect_response=True):
        cdef int64_t size = 0
        self.destination_id = destination_id
        self.expect_response = expect_response
        self.buffers = list(buffers)
        self.next = 0
        for buffer in self.buffers:
            size += len(buffer)
        self.size = self.remaining = size
        self.completed = not size

    def pending(self) -> list:
        if self.next or len(self.buffers) > most_pieces:
            return self.buffers[self.next : self.next + most_pieces]
        return self.buffers

    def unsent(self):
        return self.buffers[self.next :]

    def complete(self):
        self.remaining = 0
        self.completed = True
        self.buffers = []

    @cython.boundscheck(True)
    def advance(self, int64_t sent_bytes):
        cdef Py_ssize_t index = self.next
        cdef list buffers = self.buffers
        self.remaining -= sent_bytes
        if not self.remaining:
            self.completed = True
            self.buffers = []
            return
        while sent_bytes >= len(buffers[index]):
            sent_bytes -= len(buffers[index])
            index += 1
        if sent_bytes:
            buffers[index] = memoryview(buffers[index])[sent_bytes:]
        self.next = index

    def __repr__(self):
        return f"NetworkSend(to={self.destination_id}, {self.remaining} of {self.size} bytes left)"
