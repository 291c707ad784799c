"""Valid, damaged and truncated requests to every API of a running cluster cost no more than the connection."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.testing.embedded_cluster import EmbeddedCluster
from pykclient.testing.handlers import handler
from tests.support.examples import examples
from tests.testing.server.plausible import Plausible
from tests.testing.server.running import Peer

API_KEYS = [key for key in ApiKeys.all() if handler(key) is not None and not ApiKeys.is_broker_only(key)]

TOPICS = ("t", "u")

#: How long to wait for a response. Most arrive at once, but some requests wait for others.
PATIENCE_S = 0.1


class Target:
    """A cluster, with one connection for hostile requests and one for valid ones."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self._port = int(cluster.bootstrap_servers.split(",")[0].split(":")[1])
        self._good = Peer(self._port)
        self._bad = Peer(self._port)
        self.topic_ids: list[UUID] = []
        self.versions: dict[int, tuple[int, int]] = {}

    def prepare(self) -> None:
        """Create the topics again if a request has deleted them."""
        topics = self._topics()
        for name in TOPICS:
            if name not in topics:
                self.cluster.create_topic(name, partitions=2)
                topics = self._topics()
        self.topic_ids = [topics[name] for name in TOPICS]
        if not self.versions:
            answer = self._exchange(self._good, encode_request(ApiVersionsRequest(), 0, 1, "good").getvalue())
            assert answer is not None
            response = parse_response(answer, ApiKeys.API_VERSIONS, 0)[1]
            assert isinstance(response, ApiVersionsResponse)
            self.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    def _topics(self) -> dict[str | None, UUID]:
        response = self.cluster.request(MetadataRequest(topics=None), 1)
        assert isinstance(response, MetadataResponse)
        return {topic.name: topic.topic_id for topic in response.topics}

    @staticmethod
    def _exchange(peer: Peer, request: bytes) -> bytes | None:
        peer.send(request)
        return peer.answer()

    def attack(self, request: bytes) -> bytes | None:
        """Send a hostile request; return the response, or None if none arrives in time."""
        self._bad.sock.settimeout(PATIENCE_S)
        try:
            return self._exchange(self._bad, request)
        except (EOFError, OSError):
            self._bad.sock.close()
            self._bad = Peer(self._port)
            return None

    def check(self) -> None:
        """Check that nothing failed in the cluster, and the other connection is served."""
        assert self.cluster.alive_broker_ids == [1, 2]  # raises any failure
        answer = self._exchange(self._good, encode_request(ApiVersionsRequest(), 0, 7, "good").getvalue())
        assert answer is not None
        assert struct.unpack_from(">i", answer)[0] == 7

    def close(self) -> None:
        self._good.sock.close()
        self._bad.sock.close()


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with EmbeddedCluster(2, memory_limit_bytes=64 * 1024 * 1024) as cluster:
        cluster.collect_telemetry()
        target = Target(cluster)
        yield target
        target.close()


def served_versions(target: Target, api_key: int) -> st.SearchStrategy[int]:
    oldest, newest = target.versions[api_key]
    return st.integers(max(oldest, ApiKeys.oldest_served_version(api_key)), newest)


_settings = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("api_key", API_KEYS, ids=ApiKeys.name_of)
@given(random=st.randoms(use_true_random=False), data=st.data())
@_settings
def test_valid_requests_get_responses(target: Target, api_key: int, random: Random, data: st.DataObject) -> None:
    target.prepare()
    version = data.draw(served_versions(target, api_key), label="version")
    request = Plausible(random, target.topic_ids).request(ApiKeys.message_class(api_key), version)
    answer = target.attack(request)
    target.check()
    # Kafka itself answers markers of an impossible producer with an unknown error (tests/testing/transaction).
    if answer is not None and api_key != ApiKeys.WRITE_TXN_MARKERS:
        response = repr(parse_response(answer, api_key, version)[1])
        # So it answers consumers of a share group whose state another request has deleted.
        assert "error_code=-1" not in response or "was not initialized" in response


@pytest.mark.parametrize("api_key", API_KEYS, ids=ApiKeys.name_of)
@given(random=st.randoms(use_true_random=False), data=st.data())
@_settings
def test_damaged_requests_do_no_harm(target: Target, api_key: int, random: Random, data: st.DataObject) -> None:
    target.prepare()
    version = data.draw(served_versions(target, api_key), label="version")
    request = bytearray(Plausible(random, target.topic_ids).request(ApiKeys.message_class(api_key), version))
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(4, len(request) - 1))
        request[index] ^= 1 << data.draw(st.integers(0, 7))
    target.attack(bytes(request))
    target.check()


@pytest.mark.parametrize("api_key", API_KEYS, ids=ApiKeys.name_of)
def test_truncated_requests_do_no_harm(target: Target, api_key: int) -> None:
    target.prepare()
    version = target.versions[api_key][1]
    request = Plausible(Random(api_key), target.topic_ids).request(ApiKeys.message_class(api_key), version)
    for end in range(4, len(request)):
        target.attack(struct.pack(">i", end - 4) + request[4:end])
    target.check()


def test_disconnects_within_a_frame_do_no_harm(target: Target) -> None:
    target.prepare()
    for api_key in API_KEYS:
        request = Plausible(Random(1), []).request(ApiKeys.message_class(api_key), target.versions[api_key][1])
        with Peer(target._port) as peer:
            peer.send(request[: len(request) // 2])
    target.check()


@pytest.fixture(scope="module", params=["0.10.0", "2.1"])
def old_target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with EmbeddedCluster(2, release=request.param) as cluster:
        target = Target(cluster)
        yield target
        target.close()


@given(random=st.randoms(use_true_random=False), data=st.data())
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_in_removed_versions_do_no_harm(old_target: Target, random: Random, data: st.DataObject) -> None:
    old_target.prepare()
    api_key = data.draw(st.sampled_from(sorted(set(API_KEYS) & set(old_target.versions))), label="API")
    version = data.draw(served_versions(old_target, api_key), label="version")
    request = bytearray(Plausible(random, old_target.topic_ids).request(ApiKeys.message_class(api_key), version))
    for _ in range(data.draw(st.integers(0, 3))):
        request[data.draw(st.integers(4, len(request) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    old_target.attack(bytes(request))
    old_target.check()
