"""The network's cycle of writing, waiting and reading, without the GIL.

Twins: ``network/frame_stream.py``, ``network/network_receive.py`` (``FrameReader``) and ``network/poller.py``.

One call of ``EpollPoller.select`` writes the frames that were left to it, waits, and reads from all sockets with data
into buffers prepared before. All this is one section without the GIL. So beside a CPU-bound thread it costs one
handover of the GIL, where the twins need one for each system call. The streams keep the results. The selector works as
with the twins: it calls ``read`` and ``write`` of a stream for each event, and they find the work done.

Work of a few microseconds keeps the GIL, because taking the GIL back can take five milliseconds: looking for events and
reading small frames before any wait, writing a small frame, waking a waiting thread. The GIL is released only if there
is nothing else to do, or for large frames.

Python functions check sizes that are not valid.

Thread: io, but for ``EpollPoller.wakeup``, which any thread may call. It shares only two atomic numbers with
``select``.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <stdlib.h>
    static void set_errno(int number) { errno = number; }

    /* A block is memory that is preceded by its size. */
    #define BLOCK_HEAD 16
    static size_t block_size(char *block) { return *(size_t *)(block - BLOCK_HEAD); }
    static void free_block(char *block) { if (block != NULL) free(block - BLOCK_HEAD); }
    static char *resize_block(char *block, size_t size) {
        char *head = (char *)realloc(block == NULL ? NULL : block - BLOCK_HEAD, size + BLOCK_HEAD);
        if (head == NULL) return NULL;
        *(size_t *)head = size;
        return head + BLOCK_HEAD;
    }
    #if defined(__linux__) && !defined(PYKCLIENT_NO_EPOLL)
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <unistd.h>
    #include <time.h>
    #define WITH_EPOLL 1

    static ssize_t socket_receive(int fd, void *data, size_t size) { return recv(fd, data, size, 0); }
    static ssize_t socket_send(int fd, struct iovec *pieces, size_t count) {
        struct msghdr message = {0};
        if (count == 1) return send(fd, pieces->iov_base, pieces->iov_len, MSG_NOSIGNAL);
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        return sendmsg(fd, &message, MSG_NOSIGNAL);
    }
    static int open_epoll(void) { return epoll_create1(EPOLL_CLOEXEC); }
    static int open_event(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
    static void close_descriptor(int fd) { close(fd); }
    static int wait_for_events(int epoll, struct epoll_event *events, int count, int timeout_ms) {
        return epoll_wait(epoll, events, count, timeout_ms);
    }
    static void ring(int fd) { ssize_t done = eventfd_write(fd, 1); (void)done; }
    static void hush(int fd) { eventfd_t count; ssize_t done = eventfd_read(fd, &count); (void)done; }
    static int64_t even_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    static int watch(int epoll, int operation, int fd, uint32_t events, void *pointer) {
        struct epoll_event event;
        event.events = events;
        event.data.ptr = pointer;
        return epoll_ctl(epoll, operation, fd, &event);
    }
    /* The two blocks that any thread of the process released last. Memory that was used a moment ago needs no new
       pages, which would cost more than receiving the data. */
    #define LARGEST_SPARE (64 * 1024 * 1024)
    static char *spare_blocks[2];
    static char *swap_spare(int place, char *block) {
        return __atomic_exchange_n(&spare_blocks[place], block, __ATOMIC_SEQ_CST);
    }
    static char *new_block(size_t size) {
        for (int place = 0; place < 2; place++) {
            char *block = swap_spare(place, NULL);
            if (block != NULL && block_size(block) >= size && block_size(block) / 4 <= size) return block;
            free_block(block);
        }
        return resize_block(NULL, size);
    }
    static void spare_block(char *block) {
        if (block != NULL && block_size(block) <= LARGEST_SPARE) block = swap_spare(1, swap_spare(0, block));
        free_block(block);
    }
    static void free_spares(void) {
        free_block(swap_spare(0, NULL));
        free_block(swap_spare(1, NULL));
    }
    #define load_number(number) __atomic_load_n(number, __ATOMIC_SEQ_CST)
    #define swap_number(number, value) __atomic_exchange_n(number, value, __ATOMIC_SEQ_CST)
    #define pointer_of(event) ((event)->data.ptr)
    #else
    /* Nothing below is ever called, because HAS_EPOLL is false. */
    #define WITH_EPOLL 0
    #define EPOLLIN 1
    #define EPOLLOUT 4
    #define EPOLL_CTL_ADD 1
    #define EPOLL_CTL_DEL 2
    #define EPOLL_CTL_MOD 3
    struct no_iovec { void *iov_base; size_t iov_len; };
    struct no_epoll_event { uint32_t events; void *pointer; };
    #define iovec no_iovec
    #define epoll_event no_epoll_event
    static char *new_block(size_t size) { return resize_block(NULL, size); }
    static void spare_block(char *block) { free_block(block); }
    static void free_spares(void) {}
    static Py_ssize_t socket_receive(int fd, void *data, size_t size) { return -1; }
    static Py_ssize_t socket_send(int fd, struct iovec *pieces, size_t count) { return -1; }
    static int open_epoll(void) { return -1; }
    static int open_event(void) { return -1; }
    static void close_descriptor(int fd) {}
    static void ring(int fd) {}
    static void hush(int fd) {}
    static int64_t even_ms(void) { return 0; }
    static int watch(int epoll, int operation, int fd, uint32_t events, void *pointer) { return -1; }
    static int wait_for_events(int epoll, struct epoll_event *events, int count, int timeout_ms) { return -1; }
    #define load_number(number) (*(number))
    #define swap_number(number, value) (*(number) = (value))
    #define pointer_of(event) ((event)->pointer)
    #endif
    """
    const bint WITH_EPOLL
    void set_errno(int number)
    size_t block_size(char *block) nogil
    char *new_block(size_t size) nogil
    char *resize_block(char *block, size_t size) nogil
    void spare_block(char *block)
    void free_block(char *block)
    void free_spares()
    const uint32_t EPOLLIN
    const uint32_t EPOLLOUT
    const int EPOLL_CTL_ADD
    const int EPOLL_CTL_DEL
    const int EPOLL_CTL_MOD
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    cdef struct epoll_event:
        uint32_t events
    Py_ssize_t socket_receive(int fd, void *data, size_t size) nogil
    Py_ssize_t socket_send(int fd, iovec *pieces, size_t count) nogil
    int open_epoll()
    int open_event()
    void ring(int fd) nogil
    void hush(int fd) nogil
    int64_t even_ms() nogil
    int watch(int epoll, int operation, int fd, uint32_t events, void *pointer) nogil
    int wait_for_events(int epoll, epoll_event *events, int count, int timeout_ms) nogil
    void close_descriptor(int fd)
    int load_number(int *number) nogil
    int swap_number(int *number, int value) nogil
    void *pointer_of(epoll_event *event) nogil

