"""The buffer of completed fetches."""

from __future__ import annotations

from typing import Any

from pykclient.consumer.fetch_collector import FetchBuffer
from pykclient.log_context import LogContext
from pykclient.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class CountingFetch:
    """A fetch that counts how often it was drained; compared by identity, like a CompletedFetch."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_consumed = False
        self.drained = 0

    def drain(self) -> None:
        self.is_consumed = True
        self.drained += 1


def test_fetches_of_other_partitions_are_drained_once() -> None:
    buffer = FetchBuffer(LogContext())
    fetches: list[Any] = [CountingFetch(tp) for tp in (A, B, A, B)]
    buffer.next_in_line_fetch = fetches[0]
    buffer.add_all(fetches[1:])
    buffer.retain_all({B})
    assert [fetch.drained for fetch in fetches] == [1, 0, 1, 0]
    assert buffer.next_in_line_fetch is None
    assert [buffer.holds(fetch) for fetch in fetches] == [False, True, False, True]
    assert [buffer.poll(), buffer.poll(), buffer.poll()] == [fetches[1], fetches[3], None]


def test_close_drains_all_fetches() -> None:
    buffer = FetchBuffer(LogContext())
    fetches: list[Any] = [CountingFetch(A), CountingFetch(B)]
    buffer.next_in_line_fetch = fetches[0]
    buffer.add_all(fetches[1:2])
    buffer.retain_all(frozenset())
    assert [fetch.drained for fetch in fetches] == [1, 1]
    assert not buffer.completed
