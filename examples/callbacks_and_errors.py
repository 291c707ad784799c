"""The ways to learn the result of a record, and the ways a send can fail.

``send`` returns a future. ``send`` itself raises errors of the call. The future raises errors of the broker about the
record, and the error that a record is too large. Callbacks run on the producer's thread and must not block.
"""

from __future__ import annotations

import json

from examples.options import run
from pykclient import KafkaError, KafkaProducer, RecordMetadata, errors


def delivered(error: Exception | None, metadata: RecordMetadata) -> None:
    """Print the result of a record. Called for every record, in the order of each partition."""
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

        # Too large: nothing is sent, and the future raises the error.
        failed = producer.send(topic, key="big", value="x" * 20_000, on_delivery=delivered)
        try:
            failed.get(timeout=10)
        except errors.RecordTooLargeError as error:
            print("too large:", error)

        # Errors that do not depend on a broker are raised at once.
        try:
            producer.send(topic, key="three", value={1, 2, 3})
        except errors.SerializationError as error:
            print("serialization:", error, "because of", repr(error.__cause__))
        try:
            producer.send(topic, key="four", value=4, partition=1_000)
        except errors.KafkaTimeoutError as error:
            print("no such partition:", error)

        # All errors have one base class, and say whether retrying may help.
        try:
            producer.send("not a topic's name!", value=5).get(timeout=10)
        except KafkaError as error:
            print(f"refused: {type(error).__name__}, retriable: {error.retriable}")


if __name__ == "__main__":
    run(main, topic="callbacks")
