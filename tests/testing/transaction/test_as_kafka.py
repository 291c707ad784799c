"""The embedded broker responds like a real one to the same requests, and writes the same records."""

from __future__ import annotations

import json

import pytest

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.testing.coordinator_log import partition_for
from pykclient.testing.transaction import transaction_metadata as transaction_log
from pykclient.testing.transaction.transaction_metadata import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT
from pykclient.types import TopicPartition
from tests.support.any_kafka import AnyKafka
from tests.testing.transaction.conversation import ANSWERS, COMMIT, ROUNDS, TransactionConversation, converse


@pytest.mark.parametrize("name", ROUNDS)
def test_responses_equal_kafkas(any_kafka: AnyKafka, name: str) -> None:
    expected = json.loads(ANSWERS.read_text())[name]
    assert converse(any_kafka, name) == expected


def test_records_equal_kafkas(any_kafka: AnyKafka) -> None:
    """Each record of a transactional id decodes, and encodes to the same bytes."""
    conversation = TransactionConversation(any_kafka)
    me = conversation.started()
    conversation.ask("produce", conversation.produce(13, me, 0, b"a"), 13)
    conversation.ask("produce", conversation.produce(13, me, 0, b"b", partition=1), 13)
    conversation.ask("commit", conversation.end(me, COMMIT), 5)
    conversation.await_state("CompleteCommit")
    with KafkaConsumer[bytes, bytes](
        bootstrap_servers=any_kafka.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=500
    ) as reader:
        count = len(reader.partitions_for_topic("__transaction_state") or ())
        number = partition_for(conversation.txn, count)
        reader.assign([TopicPartition("__transaction_state", number)])
        records = [record for record in reader if record.key == transaction_log.key_to_bytes(conversation.txn)]
    conversation.close()
    found = []
    for record in records:
        assert record.key is not None
        assert record.value is not None
        assert transaction_log.read_key(record.key) == conversation.txn
        metadata = transaction_log.read_value(conversation.txn, record.value)
        found.append((metadata.state, metadata.producer_epoch, len(metadata.topic_partitions)))
        if len(metadata.topic_partitions) < 2:  # the order of partitions is that of a set
            assert transaction_log.value_to_bytes(metadata, transaction_version=2) == record.value
    assert found == [
        (EMPTY, 0, 0),
        (ONGOING, 0, 1),
        (ONGOING, 0, 2),
        (PREPARE_COMMIT, 1, 2),
        (COMPLETE_COMMIT, 1, 0),
    ]
