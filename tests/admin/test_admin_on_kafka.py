"""Each call of the admin client beside the same call of other clients, on the embedded cluster and on real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest

import pykclient.admin
from pykclient import KafkaAdminClient, KafkaProducer, TopicPartition, errors
from pykclient.admin import ConfigResource, ConfigResourceType, ElectionType, IsolationLevel, OffsetSpec
from pykclient.admin.partitions import _list_offsets_builder
from pykclient.errors import KafkaError, UnsupportedVersionError
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

confluent: Any = confluent_kafka.admin

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:kafka")


class Sides:
    """kafka-python's client and ours, the typed one, and confluent-kafka's, on one cluster."""

    def __init__(self, any_kafka: AnyKafka) -> None:
        servers = any_kafka.bootstrap_servers
        self.servers = servers
        self.broker_id = any_kafka.any_broker().id
        self.is_real = type(any_kafka).__name__ == "KafkaCluster"
        self.theirs: Any = kafka.admin.KafkaAdminClient(bootstrap_servers=servers)
        self.ours = KafkaAdminClient(bootstrap_servers=servers)
        self.typed = self.ours.typed
        self.confluent: Any = confluent.AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def close(self) -> None:
        self.theirs.close()
        self.ours.close()

    def equal(self, call: Callable[[Any, Any], Any]) -> Any:
        """Make the call with kafka-python's client and ours, and return its result, which is the same."""
        theirs, ours = plainly(call(self.theirs, kafka.admin)), plainly(call(self.ours, pykclient.admin))
        assert ours == theirs
        return ours

    def equal_error(self, call: Callable[[Any, Any], Any]) -> KafkaError:
        """Make the call with both, and return our error, which has the same code."""
        with pytest.raises(kafka.errors.KafkaError) as theirs:
            call(self.theirs, kafka.admin)
        with pytest.raises(KafkaError) as ours:
            call(self.ours, pykclient.admin)
        assert getattr(ours.value, "errno", None) == theirs.value.errno or theirs.value.errno is None
        return ours.value


def plainly(value: Any) -> Any:
    """Return a result in a form that compares: responses as tuples, classes by name."""
    if isinstance(value, dict):
        return {key: plainly(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plainly(item) for item in value]
    if hasattr(value, "replica_election_results"):
        return [
            (topic.topic, [(part.partition_id, part.error_code, part.error_message) for part in topic.partition_result])
            for topic in value.replica_election_results
        ]
    return value.__name__ if isinstance(value, type) else value


@pytest.fixture(scope="module")
def sides(any_kafka: AnyKafka) -> Iterator[Sides]:
    made = Sides(any_kafka)
    yield made
    made.close()


@pytest.fixture
def records(sides: Sides, topic: str) -> Iterator[str]:
    """A topic of two partitions with ten records in each."""
    sides.ours.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True)
    with KafkaProducer(bootstrap_servers=sides.servers) as producer:
        for number in range(20):
            producer.send(topic, value=b"%d" % number, partition=number % 2, timestamp_ms=1_000_000 + number)
    yield topic
    sides.ours.delete_topics([topic])


def resource(module: Any, kind: str, name: str, configs: Any = None) -> Any:
    return module.ConfigResource(getattr(module.ConfigResourceType, kind), name, configs)


# --- as kafka-python ---