#: False: nothing in this module may be used.
HAS_EPOLL = bool(WITH_EPOLL)

cdef tuple WAKEUP = (None, READ)

cdef enum:
    READ = 1  # the masks of ``selectors``
    WRITE = 2
    READ_LIMIT = 8 * 1024 * 1024  # as in frame_stream.py
    FIRST_BYTES = 1024 * 1024  # as in network_receive.py
    WRITE_WITH_LOCK_UP_TO = 16 * 1024
    MOST_PIECES = 1024  # IOV_MAX of network_send.py
    MOST_EVENTS = 256

cdef enum:  # how reading ended; the order matters
    EMPTY  # the socket is probably empty, and there is no whole frame
    FRAMES  # as EMPTY, but there is work that needs the GIL: a frame to take or a size to check
    TAKE_FRAMES  # as FRAMES, but the socket may have more
    LARGE_FRAME  # a large frame is whole, and the socket was not checked for more
    LARGE_BEGUN  # a large frame is not whole, and the rest is to be read without the GIL
    END  # the end of the stream
    FAILED


# --- buffers -----------------------------------------------------------------------------------------------------------

@cython.final
cdef class FrameBuffer:
    """The block of one large frame. It is reused after the last view of it is released. Thread: any."""

    cdef char *data
    cdef Py_ssize_t size

    def __dealloc__(self):
        spare_block(self.data)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)


cdef object view_of(char *data, Py_ssize_t size):
    """Return a view that owns the block ``data``; it is read-only."""
    cdef FrameBuffer buffer = FrameBuffer.__new__(FrameBuffer)
    buffer.data = data
    buffer.size = size
    return memoryview(buffer)


# --- frames out of a socket --------------------------------------------------------------------------------------------

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
    # the poller's part
    Watched *watched  # NULL: not registered
    bint is_told
    bint is_blocked  # the cycle waits for room in the socket


