"""What brokers do with a producer's requests (Kafka: ReplicaManager, UnifiedLog, ProducerStateManager)."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import RequestHeader
from pykclient.protocol.message import Request, Response
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record import MemoryRecords

TOPIC = "orders"
TOPIC_ID = uuid.uuid5(uuid.NAMESPACE_DNS, TOPIC)

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
MESSAGE_TOO_LARGE = 10
COORDINATOR_LOAD_IN_PROGRESS = 14
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
UNKNOWN_PRODUCER_ID = 59
INVALID_RECORD = 87

#: Said of a batch that is in the log of the leader, but may not stay there.
AFTER_APPEND = frozenset((REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND))

_REMEMBERED_BATCHES = 5
_NO_EPOCH = -1


class Orders(NamedTuple):
    """What a request meets at the broker, decided by the schedule."""

    #: For partitions in the order of the request, over and over; NONE: by the rules.
    errors: tuple[int, ...] = (NONE,)
    #: How long the followers take to have the records.
    replication_ms: int = 0
    throttle_ms: int = 0
    #: By how many changes the metadata is behind.
    lag: int = 0
    #: Whether NOT_LEADER_OR_FOLLOWER names the leader (KIP-951).
    hints: bool = True


class LogRecord(NamedTuple):
    value: bytes
    producer_id: int
    producer_epoch: int
    sequence: int


class BatchMeta(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int


class ProducerState:
    """What a partition remembers of a producer."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[BatchMeta] = deque(maxlen=_REMEMBERED_BATCHES)


class Partition:
    """One log. What is before ``committed`` no election can take away."""

    def __init__(self, leader: int) -> None:
        self.leader: int | None = leader
        self.leader_epoch = 0
        self.log: list[LogRecord] = []
        self.committed = 0
        self.producers: dict[int, ProducerState] = {}
        self._appended: list[tuple[int, int, BatchMeta]] = []  # (producer id, epoch, batch) of all that is in the log
        self.written_ms = 0
        #: When a producer was told last that its batch was not taken.
        self.refused_ms = -1
        #: How many batches were larger than the broker takes.
        self.too_large = 0

    def move(self, leader: int | None, truncate: bool) -> None:
        self.leader = leader
        self.leader_epoch += 1
        if truncate:
            del self.log[self.committed :]
            kept = [entry for entry in self._appended if entry[2].first_offset < self.committed]
            if kept != self._appended:
                self._appended = kept
                known = set(self.producers)
                self.producers = {}
                for producer_id, epoch, batch in kept:
                    if producer_id in known:
                        self._remember(producer_id, epoch, batch)
        self.committed = len(self.log)

    def _remember(self, producer_id: int, epoch: int, batch: BatchMeta) -> None:
        state = self.producers.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self.producers[producer_id] = ProducerState(epoch)
        state.batches.append(batch)

    def append(self, data: bytes, max_batch_size: int, knows_unknown: bool) -> tuple[int, int]:
        """Error code and base offset."""
        (batch,) = MemoryRecords(data).batches()
        batch.ensure_valid()  # what a memory error of the producer would look like
        records = list(batch.records())
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if producer_id >= 0:
            code, offset = self._check(producer_id, epoch, batch.base_sequence, len(records), knows_unknown)
            if code or offset is not None:
                return code, -1 if offset is None else offset
        if len(data) > max_batch_size:
            self.too_large += 1
            return MESSAGE_TOO_LARGE, -1
        base_offset = len(self.log)
        for index, record in enumerate(records):
            assert record.value is not None
            sequence = batch.base_sequence + index if producer_id >= 0 else -1
            self.log.append(LogRecord(bytes(record.value), producer_id, epoch, sequence))
        if producer_id >= 0:
            meta = BatchMeta(batch.base_sequence, batch.base_sequence + len(records) - 1, base_offset)
            self._remember(producer_id, epoch, meta)
            self._appended.append((producer_id, epoch, meta))
        return NONE, base_offset

    def _check(
        self, producer_id: int, epoch: int, sequence: int, count: int, knows_unknown: bool
    ) -> tuple[int, int | None]:
        """Error code, and for a batch that was written before its offset."""
        state = self.producers.get(producer_id)
        if state is None:
            return (NONE if knows_unknown or sequence == 0 else UNKNOWN_PRODUCER_ID), None
        if epoch == state.epoch:
            for known in state.batches:
                if (known.first_sequence, known.last_sequence) == (sequence, sequence + count - 1):
                    return NONE, known.first_offset
        if epoch < state.epoch:
            return INVALID_PRODUCER_EPOCH, None
        expected = 0 if epoch != state.epoch else state.batches[-1].last_sequence + 1
        return (NONE if sequence == expected else OUT_OF_ORDER_SEQUENCE_NUMBER), None

    def forget(self, until_ms: int) -> None:
        """``producer.id.expiration.ms`` has passed, if nothing was written after ``until_ms``."""
        if self.written_ms <= until_ms:
            self.producers.clear()


