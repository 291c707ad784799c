"""Callbacks, calls from inside callbacks, and the end of loops, as an application sees them."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykclient.consumer import consumer_components
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import ConfigError, IllegalStateError, KafkaError
from pykclient.metrics import MetricsReporter
from pykclient.producer import producer_components
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.types import TopicPartition
from tests.consumer.coordinator.harness import Listener
from tests.consumer.fake_broker import FakeCluster

T0 = TopicPartition("t", 0)
VALUES = [b"%d" % number for number in range(60)]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({T0: VALUES})


def offsets(records: dict[TopicPartition, list[Any]]) -> list[int]:
    return [record.offset for list_ in records.values() for record in list_]


def poll_to_the_end(consumer: KafkaConsumer[Any, Any]) -> list[int]:
    seen: list[int] = []
    while found := offsets(consumer.poll(1_000)):
        seen += found
    return seen


class TestCommitCallbacks:
    def test_commit_callbacks_run_in_the_next_poll_with_records_buffered(self, cluster: FakeCluster) -> None:
        with cluster.consumer(group_id="g", enable_auto_commit=False, max_poll_records=2) as consumer:
            consumer.assign([T0])
            assert offsets(consumer.poll(1_000)) == [0, 1]
            called: list[object] = []
            consumer.commit_async(callback=lambda *told: called.append(told))
            assert offsets(consumer.poll(1_000)) == [2, 3]
            assert len(called) == 1

    def test_commit_callbacks_run_between_records_of_a_loop(self, cluster: FakeCluster) -> None:
        with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([T0])
            called_at: list[int] = []
            seen: list[int] = []
            for record in consumer:
                seen.append(record.offset)
                if record.offset == 2:
                    consumer.commit_async(callback=lambda *_: called_at.append(seen[-1]))
                if record.offset == 7:
                    break
            assert called_at == [2]
            assert seen == list(range(8))

    @pytest.mark.parametrize("name", ["poll", "close", "unsubscribe", "next"])
    def test_callbacks_may_not_poll_or_close(self, cluster: FakeCluster, name: str) -> None:
        refused: list[Exception] = []
        with cluster.consumer(group_id="g", enable_auto_commit=False, max_poll_records=2) as consumer:
            consumer.assign([T0])
            consumer.poll(1_000)

            def call(*_: object) -> None:
                try:
                    next(consumer) if name == "next" else getattr(consumer, name)()
                except IllegalStateError as error:
                    refused.append(error)
                consumer.commit()  # this it may

            consumer.commit_async(callback=call)
            consumer.poll(0)
            assert "callback" in str(refused[0])
            assert consumer.assignment() == {T0}


class TestListeners:
    @pytest.mark.parametrize("name", ["poll", "close", "unsubscribe"])
    @pytest.mark.parametrize("event", ["on_assigned", "on_revoked"])
    def test_callbacks_may_not_poll_or_close(self, cluster: FakeCluster, event: str, name: str) -> None:
        listener = Listener()
        consumer = cluster.consumer(group_id="g")
        consumer.subscribe(["t"], listener=listener)
        if event == "on_revoked":
            consumer.poll(1_000)
            consumer.enforce_rebalance()
        setattr(listener, event, getattr(consumer, name))
        with pytest.raises(KafkaError, match="rebalance listener"):
            poll_to_the_end(consumer)
        told = len(listener.told)
        setattr(listener, event, lambda: None)
        assert offsets(consumer.poll(1_000))
        consumer.close()
        assert len(listener.told) <= told + 3, "no recursion"

    def test_close_inside_the_closing_listener_does_nothing(self, cluster: FakeCluster) -> None:
        listener = Listener()
        consumer = cluster.consumer(group_id="g")
        consumer.subscribe(["t"], listener=listener)
        consumer.poll(1_000)
        listener.on_revoked = consumer.close
        consumer.close()
        assert [what for what, _ in listener.told] == ["assigned", "revoked"]
        assert cluster.broker.committed_offsets[T0].offset == 10


class TestLoops:
    def test_poll_returns_records_buffered_by_an_abandoned_loop(self, cluster: FakeCluster) -> None:
        with cluster.consumer(group_id="g") as consumer:
            consumer.assign([T0])
            for record in consumer:
                if record.offset == 2:
                    break
            fetches = cluster.broker.names.count("FetchRequest")
            assert offsets(consumer.poll(1_000)) == list(range(3, 10))
            assert offsets(consumer.poll(1_000)) == list(range(10, 20))
            assert cluster.broker.names.count("FetchRequest") <= fetches + 2, "nothing is fetched twice"

    def test_abandoned_generator_commits_on_close(self, cluster: FakeCluster) -> None:
        def records() -> Iterator[int]:
            with cluster.consumer("t", group_id="g") as consumer:
                for record in consumer:
                    yield record.offset

        for offset in records():
            if offset == 4:
                break
        gc.collect()
        assert cluster.broker.committed_offsets[T0].offset == 5

    def test_next_continues_after_the_timeout(self, cluster: FakeCluster) -> None:
        cluster = FakeCluster({T0: []})
        with cluster.consumer(consumer_timeout_ms=200) as consumer:
            consumer.assign([T0])
            start_ms = cluster.clock.now_ms()
            assert list(consumer) == []
            assert cluster.clock.now_ms() - start_ms >= 200
            with pytest.raises(StopIteration):
                next(consumer)
            cluster.broker.logs[T0].append(b"late")
            assert next(consumer).value == b"late"

    @pytest.mark.parametrize("name", ["seek_to_beginning", "seek_to_end"])
    def test_seek_without_assigned_partitions_is_refused(self, cluster: FakeCluster, name: str) -> None:
        with cluster.consumer() as consumer, pytest.raises(IllegalStateError, match="no partitions are assigned"):
            getattr(consumer, name)()


class TestClosingBecauseOfAnException:
    def test_records_of_the_last_poll_are_not_committed(self, cluster: FakeCluster) -> None:
        consumer = cluster.consumer(group_id="g")
        consumer.assign([T0])

        def serve() -> None:
            try:
                consumer.poll(1_000)
                consumer.poll(1_000)
                raise SystemExit
            finally:
                consumer.close()

        with pytest.raises(SystemExit):
            serve()
        assert cluster.broker.committed_offsets[T0].offset == 10

    @pytest.mark.parametrize("is_loop", [True, False], ids=["loop", "next"])
    def test_last_record_of_a_loop_is_not_committed(self, cluster: FakeCluster, is_loop: bool) -> None:
        consumer = cluster.consumer(group_id="g")
        consumer.assign([T0])

        def serve() -> None:
            try:
                for record in consumer if is_loop else iter(consumer.__next__, None):
                    if record.offset == 12:
                        raise SystemExit
            finally:
                consumer.close()

        with pytest.raises(SystemExit):
            serve()
        assert cluster.broker.committed_offsets[T0].offset == 12

    def test_earlier_handled_exception_does_not_prevent_the_commit(self, cluster: FakeCluster) -> None:
        try:
            raise ValueError("the reason to read at all")
        except ValueError:
            consumer = cluster.consumer(group_id="g")
            consumer.assign([T0])
            consumer.poll(1_000)
            consumer.close()
        assert cluster.broker.committed_offsets[T0].offset == 10

    def test_handled_exception_does_not_prevent_the_commit(self, cluster: FakeCluster) -> None:
        consumer = cluster.consumer(group_id="g")
        consumer.assign([T0])
        try:
            consumer.poll(1_000)
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        consumer.close()
        assert cluster.broker.committed_offsets[T0].offset == 10


def test_a_due_commit_does_not_make_a_rebalance_spin(cluster: FakeCluster) -> None:
    with cluster.consumer("t", group_id="g", auto_commit_interval_ms=10) as consumer:
        consumer.poll(1_000)
        poll_to_the_end(consumer)
        cluster.broker.overrides["JoinGroupRequest"] = lambda *_: None  # the others have not joined yet
        consumer.enforce_rebalance()
        consumer.poll(100)
        polls = 0
        poll = cluster.broker.poll

        def count(timeout_ms: int, now_ms: int) -> list[Any]:
            nonlocal polls
            polls += 1
            return poll(timeout_ms, now_ms)

        cluster.broker.poll = count  # type: ignore[method-assign]
        consumer.poll(4_000)
        assert polls < 200
        consumer.close(timeout_ms=100)


class Reporter(MetricsReporter):
    """Notes what becomes of it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def init(self, metrics: object) -> None:
        self.told.append("init")

    def close(self) -> None:
        self.told.append("close")


@pytest.mark.parametrize("make", [KafkaConsumer, KafkaProducer], ids=["consumer", "producer"])
def test_failed_constructor_closes_started_parts(make: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_settings: object) -> None:
        raise ConfigError("as a broken certificate would")

    monkeypatch.setattr(consumer_components, "create_network_client", refuse)
    monkeypatch.setattr(producer_components, "create_network_client", refuse)
    reporter = Reporter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError, match="certificate"):
            make(bootstrap_servers="localhost:9092", metric_reporters=[reporter])
        gc.collect()
    assert reporter.told == ["init", "close"]


def test_refused_constructor_subscription_closes_the_consumer() -> None:
    reporter = Reporter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(IllegalStateError, match=r"partition\.assignment\.strategy"):
            KafkaConsumer(
                "t",
                bootstrap_servers="localhost:9092",
                group_id="g",
                partition_assignment_strategy=[],
                metric_reporters=[reporter],
            )
        gc.collect()
    assert reporter.told == ["init", "close"]
