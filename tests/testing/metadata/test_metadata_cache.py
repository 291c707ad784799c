"""One broker's metadata: replaced as a whole, changed by updates, and delayed on request."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from pykclient.log_context import LogContext
from pykclient.protocol.messages.update_metadata import UpdateMetadataRequest
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing.coordination.znodes import LEADER_DURING_DELETE
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.types import Node, TopicPartition

ID_A, ID_B = UUID(int=1), UUID(int=2)


def cache() -> MetadataCache:
    return MetadataCache(cast(Any, SimpleNamespace(log_context=LogContext())))


def state(index: int, leader: int = 1, epoch: int = 0) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
    return UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=index, leader=leader, leader_epoch=epoch, isr=[1, 2], replicas=[1, 2]
    )


def update(
    topics: dict[tuple[str, UUID], list[UpdateMetadataRequest.UpdateMetadataPartitionState]] | None = None,
    alive: tuple[int, ...] = (1, 2),
    controller_id: int = 1,
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=controller_id,
        topic_states=[
            UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=name, topic_id=id, partition_states=states)
            for (name, id), states in (topics or {}).items()
        ],
        live_brokers=[
            UpdateMetadataRequest.UpdateMetadataBroker(
                id=id,
                endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(host="h", port=9000 + id)],
                rack="r" if id == 2 else None,
            )
            for id in alive
        ],
    )


def test_last_update_sets_brokers_and_controller() -> None:
    metadata = cache()
    assert (metadata.controller_id, metadata.alive_brokers()) == (None, [])
    metadata.update_metadata(update())
    assert metadata.controller_id == 1
    assert metadata.alive_brokers() == [Node(1, "h", 9001), Node(2, "h", 9002, "r")]
    metadata.update_metadata(update(alive=(2,), controller_id=-1))
    assert metadata.controller_id is None
    assert metadata.alive_broker(1) is None


def test_updates_are_merged_and_unchanged_topics_are_shared() -> None:
    metadata = cache()
    metadata.update_metadata(update({("a", ID_A): [state(0), state(1)], ("b", ID_B): [state(0)]}))
    before = metadata.snapshot
    metadata.update_metadata(update({("a", ID_A): [state(1, leader=2, epoch=1)]}))
    after = metadata.snapshot
    assert after is not before
    assert (before.partition_states["a"][1].leader, after.partition_states["a"][1].leader) == (1, 2)
    assert after.partition_states["a"][0] is before.partition_states["a"][0]
    assert after.partition_states["b"] is before.partition_states["b"]
    assert (metadata.num_partitions("a"), metadata.num_partitions("no")) == (2, None)
    metadata.update_metadata(update(alive=(1,)))
    assert metadata.snapshot.partition_states is after.partition_states
    assert after.leader(TopicPartition("a", 1)) == Node(2, "h", 9002, "r")
    assert metadata.snapshot.leader(TopicPartition("a", 1)) is None, "it is not alive any more"
    assert metadata.snapshot.leader(TopicPartition("no", 1)) is None


def test_topics_are_found_by_name_and_id() -> None:
    metadata = cache()
    metadata.update_metadata(update({("a", ID_A): [state(0)]}))
    assert (metadata.topic_id("a"), metadata.topic_name(ID_A)) == (ID_A, "a")
    assert (metadata.topic_id("b"), metadata.topic_name(ID_B)) == (ZERO_UUID, None)
    assert metadata.all_topics() == ["a"]
    assert metadata.contains("a")


def test_last_deleted_partition_removes_the_topic() -> None:
    metadata = cache()
    metadata.update_metadata(update({("a", ID_A): [state(0), state(1)]}))
    metadata.update_metadata(update({("a", ID_A): [state(0, leader=LEADER_DURING_DELETE)]}))
    assert metadata.num_partitions("a") == 1
    metadata.update_metadata(update({("a", ID_A): [state(1, leader=LEADER_DURING_DELETE)]}))
    assert not metadata.contains("a")
    assert (metadata.topic_id("a"), metadata.topic_name(ID_A)) == (ZERO_UUID, None)


def test_listeners_get_the_updated_topics() -> None:
    metadata = cache()
    heard: list[tuple[Collection[str], bool]] = []
    metadata.add_listener(lambda topics: heard.append((topics, metadata.contains("a"))))
    metadata.update_metadata(update({("a", ID_A): [state(0)]}))
    metadata.update_metadata(update())
    assert heard == [(["a"], True), ([], True)]


def test_frozen_cache_defers_updates_until_thawed() -> None:
    metadata = cache()
    metadata.update_metadata(update())
    heard: list[Collection[str]] = []
    metadata.add_listener(heard.append)
    metadata.freeze()
    before = metadata.snapshot
    metadata.update_metadata(update({("a", ID_A): [state(0)]}))
    metadata.update_metadata(update({("a", ID_A): [state(0, leader=2, epoch=1)]}, alive=(2,)))
    assert metadata.frozen
    assert (metadata.snapshot, heard) == (before, [])
    metadata.thaw()
    assert not metadata.frozen
    assert heard == [["a"], ["a"]]
    assert metadata.snapshot.partition_states["a"][0].leader == 2
    assert metadata.alive_broker(1) is None
