"""Strategies for a partition without a position: ``auto.offset.reset`` (KIP-1106 added ``by_duration``)."""

from __future__ import annotations

from pykclient.config.iso_duration import parse_iso_duration_ms
from pykclient.errors import IllegalArgumentError

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1

_BY_DURATION = "by_duration"


class AutoOffsetResetStrategy:
    """The strategy for choosing a start offset when there is no position. Compares by value.

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
