"""Hand-written requests in every served version of every API get a response that the version can express."""

from __future__ import annotations

from collections.abc import Iterator
from pkgutil import iter_modules
from uuid import UUID

import pytest

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import Request, Response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from pykclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from pykclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record import Compression, MemoryRecords, MemoryRecordsBuilder
from pykclient.testing import EmbeddedCluster, handlers
from pykclient.testing.release_profiles import ReleaseProfile
from pykclient.types import CREATE_TIME, NO_TIMESTAMP_TYPE
from tests.support.wait import eventually
from tests.testing.handlers.raw_client import RawClient

AT = 1_700_000_000_000
OLD, NEW = "3.9", "4.3"


@pytest.fixture(scope="module", params=["0.10.0", "1.1", "2.1", "2.8", OLD, NEW])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(release: str) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, release=release) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedCluster) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def served(client: RawClient) -> dict[int, range]:
    response = client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    found = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}
    if 3 in found[ApiKeys.PRODUCE]:
        oldest = max(0, found[ApiKeys.FETCH][0] - 1)  # Kafka 4 advertises Produce v0, but does not serve it
        found[ApiKeys.PRODUCE] = range(oldest, found[ApiKeys.PRODUCE][-1] + 1)
    return found


def test_handlers_declare_only_codable_versions() -> None:
    assert {module.name for module in iter_modules(handlers.__path__)} == set(handlers._MODULES)
    for key in filter(handlers.handler, ApiKeys.all()):
        handler = handlers.handler(key)
        assert handler is not None
        oldest, newest = handler.versions
        name = ApiKeys.name_of(key)
        assert ApiKeys.oldest_served_version(key) <= oldest <= newest <= ApiKeys.latest_version(key), name
        assert handler.is_broker_only == ApiKeys.is_broker_only(key), name
        if not ApiKeys.is_broker_only(key):
            assert (oldest, newest) == (ApiKeys.oldest_served_version(key), ApiKeys.latest_version(key)), name


def test_served_versions_equal_the_release(release: str, served: dict[int, range]) -> None:
    profile = ReleaseProfile.of(release)
    assert {ApiKeys.PRODUCE, ApiKeys.FETCH, ApiKeys.METADATA, ApiKeys.JOIN_GROUP} <= set(served)
    for key, versions in served.items():
        assert (versions[0], versions[-1]) == (profile.min_version(key), profile.max_version(key)), ApiKeys.name_of(key)
        assert not ApiKeys.is_broker_only(key)


def empty_request(api_key: int) -> Request:
    """Return a request without content, except for fields that keep it from waiting."""
    request = ApiKeys.message_class(api_key)()
    if isinstance(request, ProduceRequest):
        request.acks = 1
    elif isinstance(request, ApiVersionsRequest):
        request.client_software_name = request.client_software_version = "x"
    return request


def test_every_version_of_every_api_is_answered(broker: EmbeddedCluster, served: dict[int, range]) -> None:
    for key, versions in served.items():
        with RawClient(broker.bootstrap_servers) as client:
            for version in versions:
                response_class = ApiKeys.message_class(key, request=False)
                response = client.ask(empty_request(key), version, response_class)
                assert type(response) is response_class, (ApiKeys.name_of(key), version)


def records_of(magic: int, *values: bytes, codec: str = "none") -> bytes:
    builder = MemoryRecordsBuilder(
        magic=magic,
        compression=Compression.of(codec),
        timestamp_type=CREATE_TIME if magic else NO_TIMESTAMP_TYPE,
    )
    for i, value in enumerate(values):
        builder.append(AT + i, b"k", value)
    return bytes(builder.build())


