"""The parts of a producer on a mock clock and a mock client."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pykclient.clock import FOREVER_MS
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.client_request import ClientRequest
from pykclient.network.cluster_connection_states import ApiVersions
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.metadata import MetadataSnapshot, PartitionMetadata
from pykclient.producer.batch_register import AccumulatorConfig, NodeQueues
from pykclient.producer.buffer_pool import BufferPool
from pykclient.producer.future import FutureRecordMetadata, OnDelivery, ProducerBatch
from pykclient.producer.produce_requests import SenderMetrics
from pykclient.producer.producer_metadata import ProducerMetadata
from pykclient.producer.record_accumulator import RecordAccumulator
from pykclient.producer.sender import Sender, SenderConfig
from pykclient.producer.sender_thread import SenderDriver, SenderThread
from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
from pykclient.producer.transactions.transaction_manager import TransactionManager
from pykclient.producer.transactions.transactional_calls import TransactionalSettings
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record import NO_COMPRESSION, Compression, MemoryRecords
from pykclient.types import Node, TopicPartition
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock

TOPIC = "orders"
TP0 = TopicPartition(TOPIC, 0)
TP1 = TopicPartition(TOPIC, 1)
TOPIC_ID = uuid.uuid5(uuid.NAMESPACE_DNS, TOPIC)
DELIVERY_TIMEOUT_MS = 1500
REQUEST_TIMEOUT_MS = 1000
RETRY_BACKOFF_MS = 50
TRANSACTION_TIMEOUT_MS = 60_000


def nodes(count: int) -> list[Node]:
    return [Node(index, f"host{index}", 9092) for index in range(count)]


def snapshot(
    partitions: Mapping[TopicPartition, int | None],
    node_count: int = 2,
    epochs: Mapping[TopicPartition, int] | None = None,
) -> MetadataSnapshot:
    """Return a metadata snapshot; ``partitions`` maps to the leader's id."""
    epochs = epochs or {}
    return MetadataSnapshot.of(
        "cluster",
        {node.id: node for node in nodes(node_count)},
        [PartitionMetadata(tp, 0, leader, epochs.get(tp)) for tp, leader in partitions.items()],
    )


def metadata_response(
    leaders: Mapping[TopicPartition, int] | None = None,
    node_count: int = 2,
    epoch: int = 1,
    errors: Mapping[str, int] | None = None,
    topic_ids: Mapping[str, uuid.UUID] | None = None,
) -> MetadataResponse:
    topics: dict[str, MetadataResponse.MetadataResponseTopic] = {}
    for tp, leader in ({TP0: 0, TP1: 1} if leaders is None else leaders).items():
        topic = topics.get(tp.topic)
        if topic is None:
            topic_id = (topic_ids or {TOPIC: TOPIC_ID}).get(tp.topic, uuid.UUID(int=0))
            topic = topics[tp.topic] = MetadataResponse.MetadataResponseTopic(name=tp.topic, topic_id=topic_id)
        topic.partitions.append(
            MetadataResponse.MetadataResponsePartition(
                partition_index=tp.partition, leader_id=leader, leader_epoch=epoch, replica_nodes=[0], isr_nodes=[0]
            )
        )
    for name, code in (errors or {}).items():
        topics[name] = MetadataResponse.MetadataResponseTopic(name=name, error_code=code)
    brokers = [
        MetadataResponse.MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port)
        for node in nodes(node_count)
    ]
    return MetadataResponse(cluster_id="cluster", controller_id=0, brokers=brokers, topics=topics.values())


