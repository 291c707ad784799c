"""The API versions of old releases equal those of real brokers."""

from __future__ import annotations

import socket
from typing import cast

import pytest

from pykclient.errors import ConfigError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.testing.release_profiles import ReleaseProfile
from tests.kafka import artifacts
from tests.kafka.cluster import KafkaCluster
from tests.kafka.old_kafka import OldKafka

#: Served only by brokers with a plugin that needs them.
TELEMETRY = {"GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY"}


def test_release_is_found_with_or_without_patch_level() -> None:
    for text, release in (("2.1", "2.1"), ("2.1.1", "2.1"), ("0.10.2", "0.10.2"), ("0.10.2.1", "0.10.2")):
        assert ReleaseProfile.of(text).release == release
    assert ReleaseProfile.of("0.11.0.3").release == "0.11"
    for text in ("4.0", "0.9", "2", "", "new"):
        with pytest.raises(ConfigError, match="no profile of release"):
            ReleaseProfile.of(text)


def test_versions_never_decrease_between_releases() -> None:
    profiles = [ReleaseProfile.of(release) for release in ReleaseProfile.releases()]
    for api_key in ApiKeys.client_apis():
        versions = [profile.max_version(api_key) for profile in profiles]
        known = [version for version in versions if version is not None]
        assert known == sorted(known)
        assert versions[-len(known) :] == known, "an API that is there once stays"
        assert known[-1] == ApiKeys.latest_version(api_key)


def test_handler_versions_are_limited_by_the_release() -> None:
    assert ReleaseProfile.of("2.1").cut(ApiKeys.FETCH, (0, 18)) == (0, 10)
    assert ReleaseProfile.of("2.1").cut(ApiKeys.FETCH, (4, 8)) == (4, 8)
    assert ReleaseProfile.of("4.3").cut(ApiKeys.FETCH, (0, 18)) == (4, 18)
    assert ReleaseProfile.of("0.10.0").cut(ApiKeys.CREATE_TOPICS, (0, 7)) is None
    assert ReleaseProfile.of("0.10.0").cut(ApiKeys.LIST_OFFSETS, (1, 3)) is None


def test_release_determines_the_record_format() -> None:
    assert [ReleaseProfile.of(release).magic for release in ("0.10.0", "0.10.2", "0.11", "4.3")] == [1, 1, 2, 2]


def versions_of_broker(address: str) -> dict[int, tuple[int, int]]:
    """Return a broker's response to ApiVersions v0."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10.0) as connection, connection.makefile("rb") as stream:
        connection.sendall(encode_request(ApiVersionsRequest(), 0, 1, "me").getvalue())
        _, response = parse_response(stream.read(int.from_bytes(stream.read(4), "big")), ApiKeys.API_VERSIONS, 0)
    return {api.api_key: (api.min_version, api.max_version) for api in cast(ApiVersionsResponse, response).api_keys}


def expect_profile(release: str, served: dict[int, tuple[int, int]], left_out: set[str]) -> None:
    """Check that the profile equals a real broker's versions.

    APIs of the other mode (ZooKeeper or KRaft) do not count.
    """
    profile = ReleaseProfile.of(release)
    ours = {
        key: (0 if key == ApiKeys.PRODUCE else profile.min_version(key), version)
        for key in ApiKeys.client_apis()
        if (version := profile.max_version(key)) is not None and ApiKeys.name_of(key) not in left_out
    }
    assert ours == {key: versions for key, versions in served.items() if key in ApiKeys.client_apis()}


@pytest.mark.kafka
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("version", "left_out"),
    [("2.1.1", set()), ("2.8.2", {"DESCRIBE_QUORUM", "UNREGISTER_BROKER"}), ("3.9.1", TELEMETRY)],
)
def test_profiles_equal_real_old_brokers(version: str, left_out: set[str]) -> None:
    with OldKafka(version) as broker:
        expect_profile(version, versions_of_broker(broker.bootstrap_servers), left_out)


def test_the_current_profile_equals_a_real_broker(kafka: KafkaCluster) -> None:
    expect_profile(artifacts.KAFKA_VERSION, versions_of_broker(kafka.bootstrap_servers), TELEMETRY)
