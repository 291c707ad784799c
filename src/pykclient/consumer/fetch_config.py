"""The settings for fetching, and ``auto.offset.reset`` (Java: FetchConfig, AutoOffsetResetStrategy; KIP-1106)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.config.validators import parse_iso_duration_ms
from pykclient.errors import IllegalArgumentError
from pykclient.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from pykclient.config.abstract_config import AbstractConfig

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
_BY_DURATION = "by_duration"


class AutoOffsetResetStrategy:
    """The strategy for choosing a start offset if there is no committed one. Compares by value.

    ``name`` is one of ``earliest``, ``latest``, ``none`` and ``by_duration``; ``duration_ms`` is for the last. Thread:
    any.
    """

    __slots__ = ("duration_ms", "name")

    EARLIEST: AutoOffsetResetStrategy
    LATEST: AutoOffsetResetStrategy
    NONE: AutoOffsetResetStrategy

    def __init__(self, name: str, duration_ms: int | None = None) -> None:
        self.name = name
        self.duration_ms = duration_ms

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

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AutoOffsetResetStrategy)
            and self.name == other.name
            and self.duration_ms == other.duration_ms
        )

    def __hash__(self) -> int:
        return hash((self.name, self.duration_ms))

    def __repr__(self) -> str:
        return f"AutoOffsetResetStrategy({self})"

    def __str__(self) -> str:
        return self.name if self.duration_ms is None else f"{self.name} of {self.duration_ms} ms"


AutoOffsetResetStrategy.EARLIEST = AutoOffsetResetStrategy("earliest")
AutoOffsetResetStrategy.LATEST = AutoOffsetResetStrategy("latest")
AutoOffsetResetStrategy.NONE = AutoOffsetResetStrategy("none")


READ_UNCOMMITTED = 0
READ_COMMITTED = 1
_ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


class FetchConfig:
    """The settings of fetches: sizes in bytes, waits, and isolation. Thread: any."""

    __slots__ = (
        "check_crcs",
        "client_rack_id",
        "fetch_size",
        "isolation_level",
        "max_bytes",
        "max_decompressed_bytes",
        "max_poll_records",
        "max_wait_ms",
        "min_bytes",
        "retry_backoff_ms",
    )

    def __init__(
        self,
        *,
        min_bytes: int = 1,
        max_bytes: int = 52_428_800,
        max_wait_ms: int = 500,
        fetch_size: int = 1_048_576,
        max_poll_records: int = 500,
        check_crcs: bool = True,
        client_rack_id: str = "",
        isolation_level: int = READ_UNCOMMITTED,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        retry_backoff_ms: int = 100,
    ) -> None:
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_wait_ms = max_wait_ms
        self.fetch_size = fetch_size
        self.max_poll_records = max_poll_records
        self.check_crcs = check_crcs
        self.client_rack_id = client_rack_id
        self.isolation_level = isolation_level
        self.max_decompressed_bytes = max_decompressed_bytes
        self.retry_backoff_ms = retry_backoff_ms

    @classmethod
    def from_config(cls, config: AbstractConfig) -> FetchConfig:
        """Return the settings of a consumer's configuration."""
        return cls(
            min_bytes=config.get_int("fetch.min.bytes"),
            max_bytes=config.get_int("fetch.max.bytes"),
            max_wait_ms=config.get_int("fetch.max.wait.ms"),
            fetch_size=config.get_int("max.partition.fetch.bytes"),
            max_poll_records=config.get_int("max.poll.records"),
            check_crcs=config.get_bool("check.crcs"),
            client_rack_id=config.get_str("client.rack"),
            isolation_level=isolation_level(config.get_str("isolation.level")),
            max_decompressed_bytes=config.get_int("max.decompressed.batch.bytes"),
            retry_backoff_ms=config.get_int("retry.backoff.ms"),
        )


def isolation_level(name: str) -> int:
    """Return the protocol's number for a value of ``isolation.level``."""
    return _ISOLATION_LEVELS[name.lower()]