@pytest.fixture
def topic_id(broker: EmbeddedCluster, topic: str) -> UUID:
    """The id of a new topic with one partition; zero if the release has no topic ids (KIP-516)."""
    broker.create_topic(topic)
    with RawClient(broker.bootstrap_servers) as client:
        version = ReleaseProfile.of(broker.config.release or NEW).max_version(ApiKeys.METADATA) or 0
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        return client.ask(asked, version, MetadataResponse).topics[0].topic_id


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_records_round_trip_in_every_version(
    client: RawClient, served: dict[int, range], topic: str, topic_id: UUID, codec: str
) -> None:
    """Every version of Fetch reads the records that any version of Produce wrote."""
    values: list[bytes] = []
    for version in served[ApiKeys.PRODUCE]:
        new = [b"%d of v%d" % (i, version) for i in range(3)]
        data = records_of((0, 0, 1)[version] if version < 3 else 2, *new, codec=codec)
        partition = ProduceRequest.PartitionProduceData(index=0, records=data)
        named = ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[partition])
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[named])
        written = client.ask(request, version, ProduceResponse).responses[0].partition_responses[0]
        assert (written.error_code, written.base_offset) == (0, len(values)), version
        values += new
    for version in served[ApiKeys.FETCH]:
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        fetch = FetchRequest(
            max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])]
        )
        got = client.ask(fetch, version, FetchResponse).responses[0].partitions[0]
        assert (got.error_code, got.high_watermark) == (0, len(values)), version
        batches = list(MemoryRecords(got.records or b"").batches())
        assert max(batch.magic for batch in batches) <= (0 if version < 2 else 1 if version < 4 else 2), version
        assert [(r.offset, r.value) for batch in batches for r in batch.records()] == list(enumerate(values)), version


def test_zstd_needs_fetch_version_10(client: RawClient, served: dict[int, range], topic: str, topic_id: UUID) -> None:
    """KIP-110: zstd needs Produce v7 and Fetch v10. As in Kafka, batches that need no conversion are not checked."""
    if served[ApiKeys.PRODUCE][-1] < 7:
        return  # no zstd yet
    for version, expected in ((6, 76), (7, 0)):
        partition = ProduceRequest.PartitionProduceData(index=0, records=records_of(2, b"v", codec="zstd"))
        named = ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[partition])
        written = client.ask(ProduceRequest(acks=1, topic_data=[named]), version, ProduceResponse)
        assert written.responses[0].partition_responses[0].error_code == expected
    for version in served[ApiKeys.FETCH]:
        wanted = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
        named_too = FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])
        got = client.ask(FetchRequest(max_wait_ms=0, topics=[named_too]), version, FetchResponse)
        assert got.responses[0].partitions[0].error_code == (76 if version < 4 else 0), version


def test_list_offsets_works_in_every_version(
    client: RawClient, served: dict[int, range], topic: str, topic_id: UUID
) -> None:
    version = served[ApiKeys.PRODUCE][-1]
    data = records_of(1 if version < 3 else 2, b"a", b"b", b"c")
    partition = ProduceRequest.PartitionProduceData(index=0, records=data)
    named = ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[partition])
    client.ask(ProduceRequest(acks=1, topic_data=[named]), version, ProduceResponse)
    for version in served[ApiKeys.LIST_OFFSETS]:
        for timestamp, offset in ((-2, 0), (-1, 3), (AT + 1, 1)):
            if version == 0 and timestamp > 0:
                continue  # version 0 returns the base offsets of segments
            asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])])
            got = client.ask(request, version, ListOffsetsResponse).topics[0].partitions[0]
            assert got.error_code == 0
            assert (got.old_style_offsets if version == 0 else [got.offset]) == [offset], version
    for version in served.get(ApiKeys.OFFSET_FOR_LEADER_EPOCH, range(0)):
        epoch = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
        for_topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[epoch])
        answer = client.ask(OffsetForLeaderEpochRequest(topics=[for_topic]), version, OffsetForLeaderEpochResponse)
        assert (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].end_offset) == (0, 3)


def test_committed_offsets_work_in_every_version(
    client: RawClient, served: dict[int, range], topic: str, topic_id: UUID, group_id: str
) -> None:

    def found() -> bool:
        finds = [
            client.ask(
                FindCoordinatorRequest(
                    key="" if version >= 4 else group_id, coordinator_keys=[group_id] * (version >= 4)
                ),
                version,
                FindCoordinatorResponse,
            )
            for version in served[ApiKeys.FIND_COORDINATOR]
        ]
        return not any(find.error_code or any(c.error_code for c in find.coordinators) for find in finds)

    eventually(found, 30.0, "the coordinator is known")
    offset = 0
    for version in served[ApiKeys.OFFSET_COMMIT]:
        offset += 1
        place = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="m"
        )
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[place])
        commit = OffsetCommitRequest(group_id=group_id, topics=[of_topic])

        def committed(commit: OffsetCommitRequest = commit, version: int = version) -> bool:
            response = client.ask(commit, version, OffsetCommitResponse)
            return response.topics[0].partitions[0].error_code == 0

        eventually(committed, 30.0, "the offset is committed")
        if version == 0:
            continue  # Kafka stored it in ZooKeeper, where OffsetFetch v0 reads it
        for fetch_version in served[ApiKeys.OFFSET_FETCH]:
            if fetch_version == 0:
                continue
            if fetch_version < 8:
                plain = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
                fetch = OffsetFetchRequest(group_id=group_id, topics=[plain])
            else:
                grouped = OffsetFetchRequest.OffsetFetchRequestTopics(
                    name=topic, topic_id=topic_id, partition_indexes=[0]
                )
                fetch = OffsetFetchRequest(
                    groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=[grouped])]
                )
            answer = client.ask(fetch, fetch_version, OffsetFetchResponse)
            if fetch_version < 8:
                assert answer.topics[0].partitions[0].committed_offset == offset, (version, fetch_version)
            else:
                assert answer.groups[0].topics[0].partitions[0].committed_offset == offset, (version, fetch_version)