def test_config_calls_equal_kafka_pythons(sides: Sides, records: str) -> None:
    def describe(kind: str, c: Any, m: Any) -> Any:
        return c.describe_configs([resource(m, "TOPIC", records)], True, kind)

    equal = sides.equal
    assert equal(lambda c, m: c.describe_configs([resource(m, "TOPIC", records)])) == {"topic": {records: {}}}
    changes = {"retention.ms": "7777", "cleanup.policy": "compact"}
    equal(lambda c, m: c.alter_configs([resource(m, "TOPIC", records, changes)]))
    found = equal(lambda c, m: c.describe_configs([resource(m, "TOPIC", records)]))
    assert {key: value["value"] for key, value in found["topic"][records].items()} == changes
    for kind in ("all", "dynamic", "default", "static"):
        equal(partial(describe, kind))
    keys = ["retention.ms", "segment.bytes"]
    equal(lambda c, m: c.describe_configs([resource(m, "TOPIC", records, keys)], config_filter="all"))
    broker = str(sides.broker_id)
    equal(lambda c, m: c.describe_configs([resource(m, "BROKER", broker)], config_filter="all"))
    append = {"cleanup.policy": ("append", "delete")}
    equal(lambda c, m: c.alter_configs([resource(m, "TOPIC", records, append)], validate_only=True))
    wrong = {"retention.ms": "x"}
    answer = equal(lambda c, m: c.alter_configs([resource(m, "TOPIC", records, wrong)]))["topic"][records]
    assert answer.startswith("[Error 40]") is sides.is_real or "retention.ms" in answer
    equal(lambda c, m: c.reset_configs([resource(m, "TOPIC", records, ["retention.ms"])]))
    equal(lambda c, m: c.reset_configs([resource(m, "TOPIC", records, [])]))
    assert equal(lambda c, m: c.describe_configs([resource(m, "TOPIC", records)])) == {"topic": {records: {}}}
    with pytest.raises(ValueError, match="nonsense"):
        sides.ours.alter_configs([ConfigResource("topic", records, {"nonsense": "1"})])
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="nowhere"):
        sides.ours.describe_configs([ConfigResource("topic", "nowhere")])


def test_listed_config_resources_equal_kafka_pythons(sides: Sides, records: str) -> None:
    assert records in sides.equal(lambda c, m: c.list_config_resources(["TOPIC"]))["topic"]
    found = sides.equal(lambda c, m: c.list_config_resources())
    assert {"topic", "broker"} <= found.keys()


def test_cluster_descriptions_equal_kafka_pythons(sides: Sides, records: str) -> None:
    sides.equal(lambda c, m: c.describe_cluster())
    assert sides.equal(lambda c, m: c.api_versions())[3][1] >= 12
    versions = sides.ours.get_broker_version_data(sides.broker_id)
    assert versions.api_versions == sides.ours.api_versions()
    sides.equal(lambda c, m: c.describe_features())
    sides.equal(lambda c, m: c.describe_features(send_request_to_controller=True))
    for arguments in ({}, {"topic_partitions": [records]}, {"topic_partitions": {records: [1]}}):
        listed: list[Any] = []
        for client in (sides.theirs, sides.ours):
            dirs = client.describe_log_dirs(**arguments, brokers=[sides.broker_id])
            assert [found["broker"] for found in dirs] == [sides.broker_id]
            partitions = sorted(
                (topic["name"], partition["partition_index"], partition["partition_size"])
                for found in dirs
                for log_dir in found["log_dirs"]
                for topic in log_dir["topics"]
                for partition in topic["partitions"]
                if topic["name"] == records
            )
            listed.append(partitions)
        assert listed[0] == listed[1]
        assert listed[0]
    move = {(records, 0, sides.broker_id): "/nowhere"}
    if sides.is_real:
        moved = sides.equal(lambda c, m: c.alter_replica_log_dirs(move))
        assert set(moved.values()) == {"LogDirNotFoundError"}
    else:
        with pytest.raises(UnsupportedVersionError):
            sides.ours.alter_replica_log_dirs(move)


