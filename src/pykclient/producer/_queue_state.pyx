"""The compiled form of ``queue_state.py``."""

cimport cython
from cpython.pythread cimport (
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
    PyThread_type_lock,
)

from pykclient.reentry import interrupting

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define IS_FREE_THREADED 1
    #else
    #define IS_FREE_THREADED 0
    #endif
    """
    bint IS_FREE_THREADED


@cython.final
cdef class Mutex:
    """A lock that C code takes without a Python call. Waiting for it cannot be interrupted.

    The lock is not reentrant. A signal handler or a ``__del__`` that interrupts its holder, and needs the lock, gets an
    IllegalStateError instead of waiting forever.

    With a GIL, the GIL guards ``is_held``. ``lock`` then serves only threads that found the mutex held: after each
    release, it is free for a moment for one of them.
    """


    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError
        if not IS_FREE_THREADED:
            PyThread_acquire_lock(self.lock, 0)

    def __dealloc__(self):
        if self.lock != NULL:
            if not IS_FREE_THREADED:
                PyThread_release_lock(self.lock)
            PyThread_free_lock(self.lock)

    cdef int acquire(self) except -1:
        """Take the lock; return whether it was free, so that no other thread had a turn."""
        cdef unsigned long here = PyThread_get_thread_ident()
        cdef int was_free = 1
        if IS_FREE_THREADED:
            if not PyThread_acquire_lock(self.lock, 0):
                was_free = 0
                if self.owner == here:
                    raise interrupting("A producer's method")
                with nogil:
                    PyThread_acquire_lock(self.lock, 1)
        elif self.is_held:
            was_free = 0
            if self.owner == here:
                raise interrupting("A producer's method")
            self.waiting += 1
            while self.is_held:  # another thread may have taken the lock first
                with nogil:
                    PyThread_acquire_lock(self.lock, 1)
            self.waiting -= 1
        self.is_held = True
        self.owner = here
        return was_free

    cdef void release(self) noexcept:
        self.owner = 0
        if IS_FREE_THREADED:
            PyThread_release_lock(self.lock)
            return
        self.is_held = False
        if self.waiting:
            PyThread_release_lock(self.lock)

    def __enter__(self):
        self.acquire()

    def __exit__(self, error_type, error, traceback):
        self.release()


def new_lock():
    return Mutex()


cdef class QueueState:
    """The state of a PartitionQueue."""


    def __init__(self, topic_partition, batches):
        self.topic_partition = topic_partition
        self.batches = batches
        self.lock = Mutex()


@cython.final
cdef class StickyPartitionInfo:
    """The current partition and the bytes appended to it. Changes only under the lock of the partition's queue."""


    def __init__(self, partition):
        self.partition = partition
        self.produced_bytes = 0


cdef class StickyState:
    """The current partition of a topic. Any thread replaces it, and reads it without a lock."""

    cdef object current(self):
        with cython.critical_section(self):  # nothing with a GIL
            return self.partition_info

    @property
    def sticky(self):
        return self.current()

    @sticky.setter
    def sticky(self, value):
        with cython.critical_section(self):
            self.partition_info = value
