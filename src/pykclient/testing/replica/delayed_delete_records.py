"""DeleteRecords requests that wait until every replica has deleted the records (Java: DelayedDeleteRecords)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from pykclient.errors import BrokerError
from pykclient.testing.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from pykclient.testing.replica.replica_manager import ReplicaManager
    from pykclient.types import TopicPartition

_REQUEST_TIMED_OUT: Final = 7


class DeleteRecordsResult:
    """The low watermark of a partition (-1 with an error), and the ``requested_offset`` it must reach.

    Thread: loop.
    """

    __slots__ = ("error_code", "low_watermark", "requested_offset")

    def __init__(self, low_watermark: int, error_code: int = 0, requested_offset: int = -1) -> None:
        self.low_watermark = low_watermark
        self.error_code = error_code
        self.requested_offset = requested_offset

    def fail(self, error_code: int) -> None:
        self.error_code = error_code
        self.low_watermark = -1


class DelayedDeleteRecords(DelayedOperation):
    """Completes when each partition's low watermark has reached the requested offset. Thread: loop."""

    __slots__ = ("_manager", "_pending", "_respond", "_results")

    def __init__(
        self,
        timeout_ms: int,
        manager: ReplicaManager,
        results: dict[TopicPartition, DeleteRecordsResult],
        respond: Callable[[dict[TopicPartition, DeleteRecordsResult]], None],
    ) -> None:
        super().__init__(timeout_ms)
        self._manager = manager
        self._results = results
        self._pending = {topic_partition for topic_partition, result in results.items() if not result.error_code}
        self._respond = respond

    def try_complete(self, key: Hashable | None) -> bool:  # noqa: ARG002 - there are few of these
        for topic_partition in list(self._pending):
            result = self._results[topic_partition]
            try:
                result.low_watermark = self._manager.get_partition_or_raise(topic_partition).low_watermark()
            except BrokerError as error:
                result.fail(error.code)
            if result.error_code or result.low_watermark >= result.requested_offset:
                self._pending.discard(topic_partition)
        return not self._pending and self.force_complete()

    def on_expiration(self) -> None:
        for topic_partition in self._pending:
            self._results[topic_partition].fail(_REQUEST_TIMED_OUT)

    def on_complete(self) -> None:
        self._respond(self._results)