def test_quorum_calls_equal_kafka_pythons(sides: Sides) -> None:
    if not sides.is_real:
        calls: list[Callable[[], Any]] = [
            sides.ours.describe_metadata_quorum,
            lambda: sides.ours.update_features({"metadata.version": 1}),
            lambda: sides.typed.unregister_broker(99),
        ]
        for call in calls:
            with pytest.raises(UnsupportedVersionError, match="do not implement it"):
                call()
        return
    seen = []
    for client in (sides.theirs, sides.ours):
        found = client.describe_metadata_quorum()
        (partition,) = found["topics"][0]["partitions"]
        for replica in partition["current_voters"]:
            for name in ("log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp"):
                assert replica.pop(name) > 0
        del partition["high_watermark"]
        seen.append(found)
    assert seen[0] == seen[1]
    sides.equal_error(lambda c, m: c.update_features({"metadata.version": 1}, validate_only=True))
    info = sides.typed.describe_metadata_quorum()
    assert info.leader_id in info.endpoints
    assert info.voters[0].log_end_offset > 0
    with pytest.raises(KafkaError):
        sides.typed.unregister_broker(99)
    with pytest.raises(KafkaError):
        sides.typed.remove_raft_voter(99, uuid.uuid4())
    with pytest.raises(KafkaError):
        sides.typed.add_raft_voter(99, uuid.uuid4(), [("CONTROLLER", "127.0.0.1", 1)])
    failed = sides.typed.update_features({"metadata.version": 1}, validate_only=True).failed
    assert isinstance(failed["metadata.version"], errors.InvalidUpdateVersionError)


def test_offset_and_record_calls_equal_kafka_pythons(sides: Sides, records: str) -> None:
    first, second = TopicPartition(records, 0), TopicPartition(records, 1)

    def at(place: str, c: Any, m: Any) -> Any:
        spec = getattr(m.OffsetSpec, place)
        return c.list_partition_offsets({first: spec, second: spec})

    for place in ("LATEST", "EARLIEST", "MAX_TIMESTAMP"):
        sides.equal(partial(at, place))
    sides.equal(lambda c, m: c.list_partition_offsets({first: 1_000_007, second: 9_000_000}, isolation_level=1))
    sides.equal_error(lambda c, m: c.list_partition_offsets({TopicPartition(records, 7): -1}))
    sides.equal(lambda c, m: c.delete_records({first: 3, second: 4}))
    sides.equal(lambda c, m: c.delete_records({first: 3}, partition_leader_id=sides.broker_id))
    assert sides.equal(lambda c, m: c.list_partition_offsets({first: -2}))[first].offset == 3
    sides.equal_error(lambda c, m: c.delete_records({first: 30}))
    error = sides.equal_error(lambda c, m: c.delete_records({first: 30, second: 40}))
    assert f"{records}-0" in str(error)
    assert f"{records}-1" in str(error)


def test_leader_and_replica_calls_equal_kafka_pythons(sides: Sides, records: str) -> None:
    tp = TopicPartition(records, 0)
    sides.equal(lambda c, m: c.elect_leaders(0, [records]))
    sides.equal(lambda c, m: c.elect_leaders(1, [records]))
    sides.equal(lambda c, m: c.elect_leaders(0, {records: [0, 7]}, raise_errors=False))
    sides.equal_error(lambda c, m: c.elect_leaders(0, {records: [7]}))
    sides.equal(lambda c, m: c.alter_partition_reassignments({tp: [sides.broker_id]}))
    answer = sides.equal(lambda c, m: c.alter_partition_reassignments({TopicPartition(records, 8): [1], tp: None}))
    assert answer[tp] == "NoReassignmentInProgressError"
    sides.equal(lambda c, m: c.list_partition_reassignments())
    sides.equal(lambda c, m: c.list_partition_reassignments([tp]))
    sides.equal(lambda c, m: c.list_partition_reassignments({records: [0]}))
    page = sides.equal(lambda c, m: c.describe_topic_partitions([records], 1))
    assert page["next_cursor"] == {"topic_name": records, "partition_index": 1}
    rest = sides.equal(lambda c, m: c.describe_topic_partitions([records], cursor=page["next_cursor"]))
    assert [partition["partition_index"] for partition in rest["topics"][0]["partitions"]] == [1]


