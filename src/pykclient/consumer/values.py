"""Values that applications give to consumers: patterns, listeners, interceptors, and the settings for fetching.

Java: FetchConfig, and AutoOffsetResetStrategy for ``auto.offset.reset`` (KIP-1106).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from pykclient.argument_values import shown
from pykclient.config.validators import parse_iso_duration_ms
from pykclient.errors import IllegalArgumentError
from pykclient.network.failures import raise_if_of_signal_handler
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig
    from pykclient.log_context import LogContext
    from pykclient.types import OffsetAndMetadata, TopicPartition


#: Syntax of Python's expressions that RE2/J, which the brokers use, lacks.
_NOT_IN_RE2 = (
    (re.compile(r"\(\?<?[=!]"), "a lookahead or lookbehind"),
    (re.compile(r"\\[1-9]|\(\?P="), "a backreference"),
    (re.compile(r"\(\?\("), "a condition"),
    (re.compile(r"\(\?>"), "an atomic group"),
    (re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\+"), "a possessive quantifier"),
    (re.compile(r"\(\?#"), "a comment"),
    (re.compile(r"\(\?[imsU-]*[aLux]"), "a flag of Python"),
    (re.compile(r"\\Z"), r"\Z, which is \z there"),
)
_ESCAPED_OR_CLASS = re.compile(r"\\\\|\[\^?\]?(?:\\.|[^\]\\])*\]")


class SubscriptionPattern:
    """A regular expression in the syntax of RE2/J, for ``KafkaConsumer.subscribe`` with ``group.protocol=consumer``.

    The brokers match it with the whole names of all topics that the consumer may describe, again for new topics. The
    client then needs metadata of assigned topics only. A pattern of Python's ``re`` is matched by the client instead.
    Thread: any.
    """

    __slots__ = ("pattern",)

    def __init__(self, pattern: str) -> None:
        """Create a pattern.

        Raises:
            IllegalArgumentError: it is empty, has half of a surrogate pair, or has what Python's expressions have and
                RE2/J does not: lookaheads, lookbehinds, backreferences, conditions, atomic groups, possessive
                quantifiers, comments, and the flags a, L, u and x.
        """
        if not isinstance(pattern, str) or not pattern:
            raise IllegalArgumentError(f"a SubscriptionPattern needs a regular expression, not {shown(pattern)}")
        try:
            pattern.encode()
        except UnicodeEncodeError as error:
            raise IllegalArgumentError(f"the pattern {pattern!r} cannot be sent to the brokers: {error}") from error
        bare = _ESCAPED_OR_CLASS.sub("_", pattern)
        for part, what in _NOT_IN_RE2:
            if part.search(bare):
                raise IllegalArgumentError(
                    f"the brokers cannot match {pattern!r}: it has {what}, which RE2/J does not know. Write it "
                    "differently, or pass re.compile(...) to subscribe(), which the client matches"
                )
        self.pattern = pattern

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubscriptionPattern) and self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __repr__(self) -> str:
        return f"SubscriptionPattern({self.pattern!r})"


class GroupMembershipOperation:
    """The effect of ``close`` on the membership (Java: CloseOptions.GroupMembershipOperation; KIP-1092)."""

    #: Dynamic members leave and static ones stay.
    DEFAULT: Final = "default"
    LEAVE_GROUP: Final = "leave_group"
    REMAIN_IN_GROUP: Final = "remain_in_group"


class ConsumerRebalanceListener(ABC):
    """Callbacks for changes of the assignment; pass one to ``subscribe``.

    They are called inside ``poll``, ``close`` and ``unsubscribe``, on the thread that calls these. They may use the
    consumer: commit in ``on_partitions_revoked``, seek in ``on_partitions_assigned``.

    If a callback raises an error, the call that it runs in raises this error once the rebalance is complete, wrapped in
    a KafkaError if it is not one. Thread: application.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Handle partitions that are about to be revoked. Their positions can still be committed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Handle newly assigned partitions, possibly none, before the consumer fetches from them."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Handle partitions that other members may own already, because the group removed this member.

        Their positions can no longer be committed. By default this calls ``on_partitions_revoked``.
        """
        self.on_partitions_revoked(lost)


class ConsumerInterceptor:
    """Base class of interceptors (KIP-42). Override the methods you need.

    Exceptions that an interceptor raises are logged, once per method, and otherwise ignored. Thread: application.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Receive the consumer's configuration by dotted keys. Called once, if the class is configured by name."""

    def on_consume(self, records: Any) -> Any:
        """Return the records for ``poll`` to return instead of ``records``."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Handle a successful commit of ``offsets``."""

    def close(self) -> None:
        """Handle the consumer's ``close``."""


