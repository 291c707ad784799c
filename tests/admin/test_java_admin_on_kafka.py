"""The calls of the admin client beside those of Kafka's own one, on the embedded cluster and on real Kafka."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pykclient import KafkaConsumer, OffsetAndMetadata, TopicPartition
from pykclient.admin import (
    Admin,
    ConfigEntry,
    ConfigResource,
    FeatureMetadata,
    GroupState,
    GroupType,
    OffsetSpec,
    StreamsGroupDescription,
    TopicPartitionReplica,
    TransactionState,
)
from pykclient.aio import AIOKafkaAdminClient
from pykclient.consumer.share.kafka_share_consumer import KafkaShareConsumer
from pykclient.errors import (
    ConfigError,
    GroupIdNotFoundError,
    KafkaError,
    KafkaTimeoutError,
    MismatchedEndpointTypeError,
    UnsupportedVersionError,
)
from tests.admin.java_admin import JavaAdmin, as_java, errors_of, in_order, java as java
from tests.admin.test_admin_on_kafka import Sides, records as records, sides as sides
from tests.admin.test_groups_on_kafka import member as member
from tests.admin.test_transactions_on_kafka import transaction as transaction
from tests.kafka.cluster import KafkaCluster
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

pytestmark = [pytest.mark.java, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:kafka")]

#: Methods of Java's Admin that have another name here, and why.
RENAMED = {
    "alterConsumerGroupOffsets": ("alter_group_offsets", "kafka-python's name; it serves groups of all types"),
    "alterStreamsGroupOffsets": ("alter_group_offsets", "it serves groups of all types"),
    "deleteConsumerGroupOffsets": ("delete_group_offsets", "kafka-python's name; it serves groups of all types"),
    "deleteConsumerGroups": ("delete_groups", "kafka-python's name; it serves groups of all types"),
    "deleteShareGroups": ("delete_groups", "it serves groups of all types"),
    "deleteStreamsGroupOffsets": ("delete_group_offsets", "it serves groups of all types"),
    "deleteStreamsGroups": ("delete_groups", "it serves groups of all types"),
    "describeClassicGroups": ("describe_groups", "it serves groups of all types"),
    "describeConsumerGroups": ("describe_groups", "kafka-python's name; it serves groups of all types"),
    "describeDelegationToken": ("describe_delegation_tokens", "it returns several"),
    "describeShareGroups": ("describe_groups", "it serves groups of all types"),
    "listConsumerGroupOffsets": ("list_group_offsets", "kafka-python's name; it serves groups of all types"),
    "listConsumerGroups": ("list_groups", "deprecated in Java; types=['classic', 'consumer'] does the same"),
    "listStreamsGroupOffsets": ("list_group_offsets", "it serves groups of all types"),
    "removeMembersFromConsumerGroup": ("remove_members", "it serves classic groups of all protocol types"),
}


def test_admin_has_each_method_of_java(java: JavaAdmin) -> None:
    methods = set(java.call("", "methods"))
    assert methods >= RENAMED.keys()
    for method in methods:
        name = RENAMED[method][0] if method in RENAMED else re.sub("[A-Z]", lambda big: f"_{big[0].lower()}", method)
        for kind in (Admin, AIOKafkaAdminClient):
            assert callable(getattr(kind, name, None)), f"{kind.__name__} has no {name} for Java's {method}"


# --- groups ---


def described(sides: Sides, group_id: str) -> Any:
    """Return our description of a group with the names that Java's classes have."""
    told = as_java(sides.typed.describe_groups([group_id])[group_id])
    told["groupState"], told["targetAssignmentEpoch"] = told.pop("state"), told.pop("assignmentEpoch")
    for one in told["members"]:
        one["consumerId"], one["rackId"] = one.pop("memberId"), one.pop("rack")
        one["assignment"] = {"topicPartitions": one["assignment"]}
        one["memberEpoch"] = one.pop("epoch")
    return told


def settles(both: Callable[[], tuple[Any, Any]]) -> Any:
    """Assert that the two answers are equal once the cluster has come to rest, and return them.

    What they are about may change between the two calls.
    """
    last: list[Any] = []

    def are_equal() -> bool:
        last[:] = both()
        return bool(last[0] == last[1])

    try:
        eventually(are_equal, 20.0, "both answers are equal")
    except AssertionError:
        assert last[0] == last[1]
        raise
    return last[0]


