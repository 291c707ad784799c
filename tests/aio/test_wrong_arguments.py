"""The producer, its batches and the share consumer for asyncio refuse arguments of the wrong kind before they act."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import AcknowledgeType, ConsumerRecord
from pykclient.aio import AIOKafkaProducer, AIOKafkaShareConsumer
from pykclient.errors import IllegalArgumentError, IllegalStateError, InvalidTopicError
from pykclient.metrics import KafkaMetric, MetricName
from pykclient.producer.transactions.transactional_calls import PreparedTxnState
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.aio.loops import run
from tests.support.odd_calls import Call, Refusals, call_of, check_that_none_is_left_out, odd_calls
from tests.support.odd_values import HOSTILE

pytestmark = pytest.mark.filterwarnings(
    "ignore:a consumer.s timeouts are in milliseconds", "ignore:Conversion of an array"
)

METRIC = KafkaMetric(MetricName("orders-total", "shop", "", {}), lambda _config, _now_ms: 1)
METRICS: dict[str, dict[str, Any]] = {
    "metrics": {"raw": False},
    "register_metric_for_subscription": {"metric": METRIC},
    "unregister_metric_from_subscription": {"metric": METRIC},
}
ODD = [*HOSTILE, {"password": b"secret"}, [5, b"secret"], [b"secret"], b"secret"]
RECORD = {
    "topic": "orders",
    "value": b"v",
    "key": b"k",
    "partition": 1,
    "timestamp_ms": 5,
    "headers": [("a", b"b")],
}
PRODUCER_CALLS: dict[str, dict[str, Any]] = {
    "start": {"keep_prepared_txn": False},
    "send": RECORD,
    "send_and_wait": RECORD,
    "send_columns": {
        "topic": "orders",
        "data": [b"v"],
        "value": None,
        "key": [b"k"],
        "headers": [("a", b"b")],
        "timestamp": 5,
        "partition": 1,
    },
    "send_batch": {"batch": None, "topic": "orders", "partition": 1},
    "client_instance_id": {"timeout": 0},
    "partitions_for": {"topic": "orders"},
    **{
        f"{name}_transaction{'s' * (name == 'init')}": {"timeout": 5} for name in ("abort", "commit", "prepare", "init")
    },
    "complete_transaction": {"prepared_state": PreparedTxnState(), "timeout": 5},
    "send_offsets_to_transaction": {"offsets": {}, "group_id": "g", "timeout": 5},
    "stop": {"timeout": 5, "keep_transaction": False},
    **{name: {} for name in ("begin_transaction", "transaction", "bootstrap_connected", "create_batch", "explain")},
    "flush": {},
    **METRICS,
}
SHARE_CALLS: dict[str, dict[str, Any]] = {
    "subscribe": {"topics": ["orders"]},
    **{name: {"timeout_ms": 0} for name in ("poll", "getmany")},
    "poll_arrow": {"timeout_ms": 0, "columns": ["key"], "key": None, "value": None},
    "commit_sync": {"timeout_ms": 5},
    "set_acknowledgement_commit_callback": {"callback": len},
    "acknowledge": {"args": 5},
    "client_instance_id": {"timeout_ms": 5},
    "stop": {"timeout": 5},
    **{
        name: {}
        for name in (
            *("start", "unsubscribe", "subscription", "getone", "commit_async", "acquisition_lock_timeout_ms"),
            "explain",
        )
    },
    **METRICS,
}


@pytest.mark.parametrize(("cls", "calls"), [(AIOKafkaProducer, PRODUCER_CALLS), (AIOKafkaShareConsumer, SHARE_CALLS)])
def test_every_argument_is_tried(cls: Any, calls: dict[str, dict[str, Any]]) -> None:
    check_that_none_is_left_out(cls, calls, {"in_environment"})


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic("orders", partitions=2)
        yield running


async def outcome(called: Any) -> None:
    """Await a call; cancel it if it waits, as its arguments are all right then."""
    if not inspect.isawaitable(called):
        return
    task = asyncio.ensure_future(called)
    await asyncio.wait([task], timeout=0.02)
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled() and isinstance(future := task.result(), asyncio.Future):
        future.add_done_callback(lambda done: done.cancelled() or done.exception())


@pytest.mark.parametrize("settings", [{}, {"transactional_id": "odd"}, {"key_serializer": lambda key: key}])
def test_producer_survives_wrong_arguments(cluster: EmbeddedCluster, settings: dict[str, Any]) -> None:
    async def main() -> int:
        refusals = Refusals()
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
            if "transactional_id" in settings:
                await producer.begin_transaction()
            for method, call in odd_calls(PRODUCER_CALLS, ODD, skip="stop"):
                with refusals.counted():
                    called = call(producer)
                    if method == "transaction" or not inspect.isawaitable(called):
                        continue
                    await outcome(called)
            for odd in ODD:
                for name, given in (("topic", "orders"), ("partition", 1)):
                    batch = producer.create_batch()
                    batch.append(timestamp=None, key=None, value=b"v")
                    with refusals.counted():
                        await outcome(producer.send_batch(batch, **{"topic": "orders", "partition": 1, name: odd}))
                    assert batch.record_count() == 1, given
                with pytest.raises(IllegalArgumentError):
                    await producer.stop([odd])  # type: ignore[arg-type]
            if "transactional_id" in settings:
                with contextlib.suppress(IllegalStateError):  # an odd call with a valid timeout has ended it
                    await producer.abort_transaction()
                await producer.begin_transaction()
            assert (await producer.send_and_wait("orders", b"last", partition=0)) is not None
            if "transactional_id" in settings:
                await producer.commit_transaction()
        return refusals.count

    assert run(main()) > 2000
    assert b"last" in [record.value for record in cluster.log(TopicPartition("orders", 0))]


def test_invalid_topic_name_does_not_disturb_other_sends(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            with pytest.raises(InvalidTopicError):
                await producer.send("orders\ud800", b"v")  # no request could name it
            assert (await producer.send_and_wait("orders", b"v")) is not None

    run(main())


def test_batch_survives_wrong_arguments(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        refusals = Refusals()
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            batch = producer.create_batch()
            appended = 0
            valid: dict[str, Any] = {"timestamp": 5, "key": b"k", "value": b"v", "headers": [("a", b"b")]}
            for name in valid:
                for odd in ODD:
                    with refusals.counted():
                        assert batch.append(**{**valid, name: odd}) is not None
                        appended += 1
            assert batch.record_count() == appended
            assert refusals.count > 150
            metadata = await (await producer.send_batch(batch, "orders", partition=1))
            assert metadata is not None
            assert len(cluster.log(TopicPartition("orders", 1), from_offset=metadata.offset)) == appended

    run(main())


def test_share_consumer_survives_wrong_arguments(cluster: EmbeddedCluster) -> None:
    record: Any = ConsumerRecord("orders", 0, None, 0, 0, 0, None, b"v", ())
    place: list[Any] = ["orders", 0, 0, AcknowledgeType.ACCEPT]
    calls: list[Call] = [call for _, call in odd_calls({**SHARE_CALLS, "acknowledge": {}}, ODD, skip="stop")]
    for odd in ODD:
        calls += [call_of("acknowledge", odd), call_of("acknowledge", record, odd)]
        calls += [call_of("acknowledge", *place[:index], odd, *place[index + 1 :]) for index in range(4)]

    async def main() -> int:
        refusals = Refusals()
        async with AIOKafkaShareConsumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id="odd", share_acknowledgement_mode="explicit"
        ) as consumer:
            for call in calls:
                with refusals.counted():
                    await outcome(call(consumer))
            for odd in ODD:
                with pytest.raises(IllegalArgumentError):
                    await consumer.stop([odd])  # type: ignore[arg-type]
            consumer.subscribe(["orders"])
            assert consumer.subscription() == {"orders"}
        return refusals.count

    assert run(main()) > 1000