# --- beside confluent-kafka ---


def of(future_by_key: Any) -> dict[Any, Any]:
    """Return the results of confluent-kafka's futures."""
    return {key: future.result(20) for key, future in future_by_key.items()}


def node(theirs: Any) -> tuple[int, str, int, str | None]:
    return theirs.id, theirs.host, theirs.port, theirs.rack


def test_topic_descriptions_equal_confluents(sides: Sides, records: str) -> None:
    their = of(sides.confluent.describe_topics(confluent_kafka.TopicCollection([records])))[records]
    our = sides.typed.describe_topics([records])[records]
    assert our.topic_id is not None
    assert (our.name, our.is_internal) == (their.name, their.is_internal)
    assert len(our.partitions) == len(their.partitions)
    for mine, other in zip(our.partitions, their.partitions, strict=True):
        assert mine.leader is not None
        assert (mine.partition, node(mine.leader)) == (other.id, node(other.leader))
        assert [node(replica) for replica in mine.replicas] == [node(replica) for replica in other.replicas]
        assert [node(replica) for replica in mine.in_sync_replicas] == [node(replica) for replica in other.isr]
    by_id = sides.typed.describe_topics([our.topic_id])[our.topic_id]
    assert by_id == our._replace(partitions=[mine._replace(elr=None, last_known_elr=None) for mine in our.partitions])
    listed = sides.typed.list_topics(list_internal=True)
    assert {found.name for found in listed} == set(sides.confluent.list_topics(timeout=20).topics)
    assert {found.topic_id for found in listed if found.name == records} == {our.topic_id}


def test_configs_equal_confluents(sides: Sides, records: str) -> None:
    for kind, name in ((ConfigResourceType.TOPIC, records), (ConfigResourceType.BROKER, str(sides.broker_id))):
        wanted = confluent.ConfigResource(confluent.ResourceType[kind.name], name)
        (their,) = of(sides.confluent.describe_configs([wanted])).values()
        key = ConfigResource(kind, name)
        our = sides.typed.describe_configs([key], include_synonyms=True, include_documentation=True)[key]
        assert our.keys() == their.keys()
        for entry in our.values():
            other = their[entry.name]
            assert (entry.value, entry.is_read_only, entry.is_sensitive, entry.source.value, entry.is_default) == (
                other.value,
                other.is_read_only,
                other.is_sensitive,
                other.source,
                other.is_default,
            )
            # confluent-kafka has synonyms by name
            assert {synonym.name for synonym in entry.synonyms} == set(other.synonyms)
    key = ConfigResource("topic", records, {"retention.ms": 5000, "preallocate": True})
    missing = ConfigResource("topic", "nowhere", {"retention.ms": 5000})
    results = sides.typed.incremental_alter_configs([key, missing])
    assert set(results.succeeded) == {key}
    assert isinstance(results.failed[missing], errors.UnknownTopicOrPartitionError)

    def are_altered() -> bool:
        (their,) = of(sides.confluent.describe_configs([confluent.ConfigResource("topic", records)])).values()
        return (their["retention.ms"].value, their["preallocate"].value) == ("5000", "true")

    eventually(are_altered, 20.0, "the configuration is altered")


def test_cluster_description_equals_confluents(sides: Sides) -> None:
    their = sides.confluent.describe_cluster(include_authorized_operations=True).result(20)
    our = sides.typed.describe_cluster()
    assert our.cluster_id == their.cluster_id
    assert our.controller is not None
    assert node(our.controller) == node(their.controller)
    assert [node(broker) for broker in our.nodes] == [node(broker) for broker in their.nodes]
    assert our.authorized_operations is not None
    assert set(our.authorized_operations) == {operation.name for operation in their.authorized_operations}
    dirs = sides.typed.describe_log_dirs([sides.broker_id])[sides.broker_id]
    assert all(found.error is None for found in dirs.values())
    features = sides.typed.describe_features()
    assert features.finalized.keys() <= features.supported.keys()