def share_group(java: JavaAdmin, sides: Sides, group_id: str) -> tuple[Any, Any]:
    """Return our description of a share group and Java's."""
    their = java.call(sides.servers, "describeShareGroups", [group_id])[group_id]
    our = described(sides, group_id)
    assert our.pop("type") == "SHARE"
    for name in ("protocolType", "assignor"):
        del our[name]
    for one in our["members"]:
        for name in ("groupInstanceId", "subscribedTopics", "targetAssignment", "isUpgraded"):
            del one[name]
    lists = ("authorizedOperations", "topicPartitions")
    return in_order(our, *lists), in_order(their, *lists)


def test_share_group_results_equal_javas(java: JavaAdmin, sides: Sides, records: str, group_id: str) -> None:
    first, second, missing = (TopicPartition(records, index) for index in (0, 1, 9))
    servers, typed = sides.servers, sides.typed
    wanted = {f"{records}-0": 4, f"{records}-9": 1}
    their = java.call(servers, "alterShareGroupOffsets", group_id, wanted)
    altered = typed.alter_share_group_offsets(group_id, {first: 4, missing: 1})
    assert (
        errors_of(as_java(altered))
        == errors_of(their)
        == {
            f"{records}-0": None,
            f"{records}-9": "UnknownTopicOrPartitionException",
        }
    )
    for partitions in (None, [first, second]):
        names = None if partitions is None else [f"{records}-{tp.partition}" for tp in partitions]
        their = java.call(servers, "listShareGroupOffsets", {group_id: names, "no-group": names})
        our = typed.list_share_group_offsets({group_id: partitions, "no-group": partitions})
        assert our[group_id][first].start_offset == 4
        shown = as_java(our)
        for offsets in shown.values():  # Java's offset of a partition that was not read is null
            offsets.update({tp: None for tp, found in offsets.items() if found["startOffset"] is None})
        assert shown == their
    settles(lambda: share_group(java, sides, group_id))
    with KafkaShareConsumer(bootstrap_servers=servers, group_id=group_id) as consumer:
        consumer.subscribe([records])
        eventually(lambda: consumer.poll(200), 60.0, "the member has records")
        settles(lambda: share_group(java, sides, group_id))
        their = java.call(servers, "alterShareGroupOffsets", group_id, {f"{records}-0": 2})
        assert errors_of(as_java(typed.alter_share_group_offsets(group_id, {first: 2}))) == errors_of(their)
        their = java.call(servers, "deleteShareGroupOffsets", group_id, [records])
        assert errors_of(as_java(typed.delete_share_group_offsets(group_id, [records]))) == errors_of(their)
        their = java.call(servers, "deleteShareGroups", [group_id])
        assert errors_of(as_java(typed.delete_groups([group_id]))) == errors_of(their)
        assert errors_of(their) == {group_id: "GroupNotEmptyException"}
    their = java.call(servers, "deleteShareGroupOffsets", group_id, [records, "nowhere"])
    typed.alter_share_group_offsets(group_id, {first: 4})[first]
    our_deleted = typed.delete_share_group_offsets(group_id, [records, "nowhere"])
    assert errors_of(as_java(our_deleted)) == errors_of(their)
    their = java.call(servers, "deleteShareGroups", ["no-group"])
    our_groups = typed.delete_groups([group_id, "no-group"])
    assert set(our_groups.succeeded) == {group_id}
    assert errors_of(their)["no-group"] == errors_of(as_java(our_groups))["no-group"]


