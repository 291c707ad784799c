"""Validators of single values. Their text form is the list of valid values in Java's notation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_ADDRESS = re.compile(r"[^\s/]+:\d+")


def looks_like_addresses(text: str) -> bool:
    """Return True for ``host:port`` or a comma-separated list of these, which no topic can be named."""
    return all(_ADDRESS.fullmatch(part.strip()) for part in text.split(","))


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


class Validator:
    """Validates a parsed value. ``text`` is the list of valid ones in Java's notation. Thread: any.

    ``problem`` returns what is wrong with a value, as a phrase that follows "it"; None if it is valid.
    """

    def __init__(self, problem: Callable[[Any], str | None], text: str) -> None:
        self.problem = problem
        self._text = text

    def __str__(self) -> str:
        return self._text


class Range(Validator):
    """A number between two inclusive bounds; None means no bound on that side."""

    def __init__(self, minimum: float | None, maximum: float | None) -> None:
        def problem(value: Any) -> str | None:
            if value is None:
                return "must not be None"
            if minimum is not None and value < minimum:
                return f"must be at least {minimum}"
            if maximum is not None and value > maximum:
                return f"must be at most {maximum}"
            return None

        bounds = (minimum, "...", maximum)
        super().__init__(problem, f"[{','.join(str(bound) for bound in bounds if bound is not None)}]")


def at_least(minimum: float) -> Range:
    return Range(minimum, None)


def between(minimum: float, maximum: float) -> Range:
    return Range(minimum, maximum)


class ValidString(Validator):
    """One of several words."""

    def __init__(self, *words: str) -> None:
        known = ", ".join(words)
        super().__init__(lambda value: None if value in words else f"must be one of {known}", f"[{known}]")


class CaseInsensitiveValidString(Validator):
    """One of several words in upper case, ignoring case."""

    def __init__(self, *words: str) -> None:
        def problem(value: Any) -> str | None:
            is_known = value is not None and value.upper() in words
            return None if is_known else f"must be one of {known} (in any case)"

        known = ", ".join(words)
        super().__init__(problem, f"(case insensitive) [{known}]")


class NonEmptyString(Validator):
    """None or a non-empty string."""

    def __init__(self) -> None:
        super().__init__(lambda value: "must not be empty" if value == "" else None, "non-empty string")


class ValidList(Validator):
    """A list of non-empty strings. The parser removes duplicates first."""

    def __init__(self, empty_allowed: bool = True) -> None:
        def problem(value: Any) -> str | None:
            if value is None:
                return "must not be None"
            if not value and not empty_allowed:
                return "must name at least one"
            if "" in [item for item in value if isinstance(item, str)]:
                return "must not have empty entries"
            return None

        super().__init__(problem, "")