cdef inline int64_t size_at(const char *data) noexcept nogil:
    cdef const uint8_t *bytes_ = <const uint8_t *>data
    return <int32_t>(
        (<uint32_t>bytes_[0] << 24) | (<uint32_t>bytes_[1] << 16) | (<uint32_t>bytes_[2] << 8) | <uint32_t>bytes_[3]
    )


cdef inline bint is_to_check(Connection *connection, int64_t size) noexcept nogil:
    return connection.checks_first or size <= 0 or size > connection.max_size >= 0


cdef bint has_frame(Connection *connection) noexcept nogil:
    cdef Py_ssize_t available = connection.end - connection.start - 4
    cdef int64_t size
    if connection.large != NULL:
        return connection.large_end == connection.large_size
    if available < 0:
        return False
    size = size_at(connection.buffer + connection.start)
    return 0 <= size <= available


cdef void compact(Connection *connection) noexcept nogil:
    """Move the remaining bytes to the front of the buffer."""
    memmove(connection.buffer, connection.buffer + connection.start, connection.end - connection.start)
    connection.end -= connection.start
    connection.start = 0


cdef bint start_large(Connection *connection, int64_t size) noexcept nogil:
    """Give the frame at the start its own block and copy its bytes so far. Return False if memory ran out.

    The block grows as data arrives, so a peer cannot make us allocate by announcing a large size.
    """
    cdef Py_ssize_t have = connection.end - connection.start - 4
    cdef Py_ssize_t capacity = <Py_ssize_t>min(size, <int64_t>connection.largest)
    connection.large = new_block(capacity)
    if connection.large == NULL:
        return False
    memcpy(connection.large, connection.buffer + connection.start + 4, have)
    connection.large_capacity = <Py_ssize_t>min(size, <int64_t>block_size(connection.large))
    connection.large_end = have
    connection.large_size = <Py_ssize_t>size
    connection.start = connection.end = 0
    return True


cdef bint make_room(Connection *connection) noexcept nogil:
    """Make room for the rest of the frame at the start. Return False if the caller must take the GIL.

    The GIL is needed if the frame is whole, its size is to be checked, or memory ran out.
    """
    cdef Py_ssize_t available = connection.end - connection.start
    cdef int64_t size
    if available < 4:
        if not available:
            connection.start = connection.end = 0
        elif connection.capacity - connection.end < 4:
            compact(connection)
        return True
    size = size_at(connection.buffer + connection.start)
    if is_to_check(connection, size) or size + 4 <= available:
        return False
    if size + 4 > connection.capacity:
        return start_large(connection, size)
    if connection.start + 4 + size > connection.capacity:
        compact(connection)
    return True


cdef void end_reading(Connection *connection, Py_ssize_t count) noexcept nogil:
    """Note the result of a read that brought no bytes."""
    if not count:
        connection.ended = END
    elif errno == EAGAIN or errno == EINTR:
        connection.ended = EMPTY
    else:
        connection.ended = FAILED
        connection.error = errno


cdef void fill_raw(Connection *connection) noexcept nogil:
    """Read until the socket is empty or the buffer is full. No frames are looked for."""
    cdef Py_ssize_t room, count
    connection.ended = EMPTY
    while True:
        room = connection.capacity - connection.end
        if not room:
            break
        count = socket_receive(connection.fd, connection.buffer + connection.end, room)
        if count <= 0:
            end_reading(connection, count)
            break
        connection.received += count
        connection.end += count
        if count < room:
            break  # the socket is most likely empty now
    if connection.ended == EMPTY and connection.end >= min(connection.wanted, connection.capacity):
        connection.ended = FRAMES


