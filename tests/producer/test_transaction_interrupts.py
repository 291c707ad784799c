"""Signal handlers may raise at any point of a transactional call: the call can be repeated, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykclient.errors import IllegalStateError, InvalidTxnStateError, ProducerFencedError
from pykclient.network.cluster_connection_states import NodeApiVersions
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.producer.producer_metadata import ProducerMetadata
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from pykclient.protocol.messages.end_txn import EndTxnResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from pykclient.types import TopicPartition
from tests.producer.harness import TOPIC
from tests.producer.test_interrupts import WAIT_S, Client, NumberingBrokers
from tests.support.interrupts import one_place_in, places
from tests.support.wait import eventually

GROUP_OFFSET = {TopicPartition("in", 0): 5}


class TransactionalBrokers(NumberingBrokers):
    """Brokers that also coordinate transactions, and recognise a repeated EndTxn as real ones do."""

    def __init__(self, metadata: ProducerMetadata) -> None:
        super().__init__(metadata)
        self.committed: list[bytes] = []
        self.offsets: list[int] = []
        self.epoch = -1
        self._open_records = 0  # in ``received``, from here on
        self._open_offsets: list[int] = []
        self._last_end: tuple[int, bool] | None = None

    def _answer(self, request: Any) -> None:
        message = request.request_builder.message
        name = ApiKeys.message_class(message.API_KEY).__name__.removesuffix("Request")
        if name == "Produce":
            super()._answer(request)
            return
        self.respond_to_request(request, getattr(self, f"_{name}")(message))

    def _FindCoordinator(self, message: Any) -> Any:
        found = FindCoordinatorResponse.Coordinator(key=message.key, node_id=1, host="host1", port=9092)
        return FindCoordinatorResponse(coordinators=[found])

    def _InitProducerId(self, message: Any) -> Any:
        del self.received[self._open_records :]
        self._open_offsets.clear()
        self._last_end = None
        self.epoch += 1
        return InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch)

    def _AddPartitionsToTxn(self, message: Any) -> Any:
        topics = [
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(partition_index=partition)
                    for partition in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def _AddOffsetsToTxn(self, message: Any) -> Any:
        return AddOffsetsToTxnResponse()

    def _TxnOffsetCommit(self, message: Any) -> Any:
        self._open_offsets = [part.committed_offset for topic in message.topics for part in topic.partitions]
        return TxnOffsetCommitResponse()

    def _EndTxn(self, message: Any) -> Any:
        is_v2 = self.is_v2
        if self._last_end == (message.producer_epoch, message.committed) and (is_v2 or not self._is_open()):
            pass  # repeated: the first response was lost
        elif message.producer_epoch != self.epoch:
            return EndTxnResponse(error_code=ProducerFencedError.code)
        elif not self._is_open():
            return EndTxnResponse(error_code=InvalidTxnStateError.code)
        else:
            if message.committed:
                self.committed += [bytes(record.value or b"") for _, record in self.received[self._open_records :]]
                self.offsets += self._open_offsets
            self._open_offsets = []
            self._open_records = len(self.received)
            self._last_end = (message.producer_epoch, message.committed)
            self.epoch += is_v2
        return EndTxnResponse(producer_id=7, producer_epoch=self.epoch) if is_v2 else EndTxnResponse()

    def _is_open(self) -> bool:
        return len(self.received) > self._open_records or bool(self._open_offsets)

    is_v2 = False


def ready(is_v2: bool, **settings: Any) -> tuple[Client, KafkaProducer[Any, Any], TransactionalBrokers]:
    """Return a producer that has committed a transaction, and drives the sender itself."""
    settings = {"enable_idempotence": True, "transactional_id": "t", "linger_ms": 100, **settings}
    client = Client(brokers=TransactionalBrokers, **settings)
    producer, brokers = client.producer, client.brokers
    assert isinstance(brokers, TransactionalBrokers)
    brokers.is_v2 = is_v2
    manager = producer._components.transactions
    assert manager is not None
    versions = NodeApiVersions.create().versions
    manager._api_versions.update("1", NodeApiVersions(versions, {}, {"transaction.version": 1 + is_v2}, 1))
    producer.init_transactions()
    with producer.transaction():
        producer.send(TOPIC, b"first", partition=1)
    eventually(lambda: producer._driver._is_parked, WAIT_S, "the sender's thread is not parked", 0.001)
    return client, producer, brokers


def again(producer: KafkaProducer[Any, Any], call: Callable[[], object]) -> None:
    """Repeat an interrupted call, which may have come to its end."""
    try:
        call()
    except IllegalStateError as error:
        assert "there is no transaction" in str(error)  # noqa: PT017 - or the call has worked
    with producer.transaction():
        producer.send(TOPIC, b"last", partition=0)


@pytest.mark.parametrize("is_v2", [True, False], ids=["v2", "v1"])
@one_place_in(23)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_exception_anywhere_in_commit_or_abort_is_recoverable(commits: bool, every: int, is_v2: bool) -> None:
    clients = []
    for place in places(every=every):
        with place:
            client, producer, brokers = ready(is_v2)
            clients.append(client)
            producer.begin_transaction()
            producer.send(TOPIC, b"one", partition=0)
            producer.send(TOPIC, b"two", partition=1)
            end = producer.commit_transaction if commits else producer.abort_transaction
            place.interrupt(end)
            again(producer, end)
            expected = [b"first", b"one", b"two", b"last"] if commits else [b"first", b"last"]
            assert sorted(brokers.committed) == sorted(expected)
            assert not brokers.gaps
            client.check_closed()


@pytest.mark.parametrize("is_v2", [True, False], ids=["v2", "v1"])
def test_exception_anywhere_in_send_offsets_is_recoverable(is_v2: bool) -> None:
    """The interrupted call may or may not take place; the transaction can be committed, and has a later call's."""
    clients = []
    for place in places(every=23):
        with place:
            client, producer, brokers = ready(is_v2)
            clients.append(client)
            producer.begin_transaction()
            producer.send(TOPIC, b"one", partition=0)
            place.interrupt(lambda producer=producer: producer.send_offsets_to_transaction(GROUP_OFFSET, "g"))  # type: ignore[misc]
            producer.send_offsets_to_transaction(GROUP_OFFSET, "g")
            producer.commit_transaction()
            assert brokers.committed == [b"first", b"one"]
            assert brokers.offsets == [5]
            client.check_closed()


