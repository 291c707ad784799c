"""Every group request can be serialized in every version that a coordinator may support."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.membership import Generation, GroupRebalanceConfig
from pykclient.errors import UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.wire import Reader, Writer
from pykclient.types import OffsetAndMetadata, TopicPartition

CONFIG = GroupRebalanceConfig("g", rack_id="r")
STATIC = GroupRebalanceConfig("g", group_instance_id="i")
GENERATION = Generation(3, "m", "range")
TP = TopicPartition("t", 1)
OFFSETS = {TP: OffsetAndMetadata(7, "note", 2), TopicPartition("t", 2): OffsetAndMetadata(8)}
IDS = {"t": uuid.UUID(int=5)}
IDS_OF = dict.fromkeys(OFFSETS, IDS["t"])

BUILDERS: dict[str, RequestBuilder] = {
    "find": group_requests.FindCoordinatorBuilder("g"),
    "join": group_requests.join_group(CONFIG, GENERATION, "consumer", [("range", b"meta")], "because"),
    "sync": group_requests.sync_group(CONFIG, GENERATION, "consumer", {"m": b"assignment"}),
    "heartbeat": group_requests.heartbeat(CONFIG, GENERATION),
    "leave": group_requests.LeaveGroupBuilder("g", "m", "because"),
    "commit by id": group_requests.offset_commit(CONFIG, GENERATION, None, OFFSETS, IDS_OF),
    "commit by name": group_requests.offset_commit(CONFIG, GENERATION, None, OFFSETS, {}),
    "fetch by id": group_requests.OffsetFetchBuilder("g", OFFSETS, IDS),
    "fetch by name": group_requests.OffsetFetchBuilder("g", OFFSETS, {}),
}


def versions(builder: RequestBuilder) -> range:
    return range(builder.oldest_allowed_version, builder.latest_allowed_version + 1)


def written(builder: RequestBuilder, version: int) -> Any:
    """Return the message after serialization and parsing."""
    message = builder.build(version)
    writer = Writer()
    message.write(writer, version)
    reader = Reader(writer.getvalue())
    read = type(message).read(reader, version)
    assert reader.remaining == 0
    return read


@pytest.mark.parametrize(
    ("name", "version"), [(name, version) for name, builder in BUILDERS.items() for version in versions(builder)]
)
def test_requests_name_the_group_in_every_version(name: str, version: int) -> None:
    read = written(BUILDERS[name], version)
    groups = [read.group_id] if hasattr(read, "group_id") else [read.key, *read.coordinator_keys]
    groups += [group.group_id for group in getattr(read, "groups", ())]
    assert "g" in groups


def test_topic_ids_are_used_only_if_all_are_known() -> None:
    assert BUILDERS["commit by id"].latest_allowed_version == 10
    assert BUILDERS["fetch by id"].latest_allowed_version == 10
    other = {**OFFSETS, TopicPartition("other", 0): OffsetAndMetadata(1)}
    assert group_requests.offset_commit(CONFIG, GENERATION, None, other, IDS_OF).latest_allowed_version == 9
    assert group_requests.OffsetFetchBuilder("g", other, IDS).latest_allowed_version == 9
    [by_id] = written(BUILDERS["commit by id"], 10).topics
    assert (by_id.name, by_id.topic_id) == ("", IDS["t"])
    by_name = written(BUILDERS["commit by id"], 9).topics[0]
    assert (by_name.name, by_name.topic_id) == ("t", uuid.UUID(int=0))


@pytest.mark.parametrize(
    ("builder", "since"),
    [
        (group_requests.join_group(STATIC, GENERATION, "consumer", [], ""), 5),
        (group_requests.sync_group(STATIC, GENERATION, "consumer", {}), 3),
        (group_requests.heartbeat(STATIC, GENERATION), 3),
        (group_requests.offset_commit(STATIC, GENERATION, "i", OFFSETS, {}), 7),
    ],
)
def test_static_members_need_newer_versions(builder: RequestBuilder, since: int) -> None:
    for version in versions(builder):
        if version < since:
            with pytest.raises(UnsupportedVersionError, match=r"group\.instance\.id='i'"):
                builder.build(version)
        else:
            assert written(builder, version).group_instance_id == "i"


def test_reasons_are_cut_to_255_characters() -> None:
    join = group_requests.join_group(CONFIG, GENERATION, "consumer", [], "x" * 300)
    assert len(written(join, 9).reason) == 255
    assert written(join, 7).reason is None
    leave = group_requests.LeaveGroupBuilder("g", "m", "x" * 300)
    assert len(written(leave, 5).members[0].reason) == 255
