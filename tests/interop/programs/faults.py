"""Errors, and the except clauses that catch them."""

from typing import Any

import kafka.errors as Errors  # noqa: N812 - as many programs have it
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaConfigurationError, KafkaError, KafkaTimeoutError, RetriableError
from kafka.partitioner import DefaultPartitioner, murmur2
from kafka.serializer import Deserializer, Serializer
from kafka.structs import OffsetAndMetadata


class Upper(Serializer, Deserializer):
    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return str(data).upper().encode()

    def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
        return data.decode().lower()


def caught(kind: Any, call: Any) -> str:
    try:
        call()
    except kind as error:
        return "caught" if isinstance(error, kind) else "?"
    return "nothing raised"


def run(bootstrap_servers: str, topic: str, group: str) -> list[Any]:
    seen: list[Any] = []
    seen.append(caught(KafkaConfigurationError, lambda: KafkaConsumer(bootstrap_servers=bootstrap_servers, no_such=1)))
    seen.append(caught(ValueError, lambda: KafkaProducer(bootstrap_servers=bootstrap_servers, no_such=1)))
    with KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        value_serializer=Upper(),
        partitioner=DefaultPartitioner(),
        linger_ms=50,
    ) as producer:
        seen.append(producer.send(topic, "text", b"key").get(10).partition == (murmur2(b"key") & 0x7FFFFFFF) % 2)
        seen.append(caught(KafkaTimeoutError, lambda: producer.send(topic, "text", b"key").get(timeout=0.001)))
        failed = producer.send(topic, "x" * 20_000)  # the topic's limit is 10,000 bytes
        seen += [caught(Errors.MessageSizeTooLargeError, lambda: failed.get(10)), failed.failed()]
        seen += [failed.exception.errno, failed.retriable()]
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, value_deserializer=Upper(), consumer_timeout_ms=9000) as c:
        c.assign([TopicPartition(topic, p) for p in (0, 1)])
        c.seek_to_beginning()
        seen.append(next(c).value)
        seen.append(caught(Exception, lambda: c.seek(TopicPartition(topic, 0), -5)))
    for name in ("UnknownTopicOrPartitionError", "NotLeaderForPartitionError", "RebalanceInProgressError",
                 "CommitFailedError", "UnknownMemberIdError", "OffsetOutOfRangeError", "TopicAuthorizationFailedError",
                 "RequestTimedOutError", "KafkaConnectionError"):  # fmt: skip
        error = getattr(Errors, name)
        seen.append((name, getattr(error, "errno", None), error.retriable, issubclass(error, KafkaError),
                     issubclass(error, RetriableError)))  # fmt: skip
    seen.append(OffsetAndMetadata(5, "", -1) == OffsetAndMetadata(offset=5))
    return seen
