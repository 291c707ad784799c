"""The result of a call with many items: each has a value or an error of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from pykclient.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


class Results(Generic[K, V]):
    """The outcome of each item of one call.

    ``results[key]`` returns the item's value or raises its error, and ``all()`` returns all values or raises the first
    error. ``succeeded`` and ``failed`` map keys to values and to errors; each key is in one of the two.
    ``error_of_all`` is the error of a request as a whole, if that is why items have failed. Thread: any.
    """

    __slots__ = ("error_of_all", "failed", "succeeded")

    def __init__(self, succeeded: dict[K, V] | None = None, failed: dict[K, KafkaError] | None = None) -> None:
        self.succeeded: dict[K, V] = {} if succeeded is None else succeeded
        self.failed: dict[K, KafkaError] = {} if failed is None else failed
        self.error_of_all: KafkaError | None = None

    def __getitem__(self, key: K) -> V:
        if key in self.failed:
            raise self.failed[key]
        return self.succeeded[key]

    def __contains__(self, key: object) -> bool:
        return key in self.succeeded or key in self.failed

    def __iter__(self) -> Iterator[K]:
        yield from self.succeeded
        yield from self.failed

    def __len__(self) -> int:
        return len(self.succeeded) + len(self.failed)

    def all(self) -> dict[K, V]:
        """Return the values of all items.

        Raises:
            KafkaError: the error of the first item that failed.
        """
        for error in self.failed.values():
            raise error
        return self.succeeded

    def map(self, convert: Callable[[V], W]) -> Results[K, W]:
        """Return the same results with each value converted."""
        mapped = Results({key: convert(value) for key, value in self.succeeded.items()}, self.failed)
        mapped.error_of_all = self.error_of_all
        return mapped

    def __repr__(self) -> str:
        return f"Results(succeeded={self.succeeded!r}, failed={self.failed!r})"