class Topology(NamedTuple):
    """What metadata shows: leader and epoch of each partition."""

    leaders: tuple[tuple[int | None, int], ...]


class Brokers:
    """The cluster. It has no time and no network of its own: ``later(delay_ms, function)`` is the simulation's."""

    def __init__(
        self,
        later: Callable[[int, Callable[[], None]], None],
        now_ms: Callable[[], int],
        *,
        count: int = 3,
        partitions: int = 3,
        max_batch_size: int = 1 << 20,
        first_epoch: int = 0,
        knows_unknown: bool = True,
        max_versions: dict[int, int] | None = None,
    ) -> None:
        self._later = later
        self._now_ms = now_ms
        self.count = count
        self.partitions = [Partition(index % count) for index in range(partitions)]
        self.max_batch_size = max_batch_size
        self._first_epoch = first_epoch
        #: Whether any sequence number is taken from a producer that is not known (KIP-360), or only 0 is.
        self._knows_unknown = knows_unknown
        self._max_versions = max_versions or {}
        self._next_producer_id = 1000
        self._history: list[Topology] = [self._topology()]

    def move(self, partition: int, leader: int | None, truncate: bool) -> None:
        self.partitions[partition].move(leader, truncate)
        self._history.append(self._topology())

    def _topology(self) -> Topology:
        return Topology(tuple((partition.leader, partition.leader_epoch) for partition in self.partitions))

    def endpoint(self, broker: int) -> tuple[str, int]:
        return f"10.0.0.{broker}", 9092

    def broker_at(self, ip: str) -> int:
        return int(ip.rsplit(".", 1)[1])

    # --- requests ----------------------------------------------------------------------------------------------

    def handle(
        self,
        broker: int,
        header: RequestHeader,
        request: Request,
        orders: Orders,
        may_append: Callable[[Partition], bool],
        answer: Callable[[Response | None], None],
    ) -> None:
        """Do what ``request`` asks for and call ``answer``, now or later. ``may_append``: False for what comes from a
        connection that the client left for another one, once that other one was told something else.
        """
        if isinstance(request, ProduceRequest):
            self._produce(broker, header.api_version, request, orders, may_append, answer)
        elif header.api_key == ApiKeys.METADATA:
            answer(self._metadata(orders))
        elif header.api_key == ApiKeys.API_VERSIONS:
            answer(self._api_versions())
        elif header.api_key == ApiKeys.INIT_PRODUCER_ID:
            answer(self._init_producer_id(orders))
        else:
            raise AssertionError(f"a producer has no use for {header}")

    def _api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=key,
                    min_version=ApiKeys.oldest_version(key),
                    max_version=self._max_versions.get(key, ApiKeys.latest_version(key)),
                )
                for key in (ApiKeys.PRODUCE, ApiKeys.METADATA, ApiKeys.API_VERSIONS, ApiKeys.INIT_PRODUCER_ID)
            ]
        )

    def _init_producer_id(self, orders: Orders) -> InitProducerIdResponse:
        if orders.errors[0]:
            return InitProducerIdResponse(error_code=COORDINATOR_LOAD_IN_PROGRESS)
        self._next_producer_id += 1
        return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=self._first_epoch)

    def _metadata(self, orders: Orders) -> MetadataResponse:
        topology = self._history[max(0, len(self._history) - 1 - orders.lag)]
        partitions = [
            MetadataResponse.MetadataResponsePartition(
                error_code=LEADER_NOT_AVAILABLE if leader is None else NONE,
                partition_index=index,
                leader_id=-1 if leader is None else leader,
                leader_epoch=epoch,
                replica_nodes=range(self.count),
                isr_nodes=range(self.count),
            )
            for index, (leader, epoch) in enumerate(topology.leaders)
        ]
        brokers = []
        for node_id in range(self.count):
            host, port = self.endpoint(node_id)
            brokers.append(MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port))
        topic = MetadataResponse.MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)
        return MetadataResponse(
            cluster_id="model", controller_id=0, brokers=brokers, topics=[topic], throttle_time_ms=orders.throttle_ms
        )

    # --- produce -----------------------------------------------------------------------------------------------

    def _produce(
        self,
        broker: int,
        version: int,
        request: ProduceRequest,
        orders: Orders,
        may_append: Callable[[Partition], bool],
        answer: Callable[[Response | None], None],
    ) -> None:
        parts: list[tuple[int, int, int, int]] = []  # partition, code, base offset, leader epoch
        records = 0
        for topic in request.topic_data:
            assert (topic.topic_id if version >= 13 else topic.name) == (TOPIC_ID if version >= 13 else TOPIC)
            for data in topic.partition_data:
                assert data.records is not None
                injected = orders.errors[len(parts) % len(orders.errors)]
                partition = self.partitions[data.index]
                code, offset = self._append(broker, partition, injected, bytes(data.records), may_append)
                if code == NONE:
                    records += 1
                    partition.written_ms = self._now_ms()
                elif code not in AFTER_APPEND:
                    partition.refused_ms = self._now_ms()
                parts.append((data.index, code, offset, partition.leader_epoch))
        if request.acks == 0:
            answer(None)
            return

        def respond() -> None:
            answer(self._produce_response(version, request.acks, parts, orders))

        if request.acks == -1 and records and orders.replication_ms:
            self._later(orders.replication_ms, respond)
        else:
            respond()

    def _append(
        self, broker: int, partition: Partition, injected: int, data: bytes, may_append: Callable[[Partition], bool]
    ) -> tuple[int, int]:
        if partition.leader != broker or not may_append(partition):
            return NOT_LEADER_OR_FOLLOWER, -1
        if injected and injected not in AFTER_APPEND:
            return injected, -1
        code, offset = partition.append(data, self.max_batch_size, self._knows_unknown)
        return code or injected, offset

    def _produce_response(
        self, version: int, acks: int, parts: Sequence[tuple[int, int, int, int]], orders: Orders
    ) -> ProduceResponse:
        answers = []
        hinted = False
        for index, appended_code, offset, epoch in parts:
            code = appended_code
            partition = self.partitions[index]
            if code == NONE and acks == -1:
                if partition.leader_epoch != epoch:
                    code = NOT_LEADER_OR_FOLLOWER  # it lost the election while the followers were copying
                else:
                    partition.committed = len(partition.log)
            part: Any = ProduceResponse.PartitionProduceResponse(
                index=index,
                error_code=code,
                base_offset=offset if code == NONE else -1,
                log_start_offset=0 if code in (NONE, UNKNOWN_PRODUCER_ID) else -1,
            )
            if code == INVALID_RECORD:
                part.record_errors = [
                    ProduceResponse.BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="bad")
                ]
            if code == NOT_LEADER_OR_FOLLOWER and orders.hints and version >= 10 and partition.leader is not None:
                hinted = True
                part.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.leader_epoch
                )
            answers.append(part)
        endpoints = []
        for node_id in range(self.count) if hinted else ():
            host, port = self.endpoint(node_id)
            endpoints.append(ProduceResponse.NodeEndpoint(node_id=node_id, host=host, port=port))
        topic = ProduceResponse.TopicProduceResponse(partition_responses=answers)
        if version >= 13:
            topic.topic_id = TOPIC_ID
        else:
            topic.name = TOPIC
        return ProduceResponse(responses=[topic], node_endpoints=endpoints, throttle_time_ms=orders.throttle_ms)
