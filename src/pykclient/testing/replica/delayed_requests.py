"""Requests that wait for replicas: Produce, Fetch and DeleteRecords.

Java: DelayedProduce, DelayedFetch, DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from pykclient.errors import BrokerError
from pykclient.testing.delayed_operation import DelayedOperation
from pykclient.testing.log.log_types import FetchIsolation
from pykclient.testing.replica.fetch_session import UNKNOWN_OFFSET
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.messages.produce import ProduceResponse
    from pykclient.testing.replica.fetch_session import FetchParams, FetchPartitionData, PartitionFetch
    from pykclient.testing.replica.replica_manager import ReplicaManager

if TYPE_CHECKING:
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


if TYPE_CHECKING:
    FetchResults = list[tuple[PartitionFetch, FetchPartitionData]]


class DelayedFetch(DelayedOperation):
    """Completes when ``min_bytes`` are readable, when a partition has an error, or when the maximum wait expires.

    Only partitions that have changed are checked, and read again at the end, so a session over many partitions waits at
    no cost. If consumers read from followers, a follower learns of a higher high watermark immediately (KIP-392). Any
    key that is not a partition ends the wait. Thread: loop.
    """

    __slots__ = ("_bytes", "_changed", "_manager", "_params", "_respond", "_results", "_tells_high_watermarks")

    def __init__(
        self,
        params: FetchParams,
        results: FetchResults,
        manager: ReplicaManager,
        respond: Callable[[FetchResults], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._params = params
        self._manager = manager
        self._respond = respond
        self._results = {result[0].topic_partition: result for result in results}
        # The partitions to read at the end: those that changed, and those with records, which limit the others' share.
        self._changed = {fetch.topic_partition for fetch, data in results if data.size_in_bytes}
        # The bytes that can be read from them.
        self._bytes = {key: self._results[key][1].size_in_bytes for key in self._changed}
        self._tells_high_watermarks = params.is_from_follower and manager.replica_selector is not None

    def try_complete(self, key: Hashable | None) -> bool:
        if key is None:
            # The available data has just been read, and was not enough.
            return False
        if not isinstance(key, TopicPartition):
            return self.force_complete()
        self._changed.add(key)
        fetch, told = self._results[key]
        params = self._params
        partition, _ = self._manager.get_partition_or_error(key)
        if partition is None or (self._tells_high_watermarks and partition.high_watermark > told.high_watermark):
            return self.force_complete()
        if params.min_bytes <= 1 and fetch.current_leader_epoch in (-1, partition.leader_epoch):
            readable = partition.is_leader or (params.client_metadata is not None and not params.is_from_follower)
            # An offset beyond the log's end is an error to report.
            end = partition.end_offset(params.isolation)
            if readable and end <= fetch.fetch_offset <= partition.end_offset(FetchIsolation.LOG_END):
                return False
            return self.force_complete()
        try:
            data = partition.fetch_records(params, fetch, fetch.max_bytes, min_one_message=True, update=False)
        except BrokerError:
            return self.force_complete()
        if data.diverging_epoch is not None:
            return self.force_complete()
        self._bytes[key] = data.size_in_bytes
        return sum(self._bytes.values()) >= params.min_bytes and self.force_complete()

    def on_complete(self) -> None:
        results = self._results
        # In the order of the request: the first partitions get what ``max_bytes`` allows.
        again = [fetch for key, (fetch, _) in results.items() if key in self._changed]
        for result in self._manager.read_from_log(self._params, again, update=False):
            results[result[0].topic_partition] = result
        self._respond(list(results.values()))


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