def test_listed_offsets_equal_confluents(sides: Sides, records: str) -> None:
    tps = [TopicPartition(records, index) for index in (0, 1)]
    theirs = [confluent_kafka.TopicPartition(*tp) for tp in tps]
    for spec, their_spec in (
        (OffsetSpec.LATEST, confluent.OffsetSpec.latest()),
        (OffsetSpec.EARLIEST, confluent.OffsetSpec.earliest()),
        (OffsetSpec.MAX_TIMESTAMP, confluent.OffsetSpec.max_timestamp()),
        (1_000_010, confluent.OffsetSpec.for_timestamp(1_000_010)),
    ):
        their = of(sides.confluent.list_offsets(dict.fromkeys(theirs, their_spec)))
        our = sides.typed.list_offsets(dict.fromkeys(tps, spec), isolation_level=IsolationLevel.READ_COMMITTED).all()
        for tp, found in zip(tps, theirs, strict=True):
            assert (our[tp].offset, our[tp].timestamp) == (their[found].offset, their[found].timestamp)
    deleted = sides.typed.delete_records({tps[0]: -1, tps[1]: 2, TopicPartition(records, 9): 1})
    assert deleted.succeeded == {tps[0]: 10, tps[1]: 2}
    assert isinstance(deleted.failed[TopicPartition(records, 9)], errors.UnknownTopicOrPartitionError)
    their = of(sides.confluent.list_offsets(dict.fromkeys(theirs, confluent.OffsetSpec.earliest())))
    assert [their[found].offset for found in theirs] == [10, 2]


def test_election_results_equal_confluents(sides: Sides, records: str) -> None:
    tp, missing = TopicPartition(records, 0), TopicPartition(records, 9)
    their = sides.confluent.elect_leaders(
        confluent_kafka.ElectionType.PREFERRED, [confluent_kafka.TopicPartition(*wanted) for wanted in (tp, missing)]
    ).result(20)
    our = sides.typed.elect_leaders(ElectionType.PREFERRED, [tp, missing])
    assert {(found.topic, found.partition): error.code() for found, error in their.items()} == {
        tuple(wanted): getattr(error, "errno", None) for wanted, error in our.failed.items()
    }
    assert not sides.typed.elect_leaders("preferred").failed  # type: ignore[arg-type]
    moved = sides.typed.alter_partition_reassignments({tp: [sides.broker_id], missing: [1]})
    assert set(moved.succeeded) == {tp}
    assert isinstance(moved.failed[missing], errors.UnknownTopicOrPartitionError)
    assert sides.typed.list_partition_reassignments() == {}


def test_client_metrics_resource_can_be_created_and_deleted(sides: Sides, topic: str) -> None:
    key = ConfigResource(ConfigResourceType.CLIENT_METRICS, topic, {"interval.ms": "1000"})
    if not sides.is_real:
        assert sides.typed.list_client_metrics_resources() == []
        return
    sides.typed.incremental_alter_configs([key]).all()
    eventually(lambda: sides.typed.list_client_metrics_resources() == [topic], 20.0, "the resource is listed")
    assert sides.typed.describe_configs([key])[key]["interval.ms"].value == "1000"
    delete = ConfigResource(ConfigResourceType.CLIENT_METRICS, topic, {"interval.ms": ("delete", None)})
    sides.typed.incremental_alter_configs([delete]).all()
    eventually(lambda: sides.typed.list_client_metrics_resources() == [], 20.0, "the resource is gone")


def test_offset_spec_newer_than_broker_is_unsupported() -> None:
    builder = _list_offsets_builder(ListOffsetsRequest(), [OffsetSpec.MAX_TIMESTAMP])
    assert builder.build(7)
    with pytest.raises(UnsupportedVersionError, match="version 7 of ListOffsets"):
        builder.build(6)
