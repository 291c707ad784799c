"""Interceptors that see no single records: headers that many records share, and the outcome of batches."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest

from pykclient.implementation import python_form
from pykclient.producer.interceptors import AcknowledgedBatch, ProducerInterceptor
from pykclient.producer.send import SendState
from pykclient.types import Header, ProducerRecord
from tests.producer.harness import TOPIC
from tests.producer.test_kafka_producer import Make, make

__all__ = ["make"]


class Common(ProducerInterceptor):
    """Adds a header, and keeps the batches."""

    def __init__(self, *headers: Header) -> None:
        self.headers = headers
        self.batches: list[AcknowledgedBatch] = []

    def common_headers(self) -> tuple[Header, ...]:
        return self.headers

    def on_batch_acknowledgement(self, batch: AcknowledgedBatch) -> None:
        self.batches.append(batch)


@pytest.mark.parametrize("python", [False, True])
def test_records_get_common_headers(make: Make, python: bool) -> None:
    first, second = Common(("trace", b"1"), ("baggage", b"b")), Common(("tenant", b"t"))
    producer, brokers = make(interceptor_classes=[first, second], linger_ms=60_000)
    send: Any = partial(python_form(SendState).send, producer) if python else producer.send
    heard: list[int] = []
    common = (*first.headers, *second.headers)
    own = ("app", b"x")
    send(TOPIC, b"0", partition=0)
    send(TOPIC, b"1", partition=0)
    send(TOPIC, b"2", partition=0, headers=[own])
    send(TOPIC, b"3", partition=0, headers=[("Trace", b"9")])
    send(TOPIC, b"4", partition=0, on_delivery=lambda _error, metadata: heard.append(metadata.offset))
    first.headers = (("trace", b"2"),)
    send(ProducerRecord(TOPIC, b"5", partition=0))
    send(TOPIC, b"6", partition=0, headers=())
    producer.flush(10)
    later = (*first.headers, *second.headers)
    expected = [common, common, (own, *common), (("Trace", b"9"),), common, later, later]
    assert [tuple(record.headers) for _, record in brokers.received] == expected
    (batch,) = first.batches
    assert second.batches == [batch]
    assert batch.error is None
    assert (batch.record_count, batch.metadata.partition) == (7, 0)
    assert list(batch.headers) == [common, (own, *common), (("Trace", b"9"),), common, later]
    assert batch.age_ms >= 0
    assert heard == [batch.metadata.offset + 4]


def test_on_send_sees_records_without_common_headers(make: Make) -> None:
    seen: list[Any] = []

    class Sees(ProducerInterceptor):
        def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            seen.append(tuple(record.headers))
            return record

    common = Common(("trace", b"1"))
    producer, brokers = make(interceptor_classes=[common, Sees()], linger_ms=60_000)
    for _ in range(2):
        producer.send(TOPIC, b"v", partition=0)
    producer.flush(10)
    assert seen == [(), ()]
    assert [tuple(record.headers) for _, record in brokers.received] == [common.headers] * 2
    assert list(common.batches[0].headers) == [common.headers] * 2


def test_invalid_common_headers_are_logged_once_and_ignored(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Common):
        def common_headers(self) -> Any:
            return [("no", b"tuple")]

    producer, brokers = make(interceptor_classes=[Wrong(), Common(("trace", b"1"))])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            producer.send(TOPIC, b"v").get(10)
    assert [tuple(record.headers) for _, record in brokers.received] == [(("trace", b"1"),)] * 3
    assert [entry.message.partition("] ")[2] for entry in caplog.records] == [
        "Wrong.common_headers raised; further errors of it are not logged"
    ]
