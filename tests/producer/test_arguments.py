"""Every public method of a producer and its futures checks all arguments before it does anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pykclient.clock import FOREVER_MS
from pykclient.errors import IllegalArgumentError, KafkaError
from pykclient.metrics import KafkaMetric, MetricName
from pykclient.producer.columns import BatchFuture
from pykclient.producer.future import FutureRecordMetadata, milliseconds, signed_milliseconds
from pykclient.producer.interceptors import ProducerInterceptor
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.producer.transactions.transactional_calls import PreparedTxnState
from pykclient.types import ConsumerGroupMetadata, ProducerRecord, TopicPartition
from tests.producer.harness import TOPIC
from tests.producer.test_kafka_producer import Make, make
from tests.support.odd_values import HOSTILE, Names, Number, Text

__all__ = ["make"]


METRIC = KafkaMetric(MetricName("orders-total", "shop", "", {}), lambda _config, _now_ms: 1)

#: Valid calls, by method.
PRODUCER_CALLS: dict[str, dict[str, Any]] = {
    "send": {
        "topic": TOPIC,
        "value": b"v",
        "key": b"k",
        "headers": [("a", b"b")],
        "partition": 1,
        "timestamp_ms": 5,
        "on_delivery": None,
    },
    "send_batch": {
        "topic": TOPIC,
        "data": [b"v"],
        "value": None,
        "key": [b"k"],
        "headers": [("a", b"b")],
        "timestamp": 5,
        "partition": 1,
    },
    "flush": {"timeout": 5},
    "partitions_for": {"topic": TOPIC},
    "bootstrap_connected": {},
    "max_usable_produce_magic": {"api_version": (2, 8)},
    "metrics": {"raw": False},
    "register_metric_for_subscription": {"metric": METRIC},
    "unregister_metric_from_subscription": {"metric": METRIC},
    "client_instance_id": {"timeout": 0},
    "explain": {},
    "init_transactions": {"timeout": 5, "keep_prepared_txn": False},
    "begin_transaction": {},
    "send_offsets_to_transaction": {"offsets": {}, "group_metadata": "g", "timeout": 5},
    "commit_transaction": {"timeout": 5},
    "abort_transaction": {"timeout": 5},
    "prepare_transaction": {"timeout": 5},
    "complete_transaction": {"prepared_state": PreparedTxnState(), "timeout": 5},
    "transaction": {},
    "close": {"timeout": 5, "keep_transaction": False},
}
#: Methods for the library itself.
INTERNAL = {"in_environment", "of_components", "refuse_after_fork"}

FUTURE_CALLS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("done", "succeeded", "failed", "retriable")},
    **{name: {"timeout": 5} for name in ("get", "result")},
    **{name: {"function": len} for name in ("add_callback", "add_errback", "add_both", "add_done_callback")},
}
BATCH_FUTURE_CALLS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("done", "succeeded", "failed", "offsets")},
    **{name: {"timeout": 5} for name in ("get", "result", "wait")},
    **{name: {"function": len} for name in ("add_callback", "add_errback", "add_done_callback")},
}


def methods_of(cls: type) -> set[str]:
    return {name for name, found in inspect.getmembers(cls, callable) if not name.startswith("_")}


def hostile_calls(calls: dict[str, dict[str, Any]], skip: str = "") -> list[tuple[str, dict[str, Any]]]:
    return [
        (method, {**valid, name: value})
        for method, valid in calls.items()
        if method != skip
        for name in valid
        for value in HOSTILE
    ]


def test_tables_cover_each_method_of_producer() -> None:
    assert methods_of(KafkaProducer) - INTERNAL == PRODUCER_CALLS.keys()
    assert methods_of(FutureRecordMetadata) - {"add_listener", "deliver", "locate"} == FUTURE_CALLS.keys()
    assert methods_of(BatchFuture) == BATCH_FUTURE_CALLS.keys()
    for cls, calls in (
        (KafkaProducer, PRODUCER_CALLS),
        (FutureRecordMetadata, FUTURE_CALLS),
        (BatchFuture, BATCH_FUTURE_CALLS),
    ):
        for method, valid in calls.items():
            names = list(inspect.signature(getattr(cls, method)).parameters)
            assert [name for name in names if name not in {"self", "args", "kwargs"}] == list(valid)


def outcome(call: Callable[..., Any], given: dict[str, Any]) -> str:
    """Make the call and return the name of its KafkaError, or "done"; any other error fails the test."""
    try:
        returned = call(**given)
        if isinstance(returned, (FutureRecordMetadata, BatchFuture)):
            returned.get(10)
    except KafkaError as error:
        return type(error).__name__
    return "done"


def check_state(producer: KafkaProducer[Any, Any]) -> None:
    accumulator = producer._accumulator
    assert not accumulator._flushes
    assert not producer._closed
    assert producer.send(TOPIC, b"after", partition=0).get(10).partition == 0


class Nothing(ProducerInterceptor):
    pass


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"key_serializer": lambda key: key, "value_serializer": lambda value: b"v"},
        {"interceptor_classes": [Nothing()]},
    ],
    ids=["plain", "serializers", "interceptors"],
)
def test_producer_refuses_hostile_arguments(make: Make, settings: dict[str, Any]) -> None:
    producer, _ = make(max_block_ms=5, **settings)
    pool = producer._accumulator._pool
    for method, given in hostile_calls(PRODUCER_CALLS, skip="close"):
        found = outcome(getattr(producer, method), given)
        assert found, (method, given)
        check_state(producer)
    producer.flush(10)
    assert pool.available_memory == pool.total_memory


def test_producer_refuses_hostile_offsets(make: Make) -> None:
    producer, _ = make(transactional_id="t", enable_idempotence=True, max_block_ms=0)
    tp = TopicPartition(TOPIC, 0)
    for value in HOSTILE:
        for offsets, group in (({tp: value}, "g"), ([value], "g"), (value, "g"), ({tp: 5}, value)):
            given = {"offsets": offsets, "group_metadata": group}
            assert outcome(producer.send_offsets_to_transaction, given) in {
                "IllegalArgumentError",
                "IllegalStateError",  # the arguments are fine, but there is no transaction
                "done",  # no offsets
            }
    with pytest.raises(IllegalArgumentError, match="must be an int from 0 on"):
        producer.send_offsets_to_transaction({tp: -1}, "g")
    with pytest.raises(IllegalArgumentError, match="no member id"):
        producer.send_offsets_to_transaction({tp: 1}, ConsumerGroupMetadata("g", 5))
    with pytest.raises(IllegalArgumentError, match=r"has no group\.id"):
        producer.send_offsets_to_transaction({tp: 1}, ConsumerGroupMetadata())


def test_producer_refuses_hostile_record_fields(make: Make) -> None:
    """The fields of a ProducerRecord, and arguments next to it, are checked as well."""
    producer, _ = make(max_block_ms=5)
    valid = {name: value for name, value in PRODUCER_CALLS["send"].items() if name != "on_delivery"}
    for _, given in hostile_calls({"send": valid}):
        outcome(producer.send, {"topic": ProducerRecord(**given)})
        check_state(producer)
    for name in valid.keys() - {"topic"}:
        with pytest.raises(IllegalArgumentError, match="from the ProducerRecord"):
            producer.send(ProducerRecord(TOPIC), **{name: valid[name]})
    delivered: list[Any] = []
    producer.send(ProducerRecord(TOPIC), on_delivery=lambda error, metadata: delivered.append(error)).get(10)
    assert delivered == [None]


def test_close_refuses_hostile_timeouts(make: Make) -> None:
    producer, _ = make()
    refused = []
    for value in HOSTILE:
        try:
            milliseconds(value)
        except IllegalArgumentError:
            refused.append(value)
            with pytest.raises(IllegalArgumentError, match="timeout"):
                producer.close(value)
            check_state(producer)
    assert len(refused) > 50
    producer.close(np.float64("inf"))
    with pytest.raises(KafkaError):
        producer.send(TOPIC, b"v")


@pytest.mark.parametrize("is_batch", [False, True])
def test_futures_refuse_hostile_arguments(make: Make, is_batch: bool) -> None:
    producer, brokers = make()

    def new_future() -> Any:
        return producer.send_batch(TOPIC, [b"v"]) if is_batch else producer.send(TOPIC, b"v")

    calls = BATCH_FUTURE_CALLS if is_batch else FUTURE_CALLS
    known = new_future()
    known.get(10)
    brokers.answering = False
    pending = new_future()
    refused = 0
    for method, given in hostile_calls(calls):
        if outcome(getattr(known, method), given) == "IllegalArgumentError":
            refused += 1
            assert outcome(getattr(pending, method), given) == "IllegalArgumentError"
            assert not pending.done()
    assert refused > 200
    brokers.answering = True
    assert pending.get(np.int64(10))
    check_state(producer)


def test_argument_errors_name_argument_and_expected_value(make: Make) -> None:
    producer, _ = make(max_block_ms=5)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"partition": 4 / 2}, "partition is 2.0; it must be a whole number, or None"),
        ({"partition": True}, "partition is True"),
        ({"partition": "1"}, "partition is '1'"),
        ({"partition": 10**5000}, "partition = an int of 16610 bits"),
        ({"timestamp_ms": 1.5}, "timestamp_ms is 1.5; it must be a whole number of milliseconds since 1970"),
        ({"headers": {"a": b"b"}}, "headers must be a list of pairs"),
        ({"headers": "a"}, "headers is 'a'"),
        ({"on_delivery": 5}, "on_delivery is 5; it must be something to call"),
        ({"topic": b"orders"}, "topic is bytes; a topic is a str"),
    ]
    for given, text in cases:
        with pytest.raises(IllegalArgumentError, match=text.replace("(", r"\(")):
            producer.send(**{"topic": TOPIC, "value": b"v", **given})
    for timeout, text in (("soon", "timeout is 'soon'; it must be a number of seconds"), (-1, "must not be negative")):
        with pytest.raises(IllegalArgumentError, match=text):
            producer.flush(timeout)  # type: ignore[arg-type]


def test_integers_of_any_class_are_accepted(make: Make) -> None:
    producer, _ = make()
    numbers: list[Any] = [1, np.int64(1), np.uint8(1), Number.ONE, np.array(1)]
    for one in numbers:
        metadata = producer.send(TOPIC, b"v", partition=one, timestamp_ms=one).get(10)
        assert (metadata.partition, metadata.timestamp) == (1, 1)
        assert type(metadata.partition) is type(metadata.timestamp) is int
        offsets = producer.send_batch(TOPIC, [b"v"], partition=one, timestamp=[one]).get(10).base_offsets
        assert [tp.partition for tp in offsets] == [1]


def test_enum_members_are_accepted_as_topics(make: Make) -> None:
    producer, _ = make()
    for topic in (Names.ORDERS, Text(TOPIC)):
        assert type(producer.send(topic, b"v").get(10).topic) is str
        assert producer.send_batch(topic, [b"v"]).get(10).topic == TOPIC


def test_bad_arguments_reach_neither_serializers_nor_interceptors(make: Make) -> None:
    seen: list[Any] = []

    class Sees(ProducerInterceptor):
        def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            seen.append(record)
            return record

    for settings in ({}, {"interceptor_classes": [Sees()]}):
        producer, _ = make(value_serializer=seen.append, max_block_ms=5, **settings)
        producer.send(TOPIC, "v", partition=0).get(10)
        seen.clear()
        for given in ({"partition": 1.0}, {"timestamp_ms": -1}, {"headers": [("a", 1)]}, {"on_delivery": 5}):
            with pytest.raises(IllegalArgumentError):
                producer.send(TOPIC, "v", **given)
        assert seen == []


def test_timeouts_are_converted_to_milliseconds() -> None:
    for given, timeout_ms in (
        (None, FOREVER_MS),
        (float("inf"), FOREVER_MS),
        (1e300, FOREVER_MS),
        (10**5000, FOREVER_MS),
        (np.float32(0.5), 500),
        (np.int64(2), 2000),
        (Fraction(1, 4), 250),
        (Decimal("0.25"), 250),
        (0, 0),
        (-0.0, 0),
    ):
        assert milliseconds(given) == timeout_ms
    assert signed_milliseconds(-0.0001) < 0


def test_interceptor_returning_none_is_logged_and_ignored(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    class Forgets(ProducerInterceptor):
        def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
            return None  # type: ignore[return-value]

    producer, _ = make(interceptor_classes=[Forgets()])
    for _ in range(2):
        assert producer.send(TOPIC, b"v").get(10).topic == TOPIC
    (logged,) = caplog.records
    assert logged.exc_info is not None
    assert "on_send returned NoneType; it must return a ProducerRecord" in str(logged.exc_info[1])


@pytest.mark.parametrize("chosen", [1.0, "1", True, -1, 2, 1 << 70, np.bool_(True), []])
def test_invalid_choice_of_partitioner_is_refused(make: Make, chosen: Any) -> None:
    producer, _ = make(partitioner=lambda key, everything, available: chosen)
    with pytest.raises(IllegalArgumentError, match="CallablePartitioner chose"):
        producer.send(TOPIC, b"v")
    with pytest.raises(IllegalArgumentError, match="CallablePartitioner chose"):
        producer.send_batch(TOPIC, [b"v"])
    check_state(producer)


def test_partitioner_may_return_numpy_integer(make: Make) -> None:
    producer, _ = make(partitioner=lambda key, everything, available: np.int64(1))
    metadata = producer.send(TOPIC, b"v").get(10)
    assert (metadata.partition, type(metadata.partition)) == (1, int)
    assert list(producer.send_batch(TOPIC, [b"v"]).get(10).base_offsets) == [metadata.topic_partition]
