"""Calls of public methods with one argument of the wrong kind each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
