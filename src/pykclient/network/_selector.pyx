"""The compiled form of the poller in ``selector.py``: the cycle of writing, waiting and reading, without the GIL.

One call of ``EpollPoller.select`` writes the frames that were left to it, waits, and reads from all sockets with data
into buffers prepared before. All this is one section without the GIL. So beside a CPU-bound thread it costs one
handover of the GIL, where the Python form needs one for each system call.

Work of a few microseconds keeps the GIL, because taking the GIL back can take five milliseconds: looking for events and
reading small frames before any wait, waking a waiting thread. The GIL is released only if there is nothing else to do,
or for large frames.

Thread: io, but for ``EpollPoller.wakeup``, which any thread may call. It shares only two atomic numbers with
``select``.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.object cimport PyObject
from libc.errno cimport EINTR, errno
from libc.stdint cimport INT32_MAX, int64_t, uint32_t
from libc.stdlib cimport free, realloc

from pykclient.network._transport_layer cimport (
    WITH_EPOLL,
    Connection,
    SocketFrameStream,
    Watched,
    even_ms,
    fill,
    has_begun_large,
    has_frame,
    has_read_news,
    repeat,
    write_ahead,
)

from pykclient.network.selector import READ, WAKEUP, WRITE, new_poller as new_poller_python

cdef extern from *:
    """
    #if PYKCLIENT_WITH_EPOLL
    #include <errno.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <time.h>
    #include <unistd.h>

    static int open_epoll(void) { return epoll_create1(EPOLL_CLOEXEC); }
    static int open_event(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
    static void close_descriptor(int fd) { close(fd); }
    static int wait_for_events(int epoll, struct epoll_event *events, int count, int timeout_ms) {
        return epoll_wait(epoll, events, count, timeout_ms);
    }
    static void ring(int fd) { ssize_t done = eventfd_write(fd, 1); (void)done; }
    static void hush(int fd) { eventfd_t count; ssize_t done = eventfd_read(fd, &count); (void)done; }
    static int watch(int epoll, int operation, int fd, uint32_t events, void *pointer) {
        struct epoll_event event;
        event.events = events;
        event.data.ptr = pointer;
        return epoll_ctl(epoll, operation, fd, &event);
    }
    #define load_number(number) __atomic_load_n(number, __ATOMIC_SEQ_CST)
    #define swap_number(number, value) __atomic_exchange_n(number, value, __ATOMIC_SEQ_CST)
    #define pointer_of(event) ((event)->data.ptr)
    #else
    #define EPOLLIN 1
    #define EPOLLOUT 4
    #define EPOLL_CTL_ADD 1
    #define EPOLL_CTL_DEL 2
    #define EPOLL_CTL_MOD 3
    struct no_epoll_event { uint32_t events; void *pointer; };
    #define epoll_event no_epoll_event
    static int open_epoll(void) { return -1; }
    static int open_event(void) { return -1; }
    static void close_descriptor(int fd) {}
    static void ring(int fd) {}
    static void hush(int fd) {}
    static int watch(int epoll, int operation, int fd, uint32_t events, void *pointer) { return -1; }
    static int wait_for_events(int epoll, struct epoll_event *events, int count, int timeout_ms) { return -1; }
    #define load_number(number) (*(number))
    #define swap_number(number, value) (*(number) = (value))
    #define pointer_of(event) ((event)->pointer)
    #endif
    """
    const uint32_t EPOLLIN
    const uint32_t EPOLLOUT
    const int EPOLL_CTL_ADD
    const int EPOLL_CTL_DEL
    const int EPOLL_CTL_MOD
    cdef struct epoll_event:
        uint32_t events
    int open_epoll()
    int open_event()
    void ring(int fd) nogil
    void hush(int fd) nogil
    int watch(int epoll, int operation, int fd, uint32_t events, void *pointer) nogil
    int wait_for_events(int epoll, epoll_event *events, int count, int timeout_ms) nogil
    void close_descriptor(int fd)
    int load_number(int *number) nogil
    int swap_number(int *number, int value) nogil
    void *pointer_of(epoll_event *event) nogil

cdef enum:
    MOST_EVENTS = 256
    MOST_GUESSES = 16  # in succession: other channels must have their turn

cdef int read_event = READ, write_event = WRITE


@cython.final
cdef class Watch:
    """A channel that epoll watches. The data of its events points to ``watched``. Thread: io."""

    cdef Watched watched
    cdef object channel, stream


@cython.final
cdef class EpollPoller:
    """A poller that also reads and writes. Thread: io, but for ``wakeup``."""

    cdef int epoll, event
    cdef int woken, waiting  # atomic
    cdef bint is_watched  # True if the wait is someone else's, so that waking always takes a ring
    cdef epoll_event[MOST_EVENTS] found
    cdef Watched *first  # of the list of those with events
    # Where another one waits, and for one connection at a time, the poller need not ask which of them is readable.
    cdef Watched *last_single  # the only one in the last events; NULL: there were none or several
    cdef Watched *likely  # the only one in the last events and in those before
    cdef int guesses
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
        if isinstance(one.stream, SocketFrameStream):
            one.watched.connection = &(<SocketFrameStream>one.stream).connection
            one.watched.connection.watched = &one.watched
        self.watches[fd] = one

    def modify(self, channel, int events):
        cdef int fd = channel.sock.fileno()
        cdef Watch one = self.watches[fd]
        self.control(EPOLL_CTL_MOD, fd, one, events)

    def unregister(self, channel):
        cdef int fd = channel.sock.fileno()
        cdef Watch one
        if fd < 0:  # the garbage collector has closed it before its client
            for number, other in self.watches.items():
                if (<Watch>other).channel is channel:
                    fd = number
        one = self.watches.pop(fd)
        if one.watched.connection != NULL:
            one.watched.connection.watched = NULL
        if self.last_single == &one.watched:
            self.last_single = self.likely = NULL
        watch(self.epoll, EPOLL_CTL_DEL, fd, 0, NULL)

    cdef int control(self, int operation, int fd, Watch one, int events) except -1:
        one.watched.interest = (EPOLLIN if events & read_event else 0) | (EPOLLOUT if events & write_event else 0)
        if watch(self.epoll, operation, fd, one.watched.interest, &one.watched):
            PyErr_SetFromErrno(OSError)
        return 0

    def write_later(self, channel, bint ends_wait) -> bool:
        cdef Py_ssize_t count = len(self.later) + 1
        cdef void *grown
        stream = channel.pump
        if not isinstance(stream, SocketFrameStream):
            return False
        send = channel.send
        if (<SocketFrameStream>stream).connection.is_raw:
            send = channel.stream.seal(send)
        if count > self.outgoing_capacity:
            grown = realloc(self.outgoing, 2 * count * sizeof(Connection *))
            if grown == NULL:
                raise MemoryError
            self.outgoing = <Connection **>grown
            self.outgoing_capacity = 2 * count
        (<SocketFrameStream>stream).prepare(send)
        self.outgoing[count - 1] = &(<SocketFrameStream>stream).connection
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
            connection = &(<SocketFrameStream>stream).connection
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
        if not writes and not waits and self.is_watched and self.guess():
            return self.events()
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

    cdef bint guess(self) noexcept:
        """Read from the connection that was the only readable one, the last times; return True if that is all to do.

        If it has nothing, that is no harm: it is then reported as readable, as if a part of a frame had come.
        """
        cdef Connection *connection = NULL if self.likely == NULL else self.likely.connection
        if connection == NULL or not connection.ready or connection.repeated != NULL:
            return False
        if self.guesses == MOST_GUESSES or not self.likely.interest & EPOLLIN or load_number(&self.woken):
            return False
        self.guesses += 1
        return self.handle(self.likely, EPOLLIN, True)

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
            has_news |= self.handle(<Watched *>pointer_of(&self.found[index]), self.found[index].events, True)
        watched = <Watched *>pointer_of(&self.found[0]) if count == 1 else NULL
        self.likely = watched if watched == self.last_single else NULL
        self.last_single = watched
        self.guesses = 0
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
            connection = &(<SocketFrameStream>stream).connection
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
                if self.handle(<Watched *>pointer_of(&self.found[index]), self.found[index].events, False):
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

    cdef bint handle(self, Watched *watched, uint32_t happened, bint probes) noexcept nogil:
        """Do the I/O for an event. Return False if there is nothing to report yet: only a part of a frame was moved.

        Without ``watched`` it is that of ``wakeup``.
        """
        cdef Connection *connection
        cdef bint has_news
        cdef int events = 0
        if watched == NULL:
            hush(self.event)
            return True
        # As in the standard library, an error counts as both.
        if happened & ~EPOLLOUT and watched.interest & EPOLLIN:
            events |= read_event
        if happened & ~EPOLLIN and watched.interest & EPOLLOUT:
            events |= write_event
        watched.events |= events
        if not watched.has_events:
            watched.has_events = True
            watched.next = self.first
            self.first = watched
        connection = watched.connection
        if connection == NULL or not connection.ready:
            return True
        has_news = not connection.is_blocked and events != read_event
        if events & read_event:
            if not connection.is_read and has_frame(connection):
                return True  # the frame was left over from a read for one frame only
            if not connection.is_read:
                connection.received = 0
            elif has_read_news(connection):
                return True  # the selector has not taken it yet
            fill(connection, probes)
            connection.is_read = True
            if connection.repeated != NULL:
                repeat(connection)
            has_news |= has_read_news(connection)
        if connection.is_blocked:
            if not happened & ~EPOLLIN:
                return has_news
            write_ahead(connection)
            if not connection.unwritten:
                connection.is_blocked = False
                watch(self.epoll, EPOLL_CTL_MOD, connection.fd, watched.interest, watched)
                return True
            return has_news or connection.write_error != 0
        if events & write_event and connection.piece_count and not connection.is_written and not probes:
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
                events |= (read_event if connection.is_read else 0) | (write_event if connection.is_written else 0)
                ahead.append((<object>watched.stream, <object>watched.channel))
                connection.is_told = True
            result.append((<object>watched.channel, events))
            watched = watched.next
        for stream, channel in self.ahead:
            connection = &(<SocketFrameStream>stream).connection
            events = (read_event if connection.is_read else 0) | (write_event if connection.is_written else 0)
            if events and not connection.is_told:
                ahead.append((stream, channel))
                result.append((channel, events))
                connection.is_told = True
        for stream, channel in ahead:
            (<SocketFrameStream>stream).connection.is_told = False
        self.ahead = ahead
        if swap_number(&self.woken, 0):
            result.append(WAKEUP)
        return result


def new_poller():
    return EpollPoller() if WITH_EPOLL else new_poller_python()