class ConsumerInterceptors:
    """Calls the interceptors in order. One that fails is logged and skipped. Thread: application."""

    def __init__(self, interceptors: Iterable[Any], log_context: LogContext) -> None:
        self._interceptors = list(interceptors)
        self._log = log_context.logger(__name__)
        self._logged: set[tuple[int, str]] = set()

    @property
    def is_empty(self) -> bool:
        return not self._interceptors

    def on_consume(self, records: Any) -> Any:
        """Pass the records through all interceptors, and return the result."""
        for interceptor in self._interceptors:
            on_consume = getattr(interceptor, "on_consume", None)
            if on_consume is not None:
                try:
                    records = on_consume(records)
                except Exception as error:  # noqa: BLE001 - the application's code, which must not stop the consumer
                    self._log_once(interceptor, "on_consume", error)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._call("on_commit", offsets)

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, *args: Any) -> None:
        for interceptor in self._interceptors:
            function = getattr(interceptor, method, None)
            if function is not None:
                try:
                    function(*args)
                except Exception as error:  # noqa: BLE001 - as above
                    self._log_once(interceptor, method, error)

    def _log_once(self, interceptor: Any, method: str, error: Exception) -> None:
        raise_if_of_signal_handler(error)
        # Log the traceback only once: an interceptor that fails in each poll must not fill the log.
        if (id(interceptor), method) not in self._logged:
            self._logged.add((id(interceptor), method))
            name = f"{type(interceptor).__name__}.{method}"
            self._log.warning("%s failed and was skipped; its next failures are not logged", name, exc_info=error)


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
_BY_DURATION = "by_duration"


class AutoOffsetResetStrategy(NamedTuple("_Strategy", [("name", str), ("duration_ms", "int | None")])):
    """The strategy for choosing a start offset if there is no committed one.

    ``name`` is one of ``earliest``, ``latest``, ``none`` and ``by_duration``; ``duration_ms`` is for the last. Thread:
    any.
    """

    __slots__ = ()

    EARLIEST: ClassVar[AutoOffsetResetStrategy]
    LATEST: ClassVar[AutoOffsetResetStrategy]
    NONE: ClassVar[AutoOffsetResetStrategy]

    @classmethod
    def from_string(cls, text: str) -> AutoOffsetResetStrategy:
        """Parse a configuration value.

        Raises:
            IllegalArgumentError: ``text`` has none of the four forms.
        """
        known = {"earliest": cls.EARLIEST, "latest": cls.LATEST, "none": cls.NONE}.get(text)
        if known is not None:
            return known
        name, colon, duration = text.partition(":")
        if name != _BY_DURATION:
            raise IllegalArgumentError(
                f"auto.offset.reset is {text!r}; it can be 'earliest', 'latest', 'none' or 'by_duration:PnDTnHnMn.nS'"
            )
        if not colon:
            raise IllegalArgumentError("by_duration lacks its duration, as in 'by_duration:P1DT12H'")
        try:
            duration_ms = parse_iso_duration_ms(duration)
        except ValueError as error:
            raise IllegalArgumentError(f"by_duration: {error}") from error
        if duration_ms < 0:
            raise IllegalArgumentError(f"by_duration goes back in time, so {duration!r} cannot be negative")
        return cls(_BY_DURATION, duration_ms)

    def timestamp(self, wall_ms: int) -> int | None:
        """Return the timestamp to look up with ListOffsets at the wall-clock time ``wall_ms``; None for ``none``."""
        if self.name == "earliest":
            return EARLIEST_TIMESTAMP
        if self.name == "latest":
            return LATEST_TIMESTAMP
        # Negative timestamps have special meanings in the protocol.
        return None if self.duration_ms is None else max(0, wall_ms - self.duration_ms)

    def __repr__(self) -> str:
        return f"AutoOffsetResetStrategy({self})"

    def __str__(self) -> str:
        return self.name if self.duration_ms is None else f"{self.name} of {self.duration_ms} ms"


AutoOffsetResetStrategy.EARLIEST = AutoOffsetResetStrategy("earliest", None)
AutoOffsetResetStrategy.LATEST = AutoOffsetResetStrategy("latest", None)
AutoOffsetResetStrategy.NONE = AutoOffsetResetStrategy("none", None)


READ_UNCOMMITTED = 0
READ_COMMITTED = 1
_ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
#: Brokers return whole batches, so there may be more than ``max.poll.records`` records.
BATCH_OPTIMIZED: Final = 0
#: Brokers return at most ``max.poll.records`` records (KIP-1206).
RECORD_LIMIT: Final = 1
_ACQUIRE_MODES = {"batch_optimized": BATCH_OPTIMIZED, "record_limit": RECORD_LIMIT}


class FetchConfig(NamedTuple):
    """The settings of fetches: sizes in bytes, waits, and isolation. Thread: any."""

    min_bytes: int = 1
    max_bytes: int = 52_428_800
    max_wait_ms: int = 500
    fetch_size: int = 1_048_576
    max_poll_records: int = 500
    check_crcs: bool = True
    client_rack_id: str = ""
    isolation_level: int = READ_UNCOMMITTED
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    retry_backoff_ms: int = 100
    #: Of share groups.
    acquire_mode: int = BATCH_OPTIMIZED

    @classmethod
    def from_config(cls, config: AbstractConfig) -> FetchConfig:
        """Return the settings of a consumer's or a share consumer's configuration."""
        return cls(
            min_bytes=config.get_int("fetch.min.bytes"),
            max_bytes=config.get_int("fetch.max.bytes"),
            max_wait_ms=config.get_int("fetch.max.wait.ms"),
            fetch_size=config.get_int("max.partition.fetch.bytes"),
            max_poll_records=config.get_int("max.poll.records"),
            check_crcs=config.get_bool("check.crcs"),
            client_rack_id=config.get_str("client.rack"),
            isolation_level=_ISOLATION_LEVELS[config.get_str("isolation.level").lower()],
            max_decompressed_bytes=config.get_int("max.decompressed.batch.bytes"),
            retry_backoff_ms=config.get_int("retry.backoff.ms"),
            acquire_mode=_ACQUIRE_MODES[config.get_str("share.acquire.mode").lower()],
        )
