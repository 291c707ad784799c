"""The clients' metrics and traces for OpenTelemetry.

``KafkaInstruments`` exports the metrics. ``TracingProducerInterceptor`` and ``TracingConsumerInterceptor`` carry the
trace context through the headers of records, and make spans of batches and polls.
"""

from __future__ import annotations

import _thread
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

try:
    from opentelemetry import metrics, propagate, trace
except ImportError as error:
    raise ImportError("this needs opentelemetry-api: pip install pykclient[opentelemetry]") from error

from opentelemetry.context import Context, get_current
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.propagators.textmap import Getter, Setter

from pykclient.clock import SYSTEM_CLOCK, Clock
from pykclient.consumer.values import ConsumerInterceptor
from pykclient.explanation import open_clients
from pykclient.exporters.samples import Families, Family, MeasuredClient, samples
from pykclient.producer.interceptors import AcknowledgedBatch, ProducerInterceptor
from pykclient.types import ConsumerRecord, Header, Headers, ProducerRecord, RecordMetadata, TopicPartition
from pykclient.version import __version__

_SCOPE: Final = "pykclient"
#: The callbacks of one collection share the values that the first of them has read.
_SHARED_FOR_MS: Final = 500
#: The most links of a span, OpenTelemetry's own default.
_MOST_LINKS: Final = 128
#: The most records whose spans wait for an acknowledgement. Further records get no span.
_MOST_SPANS: Final = 100_000


