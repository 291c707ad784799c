"""Old brokers: the client leaves out what they do not support, and everything essential works as on a new one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import UnsupportedForMessageFormatError, UnsupportedVersionError
from tests.kafka.old_kafka import OldKafka
from tests.support.any_kafka import EMBEDDED, REAL
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.wait import eventually

#: The oldest release that Java's client supports, the last of 2 (both with ZooKeeper), and the last of 3.
VERSIONS = ("2.1.1", "2.8.2", "3.9.1")
AT = 1_700_000_000_000


class OldBroker(Protocol):
    """A broker of an old release, or one that emulates it."""

    @property
    def bootstrap_servers(self) -> str: ...

    def create_topic(self, name: str, partitions: int = 1, *, config: dict[str, str] | None = None) -> str: ...


def of_versions(kind: Any, *versions: str) -> list[Any]:
    return [
        pytest.param((*kind.values, version), marks=kind.marks, id=f"{kind.values[0]}-{version}")
        for version in versions
    ]


#: Kafka 3 stores only record batches.
WITH_MESSAGE_FORMATS = [*of_versions(EMBEDDED, *VERSIONS[:2]), *of_versions(REAL, *VERSIONS[:2])]


@pytest.fixture(scope="module", params=[*of_versions(EMBEDDED, *VERSIONS), *of_versions(REAL, *VERSIONS)])
def old_kafka(request: pytest.FixtureRequest) -> Iterator[OldBroker]:
    kind, version = request.param
    if kind == "real":
        with OldKafka(version) as broker:
            yield broker
    else:
        with EmbeddedKafka(release=version.rpartition(".")[0]) as embedded:
            yield embedded


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    """The release of ``old_kafka``, real or emulated."""
    return str(request.node.callspec.params["old_kafka"][1])


def producer(old_kafka: OldBroker, **settings: Any) -> KafkaProducer[bytes, bytes]:
    return KafkaProducer(bootstrap_servers=old_kafka.bootstrap_servers, **settings)


def consumer(old_kafka: OldBroker, *topics: str, **settings: Any) -> KafkaConsumer[bytes, bytes]:
    settings = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 20_000, **settings}
    return KafkaConsumer(*topics, bootstrap_servers=old_kafka.bootstrap_servers, **settings)


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_every_codec_round_trips(old_kafka: OldBroker, topic: str, acks: str | int) -> None:
    """Records of every codec are written and read back. With ``acks=all`` the producer is idempotent, the default."""
    old_kafka.create_topic(topic)
    partition = TopicPartition(topic, 0)
    expected: list[tuple[bytes, tuple[tuple[str, bytes | None], ...], int]] = []
    with consumer(old_kafka) as reader:

        def have_arrived() -> bool:
            return reader.end_offsets([partition])[partition] == len(expected)

        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with producer(old_kafka, compression_type=codec, acks=acks, enable_idempotence=acks == "all") as ours:
                for i in range(500):
                    value, headers = b"%s %d" % (codec.encode(), i), (("h", None), ("i", b"%d" % i))
                    ours.send(topic, value, b"k", list(headers), timestamp_ms=AT)
                    expected.append((value, headers, AT))
            # With acks=0 the producer does not wait for the broker, which reads connections in any order.
            eventually(have_arrived, 20.0, f"records up to {codec}")
        reader.assign([partition])
        records = [next(reader) for _ in expected]
    assert [(r.value, tuple(r.headers), r.timestamp) for r in records] == expected
    assert [r.offset for r in records] == list(range(len(expected)))


def test_next_member_continues_from_committed_offsets(old_kafka: OldBroker, topic: str, group_id: str) -> None:
    old_kafka.create_topic(topic, 2)
    with producer(old_kafka) as ours:
        for i in range(20):
            ours.send(topic, b"%d" % i, partition=i % 2, timestamp_ms=AT + i)
    with consumer(old_kafka, topic, group_id=group_id, enable_auto_commit=False) as first:
        seen = [next(first).value for _ in range(10)]
        assert first.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        first.commit()
        committed = first.committed(list(first.assignment()))
        assert sum(row.offset for row in committed.values() if row) == 10
    with consumer(old_kafka, topic, group_id=group_id) as second:
        seen += [next(second).value for _ in range(10)]
    assert sorted(int(value or b"") for value in seen) == list(range(20))


def test_two_members_share_the_partitions(old_kafka: OldBroker, topic: str, group_id: str) -> None:
    old_kafka.create_topic(topic, 2)
    with (
        consumer(old_kafka, topic, group_id=group_id, heartbeat_interval_ms=100) as first,
        consumer(old_kafka, topic, group_id=group_id, heartbeat_interval_ms=100) as second,
    ):

        def shared() -> bool:
            first.poll(50)
            second.poll(50)
            return len(first.assignment()) == len(second.assignment()) == 1

        eventually(shared, 20.0, "a partition for each")
        assert first.assignment() | second.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert not first.assignment() & second.assignment()


def test_static_member_is_kept_or_refused(old_kafka: OldBroker, version: str, topic: str, group_id: str) -> None:
    """Static membership works since 2.3 (KIP-345); older brokers cannot support it, and the error says so."""
    old_kafka.create_topic(topic)
    with consumer(old_kafka, topic, group_id=group_id, group_instance_id="one") as member:
        if version.startswith("2.1"):
            with pytest.raises(UnsupportedVersionError, match="group"):
                member.poll(10_000)
        else:
            eventually(lambda: member.poll(50) or member.assignment(), 20.0, "an assignment")
            assert member.group_metadata().group_instance_id == "one"


def test_offsets_are_found_by_time(old_kafka: OldBroker, topic: str) -> None:
    old_kafka.create_topic(topic)
    with producer(old_kafka) as ours:
        for i in range(10):
            ours.send(topic, b"%d" % i, timestamp_ms=AT + i * 1000)
    tp = TopicPartition(topic, 0)
    with consumer(old_kafka) as reader:
        assert reader.beginning_offsets([tp]) == {tp: 0}
        assert reader.end_offsets([tp]) == {tp: 10}
        found = reader.offsets_for_times({tp: AT + 2500})[tp]
        assert found is not None
        assert (found.offset, found.timestamp) == (3, AT + 3000)
        assert reader.offsets_for_times({tp: AT + 9001}) == {tp: None}
        assert reader.partitions_for_topic(topic) == {0}
        assert topic in reader.topics()
        reader.assign([tp])
        reader.seek(tp, 7)
        assert next(reader).value == b"7"
        reader.seek_to_end()
        assert reader.position(tp) == 10


def test_log_append_time_is_returned(old_kafka: OldBroker, topic: str) -> None:
    old_kafka.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    with producer(old_kafka, compression_type="gzip") as ours:
        metadata = ours.send(topic, b"v", timestamp_ms=AT).get(10)
    assert metadata.timestamp > AT
    with consumer(old_kafka) as reader:
        reader.assign([TopicPartition(topic, 0)])
        record = next(reader)
    assert (record.timestamp_type, record.timestamp) == (1, metadata.timestamp)


@pytest.mark.parametrize("old_kafka", WITH_MESSAGE_FORMATS, indirect=True)
@pytest.mark.parametrize("message_format", ["0.9.0", "0.10.0"])
def test_topics_in_old_message_formats_round_trip(old_kafka: OldBroker, topic: str, message_format: str) -> None:
    """Topics from before 0.11: the broker stores and returns message sets instead of record batches."""
    for codec in ("none", "gzip", "snappy", "lz4"):
        name = old_kafka.create_topic(f"{topic}-{codec}", config={"message.format.version": message_format})
        with producer(old_kafka, compression_type=codec, linger_ms=50, enable_idempotence=False) as ours:
            futures = [ours.send(name, b"%d" % i, b"k%d" % i, timestamp_ms=AT + i) for i in range(50)]
            assert futures[-1].get(10).offset == 49
        with consumer(old_kafka) as reader:
            reader.assign([TopicPartition(name, 0)])
            records = [next(reader) for _ in range(50)]
        assert [(r.offset, r.key, r.value) for r in records] == [(i, b"k%d" % i, b"%d" % i) for i in range(50)]
        if message_format == "0.9.0":
            assert {(r.timestamp_type, r.timestamp) for r in records} == {(-1, -1)}
        else:
            assert [(r.timestamp_type, r.timestamp) for r in records] == [(0, AT + i) for i in range(50)]


@pytest.mark.parametrize("old_kafka", WITH_MESSAGE_FORMATS, indirect=True)
def test_idempotence_is_refused_for_old_message_formats(old_kafka: OldBroker, topic: str) -> None:
    old_kafka.create_topic(topic, config={"message.format.version": "0.10.0"})
    with producer(old_kafka) as ours, pytest.raises(UnsupportedForMessageFormatError):
        ours.send(topic, b"v").get(10)


@pytest.mark.parametrize("old_kafka", of_versions(REAL, *VERSIONS), indirect=True)
def test_transactions_of_confluent_kafka_are_read(old_kafka: OldBroker, topic: str) -> None:
    from confluent_kafka import Producer

    old_kafka.create_topic(topic)
    theirs = Producer({"bootstrap.servers": old_kafka.bootstrap_servers, "transactional.id": topic, "log_level": 2})
    theirs.init_transactions(20)
    for value, commit in ((b"kept", True), (b"dropped", False), (b"kept too", True)):
        theirs.begin_transaction()
        theirs.produce(topic, value)
        assert theirs.flush(20) == 0
        if commit:
            theirs.commit_transaction(20)
        else:
            theirs.abort_transaction(20)
    for level, values in (
        ("read_committed", [b"kept", b"kept too"]),
        ("read_uncommitted", [b"kept", b"dropped", b"kept too"]),
    ):
        with consumer(old_kafka, isolation_level=level) as reader:
            reader.assign([TopicPartition(topic, 0)])
            assert [next(reader).value for _ in values] == values


@pytest.mark.parametrize("old_kafka", of_versions(REAL, *VERSIONS), indirect=True)
def test_our_transactions_commit_and_abort(old_kafka: OldBroker, topic: str) -> None:
    """Also with offsets, of a group without members: brokers before 2.5 cannot check those of a member."""
    old_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    with producer(old_kafka, transactional_id=topic) as ours:
        ours.init_transactions(20)
        for number, (value, commit) in enumerate(((b"kept", True), (b"dropped", False), (b"kept too", True))):
            ours.begin_transaction()
            ours.send(topic, value).get(10)
            ours.send_offsets_to_transaction({tp: number}, topic)
            if commit:
                ours.commit_transaction()
            else:
                ours.abort_transaction()
    with consumer(old_kafka, isolation_level="read_committed", group_id=topic) as reader:
        reader.assign([tp])
        reader.seek_to_beginning()
        assert [next(reader).value for _ in range(2)] == [b"kept", b"kept too"]
        assert reader.committed(tp) == 2
