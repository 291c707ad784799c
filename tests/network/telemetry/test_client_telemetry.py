"""When telemetry asks and pushes, what it does with each answer, and the format of a push (KIP-714)."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any, cast

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.errors import IllegalStateError, check_move
from pykclient.log_context import LogContext
from pykclient.metrics import Meter, MetricConfig, Metrics
from pykclient.network import client_telemetry as state
from pykclient.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from pykclient.network.client_telemetry import (
    DEFAULT_PUSH_INTERVAL_MS,
    ClientTelemetry,
    Point,
    TelemetryClient,
    encode_metrics,
)
from pykclient.network.cluster_connection_states import ApiVersions, NodeApiVersions
from pykclient.network.kafka_client import LeastLoadedNode
from pykclient.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from pykclient.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from pykclient.record import Compression
from pykclient.testing.telemetry import decode_metrics
from pykclient.types import Node
from tests.support.mock_clock import MockClock

NODE = Node(1, "localhost", 9092)
INTERVAL_MS = 10_000
ID = uuid.UUID(int=7)


class FakeClient:
    """One node, and the requests that were sent to it."""

    def __init__(self) -> None:
        self.is_ready = True
        self.connects = 0
        self.sent: list[ClientRequest] = []
        self.error: BaseException | None = None

    def least_loaded_node(self, now_ms: int) -> LeastLoadedNode:
        return LeastLoadedNode(NODE, self.is_ready)

    def ready(self, node: Node, now_ms: int) -> bool:
        self.connects += not self.is_ready
        return self.is_ready

    def can_send_request(self, node_id: str, now_ms: int) -> bool:
        return self.is_ready

    def new_client_request(
        self,
        node_id: str,
        request_builder: RequestBuilder,
        created_ms: int,
        expect_response: bool,
        request_timeout_ms: int | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> ClientRequest:
        return ClientRequest(node_id, request_builder, 0, "c", created_ms, expect_response, 30_000, callback)

    def send(self, request: ClientRequest, now_ms: int) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(request)

    def answer(self, body: Any, now_ms: int) -> None:
        """Answer the last request; None means that the connection was lost."""
        request = self.sent[-1]
        assert request.callback is not None
        request.callback(
            ClientResponse(
                request.api_key, 0, 0, request.callback, "1", 0, now_ms, disconnected=body is None, response_body=body
            )
        )


class Harness:
    def __init__(self) -> None:
        self.clock = MockClock()
        self.metrics = Metrics(MetricConfig(tags={"client-id": "c"}), clock=self.clock)
        sensor = self.metrics.sensor("sent")
        name = self.metrics.metric_name
        sensor.add(Meter(name("record-send-rate", "producer-metrics"), name("record-send-total", "producer-metrics")))
        self.sensor = sensor
        self.versions = ApiVersions()
        self.versions.update("1", NodeApiVersions.create())
        self.client = FakeClient()
        self.telemetry = ClientTelemetry(self.metrics, {"group_id": "g"}, self.versions, LogContext(), random.Random(1))

    def poll(self) -> int:
        return self.telemetry.poll(cast(TelemetryClient, self.client), self.clock.now_ms())

    def answer(self, body: Any) -> None:
        self.client.answer(body, self.clock.now_ms())

    def subscribe(self, **fields: Any) -> None:
        """Fetch a subscription, and wait until the first push is due."""
        self.poll()
        settings: dict[str, Any] = {
            "client_instance_id": ID,
            "subscription_id": 5,
            "accepted_compression_types": [4, 1],
            "push_interval_ms": INTERVAL_MS,
            "telemetry_max_bytes": 1 << 20,
            "delta_temporality": False,
            "requested_metrics": ["org.apache.kafka.producer."],
            **fields,
        }
        self.answer(GetTelemetrySubscriptionsResponse(**settings))

    def wait(self) -> None:
        self.clock.advance(max(self.telemetry.quiet_until_ms - self.clock.now_ms(), 0))

    def push(self) -> PushTelemetryRequest:
        """Wait until a push is due, and return it."""
        self.wait()
        before = len(self.client.sent)
        self.poll()
        (request,) = self.client.sent[before:]
        message = request.request_builder.build(0)
        assert isinstance(message, PushTelemetryRequest)
        return message

    @property
    def apis(self) -> list[int]:
        return [request.api_key for request in self.client.sent]


def points(push: PushTelemetryRequest, codec: str = "zstd") -> dict[str, tuple[str, float]]:
    _, metrics = decode_metrics(Compression.of(codec).decompress(push.metrics))
    return {metric.name: (metric.kind, metric.value) for metric in metrics}


def test_telemetry_subscribes_and_pushes_repeatedly() -> None:
    it = Harness()
    it.subscribe()
    first_ms = it.telemetry.quiet_until_ms - it.clock.now_ms()
    assert INTERVAL_MS * 0.5 <= first_ms <= INTERVAL_MS * 1.5
    it.sensor.record(3, it.clock.now_ms())
    push = it.push()
    assert (push.client_instance_id, push.subscription_id, push.terminating, push.compression_type) == (ID, 5, False, 4)
    assert points(push)["org.apache.kafka.producer.record.send.total"] == ("sum", 3)
    assert points(push).keys() == {
        "org.apache.kafka.producer.record.send.total",
        "org.apache.kafka.producer.record.send.rate",
    }
    it.answer(PushTelemetryResponse())
    assert it.telemetry.quiet_until_ms - it.clock.now_ms() == INTERVAL_MS
    it.push()
    assert it.apis == [71, 72, 72]
    assert it.telemetry.client_instance_id == ID


def test_deltas_start_at_last_push_or_change_of_temporality() -> None:
    it = Harness()
    it.subscribe(delta_temporality=True)
    totals: list[tuple[str, float]] = []
    for count in (3, 4):
        it.sensor.record(count, it.clock.now_ms())
        totals.append(points(it.push())["org.apache.kafka.producer.record.send.total"])
        it.answer(PushTelemetryResponse())
    assert totals == [("delta", 3), ("delta", 4)]
    it.push()
    it.answer(PushTelemetryResponse(error_code=errors.UnknownSubscriptionIdError.code))
    it.subscribe(delta_temporality=False)
    assert points(it.push())["org.apache.kafka.producer.record.send.total"] == ("sum", 7)


def test_a_subscription_without_metrics_is_fetched_again() -> None:
    it = Harness()
    it.subscribe(requested_metrics=[])
    it.wait()
    it.poll()
    assert it.apis == [71, 71]
    again = it.client.sent[-1].request_builder.build(0)
    assert isinstance(again, GetTelemetrySubscriptionsRequest)
    assert again.client_instance_id == ID


@pytest.mark.parametrize("accepted", [[], [99]])
def test_unknown_codecs_disable_compression(accepted: list[int]) -> None:
    it = Harness()
    it.subscribe(accepted_compression_types=accepted)
    assert it.push().compression_type == 0


def test_broker_without_telemetry_api_is_not_asked() -> None:
    it = Harness()
    it.versions.update("1", NodeApiVersions({}))
    assert it.poll() == DEFAULT_PUSH_INTERVAL_MS
    assert not it.client.sent
    it.versions.update("1", NodeApiVersions.create())
    it.wait()
    it.poll()
    assert it.apis == [71]


def test_telemetry_waits_without_connecting() -> None:
    it = Harness()
    it.client.is_ready = False
    assert it.poll() == 1_000
    assert not it.client.connects, "an idle client makes no connection for its telemetry"
    it.client.is_ready = True
    it.wait()
    it.poll()
    assert it.apis == [71]


def test_telemetry_connects_for_wanted_metrics_and_waiting_caller() -> None:
    it = Harness()
    it.client.is_ready = False
    assert it.poll() == 1_000
    with it.telemetry.awaited(it.clock.new_signal()):
        assert it.poll() == 50, "it does not wait for the second to end"
        assert it.client.connects == 1
        it.client.is_ready = True
        it.wait()
        it.subscribe()
    it.client.is_ready = False
    it.wait()
    it.poll()
    assert it.client.connects == 2


AT_ONCE, AFTER_INTERVAL, LATER, NEVER = 0, INTERVAL_MS, DEFAULT_PUSH_INTERVAL_MS, FOREVER_MS


@pytest.mark.parametrize(
    ("error", "wait_ms"),
    [
        (errors.UnknownSubscriptionIdError, AT_ONCE),
        (errors.UnsupportedCompressionTypeError, AT_ONCE),
        (errors.TelemetryTooLargeError, AFTER_INTERVAL),
        (errors.ThrottlingQuotaExceededError, AFTER_INTERVAL),
        (errors.InvalidRequestError, NEVER),
        (errors.InvalidRecordError, NEVER),
        (errors.UnsupportedVersionError, NEVER),
        (errors.ClusterAuthorizationError, LATER),
    ],
)
def test_push_error_leads_back_to_subscription(error: type[errors.BrokerError], wait_ms: int) -> None:
    it = Harness()
    it.subscribe()
    it.push()
    it.answer(PushTelemetryResponse(error_code=error.code))
    assert min(it.telemetry.quiet_until_ms - it.clock.now_ms(), FOREVER_MS) == min(
        wait_ms, FOREVER_MS - it.clock.now_ms()
    )
    if wait_ms != NEVER:
        it.wait()
        it.poll()
        assert it.apis == [71, 72, 71]


@pytest.mark.parametrize("pushes", [False, True])
def test_a_lost_connection_is_tried_again_later(pushes: bool) -> None:
    it = Harness()
    if pushes:
        it.subscribe()
        it.push()
    else:
        it.poll()
    it.answer(None)
    assert it.telemetry.quiet_until_ms - it.clock.now_ms() == DEFAULT_PUSH_INTERVAL_MS
    it.wait()
    it.poll()
    assert it.apis[-1] == 71


def test_dropped_connections_are_forgotten() -> None:
    it = Harness()
    it.subscribe()
    it.push()
    it.telemetry.reset()
    it.poll()
    assert it.apis == [71, 72, 71]


def test_last_push_is_sent_at_once() -> None:
    it = Harness()
    it.subscribe()
    assert it.telemetry.push_last(cast(TelemetryClient, it.client), it.clock.now_ms())
    message = it.client.sent[-1].request_builder.build(0)
    assert isinstance(message, PushTelemetryRequest)
    assert message.terminating
    it.answer(PushTelemetryResponse())
    assert it.poll() == FOREVER_MS - it.clock.now_ms()
    assert it.apis == [71, 72]


@pytest.mark.parametrize("asks", [False, True])
def test_without_a_subscription_there_is_no_last_push(asks: bool) -> None:
    it = Harness()
    if asks:
        it.poll()
    assert not it.telemetry.push_last(cast(TelemetryClient, it.client), it.clock.now_ms())
    assert it.apis == [71][: int(asks)]


def test_an_exception_while_sending_does_not_end_telemetry() -> None:
    it = Harness()
    it.client.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        it.poll()
    it.client.error = None
    it.poll()
    assert it.apis == [71]


def test_a_metric_that_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    it = Harness()

    def fail(*_: object) -> float:
        raise ZeroDivisionError

    it.metrics.add_metric(it.metrics.metric_name("broken", "producer-metrics"), fail)
    it.metrics.add_metric(it.metrics.metric_name("text", "producer-metrics"), lambda *_: "text")
    it.subscribe()
    assert "org.apache.kafka.producer.broken" not in points(it.push())
    assert "org.apache.kafka.producer.broken could not be read" in caplog.text


@pytest.mark.parametrize("source", state.MOVES)
@pytest.mark.parametrize("target", state.MOVES)
def test_telemetry_states_follow_table_of_moves(source: str, target: str) -> None:
    if target in state.MOVES[source]:
        check_move("telemetry", state.MOVES, source, target)
    else:
        with pytest.raises(IllegalStateError):
            check_move("telemetry", state.MOVES, source, target)


def test_pushed_metrics_are_in_opentelemetry_format() -> None:
    data = MetricsData.FromString(
        encode_metrics(
            {"group_id": "größe"},
            [
                Point("a.gauge", {"topic": "t" * 200}, 1.5, 1_700_000_000_123),
                Point("a.sum", {}, 3, 2_000, 1_000),
                Point("a.delta", {}, float("inf"), 2_000, 1_000, is_delta=True),
            ],
        )
    )
    (resource,) = data.resource_metrics
    assert [(pair.key, pair.value.string_value) for pair in resource.resource.attributes] == [("group_id", "größe")]
    (scope,) = resource.scope_metrics
    gauge, total, delta = scope.metrics
    assert gauge.name == "a.gauge"
    (point,) = gauge.gauge.data_points
    assert (point.as_double, point.time_unix_nano) == (1.5, 1_700_000_000_123_000_000)
    assert [(pair.key, pair.value.string_value) for pair in point.attributes] == [("topic", "t" * 200)]
    assert total.sum.is_monotonic
    assert total.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert total.sum.data_points[0].start_time_unix_nano == 1_000_000_000
    assert delta.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    assert delta.sum.data_points[0].as_double == float("inf")
