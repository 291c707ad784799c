"""Acknowledgements that are sent to one broker without fetching (Java: AcknowledgeRequestState)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.consumer.request_future import RequestFuture

if TYPE_CHECKING:
    from pykclient.consumer.share.acknowledgements import Acknowledgements
    from pykclient.errors import KafkaError
    from pykclient.types import TopicIdPartition

#: Called with a partition, its acknowledgements with the broker's answer, and the new period of their locks, if known.
Completed = Callable[["TopicIdPartition", "Acknowledgements", "int | None"], object]


class AcknowledgeOperation:
    """The acknowledgements of one commit for one broker, until all are answered.

    ``is_last`` ends the session as well. Thread: the holder of the I/O lease.
    """

    __slots__ = ("_on_completed", "attempts", "deadline_ms", "done", "is_last", "not_before_ms", "waiting")

    def __init__(
        self,
        waiting: dict[TopicIdPartition, Acknowledgements],
        deadline_ms: int,
        on_completed: Completed,
        *,
        is_last: bool = False,
    ) -> None:
        self.waiting = waiting  # without an answer yet, or to be sent again
        self.deadline_ms = deadline_ms
        self.is_last = is_last
        self.not_before_ms = 0
        self.attempts = 0
        self._on_completed = on_completed
        #: Done when all acknowledgements are answered.
        self.done: RequestFuture[None] = RequestFuture()

    def complete(self, partition: TopicIdPartition, error: KafkaError | None, lock_timeout_ms: int | None) -> None:
        """Complete the acknowledgements of one partition."""
        acknowledgements = self.waiting.pop(partition)
        acknowledgements.complete(error)
        self._on_completed(partition, acknowledgements, lock_timeout_ms)

    def fail_all(self, error: KafkaError) -> None:
        """Complete all waiting acknowledgements with ``error``."""
        for partition in list(self.waiting):
            self.complete(partition, error, None)

    def finish(self) -> None:
        """Note that there is nothing left to wait for."""
        if not self.done.is_done:
            self.done.complete(None)
