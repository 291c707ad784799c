"""The compiled form of ``message.py``.

It handles only the common cases, and leaves all others to Python before it has changed anything.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport INT32_MAX, int64_t

from pykclient._consumer_record cimport RecordObject
from pykclient.producer._outbox cimport FutureState, ResultState, SharedDelivery
from pykclient.producer._send cimport SendState, send_record
from pykclient.record._memory_records_builder cimport is_plain, is_timestamp

from collections import deque
from types import GenericAlias

from pykclient.confluent import message as python
from pykclient.consumer_record import ConsumerRecord as record_class

cdef extern from *:
    """
    /* The clock of time.monotonic_ns(), without a call and an int for each message. */
    static inline int64_t monotonic_clock_ms(void) {
    #if PY_VERSION_HEX >= 0x030D0000
        PyTime_t now;
        return PyTime_MonotonicRaw(&now) < 0 ? 0 : now / 1000000;
    #else
        return _PyTime_GetMonotonicClock() / 1000000;
    #endif
    }
    """
    int64_t monotonic_clock_ms() nogil
    bint PyObject_IS_GC(object value)
    bint PyObject_GC_IsTracked(object value)
    void PyObject_GC_Track(object value)
    void PyObject_GC_UnTrack(object value)

cdef object consumed_python = python.consumed, init_python = python.Message.__init__
cdef object compared_python = python.Message._compared, reduce_python = python.Message.__reduce__
cdef object call_python = python.Delivery.__call__
cdef object produce_python = python.ProducingState.produce, hand_over_python = python.ProducingState._hand_over
cdef object poll_python = python.ProducingState.poll, serve_python = python.ProducingState._serve
cdef type record_type = record_class
cdef tuple timestamp_types = python.TIMESTAMP_TYPES
cdef int64_t no_offset = python.NO_OFFSET
cdef object create_time = python.TIMESTAMP_CREATE_TIME


cdef inline int track(object message, object value) except -1:
    """Let the garbage collector track a message that gets an object which could be part of a cycle."""
    if PyObject_IS_GC(value) and not PyObject_GC_IsTracked(message):
        PyObject_GC_Track(message)
    return 0


@cython.freelist(1024)
@cython.binding(False)  # unlike functions of Cython, method descriptors check the type of self
cdef class Message:
    cdef public object _topic, _partition, _offset, _key, _value, _headers, _error, _timestamp_type, _timestamp
    cdef public object _latency, _leader_epoch, _delivery_count

    def __init__(self, *args, **kwargs):
        init_python(self, *args, **kwargs)

    __class_getitem__ = classmethod(GenericAlias)

    def topic(self):
        return self._topic

    def partition(self):
        return self._partition

    def offset(self):
        return self._offset

    def key(self):
        return self._key

    def value(self):
        return self._value

    def deserialized_key(self):
        return self._key

    def deserialized_value(self):
        return self._value

    def headers(self):
        return self._headers

    def error(self):
        return self._error

    def timestamp(self):
        return self._timestamp_type, self._timestamp

    def latency(self):
        return self._latency

    def leader_epoch(self):
        return self._leader_epoch

    def delivery_count(self):
        return self._delivery_count

    def set_headers(self, headers):
        track(self, headers)
        self._headers = headers

    def set_key(self, key):
        track(self, key)
        self._key = key

    def set_value(self, value):
        track(self, value)
        self._value = value

    def set_topic(self, topic):
        track(self, topic)
        self._topic = topic

    def set_error(self, error):
        track(self, error)
        self._error = error

    def __len__(self):
        return 0 if self._value is None else len(self._value)

    def __eq__(self, other):
        if not isinstance(other, Message):
            return NotImplemented
        return compared_python(self) == compared_python(other)

    __hash__ = object.__hash__

    def __reduce__(self):
        return reduce_python(self)


cdef inline Message new_message():
    """Return a message that the garbage collector does not track: setters see to it that it does where it must."""
    cdef Message message = Message.__new__(Message)
    PyObject_GC_UnTrack(message)
    return message


cdef Message consumed_message(object record):
    cdef RecordObject *fields
    cdef Message message
    cdef tuple headers
    cdef Py_ssize_t number
    if type(record) is not record_type or type(<object>(<RecordObject *><PyObject *>record).headers) is not tuple:
        return consumed_python(record)
    fields = <RecordObject *><PyObject *>record
    number = <object>fields.timestamp_type
    message = new_message()
    message._topic = <object>fields.topic
    message._partition = <object>fields.partition
    message._offset = <object>fields.offset
    message._key = <object>fields.key
    message._value = <object>fields.value
    message._leader_epoch = <object>fields.leader_epoch
    message._delivery_count = <object>fields.delivery_count
    message._timestamp_type = <object>PyTuple_GET_ITEM(timestamp_types, number if number >= 0 else 2)
    message._timestamp = <object>fields.timestamp if number >= 0 else -1
    headers = <tuple>fields.headers
    if headers:
        message.set_headers(list(headers))
    track_if_needed(message)
    return message


cdef inline int track_if_needed(Message message) except -1:
    track(message, message._key)
    track(message, message._value)
    return 0


def consumed(record):
    return consumed_message(record)


# --- consuming --------------------------------------------------------------------------------------------------------


@cython.binding(False)  # unlike functions of Cython, method descriptors check the type of self
cdef class ConsumingState:
    cdef public object _inner
    cdef public list _records
    cdef public Py_ssize_t _at
    cdef public int64_t _next_tend_ms
    cdef public int64_t _last_poll_ms
    cdef public bint _in_callback

    def poll(self, timeout=-1):
        cdef int64_t now_ms = monotonic_clock_ms()
        cdef Py_ssize_t at
        cdef object record = None
        with cython.critical_section(self):  # nothing with a GIL
            if (
                self._records is not None
                and self._at < len(self._records)
                and now_ms < self._next_tend_ms
                and not self._in_callback
            ):
                self._last_poll_ms = now_ms
                record = self._records[self._at]
                self._at += 1
        return self._poll(timeout, now_ms) if record is None else consumed_message(record)

    def _hand_out_current(self, list found not None, Py_ssize_t wanted):
        cdef Py_ssize_t i
        cdef Py_ssize_t begin = self._at
        cdef list records = self._records
        cdef Py_ssize_t end = max(begin, min(len(records), begin + wanted - len(found)))
        self._at = end
        for i in range(begin, end):
            found.append(consumed_message(records[i]))


# --- producing --------------------------------------------------------------------------------------------------------


@cython.final
@cython.no_gc
cdef class Delivery(SharedDelivery):
    """A message that is being sent. It lives until it is reported, so a reference cycle through it ends by itself."""

    cdef public object callback, topic, key, headers, error
    cdef public bytes value
    cdef public Reports reports
    cdef list _followers  # None as long as there are none
    cdef bint is_counted  # in the reports' numbers of messages and bytes
    cdef public int64_t started_ms, latency_ms, offset, timestamp_ms, partition

    def __init__(
        self, Reports reports not None, topic, value, key, headers, partition, int64_t timestamp_ms, callback
    ):
        self.reports = reports
        self.topic = topic
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.callback = callback
        self.started_ms = monotonic_clock_ms()
        self.latency_ms = -1
        self.offset = no_offset

    @property
    def followers(self):
        return [] if self._followers is None else self._followers

    def message(self):
        return message_of(
            self,
            None if self.latency_ms < 0 else self.latency_ms / 1000.0,
            self.timestamp_ms,
        )

    def __call__(self, error, metadata):
        return call_python(self, error, metadata)

    cpdef bint takes(self, on_delivery, int64_t timestamp_ms) except -1:
        cdef Delivery other
        if type(on_delivery) is not Delivery:
            return False
        other = <Delivery>on_delivery
        if other.reports is not self.reports:
            return False
        other.timestamp_ms = timestamp_ms
        if self._followers is None:
            self._followers = []
        self._followers.append(other)
        return True

    def after(self, Py_ssize_t count):
        cdef Delivery first = <Delivery?>self._followers[count - 1]
        first._followers = self._followers[count:]
        return first

    def take(self, FutureState future not None):
        cdef object found
        cdef ResultState result = <ResultState?>future._result
        cdef Py_ssize_t index = future.index, most
        cdef list deliveries = [] if self._followers is None else self._followers
        if result.parts is not None:
            found, index = (<object>future).locate()
            result = <ResultState?>found
        if future._timestamp_ms >= 0:
            self.timestamp_ms = future._timestamp_ms
        self._followers = None
        deliveries.insert(0, self)
        most = max(1, result.record_count - index)
        if len(deliveries) > most:
            del deliveries[most:]  # the followers from ``after`` on, which are in another batch
        self.reports.add(deliveries, result, index)

    def settle(self, error, int64_t partition, int64_t offset, int64_t timestamp_ms, int64_t now_ms):
        return settle(self, error, partition, offset, timestamp_ms, now_ms)


cdef Message message_of(Delivery delivery, object latency, object timestamp):
    cdef Message message = new_message()
    message._topic = delivery.topic
    message._partition = None if delivery.partition < 0 else delivery.partition
    message._offset = None if delivery.offset < 0 else delivery.offset
    message._key = delivery.key
    message._value = delivery.value
    message._timestamp_type = create_time
    message._timestamp = timestamp
    message._latency = latency
    if delivery.headers is not None:
        message.set_headers(delivery.headers)
    if delivery.error is not None:
        message.set_error(delivery.error)
    return message


cdef bint settle(
    Delivery delivery, object error, int64_t partition, int64_t offset, int64_t timestamp_ms, int64_t now_ms
) except -1:
    if delivery.error is not None:
        return False
    delivery.partition = partition
    if error is None:
        delivery.offset = offset
        if timestamp_ms >= 0:
            delivery.timestamp_ms = timestamp_ms
        delivery.latency_ms = now_ms - delivery.started_ms
    else:
        delivery.error = delivery.reports.error_of(error)
    return True


@cython.final
cdef class Outcome:
    cdef public list deliveries
    cdef public ResultState result
    cdef public Py_ssize_t first_index, at
    cdef public bint is_taken
    cdef public int64_t now_ms

    def __init__(self, list deliveries not None, ResultState result, Py_ssize_t first_index):
        self.deliveries = deliveries
        self.result = result
        self.first_index = first_index
        self.now_ms = monotonic_clock_ms()


cdef class Reports:
    cdef public object error_of
    cdef object _queue, _wake
    cdef int64_t _limit, _limit_bytes, _unreported, _unreported_bytes
    cdef bint _errors_only

    def __init__(self, limit, limit_bytes, errors_only, wake, error_of):
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._errors_only = errors_only
        self._wake = wake
        self.error_of = error_of
        self._queue = deque()

    cdef bint has_room(self, object value) except -1:
        """Return whether a message with this value may be counted."""
        cdef Py_ssize_t size = 0 if value is None else PyBytes_GET_SIZE(value)
        return self._unreported < self._limit and self._unreported_bytes + size <= self._limit_bytes

    cpdef bint admit(self, Delivery delivery) except -1:
        cdef bint admitted
        with cython.critical_section(self):  # nothing with a GIL
            admitted = self.has_room(delivery.value)
            if admitted:
                delivery.is_counted = True
                self._unreported += 1
                if delivery.value is not None:
                    self._unreported_bytes += PyBytes_GET_SIZE(delivery.value)
        return admitted

    cpdef bint forget(self, Delivery delivery) except -1:
        cdef bint was_counted
        with cython.critical_section(self):
            was_counted = delivery.is_counted
            if was_counted:
                delivery.is_counted = False
                self._unreported -= 1
                if delivery.value is not None:
                    self._unreported_bytes -= PyBytes_GET_SIZE(delivery.value)
        return was_counted

    def unreported(self):
        return self._unreported

    def unreported_bytes(self):
        return self._unreported_bytes

    cpdef add(self, list deliveries, ResultState result=None, Py_ssize_t first_index=0):
        self._queue.append(Outcome(deliveries, result, first_index))
        self._wake()

    def __len__(self):
        return len(self._queue)

    cpdef Py_ssize_t serve(self) except -1:
        cdef Py_ssize_t served = 0
        cdef Outcome outcome
        if not self._queue:
            return 0
        for each in self._queue.copy():
            outcome = <Outcome?>each
            if outcome.is_taken:
                continue
            outcome.is_taken = True
            try:
                served += self.serve_batch(outcome)
            finally:
                outcome.is_taken = False
            try:
                self._queue.remove(outcome)
            except ValueError:  # another thread has removed it
                pass
        return served

    cdef Py_ssize_t serve_batch(self, Outcome outcome) except -1:
        cdef list deliveries = outcome.deliveries
        cdef ResultState result = outcome.result
        cdef Py_ssize_t served = 0, count = len(deliveries)
        cdef Py_ssize_t index
        cdef Delivery delivery
        cdef object callback, error_for, error, latency = None, timestamp = None
        cdef int64_t latency_ms = -1, timestamp_ms = -1, partition = -1, base_offset = -1
        if result is not None:
            error_for = result.error_for
            partition = result.topic_partition.partition
            base_offset = result.base_offset
        while outcome.at < count:
            delivery = <Delivery?>deliveries[outcome.at]
            index = outcome.first_index + outcome.at
            if result is not None:
                error = None if error_for is None else error_for(index)
                settle(
                    delivery,
                    error,
                    partition,
                    base_offset if base_offset < 0 else base_offset + index,
                    result.log_append_time_ms,
                    outcome.now_ms,
                )
            outcome.at = index - outcome.first_index + 1
            if not self.forget(delivery):
                continue
            served += 1
            callback = delivery.callback
            delivery.callback = None
            if callback is not None and not (self._errors_only and delivery.error is None):
                # Messages in a row were sent in the same millisecond, mostly.
                if delivery.latency_ms != latency_ms:
                    latency_ms = delivery.latency_ms
                    latency = None if latency_ms < 0 else latency_ms / 1000.0
                if timestamp is None or delivery.timestamp_ms != timestamp_ms:
                    timestamp = timestamp_ms = delivery.timestamp_ms
                callback(delivery.error, message_of(delivery, latency, timestamp))
        return served


@cython.binding(False)  # unlike functions of Cython, method descriptors check the type of self
cdef class ProducingState:
    cdef public object _inner, _event_queue, _partitioner, _default_callback
    cdef public Reports _reports
    cdef public dict _counts
    cdef public int64_t _max_size, _next_tend_ms
    cdef public bint _keyless_stick
    cdef int64_t _now_ms  # as of the last ``produce``, for the next ``poll``; 0 if there was none since the last one

    def produce(
        self, topic, value=None, key=None, partition=-1, callback=None, on_delivery=None, timestamp=0, headers=None
    ):
        cdef Delivery delivery
        cdef object partitions
        cdef Py_ssize_t size = 0
        cdef int64_t timestamp_ms = 0, number = 0
        if (
            type(topic) is not str
            or not is_plain(value)
            or not is_plain(key)
            or headers is not None
            or not is_timestamp(partition, &number)
            or not is_timestamp(timestamp, &timestamp_ms)
            or number > INT32_MAX
            or self._inner is None
        ):
            return produce_python(self, topic, value, key, partition, callback, on_delivery, timestamp, headers)
        if value is not None:
            size = PyBytes_GET_SIZE(value)
        if key is not None:
            size += PyBytes_GET_SIZE(key)
        partitions = self._counts.get(topic)
        if size > self._max_size or partitions is None or not self._reports.has_room(value):
            return produce_python(self, topic, value, key, partition, callback, on_delivery, timestamp, headers)
        delivery = Delivery.__new__(Delivery)
        delivery.reports = self._reports
        delivery.topic = topic
        delivery.value = value
        delivery.key = key
        delivery.partition = number
        delivery.timestamp_ms = timestamp_ms
        if callback:
            delivery.callback = callback
        elif on_delivery:
            delivery.callback = on_delivery
        else:
            delivery.callback = self._default_callback
        delivery.started_ms = self._now_ms = monotonic_clock_ms()
        delivery.latency_ms = -1
        delivery.offset = no_offset
        if not self._reports.admit(delivery):  # another thread has filled the queue just now
            raise BufferError("Local: Queue full")
        hand_over(self, delivery, partitions)

    def _hand_over(self, Delivery delivery not None, partitions):
        hand_over(self, delivery, partitions)

    def poll(self, timeout=-1):
        cdef Py_ssize_t served
        # Most programs poll after each message, and the clock takes as long as the rest of that.
        cdef int64_t now_ms = self._now_ms or monotonic_clock_ms()
        self._now_ms = 0
        if (
            (type(timeout) is int or type(timeout) is float)
            and self._inner is not None
            and not self._event_queue
            and now_ms < self._next_tend_ms
        ):
            served = self._reports.serve()
            if served or not timeout:
                return served
        return poll_python(self, timeout)

    def _serve(self):
        return serve_python(self)


cdef int hand_over(ProducingState state, Delivery delivery, object partitions) except -1:
    cdef object chosen = None, inner = state._inner
    cdef int64_t count = partitions
    if not isinstance(inner, SendState) or delivery.partition >= count or delivery.partition < -1:
        hand_over_python(state, delivery, partitions)
        return 0
    try:
        if delivery.partition >= 0:
            chosen = delivery.partition
        elif delivery.key is not None or not state._keyless_stick:
            chosen = state._partitioner(delivery.key, partitions)
        send_record(
            <SendState>inner,
            delivery.topic,
            delivery.value,
            delivery.key,
            delivery.headers,
            chosen,
            delivery.timestamp_ms if delivery.timestamp_ms > 0 else None,
            delivery,
        )
    except BaseException as error:
        (<object>state)._not_sent(delivery, error)
    return 0
