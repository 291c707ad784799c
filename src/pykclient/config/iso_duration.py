"""Durations such as ``auto.offset.reset=by_duration:P7DT12H`` (ISO 8601, like java.time.Duration)."""

from __future__ import annotations

import re

_PATTERN = re.compile(
    r"(?P<sign>[-+]?)P"
    r"(?:(?P<days>[-+]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_iso_duration_ms(text: str) -> int:
    """Return a duration in milliseconds, rounded down. It may be negative.

    Raises:
        ValueError: the text is not a sequence of days, hours, minutes and seconds.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or match["time"] in {"T", "t"} or not any(match[unit] for unit in ("days", "time")):
        raise ValueError(f"{text!r} is not a duration such as P7D, PT12H or P1DT2H30M")
    seconds = (
        int(match["days"] or 0) * 86_400
        + int(match["hours"] or 0) * 3_600
        + int(match["minutes"] or 0) * 60
        + int(match["seconds"] or 0)
    )
    nanoseconds = int((match["fraction"] or "").ljust(9, "0"))
    if (match["seconds"] or "").startswith("-"):
        nanoseconds = -nanoseconds
    total = seconds * 1_000_000_000 + nanoseconds
    return (-total if match["sign"] == "-" else total) // 1_000_000
