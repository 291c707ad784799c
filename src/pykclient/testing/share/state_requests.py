"""The common part of the handlers of the share coordinator's APIs: requests for many share partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar
from uuid import UUID

Partition = TypeVar("Partition")
Result = TypeVar("Result")


class Gatherer(Generic[Result]):
    """Collects the results of partitions, and passes them on by topic when all are there. Thread: loop."""

    __slots__ = ("_expected", "_results", "_then")

    def __init__(self, expected: int, then: Callable[[list[tuple[UUID, list[Result]]]], None]) -> None:
        self._expected = expected
        self._results: dict[UUID, list[Result]] = {}
        self._then = then
        if not expected:
            then([])

    def add(self, topic_id: UUID, result: Result) -> None:
        """Add the result of one partition."""
        self._results.setdefault(topic_id, []).append(result)
        self._expected -= 1
        if not self._expected:
            self._then(list(self._results.items()))


def for_each_partition(
    topics: Iterable[tuple[UUID, Iterable[Partition]]],
    handle: Callable[[UUID, Partition, Callable[[Result], None]], None],
    then: Callable[[list[tuple[UUID, list[Result]]]], None],
) -> None:
    """Handle all partitions of a request; call ``then`` with the results by topic when the last one is there."""
    partitions = [(topic_id, partition) for topic_id, of_topic in topics for partition in of_topic]
    gatherer: Gatherer[Result] = Gatherer(len(partitions), then)
    for topic_id, each in partitions:
        handle(topic_id, each, partial(gatherer.add, topic_id))