class KafkaInstruments:
    """Exports the metrics of producers and consumers as observable instruments of OpenTelemetry.

        from pykclient.exporters.opentelemetry import KafkaInstruments

        KafkaInstruments()

    Without ``clients`` it observes all open clients of the process, also those that are created later. A metric of
    Kafka keeps its name, after ``kafka`` and its group: ``record-send-total`` of ``producer-metrics`` is
    ``kafka.producer.record_send_total``. Tags become attributes. Metrics that appear later, such as those of a topic,
    are exported from the collection after the first that sees them. The client does no work for this between
    collections.

    Thread: any.
    """

    def __init__(
        self, clients: Iterable[MeasuredClient] | None = None, meter: Meter | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._clients = None if clients is None else tuple(clients)
        self._meter = metrics.get_meter(_SCOPE, __version__) if meter is None else meter
        self._clock = clock
        self._families = Families()
        self._lock = threading.Lock()  # guards: _instruments, _values and _read_ms
        self._instruments: set[Family] = set()
        self._values: dict[Family, list[Observation]] = {}
        self._read_ms: int | None = None
        self._meter.create_observable_up_down_counter(
            "kafka.clients", [self._count], description="Open producers and consumers"
        )
        self._create(self._read().keys())

    def _count(self, _options: CallbackOptions) -> Iterator[Observation]:
        new = self._read().keys() - self._instruments
        if new:
            # The SDK holds a lock in this callback that it also takes to register an instrument.
            _thread.start_new_thread(self._create, (new,))
        yield Observation(len(open_clients() if self._clients is None else self._clients))

    def _create(self, families: Iterable[Family]) -> None:
        for family in families:
            with self._lock:
                if family in self._instruments:
                    continue
                self._instruments.add(family)
            create = self._meter.create_observable_counter if family.is_counter else self._meter.create_observable_gauge
            create(".".join(family.words), [self._observer(family)], description=family.description)

    def _observer(self, family: Family) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _options: self._read().get(family, ())

    def _read(self) -> dict[Family, list[Observation]]:
        """Return the present values, or those of a moment ago. Metrics without values are left out."""
        now_ms = self._clock.now_ms()
        with self._lock:
            if self._read_ms is not None and now_ms - self._read_ms < _SHARED_FOR_MS:
                return self._values
        values: dict[Family, list[Observation]] = {}
        for sample in samples(self._families, self._clients):
            if not math.isnan(sample.value):
                attributes = dict(zip(sample.family.labels, sample.values, strict=True))
                values.setdefault(sample.family, []).append(Observation(sample.value, attributes))
        with self._lock:
            self._values, self._read_ms = values, now_ms
        return values


class _HeaderSetter(Setter[list[Header]]):
    def set(self, carrier: list[Header], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


class _HeaderGetter(Getter[Iterable[Header]]):
    def get(self, carrier: Iterable[Header], key: str) -> list[str] | None:
        found = [value.decode("utf-8", "replace") for name, value in carrier if name.lower() == key and value]
        return found or None

    def keys(self, carrier: Iterable[Header]) -> list[str]:
        return [name for name, _ in carrier]


_SETTER = _HeaderSetter()
_GETTER = _HeaderGetter()


def context_of(headers: Headers) -> Context:
    """Return the trace context in a record's headers, for use as the parent of processing spans."""
    return propagate.extract(headers, getter=_GETTER)


def _contexts(headers_of_records: Iterable[Headers]) -> Iterator[trace.SpanContext]:
    """Yield the trace contexts of records. Adjacent records with the same one are read once: reading takes 10 µs."""
    fields = propagate.get_global_textmap().fields
    last: list[Header] = []
    for headers in headers_of_records:
        if not headers:
            continue
        carried = [header for header in headers if header[0].lower() in fields]
        if not carried or carried == last:
            continue
        last = carried
        context = trace.get_current_span(context_of(carried)).get_span_context()
        if context.is_valid:
            yield context


class TracingProducerInterceptor(ProducerInterceptor):
    """Puts the current trace context into each record's headers, and creates a span for each batch.

        KafkaProducer(interceptor_classes=[TracingProducerInterceptor()])

    A record carries on the trace in which it is sent. Its headers are made once for all records that are sent within
    the same span. The span ``send orders`` of a batch lasts from its first record to the acknowledgement, with all
    retries. It holds the number of records and the first offset, or the error. It is a child of the first sampled span
    that sent any of the records, and has links to the others, at most 128. A batch has no span if none of these is
    sampled; if all its records were sent outside of any span, its span begins a trace. Headers that a record has
    already are kept, and so is a trace context among them.

    Thread: any.
    """

    _kind_of_batches: ClassVar = trace.SpanKind.PRODUCER

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = trace.get_tracer(_SCOPE, __version__) if tracer is None else tracer
        self._client: dict[str, str] = {}  # the attribute with the client's id, if it is known
        self._last: tuple[Context | None, tuple[Header, ...]] = (None, ())  # a context, and its headers

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Read the client's id from its configuration."""
        client_id = configs.get("client.id")
        self._client = {"messaging.client.id": client_id} if client_id else {}

    def common_headers(self) -> tuple[Header, ...]:
        """Return the headers of the present context."""
        context = get_current()
        of, headers = self._last
        if context is not of:
            carrier: list[Header] = []
            propagate.inject(carrier, context, setter=_SETTER)
            headers = tuple(carrier)
            self._last = context, headers
        return headers

    def on_batch_acknowledgement(self, batch: AcknowledgedBatch) -> None:
        """Create the span of a batch, unless the traces of its records are not sampled."""
        links = _links(context for context in _contexts(batch.headers) if context.trace_flags.sampled)
        if not links and next(_contexts(batch.headers), None) is not None:
            return
        parent = Context()
        if links:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(links[0].context), parent)
        span = self._tracer.start_span(
            f"send {batch.metadata.topic}",
            parent,
            kind=self._kind_of_batches,
            links=links,
            start_time=int((SYSTEM_CLOCK.wall_ms() - batch.age_ms) * 1_000_000),
            attributes={
                **_about("send", batch.metadata.topic),
                **self._client,
                "messaging.batch.message_count": batch.record_count,
            },
        )
        _end(span, batch.metadata, batch.error)


class RecordTracingProducerInterceptor(TracingProducerInterceptor):
    """A ``TracingProducerInterceptor`` that also creates a span for each record, at a much higher cost.

    The span ``create orders`` of a record lasts from ``send`` to the acknowledgement, and holds the partition and the
    offset, or the error. The record's headers carry this span's context, so each record is told apart in a trace, and
    the span of a batch has links to those of its sampled records. A record that is not sampled has no span.

    Thread: any.
    """

    _kind_of_batches: ClassVar = trace.SpanKind.CLIENT

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        super().__init__(tracer)
        self._spans: dict[bytes, trace.Span] = {}  # of records in flight, by the trace context in their headers

    def common_headers(self) -> tuple[Header, ...]:
        """Return no headers: each record has its own."""
        return ()

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Start the record's span, and return the record with its trace context in the headers."""
        headers = list(record.headers)
        if propagate.get_global_textmap().fields & {name.lower() for name, _ in headers}:
            return record
        span = self._tracer.start_span(
            f"create {record.topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes={**_about("create", record.topic), **self._client},
        )
        propagate.inject(headers, trace.set_span_in_context(span), setter=_SETTER)
        key = _key_of(headers)
        if span.is_recording() and key is not None and len(self._spans) < _MOST_SPANS:
            self._spans[key] = span
        return ProducerRecord(record.topic, record.value, record.key, headers, record.partition, record.timestamp_ms)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Headers) -> None:
        """End the span of the record."""
        key = _key_of(headers)
        span = None if key is None else self._spans.pop(key, None)
        if span is not None:
            _end(span, metadata, error)

    def close(self) -> None:
        """End the spans of records that were neither acknowledged nor failed."""
        while self._spans:
            _, span = self._spans.popitem()
            span.end()


