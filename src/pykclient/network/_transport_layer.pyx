"""The compiled form of ``transport_layer.py``: frames out of a socket, and into it, without the GIL.

The poller reads and writes ahead (see ``_selector.pyx``). The streams keep the results. The selector works as with the
Python form: it calls ``read`` and ``write`` of a stream for each event, and they find the work done.

Work of a few microseconds keeps the GIL, because taking the GIL back can take five milliseconds: reading small frames
before any wait, and writing a small frame. Python functions check sizes that are not valid.

Thread: io.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN, EINTR, ENOBUFS, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

from pykclient.network.transport_layer import (
    CLOSED_BY_PEER,
    MID_FRAME,
    READ_LIMIT,
    _PUMP_SIZE,
    byte_pump as byte_pump_python,
    plaintext_frame_stream as plaintext_frame_stream_python,
)
from pykclient.network.frames import (
    BUFFER_SIZE,
    FIRST_BYTES,
    UNLIMITED,
    UNLIMITED_SIZE,
    check_frame_size,
    no_memory_for_frame,
)
from pykclient.network.client_request import CORRELATION_ID_AT

cdef enum:
    WRITE_WITH_LOCK_UP_TO = 16 * 1024

cdef Py_ssize_t read_limit = READ_LIMIT
cdef Py_ssize_t first_bytes = FIRST_BYTES
cdef Py_ssize_t correlation_id_at = CORRELATION_ID_AT

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
    #if PYKCLIENT_WITH_EPOLL
    #include <sys/socket.h>

    static ssize_t socket_receive(int fd, void *data, size_t size) { return recv(fd, data, size, 0); }
    static ssize_t socket_send(int fd, struct iovec *pieces, size_t count) {
        struct msghdr message = {0};
        if (count == 1) return send(fd, pieces->iov_base, pieces->iov_len, MSG_NOSIGNAL);
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        return sendmsg(fd, &message, MSG_NOSIGNAL);
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
    #else
    static char *new_block(size_t size) { return resize_block(NULL, size); }
    static void spare_block(char *block) { free_block(block); }
    static void free_spares(void) {}
    static Py_ssize_t socket_receive(int fd, void *data, size_t size) { return -1; }
    static Py_ssize_t socket_send(int fd, struct iovec *pieces, size_t count) { return -1; }
    #endif
    """
    void set_errno(int number)
    size_t block_size(char *block) nogil
    char *new_block(size_t size) nogil
    char *resize_block(char *block, size_t size) nogil
    void spare_block(char *block)
    void free_block(char *block)
    void free_spares()
    Py_ssize_t socket_receive(int fd, void *data, size_t size) nogil
    Py_ssize_t socket_send(int fd, iovec *pieces, size_t count) nogil


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
    while connection.received < read_limit:
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


cdef inline void put_int32(char *data, int32_t number) noexcept nogil:
    data[0] = <char>(number >> 24)
    data[1] = <char>(number >> 16)
    data[2] = <char>(number >> 8)
    data[3] = <char>number


cdef void repeat(Connection *connection) noexcept nogil:
    """Send the repeated request again if its response has been read, and nothing else."""
    cdef int64_t latency_ms, now_ms
    cdef iovec piece
    cdef Py_ssize_t count
    if (
        connection.ended != FRAMES
        or connection.large != NULL
        or connection.piece_count
        or connection.end - connection.start != connection.response_size
        or memcmp(connection.buffer + connection.start, connection.response, connection.response_size)
    ):
        return
    put_int32(connection.repeated + correlation_id_at, connection.correlation_id)
    put_int32(connection.repeated + connection.epoch_at, connection.epoch)
    piece.iov_base, piece.iov_len = connection.repeated, <size_t>connection.repeated_size
    count = socket_send(connection.fd, &piece, 1)
    if count < connection.repeated_size:
        if count >= 0:
            connection.ended = FAILED  # nothing can be sent after a part of a frame
            connection.error = ENOBUFS
        return
    now_ms = even_ms()
    latency_ms = now_ms - connection.sent_ms
    connection.least_ms = min(connection.least_ms, latency_ms) if connection.repeats else latency_ms
    connection.most_ms = max(connection.most_ms, latency_ms)
    connection.total_ms += latency_ms
    connection.sent_ms = now_ms
    connection.repeats += 1
    put_int32(connection.response + 4, connection.correlation_id)
    connection.correlation_id += 1
    connection.epoch += 1
    connection.start = connection.end = 0
    connection.ended = EMPTY


