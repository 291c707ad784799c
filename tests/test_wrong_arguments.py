"""Every public method of the consumers refuses arguments of the wrong kind before it does anything."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from pykclient import AcknowledgeType, ConsumerRecord, KafkaConsumer, KafkaProducer, KafkaShareConsumer, TopicPartition
from pykclient.aio import AIOKafkaConsumer
from pykclient.errors import IllegalArgumentError, WakeupError
from pykclient.metrics import KafkaMetric, MetricName
from pykclient.testing import EmbeddedCluster
from pykclient.types import OffsetAndMetadata
from tests.support.odd_calls import Refusals, call_of, check_text, odd_calls
from tests.support.odd_values import HOSTILE

pytestmark = pytest.mark.filterwarnings(
    "ignore:a consumer.s timeouts are in milliseconds", "ignore:Conversion of an array"
)

TP = TopicPartition("orders", 0)
#: The partition that is read in the end: seeks and commits of the odd calls are all of the other one.
OTHER = TopicPartition("orders", 1)
RECORD: Any = ConsumerRecord("orders", 0, None, 0, 0, 0, None, b"v", ())
METRIC = KafkaMetric(MetricName("orders-total", "shop", "", {}), lambda _config, _now_ms: 1)

#: Values that are wrong inside of another one.
INSIDE: list[Any] = [
    *({TP: value} for value in HOSTILE),
    *({TP: OffsetAndMetadata(value)} for value in HOSTILE),
    *({TP: OffsetAndMetadata(1, value)} for value in HOSTILE),
    *({TP: OffsetAndMetadata(1, "", value)} for value in HOSTILE),
    *(OffsetAndMetadata(value) for value in HOSTILE),
    *([TopicPartition("orders", value)] for value in HOSTILE),
    *([TopicPartition(value, 0)] for value in HOSTILE),
    *(TopicPartition("orders", value) for value in HOSTILE),
    *({"password": "secret"}, [5, "secret"], [b"secret"], b"secret"),
]
ODD = HOSTILE + INSIDE

#: Valid calls, by method.
CALLS: dict[str, dict[str, Any]] = {
    "subscribe": {"topics": (), "pattern": "o.*", "listener": None},
    "unsubscribe": {},
    "subscription": {},
    "assign": {"partitions": [TP]},
    "assignment": {},
    "poll": {"timeout_ms": 0, "max_records": 5, "update_offsets": True},
    "poll_arrow": {
        "timeout_ms": 0,
        "max_records": 5,
        "max_bytes": 100,
        "columns": ["key"],
        "binary_view": False,
        "until": {TP: 5},
        "key": None,
        "value": None,
    },
    "iter_arrow": {
        "max_records": 5,
        "max_bytes": 100,
        "columns": ["key"],
        "binary_view": False,
        "key": None,
        "value": None,
    },
    "prefetch": {},
    "position": {"partition": TP, "timeout_ms": 5},
    "seek": {"partition": TP, "offset": 0, "topic_id": UUID(int=5)},
    "seek_to_beginning": {"*partitions": TP},
    "seek_to_end": {"*partitions": TP},
    "pause": {"*partitions": TP},
    "resume": {"*partitions": TP},
    "paused": {},
    "highwater": {"partition": TP},
    "current_lag": {"partition": TP},
    "commit": {"offsets": {TP: 1}, "timeout_ms": 5},
    "commit_async": {"offsets": {TP: 1}, "callback": len},
    "committed": {"partitions": TP, "metadata": False, "timeout_ms": 5},
    "offsets_for_times": {"timestamps": {TP: 5}, "timeout_ms": 5},
    "beginning_offsets": {"partitions": [TP], "timeout_ms": 5},
    "end_offsets": {"partitions": [TP], "timeout_ms": 5},
    "partitions_for": {"topic": "orders", "timeout_ms": 5},
    "partitions_for_topic": {"topic": "orders", "timeout_ms": 5},
    "topics": {"timeout_ms": 5},
    "list_topics": {"timeout_ms": 5, "topics": ["orders"]},
    "describe_topics": {"timeout_ms": 5, "topics": ["orders"]},
    "bootstrap": {"timeout_ms": 5, "refresh": True},
    "bootstrap_connected": {},
    "group_metadata": {},
    "enforce_rebalance": {"reason": "deployment"},
    "metrics": {"raw": False},
    "register_metric_for_subscription": {"metric": METRIC},
    "unregister_metric_from_subscription": {"metric": METRIC},
    "client_instance_id": {"timeout_ms": 5},
    "explain": {},
    "wakeup": {},
    "close": {"autocommit": True, "timeout_ms": 5, "group_membership_operation": "default"},
}
SHARE_CALLS: dict[str, dict[str, Any]] = {
    "subscribe": {"topics": ["orders"]},
    **{name: {} for name in ("unsubscribe", "subscription", "acquisition_lock_timeout_ms", "commit_async")},
    **{name: {} for name in ("explain", "wakeup")},
    "poll": {"timeout_ms": 0},
    "poll_arrow": {"timeout_ms": 0, "columns": ["key"], "key": None, "value": None},
    "commit_sync": {"timeout_ms": 5},
    "set_acknowledgement_commit_callback": {"callback": len},
    "acknowledge": {"*args": RECORD},
    "metrics": {"raw": False},
    "register_metric_for_subscription": {"metric": METRIC},
    "unregister_metric_from_subscription": {"metric": METRIC},
    "client_instance_id": {"timeout_ms": 5},
    "close": {"timeout_ms": 5},
}
AIO_CALLS: dict[str, dict[str, Any]] = {
    **{
        name: {}
        for name in (
            *("start", "unsubscribe", "subscription", "assignment", "paused", "topics", "group_metadata", "explain"),
        )
    },
    "subscribe": {"topics": (), "pattern": "o.*", "listener": None},
    "assign": {"partitions": [TP]},
    "getone": {"*partitions": TP},
    "getmany": {"*partitions": TP, "timeout_ms": 0, "max_records": 5},
    "getmany_arrow": {
        "timeout_ms": 0,
        "max_records": 5,
        "max_bytes": 100,
        "columns": ["key"],
        "binary_view": False,
        "until": {TP: 5},
        "key": None,
        "value": None,
    },
    "position": {"partition": TP},
    "seek": {"partition": TP, "offset": 0},
    **{name: {"*partitions": TP} for name in ("seek_to_beginning", "seek_to_end", "seek_to_committed")},
    **{name: {"*partitions": TP} for name in ("pause", "resume")},
    **{name: {"partition": TP} for name in ("highwater", "last_stable_offset", "last_poll_timestamp", "committed")},
    "commit": {"offsets": {TP: 1}},
    "offsets_for_times": {"timestamps": {TP: 5}},
    "beginning_offsets": {"partitions": [TP]},
    "end_offsets": {"partitions": [TP]},
    "partitions_for_topic": {"topic": "orders"},
    "metrics": {"raw": False},
    "register_metric_for_subscription": {"metric": METRIC},
    "unregister_metric_from_subscription": {"metric": METRIC},
    "client_instance_id": {"timeout_ms": 5},
    "stop": {"timeout": 5},
}


@pytest.mark.parametrize(
    ("cls", "calls"),
    [(KafkaConsumer, CALLS), (KafkaShareConsumer, SHARE_CALLS), (AIOKafkaConsumer, AIO_CALLS)],
    ids=["consumer", "share", "asyncio"],
)
def test_all_methods_are_covered(cls: Any, calls: dict[str, dict[str, Any]]) -> None:
    methods = {name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_")}
    assert methods - {"in_environment"} == calls.keys()
    for method, valid in calls.items():
        parameters = [*inspect.signature(getattr(cls, method)).parameters.values()][1:]
        names = ["*" * (one.kind is inspect.Parameter.VAR_POSITIONAL) + one.name for one in parameters]
        assert names == list(valid), method


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic("orders", partitions=2)
        with KafkaProducer(bootstrap_servers=running.bootstrap_servers) as producer:
            for _ in range(3):
                producer.send("orders", b"v", partition=1)
        yield running


def assign_again(consumer: Any, method: str) -> None:
    """Undo a call of ``method`` that has changed the assignment."""
    if method in {"subscribe", "assign"} and consumer.assignment() != {TP}:
        consumer.unsubscribe()
        consumer.assign([TP])


def test_consumer_refuses_wrong_arguments(cluster: EmbeddedCluster) -> None:
    with KafkaConsumer[Any, Any](
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="odd",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([TP])
        refusals = Refusals()
        for method, call in odd_calls(CALLS, ODD, skip="close"):
            consumer.wakeup()  # so that no call that is all right waits
            with refusals.counted():
                call(consumer)
            assign_again(consumer, method)
        assert refusals.count > 10_000
        for value in HOSTILE:
            for argument in ("autocommit", "timeout_ms", "group_membership_operation"):
                try:
                    consumer.close(**{"timeout_ms": -1, "autocommit": 5, argument: value})  # one is wrong in any case
                except IllegalArgumentError as error:
                    check_text(error)
                else:
                    pytest.fail(f"close({argument}=...) has closed the consumer")
        # The consumer is as it was.
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(60_000)
        consumer.assign([OTHER])
        assert len(consumer.poll(60_000)[OTHER]) == 3
        consumer.commit({OTHER: 2})
        assert consumer.committed(OTHER) == 2


def test_share_consumer_refuses_wrong_arguments(cluster: EmbeddedCluster) -> None:
    with KafkaShareConsumer[Any, Any](
        bootstrap_servers=cluster.bootstrap_servers, group_id="odd-share", share_acknowledgement_mode="explicit"
    ) as consumer:
        refusals = Refusals()
        calls = [call for _, call in odd_calls(SHARE_CALLS, ODD, skip="close")]
        fields: dict[str, Any] = {"topic": "orders", "partition": 0, "offset": 0, "type": AcknowledgeType.ACCEPT}
        for value in HOSTILE:
            calls.append(call_of("acknowledge", RECORD, value))
            for name in fields:
                given = {**fields, name: value}
                calls.append(call_of("acknowledge", *given.values()))
                record: Any = ConsumerRecord(
                    given["topic"], given["partition"], None, given["offset"], 0, 0, None, b"", ()
                )
                calls.append(call_of("acknowledge", record))
        for call in calls:
            consumer.wakeup()
            with refusals.counted():
                call(consumer)
        assert refusals.count > 5000
        consumer.subscribe(["orders"])
        assert consumer.subscription() == {"orders"}
        with pytest.raises(IllegalArgumentError, match="timeout_ms is -1"):
            consumer.close(-1)
        assert consumer.subscription() == {"orders"}


def test_asyncio_consumer_refuses_wrong_arguments(cluster: EmbeddedCluster) -> None:
    async def run() -> None:
        async with AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="odd-asyncio",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign([TP])
            refusals = Refusals()
            for method, call in odd_calls(AIO_CALLS, ODD, skip="stop"):
                with refusals.counted():
                    called = call(consumer)
                    if asyncio.iscoroutine(called):
                        task = asyncio.ensure_future(called)
                        await asyncio.sleep(0)
                        if not task.done():
                            task.cancel()  # the arguments are all right, and the call waits
                            await asyncio.wait([task])
                        if not task.cancelled():
                            task.result()
                assign_again(consumer, method)
            assert refusals.count > 8000
            for value in HOSTILE:
                with pytest.raises(IllegalArgumentError):
                    await consumer.stop([value])  # type: ignore[arg-type]
            consumer.unsubscribe()
            consumer.assign([OTHER])
            assert (await asyncio.wait_for(consumer.getone(OTHER), 60)).offset == 0
            await consumer.commit({OTHER: 2})
            assert await consumer.committed(OTHER) == 2

    asyncio.run(run())
