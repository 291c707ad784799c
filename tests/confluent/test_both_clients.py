"""The same programs on confluent-kafka and on this package, with the same results, on one embedded cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from time import monotonic, sleep
from types import ModuleType
from typing import Any

import confluent_kafka as theirs
import pytest

import pykclient.confluent as ours
from pykclient.testing import EmbeddedCluster, EmbeddedSchemaRegistry

_PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        made.create_topic("two", 2)
        made.create_topic("hundred", 100)
        yield made


@pytest.fixture(params=[theirs, ours], ids=["theirs", "ours"])
def ck(request: pytest.FixtureRequest) -> Any:
    module: ModuleType = request.param
    return module


def _settings(cluster: EmbeddedCluster, **settings: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **settings}


# --- producer ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["two", "never-made"])
@pytest.mark.parametrize(
    ("kbytes", "value", "key", "admitted"), [(2, 1000, 0, 2), (2, 100, 1000, 20), (1, 1024, 0, 1), (1, 1025, 0, 0)]
)
def test_kbytes_limit_the_values_of_all_messages(
    ck: Any, cluster: EmbeddedCluster, topic: str, kbytes: int, value: int, key: int, admitted: int
) -> None:
    settings = _settings(cluster, **{"queue.buffering.max.kbytes": kbytes, "linger.ms": 60_000})
    with ck.Producer(settings) as producer:
        producer.list_topics("two", timeout=_PATIENCE_S)
        for _ in range(admitted):
            producer.produce(topic, bytes(value), bytes(key))
        with pytest.raises(BufferError, match="Local: Queue full"):
            producer.produce(topic, bytes(value), bytes(key))
        assert len(producer) == admitted
        producer.purge()
        assert producer.flush(_PATIENCE_S) == 0
        producer.produce(topic, b"x")
        producer.purge()


@pytest.mark.parametrize("kbytes", [512, 16384])
def test_small_queues_admit_messages_for_many_partitions(ck: Any, cluster: EmbeddedCluster, kbytes: int) -> None:
    reports: list[Any] = []
    with ck.Producer(_settings(cluster, **{"queue.buffering.max.kbytes": kbytes})) as producer:
        for number in range(300):
            producer.produce(
                "hundred", bytes(100), partition=number % 100, on_delivery=lambda error, _: reports.append(error)
            )
        assert producer.flush(_PATIENCE_S) == 0
    assert reports == [None] * 300


def test_messages_reach_partitions_that_were_added(ck: Any, cluster: EmbeddedCluster) -> None:
    topic = f"grows-{ck.__name__}"
    cluster.create_topic(topic, 1)
    reports: list[Any] = []
    with ck.Producer(_settings(cluster, **{"topic.metadata.refresh.interval.ms": 100})) as producer:
        producer.produce(topic, b"x", partition=0)
        assert producer.flush(_PATIENCE_S) == 0
        admin = import_module(f"{ck.__name__}.admin")
        client = admin.AdminClient(_settings(cluster))
        client.create_partitions([admin.NewPartitions(topic, 2)])[topic].result(_PATIENCE_S)
        deadline = monotonic() + _PATIENCE_S
        while not reports:  # no poll in between
            assert monotonic() < deadline
            try:
                producer.produce(topic, b"x", partition=1, on_delivery=lambda error, _: reports.append(error))
            except ck.KafkaException:  # the partition is not known yet
                sleep(0.05)
            else:
                assert producer.flush(_PATIENCE_S) == 0
    assert reports == [None]


@pytest.mark.parametrize("topic", ["", "a b!", ".", "x" * 300])
def test_invalid_topic_is_reported_by_on_delivery(ck: Any, cluster: EmbeddedCluster, topic: str) -> None:
    reports: list[Any] = []
    with ck.Producer(_settings(cluster)) as producer:
        producer.produce(topic, b"x", on_delivery=lambda *report: reports.append(report))
        assert producer.flush(_PATIENCE_S) == 0
    ((error, message),) = reports
    assert (error, error.str()) == (ck.KafkaError.TOPIC_EXCEPTION, "Broker: Invalid topic")
    assert (message.topic(), message.partition(), message.offset()) == (topic, None, None)


def test_topic_that_cannot_be_encoded_is_refused(ck: Any, cluster: EmbeddedCluster) -> None:
    with ck.Producer(_settings(cluster)) as producer:
        with pytest.raises(ValueError, match="embedded null character"):
            producer.produce("a\0b", b"x")
        with pytest.raises(UnicodeEncodeError):
            producer.produce("\ud800", b"x")
        assert len(producer) == 0


def test_negative_partition_does_not_exist(ck: Any, cluster: EmbeddedCluster) -> None:
    reports: list[Any] = []
    with ck.Producer(_settings(cluster)) as producer:
        producer.produce("two", b"x")
        assert producer.flush(_PATIENCE_S) == 0
        with pytest.raises(ck.KafkaException) as raised:
            producer.produce("two", b"x", partition=-5)
        assert raised.value.args[0] == ck.KafkaError._UNKNOWN_PARTITION
        assert raised.value.args[0].str() == "Unable to produce message: Local: Unknown partition"
    with ck.Producer(_settings(cluster)) as producer:  # to a topic that it does not know yet
        producer.produce("two", b"x", partition=-5, on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(_PATIENCE_S) == 0
    assert reports == [ck.KafkaError._UNKNOWN_PARTITION]


def test_names_of_headers_may_be_bytes(ck: Any, cluster: EmbeddedCluster) -> None:
    with ck.Producer(_settings(cluster)) as producer:
        producer.produce("two", b"x", headers=[(b"name", b"value")], partition=0)
        assert producer.flush(_PATIENCE_S) == 0


@pytest.mark.parametrize("topic", ["two", "never-made"])
def test_transactional_messages_need_a_transaction(ck: Any, cluster: EmbeddedCluster, topic: str) -> None:
    def refused() -> None:
        with pytest.raises(ck.KafkaException) as raised:
            producer.produce(topic, b"x")
        assert raised.value.args[0] == ck.KafkaError._STATE
        assert raised.value.args[0].str().startswith("Unable to produce message: ")

    with ck.Producer(_settings(cluster, **{"transactional.id": f"{ck.__name__}-{topic}"})) as producer:
        refused()
        producer.init_transactions(_PATIENCE_S)
        refused()
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.abort_transaction(_PATIENCE_S)
        refused()


# --- consumer ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic with three partitions: five messages, five messages, none."""
    topic = f"filled-{abs(hash(request.node.nodeid))}"
    cluster.create_topic(topic, 3)
    with ours.Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(10):
            producer.produce(topic, b"%d" % number, partition=number % 2)
    return topic


