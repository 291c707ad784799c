"""Metrics and traces for OpenTelemetry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from pykclient import KafkaConsumer, KafkaProducer, errors
from pykclient.exporters.opentelemetry import (
    KafkaInstruments,
    RecordTracingProducerInterceptor,
    TracingConsumerInterceptor,
    TracingProducerInterceptor,
    context_of,
    processing,
)
from pykclient.implementation import python_form
from pykclient.producer.send import SendState
from pykclient.testing import EmbeddedCluster
from pykclient.types import ConsumerRecord, TopicPartition
from tests.support.mock_clock import MockClock


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


def collected(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """Return the data points of a collection by the name of their metric."""
    data = reader.get_metrics_data()
    return {
        metric.name: [
            (dict(point.attributes or {}), point.value)
            for point in metric.data.data_points
            if isinstance(point, NumberDataPoint)
        ]
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_metrics_are_observed(cluster: EmbeddedCluster) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    clock = MockClock()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="observed") as producer:
        KafkaInstruments([producer], provider.get_meter("test"), clock)
        for _ in range(3):
            producer.send("traced", b"x")
        producer.flush()
        clock.advance(1_000)
        first = collected(reader)
        assert first["kafka.producer.record_send_total"] == [({"client_id": "observed"}, 3)]
        assert first["kafka.clients"] == [({}, 1)]
        # A topic's metrics are new, so they are exported from a later collection on.
        deadline_s = time.monotonic() + 10
        while "kafka.producer_topic.record_send_total" not in (values := collected(reader)):
            assert time.monotonic() < deadline_s
        attributes = {"client_id": "observed", "topic": "traced"}
        assert values["kafka.producer_topic.record_send_total"] == [(attributes, 3)]
        assert "kafka.producer.reauthentication_latency_avg" not in values  # it has no value
    clock.advance(1_000)
    assert "kafka.producer.record_send_total" not in collected(reader)
    provider.shutdown()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(spans: InMemorySpanExporter) -> trace.Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider.get_tracer("test")


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {})[name]


def test_a_trace_goes_through_the_topic(
    cluster: EmbeddedCluster, spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    with (
        KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            interceptor_classes=[RecordTracingProducerInterceptor(tracer)],
        ) as producer,
        KafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            interceptor_classes=[TracingConsumerInterceptor(tracer)],
        ) as consumer,
    ):
        with tracer.start_as_current_span("checkout") as checkout:
            futures = [producer.send("orders", b"%d" % number, headers=[("app", b"1")]) for number in range(2)]
        offsets = [future.get(10).offset for future in futures]
        records: list[Any] = []
        while len(records) < 2:
            records += [record for of in consumer.poll(1_000).values() for record in of]
    sent = named(spans, "create orders")
    assert [attribute(span, "messaging.kafka.offset") for span in sent] == offsets
    assert {span.parent.span_id for span in sent if span.parent} == {checkout.get_span_context().span_id}
    assert all(span.kind is trace.SpanKind.PRODUCER for span in sent)
    assert [name for name, _ in records[0].headers] == ["app", "traceparent"]
    parent = trace.get_current_span(context_of(records[0].headers)).get_span_context()
    assert parent.span_id == sent[0].context.span_id
    received = named(spans, "receive orders")
    links = [link.context.span_id for span in received for link in span.links]
    assert links == [span.context.span_id for span in sent]
    assert sum(attribute(span, "messaging.batch.message_count") for span in received) == 2
    with pytest.raises(ValueError, match="no such order"), processing(records[1], tracer):
        raise ValueError("no such order")
    (processed,) = named(spans, "process orders")
    assert processed.parent is not None
    assert processed.parent.span_id == sent[1].context.span_id
    assert attribute(processed, "messaging.kafka.offset") == offsets[1]
    assert processed.status.status_code is trace.StatusCode.ERROR


def records_of(cluster: EmbeddedCluster, topic: str, count: int) -> list[Any]:
    records: list[Any] = []
    with KafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    ) as consumer:
        for record in consumer:
            records.append(record)
            if len(records) == count:
                break
    return records


@pytest.mark.parametrize("python", [False, True])
def test_by_default_a_batch_has_one_span_and_its_records_the_context_they_are_sent_in(
    cluster: EmbeddedCluster, spans: InMemorySpanExporter, tracer: trace.Tracer, python: bool
) -> None:
    topic = f"carried-{python}"
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        linger_ms=60_000,
        client_id="p",
        interceptor_classes=[TracingProducerInterceptor(tracer)],
    ) as producer:
        send: Any = partial(python_form(SendState).send, producer) if python else producer.send
        with tracer.start_as_current_span("first") as first:
            futures = [send(topic, b"%d" % number, partition=0) for number in range(200)]
            send(topic, b"own", headers=[("app", b"1")], partition=0)
        with tracer.start_as_current_span("second") as second:
            send(topic, b"x", partition=0)
        send(topic, b"outside", partition=0)
        begun_ns = futures[0].timestamp_ms * 1_000_000
        producer.flush(20)
    records = records_of(cluster, topic, 203)
    carried = [trace.get_current_span(context_of(record.headers)).get_span_context().span_id for record in records]
    of_first, of_second = first.get_span_context().span_id, second.get_span_context().span_id
    assert carried == [of_first] * 201 + [of_second, 0]
    assert [name for name, _ in records[200].headers] == ["app", "traceparent"]
    (sent,) = named(spans, f"send {topic}")
    assert len(spans.get_finished_spans()) == 3
    assert sent.parent is not None
    assert sent.parent.span_id == of_first
    assert [link.context.span_id for link in sent.links] == [of_first, of_second]
    assert sent.kind is trace.SpanKind.PRODUCER
    assert attribute(sent, "messaging.batch.message_count") == 203
    assert attribute(sent, "messaging.kafka.offset") == 0
    assert sent.start_time is not None
    assert abs(sent.start_time - begun_ns) < 5_000_000_000


def test_records_sent_outside_of_any_span_are_in_a_trace_of_their_batch(
    cluster: EmbeddedCluster, spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, interceptor_classes=[TracingProducerInterceptor(tracer)]
    ) as producer:
        producer.send("outside", b"x").get(10)
        cluster.faults.answer("Produce", errors.InvalidRecordError)
        with pytest.raises(errors.InvalidRecordError):
            producer.send("outside", b"x", partition=0).get(10)
    sent, failed = named(spans, "send outside")
    assert sent.parent is None
    assert not sent.links
    assert failed.status.status_code is trace.StatusCode.ERROR


def test_a_poll_has_links_to_all_spans_that_its_records_carry(
    spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    def traceparent(span: int) -> tuple[tuple[str, bytes], ...]:
        return (("app", b"%d" % span), ("Traceparent", b"00-%032x-%016x-01" % (7, span)))

    carried = [(), traceparent(1), traceparent(1), (("traceparent", b"broken"),), traceparent(2), (), traceparent(1)]
    records = [
        ConsumerRecord("polled", 0, None, offset, 0, 0, None, b"x", headers, None, -1, 1)
        for offset, headers in enumerate(carried)
    ]
    TracingConsumerInterceptor(tracer).on_consume({TopicPartition("polled", 0): records})
    (received,) = named(spans, "receive polled")
    assert [link.context.span_id for link in received.links] == [1, 2]


def test_batches_without_a_sampled_record_have_no_span(cluster: EmbeddedCluster, spans: InMemorySpanExporter) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = provider.get_tracer("test")
    own = [("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-00")]
    with (
        KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, interceptor_classes=[TracingProducerInterceptor(tracer)]
        ) as producer,
        tracer.start_as_current_span("not sampled"),
    ):
        producer.send("quiet", b"x").get(10)
        producer.send("quiet", b"x", headers=own).get(10)
    records = records_of(cluster, "quiet", 2)
    assert not int(records[0].headers[0][1][-2:], 16) & trace.TraceFlags.SAMPLED
    assert list(records[1].headers) == own
    assert not spans.get_finished_spans()


def test_a_batch_has_a_span_with_links_to_its_records(
    cluster: EmbeddedCluster, spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    interceptor = RecordTracingProducerInterceptor(tracer)
    interceptor.configure({"client.id": "p"})
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000, interceptor_classes=[interceptor]
    ) as producer:
        futures = [producer.send("batches", b"x", partition=0) for _ in range(3)]
        producer.flush(20)
        first = futures[0].get(10).offset
        cluster.faults.answer("Produce", errors.InvalidRecordError)
        failed = producer.send("batches", b"x", partition=0)
        producer.flush(20)
        assert isinstance(failed.exception, errors.InvalidRecordError)
    created = [span.context.span_id for span in named(spans, "create batches")]
    written, refused = named(spans, "send batches")
    assert [link.context.span_id for link in written.links] == created[:3]
    assert [link.context.span_id for link in refused.links] == created[3:]
    assert written.kind is trace.SpanKind.CLIENT
    assert written.parent is not None
    assert written.parent.span_id == created[0]
    assert dict(written.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": "batches",
        "messaging.destination.partition.id": "0",
        "messaging.client.id": "p",
        "messaging.batch.message_count": 3,
        "messaging.kafka.offset": first,
    }
    assert attribute(refused, "error.type") == "InvalidRecordError"
    assert refused.status.status_code is trace.StatusCode.ERROR


def test_a_failed_record_fails_its_span(
    cluster: EmbeddedCluster, spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, interceptor_classes=[RecordTracingProducerInterceptor(tracer)]
    ) as producer:
        future = producer.send("orders", b"x" * 2_000_000)
        with pytest.raises(errors.RecordTooLargeError):
            future.get(10)
    (span,) = named(spans, "create orders")
    assert not named(spans, "send orders")  # it has reached no batch
    assert span.status.status_code is trace.StatusCode.ERROR
    assert attribute(span, "error.type") == "RecordTooLargeError"


def test_records_that_are_not_sampled_pass_the_context_on(cluster: EmbeddedCluster) -> None:
    interceptor = RecordTracingProducerInterceptor(TracerProvider(sampler=ALWAYS_OFF).get_tracer("test"))
    servers = cluster.bootstrap_servers
    own = [("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01")]
    with (
        KafkaProducer(bootstrap_servers=servers, interceptor_classes=[interceptor]) as producer,
        KafkaConsumer("unsampled", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        producer.send("unsampled", b"x").get(10)
        producer.send("unsampled", b"x", headers=own).get(10)
        records: list[Any] = []
        while len(records) < 2:
            records += [record for of in consumer.poll(1_000).values() for record in of]
    flags = int(records[0].headers[0][1][-2:], 16)
    assert not flags & trace.TraceFlags.SAMPLED
    assert list(records[1].headers) == own


def test_interceptors_made_from_their_names_know_the_client(cluster: EmbeddedCluster) -> None:
    name = f"{TracingConsumerInterceptor.__module__}.TracingConsumerInterceptor"
    with KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, client_id="c", group_id="g", interceptor_classes=[name]
    ):
        pass
