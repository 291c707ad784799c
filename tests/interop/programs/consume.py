"""Groups, iteration, poll, commits, seeks and timestamps. Returns the results that the program sees."""

import json
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import IllegalStateError, NoOffsetForPartitionError
from kafka.structs import OffsetAndTimestamp

AT = 1_700_000_000_000


class Listener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.heard.append(("revoked", sorted(revoked)))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.heard.append(("assigned", sorted(assigned)))


def run(bootstrap_servers: str, topic: str, group: str) -> list[Any]:
    seen: list[Any] = []
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for n in range(10):
            producer.send(topic, b"%d" % n, key=b"k", headers=[("n", b"%d" % n)], partition=0, timestamp_ms=AT + n)
    tp0, tp1 = TopicPartition(topic, 0), TopicPartition(topic, 1)

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=lambda data: json.loads(data.decode()),
        key_deserializer=bytes.decode,
        consumer_timeout_ms=10_000,
        max_poll_records=100,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=1000,
    )
    values = []
    for message in consumer:
        values.append((message.topic, message.partition, message.offset, message.key, message.value))
        if len(values) == 4:
            seen += [message.timestamp, message.timestamp_type, list(message.headers)]
            seen += [message.serialized_key_size, message.serialized_value_size]
            break
    seen += [values, consumer.position(tp0), sorted(consumer.assignment()), consumer.subscription()]
    consumer.commit()
    seen += [consumer.committed(tp0), consumer.committed(tp1), consumer.committed(tp0, metadata=True).offset]
    consumer.commit({tp0: OffsetAndMetadata(6, "a note", -1)})
    seen += [tuple(consumer.committed(tp0, metadata=True))]
    told: list[Any] = []
    future = consumer.commit_async({tp0: OffsetAndMetadata(5, "", -1)}, lambda *heard: told.append(heard))
    while not told or not future.is_done:
        consumer.poll(timeout_ms=50, update_offsets=False)
    seen += [told, future.succeeded(), consumer.committed(tp0)]
    consumer.close(autocommit=False)

    again = KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest")
    listener = Listener()
    # kafka-python joins before it knows the topic. If it must rejoin, it forgets to if poll() returns first.
    seen += [again.partitions_for_topic(topic)]
    again.subscribe([topic], listener=listener)
    batch: list[Any] = []
    while len(batch) < 5:
        for partition, records in again.poll(timeout_ms=5000, max_records=2).items():
            batch.append((partition, len(records) <= 2))
            batch += [(record.offset, record.value) for record in records]
    seen += [batch[:3], listener.heard[-1]]
    meta = again.group_metadata()
    seen += [meta.group_id, meta.generation_id > 0, bool(meta.member_id), meta.group_instance_id]
    seen += [again.highwater(tp0)]
    again.close()

    with KafkaConsumer(
        bootstrap_servers=bootstrap_servers, consumer_timeout_ms=4000, auto_offset_reset="earliest"
    ) as c:
        seen += [c.partitions_for_topic(topic), topic in c.topics()]
        c.assign([tp0, tp1])
        seen += [c.beginning_offsets([tp0, tp1]), c.end_offsets([tp0, tp1])]
        found = c.offsets_for_times({tp0: AT + 3, tp1: AT})
        seen += [found[tp0].offset, found[tp0].timestamp, found[tp1], isinstance(found[tp0], OffsetAndTimestamp)]
        c.seek(tp0, 8)
        seen += [c.position(tp0), [record.offset for record in c]]  # the loop ends after 4 s without records
        c.seek_to_beginning(tp0)
        seen += [next(c).offset]
        c.seek_to_end(tp0, tp1)
        seen += [c.position(tp0), c.position(tp1)]
        c.pause(tp0)
        c.seek(tp0, 0)
        seen += [c.paused(), c.poll(100)]
        c.resume(tp0)
        seen += [c.paused(), [len(records) for records in c.poll(5000, max_records=3).values()]]
        seen += ["consumer-fetch-manager-metrics" in c.metrics(), c.subscription()]
        try:
            c.subscribe([topic])
        except IllegalStateError:
            seen.append("already assigned")
        c.unsubscribe()
        seen += [c.assignment()]
    with KafkaConsumer(topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as alone:  # no group
        seen += [[next(alone).offset for _ in range(10)], alone.assignment()]
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as alone:
        alone.subscribe(pattern=f"^{topic[:-2]}.*")
        seen += [next(alone).offset, alone.subscription()]
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=f"{group}-2", auto_offset_reset="none") as strict:
        strict.assign([tp0])
        try:
            while True:
                strict.poll(1000)
        except NoOffsetForPartitionError:
            seen.append("no offset")
    return seen