@contextmanager
def _consumer(ck: Any, cluster: EmbeddedCluster, group: str, **settings: Any) -> Iterator[Any]:
    conf = {"group.id": f"{ck.__name__}-{group}", "auto.offset.reset": "earliest"}
    consumer = ck.Consumer(_settings(cluster, **{**conf, **settings}))
    try:
        yield consumer
    finally:
        consumer.close()


def _until(consumer: Any, done: Callable[[list[Any]], bool]) -> list[Any]:
    """Poll until ``done`` is true of the messages and errors found; return them."""
    found: list[Any] = []
    deadline = monotonic() + _PATIENCE_S
    while not done(found):
        assert monotonic() < deadline, found
        message = consumer.poll(0.1)
        if message is not None:
            found.append(message)
    return found


def _errors(messages: list[Any]) -> list[Any]:
    return [message for message in messages if message.error() is not None]


def test_missing_topics_of_a_subscription_are_reported_once(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    with _consumer(ck, cluster, filled) as consumer:
        consumer.subscribe([filled, "missing-a", "missing-b"])
        found = _until(consumer, lambda found: len(_errors(found)) == 2 and len(found) == 12)
        for message, topic in zip(_errors(found), ("missing-a", "missing-b"), strict=True):
            text = f"Subscribed topic not available: {topic}: Broker: Unknown topic or partition"
            assert (message.error(), message.error().str()) == (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, text)
            assert (message.topic(), message.partition(), message.offset()) == (topic, 0, None)
            assert (message.value(), message.key(), message.timestamp()) == (text.encode(), None, (0, -1))
        consumer.subscribe([filled, "missing-b", "missing-c"])
        found = _until(consumer, lambda found: bool(_errors(found)))
        assert [message.topic() for message in _errors(found)] == ["missing-c"]


def test_pattern_without_a_topic_is_reported(ck: Any, cluster: EmbeddedCluster) -> None:
    with _consumer(ck, cluster, "pattern") as consumer:
        consumer.subscribe(["^nothing-like-.*"])
        (message,) = _until(consumer, bool)
        assert message.error() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
        assert message.topic() == "^nothing-like-.*"


def test_partition_without_an_offset_is_reported_once(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    with _consumer(ck, cluster, filled, **{"auto.offset.reset": "error"}) as consumer:
        consumer.assign([ck.TopicPartition(filled, 0), ck.TopicPartition(filled, 1)])
        found = _until(consumer, lambda found: len(found) == 2)
        assert {message.partition() for message in found} == {0, 1}
        assert {message.error().code() for message in found} == {ck.KafkaError._AUTO_OFFSET_RESET}
        assert all(message.value() == message.error().str().encode() for message in found)
        assert consumer.poll(0.5) is None


def test_position_out_of_range_is_reported_once(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    with _consumer(ck, cluster, filled, **{"auto.offset.reset": "error"}) as consumer:
        consumer.assign([ck.TopicPartition(filled, 0, 500)])
        (message,) = _until(consumer, bool)
        assert message.error() == ck.KafkaError._AUTO_OFFSET_RESET
        assert (message.topic(), message.partition(), message.offset()) == (filled, 0, 500)
        assert consumer.poll(0.5) is None
        consumer.assign([ck.TopicPartition(filled, 0, 4)])
        (message,) = _until(consumer, bool)
        assert (message.error(), message.offset()) == (None, 4)


def test_end_of_a_partition_has_its_text_as_value(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    with _consumer(ck, cluster, filled, **{"enable.partition.eof": True}) as consumer:
        consumer.assign([ck.TopicPartition(filled, 0, 4)])
        message, end = _until(consumer, lambda found: len(found) == 2)
        assert message.offset() == 4
        assert (end.partition(), end.offset()) == (0, 5)
        assert end.value() == end.error().str().encode()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_on_assign_may_take_a_part(ck: Any, cluster: EmbeddedCluster, filled: str, strategy: str) -> None:
    inside: list[Any] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        part = [each for each in partitions if each.partition == 0]
        for each in part:
            each.offset = 3
        (consumer.assign if strategy == "range" else consumer.incremental_assign)(part)
        inside.extend((each.partition, each.offset) for each in consumer.assignment())

    with _consumer(ck, cluster, filled, **{"partition.assignment.strategy": strategy}) as consumer:
        consumer.subscribe([filled], on_assign=on_assign)
        found = _until(consumer, lambda found: len(found) == 2)
        assert [(message.partition(), message.offset()) for message in found] == [(0, 3), (0, 4)]
        assert consumer.poll(0.5) is None
        assert inside == [(0, 3)]
        assert [(each.partition, each.offset) for each in consumer.assignment()] == [(0, 3)]
        change = consumer.incremental_assign if strategy == "range" else consumer.assign
        with pytest.raises(ck.KafkaException) as raised:
            change([ck.TopicPartition(filled, 1)])
        assert raised.value.args[0] == ck.KafkaError._STATE


def test_on_assign_that_assigns_nothing_leaves_nothing(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    calls: list[Any] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        calls.append(partitions)
        consumer.assign([])

    with _consumer(ck, cluster, filled) as consumer:
        consumer.subscribe([filled], on_assign=on_assign)
        _until(consumer, lambda _: bool(calls))
        assert consumer.poll(0.5) is None
        assert consumer.assignment() == []


def test_assignment_has_the_offsets_that_were_assigned(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    with _consumer(ck, cluster, filled) as consumer:
        given = [
            ck.TopicPartition(filled, 0, 2),
            ck.TopicPartition(filled, 1, ck.OFFSET_END),
            ck.TopicPartition(filled, 2),
        ]
        consumer.assign(given)
        _until(consumer, lambda found: len(found) == 3)
        assert [each.offset for each in consumer.assignment()] == [2, ck.OFFSET_END, ck.OFFSET_STORED]
        for wrong in (given[:1] * 2, [ck.TopicPartition(filled, 0, -77)]):
            with pytest.raises(ck.KafkaException) as raised:
                consumer.assign(wrong)
            assert raised.value.args[0] == ck.KafkaError._INVALID_ARG


def test_offsets_have_leader_epochs_and_watermarks_are_cached(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    with _consumer(ck, cluster, filled) as consumer:
        partitions = [ck.TopicPartition(filled, number) for number in range(3)]
        consumer.subscribe([filled])
        _until(consumer, lambda found: len(found) == 10)
        shown = [(each.offset, each.leader_epoch) for each in consumer.position(partitions)]
        assert shown == [(5, 0), (5, 0), (ck.OFFSET_INVALID, None)]
        assert consumer.get_watermark_offsets(partitions[0], cached=True) == (0, 5)
        unknown = ck.TopicPartition("nowhere", 0)
        assert consumer.get_watermark_offsets(unknown, cached=True) == (ck.OFFSET_INVALID, ck.OFFSET_INVALID)
        consumer.commit(asynchronous=False)
        committed = consumer.committed(partitions, timeout=_PATIENCE_S)
        assert [(each.offset, each.metadata) for each in committed[:2]] == [(5, None), (5, None)]


def test_times_of_unknown_partitions_are_errors_at_once(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    with _consumer(ck, cluster, filled) as consumer:
        with pytest.raises(ck.KafkaException) as raised:
            consumer.offsets_for_times([ck.TopicPartition("nowhere", 0, 0)], timeout=_PATIENCE_S)
        assert raised.value.args[0] == ck.KafkaError._UNKNOWN_PARTITION
        with pytest.raises(ck.KafkaException) as raised:
            consumer.offsets_for_times([], timeout=_PATIENCE_S)
        assert raised.value.args[0] == ck.KafkaError._INVALID_ARG
        wanted = [ck.TopicPartition(filled, 9, 0), ck.TopicPartition(filled, 0, 0), ck.TopicPartition(filled, 1, 2**42)]
        found = consumer.offsets_for_times(wanted, timeout=_PATIENCE_S)
        shown = [(each.offset, each.leader_epoch, each.error) for each in found]
        assert shown == [(0, None, ck.KafkaError._UNKNOWN_PARTITION), (0, 0, None), (ck.OFFSET_END, None, None)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_assignment_grows_and_shrinks_with_the_group(
    ck: Any, cluster: EmbeddedCluster, filled: str, protocol: str
) -> None:
    settings = {"group.protocol": protocol}
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    with _consumer(ck, cluster, filled, **settings) as first:
        first.subscribe([filled])
        _until(first, lambda _: len(first.assignment()) == 3)
        with _consumer(ck, cluster, filled, **settings) as second:
            second.subscribe([filled])
            deadline = monotonic() + _PATIENCE_S
            while not (second.assignment() and len(first.assignment()) + len(second.assignment()) == 3):
                assert monotonic() < deadline
                first.poll(0.05)
                second.poll(0.05)
        _until(first, lambda _: len(first.assignment()) == 3)


def test_members_of_the_consumer_protocol_are_not_told_of_missing_topics(ck: Any, cluster: EmbeddedCluster) -> None:
    with _consumer(ck, cluster, "missing", **{"group.protocol": "consumer"}) as consumer:
        consumer.subscribe(["missing-d"])
        assert consumer.poll(1.5) is None


def test_consumer_whose_constructor_did_not_run_raises_runtime_error(ck: Any) -> None:
    class Unmade(ck.Consumer):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    consumer = Unmade()
    for call in (lambda: consumer.subscribe(["t"]), consumer.unsubscribe, lambda: consumer.poll(0), consumer.commit):
        with pytest.raises(RuntimeError):
            call()


# --- metadata of offsets ----------------------------------------------------------------------------------------------


def _partition(ck: Any, topic: str, offset: int, metadata: str | None) -> Any:
    return ck.TopicPartition(topic, 0, offset, *([] if metadata is None else [metadata]))


@pytest.mark.parametrize("metadata", [None, "", "a", "नमस्ते"])
def test_committed_metadata_is_what_was_committed(
    ck: Any, cluster: EmbeddedCluster, filled: str, metadata: str | None
) -> None:
    with _consumer(ck, cluster, filled, **{"enable.auto.offset.store": False, "enable.auto.commit": False}) as consumer:
        (done,) = consumer.commit(offsets=[_partition(ck, filled, 1, metadata)], asynchronous=False)
        assert done.metadata == metadata
        for client in (theirs, ours):
            group = f"{ck.__name__}-{filled}"
            with closing(client.Consumer(_settings(cluster, **{"group.id": group}))) as reader:
                (found,) = reader.committed([client.TopicPartition(filled, 0)], timeout=_PATIENCE_S)
            assert (found.offset, found.metadata) == (1, metadata)
        consumer.assign([ck.TopicPartition(filled, 0, 0)])
        _until(consumer, lambda found: len(found) == 5)
        consumer.store_offsets(offsets=[_partition(ck, filled, 3, metadata)])
        consumer.commit(asynchronous=False)
        (found,) = consumer.committed([ck.TopicPartition(filled, 0)], timeout=_PATIENCE_S)
        assert (found.offset, found.metadata) == (3, metadata)


@pytest.mark.parametrize("metadata", [None, "", "a"])
def test_metadata_of_transactions_and_of_the_admin_client(
    ck: Any, cluster: EmbeddedCluster, filled: str, metadata: str | None
) -> None:
    with _consumer(ck, cluster, filled) as consumer:
        membership = consumer.consumer_group_metadata()
    group = f"{ck.__name__}-{filled}"
    with ck.Producer(_settings(cluster, **{"transactional.id": group})) as producer:
        producer.init_transactions(_PATIENCE_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([_partition(ck, filled, 2, metadata)], membership, _PATIENCE_S)
        producer.commit_transaction(_PATIENCE_S)
    client = import_module(f"{ck.__name__}.admin").AdminClient(_settings(cluster))

    def listed() -> tuple[int, str | None]:
        wanted = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(filled, 0)])
        (future,) = client.list_consumer_group_offsets([wanted]).values()
        (found,) = future.result(_PATIENCE_S).topic_partitions
        return found.offset, found.metadata

    assert listed() == (2, metadata)
    wanted = ck.ConsumerGroupTopicPartitions(group, [_partition(ck, filled, 4, metadata)])
    (future,) = client.alter_consumer_group_offsets([wanted]).values()
    future.result(_PATIENCE_S)
    assert listed() == (4, metadata)


def test_null_characters_are_refused(ck: Any) -> None:
    for arguments in (("a\0b",), ("t", 0, 1, "a\0b")):
        with pytest.raises(ValueError, match="embedded null character"):
            ck.TopicPartition(*arguments)
    with pytest.raises(TypeError, match="argument 4 must be str, not int"):
        ck.TopicPartition("t", 0, 1, 5)


# --- changes of the subscription --------------------------------------------------------------------------------------


class _Calls(list[Any]):
    """The calls of the callbacks of a subscription, by name."""

    def of(self, name: str) -> dict[str, Callable[..., None]]:
        def noted(kind: str) -> Callable[..., None]:
            return lambda _, partitions: self.append((name, kind, sorted({each.topic for each in partitions})))

        return {"on_assign": noted("assign"), "on_revoke": noted("revoke")}


_PROTOCOLS = [
    {"partition.assignment.strategy": "range"},
    {"partition.assignment.strategy": "cooperative-sticky"},
    {"group.protocol": "consumer"},
]


@pytest.mark.parametrize("settings", _PROTOCOLS)
def test_unsubscribe_takes_effect_in_the_next_poll(
    ck: Any, cluster: EmbeddedCluster, filled: str, settings: dict[str, Any]
) -> None:
    calls = _Calls()
    partitions = [ck.TopicPartition(filled, number) for number in range(2)]
    revoked: list[int] = []
    callbacks = calls.of("a")
    noted = callbacks["on_revoke"]

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        noted(consumer, partitions)
        revoked.extend(each.offset for each in partitions)

    callbacks["on_revoke"] = on_revoke
    with _consumer(ck, cluster, filled, **settings) as consumer:
        consumer.subscribe([filled], **callbacks)
        _until(consumer, lambda found: len(found) == 10)
        consumer.unsubscribe()
        assert calls == [("a", "assign", [filled])]
        assert len(consumer.assignment()) == 3
        assert [each.offset for each in consumer.position(partitions)] == [5, 5]
        assert consumer.poll(0) is None
        _until(consumer, lambda _: len(calls) == 2)
        assert calls[1] == ("a", "revoke", [filled])
        assert revoked == [ck.OFFSET_INVALID] * 3
        assert consumer.assignment() == []
        assert consumer.poll(0.2) is None
        assert [each.offset for each in consumer.committed(partitions, timeout=_PATIENCE_S)] == [5, 5]
    assert len(calls) == 2


def test_unsubscribed_consumer_returns_no_message_that_is_at_hand(
    ck: Any, cluster: EmbeddedCluster, filled: str
) -> None:
    calls = _Calls()
    with _consumer(ck, cluster, filled) as consumer:
        consumer.subscribe([filled], **calls.of("a"))
        _until(consumer, bool)
        consumer.unsubscribe()
        assert consumer.consume(10, 0.2) == []
        _until(consumer, lambda _: len(calls) == 2)
        consumer.unsubscribe()
        assert consumer.poll(0.2) is None


def test_close_after_unsubscribe_revokes_once(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    calls = _Calls()
    with _consumer(ck, cluster, filled) as consumer:
        consumer.subscribe([filled], **calls.of("a"))
        _until(consumer, lambda found: len(found) == 10)
        consumer.unsubscribe()
    assert calls == [("a", "assign", [filled]), ("a", "revoke", [filled])]


def test_unsubscribe_leaves_partitions_of_assign(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    with _consumer(ck, cluster, filled) as consumer:
        consumer.assign([ck.TopicPartition(filled, 0, 0)])
        _until(consumer, lambda found: len(found) == 2)
        consumer.unsubscribe()
        assert len(_until(consumer, lambda found: len(found) == 3)) == 3
        assert len(consumer.assignment()) == 1


def test_a_new_subscription_revokes_in_poll_with_its_own_callbacks(
    ck: Any, cluster: EmbeddedCluster, filled: str
) -> None:
    cluster.create_topic(f"{filled}-2", 1)
    changes = [[filled], [f"^{filled}$"], [f"^{filled}.*"], [filled, f"{filled}-2"], [f"{filled}-2"]]
    topics = [[filled], [filled], [filled, f"{filled}-2"], [filled, f"{filled}-2"], [f"{filled}-2"]]
    calls = _Calls()
    with _consumer(ck, cluster, filled) as consumer:
        for number, (names, owned) in enumerate(zip(changes, topics, strict=True)):
            if number == 4:
                consumer.unsubscribe()
            consumer.subscribe(names, **calls.of(str(number)))
            assert calls == []
            _until(consumer, lambda _: len(calls) == (2 if number else 1))  # noqa: B023 - called at once
            assert calls[-1] == (str(number), "assign", owned)
            assert [call[:2] for call in calls[:-1]] == [(str(number), "revoke")] * bool(number)
            calls.clear()


@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_callbacks_may_unsubscribe(ck: Any, cluster: EmbeddedCluster, filled: str, callback: str) -> None:
    calls = _Calls()
    callbacks = calls.of("a")
    noted = callbacks[callback]

    def unsubscribe(consumer: Any, partitions: list[Any]) -> None:
        noted(consumer, partitions)
        consumer.unsubscribe()

    callbacks[callback] = unsubscribe
    with _consumer(ck, cluster, filled) as consumer:
        consumer.subscribe([filled], **callbacks)
        _until(consumer, lambda _: bool(calls))
        if callback == "on_revoke":
            consumer.unsubscribe()
        _until(consumer, lambda _: len(calls) == 2)
        assert [call[1] for call in calls] == ["assign", "revoke"]
        _until(consumer, lambda _: consumer.assignment() == [])


# --- errors of callbacks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", ["error", "earliest"])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_error_of_on_assign_is_raised_once(
    ck: Any, cluster: EmbeddedCluster, filled: str, reset: str, strategy: str
) -> None:
    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        raise ZeroDivisionError("on_assign")

    settings = {"auto.offset.reset": reset, "partition.assignment.strategy": strategy}
    with _consumer(ck, cluster, filled, **settings) as consumer:
        consumer.subscribe([filled], on_assign=on_assign)
        with pytest.raises(ZeroDivisionError):
            _until(consumer, lambda _: False)
        (message,) = _until(consumer, bool)
        assert message.error() == (ck.KafkaError._AUTO_OFFSET_RESET if reset == "error" else None)
        assert len(consumer.assignment()) == 3
    with pytest.raises(RuntimeError):
        consumer.poll(0)


def test_error_of_on_revoke_is_raised_by_the_poll_that_unsubscribes(
    ck: Any, cluster: EmbeddedCluster, filled: str
) -> None:
    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        raise ZeroDivisionError("on_revoke")

    with _consumer(ck, cluster, filled) as consumer:
        consumer.subscribe([filled], on_revoke=on_revoke)
        _until(consumer, lambda found: len(found) == 10)
        consumer.unsubscribe()
        with pytest.raises(ZeroDivisionError):
            _until(consumer, lambda _: False)
        assert consumer.assignment() == []


# --- the end of partitions, and pauses --------------------------------------------------------------------------------


def test_end_is_reported_when_a_fetch_has_found_nothing(ck: Any, cluster: EmbeddedCluster, filled: str) -> None:
    with _consumer(ck, cluster, filled, **{"enable.partition.eof": True, "fetch.wait.max.ms": 20_000}) as consumer:
        consumer.assign([ck.TopicPartition(filled, 0, 0)])
        _until(consumer, lambda found: len(found) == 5)
        assert consumer.poll(0.3) is None
        with ck.Producer(_settings(cluster)) as producer:
            producer.produce(filled, b"more", partition=0)
        (message,) = _until(consumer, bool)
        assert (message.error(), message.offset()) == (None, 5)


@pytest.mark.parametrize("start", [0, 5])
def test_each_end_is_reported_once(ck: Any, cluster: EmbeddedCluster, filled: str, start: int) -> None:
    with _consumer(ck, cluster, filled, **{"enable.partition.eof": True, "fetch.wait.max.ms": 50}) as consumer:
        consumer.assign([ck.TopicPartition(filled, 0, start)])
        for end in (5, 6):
            found = _until(consumer, lambda found: bool(_errors(found)))
            assert [(each.error(), each.offset()) for each in _errors(found)] == [(ck.KafkaError._PARTITION_EOF, end)]
            text = f"Fetch from broker 1 reached end of partition at offset {end} (HighwaterMark {end})"
            assert _errors(found)[0].error().str() == text
            assert consumer.poll(0.3) is None
            with ck.Producer(_settings(cluster)) as producer:
                producer.produce(filled, b"more", partition=0)


@pytest.mark.parametrize(
    ("reset", "code", "offset"), [("error", "_AUTO_OFFSET_RESET", 100), ("latest", "_PARTITION_EOF", 5)]
)
def test_seek_past_the_end_is_out_of_range(
    ck: Any, cluster: EmbeddedCluster, filled: str, reset: str, code: str, offset: int
) -> None:
    settings = {"enable.partition.eof": True, "auto.offset.reset": reset}
    with _consumer(ck, cluster, filled, **settings) as consumer:
        consumer.assign([ck.TopicPartition(filled, 0, 4)])
        _until(consumer, lambda found: len(found) == 2)
        consumer.seek(ck.TopicPartition(filled, 0, 100))
        (message,) = _until(consumer, bool)
        assert (message.error().name(), message.offset()) == (code, offset)


def test_seek_is_an_erroneous_state_while_no_broker_answers(ck: Any) -> None:
    with closing(ck.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})) as consumer:
        consumer.assign([ck.TopicPartition("t", 0)])
        with pytest.raises(ck.KafkaException, match="Failed to seek to offset 123: Local: Erroneous state"):
            consumer.seek(ck.TopicPartition("t", 0, 123))


def test_share_consumer_takes_names_that_no_topic_can_have(ck: Any, cluster: EmbeddedCluster) -> None:
    with closing(ck.ShareConsumer(_settings(cluster, **{"group.id": f"{ck.__name__}-literal"}))) as consumer:
        consumer.subscribe(["^literal", "two"])
        assert consumer.subscription() == ["^literal", "two"]


@pytest.mark.parametrize(("reset", "offset"), [("earliest", 0), ("latest", 5)])
def test_seek_to_an_invalid_offset_resets_the_position(
    ck: Any, cluster: EmbeddedCluster, filled: str, reset: str, offset: int
) -> None:
    settings = {"enable.partition.eof": True, "auto.offset.reset": reset}
    with _consumer(ck, cluster, filled, **settings) as consumer:
        consumer.assign([ck.TopicPartition(filled, 0, 3)])
        _until(consumer, lambda found: len(found) == 3)  # with the end
        consumer.commit(offsets=[ck.TopicPartition(filled, 0, 2)], asynchronous=False)
        consumer.seek(ck.TopicPartition(filled, 0, ck.OFFSET_INVALID))
        first, *_ = _until(consumer, bool)
        assert first.offset() == offset
        with pytest.raises(ck.KafkaException, match="Failed to seek to offset -1000: Local: Invalid argument"):
            consumer.seek(ck.TopicPartition(filled, 0, ck.OFFSET_STORED))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_paused_partitions_stay_paused_in_a_new_assignment(
    ck: Any, cluster: EmbeddedCluster, filled: str, strategy: str
) -> None:
    calls = _Calls()
    with _consumer(ck, cluster, filled, **{"partition.assignment.strategy": strategy}) as consumer:
        consumer.subscribe([filled], **calls.of("a"))
        _until(consumer, lambda found: len(found) == 10)
        consumer.pause([ck.TopicPartition(filled, 0)])
        consumer.unsubscribe()
        consumer.subscribe([filled], **calls.of("b"))
        _until(consumer, lambda _: calls[-1][:2] == ("b", "assign"))
        with ck.Producer(_settings(cluster)) as producer:
            for number in range(2):
                producer.produce(filled, b"more", partition=number)
        (message,) = _until(consumer, bool)
        assert message.partition() == 1
        assert consumer.poll(0.3) is None
        consumer.resume([ck.TopicPartition(filled, 0)])
        (message,) = _until(consumer, bool)
        assert (message.partition(), message.offset()) == (0, 5)


def test_paused_partitions_stay_paused_when_they_are_assigned_again(
    ck: Any, cluster: EmbeddedCluster, filled: str
) -> None:
    with _consumer(ck, cluster, filled) as consumer:
        both = [ck.TopicPartition(filled, number, 0) for number in range(2)]
        consumer.assign(both)
        _until(consumer, lambda found: len(found) == 10)
        consumer.pause(both[:1])
        consumer.assign(both)
        found = _until(consumer, lambda found: len(found) == 5)
        consumer.incremental_unassign(both)
        consumer.incremental_assign(both)
        found += _until(consumer, lambda found: len(found) == 5)
        consumer.unassign()
        consumer.assign(both)
        found += _until(consumer, lambda found: len(found) == 5)
        assert {message.partition() for message in found} == {1}
        assert consumer.poll(0.3) is None
        consumer.resume(both[:1])
        assert {message.partition() for message in _until(consumer, lambda found: len(found) == 5)} == {0}


# --- share consumer ---------------------------------------------------------------------------------------------------


_FOREIGN_TO_SHARES = {
    "auto.offset.reset": "latest",
    "enable.auto.commit": False,
    "group.protocol": "consumer",
    "heartbeat.interval.ms": 10,
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 6000,
}


@pytest.mark.parametrize("name", _FOREIGN_TO_SHARES)
def test_share_consumer_has_fewer_settings(ck: Any, cluster: EmbeddedCluster, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^Failed to create share consumer: `{name}` is not "):
        ck.ShareConsumer(_settings(cluster, **{"group.id": "g", name: _FOREIGN_TO_SHARES[name]}))


def test_share_consumer_that_polls_too_late_is_told_once(ck: Any, cluster: EmbeddedCluster) -> None:
    settings = _settings(cluster, **{"group.id": f"late-poll-{ck.__name__}", "max.poll.interval.ms": 1000})
    with closing(ck.ShareConsumer(settings)) as consumer:
        consumer.subscribe(["two"])
        start = monotonic()
        consumer.poll(1.5)  # a wait in poll is not late
        assert monotonic() - start >= 1.4
        consumer.poll(0.1)
        sleep(2.0)
        with pytest.raises(ck.KafkaException) as raised:
            all(consumer.poll(0.1) is not None for _ in range(20))
        assert raised.value.args[0] == ck.KafkaError._MAX_POLL_EXCEEDED
        consumer.poll(0.1)


def test_share_consumer_waits_for_its_topic_and_guards_its_callback(ck: Any, cluster: EmbeddedCluster) -> None:
    topic = f"late-{ck.__name__}"
    settings = {"group.id": f"late-{ck.__name__}", "topic.metadata.refresh.interval.ms": 200}
    admin = import_module(f"{ck.__name__}.admin")
    client = admin.AdminClient(_settings(cluster))
    operation = admin.AlterConfigOpType.SET
    entry = admin.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=operation)
    resource = admin.ConfigResource("GROUP", settings["group.id"], incremental_configs=[entry])
    for future in client.incremental_alter_configs([resource]).values():
        future.result(_PATIENCE_S)
    calls: list[str] = []

    def committed(offsets: Any, error: Any) -> None:
        for call in (consumer.subscription, consumer.commit_async, consumer.close):
            try:
                call()
                calls.append("none")
            except Exception as raised:  # noqa: BLE001 - its type is compared
                calls.append(type(raised).__name__)

    with closing(ck.ShareConsumer(_settings(cluster, **settings))) as consumer:
        consumer.subscribe([topic])
        consumer.set_acknowledgement_commit_callback(committed)
        consumer.poll(1.0)
        assert topic not in client.list_topics(timeout=_PATIENCE_S).topics
        cluster.create_topic(topic, 1)
        with ck.Producer(_settings(cluster)) as producer:
            producer.produce(topic, b"x")
        deadline = monotonic() + _PATIENCE_S
        found: list[Any] = []
        while not found:
            assert monotonic() < deadline
            found = [message for message in consumer.poll(0.2) if message.error() is None]
        assert found[0].value() == b"x"
        while not calls:
            assert monotonic() < deadline
            consumer.poll(0.2)
    assert set(calls) == {"IllegalStateException"}


# --- the schema registry ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("avro", "AvroSerializer", ('{"type": "long"}',)),
        ("json_schema", "JSONSerializer", ('{"title": "n", "type": "number"}',)),
    ],
)
def test_serializers_register_schemas_by_default(ck: Any, module: str, name: str, arguments: tuple[str, ...]) -> None:
    schema_registry = import_module(f"{ck.__name__}.schema_registry")
    serialization = import_module(f"{ck.__name__}.serialization")
    make = getattr(import_module(f"{ck.__name__}.schema_registry.{module}"), name)
    context = serialization.SerializationContext("t", serialization.MessageField.VALUE)
    client_type = schema_registry.SchemaRegistryClient
    with EmbeddedSchemaRegistry() as registry, client_type({"url": registry.url}) as client:

        def made(**conf: Any) -> Any:
            given = [*arguments, client]
            return make(*(given if name == "JSONSerializer" else given[::-1]), conf=conf or None)

        with pytest.raises(Exception, match="not found"):
            made(**{"auto.register.schemas": False})(1, context)
        assert client.get_subjects() == []
        assert made()(1, context)
        assert client.get_subjects() == ["t-value"]
        with pytest.raises(ValueError, match=r"cannot enable both use\.latest\.version and auto\.register\.schemas"):
            made(**{"use.latest.version": True})


# --- statistics -------------------------------------------------------------------------------------------------------


def _keys(value: Any, path: str = "") -> set[str]:
    """Return the paths of all keys, with "*" for those that are addresses or names of topics and requests."""
    if not isinstance(value, dict):
        return set()
    found = set()
    for key, below in value.items():
        name = f"{path}/{'*' if path.rpartition('/')[2] in {'brokers', 'topics', 'req', 'toppars'} else key}"
        found |= {name} | _keys(below, name)
    return found


def _statistics(ck: Any, cluster: EmbeddedCluster, topic: str) -> tuple[dict[str, Any], dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    settings = {"stats_cb": lambda text: pages.append(json.loads(text)), "statistics.interval.ms": 100}
    with ck.Producer(_settings(cluster, **settings, **{"enable.idempotence": True})) as producer:
        producer.produce(topic, b"x", partition=0)
        deadline = monotonic() + _PATIENCE_S
        while not (pages and pages[-1]["txmsgs"] and pages[-1]["topics"]):
            assert monotonic() < deadline
            producer.poll(0.1)
        produced = pages[-1]
    pages.clear()
    with _consumer(ck, cluster, topic, **settings) as consumer:
        consumer.subscribe([topic])
        _until(consumer, lambda found: len(found) > 5)
        pages.clear()
        _until(consumer, lambda _: bool(pages))
        return produced, pages[-1]


def test_statistics_have_all_keys_of_librdkafkas(cluster: EmbeddedCluster, filled: str) -> None:
    for here, there in zip(_statistics(ours, cluster, filled), _statistics(theirs, cluster, filled), strict=True):
        assert not _keys(there) - _keys(here) - {"/brokers/*/req/*"}
        partition = next(iter(there["topics"][filled]["partitions"].values()))
        assert set(here["topics"][filled]["partitions"]["-1"]) == set(partition)
        assert here["topics"][filled]["partitions"]["0"]["consumer_lag"] == -1  # nothing was committed
        assert here["brokers"].values()
        shown = {name for broker in here["brokers"].values() for name in broker["toppars"]}
        assert f"{filled}-0" in shown


def test_acknowledgement_is_checked_in_the_order_of_confluent_kafkas(ck: Any, cluster: EmbeddedCluster) -> None:
    """First whether the consumer is open, then the type, then whether the message was received."""
    settings = _settings(cluster, **{"group.id": "acknowledges-wrongly", "share.acknowledgement.mode": "explicit"})
    consumer = ck.ShareConsumer(settings)
    for wrong in (0, 4, 999):
        with pytest.raises(ValueError, match=r"."):
            consumer.acknowledge_offset("two", 0, 0, wrong)
    consumer.close()
    with pytest.raises(ck.IllegalStateException):
        consumer.acknowledge(None, ck.AcknowledgeType.ACCEPT)


def test_topics_of_a_closed_consumer_cannot_be_listed(ck: Any, cluster: EmbeddedCluster) -> None:
    consumer = ck.Consumer(_settings(cluster, **{"group.id": "closed"}))
    consumer.close()
    with pytest.raises(RuntimeError, match="Handle has been closed"):
        consumer.list_topics(timeout=1)
