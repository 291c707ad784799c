"""confluent-kafka (librdkafka), the reference for ratios, and pykclient in its shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar

from benchmarks.cases import Case
from benchmarks.clients.kafka_python import KafkaPython
from benchmarks.clients.measuring import (
    BATCH_SIZE,
    BATCH_SIZE_WITH_DEFAULTS,
    BUFFER_MEMORY,
    LINGER_MS,
    Sample,
    chunks,
    consume_all,
    idle,
    in_groups,
    joined,
    one_at_a_time,
    produce_all,
)


class ConfluentKafka:
    """confluent-kafka."""

    name = "confluent-kafka"
    distribution = "confluent-kafka"
    module = "confluent_kafka"
    environment: ClassVar[Mapping[str, str]] = MappingProxyType({})
    kinds: ClassVar[tuple[str, ...]] = (*KafkaPython.kinds, "idle-group-consumer")
    share = 1.0
    share_of_many = 1.0
    only_plain = False
    runs_with_defaults = True

    def _producer(self, case: Case, linger_ms: int = LINGER_MS, transactional_id: str | None = None) -> Any:
        confluent_kafka = import_module(self.module)

        if case.defaults:
            return confluent_kafka.Producer({**case.connection, "batch.size": BATCH_SIZE_WITH_DEFAULTS})
        return confluent_kafka.Producer(
            {
                **case.connection,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": case.codec,
                "linger.ms": linger_ms,
                "batch.size": BATCH_SIZE,
                "partitioner": "murmur2_random",
                "queue.buffering.max.kbytes": BUFFER_MEMORY >> 10,
                "queue.buffering.max.messages": 1_000_000,
                **({} if transactional_id is None else {"transactional.id": transactional_id}),
            }
        )

    def produce(self, case: Case) -> Sample:
        if case.defaults:
            return self._produce_polled_rarely(case)
        producer = self._producer(case)
        topic, produce, poll = case.topic, producer.produce, producer.poll

        def send_values(values: list[bytes]) -> None:
            for value in values:
                try:
                    produce(topic, value)
                except BufferError:
                    send_when_there_is_room(producer, topic, value)
                poll(0)

        def send_pairs(pairs: list[tuple[bytes, bytes]]) -> None:
            for key, value in pairs:
                try:
                    produce(topic, value, key)
                except BufferError:
                    send_when_there_is_room(producer, topic, value, key)
                poll(0)

        return produce_all(case, send_pairs if case.keyed else send_values, lambda: producer.flush(60))

    def _produce_polled_rarely(self, case: Case) -> Sample:
        producer = self._producer(case)
        topic, produce = case.topic, producer.produce

        def send_values(values: list[bytes]) -> None:
            for value in values:
                try:
                    produce(topic, value)
                except BufferError:
                    send_when_there_is_room(producer, topic, value)
            producer.poll(0)

        return produce_all(case, send_values, lambda: producer.flush(60))

    def fill(self, case: Case) -> Sample:
        """Write the log to read later: as many records to each partition in turn as its batch holds."""
        producer = self._producer(case._replace(defaults=False), linger_ms=50)
        block = max(1, min(BATCH_SIZE // (case.size_bytes + 40), case.records // case.partitions))
        number = 0

        def send(records: list[Any]) -> None:
            nonlocal number
            for record in records:
                key, value = record if case.keyed else (None, record)
                send_when_there_is_room(producer, case.topic, value, key, partition=number // block % case.partitions)
                number += 1

        for chunk in chunks(case, case.records):
            send(chunk)
        producer.flush(60)
        return Sample(case.records, 0.0, 1.0, [])

    def latency(self, case: Case) -> Sample:
        producer, topic = self._producer(case, linger_ms=0), case.topic

        def send_and_wait(value: bytes) -> None:
            producer.produce(topic, value)
            producer.flush(30)

        return one_at_a_time(case, send_and_wait)

    def transactions(self, case: Case) -> Sample:
        producer, topic = self._producer(case, transactional_id=f"{case.topic}-{self.name}"), case.topic
        producer.init_transactions()
        produce = producer.produce
        return in_groups(
            case, producer.begin_transaction, lambda value: produce(topic, value), producer.commit_transaction
        )

    def flushes(self, case: Case) -> Sample:
        producer, topic = self._producer(case), case.topic
        produce = producer.produce
        return in_groups(case, lambda: None, lambda value: produce(topic, value), lambda: producer.flush(60))

    def _consumer(self, case: Case) -> Any:
        confluent_kafka = import_module(self.module)

        consumer = confluent_kafka.Consumer(
            {
                **case.connection,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **({} if case.defaults else {"fetch.queue.backoff.ms": 1}),
            }
        )
        consumer.assign(
            [
                confluent_kafka.TopicPartition(case.topic, p, confluent_kafka.OFFSET_BEGINNING)
                for p in range(case.partitions)
            ]
        )
        return consumer

    def consume(self, case: Case) -> Sample:
        consumer = self._consumer(case)

        left = case.records

        def poll() -> int:
            nonlocal left
            messages = consumer.consume(min(1000, left), 1.0)  # waits until it has that many
            for message in messages:
                message.value()
            left -= len(messages)
            return len(messages)

        sample = consume_all(case, poll)
        consumer.close()
        return sample

    def idle_consumer(self, case: Case) -> Sample:
        consumer = self._consumer(case)
        while consumer.consume(1000, 1.0):
            pass
        sample = idle(case, lambda: consumer.consume(1000, 1.0))
        consumer.close()
        return sample

    def idle_group_classic(self, case: Case) -> Sample:
        return self._idle_member(case, "classic")

    def idle_group_consumer(self, case: Case) -> Sample:
        return self._idle_member(case, "consumer")

    def _idle_member(self, case: Case, protocol: str) -> Sample:
        confluent_kafka = import_module(self.module)

        consumer = confluent_kafka.Consumer(
            {**case.connection, "group.id": f"{case.topic}-{self.name}-{protocol}", "group.protocol": protocol}
        )
        consumer.subscribe([case.topic])
        joined(lambda: consumer.consume(1000, 1.0), consumer.assignment)
        sample = idle(case, lambda: consumer.consume(1000, 1.0))
        consumer.close()
        return sample

    def idle_producer(self, case: Case) -> Sample:
        producer = self._producer(case)
        producer.produce(case.topic, b"x")
        producer.flush(30)
        return idle(case, lambda: time.sleep(1))


class ConfluentKafkaWithReports(ConfluentKafka):
    """A program that gets a delivery report for each record, which corresponds to our futures."""

    name = "confluent-kafka-reports"
    kinds = ("produce",)
    only_plain = True

    def produce(self, case: Case) -> Sample:
        producer = self._producer(case)
        topic, produce, poll = case.topic, producer.produce, producer.poll
        failed = 0

        def reported(error: Any, _: Any) -> None:
            nonlocal failed
            failed += error is not None

        def send_values(values: list[bytes]) -> None:
            for value in values:
                try:
                    produce(topic, value, on_delivery=reported)
                except BufferError:
                    send_when_there_is_room(producer, topic, value, on_delivery=reported)
                poll(0)

        sample = produce_all(case, send_values, lambda: producer.flush(60))
        assert not failed
        return sample


class ConfluentKafkaPolled(ConfluentKafka):
    """A program that gets one message per ``poll``."""

    name = "confluent-kafka-polled"
    kinds = ("consume",)
    only_plain = True

    def consume(self, case: Case) -> Sample:
        consumer = self._consumer(case)
        poll_one = consumer.poll

        def poll() -> int:
            message = poll_one(1.0)
            if message is None:
                return 0
            message.value()
            return 1

        sample = consume_all(case, poll)
        consumer.close()
        return sample


class PykclientConfluent(ConfluentKafka):
    """pykclient in confluent-kafka's shape: ``consume(1000)``."""

    name = "pykclient-confluent"
    distribution = ""
    module = "pykclient.confluent"
    kinds = ("consume",)
    only_plain = True


class PykclientConfluentPolled(ConfluentKafkaPolled):
    """pykclient in confluent-kafka's shape: one message per ``poll``."""

    name = "pykclient-confluent-polled"
    distribution = ""
    module = "pykclient.confluent"


class PykclientConfluentWithReports(ConfluentKafkaWithReports):
    """pykclient in confluent-kafka's shape: a delivery report for each record."""

    name = "pykclient-confluent-reports"
    distribution = ""
    module = "pykclient.confluent"


class ConfluentKafkaPolledRarely(ConfluentKafka):
    """A program that calls ``poll(0)`` after every thousand records, where the documentation does after each one."""

    name = "confluent-kafka-polled-rarely"
    kinds = ("produce",)
    only_plain = True
    runs_with_defaults = False  # as ConfluentKafka does there

    def produce(self, case: Case) -> Sample:
        return self._produce_polled_rarely(case)


def send_when_there_is_room(
    producer: Any,
    topic: str,
    value: bytes,
    key: bytes | None = None,
    partition: int = -1,
    on_delivery: Callable[[Any, Any], None] | None = None,
) -> None:
    """Send a record, waiting while librdkafka's queue is full. Other clients wait by themselves."""
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery)
        except BufferError:
            producer.poll(0.01)
        else:
            return
