"""A batch of records, the result that they share, and the futures that ``send`` returns for them.

A batch waits in its partition's queue (QUEUED) until the sender drains it (DRAINED). It is SENT once the network client
has a request with it, and ANSWERED once the response arrives or is known not to. Then the sender puts it back into the
queue for a retry, or completes, fails or splits it (DONE). A batch that fails while the network client still has it is
GIVEN_UP: the client may be writing its memory, so this is freed after the answer.

Java: ProducerBatch, ProduceRequestResult, FutureRecordMetadata.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

from pykclient.argument_values import check_callable, plain_number, shown
from pykclient.clock import FOREVER_MS, HERE, Signal, ensure_not_interrupting, interrupting
from pykclient.errors import IllegalArgumentError, IllegalStateError, KafkaError, KafkaTimeoutError, RetriableError
from pykclient.producer.outbox import (
    NO_OFFSET,
    NO_TIMESTAMP,
    SUCCEEDED,
    BatchState,
    FutureState,
    ResultState,
    SharedDelivery,
    keep_spares,
    new_lock,
    put_last_first,
)
from pykclient.record import MemoryRecords, MemoryRecordsBuilder
from pykclient.record.record_batch import (
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    estimate_size_in_bytes_upper_bound,
    increment_sequence,
)
from pykclient.types import (
    Header,
    RecordMetadata as RecordMetadata,  # kafka-python's programs import it from this module
    TopicPartition,
)

if TYPE_CHECKING:
    from pykclient.producer.outbox import Loan
    from pykclient.producer.sender_thread import SenderThread
    from pykclient.record.record_batch import Buffer
    from pykclient.record.row_columns import RowRun


#: The metadata that a future returns.
M = TypeVar("M")

_NO_HEADER_SIZE = -1

#: Whole seconds below this need no further check.
_UNUSUAL_S: Final = 1_000_000_000

#: ``RecordMetadata`` of a tuple of all fields, without a call of Python code.
_new_metadata: Callable[[tuple[object, ...]], RecordMetadata] = partial(tuple.__new__, RecordMetadata)

#: Called with the future once the record is acknowledged or has failed.
Listener = Callable[["FutureRecordMetadata"], object]

#: The ``on_delivery`` of ``send``: called with the error or None, and the metadata, whose offset is -1 after an error.
OnDelivery = Callable[[Exception | None, RecordMetadata], object]

#: A future, a callable to tell once it is done, and whether that is an OnDelivery rather than a Listener.
Entry = tuple["FutureRecordMetadata", Callable[..., object], bool]


#: A waiting thread wakes the sender this often: the thread that should have done so may have been interrupted by a
#: signal handler, possibly the one that is waiting here.
_LONGEST_WAIT_MS = 500


def milliseconds(timeout: object) -> int:
    """Convert a timeout in seconds to milliseconds, rounded down; None and infinity become FOREVER_MS.

    Raises:
        IllegalArgumentError: it is not a number, is NaN, or is negative.
    """
    timeout_ms = signed_milliseconds(timeout)
    if timeout_ms < 0:
        raise IllegalArgumentError(f"timeout = {shown(timeout)}: a timeout must not be negative")
    return timeout_ms


def signed_milliseconds(timeout: object) -> int:
    """Convert a timeout like ``milliseconds``, but accept negative ones, which mean that no time is left.

    Raises:
        IllegalArgumentError: it is not a number, or is NaN.
    """
    if type(timeout) is int and 0 <= timeout < _UNUSUAL_S:
        return timeout * 1000
    if timeout is None:
        return FOREVER_MS
    try:
        seconds = timeout if type(timeout) is float or type(timeout) is int else plain_number(timeout)
    except TypeError:
        raise IllegalArgumentError(
            f"timeout is {shown(timeout)}; it must be a number of seconds, or None to wait without bound"
        ) from None
    if seconds != seconds:  # noqa: PLR0124 - NaN; isnan() does not take every int
        raise IllegalArgumentError("timeout = nan: a timeout is a number of seconds, or None to wait without bound")
    if seconds >= FOREVER_MS / 1000:
        return FOREVER_MS
    return -1 if seconds < 0 else int(seconds * 1000)


class BatchDelivery(SharedDelivery):
    """An ``on_delivery`` shared by all records of a batch, and also called once per batch."""

    __slots__ = ()

    @property
    def sees_batches(self) -> bool:
        """True if ``batch_delivered`` has an effect."""
        raise NotImplementedError

    def batch_delivered(
        self,
        deliveries: list[BatchDelivery],
        result: ProduceRequestResult,
        error: Exception | None,
        metadata: RecordMetadata,
    ) -> None:
        """Handle the outcome of a batch: its deliveries in order, and its first record's error or metadata."""
        raise NotImplementedError

    def __call__(self, error: Exception | None, metadata: RecordMetadata) -> None:
        """Handle the outcome of the records, as that of the first one."""
        raise NotImplementedError

    def take(self, future: FutureRecordMetadata) -> None:
        future.deliver(self)


