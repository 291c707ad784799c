"""Leaders' requests to the controller for changes of their in-sync replicas (Java: AlterPartitionManager, KIP-497)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from pykclient.errors import for_code
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pykclient.testing.replica.partition_state import LeaderAndIsr
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker

_RETRY_BACKOFF_MS = 50
_ERROR_UNKNOWN_SERVER = -1

#: Called with the new state or with an error code.
Listener = Callable[[LeaderAndIsr | None, int], None]


class AlterPartitionItem(NamedTuple):
    """A requested change. ``broker_epochs`` are those of the ISR's members, -1 where unknown (KIP-903)."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader_and_isr: LeaderAndIsr
    broker_epochs: dict[int, int]
    listener: Listener


class AlterPartitionManager:
    """Collects the changes that a broker's partitions request.

    One request is in flight at a time; the next one contains all changes submitted meanwhile. Thread: loop.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log = broker.log_context.logger(__name__)
        self._unsent: dict[TopicPartition, AlterPartitionItem] = {}
        self._inflight: dict[TopicPartition, AlterPartitionItem] | None = None
        self._scheduled = False

    def submit(self, item: AlterPartitionItem) -> bool:
        """Request a change; return False if a request for this partition is in flight already."""
        topic_partition = item.topic_partition
        if topic_partition in self._unsent or (self._inflight is not None and topic_partition in self._inflight):
            return False
        self._unsent[topic_partition] = item
        if self._inflight is None and not self._scheduled:
            # Delayed, because one fetch can add a follower to many ISRs, which then change in one request.
            self._scheduled = True
            self._broker.call_soon(self._send)
        return True

    def _send(self) -> None:
        self._scheduled = False
        if self._inflight is not None or not self._unsent:
            return
        self._inflight, self._unsent = self._unsent, {}
        request = self._request(self._inflight)
        self._broker.node_to_controller.send_request(RequestBuilder(request), self._on_complete, self._on_timeout)

    def _request(self, items: dict[TopicPartition, AlterPartitionItem]) -> AlterPartitionRequest:
        topics: dict[UUID, AlterPartitionRequest.TopicData] = {}
        for (_, index), item in items.items():
            topic = topics.get(item.topic_id)
            if topic is None:
                topic = topics[item.topic_id] = AlterPartitionRequest.TopicData(topic_id=item.topic_id)
            wanted = item.leader_and_isr
            members = [
                AlterPartitionRequest.BrokerState(broker_id=id, broker_epoch=item.broker_epochs.get(id, -1))
                for id in wanted.isr
            ]
            topic.partitions.append(
                AlterPartitionRequest.PartitionData(
                    partition_index=index,
                    leader_epoch=wanted.leader_epoch,
                    new_isr_with_epochs=members,
                    partition_epoch=wanted.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker.id, broker_epoch=self._broker.epoch, topics=list(topics.values())
        )

    def _on_timeout(self) -> None:
        self._retry("the controller was not reached in time")

    def _on_complete(self, response: ClientResponse) -> None:
        body = response.response_body
        if not isinstance(body, AlterPartitionResponse):
            self._retry(f"no answer: {response}")
        elif body.error_code:
            # For example STALE_BROKER_EPOCH: this broker is about to register again, and will know its epoch then.
            self._retry(str(for_code(body.error_code)))
        else:
            self._handle(body)

    def _retry(self, reason: str) -> None:
        self._log.debug("Could not change ISRs, trying again in %d ms: %s", _RETRY_BACKOFF_MS, reason)
        items, self._inflight = self._inflight or {}, None
        self._unsent = {**items, **self._unsent}
        self._scheduled = True
        self._broker.call_later(_RETRY_BACKOFF_MS, self._send)

    def _handle(self, body: AlterPartitionResponse) -> None:
        items, self._inflight = self._inflight or {}, None
        answers = {
            (topic.topic_id, partition.partition_index): partition
            for topic in body.topics
            for partition in topic.partitions
        }
        for item in items.values():
            answer = answers.get((item.topic_id, item.topic_partition.partition))
            if answer is None:
                item.listener(None, _ERROR_UNKNOWN_SERVER)
            elif answer.error_code:
                item.listener(None, answer.error_code)
            else:
                state = LeaderAndIsr(answer.leader_id, answer.leader_epoch, tuple(answer.isr), answer.partition_epoch)
                item.listener(state, 0)
        if self._unsent and not self._scheduled:
            self._scheduled = True
            self._broker.call_soon(self._send)
