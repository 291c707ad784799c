"""Checks of single values. ``problem`` says what is wrong; the text form tells the valid values as Java's does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Validator:
    """A check of one value, after it was parsed. Thread: any."""

    __slots__ = ()

    def problem(self, value: Any) -> str | None:
        """What is wrong with ``value``, as a phrase that follows "it"; None when it is right."""
        raise NotImplementedError


class Range(Validator):
    """A number between two bounds, both allowed; None for a side without bound."""

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
    """One of some words."""

    __slots__ = ("words",)

    def __init__(self, *words: str) -> None:
        self.words = words

    def problem(self, value: Any) -> str | None:
        return None if value in self.words else f"must be one of {', '.join(self.words)}"

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


class CaseInsensitiveValidString(ValidString):
    """One of some words, in any case."""

    __slots__ = ()

    def problem(self, value: Any) -> str | None:
        if value is not None and value.upper() in self.words:
            return None
        return f"must be one of {', '.join(self.words)} (in any case)"

    def __str__(self) -> str:
        return f"(case insensitive) {super().__str__()}"


class NonEmptyString(Validator):
    """None or a string with something in it."""

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
    """A list whose strings are not empty. Whoever parses it takes doubles out first."""

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
    """A check written as a function, with its own text."""

    __slots__ = ("_check", "_text")

    def __init__(self, check: Callable[[Any], str | None], text: str) -> None:
        self._check = check
        self._text = text

    def problem(self, value: Any) -> str | None:
        return self._check(value)

    def __str__(self) -> str:
        return self._text


class Composite(Validator):
    """All of several checks; the first that fails speaks."""

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