def produce_response(
    results: Mapping[TopicPartition, tuple[int, int]],
    *,
    log_append_time_ms: int = -1,
    log_start_offset: int = -1,
    error_message: str | None = None,
    record_errors: Mapping[int, str | None] | None = None,
    leader: tuple[int, int] | None = None,
    endpoints: Sequence[Node] = (),
    by_id: bool = True,
) -> ProduceResponse:
    """Return a produce response; ``results`` maps to (error code, base offset), ``leader`` is (id, epoch)."""
    topics: dict[str, ProduceResponse.TopicProduceResponse] = {}
    for tp, (error_code, base_offset) in results.items():
        topic = topics.get(tp.topic)
        if topic is None:
            if by_id:
                topic = ProduceResponse.TopicProduceResponse(topic_id=TOPIC_ID)
            else:
                topic = ProduceResponse.TopicProduceResponse(name=tp.topic)
            topics[tp.topic] = topic
        partition = ProduceResponse.PartitionProduceResponse(
            index=tp.partition,
            error_code=error_code,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
            error_message=error_message,
            record_errors=[
                ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in (record_errors or {}).items()
            ],
        )
        if leader is not None:
            partition.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        topic.partition_responses.append(partition)
    return ProduceResponse(
        responses=topics.values(),
        node_endpoints=[
            ProduceResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port) for node in endpoints
        ],
    )


