"""The questions of group coordinators about the ends of partitions (Java: PartitionMetadataClient; KIP-1226)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pykclient.errors import LeaderNotAvailableError, NetworkError
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.testing.inter_broker_send_thread import InterBrokerSendThread, RequestAndCompletionHandler
from pykclient.testing.log.log_types import LATEST_TIMESTAMP
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker

#: The error code, and the end offset if that is 0, of each partition.
Ends = Mapping[TopicPartition, tuple[int, int]]

_CONSUMER: int = -1


class PartitionMetadataClient(InterBrokerSendThread):
    """Asks the leaders of partitions for the offsets after their last records. Thread: loop."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, "partition-metadata", broker.config.get_int("request.timeout.ms"))
        self._queue: list[tuple[Node, list[TopicPartition], Callable[[Ends], None]]] = []

    def shutdown(self) -> None:
        super().shutdown()
        self._queue.clear()

    def list_latest_offsets(self, partitions: Iterable[TopicPartition], then: Callable[[Ends], None]) -> None:
        """Call ``then`` when all leaders have answered. Errors are not retried."""
        if not self._running:
            self.startup()
        found: dict[TopicPartition, tuple[int, int]] = {}
        by_leader: dict[Node, list[TopicPartition]] = {}
        snapshot = self._broker.metadata_cache.snapshot
        for tp in partitions:
            leader = snapshot.leader(tp)
            if leader is None:
                found[tp] = LeaderNotAvailableError.code, -1
            else:
                by_leader.setdefault(leader, []).append(tp)
        waiting = set(by_leader)

        def answered(leader: Node, ends: Ends) -> None:
            found.update(ends)
            waiting.discard(leader)
            if not waiting:
                then(found)

        if not waiting:
            then(found)
        for leader, asked in by_leader.items():
            self._queue.append((leader, asked, partial(answered, leader)))
        self.wakeup()

    def generate_requests(self) -> Iterable[RequestAndCompletionHandler]:
        queue, self._queue = self._queue, []
        for node, partitions, then in queue:
            topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
            for topic, number in partitions:
                topics.setdefault(topic, []).append(
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=LATEST_TIMESTAMP)
                )
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=asked) for topic, asked in topics.items()
                ],
            )
            yield RequestAndCompletionHandler(
                self._broker.loop.now_ms, node, RequestBuilder(request), partial(self._on_response, partitions, then)
            )

    @staticmethod
    def _on_response(partitions: list[TopicPartition], then: Callable[[Ends], None], response: ClientResponse) -> None:
        ends = dict.fromkeys(partitions, (NetworkError.code, -1))
        body = response.response_body
        if isinstance(body, ListOffsetsResponse):
            for topic in body.topics:
                for partition in topic.partitions:
                    ends[TopicPartition(topic.name, partition.partition_index)] = partition.error_code, partition.offset
        then(ends)