class ProduceRequestResult(ResultState):
    """The result of one batch, which the sender sets once.

    A batch that is too large for the broker is split. Its result then refers to the results of the batches that its
    records moved to, in order, and each future finds its own among them; so nothing is kept per record.

    Thread: any.
    """

    __slots__ = ()
    _waiting: tuple[Signal, ...]
    listeners: list[Entry]
    parts: list[tuple[int, ProduceRequestResult]] | None
    sender_thread: SenderThread | None

    def set(
        self, base_offset: int, log_append_time_ms: int, error_for: Callable[[int], Exception] | None = None
    ) -> None:
        """Store the result without publishing it; ``done`` does that."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error_for = error_for

    def done(self, defers: bool = False) -> bool:
        """Publish the result, call the listeners, then wake the waiting threads: a flush also waits for callbacks.

        With ``defers``, and if there are listeners, only publish it, and return False: another call does the rest. A
        second call goes on where an exception ended the first one.
        """
        if self.settle_at_once():
            return True
        listeners = self.listeners
        with HERE.mark, self._lock:
            if not self.completed:
                put_last_first(listeners)
            self.completed = True  # nobody adds any listener from now on
        if listeners:
            if defers:
                return False
            first, delivery, _ = listeners[-1]
            if isinstance(delivery, BatchDelivery) and delivery.sees_batches:
                deliveries = [other for _, other, _ in reversed(listeners) if isinstance(other, BatchDelivery)]
                first.deliver(partial(delivery.batch_delivered, deliveries, self))
            # Any BaseException is caught: sys.exit() in a callback, or asyncio's CancelledError, would end the sender's
            # thread.
            run_listeners(listeners, BaseException)
        self._settle()
        return True

    def fail_after_fork(self, error: Exception) -> None:
        """Fail in a forked child, where no thread will set this result and locks may stay held."""
        self._lock = new_lock()
        if not self.completed:
            self.set(NO_OFFSET, NO_TIMESTAMP, lambda _: error)
        self.listeners = []
        self.completed = self.settled = True

    def _settle(self) -> None:
        with HERE.mark, self._lock:
            self.settled = True
            # Applications keep futures, which the compiled build hides from the garbage collector: a future must not
            # keep the producer's network client alive, nor be part of a cycle through it.
            self.sender_thread = None
            waiting, self._waiting = self._waiting, ()
        for signal in waiting:  # without the lock
            signal.set()

    def split(self, parts: list[tuple[int, ProduceRequestResult]]) -> None:
        """Move the records, and their listeners, to ``parts``.

        A second call resumes where an exception ended the first one.
        """
        with HERE.mark, self._lock:
            self.parts = parts
            self.completed = True
        listeners = self.listeners  # nobody adds any from now on
        while listeners:
            entry = listeners[0]
            of_part = entry[0].locate()[0].listeners
            of_part += (entry,)  # no call between these two statements, so an exception finds it in one list
            del listeners[0]
        _share_across(self, parts)
        self._settle()

    def age_ms(self) -> float:
        """Return for how long the batch has existed."""
        return max(0, self._clock.now_ms() - self.created_ms)

    def locate(self, index: int) -> tuple[ProduceRequestResult, int]:
        """Return the result that now holds the record at ``index``, and its place there, after any number of splits."""
        result = self
        while result.parts is not None:
            for start, part in reversed(result.parts):
                if index >= start:
                    result, index = part, index - start
                    break
        return result, index

    def deadline_ms(self, timeout_ms: int) -> int | None:
        """Return the end of a wait of ``timeout_ms``; None if there is nothing to wait for."""
        if timeout_ms <= 0:
            return None
        return FOREVER_MS if timeout_ms >= FOREVER_MS else self._clock.now_ms() + timeout_ms

    def await_(self, timeout_ms: int = FOREVER_MS) -> bool:
        """Call ``await_until`` for ``timeout_ms`` from now."""
        return self.await_until(self.deadline_ms(timeout_ms))

    def await_until(self, deadline_ms: int | None) -> bool:
        """Wait until this result is set and its listeners were called; return False after ``deadline_ms``.

        Does not wait for the parts of a split batch. With None it does not wait at all.

        Raises:
            KafkaError: this is the sender's thread, which would wait for itself.
        """
        if self.settled:
            return True
        sender_thread = self.sender_thread
        if deadline_ms is None:
            return False
        if sender_thread is not None and sender_thread.is_current:
            raise KafkaError(
                "get(), or another method that waits, was called on the sender's thread, by a callback or a __del__, "
                f"or by a signal handler during such a call, for a record of {self.topic_partition} that is not "
                "acknowledged yet: the sender would wait for itself. Add a callback to that future instead"
            )
        if HERE.mark._is_owned():  # type: ignore[attr-defined]
            raise interrupting("get(), or another method that waits for records,")
        clock = self._clock
        if sender_thread is not None and not self.completed:
            driver = sender_thread.driver
            if driver is not None:
                driver.drive(self, deadline_ms)
                if self.settled:
                    return True
        signal = clock.new_signal()
        try:
            with HERE.mark, self._lock:
                self._waiting += (signal,)
            while not self.settled:
                remaining_ms = deadline_ms - clock.now_ms()
                if remaining_ms <= 0:
                    return False
                if not signal.wait(min(remaining_ms, _LONGEST_WAIT_MS)) and sender_thread is not None:
                    sender_thread.wakeup()
        finally:
            with HERE.mark, self._lock:
                self._waiting = tuple(other for other in self._waiting if other is not signal)
        return True

    def await_all_dependents(self, timeout_ms: int = FOREVER_MS) -> bool:
        """Wait for this result and, after a split, for all parts; return False on timeout."""
        clock = self._clock
        deadline_ms = clock.now_ms() + timeout_ms
        waiting = [self]
        while waiting:
            result = waiting.pop()
            if not result.await_(max(0, deadline_ms - clock.now_ms())):
                return False
            waiting.extend(part for _, part in result.parts or ())
        return True

    def add_listener(self, future: FutureRecordMetadata, listener: Listener) -> bool:
        """Register ``listener``; return False if the result is already set."""
        ensure_not_interrupting("add_done_callback(), or a method like it,")
        if self.completed:  # also in a forked child, in which a lock of the parent may stay held
            return False
        with HERE.mark, self._lock:
            if self.completed:
                return False
            self.listeners.append((future, listener, False))
            return True


class DeliveryFuture(Generic[M]):
    """The methods that the futures of single records and of many have in common. Thread: any."""

    __slots__ = ()

    def done(self) -> bool:
        """Return True once everything is acknowledged or has failed."""
        raise NotImplementedError

    @property
    def exception(self) -> Exception | None:
        """The error, or the first of several; None before the future is done, and after a success."""
        raise NotImplementedError

    def get(self, timeout: float | None = None) -> M:
        """Wait up to ``timeout`` seconds for the metadata and return it."""
        raise NotImplementedError

    def add_done_callback(self, function: Callable[[Self], object]) -> Self:
        """Call ``function(future)`` once the future is done; immediately if it already is."""
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """Return ``done()``, under kafka-python's name."""
        return self.done()

    def result(self, timeout: float | None = None) -> M:
        """Return ``get(timeout)``, under the name of ``concurrent.futures``."""
        return self.get(timeout)

    def __await__(self) -> Generator[Any, None, M]:
        if not self.done():
            import asyncio  # imported late: only programs that await need it

            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()

            def wake(_future: Self) -> None:
                try:
                    loop.call_soon_threadsafe(_settle, waiter)
                except RuntimeError:  # the loop is closed, so nobody waits
                    return

            self.add_done_callback(wake)
            yield from waiter
        return self.get(0)

    def add_callback(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call ``function(*args, metadata, **kwargs)`` on success, of all rows if there are several."""
        check_callable(function, "function")

        def on_success(future: Self) -> None:
            if future.exception is None:
                function(*args, future.get(0), **kwargs)

        return self.add_done_callback(on_success)

    def add_errback(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call ``function(*args, error, **kwargs)`` with the first error on failure."""
        check_callable(function, "function")

        def on_failure(future: Self) -> None:
            error = future.exception
            if error is not None:
                function(*args, error, **kwargs)

        return self.add_done_callback(on_failure)


class FutureRecordMetadata(DeliveryFuture[RecordMetadata], FutureState):
    """A future for one record: its RecordMetadata, or the error that it failed with.

    Wait with ``get`` or ``result``, ``await`` it in asyncio, or add a callback. Callbacks run on the sender's thread,
    in the order of a partition's records, while no lock is held; or on the caller's thread if the future is already
    done. Their errors are logged and otherwise ignored. They must not block: the sender sends nothing meanwhile.

    Thread: any.
    """

    __slots__ = ()

    def __init__(
        self,
        result: ProduceRequestResult,
        index: int,
        timestamp_ms: int | None,
        key_size: int,
        value_size: int,
        *kafka_python: int,
    ) -> None:
        if kafka_python:  # its arguments: a checksum, and the sizes of the key, the value and the headers
            key_size, value_size = value_size, kafka_python[0]
        self._result = result
        self.index = index
        self._timestamp_ms = NO_TIMESTAMP if timestamp_ms is None else timestamp_ms
        self._key_size = key_size
        self._value_size = value_size

    # --- queries -----------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Return True once the record is acknowledged or has failed."""
        return self.locate()[0].completed

    @property
    def timestamp_ms(self) -> int:
        """The record's own timestamp, in milliseconds since the epoch."""
        return self._timestamp_ms

    def succeeded(self) -> bool:
        """Return True if the record was written; with ``acks=0``, if it was sent."""
        return self.done() and self.exception is None

    def failed(self) -> bool:
        """Return True if the record has failed."""
        return self.done() and self.exception is not None

    def retriable(self) -> bool:
        """Return True if the record failed with an error after which it may be sent again."""
        return isinstance(self.exception, RetriableError)

    @property
    def exception(self) -> Exception | None:
        """The error of a failed record, otherwise None."""
        result, index = self.locate()
        if not result.completed or result.error_for is None:
            return None
        return result.error_for(index)

    @property
    def value(self) -> RecordMetadata | None:
        """The metadata of a written record, otherwise None."""
        result, index = self.locate()
        if not result.completed or result.error_for is not None:
            return None
        return self._metadata(result, index)

    # --- waiting -----------------------------------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait up to ``timeout`` seconds for the record's metadata and return it.

        None waits without a limit; a negative timeout does not wait.

        Raises:
            KafkaTimeoutError: ``timeout`` seconds have passed. The record may still be delivered.
            IllegalArgumentError: ``timeout`` is not a number.
            Exception: the error that the record failed with.
        """
        timeout_ms = FOREVER_MS if timeout is None else signed_milliseconds(timeout)
        result, index = self._result, self.index
        if result.parts is not None:
            result, index = self.locate()
        deadline_ms = None if result.completed else result.deadline_ms(timeout_ms)
        while not result.completed:
            if not result.await_until(deadline_ms):
                raise KafkaTimeoutError(
                    f"the record for {result.topic_partition} was not acknowledged within {timeout} s; "
                    "it is still on its way (delivery.timeout.ms bounds that)"
                )
            if result.parts is not None:
                result, index = self.locate()
        if result.error_for is not None:
            # The records of the batch share the error: without this, each raise would lengthen its traceback.
            raise result.error_for(index).with_traceback(None)
        return self._metadata(result, index)

    # --- callbacks ---------------------------------------------------------------------------------------------

    def add_both(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call ``function(*args, metadata_or_error, **kwargs)`` in either case."""
        check_callable(function, "function")

        def on_either(future: FutureRecordMetadata) -> None:
            function(*args, future.exception or future.value, **kwargs)

        return self.add_done_callback(on_either)

    def add_done_callback(self, function: Listener) -> Self:
        """Call ``function(future)`` once the record is acknowledged or has failed; immediately if it already is."""
        check_callable(function, "function")
        if not self.add_listener(function):
            run_listeners([(self, function, False)])
        return self

    def add_listener(self, listener: Listener) -> bool:
        """Register ``listener``; return False if the future is done, and the caller has to call it."""
        while True:
            result, _ = self.locate()
            if result.add_listener(self, listener):
                return True
            if result.parts is None:  # set for good, and not split meanwhile
                return False

    # --- inside ------------------------------------------------------------------------------------------------

    @property
    def _produce_future(self) -> ProduceRequestResult:
        """The result under kafka-python's name: instrumentations read the record's partition there."""
        return self._result

    def locate(self) -> tuple[ProduceRequestResult, int]:
        """Return the result of the batch that now holds the record, and the record's place in it."""
        result = self._result
        return (result, self.index) if result.parts is None else result.locate(self.index)

    def deliver(self, on_delivery: OnDelivery) -> None:
        """Call ``on_delivery`` with the error or the metadata. The future must be done."""
        result, index = self.locate()
        error = None if result.error_for is None else result.error_for(index)
        on_delivery(error, self._metadata(result, index))

    def _metadata(self, result: ProduceRequestResult, index: int) -> RecordMetadata:
        topic_partition = result.topic_partition
        base_offset = result.base_offset
        log_append_time_ms = result.log_append_time_ms
        return _new_metadata(
            (
                topic_partition.topic,
                topic_partition.partition,
                topic_partition,
                base_offset if base_offset == NO_OFFSET else base_offset + index,
                self._timestamp_ms if log_append_time_ms == NO_TIMESTAMP else log_append_time_ms,
                None,
                self._key_size,
                self._value_size,
                _NO_HEADER_SIZE,
            )
        )

    def __repr__(self) -> str:
        result, index = self.locate()
        if not result.completed:
            state = "pending"
        else:
            state = "succeeded" if result.error_for is None else f"failed with {result.error_for(index)!r}"
        return f"<FutureRecordMetadata for {result.topic_partition}: {state}>"


keep_spares(FutureRecordMetadata)


def failed_future(topic_partition: TopicPartition, error: Exception) -> FutureRecordMetadata:
    """Return a failed future for a record that did not reach a batch."""
    result = ProduceRequestResult(topic_partition)
    result.set(NO_OFFSET, NO_TIMESTAMP, lambda _index: error)
    result.done()
    return FutureRecordMetadata(result, 0, NO_TIMESTAMP, -1, -1)


def run_listeners(listeners: list[Entry], logged: type[BaseException] = Exception) -> None:
    """Call the listeners, the last one first, and remove them from the list; catch errors of class ``logged``.

    The first error is logged with its traceback, the others are counted.
    """
    failed = 0
    while listeners:
        future, function, is_delivery = listeners.pop()
        try:
            if isinstance(function, SharedDelivery):
                function.take(future)
            elif is_delivery:
                future.deliver(function)
            else:
                function(future)
        except logged:  # a callback of the application must not end the sender
            failed += 1
            if failed == 1:
                _log_failure(future)
    if failed > 1:
        _logger().error("%d callbacks of this batch raised; the first is logged above", failed)


def _share_across(whole: ProduceRequestResult, parts: list[tuple[int, ProduceRequestResult]]) -> None:
    """Give each part of a split batch the shared delivery that its first record has, where that is in an earlier part.

    A second call changes nothing.
    """
    shared: SharedDelivery | None = None
    begun = 0  # the place in the whole batch of the first record that ``shared`` stands for
    for start, part in parts:
        listeners = part.listeners
        if shared is not None and (not listeners or listeners[0][0].locate()[1]):
            first = FutureRecordMetadata(whole, start, NO_TIMESTAMP, -1, -1)
            listeners.insert(0, (first, shared.after(start - begun), True))  # type: ignore[arg-type]
        if listeners:
            future, last, _ = listeners[-1]
            shared = last if isinstance(last, SharedDelivery) else None
            begun = start + future.locate()[1]


def _log_failure(future: FutureRecordMetadata) -> None:
    _logger().exception("a callback raised for a record of %s", future.locate()[0].topic_partition)


def _logger() -> Any:
    import logging

    return logging.getLogger(__name__)


def _settle(waiter: Any) -> None:
    if not waiter.done():
        waiter.set_result(None)


# --- batches ---------------------------------------------------------------------------------------------------------

ABORTED = "ABORTED"  # by the client: a forced close, or a fatal error
FAILED = "FAILED"  # refused by the broker, or expired
SPLIT = "SPLIT"  # its records are in other batches now

#: The results that may still be reported for a batch in a final state. A batch that was aborted or expired in flight
#: may get a late response, which changes nothing for its records. After a success, nothing may be reported.
_LATE_REPORTS = {
    ABORTED: frozenset((FAILED, SUCCEEDED)),
    FAILED: frozenset((FAILED, SUCCEEDED)),
    SPLIT: frozenset[str](),
    SUCCEEDED: frozenset[str](),
}


class RowsInBatch(NamedTuple):
    """Consecutive records of a batch: their result, the index of the first, and their number."""

    result: ProduceRequestResult
    place: int
    rows: int


class ProducerBatch(BatchState):
    """Records that are sent, retried and completed together.

    Application threads fill a batch while they hold its queue's lock. After the drain it belongs to the sender.
    """

    __slots__ = ()
    result_type = ProduceRequestResult
    future_type = FutureRecordMetadata
    loan: Loan | None
    produce_future: ProduceRequestResult

    # --- filling -----------------------------------------------------------------------------------------------

    def try_append_rows(self, run: RowRun, max_bytes: int) -> RowsInBatch | None:
        """Append as many rows as fit; return None if none does. The caller holds the queue's lock.

        The row that reaches ``max_bytes``, uncompressed, is the last.
        """
        if not self.is_open:
            return None
        before = self._builder.uncompressed_bytes_written
        count, largest = self._builder.try_append_rows(run.rows, run.indices, run.first, run.stop, max_bytes)
        appended_bytes = self._builder.uncompressed_bytes_written - before
        run.first += count
        if run.first < run.stop and appended_bytes < max_bytes:
            self.is_open = False  # later appends need not find out again
            run.has_filled_batch = not self.record_count
        if not count:
            return None
        self.appended_bytes = appended_bytes
        self.max_record_size = max(self.max_record_size, largest)
        return RowsInBatch(self.produce_future, self._builder.num_records - count, count)

    def close_for_record_appends(self) -> None:
        """Accept no more records.

        This does not close the builder: closing compresses, which the sender does later, without holding the queue's
        lock.
        """
        self.is_open = False

    def abort_record_appends(self) -> None:
        """Accept no more records and drop those appended. Their futures must still be completed."""
        self.is_open = False
        if not self._builder.is_closed:  # a closed builder accepts none, and its bytes may be in flight
            self._builder.abort()

    # --- sending -----------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._builder.is_closed

    def reset_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Renumber the closed batch; the next ``close`` computes its CRC again."""
        self.sequence_has_been_reset = True
        self._builder.reopen_and_rewrite_producer_state(
            producer_id, producer_epoch, base_sequence, self._builder.is_transactional
        )
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    @property
    def last_sequence(self) -> int:
        return increment_sequence(self.base_sequence, self.record_count - 1)

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    def reenqueued(self, now_ms: int, retry_backoff_ms: int) -> None:
        """Record that the batch is requeued, to be sent after ``retry_backoff_ms`` at the earliest."""
        self.attempts += 1
        self.retry_backoff_ms = retry_backoff_ms
        self.last_attempt_ms = max(self.last_attempt_ms, now_ms)
        self.in_retry = True

    def stays_before(self, other: ProducerBatch) -> bool:
        """Return whether ``other``, which is being requeued, belongs behind this queued batch.

        It does if this batch was requeued too, and precedes ``other`` by sequence or, without one, by age.
        """
        if other.has_sequence:
            return self.has_sequence and self.base_sequence < other.base_sequence
        was_sent = self.attempts > 0 or self.is_split_batch
        return was_sent and self.created_ms < other.created_ms

    def expiry_ms(self, delivery_timeout_ms: int) -> int:
        """Return when the batch expires: ``delivery.timeout.ms`` after its first record was appended.

        Retries and splits do not postpone that. The sender fails an expired batch in its next step, in its queue
        (``RecordAccumulator.expired_batches``) as well as in flight (``BatchRegister.expired_in_flight``);
        ``WaitingQueues.next_expiry_ms`` is when the first of all batches expires.
        """
        return self.created_ms + delivery_timeout_ms

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now_ms: int) -> bool:
        return now_ms >= self.expiry_ms(delivery_timeout_ms)

    def maybe_update_leader_epoch(self, latest: int | None) -> None:
        """Record the leader epoch, and the attempt in which it was first seen."""
        if latest is not None and (self.current_leader_epoch is None or self.current_leader_epoch < latest):
            self._attempts_when_leader_last_changed = self.attempts
            self.current_leader_epoch = latest

    @property
    def backoff_end_ms(self) -> int:
        """The time until which a retry must wait; 0 if it need not wait."""
        if not self.retry_backoff_ms or self.has_leader_changed_for_the_ongoing_retry:
            return 0
        return self.last_attempt_ms + self.retry_backoff_ms

    @property
    def has_leader_changed_for_the_ongoing_retry(self) -> bool:
        """True if the leader has changed since the last attempt, so that the retry needs no backoff (KIP-951)."""
        return self.attempts >= 1 and self.attempts == self._attempts_when_leader_last_changed

    # --- ending ------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return self.final_state is not None

    def _decided_before(self, final_state: str) -> bool:
        """Return False if the result may still be reported for a batch that has one, and changes nothing.

        Raises:
            IllegalStateError: nothing may follow the result that was decided before.
        """
        before = self.final_state
        if before is not None and final_state not in _LATE_REPORTS[before]:
            raise IllegalStateError(f"{self} cannot become {final_state}: its final state is {before}")
        return False

    def publish(self, defers: bool = False) -> bool:
        """Complete the futures with the decided result, and call their callbacks, unless that has been done.

        With ``defers``, call no callbacks; return False if there are some, so that another call must follow.
        """
        result = self.produce_future
        return result.settled or result.done(defers)

    # --- splitting ---------------------------------------------------------------------------------------------

    def split(self, split_batch_size: int) -> list[ProducerBatch]:
        """Return closed batches of about ``split_batch_size`` bytes with the same records, in order.

        This batch does not change; see ``hand_over_to``. If it has sequence numbers, the parts share them, so that to
        the broker they are still the same write.

        Raises:
            IllegalStateError: the batch has no records.
        """
        # The size of a part is an estimate, so all records might fit into one part again. The batch would then be sent
        # and refused until it expires, as can happen in Java. So a part gets half of the records at most.
        most = (self.record_count + 1) // 2
        parts: list[ProducerBatch] = []
        part: ProducerBatch | None = None
        for record_batch in MemoryRecords(self.records).batches():
            for record in record_batch.records():
                fields = (record.timestamp, record.key, record.value, record.headers)
                if part is None or part.record_count == most or part.try_append(*fields, None) is None:
                    part = self._empty_part(record.key, record.value, record.headers, split_batch_size)
                    parts.append(part)
                    part.try_append(*fields, None)
        if not parts:
            raise IllegalStateError(f"{self} has no records to split")
        sequence = self.base_sequence
        for part in parts:
            part.may_be_written = self.may_be_written or self.attempts > 0
            if self.has_sequence:
                part.set_producer_state(self.producer_id, self.producer_epoch, sequence, self._builder.is_transactional)
                sequence = increment_sequence(sequence, part.record_count)
            # A requeued part may be the last of its queue and have room left. A record appended to it would get a
            # sequence number that the next batch gets too, and the broker would drop one of them as a duplicate.
            part.close()
        return parts

    def hand_over_to(self, parts: list[ProducerBatch]) -> None:
        """Move the futures of the records to ``parts``, which ``split`` returned."""
        places: list[tuple[int, ProduceRequestResult]] = []
        place = 0
        for part in parts:
            places.append((place, part.produce_future))
            place += part.record_count
        result = self.produce_future
        result.parts = places
        self.final_state = SPLIT
        result.split(places)

    def _empty_part(
        self, key: Buffer | None, value: Buffer | None, headers: Sequence[Header], batch_size: int
    ) -> ProducerBatch:
        builder = self._builder
        limit = max(
            batch_size, estimate_size_in_bytes_upper_bound(builder.magic, builder.compression, key, value, headers)
        )
        part = MemoryRecordsBuilder(magic=builder.magic, compression=builder.compression, write_limit=limit)
        return ProducerBatch(
            self.topic_partition, part, self.created_ms, True, self._clock, self.produce_future.sender_thread
        )

    @property
    def max_record_batch_size(self) -> int:
        """The size of a batch that contains only the largest record."""
        return self.max_record_size + RECORD_BATCH_OVERHEAD

    def __repr__(self) -> str:
        return f"ProducerBatch({self.topic_partition}, {self.record_count} records)"