class SenderHarness:
    """A Sender with an accumulator, mock client and clock; ``run_once`` runs one round."""

    def __init__(
        self,
        *,
        idempotent: bool = True,
        acks: int = -1,
        retries: int = (1 << 31) - 1,
        guarantee_message_order: bool = False,
        batch_size: int = 16 * 1024,
        memory: int = 1024 * 1024,
        linger_ms: int = 0,
        compression: Compression = NO_COMPRESSION,
        max_request_size: int = 1024 * 1024,
        metadata: MetadataResponse | None = None,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        transactional_id: str | None = None,
        two_phase_commit: bool = False,
    ) -> None:
        self.clock = MockClock()
        log_context = LogContext()
        self.metadata = ProducerMetadata(0, 0, 300_000, 300_000, log_context, self.clock, rng=random.Random(1))
        self.client = MockClient(self.clock, self.metadata)
        thread = SenderThread(wakeup=self.client.wakeup)
        self.api_versions = ApiVersions()
        self.manager = ProducerIdManager(log_context, RETRY_BACKOFF_MS) if idempotent else None
        if transactional_id is not None:
            self.manager = TransactionManager(
                log_context,
                TransactionalSettings(transactional_id, TRANSACTION_TIMEOUT_MS, RETRY_BACKOFF_MS, two_phase_commit),
                self.api_versions,
                ExponentialBackoff(RETRY_BACKOFF_MS, RETRY_BACKOFF_MS),
                self.clock,
                thread,
            )
        self.pool = BufferPool(memory, batch_size, self.clock)
        self.accumulator = RecordAccumulator(
            AccumulatorConfig(
                batch_size,
                compression,
                linger_ms,
                RETRY_BACKOFF_MS,
                RETRY_BACKOFF_MS,
                delivery_timeout_ms,
                guarantee_message_order=guarantee_message_order,
            ),
            self.pool,
            self.clock,
            log_context,
            self.manager,
            random.Random(1),
            thread,
        )
        self.metrics = Metrics(clock=self.clock)
        self.sender_metrics = sender_metrics = SenderMetrics(self.metrics, self.metadata, self.client, self.clock)
        self.sender = Sender(
            SenderConfig(acks, retries, max_request_size, REQUEST_TIMEOUT_MS, RETRY_BACKOFF_MS),
            self.client,
            self.metadata,
            self.accumulator,
            sender_metrics,
            self.clock,
            log_context,
            self.manager,
        )
        self.driver = SenderDriver(self.sender, self.client, thread, self.clock, log_context)
        self.metadata.add(TOPIC, self.clock.now_ms())
        self.client.update_metadata(metadata or metadata_response())

    def append(
        self,
        tp: TopicPartition = TP0,
        value: bytes = b"value",
        key: bytes | None = b"key",
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata:
        future, _, _ = self.accumulator.append(
            tp.topic, tp.partition, self.clock.wall_ms(), key, value, (), on_delivery, 1000, self.metadata.fetch()
        )
        assert future is not None
        return future

    def run_once(self, rounds: int = 1) -> None:
        """Run steps of the sender, each followed by a poll; no step may fail."""
        for _ in range(rounds):
            now_ms = self.clock.now_ms()
            wait_ms = self.sender.step(now_ms)
            assert self.sender._next_round_ms <= now_ms, self.sender._last_error
            self.client.poll(wait_ms, now_ms)

    def run_once_safely(self) -> None:
        """Run a step and a poll; either may fail."""
        now_ms = self.clock.now_ms()
        wait_ms = self.sender.step(now_ms)
        try:
            self.client.poll(wait_ms, now_ms)
        except Exception as error:  # noqa: BLE001 - as a driver does
            self.sender.round_failed(error, now_ms)

    def get_producer_id(self, producer_id: int = 13, epoch: int = 0) -> None:
        """Respond to the InitProducerId request that the first record causes."""
        assert self.manager is not None
        self.client.prepare_response(
            InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch), _is_init_producer_id
        )
        for _ in range(5):
            if self.manager.has_producer_id:
                return
            self.run_once()
        raise AssertionError("no producer id")

    def respond(self, error_code: int = 0, base_offset: int = 0, tp: TopicPartition = TP0, **kwargs: Any) -> None:
        """Respond to the oldest produce request, and let the sender process the response."""
        self.client.respond(produce_response({tp: (error_code, base_offset)}, **kwargs))

    def respond_to(self, request: ClientRequest, error_code: int, base_offset: int, tp: TopicPartition = TP0) -> None:
        self.client.respond_to_request(request, produce_response({tp: (error_code, base_offset)}))

    def requests(self) -> list[ClientRequest]:
        return list(self.client.requests)

    def sent_batches(self) -> list[tuple[int, int, int, int]]:
        """Return (producer id, epoch, base sequence, record count) of each batch in flight, oldest request first."""
        sent = []
        for request in self.client.requests:
            message = request.request_builder.build(request.request_builder.latest_allowed_version)
            assert isinstance(message, ProduceRequest)
            for topic in message.topic_data:
                for partition in topic.partition_data:
                    assert partition.records is not None
                    for batch in MemoryRecords(bytes(partition.records)).batches():
                        batch.ensure_valid()
                        sent.append(
                            (batch.producer_id, batch.producer_epoch, batch.base_sequence, len(batch.records()))
                        )
        return sent

    def drained(self, snapshot_: MetadataSnapshot | None = None) -> list[ProducerBatch]:
        shot = snapshot_ or self.metadata.fetch_metadata_snapshot()
        now_ms = self.clock.now_ms()
        due, _ = nodes_due(self.accumulator, shot, now_ms)
        return [batch for of_node in due.values() for batch in self.accumulator.drain(of_node, 1 << 20, now_ms)]


def nodes_due(accumulator: RecordAccumulator, shot: MetadataSnapshot, now_ms: int) -> tuple[dict[int, NodeQueues], int]:
    """Return the nodes with batches that are due, by id, and in how many ms one is due for another node."""
    accumulator.waiting.file(shot)
    due: dict[int, NodeQueues] = {}
    next_ms = FOREVER_MS
    for node_id, of_node in accumulator.waiting.nodes.items():
        delay_ms = of_node.delay_ms(now_ms, accumulator.sends_all)
        if delay_ms:
            next_ms = min(next_ms, delay_ms)
        else:
            due[node_id] = of_node
    return due, next_ms


def _is_init_producer_id(request: Any) -> bool:
    return type(request).__name__ == "InitProducerIdRequest"


def deliveries(into: list[tuple[Exception | None, int]]) -> OnDelivery:
    """Return an on_delivery callback that records errors and offsets."""
    return lambda error, metadata: into.append((error, metadata.offset))


Matcher = Callable[[Any], bool]
