# A connection whose frames are read and written without the GIL, for the poller.

from cpython.buffer cimport Py_buffer
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #ifndef PYKCLIENT_WITH_EPOLL
    #if defined(__linux__) && !defined(PYKCLIENT_NO_EPOLL)
    #include <sys/uio.h>
    #include <time.h>
    #define PYKCLIENT_WITH_EPOLL 1
    static inline int64_t even_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    #else
    /* Nothing below is ever called then. */
    #define PYKCLIENT_WITH_EPOLL 0
    struct no_iovec { void *iov_base; size_t iov_len; };
    #define iovec no_iovec
    static inline int64_t even_ms(void) { return 0; }
    #endif
    #endif
    """
    const bint WITH_EPOLL "PYKCLIENT_WITH_EPOLL"
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    int64_t even_ms() nogil

cdef enum:  # how reading ended; the order matters
    EMPTY  # the socket is probably empty, and there is no whole frame
    FRAMES  # as EMPTY, but there is work that needs the GIL: a frame to take or a size to check
    TAKE_FRAMES  # as FRAMES, but the socket may have more
    LARGE_FRAME  # a large frame is whole, and the socket was not checked for more
    LARGE_BEGUN  # a large frame is not whole, and the rest is to be read without the GIL
    END  # the end of the stream
    FAILED


cdef struct Connection

cdef struct Watched:  # the data of an epoll event
    PyObject *channel
    PyObject *stream
    Connection *connection  # NULL: the stream is not a FrameStream
    uint32_t interest  # the mask of epoll
    int events  # that occurred and are not reported yet
    bint has_events
    Watched *next  # in the list of those with events

cdef struct Connection:
    int fd  # -1: closed
    bint ready
    bint is_raw  # the bytes are encrypted, and the frames are somebody else's
    Py_ssize_t wanted  # raw: fewer bytes than this need not be reported
    # reading
    char *buffer
    Py_ssize_t capacity, start, end  # the bytes from start to end are not taken yet
    char *large  # the block of a large frame, filled up to large_end
    Py_ssize_t large_capacity, large_end, large_size
    Py_ssize_t largest  # the size of the largest frame so far, for the first allocation
    int64_t max_size  # negative: no limit
    bint checks_first
    Py_ssize_t received  # since the last read()
    int ended, error  # how and why reading stopped
    bint is_read  # read ahead; the next read() reports it
    # writing
    iovec *pieces  # those before next_piece are written
    size_t piece_count, next_piece
    Py_ssize_t unwritten, written  # bytes of the pieces
    int write_error
    bint is_written  # written ahead; the next write() reports it
    # a repeated request, which the poller sends again each time its response comes; NULL: none
    char *repeated
    char *response
    Py_ssize_t repeated_size, response_size, epoch_at
    int32_t correlation_id, epoch  # of the next one
    int64_t sent_ms, total_ms, least_ms, most_ms
    int repeats
    # the poller's part
    Watched *watched  # NULL: not registered
    bint is_told
    bint is_blocked  # the cycle waits for room in the socket


cdef bint has_frame(Connection *connection) noexcept nogil
cdef void fill(Connection *connection, bint stops_at_large) noexcept nogil
cdef void repeat(Connection *connection) noexcept nogil
cdef bint has_read_news(Connection *connection) noexcept nogil
cdef void write_ahead(Connection *connection) noexcept nogil


cdef inline bint has_begun_large(Connection *connection) noexcept nogil:
    return connection != NULL and connection.is_read and connection.ended == LARGE_BEGUN


cdef class SocketFrameStream:
    cdef Connection connection
    cdef object first_limit
    cdef object sending  # the NetworkSend whose pieces are prepared
    cdef bytearray repeated, response
    cdef Py_buffer *exports  # the exported buffers of its pieces
    cdef size_t export_capacity
    cdef Py_ssize_t take(self, list frames, bint one) except -1
    cdef int check(self, int64_t size) except -1
    cdef int prepare(self, send) except -1
    cdef void forget_pieces(self) noexcept
