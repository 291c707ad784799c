"""The calls of the admin client beside those of Kafka's own one, on the embedded cluster and on real Kafka."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from pykclient import TopicPartition
from pykclient.admin import Admin, ConfigResource, GroupState, GroupType, StreamsGroupDescription
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
from tests.admin.java_admin import JavaAdmin, as_java, errors_of, in_order
from tests.admin.java_admin import java as java
from tests.admin.test_admin_on_kafka import Sides
from tests.admin.test_admin_on_kafka import records as records
from tests.admin.test_admin_on_kafka import sides as sides
from tests.kafka.cluster import KafkaCluster
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:kafka")

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


def test_each_method_of_java_is_here(java: JavaAdmin) -> None:
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
    for member in told["members"]:
        member["consumerId"], member["rackId"] = member.pop("memberId"), member.pop("rack")
        member["assignment"] = {"topicPartitions": member["assignment"]}
        member["memberEpoch"] = member.pop("epoch")
    return told


def assert_same_share_group(java: JavaAdmin, sides: Sides, group_id: str) -> None:
    their = java.call(sides.servers, "describeShareGroups", [group_id])[group_id]
    our = described(sides, group_id)
    assert our.pop("type") == "SHARE"
    for name in ("protocolType", "assignor"):
        del our[name]
    for member in our["members"]:
        for name in ("groupInstanceId", "subscribedTopics", "targetAssignment", "isUpgraded"):
            del member[name]
    lists = ("authorizedOperations", "topicPartitions")
    assert in_order(our, *lists) == in_order(their, *lists)


def test_share_groups_beside_java(java: JavaAdmin, sides: Sides, records: str, group_id: str) -> None:
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
    assert_same_share_group(java, sides, group_id)
    with KafkaShareConsumer(bootstrap_servers=servers, group_id=group_id) as consumer:
        consumer.subscribe([records])
        eventually(lambda: consumer.poll(200), 60.0, "the member has records")
        assert_same_share_group(java, sides, group_id)
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


def test_streams_groups_beside_java(java: JavaAdmin, sides: Sides, records: str, group_id: str) -> None:
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
    our, their = both()
    assert in_order(as_java(our), "authorizedOperations") == in_order(their, "authorizedOperations")
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


def test_controllers_beside_java(java: JavaAdmin, any_kafka: AnyKafka) -> None:
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
        their = java.call(settings, "describeConfigs", [["BROKER", ""], ["BROKER", "1"]])
        assert configs() == [
            {entry["name"]: entry["value"] for entry in config["entries"]} for config in their.values()
        ]
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
