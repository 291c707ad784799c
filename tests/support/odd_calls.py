"""Calls of public methods with one argument of the wrong kind each."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from pykclient.errors import IllegalArgumentError, KafkaError

Call = Callable[[Any], Any]


def call_of(method: str, *args: Any, **given: Any) -> Call:
    """Return a function that calls ``method`` of a client."""
    return lambda client: getattr(client, method)(*args, **given)


def odd_calls(calls: Mapping[str, Mapping[str, Any]], odd: Sequence[Any], skip: str = "") -> Iterator[tuple[str, Call]]:
    """Yield a method and a call of it for each of its arguments and each odd value."""
    for method, valid in calls.items():
        for name in valid if method != skip else ():
            rest = {other: value for other, value in valid.items() if other != name and not other.startswith("*")}
            for value in odd:
                is_several = name.startswith("*")
                yield method, call_of(method, value, **rest) if is_several else call_of(method, **rest, **{name: value})


def check_that_none_is_left_out(cls: type, calls: Mapping[str, Mapping[str, Any]], besides: Set[str]) -> None:
    """Check that ``calls`` has all public methods of a class but ``besides``, with all of their arguments."""
    methods = {name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_")}
    assert methods - besides == calls.keys()
    for method, valid in calls.items():
        assert set(inspect.signature(getattr(cls, method)).parameters) - {"self"} == valid.keys(), method


def check_text(error: KafkaError) -> None:
    """An error is short, and shows no value that may be a secret."""
    text = str(error)
    assert len(text) < 1000
    assert "secret" not in text


class Refusals:
    """Counts the calls that are refused because of an argument. Other errors of Kafka are all right."""

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            self.count += isinstance(error, IllegalArgumentError)
            check_text(error)
