"""Validators of single values. Their text form is the list of valid values in Java's notation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


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


class NonNull(Validator):
    """Anything but None."""

    __slots__ = ()

    def problem(self, value: Any) -> str | None:
        return "must not be None" if value is None else None

    def __str__(self) -> str:
        return "non-null string"


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


class Composite(Validator):
    """All of several validators; the first that fails reports its problem."""

    __slots__ = ("_validators",)

    def __init__(self, *validators: Validator) -> None:
        self._validators: Sequence[Validator] = validators

    def problem(self, value: Any) -> str | None:
        for validator in self._validators:
            if found := validator.problem(value):
                return found
        return None

    def __str__(self) -> str:
        return ", ".join(str(validator) for validator in self._validators)
