"""Headers, alone and in whole requests and responses."""

from __future__ import annotations

import pytest

from pykclient.errors import RemoteProtocolError, UnsupportedVersionError
from pykclient.protocol import headers
from pykclient.protocol.api_keys import NEVER_FLEXIBLE, ApiKeys
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pykclient.protocol.wire import Reader
from tests.protocol.messages import all_versions


@pytest.mark.parametrize("client_id", [None, "", "me"])
@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_request_round_trips(version: int, client_id: str | None) -> None:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="a")])
    data = headers.encode_request(request, version, 7, client_id).getvalue()
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    header, read = headers.parse_request(memoryview(data)[4:])
    assert (header.api_key, header.api_version) == (ApiKeys.METADATA, version)
    assert (header.correlation_id, header.client_id) == (7, client_id)
    assert read == request


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_response_round_trips(version: int) -> None:
    response = MetadataResponse(cluster_id="c", controller_id=3)
    data = headers.encode_response(response, version, -5).getvalue()
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert headers.parse_response(data[4:], ApiKeys.METADATA, version) == (-5, response)


def test_encoded_request_has_expected_bytes() -> None:
    data = headers.encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 2, "me").getvalue()
    assert data.hex(" ", -4) == "00000013 00110001 00000002 00026d65 0005504c 41494e"


def test_api_versions_response_header_is_always_version_0() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=3, max_version=12)])
    for version in range(5):
        assert headers.response_header_version(ApiKeys.API_VERSIONS, version) == 0
        data = headers.encode_response(response, version, 9).getvalue()
        assert data[4:10] == b"\0\0\0\x09\0\0"
        assert headers.parse_response(data[4:], ApiKeys.API_VERSIONS, version) == (9, response)


def test_too_new_api_versions_request_has_readable_header() -> None:
    data = headers.encode_request(ApiVersionsRequest(), 4, 1, "me").getvalue()[4:]
    newer = data[:2] + b"\x00\x63" + data[4:]
    assert headers.parse_request_header(Reader(newer)).api_version == 99
    with pytest.raises(UnsupportedVersionError, match="ApiVersionsRequest has no version 99"):
        headers.parse_request(newer)


def test_api_versions_response_may_fall_back_to_version_0() -> None:
    supported = ApiVersionsResponse.ApiVersion(api_key=ApiKeys.API_VERSIONS, max_version=2)
    response = ApiVersionsResponse(error_code=35, api_keys=[supported])
    data = headers.encode_response(response, 0, 9).getvalue()[4:]
    assert headers.parse_response(data, ApiKeys.API_VERSIONS, 4) == (9, response)
    for version in (0, 4):
        with pytest.raises(RemoteProtocolError):
            headers.parse_response(data[:-1], ApiKeys.API_VERSIONS, version)


def test_unknown_header_tags_are_skipped() -> None:
    data = headers.encode_response(MetadataResponse(), 12, 1).getvalue()[4:]
    tagged = data[:4] + b"\x01\x05\x02ab" + data[5:]
    assert headers.parse_response(tagged, ApiKeys.METADATA, 12) == (1, MetadataResponse())


def test_an_unknown_api_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="unknown API key 999"):
        headers.parse_request_header(Reader(b"\x03\xe7" + bytes(20)))
    with pytest.raises(UnsupportedVersionError, match="key 999"):
        headers.parse_response(bytes(20), 999, 0)


def test_records_of_a_response_are_views_of_the_frame() -> None:
    partition = FetchResponse.PartitionData(records=b"r" * 3000)
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])])
    frame = bytearray(headers.encode_response(response, 12, 1).getvalue()[4:])
    _, read = headers.parse_response(memoryview(frame), ApiKeys.FETCH, 12)
    assert isinstance(read, FetchResponse)
    records = read.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_repr_of_a_header_names_the_api_and_the_client() -> None:
    header = headers.RequestHeader(ApiKeys.INIT_PRODUCER_ID, 5, 12, "me")
    assert repr(header) == "RequestHeader(INIT_PRODUCER_ID v5, 12, client_id='me')"


def test_api_key_table_equals_generated_messages() -> None:
    for cls, version in all_versions():
        key = getattr(cls, "API_KEY", None)
        if key is None:
            continue
        assert (ApiKeys.oldest_version(key), ApiKeys.latest_version(key)) == cls.VERSIONS
        assert ApiKeys.is_flexible(key, version) == (version >= getattr(cls, "FLEXIBLE_FROM", NEVER_FLEXIBLE))
        assert cls in (ApiKeys.message_class(key), ApiKeys.message_class(key, request=False))
        assert getattr(ApiKeys, ApiKeys.name_of(key)) == key


def test_unstable_version_counts_only_if_enabled() -> None:
    assert ApiKeys.latest_version(ApiKeys.INIT_PRODUCER_ID) == 5
    assert ApiKeys.latest_version(ApiKeys.INIT_PRODUCER_ID, enable_unstable=True) == 6


def test_versions_that_clients_have_dropped_can_be_served() -> None:
    assert (ApiKeys.oldest_version(ApiKeys.FETCH), ApiKeys.oldest_served_version(ApiKeys.FETCH)) == (4, 0)
    request = FetchRequest(replica_id=-1, max_wait_ms=5)
    data = headers.encode_request(request, 0, 1, "old").getvalue()
    assert headers.parse_request(data[4:])[1] == request


def test_client_apis_exclude_broker_apis() -> None:
    assert {ApiKeys.name_of(key) for key in set(ApiKeys.all()) - set(ApiKeys.client_apis())} == {
        *("ALLOCATE_PRODUCER_IDS", "ALTER_PARTITION", "CONTROLLED_SHUTDOWN", "ENVELOPE"),
        *("LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA"),
        *("INITIALIZE_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE_SUMMARY"),
        *("WRITE_SHARE_GROUP_STATE", "DELETE_SHARE_GROUP_STATE"),
    }
    assert all(ApiKeys.is_broker_only(key) != (key in ApiKeys.client_apis()) for key in ApiKeys.all())


def test_first_controlled_shutdown_version_has_no_client_id() -> None:
    request = ControlledShutdownRequest(broker_id=3)
    data = headers.encode_request(request, 0, 9, "broker-3").getvalue()
    assert data.hex(" ", -4) == "0000000c 00070000 00000009 00000003"
    header, read = headers.parse_request(data[4:])
    assert (header.client_id, header.correlation_id, read) == (None, 9, request)


def test_unknown_api_key_has_name() -> None:
    assert ApiKeys.name_of(999) == "UNKNOWN(999)"
    assert not ApiKeys.is_known(999)