def test_streams_group_results_equal_javas(java: JavaAdmin, sides: Sides, records: str, group_id: str) -> None:
    servers, typed = sides.servers, sides.typed
    if not sides.is_real:
        assert isinstance(typed.describe_streams_groups([group_id]).failed[group_id], UnsupportedVersionError)
        assert isinstance(typed.describe_groups([group_id]).failed[group_id], GroupIdNotFoundError)
        return
    host, port = servers.split(":")
    member = "bWVtYmVyLW9mLXN0cmVhbQ"
    joined = java.call(servers, "streamsGroupHeartbeat", host, int(port), group_id, member, 0, records)
    assert joined["error"] == 0, joined

    def both() -> tuple[StreamsGroupDescription, Any]:
        their = java.call(servers, "describeStreamsGroups", [group_id])[group_id]
        return typed.describe_streams_groups([group_id])[group_id], their

    def has_tasks() -> bool:
        java.call(servers, "streamsGroupHeartbeat", host, int(port), group_id, member, 1, records)
        our, _ = both()
        return bool(our.members[0].target_assignment.active_tasks)

    eventually(has_tasks, 60.0, "the member has tasks")
    settles(lambda: tuple(in_order(as_java(one), "authorizedOperations") for one in both()))
    our, _ = both()
    assert our.subtopologies[0].source_topics == (records,)
    assert our.members[0].user_endpoint == ("app", 7000)
    assert our.members[0].target_assignment.active_tasks == (("0", (0, 1)),)
    general = typed.describe_groups([group_id])[group_id]
    assert (general.type, general.state, general.coordinator) == (
        GroupType.STREAMS,
        our.group_state,
        our.coordinator,
    )
    assert general.members[0].subscribed_topics == (records,)
    assert {group.group_id: group.type for group in typed.list_groups()}[group_id] is GroupType.STREAMS
    assert [group.group_id for group in typed.list_groups(types=["streams"])] == [group_id]
    refused = java.call(servers, "deleteStreamsGroups", [group_id])
    assert errors_of(as_java(typed.delete_groups([group_id]))) == errors_of(refused)
    left = java.call(servers, "streamsGroupHeartbeat", host, int(port), group_id, member, -1, records)
    assert left["error"] == 0, left
    assert typed.describe_streams_groups([group_id])[group_id].group_state is GroupState.EMPTY
    first, missing = TopicPartition(records, 0), TopicPartition(records, 9)
    names = {f"{records}-0": 3, f"{records}-9": 1}
    answers = java.call(servers, "alterStreamsGroupOffsets", group_id, names)
    assert errors_of(as_java(typed.alter_group_offsets(group_id, {first: 3, missing: 1}))) == errors_of(answers)
    offsets = java.call(servers, "listStreamsGroupOffsets", {group_id: None, "no-group": None})
    found = typed.list_group_offsets([group_id, "no-group"])
    assert found[group_id][first] is not None
    assert {name: {tp: it["offset"] for tp, it in as_java(group).items()} for name, group in found.all().items()} == {
        name: {tp: it["offset"] for tp, it in group.items()} for name, group in offsets.items()
    }
    answers = java.call(servers, "deleteStreamsGroupOffsets", group_id, [f"{records}-0"])
    assert errors_of(as_java(typed.delete_group_offsets(group_id, [first]))) == errors_of(answers)
    answers = java.call(servers, "deleteStreamsGroups", ["no-group"])
    deleted = typed.delete_groups([group_id, "no-group"])
    assert set(deleted.succeeded) == {group_id}
    assert errors_of(as_java(deleted))["no-group"] == errors_of(answers)["no-group"]
    for absent in (typed.describe_streams_groups([group_id]), typed.describe_groups([group_id])):
        assert isinstance(absent.failed[group_id], GroupIdNotFoundError)


# --- controllers ---


def answer_of(call: Callable[[], Any]) -> Any:
    """Return the answer of a call with one result in the form of the oracle's, or the class of its error."""
    try:
        return as_java(call())
    except KafkaError as error:
        return errors_of({"": as_java(error)})[""]


def java_configs(java: JavaAdmin, settings: str | Mapping[str, str], *wanted: list[str]) -> dict[str, dict[str, Any]]:
    """Return Java's configurations of resources, by the resources' and the entries' names."""
    told = java.call(settings, "describeConfigs", list(wanted))
    assert len(told) == len(wanted)
    return {
        json.loads(resource)["name"]: {entry["name"]: entry for entry in config["entries"]}
        for resource, config in told.items()
    }


