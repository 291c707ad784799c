"""A transactional sender on a mock client, with coordinators that answer as a test tells them to."""

from __future__ import annotations

from collections import deque
from typing import Any

from pykclient.errors import BrokerError
from pykclient.network.cluster_connection_states import NodeApiVersions
from pykclient.producer.future import FutureRecordMetadata
from pykclient.producer.transactions.transaction_manager import TransactionManager
from pykclient.producer.transactions.transactional_calls import PreparedTxnState, TransactionalRequestResult
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from pykclient.protocol.messages.end_txn import EndTxnResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from pykclient.record import MemoryRecords
from pykclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.producer.harness import TP0, SenderHarness, nodes

TRANSACTIONAL_ID = "payments"
PRODUCER_ID = 13
LOST = "lost"


class TransactionHarness(SenderHarness):
    """Coordinators on node 1 that grant everything, except for what ``fail`` queues.

    ``log`` has the name of each request and its main contents, in the order of arrival.
    """

    def __init__(self, *, v2: bool = True, init_version: int = 5, **settings: Any) -> None:
        super().__init__(transactional_id=TRANSACTIONAL_ID, **settings)
        assert isinstance(self.manager, TransactionManager)
        self.transactions: TransactionManager = self.manager
        self.log: list[tuple[Any, ...]] = []
        self.held: set[str] = set()  # requests of these names get no answer
        self._failures: dict[str, deque[int | str]] = {}
        self.epoch = -1
        #: The producer id and epoch of the transaction that an earlier producer has left.
        self.ongoing: tuple[int, int] | None = None
        self.features_epoch = 0
        self.version_of_init = -1
        self._init_version = init_version
        self.set_generation(v2)

    def set_generation(self, v2: bool) -> None:
        """Have the brokers agree on a generation of transactions."""
        self.features_epoch += 1
        versions = NodeApiVersions.create([(22, 0, self._init_version)]).versions
        for node in nodes(2):
            self.api_versions.update(
                node.id_string,
                NodeApiVersions(versions, {}, {"transaction.version": 2 if v2 else 1}, self.features_epoch),
            )

    def fail(self, name: str, *errors: type[BrokerError] | str) -> None:
        """Answer the next requests called ``name`` with errors; ``LOST`` drops the connection."""
        codes = (error if isinstance(error, str) else error.code for error in errors)
        self._failures.setdefault(name, deque()).extend(codes)

    def names(self) -> list[str]:
        """Return the names of the requests so far, and forget them."""
        names = [entry[0] for entry in self.log]
        self.log.clear()
        return names

    # --- calls of the application --------------------------------------------------------------------------------

    def init(self) -> None:
        self.complete(self.transactions.begin_init())
        self.log.clear()

    def begin(self, *tps: TopicPartition) -> list[FutureRecordMetadata]:
        """Begin a transaction, with a record for each of the partitions."""
        self.transactions.begin_transaction()
        return [self.append(tp) for tp in tps]

    def commit(self) -> None:
        self.complete(self.transactions.begin_commit())

    def abort(self) -> None:
        self.complete(self.transactions.begin_abort())

    def prepare(self) -> PreparedTxnState:
        self.complete(self.transactions.begin_prepare())
        return self.transactions.prepared_state

    def complete_prepared(self, prepared_state: PreparedTxnState) -> None:
        result = self.transactions.begin_complete(prepared_state)
        if result is not None:
            self.complete(result)

    def send_offsets(self, group: ConsumerGroupMetadata | None = None) -> None:
        offsets = {TP0: OffsetAndMetadata(7)}
        group = group or ConsumerGroupMetadata("g", 3, "m", None)
        self.complete(self.transactions.send_offsets(offsets, group))

    def complete(self, result: TransactionalRequestResult, rounds: int = 150) -> None:
        """Run rounds until the call has its result, and raise its error."""
        for _ in range(rounds):
            self.round()
            if result.completed:
                self.transactions.acknowledge(result)
                if result.error is not None:
                    raise result.error
                return
        raise AssertionError(f"{result.operation} is not completed after {self.log[-5:]}")

    def rounds(self, count: int = 5) -> None:
        for _ in range(count):
            self.round()

    def round(self) -> None:
        """Run one round of the sender, answer what it has sent, and let some time pass."""
        self.run_once()
        for request in self.requests():
            self._answer(request)
        self.run_once()
        self.clock.advance(10)

    # --- the coordinators ----------------------------------------------------------------------------------------

    def _answer(self, request: Any) -> None:
        version = self.client._version(request)
        message = request.request_builder.build(version)
        name = ApiKeys.message_class(message.API_KEY).__name__.removesuffix("Request")
        if name in self.held:
            return
        failures = self._failures.get(name)
        failure = failures.popleft() if failures else 0
        if failure == LOST:
            self.log.append((name, LOST))
            self.client.respond_to_request(request, None, disconnected=True)
            return
        answer = getattr(self, f"_{name}")(message, version, failure)
        self.client.respond_to_request(request, answer)

    def _FindCoordinator(self, message: Any, version: int, code: int) -> Any:
        self.log.append(("FindCoordinator", message.key_type, *message.coordinator_keys))
        found = FindCoordinatorResponse.Coordinator(
            key=message.coordinator_keys[0], node_id=1, host="host1", port=9092, error_code=code
        )
        return FindCoordinatorResponse(coordinators=[found])

    def _InitProducerId(self, message: Any, version: int, code: int) -> Any:
        entry: tuple[Any, ...] = ("InitProducerId", message.producer_id, message.producer_epoch)
        if version >= 6:
            assert message.enable2_pc
            assert message.transaction_timeout_ms == (1 << 31) - 1
            entry = (*entry, "keep" if message.keep_prepared_txn else "abort")
        self.version_of_init = version
        self.log.append(entry)
        if code:
            return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        self.epoch += 1
        response = InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)
        if self.ongoing is not None and message.keep_prepared_txn:
            response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch = self.ongoing
        return response

    def _AddPartitionsToTxn(self, message: Any, version: int, code: int) -> Any:
        results = []
        partitions = []
        for topic in message.v3_and_below_topics:
            partitions += topic.partitions
            result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic.name)
            for partition in topic.partitions:
                result.results_by_partition.append(
                    AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=code
                    )
                )
            results.append(result)
        self.log.append(("AddPartitionsToTxn", *partitions))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _AddOffsetsToTxn(self, message: Any, version: int, code: int) -> Any:
        self.log.append(("AddOffsetsToTxn", message.group_id))
        return AddOffsetsToTxnResponse(error_code=code)

    def _TxnOffsetCommit(self, message: Any, version: int, code: int) -> Any:
        self.log.append(("TxnOffsetCommit", version, message.group_id, message.generation_id, message.member_id))
        topics = []
        for topic in message.topics:
            answered = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name)
            for partition in topic.partitions:
                answered.partitions.append(
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
            topics.append(answered)
        return TxnOffsetCommitResponse(topics=topics)

    def _EndTxn(self, message: Any, version: int, code: int) -> Any:
        self.log.append(("EndTxn", "commit" if message.committed else "abort", message.producer_epoch))
        if code or version < 5:
            return EndTxnResponse(error_code=code)
        self.epoch += 1
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _Produce(self, message: Any, version: int, code: int) -> Any:
        topics = []
        for topic in message.topic_data:
            answered = ProduceResponse.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            for part in topic.partition_data:
                batches = list(MemoryRecords(bytes(part.records)).batches())
                assert all(batch.is_transactional for batch in batches)
                assert message.transactional_id == TRANSACTIONAL_ID
                self.log.append(("Produce", version, part.index, batches[0].producer_epoch, batches[0].base_sequence))
                answered.partition_responses.append(
                    ProduceResponse.PartitionProduceResponse(index=part.index, error_code=code)
                )
            topics.append(answered)
        return ProduceResponse(responses=topics)