@pytest.mark.parametrize("is_v2", [True, False], ids=["v2", "v1"])
def test_exception_anywhere_in_init_is_recoverable(is_v2: bool) -> None:
    for place in places(every=17):
        with place:
            client = Client(brokers=TransactionalBrokers, enable_idempotence=True, transactional_id="t")
            client.brokers.is_v2 = is_v2  # type: ignore[attr-defined]
            producer = client.producer
            place.interrupt(producer.init_transactions)
            try:
                producer.init_transactions()
            except IllegalStateError as error:
                assert "was called before" in str(error)  # noqa: PT017
            with producer.transaction():
                producer.send(TOPIC, b"one", partition=0)
            assert client.brokers.committed == [b"one"]  # type: ignore[attr-defined]
            client.check_closed()


@pytest.mark.parametrize("is_v2", [True, False], ids=["v2", "v1"])
def test_exception_anywhere_in_transaction_block_commits_all_or_nothing(is_v2: bool) -> None:
    """``with producer.transaction()`` leaves a producer that can be closed; what it commits, it commits whole."""
    clients = []

    def run(producer: KafkaProducer[Any, Any]) -> None:
        with producer.transaction():
            producer.send(TOPIC, b"one", partition=0)
            producer.send(TOPIC, b"two", partition=1)

    for place in places(every=37):
        with place:
            client, producer, brokers = ready(is_v2)
            clients.append(client)
            place.interrupt(lambda producer=producer: run(producer))  # type: ignore[misc]
            client.check_closed()
            assert sorted(brokers.committed) in ([b"first"], [b"first", b"one", b"two"])


@pytest.mark.parametrize("phase", ["prepare", "complete"])
def test_exception_anywhere_in_two_phase_commit_is_recoverable(phase: str) -> None:
    clients = []
    for place in places(every=37):
        with place:
            client, producer, brokers = ready(True, transaction_two_phase_commit_enable=True)
            clients.append(client)
            producer.begin_transaction()
            producer.send(TOPIC, b"one", partition=0)
            if phase == "prepare":
                place.interrupt(producer.prepare_transaction)
                try:
                    producer.prepare_transaction()
                except IllegalStateError as error:
                    assert "the transaction is prepared" in str(error)  # noqa: PT017 - or the call has worked
                producer.commit_transaction()
            else:
                state = producer.prepare_transaction()
                place.interrupt(lambda producer=producer, state=state: producer.complete_transaction(state))  # type: ignore[misc]
                try:
                    producer.complete_transaction(state)
                except IllegalStateError as error:
                    assert "no transaction is prepared" in str(error)  # noqa: PT017 - or the call has worked
            assert brokers.committed == [b"first", b"one"]
            assert not brokers.gaps
            client.check_closed()
