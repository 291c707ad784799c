"""Fetches that follow themselves while the broker has nothing new."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.consumer.consumer_metrics import FetchMetricsManager
from pykclient.consumer.fetch_request_manager import (
    FetchMetadata,
    FetchRequestBuilder,
    FetchRequestData,
    FetchSessionHandler,
    RepeatedFetch,
)
from pykclient.consumer.values import FetchConfig
from pykclient.log_context import LogContext
from pykclient.metrics import Metrics
from pykclient.network.client_request import ClientRequest, Shortcut
from pykclient.protocol.headers import encode_request
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.testing import EmbeddedCluster
from tests.consumer.harness import TP0, TP1, Harness
from tests.consumer.responses import fetch_response, handle_usual, partition_data
from tests.support.mock_clock import MockClock

SESSION = 0x01020304
VERSIONS = range(FetchRequest.VERSIONS[0], FetchRequest.VERSIONS[1] + 1)
REPEATED_VERSIONS = range(15, FetchRequest.VERSIONS[1] + 1)
CONFIG = FetchConfig(max_wait_ms=7, min_bytes=8, max_bytes=9, isolation_level=1, client_rack_id="rack-é")


class Repeated:
    """A session whose next request changes nothing."""

    def __init__(self, epoch: int = 5, version: int = 17) -> None:
        self.handler = FetchSessionHandler(LogContext(), 0)
        self.handler.build({})
        self.handler.handle_response(FetchResponse(session_id=SESSION), version)
        self.handler._next_metadata = FetchMetadata(SESSION, epoch)
        self.wanted = True
        self.clock = MockClock()
        self.metrics = Metrics(clock=self.clock)
        self.fetch = RepeatedFetch(
            FetchRequestBuilder(CONFIG, self.handler.build_changes({})).build,
            self.handler,
            FetchMetricsManager(self.metrics),
            lambda: self.wanted,
        )

    def answer(self, response: FetchResponse, version: int, client_id: str | None = "c") -> bytes | None:
        """Return the request after ``response``, with correlation id 78."""
        builder = FetchRequestBuilder(CONFIG, self.handler.build_changes({}))
        now_ms = self.clock.now_ms()
        request = ClientRequest("0", builder, 77, client_id, now_ms - 500, True, 30_000)
        shortcut = Shortcut(self.handler.usual_response, self.fetch.handle, self.fetch)
        is_usual = handle_usual(shortcut, request, version, response, now_ms)
        return self.fetch.next_frame(request, version, 78) if is_usual else None

    def request(self, version: int, client_id: str | None, correlation_id: int = 78) -> bytes:
        """Return the bytes of the session's next request."""
        message = FetchRequestBuilder(CONFIG, self.handler.build_changes({})).build(version)
        return encode_request(message, version, correlation_id, client_id).getvalue()


@pytest.mark.parametrize("client_id", [None, "", "c", "käfer" * 50])
@pytest.mark.parametrize("version", REPEATED_VERSIONS)
def test_repeated_bytes_equal_the_next_request(version: int, client_id: str | None) -> None:
    repeated = Repeated(version=version)
    for epoch in (6, 7):
        following = repeated.answer(FetchResponse(session_id=SESSION), version, client_id)
        assert repeated.handler._next_metadata == (SESSION, epoch)
        assert following == repeated.request(version, client_id)


def test_session_epoch_wraps_to_1() -> None:
    repeated = Repeated((1 << 31) - 1)
    following = repeated.answer(FetchResponse(session_id=SESSION), 17)
    assert repeated.handler._next_metadata == (SESSION, 1)
    assert following == repeated.request(17, "c")


@pytest.mark.parametrize("version", [v for v in VERSIONS if v not in REPEATED_VERSIONS])
def test_responses_of_older_versions_are_parsed(version: int) -> None:
    response = FetchResponse(session_id=SESSION if version >= 7 else 0)
    assert Repeated(version=version).answer(response, version) is None


@pytest.mark.parametrize(
    "response",
    [
        FetchResponse(session_id=SESSION + 1),
        FetchResponse(session_id=0),
        FetchResponse(session_id=SESSION, throttle_time_ms=1),
        FetchResponse(session_id=SESSION, error_code=71),
        FetchResponse(session_id=SESSION, responses=[FetchResponse.FetchableTopicResponse()]),
        FetchResponse(session_id=SESSION, node_endpoints=[FetchResponse.NodeEndpoint()]),
    ],
)
def test_responses_with_content_are_parsed(response: FetchResponse) -> None:
    repeated = Repeated()
    assert repeated.answer(response, 17) is None
    assert repeated.handler._next_metadata == (SESSION, 5)