cdef void fill(Connection *connection, bint stops_at_large) noexcept nogil:
    """Read until the socket is empty or there is work that needs the GIL."""
    cdef Py_ssize_t room, count, capacity
    cdef char *target
    cdef char *grown
    if connection.is_raw:
        fill_raw(connection)
        return
    while connection.received < READ_LIMIT:
        if connection.large != NULL:
            if stops_at_large:
                connection.ended = LARGE_BEGUN
                return
            if connection.large_end == connection.large_capacity:
                capacity = min(2 * connection.large_capacity, connection.large_size)
                grown = resize_block(connection.large, capacity)
                if grown == NULL:
                    connection.ended = TAKE_FRAMES
                    return
                connection.large = grown
                connection.large_capacity = capacity
            target = connection.large + connection.large_end
            room = connection.large_capacity - connection.large_end
        else:
            target = connection.buffer + connection.end
            room = connection.capacity - connection.end
        count = socket_receive(connection.fd, target, room)
        if count <= 0:
            end_reading(connection, count)
            return
        connection.received += count
        if connection.large != NULL:
            connection.large_end += count
            if connection.large_end == connection.large_size:
                connection.ended = LARGE_FRAME
                return
            continue  # the rest of it is probably arriving
        connection.end += count
        if not make_room(connection):
            connection.ended = TAKE_FRAMES if count == room else FRAMES
            return
        if count < room and connection.large == NULL:
            break  # the socket is most likely empty now: save the call that would confirm it
    connection.ended = EMPTY


cdef inline bint has_read_news(Connection *connection) noexcept nogil:
    """Return True if reading ahead brought more than a part of a frame."""
    return connection.ended != EMPTY and connection.ended != LARGE_BEGUN or connection.received >= READ_LIMIT


cdef inline bint has_begun_large(Connection *connection) noexcept nogil:
    return connection != NULL and connection.is_read and connection.ended == LARGE_BEGUN


cdef void write_ahead(Connection *connection) noexcept nogil:
    """Write as much of the pieces as the socket takes."""
    cdef Py_ssize_t count = socket_send(
        connection.fd, connection.pieces + connection.next_piece, connection.piece_count - connection.next_piece
    )
    cdef iovec *piece
    connection.is_written = True
    if count < 0:
        if not (errno == EAGAIN or errno == EINTR):
            connection.write_error = errno
        return
    connection.written += count
    connection.unwritten -= count
    while connection.next_piece < connection.piece_count:
        piece = connection.pieces + connection.next_piece
        if <size_t>count < piece.iov_len:
            piece.iov_base = <char *>piece.iov_base + count
            piece.iov_len -= count
            break
        count -= piece.iov_len
        connection.next_piece += 1