def test_controller_results_equal_javas(java: JavaAdmin, any_kafka: AnyKafka) -> None:
    if not isinstance(any_kafka, KafkaCluster):
        with (
            Admin(bootstrap_controllers=any_kafka.bootstrap_servers) as admin,
            pytest.raises(MismatchedEndpointTypeError, match=r"set bootstrap\.servers to connect to brokers"),
        ):
            admin.describe_cluster()
        return
    settings = {"bootstrap.controllers": any_kafka.bootstrap_controllers}
    with Admin(bootstrap_controllers=any_kafka.bootstrap_controllers) as admin:
        their = java.call(settings, "describeCluster")
        our = as_java(admin.describe_cluster())
        assert in_order(our, "authorizedOperations") == in_order(their, "authorizedOperations")
        assert [f"{node['host']}:{node['port']}" for node in our["nodes"]] == [any_kafka.bootstrap_controllers]
        quorum = java.call(settings, "describeMetadataQuorum")
        found = admin.describe_metadata_quorum()
        assert (found.leader_id, found.leader_epoch) == (quorum["leaderId"], quorum["leaderEpoch"])
        assert [voter.replica_id for voter in found.voters] == [voter["replicaId"] for voter in quorum["voters"]]
        features = java.call(settings, "describeFeatures")
        assert {name: found[1] for name, found in admin.describe_features().finalized.items()} == {
            name: level["maxVersionLevel"] for name, level in features["finalizedFeatures"].items()
        }
        assert admin.list_partition_reassignments() == java.call(settings, "listPartitionReassignments") == {}
        assert answer_of(admin.list_topics) == java.call(settings, "listTopics")["error"]
        assert java.call(settings, "listGroups")["error"] == "KafkaException"  # it wraps the same one
        assert answer_of(admin.list_groups) == "UnsupportedEndpointTypeException"
        assert answer_of(lambda: admin.unregister_broker(99)) == "BrokerIdNotRegisteredException"
        default = ConfigResource("broker", "", {"log.cleaner.threads": "2"})
        admin.incremental_alter_configs([default, ConfigResource("broker", "1", {"log.cleaner.threads": "2"})]).all()
        wanted = [ConfigResource("broker", ""), ConfigResource("broker", "1")]

        def configs() -> list[dict[str, str | None]]:
            found = admin.describe_configs(wanted).all().values()
            return [{entry.name: entry.value for entry in entries.values()} for entries in found]

        eventually(
            lambda: all(entries.get("log.cleaner.threads") == "2" for entries in configs()),
            30.0,
            "the controller knows the configurations",
        )
        their = java_configs(java, settings, ["BROKER", ""], ["BROKER", "1"])
        assert configs() == [{name: entry["value"] for name, entry in their[key].items()} for key in ("", "1")]
        removed = {"log.cleaner.threads": ("delete", None)}
        admin.incremental_alter_configs([ConfigResource("broker", name, removed) for name in ("", "1")]).all()

    async def with_asyncio() -> Any:
        async with AIOKafkaAdminClient(bootstrap_controllers=any_kafka.bootstrap_controllers) as aio_admin:
            return await aio_admin.describe_cluster()

    assert as_java(asyncio.run(with_asyncio())) == our
    with (
        Admin(bootstrap_servers=any_kafka.bootstrap_controllers) as admin,
        pytest.raises(UnsupportedVersionError, match="Check the addresses"),
    ):
        admin.describe_cluster()


def test_a_client_connects_to_brokers_or_to_controllers() -> None:
    with pytest.raises(ConfigError, match="are both set"):
        Admin(bootstrap_controllers="a:1", bootstrap_servers="a:1")
    with pytest.raises(ConfigError, match=r"bootstrap\.controllers: the port of 'a:0'"):
        Admin(bootstrap_controllers="a:0")
    with (
        Admin(bootstrap_controllers="127.0.0.1:1") as admin,
        pytest.raises(KafkaTimeoutError, match=r"1 of 1 bootstrap controllers .* that bootstrap\.controllers names"),
    ):
        admin.describe_cluster(timeout_ms=200)


# --- reading calls, field by field ---


def renamed(told: dict[str, Any], names: dict[str, str | None]) -> dict[str, Any]:
    """Return a result with fields under Java's names, and without those whose new name is None."""
    new = {names.get(name, name): value for name, value in told.items()}
    return {name: value for name, value in new.items() if name is not None}


