"""Produce requests with acks=all that wait for the followers (Java: DelayedProduce)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from pykclient.testing.delayed_operation import DelayedOperation
from pykclient.testing.replica.fetch_params import UNKNOWN_OFFSET
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.messages.produce import ProduceResponse
    from pykclient.testing.replica.replica_manager import ReplicaManager

    PartitionResponse = ProduceResponse.PartitionProduceResponse

_REQUEST_TIMED_OUT: Final = 7


class DelayedProduce(DelayedOperation):
    """Completes when each written partition has its records on all in-sync replicas, or never can.

    ``pending`` is the offset that the high watermark must reach. Thread: loop.
    """

    __slots__ = ("_manager", "_pending", "_respond", "_responses")

    def __init__(
        self,
        timeout_ms: int,
        manager: ReplicaManager,
        responses: dict[TopicPartition, PartitionResponse],
        pending: dict[TopicPartition, int],
        respond: Callable[[dict[TopicPartition, PartitionResponse]], None],
    ) -> None:
        super().__init__(timeout_ms)
        self._manager = manager
        self._responses = responses
        self._pending = pending
        self._respond = respond

    def try_complete(self, key: Hashable | None) -> bool:
        pending = self._pending
        for topic_partition in (key,) if isinstance(key, TopicPartition) else list(pending):
            required_offset = pending.get(topic_partition)
            if required_offset is None:
                continue
            partition, error_code = self._manager.get_partition_or_error(topic_partition)
            enough = False
            if partition is not None:
                enough, error_code = partition.check_enough_replicas_reach_offset(required_offset)
            if enough or error_code:
                if error_code:
                    self._fail(topic_partition, error_code)
                del pending[topic_partition]
        return not pending and self.force_complete()

    def _fail(self, topic_partition: TopicPartition, error_code: int) -> None:
        response = self._responses[topic_partition]
        response.error_code = error_code
        response.base_offset = UNKNOWN_OFFSET

    def on_expiration(self) -> None:
        for topic_partition in self._pending:
            self._fail(topic_partition, _REQUEST_TIMED_OUT)

    def on_complete(self) -> None:
        self._respond(self._responses)
