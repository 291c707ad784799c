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
    """Validates a parsed value. Thread: any."""

    __slots__ = ()

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with ``value``, as a phrase that follows "it"; None if it is valid."""
        raise NotImplementedError


class Range(Validator):
    """A number between two inclusive bounds; None means no bound on that side."""

    __slots__ = ("_maximum", "_minimum")

    def __init__(self, minimum: float | None, maximum: float | None) -> None:
        self._minimum = minimum
        self._maximum = maximum

    def problem(self, value: Any) -> str | None:
        if value is None:
            return "must not be None"
        if self._minimum is not None and value < self._minimum:
            return f"must be at least {self._minimum}"
        if self._maximum is not None and value > self._maximum:
            return f"must be at most {self._maximum}"
        return None

    def __str__(self) -> str:
        bounds = ["..."]
        if self._minimum is not None:
            bounds.insert(0, str(self._minimum))
        if self._maximum is not None:
            bounds.append(str(self._maximum))
        return f"[{','.join(bounds)}]"


def at_least(minimum: float) -> Range:
    return Range(minimum, None)


def between(minimum: float, maximum: float) -> Range:
    return Range(minimum, maximum)


class ValidString(Validator):
    """One of several words."""

    __slots__ = ("words",)

    def __init__(self, *words: str) -> None:
        self.words = words

    def problem(self, value: Any) -> str | None:
        return None if value in self.words else f"must be one of {', '.join(self.words)}"

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


class CaseInsensitiveValidString(ValidString):
    """One of several words, ignoring case."""

    __slots__ = ()

    def problem(self, value: Any) -> str | None:
        if value is not None and value.upper() in self.words:
            return None
        return f"must be one of {', '.join(self.words)} (in any case)"

    def __str__(self) -> str:
        return f"(case insensitive) {super().__str__()}"


class NonEmptyString(Validator):
    """None or a non-empty string."""

    __slots__ = ()

    def problem(self, value: Any) -> str | None:
        return "must not be empty" if value == "" else None

    def __str__(self) -> str:
        return "non-empty string"


class ValidList(Validator):
    """A list of non-empty strings. The parser removes duplicates first."""

    __slots__ = ("_empty_allowed",)

    def __init__(self, empty_allowed: bool = True) -> None:
        self._empty_allowed = empty_allowed

    def problem(self, value: Any) -> str | None:
        if value is None:
            return "must not be None"
        if not value and not self._empty_allowed:
            return "must name at least one"
        if "" in [item for item in value if isinstance(item, str)]:
            return "must not have empty entries"
        return None

    def __str__(self) -> str:
        return ""


class Lambda(Validator):
    """A validator with a function and a text."""

    __slots__ = ("_check", "_text")

    def __init__(self, check: Callable[[Any], str | None], text: str) -> None:
        self._check = check
        self._text = text

    def problem(self, value: Any) -> str | None:
        return self._check(value)

    def __str__(self) -> str:
        return self._text