def test_topic_descriptions_equal_javas(java: JavaAdmin, sides: Sides, records: str) -> None:
    their = java.call(sides.servers, "describeTopics", [records, "nowhere"])
    our = as_java(sides.typed.describe_topics([records, "nowhere"]))
    assert errors_of(our) == errors_of(their)
    our[records]["partitions"] = [
        renamed(partition, {"inSyncReplicas": "isr", "leaderEpoch": None, "offlineReplicas": None})
        for partition in our[records]["partitions"]
    ]
    assert in_order(our[records], "authorizedOperations") == in_order(their[records], "authorizedOperations")

    def topics() -> tuple[Any, Any]:
        listed = as_java(sides.typed.list_topics(list_internal=True)), java.call(sides.servers, "listTopics")
        ours, theirs = ({topic["name"]: topic for topic in of_client} for of_client in listed)
        return ours, theirs

    assert records in settles(topics)
    their = java.call(sides.servers, "describeCluster")
    our = as_java(sides.typed.describe_cluster())
    assert in_order(our, "authorizedOperations") == in_order(their, "authorizedOperations")


def test_configs_equal_javas(java: JavaAdmin, sides: Sides, records: str) -> None:
    changes = {"retention.ms": 5000, "cleanup.policy": "compact"}
    sides.typed.incremental_alter_configs([ConfigResource("topic", records, changes)]).all()
    wanted = [ConfigResource("topic", records), ConfigResource("broker", str(sides.broker_id))]

    def configs() -> dict[ConfigResource, dict[str, ConfigEntry]]:
        return sides.typed.describe_configs(wanted, include_synonyms=True, include_documentation=True).all()

    eventually(lambda: configs()[wanted[0]]["retention.ms"].value == "5000", 20.0, "the broker knows the change")
    their = java_configs(java, sides.servers, *([one.resource_type.name, one.name] for one in wanted))
    for resource, entries in configs().items():
        our = {entry.name: as_java(entry) | {"isDefault": entry.is_default} for entry in entries.values()}
        assert our.keys() == their[resource.name].keys()
        for name, entry in their[resource.name].items():
            assert our[name] == entry

    def resources() -> tuple[Any, Any]:
        theirs = {(one["type"], one["name"]) for one in java.call(sides.servers, "listConfigResources")}
        return {(one.resource_type.name, one.name) for one in sides.typed.list_config_resources()}, theirs

    assert ("TOPIC", records) in settles(resources)

    def features() -> tuple[Any, Any]:
        theirs = java.call(sides.servers, "describeFeatures")
        ours = sides.typed.describe_features()
        finalized, supported = (
            {name: (one[f"min{level}"], one[f"max{level}"]) for name, one in theirs[kind].items()}
            for kind, level in (("finalizedFeatures", "VersionLevel"), ("supportedFeatures", "Version"))
        )
        return ours, FeatureMetadata(supported, finalized, theirs["finalizedFeaturesEpoch"])

    settles(features)


def test_replicas_and_offsets_equal_javas(java: JavaAdmin, sides: Sides, records: str) -> None:
    servers, typed, broker = sides.servers, sides.typed, sides.broker_id
    their = java.call(servers, "describeLogDirs", [broker])[str(broker)]
    our = as_java(typed.describe_log_dirs([broker])[broker])
    assert our.keys() == their.keys()
    for path, directory in our.items():
        replicas = their[path].pop("replicaInfos")
        for tp, replica in directory.pop("replicas").items():
            if tp.startswith(records):
                assert renamed(replica, {"sizeBytes": "size"}) == replicas[tp]
        assert directory.pop("usableBytes") > 0 or not sides.is_real
        del their[path]["usableBytes"]
        total = directory["totalBytes"]
        directory["totalBytes"] = total if total >= 0 else None
        assert directory == their[path]
    wanted = [(records, 0, broker), (records, 1, broker), ("nowhere", 0, broker)]
    theirs = java.call(servers, "describeReplicaLogDirs", [list(replica) for replica in wanted])
    ours = as_java(typed.describe_replica_log_dirs([TopicPartitionReplica(*replica) for replica in wanted]))
    assert {
        key: {f"get{name[0].upper()}{name[1:]}": value for name, value in replica.items()}
        for key, replica in ours.items()
    } == theirs
    assert ours[f"{records}-0-{broker}"]["currentReplicaLogDir"] in our
    for place in ("EARLIEST", "LATEST", "MAX_TIMESTAMP", "1000005"):
        spec = int(place) if place.isdigit() else OffsetSpec[place]
        tps = [TopicPartition(records, index) for index in (0, 1)]
        their = java.call(servers, "listOffsets", {f"{records}-{tp.partition}": place for tp in tps})
        assert as_java(typed.list_offsets(dict.fromkeys(tps, spec))) == their
    assert as_java(typed.list_partition_reassignments()) == java.call(servers, "listPartitionReassignments")