def test_topics_are_created_in_every_version(client: RawClient, served: dict[int, range], topic: str) -> None:
    for version in served.get(ApiKeys.CREATE_TOPICS, range(0)):
        name = f"{topic}-{version}"
        wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        created = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), version, CreateTopicsResponse)
        assert (created.topics[0].name, created.topics[0].error_code) == (name, 0), version
        for metadata_version in served[ApiKeys.METADATA]:
            asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            (described,) = client.ask(asked, metadata_version, MetadataResponse).topics
            assert (described.error_code, len(described.partitions)) == (0, 2), metadata_version
    for version in served.get(ApiKeys.DESCRIBE_CONFIGS, range(0)):
        resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=f"{topic}-2")
        configs = client.ask(DescribeConfigsRequest(resources=[resource]), version, DescribeConfigsResponse).results[0]
        assert configs.error_code == 0
        assert {"retention.ms", "cleanup.policy"} <= {config.name for config in configs.configs}
    for version in served.get(ApiKeys.DELETE_TOPICS, range(0)):
        if version in served[ApiKeys.CREATE_TOPICS]:
            name = f"{topic}-{version}"
            delete = DeleteTopicsRequest(timeout_ms=10_000)
            if version < 6:
                delete.topic_names = [name]
            else:
                delete.topics = [DeleteTopicsRequest.DeleteTopicState(name=name)]
            deleted = client.ask(delete, version, DeleteTopicsResponse)
            assert [(row.name, row.error_code) for row in deleted.responses] == [(name, 0)]


def test_unserved_versions_close_the_connection(broker: EmbeddedCluster, served: dict[int, range]) -> None:
    beyond = served[ApiKeys.METADATA][-1] + 1
    if beyond <= ApiKeys.latest_version(ApiKeys.METADATA):
        with RawClient(broker.bootstrap_servers) as client, pytest.raises(ConnectionError):
            client.ask(MetadataRequest(), beyond, MetadataResponse)
    with RawClient(broker.bootstrap_servers) as client, pytest.raises(ConnectionError):
        client.ask(ApiKeys.message_class(ApiKeys.UPDATE_METADATA)(), 6, Response)


def test_unsupported_api_versions_is_answered_in_version_0(
    client: RawClient, release: str, served: dict[int, range]
) -> None:
    """KIP-511: the response has version 0 and lists the supported versions; before 2.4 it has only the error."""
    beyond = served[ApiKeys.API_VERSIONS][-1] + 1
    if beyond > ApiKeys.latest_version(ApiKeys.API_VERSIONS):
        return  # our own side cannot encode a newer version
    client.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), beyond)
    response = client.receive(ApiKeys.API_VERSIONS, 0)
    assert isinstance(response, ApiVersionsResponse)
    expected = [(ApiKeys.API_VERSIONS, 0, beyond - 1)] if beyond > 3 else []
    assert response.error_code == 35
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == expected
    assert client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0


def test_invalid_client_software_names_are_refused(client: RawClient, served: dict[int, range]) -> None:
    if served[ApiKeys.API_VERSIONS][-1] < 3:
        return  # the name is not sent yet
    for name, error_code in (("pykclient", 0), ("a.b-c", 0), ("", 42), ("-a", 42), ("a b", 42)):
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        assert client.ask(request, 3, ApiVersionsResponse).error_code == error_code
