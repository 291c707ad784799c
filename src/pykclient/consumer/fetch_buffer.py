"""A buffer of fetched data that was not returned yet (Java: FetchBuffer)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.consumer.completed_fetch import CompletedFetch
    from pykclient.log_context import LogContext
    from pykclient.types import TopicPartition


class FetchBuffer:
    """A queue of completed fetches, and ``next_in_line_fetch``, whose records are being returned.

    Thread: application.
    """

    __slots__ = ("_log", "_queued", "completed", "next_in_line_fetch", "removals")

    def __init__(self, log_context: LogContext) -> None:
        self._log = log_context.logger(__name__)
        #: The queue. Only this class changes it.
        self.completed: deque[CompletedFetch] = deque()
        self._queued: set[CompletedFetch] = set()  # the members of completed, for fast lookup
        self.next_in_line_fetch: CompletedFetch | None = None
        #: A number that changes whenever a fetch leaves the queue.
        self.removals = 0

    @property
    def is_empty(self) -> bool:
        return not self.completed

    def has_completed_fetches(self, predicate: Callable[[CompletedFetch], bool]) -> bool:
        return any(map(predicate, self.completed))

    def add(self, fetch: CompletedFetch) -> None:
        self.completed.append(fetch)
        self._queued.add(fetch)

    def add_all(self, fetches: Sequence[CompletedFetch]) -> None:
        self.completed.extend(fetches)
        self._queued.update(fetches)

    def peek(self) -> CompletedFetch | None:
        return self.completed[0] if self.completed else None

    def poll(self) -> CompletedFetch | None:
        if not self.completed:
            return None
        self.removals += 1
        fetch = self.completed.popleft()
        self._queued.discard(fetch)
        return fetch

    def holds(self, fetch: CompletedFetch) -> bool:
        """Return whether ``fetch`` is in the buffer and still has data."""
        return fetch in self._queued or (fetch is self.next_in_line_fetch and not fetch.is_consumed)

    def newest_first(self) -> Iterator[CompletedFetch]:
        """Yield all fetches that have data, from the last to be returned to the first."""
        yield from reversed(self.completed)
        if self.next_in_line_fetch is not None and not self.next_in_line_fetch.is_consumed:
            yield self.next_in_line_fetch

    def retain_all(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Drop the data of all other partitions."""
        self.removals += 1
        kept: deque[CompletedFetch] = deque()
        for fetch in self.completed:
            if fetch.partition in partitions:
                kept.append(fetch)
            else:
                self._drop(fetch)
        self.completed = kept
        self._queued = set(kept)
        if self.next_in_line_fetch is not None and self.next_in_line_fetch.partition not in partitions:
            self._drop(self.next_in_line_fetch)
            self.next_in_line_fetch = None

    def reset(self) -> None:
        """Drop everything, in whatever state it is."""
        self.removals += 1
        self.completed = deque()
        self._queued = set()
        self.next_in_line_fetch = None

    def _drop(self, fetch: CompletedFetch) -> None:
        self._log.debug("Dropping fetched records of %s, which is no longer fetched", fetch.partition)
        fetch.drain()

    def close(self) -> None:
        self.retain_all(frozenset())
