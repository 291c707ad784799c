"""Every way to learn what became of a record, and every way that a send can fail.

``send`` returns a future. What is wrong with the call itself is raised by ``send``; what a broker says of a record, and
that one is too large, is its future's error. Callbacks run on the producer's own thread and must not block.
"""

from __future__ import annotations

import json

from examples.options import run
from pykclient import KafkaError, KafkaProducer, RecordMetadata, errors


def delivered(error: Exception | None, metadata: RecordMetadata) -> None:
    """Called for every record, in the order of each partition."""
    if error is None:
        print(f"on_delivery: {metadata.topic_partition} at offset {metadata.offset}")
    else:
        print(f"on_delivery: {type(error).__name__}")


def main(bootstrap_servers: str, topic: str) -> None:
    with KafkaProducer[str, object](
        bootstrap_servers=bootstrap_servers,
        key_serializer="pykclient.serialization.StringSerializer",
        value_serializer=lambda value: json.dumps(value).encode(),
        max_request_size=10_000,
        max_block_ms=2_000,
    ) as producer:
        producer.send(topic, key="one", value={"n": 1}, on_delivery=delivered)
        future = producer.send(topic, key="two", value={"n": 2})
        future.add_callback(lambda metadata: print("callback: offset", metadata.offset))
        future.add_errback(lambda error: print("errback:", error))
        producer.flush(timeout=10)  # the callbacks have run when it returns

        # Too large: nothing is sent, and the future says so.
        failed = producer.send(topic, key="big", value="x" * 20_000, on_delivery=delivered)
        try:
            failed.get(timeout=10)
        except errors.RecordTooLargeError as error:
            print("too large:", error)

        # What no broker has a say in is raised at once.
        try:
            producer.send(topic, key="three", value={1, 2, 3})
        except errors.SerializationError as error:
            print("serialization:", error, "because of", repr(error.__cause__))
        try:
            producer.send(topic, key="four", value=4, partition=1_000)
        except errors.KafkaTimeoutError as error:
            print("no such partition:", error)

        # All of them have one root, and say whether trying again may help.
        try:
            producer.send("not a topic's name!", value=5).get(timeout=10)
        except KafkaError as error:
            print(f"refused: {type(error).__name__}, retriable: {error.retriable}")


if __name__ == "__main__":
    run(main, topic="callbacks")
