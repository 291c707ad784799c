"""Every message in every version: round trips, and invalid bytes."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from pykclient.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import DataMessage, Message
from pykclient.protocol.messages.alter_configs import AlterConfigsRequest
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pykclient.protocol.wire import Reader
from tests.protocol.messages import AnyMessage, all_messages, all_versions, field_types, random_message, written
from tests.support.examples import examples

VERSIONED = all_versions()
FLEXIBLE = [(cls, version) for cls, version in VERSIONED if version >= getattr(cls, "FLEXIBLE_FROM", 1 << 15)]


def read_all(cls: type[Message], data: bytes | memoryview, version: int) -> Message:
    reader = Reader(data)
    message = cls.read(reader, version)
    assert reader.remaining == 0
    return message


@pytest.mark.parametrize("name", sorted(all_messages()))
def test_every_version_round_trips(name: str) -> None:
    for cls, version in VERSIONED:
        if cls.__name__ != name:
            continue
        random = Random(f"{name} {version}")
        for message in [cls(), *(random_message(cls, cls, version, random) for _ in range(3))]:
            data = written(message, version)
            first = read_all(cls, data, version)
            assert written(first, version) == data
            assert read_all(cls, memoryview(bytearray(data)), version) == first


@pytest.mark.parametrize("name", sorted(all_messages()))
def test_a_truncated_message_is_a_remote_protocol_error(name: str) -> None:
    for cls, version in VERSIONED:
        if cls.__name__ != name:
            continue
        random = Random(f"{name} {version}")
        data = written(random_message(cls, cls, version, random), version)
        for cut in random.sample(range(len(data)), min(len(data), 25)):
            with pytest.raises(RemoteProtocolError):
                cls.read(Reader(data[:cut]), version)


@settings(deadline=None, max_examples=examples(400))
@given(versioned=st.sampled_from(VERSIONED), random=st.randoms(use_true_random=False), data=st.data())
def test_damaged_message_is_read_or_raises_remote_protocol_error(
    versioned: tuple[AnyMessage, int], random: Random, data: st.DataObject
) -> None:
    cls, version = versioned
    damaged = bytearray(written(random_message(cls, cls, version, random), version))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(damaged)))
        damaged[position : position + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=5))
    try:
        message = cls.read(Reader(memoryview(damaged)), version)
    except RemoteProtocolError:
        return
    assert cls.read(Reader(written(message, version)), version) == message


@settings(deadline=None, max_examples=examples(400))
@given(versioned=st.sampled_from(VERSIONED), noise=st.binary(max_size=200))
def test_random_bytes_are_read_or_raise_remote_protocol_error(versioned: tuple[AnyMessage, int], noise: bytes) -> None:
    cls, version = versioned
    with contextlib.suppress(RemoteProtocolError):
        cls.read(Reader(noise), version)


@settings(deadline=None)
@given(
    versioned=st.sampled_from(FLEXIBLE),
    random=st.randoms(use_true_random=False),
    tags=st.dictionaries(st.integers(50, 0xFFFFFFFF), st.binary(max_size=200), min_size=1, max_size=4),
)
def test_unknown_tags_round_trip(versioned: tuple[AnyMessage, int], random: Random, tags: dict[int, bytes]) -> None:
    cls, version = versioned
    message = random_message(cls, cls, version, random)
    message.unknown_tags = tags
    for name, kind in field_types(cls, cls).items():
        if kind.is_array and kind.struct is not None:
            for element in getattr(message, name) or []:
                element.unknown_tags = tags
    data = written(message, version)
    again = read_all(cls, data, version)
    assert again.unknown_tags == tags
    assert written(again, version) == data


def test_unknown_tags_are_refused_in_versions_without_tags() -> None:
    request = MetadataRequest()
    request.unknown_tags = {70: b"x"}
    with pytest.raises(UnsupportedVersionError):
        written(request, 8)


@pytest.mark.parametrize("name", sorted(all_messages()))
def test_nonexistent_version_is_refused(name: str) -> None:
    cls = all_messages()[name]
    oldest = ApiKeys.oldest_served_version(cls.API_KEY) if not issubclass(cls, DataMessage) else cls.VERSIONS[0]
    for version in (oldest - 1, cls.VERSIONS[1] + 2):
        with pytest.raises(UnsupportedVersionError, match=f"{name} has no version {version}"):
            written(cls(), version)
        with pytest.raises(UnsupportedVersionError):
            cls.read(Reader(b"\0" * 100), version)


def test_set_field_missing_in_version_is_refused_unless_ignorable() -> None:
    request = FetchRequest(rack_id="r", max_wait_ms=5)
    assert written(request, 10) == written(FetchRequest(max_wait_ms=5), 10)
    request.forgotten_topics_data.append(FetchRequest.ForgottenTopic(topic="t"))
    with pytest.raises(UnsupportedVersionError, match=r"FetchRequest\.forgotten_topics_data is set.*version 6"):
        written(request, 6)


def test_non_nullable_null_raises_local_protocol_error() -> None:
    topic = MetadataRequest.MetadataRequestTopic(name=None)
    with pytest.raises(LocalProtocolError, match="name may not be null"):
        written(MetadataRequest(topics=[topic]), 9)
    written(MetadataRequest(topics=[topic]), 12)


def test_tagged_field_must_have_its_announced_size() -> None:
    data = bytearray(written(FetchRequest(cluster_id="abc"), 12))
    assert data.endswith(b"\x01\x00\x04\x04abc")
    data[-5] = 3
    with pytest.raises(RemoteProtocolError, match="tag 0"):
        FetchRequest.read(Reader(data), 12)


def test_arrays_are_copied_into_lists() -> None:
    topics = (MetadataRequest.MetadataRequestTopic(name=name) for name in "ab")
    assert [topic.name for topic in MetadataRequest(topics=topics).topics or []] == ["a", "b"]


def test_default_structs_are_not_shared() -> None:
    first, second = FetchResponse.PartitionData(), FetchResponse.PartitionData()
    first.current_leader.leader_id = 3
    assert second.current_leader.leader_id == -1
    assert first != second


def test_records_are_not_copied() -> None:
    records = bytearray(b"r" * 4000)
    partition = ProduceRequest.PartitionProduceData(index=1, records=records)
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])])
    data = written(request, 9)
    records[0] = 0
    view = memoryview(data)
    read = ProduceRequest.read(Reader(view), 9).topic_data[0].partition_data[0].records
    assert isinstance(read, memoryview)
    assert read.obj is data
    assert read == b"r" * 4000


def test_equality_is_by_class_and_fields() -> None:
    assert MetadataRequest() == MetadataRequest()
    assert MetadataRequest() != MetadataRequest(topics=None)
    assert MetadataRequest() != object()
    tagged = MetadataRequest()
    tagged.unknown_tags = {70: b""}
    assert tagged != MetadataRequest()
    with pytest.raises(TypeError):
        hash(tagged)


def test_repr_shows_no_bytes_and_no_secrets() -> None:
    assert repr(SaslAuthenticateRequest(auth_bytes=b"\0user\0pass")) == "SaslAuthenticateRequest(auth_bytes=<10 bytes>)"
    config = AlterConfigsRequest.AlterableConfig(name="ssl.key.password", value="hunter2")
    assert repr(config) == "AlterableConfig(name='ssl.key.password', value=<hidden>)"
    partition = ProduceRequest.PartitionProduceData(index=1, records=memoryview(b"payload"))
    partition.unknown_tags = {70: b"payload"}
    assert repr(partition) == "PartitionProduceData(index=1, records=<7 bytes>, unknown_tags=[70])"


def test_repr_cuts_long_arrays() -> None:
    text = repr(MetadataResponse.MetadataResponsePartition(replica_nodes=range(1000)))
    assert "replica_nodes=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... 1000 in all]" in text