@cython.final
cdef class FrameStream:
    """Twin of ``TransportFrameStream`` over a ``PlaintextTransportLayer``, with an unbounded pool; with ``is_raw``, of
    ``SocketPump``. Thread: io.
    """

    cdef Connection connection
    cdef object check_frame_size, no_memory_for_frame, first_limit
    cdef object sending  # the NetworkSend whose pieces are prepared
    cdef Py_buffer *exports  # the exported buffers of its pieces
    cdef size_t export_capacity

    def __cinit__(
        self,
        int fd,
        int64_t max_size,
        first_limit: int | None,
        Py_ssize_t buffer_size,
        check_frame_size,
        no_memory_for_frame,
        bint is_raw = False,
    ):
        self.connection.fd = fd
        self.connection.buffer = <char *>malloc(buffer_size)
        if self.connection.buffer == NULL:
            raise MemoryError
        self.connection.capacity = buffer_size
        self.connection.largest = FIRST_BYTES
        self.connection.max_size = max_size
        self.connection.is_raw = is_raw
        self.connection.wanted = 1
        self.connection.checks_first = first_limit is not None
        self.first_limit = first_limit
        self.check_frame_size = check_frame_size
        self.no_memory_for_frame = no_memory_for_frame

    def __dealloc__(self):
        self.forget_pieces()
        free(self.exports)
        free(self.connection.pieces)
        free_block(self.connection.large)
        free(self.connection.buffer)

    @property
    def ready(self) -> bool:
        return self.connection.ready

    @ready.setter
    def ready(self, bint value):
        self.connection.ready = value

    @property
    def pump(self):
        return self

    @property
    def wanted_bytes(self) -> int:
        return self.connection.wanted

    @wanted_bytes.setter
    def wanted_bytes(self, Py_ssize_t count):
        self.connection.wanted = count

    @property
    def has_frame(self) -> bool:
        return has_frame(&self.connection)

    @property
    def waits_for_memory(self) -> bool:
        return False

    def close(self):
        cdef Connection *connection = &self.connection
        connection.fd = -1
        connection.is_read = connection.is_written = connection.ready = False
        self.forget_pieces()
        free_block(connection.large)
        connection.large = NULL
        free_spares()
        connection.start = connection.end = 0

    # --- reading -------------------------------------------------------------------------------------------------------

    def receive(self, feed) -> int | None:
        """The received bytes, for ``is_raw``."""
        cdef Connection *connection = &self.connection
        cdef Py_ssize_t count
        if not connection.is_read and connection.ended < END:
            with nogil:
                fill_raw(connection)
        connection.is_read = False
        count = connection.end
        connection.received = connection.end = 0
        if count:
            view = PyMemoryView_FromMemory(connection.buffer, count, PyBUF_READ)
            try:
                feed(view)
            finally:
                view.release()
            return count
        if connection.ended == END:
            return 0
        if connection.ended == FAILED:
            set_errno(connection.error)
            PyErr_SetFromErrno(OSError)
        return None

    def read(self, list frames, bint one) -> int:
        cdef Connection *connection = &self.connection
        cdef Py_ssize_t received, taken
        cdef bint mid_frame
        if not connection.is_read:
            if connection.end > connection.start and self.take(frames, one) and one:
                return 0  # the frame was left over from a read for one frame only
            connection.received = 0
            with nogil:
                fill(connection, False)
        connection.is_read = False
        while True:
            taken = self.take(frames, one)
            received = connection.received
            if taken and one:
                return received
            if connection.ended == END:
                mid_frame = connection.large != NULL or connection.end > connection.start
                raise ConnectionResetError(
                    "the connection was closed by the other side" + (" in the middle of a frame" if mid_frame else "")
                )
            if connection.ended == FAILED:
                connection.received = 0
                set_errno(connection.error)
                PyErr_SetFromErrno(OSError)
            # A large frame may have started behind the other frames, and the rest of it is probably arriving.
            if received >= READ_LIMIT or connection.ended == LARGE_FRAME:
                return received
            if connection.ended <= FRAMES and (connection.large == NULL or not taken):
                return received
            with nogil:
                fill(connection, False)

    cdef Py_ssize_t take(self, list frames, bint one) except -1:
        """Append the whole frames, or only the next one if ``one``. Return how many were appended."""
        cdef Connection *connection = &self.connection
        cdef Py_ssize_t taken = 0
        cdef int64_t size
        cdef char *data
        if connection.large != NULL:
            if connection.large_end < connection.large_size:
                if connection.large_end == connection.large_capacity and connection.ended == TAKE_FRAMES:
                    raise self.no_memory_for_frame(connection.large_size)
                return 0
            data, connection.large = connection.large, NULL
            connection.largest = max(connection.largest, connection.large_size)
            frames.append(view_of(data, connection.large_size))
            taken = 1
            if one:
                return taken
        while not make_room(connection):
            size = size_at(connection.buffer + connection.start)
            if is_to_check(connection, size):
                self.check(size)
            data = connection.buffer + connection.start + 4
            if size + 4 <= connection.end - connection.start:
                frames.append(PyBytes_FromStringAndSize(data, <Py_ssize_t>size))
                connection.start += <Py_ssize_t>size + 4
                if connection.start == connection.end:
                    connection.start = connection.end = 0
                taken += 1
                if one:
                    break
            elif size + 4 > connection.capacity and not start_large(connection, size):
                raise MemoryError
        return taken

    cdef int check(self, int64_t size) except -1:
        cdef Connection *connection = &self.connection
        start = PyBytes_FromStringAndSize(connection.buffer + connection.start, 4)
        first_limit = self.first_limit if connection.checks_first else None
        connection.checks_first = False
        try:
            self.check_frame_size(start, size, connection.max_size, first_limit)
        except BaseException:
            connection.start = connection.end = 0  # the rest of the stream cannot be decoded
            raise
        return 0

    # --- writing -------------------------------------------------------------------------------------------------------

    def write(self, send) -> int:
        cdef Connection *connection = &self.connection
        cdef Py_ssize_t written = 0
        while not send.completed:
            if not connection.is_written or self.sending is not send:
                self.prepare(send)
                if connection.unwritten <= WRITE_WITH_LOCK_UP_TO:
                    write_ahead(connection)
                else:
                    with nogil:
                        write_ahead(connection)
            connection.is_written = False
            self.forget_pieces()
            if connection.write_error:
                set_errno(connection.write_error)
                PyErr_SetFromErrno(OSError)
            if connection.written:
                send.advance(connection.written)
                written += connection.written
            if connection.unwritten:
                self.prepare(send)  # the poller writes the rest when the socket is writable
                break
        return written

    cdef int prepare(self, send) except -1:
        """Export the buffers of the unsent pieces."""
        cdef Connection *connection = &self.connection
        cdef list buffers = send.pending()
        cdef size_t count = len(buffers)
        cdef size_t index
        cdef void *grown
        self.forget_pieces()
        connection.written = connection.unwritten = 0
        connection.next_piece = 0
        connection.write_error = 0
        connection.is_written = False
        if count > self.export_capacity:
            grown = realloc(self.exports, count * sizeof(Py_buffer))
            if grown == NULL:
                raise MemoryError
            self.exports = <Py_buffer *>grown
            grown = realloc(connection.pieces, count * sizeof(iovec))
            if grown == NULL:
                raise MemoryError
            connection.pieces = <iovec *>grown
            self.export_capacity = count
        for index in range(count):
            PyObject_GetBuffer(buffers[index], &self.exports[index], PyBUF_SIMPLE)
            connection.pieces[index].iov_base = self.exports[index].buf
            connection.pieces[index].iov_len = self.exports[index].len
            connection.unwritten += self.exports[index].len
            connection.piece_count = index + 1  # pieces to release if the next export fails
        self.sending = send
        return 0

    cdef void forget_pieces(self) noexcept:
        cdef size_t index
        for index in range(self.connection.piece_count):
            PyBuffer_Release(&self.exports[index])
        self.connection.piece_count = 0
        self.sending = None


