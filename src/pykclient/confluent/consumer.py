"""The consumer in confluent-kafka's shape."""

from __future__ import annotations

import re
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, TypeVar

from pykclient import errors
from pykclient.confluent.client import FORKED, Client, built
from pykclient.confluent.cluster_metadata import limit_ms
from pykclient.confluent.configuration import CONSUMER, Configuration
from pykclient.confluent.constants import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED
from pykclient.confluent.events import deadline_of, monotonic, remaining
from pykclient.confluent.kafka_error import (
    ConcurrentModificationException,
    KafkaError,
    KafkaException,
    error_of,
    failure,
    polled_too_late,
)
from pykclient.confluent.message import ConsumingState, Message, place_of
from pykclient.confluent.model import Progress
from pykclient.confluent.topic_partition import TopicPartition, encoded_group_metadata, metadata_of, wire_metadata
from pykclient.confluent.turns import SHARED_SLICE_S, Turns, in_turn
from pykclient.consumer import consumer_arguments
from pykclient.consumer.fetch_request_manager import FetchTicket
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.consumer.values import ConsumerRebalanceListener
from pykclient.system_time import monotonic_ms
from pykclient.types import ConsumerRecord, OffsetAndMetadata, TopicPartition as Native

T = TypeVar("T")

_CLOSED = "Consumer closed"
_BUSY = "Consumer is not safe for multi-threaded access"

#: The most messages of one call of ``consume``.
_MOST = 1_000_000
#: Records that are taken from the inner consumer at a time.
_CHUNK = 1000
#: The interval of the group's work while messages are buffered.
_TEND_MS = 100
#: Time that ``seek`` waits for the metadata of the topic.
_SEEK_MS = 2_000
#: Time for the commit of what was consumed when partitions are revoked.
_COMMIT_MS = 10_000
#: The timestamp of errors and events.
_NO_TIME = (0, -1)
_EAGER_ONLY = "Changes to the current assignment must be made using assign() when rebalance protocol type is EAGER"
_NOT_SUBSCRIBED = "Failed to set subscription: "
#: An unknown position.
_NOWHERE = OffsetAndMetadata(OFFSET_INVALID, "", -1)
#: librdkafka's offsets before the end: -2000 - n is n messages before it.
_TAIL = -2000