cdef bint has_read_news(Connection *connection) noexcept nogil:
    """Return True if reading ahead brought more than a part of a frame."""
    return connection.ended != EMPTY and connection.ended != LARGE_BEGUN or connection.received >= read_limit


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
cdef class SocketFrameStream:
    """``TransportFrameStream`` over a ``PlaintextTransportLayer`` with an unbounded pool; with ``is_raw``, ``SocketPump``.

    Thread: io.
    """

    def __cinit__(
        self,
        int fd,
        int64_t max_size,
        first_limit: int | None,
        Py_ssize_t buffer_size,
        bint is_raw = False,
    ):
        self.connection.fd = fd
        self.connection.buffer = <char *>malloc(buffer_size)
        if self.connection.buffer == NULL:
            raise MemoryError
        self.connection.capacity = buffer_size
        self.connection.largest = first_bytes
        self.connection.max_size = max_size
        self.connection.is_raw = is_raw
        self.connection.wanted = 1
        self.connection.checks_first = first_limit is not None
        self.first_limit = first_limit

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
        connection.repeated = NULL
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
                raise ConnectionResetError(CLOSED_BY_PEER + (MID_FRAME if mid_frame else ""))
            if connection.ended == FAILED:
                connection.received = 0
                set_errno(connection.error)
                PyErr_SetFromErrno(OSError)
            # A large frame may have started behind the other frames, and the rest of it is probably arriving.
            if received >= read_limit or connection.ended == LARGE_FRAME:
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
                    raise no_memory_for_frame(connection.large_size)
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
            check_frame_size(start, size, connection.max_size, first_limit)
        except BaseException:
            connection.start = connection.end = 0  # the rest of the stream cannot be decoded
            raise
        return 0

    # --- a repeated request ----------------------------------------------------------------------------------------------

    def begin_repeating(self, request) -> bool:
        cdef Connection *connection = &self.connection
        if connection.is_raw or not connection.ready or connection.is_read or connection.end > connection.start:
            return False
        if connection.large != NULL or connection.ended > FRAMES or connection.piece_count:
            return False
        response, frame, epoch_at, connection.correlation_id, connection.epoch, age_ms = request
        self.response, self.repeated = bytearray(response), bytearray(frame)
        connection.epoch_at = epoch_at
        connection.sent_ms = even_ms() - <int64_t>age_ms
        connection.total_ms = connection.least_ms = connection.most_ms = 0
        connection.repeats = 0
        connection.response, connection.response_size = self.response, len(self.response)
        connection.repeated, connection.repeated_size = self.repeated, len(self.repeated)
        return True

    def end_repeating(self) -> tuple[int, int, int, int, int, int]:
        cdef Connection *connection = &self.connection
        cdef int repeats = connection.repeats
        connection.repeated = NULL
        connection.repeats = 0
        return (
            repeats,
            repeats * connection.repeated_size,
            even_ms() - connection.sent_ms,
            connection.total_ms,
            connection.least_ms,
            connection.most_ms,
        )

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


def plaintext_frame_stream(transport, max_receive_size=UNLIMITED_SIZE, memory_pool=UNLIMITED, first_limit=None):
    if not WITH_EPOLL or memory_pool.size is not None:
        return plaintext_frame_stream_python(transport, max_receive_size, memory_pool, first_limit)
    return SocketFrameStream(transport.sock.fileno(), max_receive_size, first_limit, BUFFER_SIZE)


def byte_pump(transport):
    if not WITH_EPOLL:
        return byte_pump_python(transport)
    return SocketFrameStream(transport.sock.fileno(), UNLIMITED_SIZE, None, _PUMP_SIZE, is_raw=True)
