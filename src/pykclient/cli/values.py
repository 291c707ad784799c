"""Values on command lines: durations, times, sizes, topics, positions. Errors quote the value."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pykclient.clock import SYSTEM_CLOCK

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)

_SIZE_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([KMG]?)(?:I?B)?", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """Parse a duration such as ``90s``, ``1h30m``, ``2d`` or ``PT1H`` to milliseconds.

    Raises:
        ValueError: it is none; the text quotes it.
    """
    if _DURATION.fullmatch(text):
        return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))
    found = _ISO.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is no duration; 90s, 1h30m, 2d and PT1H are")
    return round(
        sum(
            float(number) * _UNITS_MS[unit]
            for number, unit in zip(found.groups(), ("w", "d", "h", "m", "s"), strict=True)
            if number
        )
    )


def time_ms(text: str) -> int:
    """Parse a time to milliseconds since the epoch.

    It is ISO 8601 such as ``2026-01-31T12:00``, in local time unless it has an offset; a number of milliseconds;
    ``now``; or how long ago, such as ``-15m``.

    Raises:
        ValueError: it is none; the text quotes it.
    """
    if text == "now":
        return SYSTEM_CLOCK.wall_ms()
    if text.isdecimal():
        return int(text)
    try:
        if text.startswith("-"):
            return max(0, SYSTEM_CLOCK.wall_ms() - duration_ms(text[1:]))
        from datetime import datetime

        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"{text!r} is no time; 2026-01-31T12:00, 2026-01-31T12:00:00+01:00, 1769860800000, now and -15m are"
        ) from error


class TopicOption(NamedTuple):
    """A topic as ``NAME[:PARTITIONS[:REPLICATION]]``, with the brokers' defaults for omitted parts."""

    name: str
    partitions: int | None
    replication_factor: int | None


def size_bytes(text: str) -> int:
    """Parse a number of bytes: ``512MB``, ``1GiB``, ``65536``. Units are powers of 1024.

    Raises:
        ValueError: it is none; the text quotes it.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ValueError(f"{text!r} is no size; 512MB and 1GB are")
    return int(found[1]) * _SIZE_UNITS[found[2].upper()]


def topic(text: str) -> TopicOption:
    """Parse a topic to create: ``orders``, ``orders:6`` or ``orders:6:3``.

    Raises:
        ValueError: it is none; the text quotes it.
    """
    name, *numbers = text.split(":")
    if not name or len(numbers) > 2 or not all(number.isdecimal() and int(number) for number in numbers):
        raise ValueError(f"{text!r} is not NAME, NAME:PARTITIONS or NAME:PARTITIONS:REPLICATION")
    partitions, replication_factor = [*map(int, numbers), None, None][:2]
    return TopicOption(name, partitions, replication_factor)


def setting(text: str) -> tuple[str, str]:
    """Parse a setting: ``num.partitions=6``.

    Raises:
        ValueError: it is none; the text quotes it.
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def port(text: str) -> int:
    """Parse a TCP port; 0 means any.

    Raises:
        ValueError: it is none; the text quotes it.
    """
    if not text.isdecimal() or int(text) > 65535:
        raise ValueError(f"{text!r} is no port: 0 to 65535")
    return int(text)


class Position(NamedTuple):
    """A place to begin or end at. ``kind`` is beginning, end, offset, time or last; ``number`` belongs to the kind."""

    kind: str
    number: int = 0


_NAMED_POSITIONS: Final = {
    "beginning": Position("beginning"),
    "earliest": Position("beginning"),
    "end": Position("end"),
    "latest": Position("end"),
}


def position(text: str) -> Position:
    """Parse a position: ``beginning``, ``end``, an offset, ``-N`` for the last N records, or a time after ``@``.

    Raises:
        ValueError: it is none; the text quotes it.
    """
    if text in _NAMED_POSITIONS:
        return _NAMED_POSITIONS[text]
    if text.isdecimal():
        return Position("offset", int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Position("last", int(text[1:]))
    if text.startswith("@"):
        return Position("time", time_ms(text[1:]))
    raise ValueError(
        f"{text!r} is no position; beginning, end, 4711 (an offset), -10 (the last ten), @-15m and "
        "@2026-01-31T12:00 are"
    )


_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def unescaped(text: str) -> bytes:
    r"""Return a text as UTF-8. The escapes ``\t``, ``\n``, ``\r``, ``\0``, ``\\`` and ``\x1f`` are replaced.

    Raises:
        ValueError: there is another character after a backslash.
    """

    def replaced(found: re.Match[bytes]) -> bytes:
        if found[1] is not None:
            return bytes([int(found[1], 16)])
        if found[2] not in _ESCAPED:
            raise ValueError(rf"{text!r} has an unknown escape; there are \n, \t, \r, \0, \\ and \x1f")
        return _ESCAPED[found[2]]

    return _ESCAPE.sub(replaced, text.encode("utf-8", "surrogateescape"))


def delimiter(text: str) -> bytes:
    r"""Parse a delimiter such as ``,`` or ``\t``.

    Raises:
        ValueError: it is empty, or an escape is wrong.
    """
    if not text:
        raise ValueError("a delimiter is not empty")
    return unescaped(text)