@cython.final
@cython.freelist(8)
cdef class NetworkSend:
    """See the twin. The frame of the requests in flight of a client: few exist at a time. Thread: owner."""

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
        if self.next or len(self.buffers) > MOST_PIECES:
            return self.buffers[self.next : self.next + MOST_PIECES]
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


# --- the wait ----------------------------------------------------------------------------------------------------------

@cython.final
cdef class Watch:
    """A channel that epoll watches. The data of its events points to ``watched``. Thread: io."""

    cdef Watched watched
    cdef object channel, stream


@cython.final
cdef class EpollPoller:
    """Twin of ``SelectorsPoller`` that also reads and writes. Thread: io, but for ``wakeup``."""

    cdef int epoll, event
    cdef int woken, waiting  # atomic
    cdef bint is_watched  # True if the wait is someone else's, so that waking always takes a ring
    cdef epoll_event[MOST_EVENTS] found
    cdef Watched *first  # of the list of those with events
    cdef dict watches  # by file descriptor
    cdef list later  # (stream, channel) whose frames the next select writes
    cdef Connection **outgoing  # their connections
    cdef Py_ssize_t outgoing_capacity
    cdef bint ends_wait
    cdef list ahead  # (stream, channel) that the last select read or wrote

    def __cinit__(self):
        self.event = -1
        self.epoll = open_epoll()
        if self.epoll < 0:
            PyErr_SetFromErrno(OSError)
        self.event = open_event()
        if self.event < 0 or watch(self.epoll, EPOLL_CTL_ADD, self.event, EPOLLIN, NULL):
            PyErr_SetFromErrno(OSError)
        self.watches = {}
        self.later = []
        self.ahead = []

    def __dealloc__(self):
        if self.epoll >= 0:
            close_descriptor(self.epoll)
        if self.event >= 0:
            close_descriptor(self.event)
        free(self.outgoing)

    def close(self):
        if self.epoll >= 0:
            close_descriptor(self.epoll)
            self.epoll = -1
        # Another thread may be about to write to it in ``wakeup``. The GIL excludes that, or else this section.
        with cython.critical_section(self):
            if self.event >= 0:
                close_descriptor(self.event)
                self.event = -1

    # --- what is watched for -------------------------------------------------------------------------------------------

    def register(self, channel, int events):
        cdef int fd = channel.sock.fileno()
        cdef Watch one = Watch()
        one.channel, one.stream = channel, channel.pump
        one.watched.channel = <PyObject *>one.channel
        one.watched.stream = <PyObject *>one.stream
        self.control(EPOLL_CTL_ADD, fd, one, events)
        if isinstance(one.stream, FrameStream):
            one.watched.connection = &(<FrameStream>one.stream).connection
            one.watched.connection.watched = &one.watched
        self.watches[fd] = one

    def modify(self, channel, int events):
        cdef int fd = channel.sock.fileno()
        cdef Watch one = self.watches[fd]
        self.control(EPOLL_CTL_MOD, fd, one, events)

    def unregister(self, channel):
        cdef int fd = channel.sock.fileno()
        cdef Watch one = self.watches.pop(fd)
        if one.watched.connection != NULL:
            one.watched.connection.watched = NULL
        watch(self.epoll, EPOLL_CTL_DEL, fd, 0, NULL)

    cdef int control(self, int operation, int fd, Watch one, int events) except -1:
        one.watched.interest = (EPOLLIN if events & READ else 0) | (EPOLLOUT if events & WRITE else 0)
        if watch(self.epoll, operation, fd, one.watched.interest, &one.watched):
            PyErr_SetFromErrno(OSError)
        return 0

    def write_later(self, channel, bint ends_wait) -> bool:
        cdef Py_ssize_t count = len(self.later) + 1
        cdef void *grown
        stream = channel.pump
        if not isinstance(stream, FrameStream):
            return False
        send = channel.send
        if (<FrameStream>stream).connection.is_raw:
            send = channel.stream.seal(send)
        if count > self.outgoing_capacity:
            grown = realloc(self.outgoing, 2 * count * sizeof(Connection *))
            if grown == NULL:
                raise MemoryError
            self.outgoing = <Connection **>grown
            self.outgoing_capacity = 2 * count
        (<FrameStream>stream).prepare(send)
        self.outgoing[count - 1] = &(<FrameStream>stream).connection
        self.later.append((stream, channel))
        self.ends_wait |= ends_wait
        return True

    def fileno(self) -> int:
        self.is_watched = True
        return self.epoll

    @property
    def has_work(self) -> bool:
        cdef Connection *connection
        if self.later:
            return True
        for stream, channel in self.ahead:
            connection = &(<FrameStream>stream).connection
            if connection.is_written or (connection.is_read and not channel.muted):
                return True
        return False

    def wakeup(self):
        # ``cycle`` uses the opposite order, so one of the two threads sees what the other has set. The event may be set
        # when it is no longer needed; then the next wait ends early, which is harmless.
        if not swap_number(&self.woken, 1) and (self.is_watched or load_number(&self.waiting)):
            with cython.critical_section(self):
                ring(self.event)

    # --- the cycle -----------------------------------------------------------------------------------------------------

    def select(self, int64_t timeout_ms) -> list:
        cdef list ahead = self.unclaimed()
        cdef Py_ssize_t writes = len(self.later)
        cdef int64_t until_ms = even_ms() + timeout_ms
        cdef bint waits = timeout_ms > 0 and not self.ends_wait
        cdef int count
        ahead += self.later
        # Recorded first, because a signal handler may raise from here until all events are handled. The next call then
        # reports what was read and written ahead.
        self.ahead = ahead
        self.later = []
        self.ends_wait = False
        if not writes and (self.probe() or not waits or load_number(&self.woken)):
            return self.events()
        while True:
            with nogil:
                count = self.cycle(writes, until_ms, waits)
            if count >= 0:
                return self.events()
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            result = self.events()  # first, so that nothing is lost if a signal handler raises
            PyErr_CheckSignals()
            if result:
                return result
            writes = 0

    cdef bint probe(self) except -1:
        """Look for events without waiting. Return True if there is something to report.

        The GIL is released for large frames only.
        """
        cdef Watched *watched
        cdef bint has_begun = False, has_news = False
        cdef int index
        cdef int count = wait_for_events(self.epoll, self.found, MOST_EVENTS, 0)
        if count < 0:
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            return False
        for index in range(count):
            has_news |= self.handle(&self.found[index], True)
        watched = self.first
        while watched != NULL and not has_begun:
            has_begun = has_begun_large(watched.connection)
            watched = watched.next
        if has_begun:
            with nogil:
                watched = self.first
                while watched != NULL:
                    if has_begun_large(watched.connection):
                        fill(watched.connection, False)
                        has_news |= has_read_news(watched.connection)
                    watched = watched.next
        return has_news

    cdef list unclaimed(self):
        """Return what the last call read or wrote ahead and nobody took.

        Data of a muted channel does not end the wait.
        """
        cdef list found = []
        cdef Connection *connection
        for stream, channel in self.ahead:
            connection = &(<FrameStream>stream).connection
            if connection.is_read or connection.is_written:
                found.append((stream, channel))
                self.ends_wait |= connection.is_written or not channel.muted
        return found

    cdef int cycle(self, Py_ssize_t writes, int64_t until_ms, bint waits) noexcept nogil:
        """Write, wait and read. Return a negative number on failure, with the reason in ``errno``."""
        cdef int64_t timeout_ms
        cdef Py_ssize_t index
        cdef bint is_over
        cdef int count
        for index in range(writes):
            if not self.write(self.outgoing[index]):
                waits = False  # the result is to be reported at once
        swap_number(&self.waiting, 1)
        while True:
            waits = waits and not load_number(&self.woken)
            timeout_ms = min(max(0, until_ms - even_ms()), <int64_t>INT32_MAX) if waits else 0
            count = wait_for_events(self.epoll, self.found, MOST_EVENTS, <int>timeout_ms)
            is_over = not waits or count <= 0
            for index in range(count):
                if self.handle(&self.found[index], False):
                    is_over = True
            if is_over:
                break
        swap_number(&self.waiting, 0)
        for index in range(writes):
            self.outgoing[index].is_blocked = False  # from now on, the selector watches for room
        return count

    cdef bint write(self, Connection *connection) noexcept nogil:
        """Write a frame that was left to the cycle. Return False if the selector must learn of it before any wait."""
        if connection.fd < 0 or not connection.piece_count:
            return True  # closed in the meantime
        write_ahead(connection)
        if connection.write_error:
            return False
        if not connection.unwritten:
            return True
        if connection.watched == NULL:
            return False
        connection.is_blocked = True
        return not watch(
            self.epoll,
            EPOLL_CTL_MOD,
            connection.fd,
            connection.watched.interest | EPOLLOUT,
            connection.watched,
        )

    cdef bint handle(self, epoll_event *event, bint probes) noexcept nogil:
        """Do the I/O for an event. Return False if there is nothing to report yet: only a part of a frame was moved."""
        cdef Watched *watched = <Watched *>pointer_of(event)
        cdef Connection *connection
        cdef bint has_news
        cdef int events = 0
        if watched == NULL:
            hush(self.event)
            return True
        # As in the standard library, an error counts as both.
        if event.events & ~EPOLLOUT and watched.interest & EPOLLIN:
            events |= READ
        if event.events & ~EPOLLIN and watched.interest & EPOLLOUT:
            events |= WRITE
        watched.events |= events
        if not watched.has_events:
            watched.has_events = True
            watched.next = self.first
            self.first = watched
        connection = watched.connection
        if connection == NULL or not connection.ready:
            return True
        has_news = not connection.is_blocked and events != READ
        if events & READ:
            if not connection.is_read and has_frame(connection):
                return True  # the frame was left over from a read for one frame only
            if not connection.is_read:
                connection.received = 0
            elif has_read_news(connection):
                return True  # the selector has not taken it yet
            fill(connection, probes)
            connection.is_read = True
            has_news |= has_read_news(connection)
        if connection.is_blocked:
            if not event.events & ~EPOLLIN:
                return has_news
            write_ahead(connection)
            if not connection.unwritten:
                connection.is_blocked = False
                watch(self.epoll, EPOLL_CTL_MOD, connection.fd, watched.interest, watched)
                return True
            return has_news or connection.write_error != 0
        if events & WRITE and connection.piece_count and not connection.is_written and not probes:
            write_ahead(connection)
        return has_news

    cdef list events(self):
        """Return the events, and the channels of streams that were read or written ahead; each channel once."""
        cdef list result = []
        cdef list ahead = []
        cdef Connection *connection
        cdef Watched *watched = self.first
        cdef int events
        self.first = NULL
        while watched != NULL:
            events, watched.events, watched.has_events = watched.events, 0, False
            connection = watched.connection
            if connection != NULL:
                events |= (READ if connection.is_read else 0) | (WRITE if connection.is_written else 0)
                ahead.append((<object>watched.stream, <object>watched.channel))
                connection.is_told = True
            result.append((<object>watched.channel, events))
            watched = watched.next
        for stream, channel in self.ahead:
            connection = &(<FrameStream>stream).connection
            events = (READ if connection.is_read else 0) | (WRITE if connection.is_written else 0)
            if events and not connection.is_told:
                ahead.append((stream, channel))
                result.append((channel, events))
                connection.is_told = True
        for stream, channel in ahead:
            (<FrameStream>stream).connection.is_told = False
        self.ahead = ahead
        if swap_number(&self.woken, 0):
            result.append(WAKEUP)
        return result