def test_unwanted_request_is_not_sent_again() -> None:
    repeated = Repeated()
    repeated.wanted = False
    assert repeated.answer(FetchResponse(session_id=SESSION), 17) is None
    assert repeated.handler._next_metadata == (SESSION, 5)


def test_repeated_fetch_records_its_latency() -> None:
    repeated = Repeated()
    repeated.answer(FetchResponse(session_id=SESSION), 17)
    values = {metric.metric_name.name: metric.metric_value() for metric in repeated.metrics.metrics.values()}
    assert values["fetch-latency-max"] == 500
    assert values["fetch-total"] == 1
    assert repeated.handler.answers == 2


# --- when it is wanted ------------------------------------------------------------------------------------------------


class Idle(Harness):
    """A consumer with two partitions of one broker, and an incremental request in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.assign(TP0, TP1)
        self.fetch({TP0: partition_data(TP0), TP1: partition_data(TP1)}, session_id=SESSION)
        self.fetches.create_fetch_requests()
        self.poll()
        self.network.awaits_records = True

    @property
    def data(self) -> FetchRequestData:
        [request] = self.client.requests
        assert isinstance(request.request_builder, FetchRequestBuilder)
        return request.request_builder.data

    def is_repeated(self, request: ClientRequest) -> bool:
        """Return whether an empty response makes ``request`` be sent again."""
        shortcut = request.request_builder.shortcut
        assert shortcut is not None
        assert shortcut.repetition is not None
        version = request.request_builder.latest_allowed_version
        response = FetchResponse(session_id=SESSION)
        is_usual = handle_usual(shortcut, request, version, response, self.clock.now_ms())
        if is_usual:
            shortcut.repetition.next_frame(request, version, 2)
        return is_usual


def test_waiting_poll_repeats_the_fetch() -> None:
    idle = Idle()
    assert not idle.data.to_send
    [request] = idle.client.requests
    ticket = idle.fetches.look_behind(TP0, 0, None)
    assert ticket is not None
    assert idle.is_repeated(request)
    assert idle.fetches.look_behind(TP0, 0, ticket) is None
    assert idle.is_repeated(request)


def pause(idle: Idle) -> None:
    idle.subscriptions.pause(TP0)


def seek(idle: Idle) -> None:
    idle.seek(TP1, 7)


def metadata(idle: Idle) -> None:
    idle.update_metadata()


def leave(idle: Idle) -> None:
    idle.network.awaits_records = False


def close(idle: Idle) -> None:
    idle.fetches.close_sessions()


def prefer_a_replica(idle: Idle) -> None:
    idle.subscriptions.try_updating_preferred_read_replica(TP0, 0, idle.clock.now_ms() + 1000)


@pytest.mark.parametrize("change", [pause, seek, metadata, leave, close, prefer_a_replica])
def test_changes_end_the_repetition_of_fetches(change: Callable[[Idle], object]) -> None:
    idle = Idle()
    [request] = idle.client.requests
    change(idle)
    assert not idle.is_repeated(request)


def test_a_request_with_changes_is_sent_once() -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.fetches.create_fetch_requests()
    harness.poll()
    assert harness.client.requests[0].request_builder.shortcut is None, "it begins a session"
    harness.client.respond(fetch_response({TP0: partition_data(TP0)}, session_id=SESSION))
    harness.poll()
    harness.collect_fetch()
    harness.seek(TP0, 5)
    harness.fetches.create_fetch_requests()
    harness.poll()
    assert harness.client.requests[0].request_builder.shortcut is None, "it changes the session"


# --- on a cluster -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group_id", [None, "idle"])
def test_idle_consumer_receives_new_records(group_id: str | None) -> None:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        cluster.create_topic("t", 2)
        servers = cluster.bootstrap_servers
        with (
            KafkaProducer(bootstrap_servers=servers) as producer,
            KafkaConsumer(
                "t",
                bootstrap_servers=servers,
                group_id=group_id,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=5,
                auto_commit_interval_ms=50,
                heartbeat_interval_ms=40,
            ) as consumer,
        ):

            def total(name: str) -> float:
                group = "consumer-fetch-manager-metrics" if name == "fetch-total" else "consumer-metrics"
                value: float = consumer.metrics()[group][name]
                return value

            for number in range(3):
                before = total("fetch-total")
                while total("fetch-total") < before + 20:
                    assert consumer.poll(100) == {}
                producer.send("t", b"%d" % number, partition=number % 2).get(10)
                records = [record.value for found in consumer.poll(10_000).values() for record in found]
                assert records == [b"%d" % number]
            assert total("connection-creation-total") <= 3, "no response was taken for another's"
            assert total("connection-close-total") == 0
