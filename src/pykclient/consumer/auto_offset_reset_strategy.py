"""What to do about a partition without a position: ``auto.offset.reset`` (KIP-1106 added ``by_duration``)."""

from __future__ import annotations

from pykclient.config.iso_duration import parse_iso_duration_ms
from pykclient.errors import IllegalArgumentError

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1

_BY_DURATION = "by_duration"


class AutoOffsetResetStrategy:
    """Where reading starts when there is no position: a value, compared by meaning.

    ``name`` is one of ``earliest``, ``latest``, ``none`` and ``by_duration``; ``duration_ms`` belongs to the last.
    Thread: any.
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
        """Read a configuration value; raises IllegalArgumentError when it is none of the four forms."""
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
        """What to ask ListOffsets for at the time of day ``wall_ms``; None when there is nothing to ask (``none``)."""
        if self.name == "earliest":
            return EARLIEST_TIMESTAMP
        if self.name == "latest":
            return LATEST_TIMESTAMP
        # Before 1970 the protocol's negative timestamps begin, which mean other things.
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