class _Listener(ConsumerRebalanceListener):
    """Passes rebalances of the inner consumer on.

    The heartbeat thread knows the listener. It does not keep the consumer alive, which may be dropped without
    ``close``: then the thread ends.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._find = weakref.ref(consumer)

    def on_partitions_assigned(self, assigned: set[Native]) -> None:
        if (consumer := self._find()) is not None:
            consumer.on_assigned(assigned)

    def on_partitions_revoked(self, revoked: set[Native]) -> None:
        if (consumer := self._find()) is not None:
            consumer.on_revoked(revoked, lost=False)

    def on_partitions_lost(self, lost: set[Native]) -> None:
        if (consumer := self._find()) is not None:
            consumer.on_revoked(lost, lost=True)


class Consumer(ConsumingState, Client):
    """A consumer with confluent-kafka's methods: ``poll`` returns one message, an error as a message, or None.

    Create it with a dict of librdkafka's properties, ``group.id`` among them. Properties and defaults are librdkafka's;
    see docs/from-confluent.md. Thread: any. Calls wait for each other, as far as ``poll`` and ``consume`` let others
    pass while they wait for messages.
    """

    _kind = "consumer"
    _inner: KafkaConsumer[Any, Any] | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create a consumer.

        Raises:
            KafkaException: a property is unknown, or has a wrong value.
            TypeError: there is no dict, or a callback cannot be called.
            ValueError: there is no ``group.id``.
        """
        configuration = Configuration(CONSUMER, args, kwargs)
        self.turns = Turns()
        self._hand = Lock()
        super().__init__(configuration)
        settings = configuration.native()
        settings["max.poll.records"] = _CHUNK
        self._inner = built(KafkaConsumer[Any, Any], settings, "Failed to create consumer: ")
        self._stores = configuration.flag("enable.auto.offset.store")
        self._commits = configuration.flag("enable.auto.commit")
        self._commit_interval_ms = configuration.number("auto.commit.interval.ms")
        self._reports_eof = configuration.flag("enable.partition.eof")
        self._poll_interval_ms = configuration.number("max.poll.interval.ms")
        is_classic = configuration.text("group.protocol") == "classic"
        self._reports_missing = is_classic
        self._cooperative = not is_classic or "cooperative-sticky" in configuration.strategies
        self._on_commit = configuration.callbacks.get("on_commit")
        self._on_assign: Callable[..., object] | None = None
        self._on_revoke: Callable[..., object] | None = None
        self._on_lost: Callable[..., object] | None = None
        #: Records that were fetched but not handed out: lists of one partition each, the first of them partly used.
        self._chunks: deque[tuple[Native, list[ConsumerRecord[Any, Any]]]] = deque()
        #: What the inner consumer has returned and is not among these yet.
        self._fetched: dict[Native, list[ConsumerRecord[Any, Any]]] | None = None
        self._current_partition: Native | None = None
        self._records, self._at, self._settled_at = [], 0, 0
        #: The next offset of each partition that a message was handed out of, and the offsets to commit.
        self._positions: dict[Native, OffsetAndMetadata] = {}
        self._stored: dict[Native, OffsetAndMetadata] = {}
        self._committed: dict[Native, OffsetAndMetadata] = {}
        #: The ends that were reported, and the fetches that confirm that nothing is behind a position.
        self._eof: dict[Native, int] = {}
        self._tickets: dict[Native, FetchTicket | None] = {}
        #: The partitions that the application has paused. As in librdkafka, assignments do not resume them.
        self._paused: set[Native] = set()
        self._subscribed = False
        #: The names that the next poll subscribes to once it has left the group.
        self._next_names: list[str] | None = None
        #: The names and patterns of the subscription; those that were reported as missing; those that the metadata of
        #: ``_checked_ms`` lacked.
        self._names: list[str] = []
        self._reported_missing: set[str] = set()
        self._missing: set[str] = set()
        self._checked_ms = 0
        #: Errors that wait for the application, and the partitions whose error it was told.
        self._errors: deque[Message[bytes, bytes]] = deque()
        self._failed: set[Native] = set()
        self._assigned: set[Native] = set()
        #: The offsets that partitions were assigned with, and the partitions of a new assignment about which
        #: ``on_assign`` has not decided yet.
        self._starts: dict[Native, int] = {}
        self._undecided: set[Native] = set()
        #: What is known of partitions, for as long as this consumer has them.
        self._tables: Any = (self._positions, self._stored, self._committed, self._eof, self._tickets, self._starts)
        self._in_callback = False
        now_ms = monotonic_ms()
        self._last_poll_ms = now_ms
        self._next_tend_ms = now_ms
        self._next_commit_ms = now_ms + self._commit_interval_ms
        self.begin_events()

    # --- subscription ----------------------------------------------------------------------------------------------

    @in_turn
    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., object] | None = None,
        on_revoke: Callable[..., object] | None = None,
        on_lost: Callable[..., object] | None = None,
    ) -> None:
        """Subscribe to topics, replacing any earlier subscription.

        A name that begins with ``^`` is a regular expression. The callbacks are called as
        ``callback(consumer, partitions)`` inside ``poll``, ``consume`` and ``close``.

        Raises:
            TypeError: ``topics`` is not a list of str, or a callback cannot be called.
            KafkaException: the list is empty, or no topic can have one of the names.
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        if not isinstance(topics, list):
            raise TypeError("expected list of topic unicode strings")
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable")
        names = [str(topic) for topic in topics]
        if not names or not all(names):
            raise failure(KafkaError._INVALID_ARG, f"{_NOT_SUBSCRIBED}Local: Invalid argument or configuration")
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost
        if not self._subscribed and self._assigned:
            self._call(inner.unsubscribe)
            self._forget(self._assigned)
            self._assigned = set()
        if self._next_names is None and not (self._subscribed and _has_pattern(names) != _has_pattern(self._names)):
            self._subscribe(inner, names)
        else:
            check = consumer_arguments.pattern if _has_pattern(names) else consumer_arguments.topics
            self._call(lambda: check(_pattern(names) if _has_pattern(names) else names), prefix=_NOT_SUBSCRIBED)
            self._change_in_poll(names)

    def _subscribe(self, inner: KafkaConsumer[Any, Any], names: list[str]) -> None:
        listener = _Listener(self)
        if _has_pattern(names):
            pattern = _pattern(names)
            self._call(lambda: inner.subscribe(pattern=pattern, listener=listener), prefix=_NOT_SUBSCRIBED)
        else:
            self._call(lambda: inner.subscribe(names, listener=listener), prefix=_NOT_SUBSCRIBED)
        self._subscribed = True
        self._names = names
        self._reported_missing.intersection_update(names)
        self._missing.clear()

    @in_turn
    def unsubscribe(self) -> None:
        """Leave the group, and give up its partitions: the next ``poll`` or ``consume`` does so, with the callbacks.

        Partitions of ``assign`` stay.

        Raises:
            RuntimeError: the consumer is closed.
        """
        self.inner()
        if self._subscribed:
            self._change_in_poll([])

    def _change_in_poll(self, names: list[str]) -> None:
        """Let the next poll leave the group and subscribe to ``names``, as callbacks run in no other call."""
        self._next_names = names
        self._drop_buffered()

    def _change(self) -> None:
        """Make the change of the subscription that waits for a poll, if there is one."""
        names = self._next_names
        if names is None or self._in_callback:
            return
        inner = self.inner()
        try:
            self._call(inner.unsubscribe)
        finally:
            self._subscribed = False
            self._names = []
            self._reported_missing.clear()
            self._drop_all()
        self._assigned = set()
        if names:
            self._subscribe(inner, names)
        if self._next_names is names:  # last, so that the next poll makes the change if a signal handler raises
            self._next_names = None

    def on_assigned(self, partitions: set[Native]) -> None:
        """Handle partitions that the group has assigned. Called by the inner consumer."""
        self._assigned = self._assigned | partitions if self._cooperative else set(partitions)
        if self._cooperative and not partitions:
            return
        self._forget(partitions)
        self._pause_again(self.inner(), partitions)
        if self._on_assign is None:
            return
        # Without a call of assign in the callback, librdkafka assigns all of them.
        self._undecided = set(partitions)
        shown = [TopicPartition(each.topic, each.partition) for each in sorted(partitions)]
        try:
            self._run_callback(self._on_assign, shown)
        finally:
            self._undecided = set()

    def on_revoked(self, partitions: set[Native], lost: bool) -> None:
        """Handle partitions that the group takes back. Called by the inner consumer."""
        self._settle()
        if not partitions and self._cooperative:
            return
        shown = [TopicPartition(each.topic, each.partition) for each in sorted(partitions)]
        callback = self._on_lost if lost and self._on_lost is not None else self._on_revoke
        if callback is not None:
            self._run_callback(callback, shown)
        if not lost and self._commits:
            self._commit_on_revoke(partitions)
        self._assigned -= partitions
        self._forget(partitions)

    def _run_callback(self, callback: Callable[..., object], partitions: list[TopicPartition]) -> None:
        outer, self._in_callback = self._in_callback, True
        try:
            callback(self, partitions)
        except BaseException as error:  # noqa: BLE001 - raised once the rebalance is complete
            self._raised = error
        finally:
            self._in_callback = outer

    def _commit_on_revoke(self, partitions: set[Native]) -> None:
        offsets = {tp: place for tp, place in self._uncommitted().items() if tp in partitions}
        inner = self._inner
        if not offsets or inner is None:
            return
        error: KafkaError | None = None
        try:
            inner.commit(offsets, timeout_ms=_COMMIT_MS)
            self._committed.update(offsets)
        except errors.KafkaError as raised:
            error = error_of(raised)
        self._tell_commit(error, offsets)

    # --- assignment ------------------------------------------------------------------------------------------------

    @in_turn
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these partitions, from their offsets.

        Inside ``on_assign`` this accepts the group's assignment, and may change the offsets to start at.

        Raises:
            TypeError: ``partitions`` is not a list of TopicPartition.
            KafkaException: an offset is invalid, a partition is there twice, or the group's assignor is cooperative.
            RuntimeError: the consumer is closed.
        """
        self.inner()
        wanted, prefix = _checked(partitions), "Failed to set assignment: "
        if len(set(map(_native, wanted))) < len(wanted) or any(not _is_start(each.offset) for each in wanted):
            raise failure(KafkaError._INVALID_ARG, f"{prefix}Local: Invalid argument or configuration")
        self._assign(wanted, prefix)

    @in_turn
    def unassign(self, *_: Any) -> None:
        """Stop reading all partitions. Arguments are ignored, as in confluent-kafka.

        Raises:
            RuntimeError: the consumer is closed.
        """
        self._assign([], "Failed to remove assignment: ")

    def _assign(self, wanted: list[TopicPartition], prefix: str) -> None:
        """Read exactly these partitions. ``prefix`` begins the texts of errors."""
        inner = self.inner()
        natives = [_native(each) for each in wanted]
        self._change()
        if self._subscribed:
            self._check_protocol(inner, True, f"{prefix}Local: Erroneous state")
            self._accept(inner, wanted, set(natives))
            return
        self._settle()
        self._call(inner.unsubscribe)
        self._drop_all()
        if natives:
            self._call(lambda: inner.assign(natives), prefix=prefix)
        self._assigned = set(natives)
        self._pause_again(inner, self._assigned)
        self._seek_all(inner, wanted)

    @in_turn
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, too, from their offsets.

        Raises:
            TypeError: ``partitions`` is not a list of TopicPartition.
            KafkaException: one of them is assigned already.
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        wanted = _checked(partitions)
        natives = set(map(_native, wanted))
        self._change()
        if self._subscribed:
            self._check_protocol(inner, False, _EAGER_ONLY)
            self._accept(inner, wanted, self._assigned - self._undecided | natives)
            return
        for each in sorted(natives & self._assigned):
            raise failure(
                KafkaError._CONFLICT, f"{each.topic} [{each.partition}] is already part of the current assignment"
            )
        self._assigned |= natives
        self._call(lambda: inner.assign(self._assigned))
        self._pause_again(inner, natives)
        self._seek_all(inner, wanted)

    @in_turn
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop reading these partitions.

        Raises:
            TypeError: ``partitions`` is not a list of TopicPartition.
            KafkaException: one of them is not assigned.
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        natives = {_native(each) for each in _checked(partitions)}
        self._change()
        if self._subscribed:
            self._check_protocol(inner, False, _EAGER_ONLY)
        for each in sorted(natives - self._assigned):
            raise failure(
                KafkaError._INVALID_ARG,
                f"{each.topic} [{each.partition}] can't be unassigned since it is not in the current assignment",
            )
        self._settle()
        if self._subscribed:
            self._assigned -= natives
            self._forget(natives)
            if not self._in_callback:
                self._call(lambda: inner.pause(*natives))
            return
        if self._commits:
            self._commit_on_revoke(natives)
        self._assigned -= natives
        self._call(lambda: inner.assign(self._assigned))
        self._forget(natives)

    def _check_protocol(self, inner: KafkaConsumer[Any, Any], eager: bool, refusal: str) -> None:
        """Raise _STATE if the group's assignment cannot be changed in this way: as a whole if it is ``eager``."""
        if self._cooperative is eager and (self._in_callback or inner.assignment()):
            raise failure(KafkaError._STATE, refusal)

    def _accept(self, inner: KafkaConsumer[Any, Any], wanted: list[TopicPartition], kept: set[Native]) -> None:
        """Let the assignment be ``kept``, of what the group has assigned, and seek to the offsets of ``wanted``."""
        own = inner.assignment()
        self._undecided = set()
        self._seek_all(inner, [each for each in wanted if _native(each) in own])
        self._resume_given(inner, kept & own)
        if own - kept:
            self._drop(own - kept)
            self._call(lambda: inner.pause(*(own - kept)))
        self._assigned = kept & own

    def _resume_given(self, inner: KafkaConsumer[Any, Any], natives: set[Native]) -> None:
        paused = natives & inner.paused() - self._paused
        if paused and not self._in_callback:
            self._call(lambda: inner.resume(*paused))

    def _pause_again(self, inner: KafkaConsumer[Any, Any], natives: set[Native]) -> None:
        again = natives & self._paused
        if again:
            self._call(lambda: inner.pause(*again))

    def _seek_all(self, inner: KafkaConsumer[Any, Any], partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._starts[_native(each)] = OFFSET_STORED if each.offset == OFFSET_INVALID else each.offset
            if each.offset not in {OFFSET_INVALID, OFFSET_STORED}:
                self._seek(inner, each)

    def _seek(self, inner: KafkaConsumer[Any, Any], target: TopicPartition) -> None:
        native, offset, reset = _native(target), target.offset, inner.config["auto.offset.reset"]
        if offset >= 0:
            place = OffsetAndMetadata(offset, "", _epoch(target.leader_epoch))
            self._call(lambda: inner.seek(native, place))
        elif offset == OFFSET_BEGINNING or (offset == OFFSET_INVALID and reset == "earliest"):
            self._call(lambda: inner.seek_to_beginning(native))
        elif offset == OFFSET_END or (offset == OFFSET_INVALID and reset == "latest"):
            self._call(lambda: inner.seek_to_end(native))
        elif offset <= _TAIL:
            end = self._call(lambda: inner.end_offsets([native]))[native]
            start = self._call(lambda: inner.beginning_offsets([native]))[native]
            self._call(lambda: inner.seek(native, max(start, end + offset - _TAIL)))
        else:
            text = KafkaError(KafkaError._INVALID_ARG).str()
            raise failure(KafkaError._INVALID_ARG, f"Failed to seek to offset {offset}: {text}")
        self._drop({native})  # after the seek: if a signal handler raises in between, messages come again
        self._positions.pop(native, None)
        self._eof.pop(native, None)
        self._tickets.pop(native, None)
        self._failed.discard(native)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions with the offsets of their assignment; OFFSET_STORED where none was given.

        Raises:
            RuntimeError: the consumer is closed.
        """
        self.inner()
        starts = self._starts
        return [
            TopicPartition(each.topic, each.partition, starts.get(each, OFFSET_STORED))
            for each in sorted(self._assigned)
        ]

    # --- messages --------------------------------------------------------------------------------------------------

    def _poll(self, timeout: float, now_ms: int) -> Message[bytes, bytes] | None:
        found: list[Message[bytes, bytes]] = []
        try:
            self._take(found, 1, timeout, now_ms)
            return found[0] if found else None
        except BaseException:
            self._take_back(found)
            raise

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message[bytes, bytes]]:
        """Return up to ``num_messages`` messages; wait up to ``timeout`` seconds for the first ones.

        Raises:
            ValueError: ``num_messages`` is not from 0 to 1,000,000.
            RuntimeError: the consumer is closed.
        """
        if self._inner is None:
            raise RuntimeError(_CLOSED)
        if not isinstance(num_messages, int):
            raise TypeError(f"{type(num_messages).__name__!r} object cannot be interpreted as an integer")
        if not 0 <= num_messages <= _MOST:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        found: list[Message[bytes, bytes]] = []
        try:
            if num_messages:
                self._take(found, num_messages, timeout, monotonic_ms())
            return found
        except BaseException:
            self._take_back(found)
            raise

    @in_turn
    def _take_back(self, found: list[Message[bytes, bytes]]) -> None:
        """Let later calls return ``found``, because the call that took these messages raises."""
        taken = []
        for message in reversed(found):
            error = message.error()
            if error is None:
                taken.append(message)
            elif error == KafkaError._PARTITION_EOF:
                topic, number, _ = place_of(message)
                self._eof.pop(Native(topic, number), None)
            else:
                self._errors.appendleft(message)
        if taken and self._inner is not None:
            self.give_back(taken)

    @in_turn
    def _take(self, found: list[Message[bytes, bytes]], wanted: int, timeout: float, now_ms: int) -> None:
        """Add up to ``wanted`` messages to ``found``, after the work that is due."""
        self.inner()
        deadline = deadline_of(timeout)
        exceeded = self._exceeded(now_ms)
        if exceeded is not None:
            found.append(exceeded)
            return
        patience = monotonic() + 0.2
        while True:
            self._change()
            self._tend(now_ms)
            if self.events.serve() and self._inner is None:
                raise RuntimeError(_CLOSED)
            self._raise_callback_error()
            self._hand_out(found, wanted)
            if len(found) >= wanted:
                break
            if found and monotonic() >= patience:
                break
            eof = self._next_eof()
            if eof is not None:
                found.append(eof)
                continue
            left = remaining(deadline)
            error = self._fetch(left if not found else min(left, 0.05), wanted)
            if self._raised is not None:
                if error is not None:
                    self._errors.appendleft(error)
                self._raise_callback_error()
            if error is not None:
                found.append(error)
                break
            self.turns.pass_on()
            if left <= 0 and not self._chunks and not len(self.events):
                eof = self._next_eof()
                if eof is not None:
                    found.append(eof)
                break
            now_ms = monotonic_ms()
        self._last_poll_ms = monotonic_ms()

    def _hand_out(self, found: list[Message[bytes, bytes]], wanted: int) -> None:
        while len(found) < wanted:
            before = len(found)
            self._hand_out_current(found, wanted)
            if len(found) >= wanted:
                return
            self._settle()
            self._file_fetched()
            if not self._chunks:
                self._go_on_with(None, [])
                return
            partition, records = self._chunks[0]
            self._records = []  # as in _go_on_with()
            self._current_partition, self._at, self._settled_at = partition, 0, 0
            self._records = records
            del self._chunks[0]  # no call since it was looked up, so a signal handler cannot raise in between
            if self._reports_eof and len(found) > before:
                eof = self._next_eof()
                if eof is not None:
                    found.append(eof)

    def _exceeded(self, now_ms: int) -> Message[bytes, bytes] | None:
        late_ms = now_ms - self._last_poll_ms - self._poll_interval_ms
        if late_ms <= 0 or not self._subscribed:
            return None
        self._last_poll_ms = now_ms
        return _error_message(polled_too_late(self._poll_interval_ms, late_ms))

    def _fetch(self, wait_s: float, wanted: int) -> Message[bytes, bytes] | None:
        """Poll the inner consumer; return an error as a message."""
        inner = self.inner()
        if not self._subscribed and not self._assigned:
            self.events.wait(wait_s)
            return None
        if self.looks:
            wait_s = min(wait_s, 0.1)
        if self.turns.is_shared:
            wait_s = min(wait_s, SHARED_SLICE_S)
        try:
            self._fetched = inner.poll(int(wait_s * 1000 + 0.999), max_records=max(_CHUNK, wanted))
        except errors.ConcurrentModificationError as error:
            raise ConcurrentModificationException(_BUSY) from error
        except errors.AuthenticationError as error:
            self.report_error(error_of(error))
            self.events.wait(wait_s)
            return None
        except errors.NoOffsetForPartitionError as error:
            return self._reset_error(error, dict.fromkeys(error.partitions), wait_s)
        except errors.OffsetOutOfRangeError as error:
            return self._reset_error(error, error.offset_out_of_range_partitions, wait_s)
        except errors.WakeupError:
            return None
        except errors.KafkaError as error:
            if self._raised is not None:
                return None
            found = error_of(error)
            if found.fatal():
                raise KafkaException(found) from error
            return _error_message(found)
        if self._reports_missing and self._names and not self._fetched:
            self._look_for_topics(inner)
        self._file_fetched()
        return self._errors.popleft() if self._errors else None

    def _file_fetched(self) -> None:
        """Add what the inner consumer has returned to the chunks. A signal handler that raises loses none of it."""
        fetched = self._fetched
        if fetched is not None:
            self._chunks = deque([*self._chunks, *fetched.items()])
            self._fetched = None

    def _reset_error(
        self, error: Exception, partitions: Mapping[Native, int | None], wait_s: float
    ) -> Message[bytes, bytes] | None:
        """Return the error of a partition that has no offset to start at: once for each, until a seek."""
        for native in sorted(partitions.keys() - self._failed):
            self._failed.add(native)
            offset = partitions[native]
            place = (native.topic, native.partition, OFFSET_INVALID if offset is None else offset)
            self._errors.append(_error_message(error_of(error, KafkaError._AUTO_OFFSET_RESET), *place))
        if self._errors:
            return self._errors.popleft()
        self.events.wait(wait_s)  # the inner consumer raises it again at once
        return None

    def _look_for_topics(self, inner: KafkaConsumer[Any, Any]) -> None:
        """Add errors for topics of the subscription that the cluster does not have, once for each."""
        metadata = inner._consumer.components.metadata
        updated_ms = metadata.last_successful_update
        if updated_ms == self._checked_ms:
            return
        self._checked_ms = updated_ms
        topics = metadata.fetch().topics
        missing = {
            name
            for name in self._names
            if (not any(map(re.compile(name).match, topics)) if name.startswith("^") else name not in topics)
        }
        self._reported_missing &= missing
        # While another update is requested, this one may have been requested before subscribe().
        sure = missing & self._missing if metadata.update_requested else missing
        for name in sorted(sure - self._reported_missing):
            self._reported_missing.add(name)
            text = f"Subscribed topic not available: {name}: Broker: Unknown topic or partition"
            self._errors.append(_error_message(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, text), name))
        self._missing = missing

    def _tend(self, now_ms: int) -> None:
        """Perform the work that is due: the group's work while messages are buffered, automatic commits, statistics."""
        if now_ms < self._next_tend_ms:
            return
        self._next_tend_ms = now_ms + _TEND_MS
        inner = self._inner
        if inner is None:
            return
        if self.looks:
            self.look()
        if self._commits and now_ms >= self._next_commit_ms:
            self._next_commit_ms = now_ms + self._commit_interval_ms
            offsets = self._uncommitted()
            if offsets:
                self._commit_async(inner, offsets)
        at_hand = self._current_partition is not None or self._chunks
        if at_hand and self._subscribed and not self._in_callback:
            try:
                inner.poll(0, max_records=1, update_offsets=False)
            except errors.ConcurrentModificationError as error:
                raise ConcurrentModificationException(_BUSY) from error
            except errors.KafkaError as error:  # the next fetch raises it again if it lasts
                if isinstance(error, errors.AuthenticationError):
                    self.report_error(error_of(error))

    def _next_eof(self) -> Message[bytes, bytes] | None:
        """Return the event of a partition whose end was reached, each end once."""
        if not self._reports_eof or self._chunks:
            return None
        inner = self.inner()
        paused = inner.paused()
        for native in sorted(self._assigned - paused):
            if native == self._current_partition:
                continue
            high = inner.highwater(native)
            if high is not None and self._eof.get(native) == high:
                continue
            try:
                position = inner.position(native, timeout_ms=0)
                lag = inner.current_lag(native)
            except errors.KafkaError:
                continue
            is_end = high is None or lag == 0 or position == high
            if is_end and self._found_nothing(inner, native, position) and high is not None:
                leader = inner._consumer.components.metadata.fetch().leader_for(native)
                broker = -1 if leader is None else leader.id
                text = f"Fetch from broker {broker} reached end of partition at offset {position}"
                text += f" (HighwaterMark {high})"
                error = KafkaError(KafkaError._PARTITION_EOF, text)
                event = _error_message(error, native.topic, native.partition, position)
                self._eof[native] = high
                return event
        return None

    def _found_nothing(self, inner: KafkaConsumer[Any, Any], native: Native, position: int) -> bool:
        """Return whether a fetch from ``position``, the end as far as was known, has found nothing."""
        fetches = inner._consumer.components.fetches
        ticket = fetches.look_behind(native, position, self._tickets.get(native))
        self._tickets[native] = ticket
        return ticket is None

    # --- buffered messages -----------------------------------------------------------------------------------------

    def _go_on_with(self, partition: Native | None, records: list[ConsumerRecord[Any, Any]]) -> None:
        self._settle()
        self._records = []  # until all is consistent, as another thread may take a message that is at hand
        self._current_partition, self._at, self._settled_at = partition, 0, 0
        self._records = records

    def _settle(self) -> None:
        """Note the position after the message that was handed out last."""
        native = self._current_partition
        if native is None or self._at == self._settled_at:
            return
        at = self._at
        last = self._records[at - 1]
        place = self._positions[native] = OffsetAndMetadata(last.offset + 1, "", _epoch(last.leader_epoch))
        if self._stores:
            self._stored[native] = place
        self._settled_at = at

    def _uncommitted(self) -> dict[Native, OffsetAndMetadata]:
        self._settle()
        committed = self._committed
        return {tp: place for tp, place in self._stored.items() if committed.get(tp) != place}

    def _drop(self, partitions: set[Native]) -> None:
        """Drop the buffered messages of these partitions."""
        with self._hand:
            self._next_tend_ms = 0  # another thread that wants a message at hand waits for its turn from now on
        self._settle()
        if self._current_partition in partitions:
            self._go_on_with(None, [])
        self._file_fetched()
        if any(native in partitions for native, _ in self._chunks):
            self._chunks = deque(chunk for chunk in self._chunks if chunk[0] not in partitions)

    def _buffered(self, partitions: set[Native]) -> dict[Native, int]:
        """Return the offsets of the first buffered message of these partitions."""
        first: dict[Native, int] = {}
        if self._current_partition in partitions and self._at < len(self._records):
            first[self._current_partition] = self._records[self._at].offset
        self._file_fetched()
        for native, records in self._chunks:
            if native in partitions and records:
                first.setdefault(native, records[0].offset)
        return first

    def _forget(self, partitions: set[Native]) -> None:
        """Drop all that is known of partitions that this consumer no longer has."""
        self._drop(partitions)
        for table in self._tables:
            for native in partitions:
                table.pop(native, None)
        self._failed -= partitions

    def _drop_buffered(self) -> None:
        self._settle()
        self._fetched = None
        self._chunks.clear()
        self._go_on_with(None, [])

    def _drop_all(self) -> None:
        self._drop_buffered()
        for table in self._tables:
            table.clear()
        self._failed.clear()
        self._errors.clear()

    # --- offsets ---------------------------------------------------------------------------------------------------

    @in_turn
    def store_offsets(
        self, message: Message[Any, Any] | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store the offset after ``message``, or ``offsets``, for the next commit.

        Raises:
            ValueError: both arguments are given, or none.
            KafkaException: ``enable.auto.offset.store`` is on, or a partition is not assigned.
            RuntimeError: the consumer is closed.
        """
        self.inner()
        _check_exclusive(message, offsets)
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        wanted = _checked(offsets) if message is None else [_after(message, "store")]
        if self._stores:
            raise failure(KafkaError._INVALID_ARG, "StoreOffsets failed: Local: Invalid argument or configuration")
        if not any(_native(each) in self._assigned for each in wanted):
            code = self._code_of_unassigned(wanted[0].topic) if wanted else KafkaError._STATE
            raise failure(code, f"StoreOffsets failed: {KafkaError(code).str()}")
        for each in wanted:
            if _native(each) in self._assigned:
                self._stored[_native(each)] = _place(each)
            else:
                each.error = KafkaError(KafkaError._STATE)

    @in_turn
    def commit(
        self,
        message: Message[Any, Any] | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
        **kwargs: Any,
    ) -> list[TopicPartition] | None:
        """Commit the offset after ``message``, ``offsets``, or what was consumed or stored since the last commit.

        With ``asynchronous=False`` wait for the result and return the partitions; otherwise return None, and a later
        ``poll`` calls ``on_commit``.

        Raises:
            ValueError: both ``message`` and ``offsets`` are given.
            KafkaException: the commit failed; ``_NO_OFFSET`` if there is nothing to commit.
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        if "async" in kwargs:
            asynchronous = bool(kwargs.pop("async"))
        if kwargs:
            raise TypeError(f"{next(iter(kwargs))!r} is an invalid keyword argument for commit()")
        _check_exclusive(message, offsets)
        if offsets is not None:
            places = {_native(each): _place(each) for each in _checked(offsets) if each.offset >= 0}
        elif message is not None:
            after = _after(message, "commit")
            places = {_native(after): _place(after)} if after.offset >= 0 else {}
        else:
            places = self._uncommitted()
        if not places:
            if not asynchronous:
                raise failure(KafkaError._NO_OFFSET, "Commit failed: Local: No offset stored")
            self._tell_commit(KafkaError(KafkaError._NO_OFFSET), {})
            return None
        if asynchronous:
            self._commit_async(inner, places)
            return None
        self._call(lambda: inner.commit(places), prefix="Commit failed: ")
        self._committed.update({tp: place for tp, place in places.items() if self._stored.get(tp) == place})
        return _shown(places)

    def _commit_async(self, inner: KafkaConsumer[Any, Any], places: dict[Native, OffsetAndMetadata]) -> None:
        def tell(_offsets: object, error: Exception | None) -> None:
            if error is None:
                self._committed.update({tp: place for tp, place in places.items() if self._stored.get(tp) == place})
            self._tell_commit(None if error is None else error_of(error), places)

        self._call(lambda: inner.commit_async(places, tell), prefix="Commit failed: ")

    def _tell_commit(self, error: KafkaError | None, places: dict[Native, OffsetAndMetadata]) -> None:
        callback = self._on_commit
        if callback is None:
            return
        partitions = _shown(places)
        for partition in partitions:
            partition.error = error
        self.events.put(lambda: callback(error, partitions))

    @in_turn
    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the committed offsets; OFFSET_INVALID where there is none.

        Raises:
            KafkaException: the offsets did not arrive within ``timeout`` seconds.
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        wanted = _checked(partitions)
        natives = [_native(each) for each in wanted]
        found = self._call(
            lambda: inner.committed(natives, timeout_ms=limit_ms(timeout)), prefix="Failed to get committed offsets: "
        )
        return [_shown_place(native, found.get(native) or _NOWHERE) for native in natives]

    @in_turn
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the messages that were consumed last; OFFSET_INVALID where there is none.

        Raises:
            RuntimeError: the consumer is closed.
        """
        self.inner()
        self._settle()
        natives = map(_native, _checked(partitions))
        return [_shown_place(native, self._positions.get(native, _NOWHERE)) for native in natives]

    @in_turn
    def seek(self, partition: TopicPartition) -> None:
        """Go to the offset of ``partition``.

        Raises:
            TypeError: this is no TopicPartition.
            KafkaException: the partition is not assigned, or no broker has answered within 2 seconds.
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        if not isinstance(partition, TopicPartition):
            raise TypeError("expected confluent_kafka.TopicPartition")
        prefix = f"Failed to seek to offset {partition.offset}: "
        if _native(partition) not in inner.assignment():
            code = self._code_of_unassigned(partition.topic)
            raise failure(code, f"{prefix}{KafkaError(code).str()}")
        if not self._positions:  # there may have been no broker so far
            try:
                inner.partitions_for(partition.topic, timeout_ms=_SEEK_MS)
            except errors.KafkaError as error:
                raise failure(KafkaError._STATE, f"{prefix}{KafkaError(KafkaError._STATE).str()}") from error
        self._seek(inner, partition)

    def _code_of_unassigned(self, topic: str) -> int:
        known = any(each.topic == topic for each in self._assigned)
        return int(KafkaError._STATE if known else KafkaError._UNKNOWN_PARTITION)

    @in_turn
    def give_back(self, messages: list[Message[bytes, bytes]]) -> None:
        """Undo that these messages, the last that were handed out, were handed out: later calls return them again."""
        first: dict[Native, int] = {}
        for message in messages:
            topic, number, offset = place_of(message)
            native = Native(topic, number)
            first[native] = min(offset, first.get(native, offset))
        inner = self.inner()
        self._settle()
        begin = self._at - len(messages)
        for native in first.keys() & inner.assignment():
            offset = first[native]
            if native == self._current_partition and begin >= 0 and self._records[begin].offset == offset:
                self._at = self._settled_at = begin  # they are still at hand
            else:
                self._seek(inner, TopicPartition(native.topic, native.partition, offset))
            self._positions[native] = OffsetAndMetadata(offset, "", -1)
            if self._stores and native in self._stored:
                self._stored[native] = self._positions[native]

    @in_turn
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no messages of these partitions until ``resume``.

        Raises:
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        natives = {_native(each) for each in _checked(partitions)} & inner.assignment()
        self._paused |= natives
        if natives:
            self._call(lambda: inner.pause(*natives), prefix="Failed to pause partitions: ")
        with self._hand:
            self._next_tend_ms = 0  # as in _drop()
        for native, offset in self._buffered(natives).items():
            self._call(lambda native=native, offset=offset: inner.seek(native, offset))  # type: ignore[misc]
        self._drop(natives)  # after the seek: if a signal handler raises in between, messages come again

    @in_turn
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Return messages of these partitions again.

        Raises:
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        natives = {_native(each) for each in _checked(partitions)}
        self._paused -= natives
        natives &= inner.assignment()
        if natives:
            self._call(lambda: inner.resume(*natives), prefix="Failed to resume partitions: ")

    @in_turn
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Return the first offset of ``partition`` and the one after its last message.

        With ``cached`` they are those of the last fetch, and OFFSET_INVALID if there was none.

        Raises:
            TypeError: this is no TopicPartition.
            KafkaException: the offsets did not arrive within ``timeout`` seconds.
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        if not isinstance(partition, TopicPartition):
            raise TypeError("expected confluent_kafka.TopicPartition")
        native = _native(partition)
        if cached:
            return self._cached_watermarks(inner, native)
        prefix = "Failed to get watermark offsets: "
        limit = limit_ms(timeout)
        self._existing(inner, {native}, limit, prefix)
        low = self._call(lambda: inner.beginning_offsets([native], timeout_ms=limit), prefix=prefix)[native]
        high = self._call(lambda: inner.end_offsets([native], timeout_ms=limit), prefix=prefix)[native]
        return low, high

    def _cached_watermarks(self, inner: KafkaConsumer[Any, Any], native: Native) -> tuple[int, int]:
        if native not in inner.assignment():
            return OFFSET_INVALID, OFFSET_INVALID
        start, end = inner._consumer.components.subscriptions.log_start_offset(native), inner.highwater(native)
        return OFFSET_INVALID if start is None else start, OFFSET_INVALID if end is None else end

    @in_turn
    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the first offsets at or after the times that the partitions have as offsets, in milliseconds.

        A partition without one gets OFFSET_END, and one that does not exist an ``error``.

        Raises:
            KafkaException: none of the partitions exists, or the offsets did not arrive within ``timeout`` seconds.
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        wanted = _checked(partitions)
        prefix = "Failed to get offsets: "
        if not wanted:
            raise failure(KafkaError._INVALID_ARG, f"{prefix}Local: Invalid argument or configuration")
        limit = limit_ms(timeout)
        existing = self._existing(inner, set(map(_native, wanted)), limit, prefix)
        times = {_native(each): each.offset for each in wanted if _native(each) in existing}
        found = self._call(lambda: inner.offsets_for_times(times, timeout_ms=limit), prefix=prefix)
        result = []
        for each in wanted:
            made = TopicPartition(each.topic, each.partition, each.offset)
            place = found.get(_native(each))
            if _native(each) not in existing:
                made.error = KafkaError(KafkaError._UNKNOWN_PARTITION)
            elif place is None:
                made.offset = OFFSET_END
            else:
                made = TopicPartition(each.topic, each.partition, place.offset, leader_epoch=place.leader_epoch)
            result.append(made)
        return result

    def _existing(
        self, inner: KafkaConsumer[Any, Any], natives: set[Native], timeout_ms: float | None, prefix: str
    ) -> set[Native]:
        """Return those of ``natives`` that the cluster has. Raises KafkaException if it has none of them."""
        existing = set()
        for topic in {native.topic for native in natives}:
            infos = self._call(lambda topic=topic: inner.partitions_for(topic, timeout_ms=timeout_ms), prefix=prefix)  # type: ignore[misc]
            existing |= {Native(topic, info.partition) for info in infos}
        if not existing & natives:
            raise failure(KafkaError._UNKNOWN_PARTITION, f"{prefix}Local: Unknown partition")
        return existing & natives

    # --- the group, the cluster and the end ------------------------------------------------------------------------

    def memberid(self) -> str | None:
        """Return the id of this member of the group; None without one.

        Raises:
            RuntimeError: the consumer is closed.
        """
        inner = self.inner()
        return inner.group_metadata().member_id or None

    def consumer_group_metadata(self) -> bytes:
        """Return the membership, for ``Producer.send_offsets_to_transaction``.

        Raises:
            RuntimeError: the consumer is closed.
        """
        return encoded_group_metadata(self.inner().group_metadata())

    def progress(self) -> list[Progress]:
        """Return how far this consumer is, by partition, for the statistics."""
        inner = self.inner()
        self._settle()
        at_hand: dict[Native, int] = {}
        for native, records in self._chunks:
            at_hand[native] = at_hand.get(native, 0) + len(records)
        rows = []
        for native in sorted(self._assigned & inner.assignment()):
            low, high = self._cached_watermarks(inner, native)
            rows.append(
                Progress(
                    native.topic,
                    native.partition,
                    at_hand.get(native, 0),
                    self._positions.get(native, _NOWHERE).offset,
                    self._stored.get(native, _NOWHERE),
                    self._committed.get(native, _NOWHERE),
                    low,
                    high,
                )
            )
        return rows

    def network_client(self) -> Any:
        inner = self._inner
        return None if inner is None else inner._consumer.components.client.network

    def statistics(self) -> str:
        from pykclient.confluent.statistics import of_consumer

        return of_consumer(self)

    def ensure_open(self) -> None:
        if self._inner is None:
            raise RuntimeError("Handle has been closed")

    @in_turn
    def close(self) -> None:
        """Commit what was consumed if commits are automatic, leave the group, and release all resources.

        The callback for revoked partitions is called. A second call does nothing.

        Raises:
            KafkaException: a rebalance callback calls this. Nothing is closed.
            ConcurrentModificationException: another thread uses the consumer. Nothing is closed.
        """
        inner = self._inner
        if inner is None:
            return
        self._settle()
        if self._commits and not self._subscribed:
            self._commit_on_revoke(set(self._stored))
        try:
            self._call(lambda: inner.close(autocommit=False))
            self._error_cb = None  # an earlier error of a connection must not be raised by a close that succeeded
            self.events.serve()
        finally:
            if inner._guard.closed:  # not in a callback, or while another thread polls
                self._inner = None
                self._drop_all()
                self.release()
        self._raise_callback_error()

    def is_closed(self) -> bool:
        """Return whether ``close`` has released all resources."""
        return self._inner is None

    def inner(self) -> KafkaConsumer[Any, Any]:
        """Return the consumer that does the work.

        Raises:
            RuntimeError: the consumer is closed.
            KafkaException: it was made before ``fork()``.
        """
        inner = self._inner
        if inner is None:
            raise RuntimeError(_CLOSED)
        if self.is_forked:
            raise failure(KafkaError._STATE, FORKED)
        return inner

    def forget_parent(self) -> None:
        super().forget_parent()
        self.turns, self._hand = Turns(), Lock()  # a thread that the child does not have may hold them
        self._records, self._at = [], 0

    def _call(self, call: Callable[[], T], prefix: str = "") -> T:
        """Call the inner consumer; turn its errors into confluent-kafka's."""
        try:
            return call()
        except errors.ConcurrentModificationError as error:
            raise ConcurrentModificationException(_BUSY) from error
        except errors.KafkaError as error:
            if self._raised is not None:
                self._raise_callback_error()
            raise KafkaException(error_of(error, prefix=prefix)) from error


def _error_message(
    error: KafkaError, topic: str | None = None, partition: int = 0, offset: int = OFFSET_INVALID
) -> Message[bytes, bytes]:
    """Return an error or event as a message, whose value is its text."""
    return Message(topic, partition, offset, value=error.str().encode(), timestamp=_NO_TIME, error=error)


def _check_exclusive(message: object, offsets: object) -> None:
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")


def _is_start(offset: int) -> bool:
    return offset >= 0 or offset <= _TAIL or offset in {OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED}


def _native(partition: TopicPartition) -> Native:
    return Native(partition.topic, partition.partition)


def _place(partition: TopicPartition) -> OffsetAndMetadata:
    return OffsetAndMetadata(partition.offset, wire_metadata(partition.metadata), _epoch(partition.leader_epoch))


def _epoch(epoch: int | None) -> int:
    return -1 if epoch is None else epoch


def _shown(places: dict[Native, OffsetAndMetadata]) -> list[TopicPartition]:
    return [_shown_place(native, place) for native, place in sorted(places.items())]


def _shown_place(native: Native, place: OffsetAndMetadata) -> TopicPartition:
    metadata = metadata_of(place.metadata)
    return TopicPartition(native.topic, native.partition, place.offset, metadata, place.leader_epoch)


def _after(message: Any, verb: str) -> TopicPartition:
    if not isinstance(message, Message):
        raise TypeError("expected confluent_kafka.cimpl.Message")
    error = message.error()
    if error is not None:
        raise failure(KafkaError._INVALID_ARG, f"Cannot {verb} offsets for message with error: '{error.str()}'")
    topic, partition, offset = place_of(message)
    return TopicPartition(topic, partition, offset + 1, leader_epoch=message.leader_epoch())


def _checked(partitions: Any) -> list[TopicPartition]:
    if not isinstance(partitions, list):
        raise TypeError("requires list of TopicPartition")
    for each in partitions:
        if not isinstance(each, TopicPartition):
            raise TypeError("expected confluent_kafka.cimpl.TopicPartition")
    return partitions


def _has_pattern(names: list[str]) -> bool:
    return any(name.startswith("^") for name in names)


def _pattern(names: list[str]) -> str:
    """Return one pattern for whole names that stands for names and librdkafka's regular expressions."""
    parts = [f"(?:{name}.*)" if name.startswith("^") else re.escape(name) for name in names]
    return "|".join(parts)
