"""Serializers, keys, headers, futures, callbacks, flush and close. Returns the results that the program sees."""

import json
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError
from kafka.partitioner import Partitioner


class AlwaysOne(Partitioner):
    def partition(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any) -> int:
        return sorted(cluster.partitions_for_topic(topic))[1] and 1


def run(bootstrap_servers: str, topic: str, group: str) -> list[Any]:
    seen: list[Any] = []
    producer = KafkaProducer(
        bootstrap_servers=[bootstrap_servers],
        client_id="drop-in",
        key_serializer=lambda key: key and key.encode(),
        value_serializer=lambda value: json.dumps(value).encode(),
        acks="all",
        retries=5,
        linger_ms=5,
        batch_size=32768,
        compression_type="gzip",
        max_request_size=200_000,
        max_block_ms=10_000,
        api_version=(2, 1),
    )
    metadata = producer.send(topic, {"n": 1}, key="a", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000).get(10)
    seen += [metadata.topic, metadata.partition, metadata.offset, metadata.timestamp]
    seen += [metadata.topic_partition == TopicPartition(topic, metadata.partition)]
    seen += [metadata.serialized_key_size, metadata.serialized_value_size]

    future = producer.send(topic, value=[1, 2], partition=1)
    done: list[Any] = []
    future.add_callback(lambda tag, result: done.append((tag, result.partition, result.offset)), "tag")
    future.add_errback(done.append)
    producer.flush(timeout=10)
    seen += [done, future.succeeded(), future.failed(), future.is_done, future.exception, future.value.offset]
    future.add_callback(lambda result: seen.append(("late", result.offset)))

    try:
        producer.send(topic, "x" * 300_000).get(10)
    except MessageSizeTooLargeError as error:
        seen += ["too large", isinstance(error, KafkaError), error.retriable]
    try:
        producer.send(topic, {1, 2})
    except Exception as error:  # noqa: BLE001 - which one is told apart below
        seen += ["no JSON", error.__class__.__name__ in {"TypeError", "SerializationError"}]

    seen += [sorted(producer.partitions_for(topic))]
    metrics = producer.metrics()
    seen += [metrics["producer-metrics"]["record-send-rate"] > 0, "request-rate" in metrics["producer-metrics"]]
    futures = [producer.send(topic, n, key=f"key-{n}") for n in range(50)]
    producer.close(timeout=10)
    seen.append([(f.get(0).partition, f.get(0).offset) for f in futures])
    try:
        producer.send(topic, 1)
    except KafkaError as error:
        seen += ["closed", isinstance(error, KafkaTimeoutError)]

    with KafkaProducer(bootstrap_servers=bootstrap_servers) as plain:  # bytes are sent as they are
        seen.append(plain.send(topic, b"raw", b"key", partition=0).get(10).serialized_value_size)
        seen.append(plain.send(topic, None, b"deleted", partition=0).get(10).serialized_value_size)
    with KafkaProducer(bootstrap_servers=bootstrap_servers, partitioner=AlwaysOne()) as own:
        seen.append(own.send(topic, b"x", b"any key").get(10).partition)
    return seen
