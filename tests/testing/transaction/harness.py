"""A whole cluster on virtual time, and transactional producers that send their requests by hand."""

from __future__ import annotations

from typing import Any, TypeVar

from pykclient.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
)
from pykclient.protocol.message import Request, Response
from pykclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from pykclient.testing.log.log_types import FetchIsolation
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.testing.transaction.transaction_metadata import TransactionMetadata
from pykclient.types import TopicPartition
from tests.testing.controller.harness import Answer, ClusterHarness

R = TypeVar("R", bound=Response)

TOPIC = "topic"
GROUP = "group"
TP0, TP1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
#: All transactional ids are in this partition, and all groups in that one, so single brokers coordinate them.
TRANSACTIONS = TopicPartition("__transaction_state", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
COMMIT, ABORT = True, False

#: Errors that a producer retries.
RETRIABLE = frozenset(
    error.code
    for error in (
        ConcurrentTransactionsError,
        CoordinatorLoadInProgressError,
        CoordinatorNotAvailableError,
        NotCoordinatorError,
        NotEnoughReplicasError,
        NotLeaderOrFollowerError,
    )
)
_RETRY_MS = 20


class TransactionHarness(ClusterHarness):
    """Three brokers, a topic of two partitions with three replicas each, and the coordinators' topics."""

    def __init__(self, transaction_version: int = 2, **settings: Any) -> None:
        defaults = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
        super().__init__(transaction_version=transaction_version, **{**defaults, **settings})
        self.version = transaction_version
        self.create_topic(TOPIC, assignment=[[1, 2, 3], [2, 3, 1]])
        for key_type in (0, 1):
            self.coordinator(key_type)

    # --- who does what

    def coordinator(self, key_type: int = 1) -> int:
        """Return the coordinator of all transactional ids (1) or all groups (0)."""
        found: list[int] = []

        def is_found() -> bool:
            asked = [broker.id for broker in self.cluster.alive_brokers() if not broker.paused]
            answer = self.send(FindCoordinatorRequest(key="any", key_type=key_type), asked[0], 3).response
            assert isinstance(answer, FindCoordinatorResponse)
            found[:] = [answer.node_id]
            return not answer.error_code

        while not is_found():
            self.run_for(_RETRY_MS)
        return found[0]

    def leader(self, topic_partition: TopicPartition) -> int:
        found = self.cluster.leader(topic_partition)
        assert found is not None, f"{topic_partition} has no leader"
        return found

    def metadata(self, transactional_id: str) -> TransactionMetadata:
        """Return the coordinator's state of a transactional id."""
        return self.broker(self.leader(TRANSACTIONS)).transaction_coordinator.describe_transaction(transactional_id)

    def log(self, topic_partition: TopicPartition, broker_id: int | None = None) -> UnifiedLog:
        """Return the log of a partition, by default its leader's."""
        broker = self.broker(self.leader(topic_partition) if broker_id is None else broker_id)
        partition = broker.replica_manager.partition(topic_partition)
        assert partition is not None
        assert partition.log is not None
        return partition.log

    def committed(self, topic_partition: TopicPartition) -> list[bytes]:
        """Return the values that read_committed shows."""
        log = self.log(topic_partition)
        data = log.read(log.log_start_offset, 1 << 30, FetchIsolation.TXN_COMMITTED)
        waiting = sorted(data.aborted_transactions or (), key=lambda txn: txn.first_offset)
        aborted: set[int] = set()
        values = []
        for batch in log.batches(log.log_start_offset, log.last_stable_offset):
            while waiting and waiting[0].first_offset <= batch.base_offset:
                aborted.add(waiting.pop(0).producer_id)
            if batch.is_control_batch:
                aborted.discard(batch.producer_id)
            elif batch.producer_id not in aborted or not batch.is_transactional:
                values += [bytes(record.value or b"") for record in batch.records()]
        return values

    def markers(self, topic_partition: TopicPartition) -> int:
        """Return the number of markers in a partition."""
        log = self.log(topic_partition)
        return sum(batch.is_control_batch for batch in log.batches(log.log_start_offset, log.log_end_offset))

    def is_stable(self, *topic_partitions: TopicPartition) -> bool:
        """Return whether no transaction is open in these partitions, and all markers are replicated."""
        return all(
            self.cluster.leader(tp) is not None and self.log(tp).last_stable_offset == self.log(tp).log_end_offset
            for tp in topic_partitions
        )

    def run_until_state(self, transactional_id: str, state: str) -> None:
        def is_there() -> bool:
            leader = self.cluster.leader(TRANSACTIONS)
            if leader is None or self.cluster.brokers[leader].paused:
                return False
            coordinator = self.broker(leader).transaction_coordinator
            if coordinator.storage.is_any_loading:
                return False
            return any(
                metadata.transactional_id == transactional_id and metadata.state.name == state
                for metadata in coordinator.list_transactions()
            )

        self.run_until(is_there, f"{transactional_id} in state {state}")

    def restart(self, id: int) -> None:
        """Start a broker again, and wait until it is in sync everywhere."""
        self.cluster.start_broker(id)
        tps = (TP0, TP1, TRANSACTIONS, OFFSETS)
        self.run_until(lambda: all(id in self.cluster.isr(tp) for tp in tps), f"broker {id} is in sync")

    def offset(self, *, stable: bool = True) -> tuple[int, int]:
        """Return the error code and the committed offset of the group for partition 0."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=stable)
        while True:
            answer = self.ask(request, OffsetFetchResponse, self.coordinator(0), 9)
            (found,) = answer.groups
            if found.error_code not in RETRIABLE:
                assert found.error_code == 0
                one = found.topics[0].partitions[0]
                return one.error_code, one.committed_offset
            self.run_for(_RETRY_MS)


class Producer:
    """A transactional producer. Its methods return error codes; they retry what clients retry."""

    def __init__(
        self, cluster: TransactionHarness, transactional_id: str = "txn", timeout_ms: int = 60_000, *, v2: bool = True
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.v2 = v2 and cluster.version >= 2
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}
        self._added: set[int] = set()

    def _retry(self, request: Request, kind: type[R], target: Any, version: int, code: Any) -> R:
        while True:
            leader = self.cluster.cluster.leader(target)
            if leader is not None:
                answer = self.cluster.ask(request, kind, leader, version)
                if code(answer) not in RETRIABLE:
                    return answer
            self.cluster.run_for(_RETRY_MS)

    def init(self) -> int:
        """Get the next epoch, from scratch."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        answer = self._retry(request, InitProducerIdResponse, TRANSACTIONS, 5, lambda found: found.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        self._added.clear()
        return answer.error_code

    def add(self, partition: int, topic: str = TOPIC) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )

        def code(answer: AddPartitionsToTxnResponse) -> int:
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        return code(self._retry(request, AddPartitionsToTxnResponse, TRANSACTIONS, 3, code))

    def produce_request(self, partition: int, value: bytes, sequence: int | None = None) -> ProduceRequest:
        builder = MemoryRecordsBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(partition, 0) if sequence is None else sequence,
            is_transactional=True,
        )
        builder.append(self.cluster.loop.wall_ms, None, value)
        data = ProduceRequest.PartitionProduceData(index=partition, records=builder.build())
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])],
        )

    @property
    def produce_version(self) -> int:
        return 12 if self.v2 else 11

    def write(self, value: bytes, partition: int = 0) -> int:
        """Add the partition, if the producer has to do that, and produce one record."""
        if not self.v2 and partition not in self._added:
            error_code = self.add(partition)
            if error_code:
                return error_code
            self._added.add(partition)

        def code(answer: ProduceResponse) -> int:
            return answer.responses[0].partition_responses[0].error_code

        request = self.produce_request(partition, value)
        target = TopicPartition(TOPIC, partition)
        error_code = code(self._retry(request, ProduceResponse, target, self.produce_version, code))
        if not error_code:
            self.sequences[partition] = self.sequences.get(partition, 0) + 1
        return error_code

    def send_offset(self, offset: int) -> int:
        """Commit the group's offset of partition 0 with the transaction."""
        if not self.v2:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=GROUP,
            )
            added = self._retry(add, AddOffsetsToTxnResponse, TRANSACTIONS, 4, lambda found: found.error_code)
            if added.error_code:
                return added.error_code
        one = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[one])],
        )

        def code(answer: TxnOffsetCommitResponse) -> int:
            return answer.topics[0].partitions[0].error_code

        return code(self._retry(request, TxnOffsetCommitResponse, OFFSETS, 5 if self.v2 else 4, code))

    def end_request(self, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    @property
    def end_version(self) -> int:
        return 5 if self.v2 else 4

    def end_later(self, committed: bool) -> Answer:
        """Send EndTxn without waiting for the response."""
        return self.cluster.send(self.end_request(committed), self.cluster.leader(TRANSACTIONS), self.end_version)

    def end(self, committed: bool) -> int:
        request = self.end_request(committed)
        answer = self._retry(request, EndTxnResponse, TRANSACTIONS, self.end_version, lambda found: found.error_code)
        if not answer.error_code:
            self.ended(answer)
        return answer.error_code

    def ended(self, answer: EndTxnResponse) -> None:
        """Take over the id and epoch for the next transaction."""
        self._added.clear()
        if self.v2:
            if answer.producer_id != self.producer_id or answer.producer_epoch != self.epoch:
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