class TracingConsumerInterceptor(ConsumerInterceptor):
    """Creates a span per partition of each poll, with links to the traces that produced the records.

        KafkaConsumer("orders", interceptor_classes=[TracingConsumerInterceptor()])

    To continue the trace of a single record, process it within ``context_of(record.headers)``.

    Thread: application.
    """

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = trace.get_tracer(_SCOPE, __version__) if tracer is None else tracer
        self._attributes: dict[str, str] = {}

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Read the ids of the client and its group from the configuration."""
        ids = {"messaging.client.id": "client.id", "messaging.consumer.group.name": "group.id"}
        self._attributes = {name: configs[key] for name, key in ids.items() if configs.get(key)}

    def on_consume(self, records: Mapping[TopicPartition, list[Any]]) -> Mapping[TopicPartition, list[Any]]:
        """Create the spans of the records, and return the records unchanged."""
        for (topic, partition), of_partition in records.items():
            self._tracer.start_span(
                f"receive {topic}",
                kind=trace.SpanKind.CONSUMER,
                links=_links(_contexts([record.headers for record in of_partition])),
                attributes={
                    **_about("receive", topic, "poll"),
                    **_place(partition, of_partition[0].offset),
                    "messaging.batch.message_count": len(of_partition),
                    **self._attributes,
                },
            ).end()
        return records


@contextmanager
def processing(record: ConsumerRecord[Any, Any], tracer: trace.Tracer | None = None) -> Iterator[trace.Span]:
    """Process a record within a span ``process orders``, which continues the trace that the record's headers carry.

        for record in consumer:
            with processing(record):
                ...

    An exception of the block fails the span.
    """
    chosen = trace.get_tracer(_SCOPE, __version__) if tracer is None else tracer
    with chosen.start_as_current_span(
        f"process {record.topic}",
        context_of(record.headers),
        kind=trace.SpanKind.CONSUMER,
        attributes={**_about("process", record.topic), **_place(record.partition, record.offset)},
    ) as span:
        yield span


def _about(operation: str, topic: str, name: str | None = None) -> dict[str, str]:
    """Return attributes that all spans have: the type of the operation, its name if that differs, and the topic."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": operation,
        "messaging.operation.name": name or operation,
        "messaging.destination.name": topic,
    }


def _place(partition: int, offset: int) -> dict[str, str | int]:
    return {"messaging.destination.partition.id": str(partition), "messaging.kafka.offset": offset}


def _links(contexts: Iterable[trace.SpanContext]) -> list[trace.Link]:
    """Return links to different spans, as many as a span may have."""
    found: dict[int, trace.Link] = {}
    for context in contexts:
        found[context.span_id] = trace.Link(context)
        if len(found) == _MOST_LINKS:
            break
    return list(found.values())


def _end(span: trace.Span, metadata: RecordMetadata, error: Exception | None) -> None:
    """End the span of a record or a batch with its outcome."""
    if error is None:
        span.set_attributes(_place(metadata.partition, metadata.offset))
    else:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(trace.StatusCode.ERROR, str(error))
    span.end()


def _key_of(headers: Headers) -> bytes | None:
    """Return the trace context in the headers, which identifies the record's span."""
    for name, value in headers:
        if name == "traceparent" and value:
            return bytes(value)
    return None