def test_transaction_results_equal_javas(java: JavaAdmin, sides: Sides, records: str, transaction: str) -> None:
    servers, typed, tp = sides.servers, sides.typed, TopicPartition(records, 0)
    our = as_java(typed.describe_transactions([transaction, "no-transaction"]))
    their = java.call(servers, "describeTransactions", [transaction, "no-transaction"])
    assert errors_of(our) == errors_of(their)
    assert our[transaction] == their[transaction]
    (listed,) = (one for one in as_java(typed.list_transactions()) if one["transactionalId"] == transaction)
    assert listed in java.call(servers, "listTransactions")
    ours = as_java(typed.describe_producers([tp]))[f"{records}-0"]["activeProducers"]
    theirs = java.call(servers, "describeProducers", [f"{records}-0"])[f"{records}-0"]["activeProducers"]
    for one in ours:
        for name in ("coordinatorEpoch", "currentTransactionStartOffset"):
            one[name] = one[name] if one[name] >= 0 else None
    assert sorted(ours, key=str) == sorted(({name: one[name] for name in ours[0]} for one in theirs), key=str)
    assert len(theirs) > 0
    assert theirs[0].keys() == ours[0].keys()
    typed.force_terminate_transaction(transaction)
    ended = (TransactionState.COMPLETE_ABORT, TransactionState.EMPTY)
    eventually(
        lambda: typed.describe_transactions([transaction])[transaction].state in ended, 20.0, "the transaction is over"
    )
    assert java.call(servers, "forceTerminateTransaction", f"{transaction}-2") is None
    typed.force_terminate_transaction(f"{transaction}-3")


def test_classic_group_descriptions_equal_javas(
    java: JavaAdmin, sides: Sides, records: str, group_id: str, member: KafkaConsumer[Any, Any]
) -> None:
    servers, typed = sides.servers, sides.typed
    member.commit({TopicPartition(records, 0): OffsetAndMetadata(3, "a note")})
    their = java.call(servers, "describeClassicGroups", [group_id])[group_id]
    our = described(sides, group_id)
    for one in our["members"]:
        del one["subscribedTopics"]
        one["upgraded"] = one.pop("isUpgraded")
    assert (our.pop("type"), our.pop("groupEpoch"), our.pop("targetAssignmentEpoch")) == ("CLASSIC", None, None)
    assert their.pop("isSimpleConsumerGroup") is False
    our = renamed(our, {"protocolType": "protocol", "assignor": "protocolData", "groupState": "state"})
    lists = ("authorizedOperations", "topicPartitions")
    assert in_order(our, *lists) == in_order(their, *lists)
    (one,) = (one for one in java.call(servers, "listGroups") if one["groupId"] == group_id)
    (mine,) = (as_java(group) for group in typed.list_groups() if group.group_id == group_id)
    assert one.pop("isSimpleConsumerGroup") is False
    assert renamed(mine, {"protocolType": "protocol", "state": "groupState"}) == one
    offsets = java.call(servers, "listConsumerGroupOffsets", {group_id: None})
    found = as_java(typed.list_group_offsets([group_id]))
    assert {tp: (it["offset"], it["metadata"]) for tp, it in found[group_id].items()} == {
        tp: (it["offset"], it["metadata"]) for tp, it in offsets[group_id].items()
    }
    removed = typed.remove_members(group_id)
    assert [one.group_instance_id for one in removed.all()] == ["the-one"]
    assert typed.describe_groups([group_id])[group_id].members == ()
