"""KafkaConsumer over an in-memory broker (after Java's KafkaConsumerTest)."""

from __future__ import annotations

import gc
import os
import pickle
import re
import threading
import time
from itertools import islice
from typing import Any

import pytest

from pykclient.clock import Timer
from pykclient.consumer.application_driver import Steps
from pykclient.consumer.fetch_collector import Fetch
from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import (
    AuthenticationError,
    ConcurrentModificationError,
    ConfigError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    UseAfterForkError,
    WakeupError,
)
from pykclient.types import (
    ConsumerGroupMetadata,
    MemberState,
    Node,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from tests.consumer.coordinator.harness import Listener
from tests.consumer.fake_broker import FakeCluster
from tests.consumer.responses import metadata_response
from tests.support.calls import counted_calls

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VALUES = [b"%d" % number for number in range(25)]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({T0: VALUES, T1: VALUES[:3]})


def offsets(records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[int]]:
    return {tp: [record.offset for record in list_] for tp, list_ in records.items()}


def poll_all(consumer: KafkaConsumer[Any, Any]) -> dict[TopicPartition, list[int]]:
    """Poll until a poll returns nothing."""
    seen: dict[TopicPartition, list[int]] = {}
    while records := consumer.poll(2_000):
        for tp, found in offsets(records).items():
            seen.setdefault(tp, []).extend(found)
    return seen


class TestPoll:
    def test_poll_returns_each_record_once(self, cluster: FakeCluster) -> None:
        with cluster.consumer("t", group_id="g") as consumer:
            assert poll_all(consumer) == {T0: list(range(25)), T1: [0, 1, 2]}
            assert consumer.position(T0) == 25
            assert consumer.assignment() == {T0, T1}
            assert consumer.subscription() == {"t"}

    def test_manual_assignment_needs_no_group(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([T1])
            assert poll_all(consumer) == {T1: [0, 1, 2]}
            assert "FindCoordinatorRequest" not in cluster.broker.names

    def test_max_records_limits_a_poll(self, cluster: FakeCluster) -> None:
        with cluster.consumer(max_poll_records=4) as consumer:
            consumer.assign([T0])
            assert offsets(consumer.poll(1_000)) == {T0: [0, 1, 2, 3]}
            assert offsets(consumer.poll(1_000, max_records=2)) == {T0: [4, 5]}
            assert consumer.position(T0) == 6
            with pytest.raises(IllegalArgumentError):
                consumer.poll(0, max_records=0)

    def test_poll_can_leave_positions_unchanged(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([T1])
            assert offsets(consumer.poll(1_000, update_offsets=False)) == {T1: [0, 1, 2]}
            assert consumer.position(T1) == 0
            assert offsets(consumer.poll(1_000)) == {T1: [0, 1, 2]}

    def test_poll_waits_for_its_timeout(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([T0])
            consumer.seek_to_end(T0)
            start = cluster.clock.now_ms()
            assert consumer.poll(5_000) == {}
            assert 5_000 <= cluster.clock.now_ms() - start < 6_000

    def test_poll_without_a_subscription_is_refused(self, cluster: FakeCluster) -> None:
        with cluster.consumer(group_id="g") as consumer, pytest.raises(IllegalStateError, match=r"subscribe\(\)"):
            consumer.poll(0)

    def test_interceptors_change_records_and_see_commits(self, cluster: FakeCluster) -> None:
        class Interceptor:
            def __init__(self) -> None:
                self.closed = False
                self.committed: list[Any] = []

            def on_consume(self, records: dict[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
                return {tp: list_[:1] for tp, list_ in records.items()}

            def on_commit(self, offsets: object) -> None:
                self.committed.append(offsets)

            def close(self) -> None:
                self.closed = True

        interceptor = Interceptor()
        with cluster.consumer(
            "t", group_id="g", interceptor_classes=[interceptor], enable_auto_commit=False
        ) as consumer:
            consumer.poll(1_000)
            assert offsets(consumer.poll(1_000)) == {T0: [10]}
            consumer.commit()
        assert interceptor.committed[0][T0].offset == 20
        assert interceptor.closed

    def test_deserializers_are_applied_to_keys_and_values(self, cluster: FakeCluster) -> None:
        with cluster.consumer(value_deserializer=int, key_deserializer=lambda key: key.decode()) as consumer:
            consumer.assign([T1])
            (records,) = consumer.poll(1_000).values()
            assert [(record.key, record.value) for record in records] == [("k0", 0), ("k1", 1), ("k2", 2)]

    def test_missing_offset_raises_without_a_reset_policy(self, cluster: FakeCluster) -> None:
        with cluster.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            with pytest.raises(NoOffsetForPartitionError) as raised:
                consumer.poll(1_000)
            assert raised.value.partitions == {T0}
            consumer.seek(T0, 24)
            assert offsets(consumer.poll(1_000)) == {T0: [24]}

    def test_an_error_of_another_broker_does_not_cost_records(self, cluster: FakeCluster) -> None:
        with cluster.consumer(max_poll_records=5) as consumer:
            cluster.broker.describe = lambda: metadata_response({"t": 2}, brokers=2)  # type: ignore[method-assign]
            cluster.broker.update_metadata(cluster.broker.describe())
            consumer.assign([T0])
            assert offsets(consumer.poll(1_000)) == {T0: [0, 1, 2, 3, 4]}
            consumer.assign([T0, T1])
            consumer.seek(T1, 0)
            cluster.broker.authentication_failed(Node(1, "localhost", 9093), 10_000)
            # Positions advance before the next fetches are sent; if sending fails, the records are still returned.
            assert offsets(consumer.poll(1_000)) == {T0: [5, 6, 7, 8, 9]}
            with pytest.raises(AuthenticationError):
                consumer.poll(1_000)
            cluster.clock.sleep_ms(10_000)
            assert poll_all(consumer) == {T0: list(range(10, 25)), T1: [0, 1, 2]}


class TestIteration:
    def test_loop_ends_at_the_timeout_and_can_resume(self, cluster: FakeCluster) -> None:
        with cluster.consumer("t", group_id="g", consumer_timeout_ms=1_000) as consumer:
            assert sorted(record.offset for record in consumer if record.partition == 0) == list(range(25))
            with pytest.raises(StopIteration):
                next(consumer)
            cluster.broker.logs[T1].append(b"new")
            assert next(consumer).offset == 3

    def test_positions_follow_the_loop(self, cluster: FakeCluster) -> None:
        with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([T0])
            for record in consumer:
                assert consumer.position(T0) == record.offset + 1
                if record.offset % 7 == 0:
                    consumer.commit()
                    assert consumer.committed(T0) == record.offset + 1
                if record.offset == 24:
                    break

    def test_only_waiting_polls_send_due_requests_early(
        self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The polls of a busy consumer do not wait, so nothing would wake it up."""
        consumer = cluster.consumer("t", group_id="g", max_poll_records=1)
        assert consumer.poll(2_000)
        coordinator = consumer._consumer.group()
        poll, seen = coordinator.poll, []

        def noting(timer: Timer, *, is_called: bool = True, call_ms: int = 0) -> Steps[bool]:
            seen.append(call_ms)
            return poll(timer, is_called=is_called, call_ms=call_ms)

        monkeypatch.setattr(coordinator, "poll", noting)
        assert consumer.poll(2_000)
        assert seen == [0]
        poll_all(consumer)
        seen.clear()
        consumer.poll(500)
        assert seen[0] == 500
        consumer.close()

    def test_automatic_commits_never_pass_the_loop(self, cluster: FakeCluster) -> None:
        consumer = cluster.consumer("t", group_id="g", auto_commit_interval_ms=0)
        for record in consumer:
            if record.partition == 0 and record.offset == 12:
                break
        consumer.close()
        assert cluster.broker.committed_offsets[T0].offset == 13

    def test_the_context_manager_does_not_commit_after_an_error(self, cluster: FakeCluster) -> None:
        def fail() -> None:
            with cluster.consumer("t", group_id="g") as consumer:
                next(consumer)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert cluster.broker.committed_offsets == {}

    def test_closing_ends_the_loop(self, cluster: FakeCluster) -> None:
        consumer = cluster.consumer()
        consumer.assign([T0])
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if len(seen) == 3:
                consumer.close()
        assert seen == [0, 1, 2]

    def test_loops_and_polls_can_be_mixed(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([T0])
            assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
            assert offsets(consumer.poll(1_000, max_records=2)) == {T0: [3, 4]}
            assert [record.offset for _, record in zip(range(4), consumer, strict=False)] == [5, 6, 7, 8]
            assert offsets(consumer.poll(1_000, max_records=1)) == {T0: [9]}
            assert next(consumer).offset == 10

    def test_rebalance_drops_buffered_records(self, cluster: FakeCluster) -> None:
        with cluster.consumer("t", group_id="g", auto_commit_interval_ms=0) as consumer:
            first = next(consumer)
            assert first.offset == 0
            consumer.enforce_rebalance()
            seen = [*poll_all(consumer).get(T0, [])]
            assert seen == (list(range(1, 25)) if first.partition == 0 else list(range(25)))

    def test_seek_drops_buffered_records(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([T0])
            next(consumer)
            consumer.seek(T0, 20)
            assert next(consumer).offset == 20
            consumer.seek_to_beginning()
            assert next(consumer).offset == 0

    def test_pause_keeps_buffered_records(self, cluster: FakeCluster) -> None:
        with cluster.consumer(consumer_timeout_ms=500) as consumer:
            consumer.assign([T0])
            next(consumer)
            consumer.pause(T0)
            assert consumer.paused() == {T0}
            assert list(consumer) == []
            consumer.resume(T0)
            assert next(consumer).offset == 1

    def test_new_assignment_drops_buffered_records(self, cluster: FakeCluster) -> None:
        with cluster.consumer(consumer_timeout_ms=500) as consumer:
            consumer.assign([T0])
            next(consumer)
            consumer.assign([T1])
            assert [record.partition for record in consumer] == [1, 1, 1]
            consumer.unsubscribe()
            with pytest.raises(IllegalStateError):
                next(consumer)

    def test_wakeup_interrupts_a_loop_once(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([T0])
            consumer.wakeup()
            with pytest.raises(WakeupError):
                next(consumer)
            assert next(consumer).offset == 0

    def test_iteration_makes_few_calls_per_record(self, cluster: FakeCluster) -> None:
        """Advancing from record to record takes 0.3 µs, because it calls no Python function."""
        record_count = 20_000
        with cluster.consumer() as consumer:
            consumer.assign([T0])
            (records,) = consumer.poll(1_000).values()
            many = (records * record_count)[:record_count]
            fetch = Fetch()
            fetch.add(T0, many)
            consumer._consumer.components.undelivered.fill(
                fetch, consumer._consumer.components.subscriptions.position_or_none
            )
            with counted_calls() as calls:
                stepped = sum(1 for _ in islice(consumer, record_count))
        assert stepped == record_count
        assert calls.of(threading.current_thread()) < record_count + 100, "the one is what sums up"


def test_a_poll_of_buffered_records_makes_few_calls(cluster: FakeCluster) -> None:
    """A poll looks for positions, requests and metadata only if something has changed since the last one."""
    with cluster.consumer(max_poll_records=2) as consumer:
        consumer.assign([T0])
        consumer.poll(1_000)
        with counted_calls() as calls:
            found = [offsets(consumer.poll(1_000)) for _ in range(3)]
        assert found == [{T0: [2, 3]}, {T0: [4, 5]}, {T0: [6, 7]}]
    assert calls.of(threading.current_thread()) < 3 * 130


class TestPositions:
    def test_unassigned_partitions_are_refused(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer, pytest.raises(IllegalStateError, match="t-0"):
            consumer.position(T0)

    def test_seek_methods_set_positions(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([T0, T1])
            consumer.seek_to_end()
            assert (consumer.position(T0), consumer.position(T1)) == (25, 3)
            consumer.seek_to_beginning(T0)
            assert (consumer.position(T0), consumer.position(T1)) == (0, 3)
            consumer.seek(T0, OffsetAndMetadata(7, "", 1))
            assert offsets(consumer.poll(1_000)) == {T0: list(range(7, 17))}
            with pytest.raises(IllegalArgumentError):
                consumer.seek(T0, -1)

    def test_offset_lookups_return_log_offsets(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([T0])
            assert consumer.highwater(T0) is None
            assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
            assert consumer.end_offsets([T0]) == {T0: 25}
            assert consumer.offsets_for_times({T0: 5}) == {T0: OffsetAndTimestamp(25, 1000, -1)}
            with pytest.raises(IllegalArgumentError):
                consumer.offsets_for_times({T0: -1})
            next(consumer)
            assert consumer.highwater(T0) == 25
            assert consumer.current_lag(T0) == 24

    def test_reading_starts_at_committed_offsets(self, cluster: FakeCluster) -> None:
        consumer = cluster.consumer("t", group_id="g")
        cluster.broker.committed_offsets[T0] = OffsetAndMetadata(20)
        assert poll_all(consumer)[T0] == [20, 21, 22, 23, 24]
        consumer.close()


class TestCommits:
    def test_commit_accepts_all_forms_of_offsets(self, cluster: FakeCluster) -> None:
        with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
            consumer.assign([T0])
            consumer.commit({T0: 5})
            assert consumer.committed(T0) == 5
            consumer.commit({T0: OffsetAndMetadata(6, "note", 2)})
            assert consumer.committed(T0, metadata=True) == OffsetAndMetadata(6, "note", 2)
            assert consumer.committed({T0, T1}) == {T0: OffsetAndMetadata(6, "note", 2), T1: None}
            assert consumer.committed(T1) is None
            heard: list[Any] = []
            future = consumer.commit_async({T0: 7}, lambda *args: heard.append(args))
            future.add_callback(lambda _: heard.append("done"))
            consumer.poll(0)
            assert heard == ["done", ({T0: OffsetAndMetadata(7)}, None)]
            assert (future.is_done, future.succeeded(), future.exception) == (True, True, None)
            for wrong in ({T0: -1}, {"t": 1}, {T0: "1"}):
                with pytest.raises(IllegalArgumentError):
                    consumer.commit(wrong)  # type: ignore[arg-type]

    def test_positions_are_committed_before_partitions_are_unassigned(self, cluster: FakeCluster) -> None:
        with cluster.consumer("t", group_id="g") as consumer:
            poll_all(consumer)
            consumer.unsubscribe()
            consumer.assign([T1])
            assert cluster.broker.committed_offsets[T0].offset == 25
            assert cluster.broker.names.index("OffsetCommitRequest") < cluster.broker.names.index("LeaveGroupRequest")
            consumer.seek(T1, 1)
            consumer.assign([T0])
            consumer.poll(0)
            assert cluster.broker.committed_offsets[T1].offset == 1

    def test_group_calls_need_a_group_id(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([T0])
            for call in (
                consumer.commit,
                consumer.commit_async,
                consumer.enforce_rebalance,
                lambda: consumer.committed(T0),
            ):
                with pytest.raises(InvalidGroupIdError, match=r"group\.id"):
                    call()
            assert consumer.group_metadata() == ConsumerGroupMetadata(None, -1, "", None, MemberState.UNJOINED)

    def test_commit_and_lookup_time_out(self, cluster: FakeCluster) -> None:
        with cluster.consumer(group_id="g") as consumer:
            consumer.assign([T0])
            cluster.broker.overrides["OffsetCommitRequest"] = lambda *_: None
            with pytest.raises(KafkaTimeoutError, match="the commit was not done within 300 ms"):
                consumer.commit({T0: 1}, timeout_ms=300)
            cluster.broker.overrides["OffsetFetchRequest"] = lambda *_: None
            with pytest.raises(KafkaTimeoutError, match="committed offsets"):
                consumer.committed(T0, timeout_ms=300)
            consumer.close(timeout_ms=100)

    def test_group_metadata_follows_the_membership(self, cluster: FakeCluster) -> None:
        with cluster.consumer("t", group_id="g", group_instance_id="i") as consumer:
            assert consumer.group_metadata() == ConsumerGroupMetadata("g", -1, "", "i")
            consumer.poll(1_000)
            assert consumer.group_metadata() == ConsumerGroupMetadata("g", 1, "the-member", "i", MemberState.STABLE)


class TestSubscribing:
    def test_pattern_subscribes_to_matching_topics(self, cluster: FakeCluster) -> None:
        with cluster.consumer(group_id="g") as consumer:
            consumer.subscribe(pattern="t|u")
            poll_all(consumer)
            assert consumer.subscription() == {"t"}
            consumer.unsubscribe()
            assert consumer.subscription() is None
            consumer.subscribe(pattern=re.compile("nothing"))
            assert consumer.poll(500) == {}

    def test_subscription_kinds_exclude_each_other(self, cluster: FakeCluster) -> None:
        with cluster.consumer("t", group_id="g") as consumer:
            with pytest.raises(IllegalStateError, match="exclude each other"):
                consumer.assign([T0])
            with pytest.raises(IllegalStateError):
                consumer.subscribe(pattern="t")
            with pytest.raises(IllegalArgumentError, match="not both"):
                consumer.subscribe(["t"], pattern="t")
            consumer.subscribe([])
            consumer.assign([T0])

    @pytest.mark.parametrize("topics", ["t", ["t", ""], [5], [" "]])
    def test_wrong_topics_are_refused(self, cluster: FakeCluster, topics: Any) -> None:
        with cluster.consumer(group_id="g") as consumer, pytest.raises(IllegalArgumentError):
            consumer.subscribe(topics)

    @pytest.mark.parametrize("partitions", [T0, "t", [("t", -1)], ["t"], [("", 0)], [("t", "0")]])
    def test_wrong_partitions_are_refused(self, cluster: FakeCluster, partitions: Any) -> None:
        with cluster.consumer() as consumer, pytest.raises(IllegalArgumentError):
            consumer.assign(partitions)

    def test_wrong_patterns_and_listeners_are_refused(self, cluster: FakeCluster) -> None:
        with cluster.consumer(group_id="g") as consumer:
            for pattern in ("", "("):
                with pytest.raises(IllegalArgumentError):
                    consumer.subscribe(pattern=pattern)
            with pytest.raises(IllegalArgumentError, match="on_partitions_revoked"):
                consumer.subscribe(["t"], listener=object())

    def test_plain_tuples_are_partitions(self, cluster: FakeCluster) -> None:
        with cluster.consumer() as consumer:
            consumer.assign([("t", 0)])  # type: ignore[list-item]
            assert consumer.assignment() == {T0}

    def test_a_listener_may_use_the_consumer(self, cluster: FakeCluster) -> None:
        listener = Listener()
        consumer = cluster.consumer(group_id="g", enable_auto_commit=False)
        listener.on_assigned = lambda: consumer.seek(T0, 23)
        listener.on_revoked = consumer.commit
        consumer.subscribe(["t"], listener=listener)
        assert poll_all(consumer)[T0] == [23, 24]
        consumer.close()
        assert cluster.broker.committed_offsets[T0].offset == 25
        assert [what for what, _ in listener.told] == ["assigned", "revoked"]

    def test_close_raises_listener_exception_and_leaves(self, cluster: FakeCluster) -> None:
        listener = Listener()
        consumer = cluster.consumer(group_id="g")
        consumer.subscribe(["t"], listener=listener)
        poll_all(consumer)
        listener.failure = ValueError("mine")
        with pytest.raises(KafkaError, match="mine"):
            consumer.close()
        assert cluster.broker.names[-1] in ("LeaveGroupRequest", "FetchRequest")
        consumer.close()


class TestTopics:
    def test_topics_and_partitions_are_listed(self) -> None:
        cluster = FakeCluster({T0: [], T1: [], TopicPartition("__consumer_offsets", 0): []})
        with cluster.consumer() as consumer:
            assert consumer.topics() == {"t"}
            assert consumer.partitions_for_topic("t") == {0, 1}
            assert [info.partition for info in consumer.partitions_for("t")] == [0, 1]
            assert consumer.partitions_for_topic("nothing") == set()
            assert set(consumer.list_topics()) == {"t", "__consumer_offsets"}
        with cluster.consumer(exclude_internal_topics=False) as consumer:
            assert "__consumer_offsets" in consumer.topics()

    def test_metrics_include_group_and_poll_metrics(self, cluster: FakeCluster) -> None:
        with cluster.consumer("t", group_id="g") as consumer:
            poll_all(consumer)
            metrics = consumer.metrics()
            assert metrics["consumer-coordinator-metrics"]["assigned-partitions"] == 2
            assert metrics["consumer-metrics"]["last-poll-seconds-ago"] >= 0
            assert metrics["consumer-coordinator-metrics"]["join-total"] == 1
            assert all(hasattr(metric, "metric_value") for metric in consumer.metrics(raw=True).values())


class TestClosing:
    def test_calls_after_close_are_refused(self, cluster: FakeCluster) -> None:
        consumer = cluster.consumer("t", group_id="g")
        next(consumer)
        consumer.close()
        consumer.close()
        for call in (
            lambda: consumer.poll(0),
            lambda: next(consumer),
            lambda: list(consumer),
            consumer.assignment,
            consumer.commit,
            lambda: consumer.position(T0),
            consumer.topics,
            consumer.bootstrap_connected,
        ):
            with pytest.raises(IllegalStateError, match="closed"):
                call()
        assert "closed" in repr(consumer)
        consumer.wakeup()

    def test_close_ends_within_its_timeout(self, cluster: FakeCluster) -> None:
        consumer = cluster.consumer("t", group_id="g")
        poll_all(consumer)
        for name in ("OffsetCommitRequest", "LeaveGroupRequest", "FetchRequest"):
            cluster.broker.overrides[name] = lambda *_: None
        start = cluster.clock.now_ms()
        consumer.close(timeout_ms=700)
        assert cluster.clock.now_ms() - start < 1_500

    @pytest.mark.parametrize("operation", ["leave_group", "remain_in_group"])
    def test_group_membership_operation_decides_about_leaving(self, cluster: FakeCluster, operation: str) -> None:
        consumer = cluster.consumer("t", group_id="g")
        poll_all(consumer)
        consumer.close(group_membership_operation=operation)
        assert ("LeaveGroupRequest" in cluster.broker.names) is (operation == "leave_group")
        with pytest.raises(IllegalArgumentError):
            consumer.close(group_membership_operation="perhaps")

    def test_unclosed_consumer_warns_when_collected(self, cluster: FakeCluster) -> None:
        def forget() -> None:
            cluster.consumer()
            gc.collect()

        with pytest.warns(ResourceWarning, match="was not closed"):
            forget()


class TestThreads:
    def test_another_thread_is_refused(self, cluster: FakeCluster) -> None:
        refused: list[Exception] = []
        with cluster.consumer("t", group_id="g") as consumer:
            listener = Listener()

            def from_elsewhere() -> None:
                try:
                    consumer.pause()
                except ConcurrentModificationError as error:
                    refused.append(error)

            def in_the_middle() -> None:
                other = threading.Thread(target=from_elsewhere, name="second")
                other.start()
                other.join()

            listener.on_assigned = in_the_middle
            consumer.subscribe(["t"], listener=listener)
            consumer.poll(1_000)
            assert "'second'" in str(refused[0])
            assert threading.current_thread().name in str(refused[0])
            done = threading.Thread(target=from_elsewhere)
            done.start()
            done.join()
            assert len(refused) == 1

    def test_a_fork_is_refused(self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        consumer = cluster.consumer()
        monkeypatch.setattr(os, "getpid", lambda: -5)
        for call in (consumer.assignment, consumer.pause, consumer.wakeup, consumer.metrics, lambda: consumer.poll(0)):
            with pytest.raises(UseAfterForkError, match="after the fork"):
                call()
        consumer.close()
        assert cluster.broker.active


class TestConstruction:
    def test_constructor_accepts_mappings_and_keywords(self) -> None:
        first = KafkaConsumer({"bootstrap.servers": "localhost:1", "group.id": "g"}, "t", "u")
        second = KafkaConsumer("t", bootstrap_servers=["localhost:1"], group_id="g", client_id="mine")
        third = KafkaConsumer({"bootstrap.servers": "localhost:1"}, group_id="g", max_poll_records=7)
        assert first.subscription() == {"t", "u"}
        assert re.search(r"consumer-g-\d+", repr(first))
        assert "client_id=mine" in repr(second)
        assert third.config["max.poll.records"] == 7
        for consumer in (first, second, third):
            consumer.close()

    def test_consumer_cannot_be_pickled(self) -> None:
        """Pickling a consumer, as for a function in another process, fails with an error that says what to do."""
        with KafkaConsumer(bootstrap_servers="localhost:1") as consumer:
            for what in (consumer, consumer.poll):
                with pytest.raises(TypeError, match=r"<KafkaConsumer .*> cannot be pickled.* make it in the function"):
                    pickle.dumps(what)

    def test_client_id_is_derived_from_the_group(self) -> None:
        static = KafkaConsumer(bootstrap_servers="localhost:1", group_id="g", group_instance_id="i")
        alone = KafkaConsumer(bootstrap_servers="localhost:1")
        assert "client_id=consumer-g-i " in repr(static)
        assert re.search(r"client_id=consumer-\d+ ", repr(alone))
        static.close()
        alone.close()

    @pytest.mark.parametrize(
        "settings",
        [
            {"bootstrap_server": "x"},
            {"group_id": " "},
            {"group_id": "g", "heartbeat_interval_ms": 45_000},
            {"partition_assignment_strategy": ["unheard-of"]},
            {"value_deserializer": 5},
            {"bootstrap_servers": "no-such-host.invalid:9092"},
        ],
    )
    def test_wrong_settings_are_refused(self, settings: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            KafkaConsumer(**{"bootstrap_servers": "localhost:1", **settings})

    def test_wrong_topics_are_refused(self) -> None:
        with pytest.raises(IllegalArgumentError):
            KafkaConsumer(5, bootstrap_servers="localhost:1")  # type: ignore[call-overload]


class TestUnreachable:
    """Nothing listens on port 1."""

    def test_timeouts_name_the_unreachable_broker(self) -> None:
        with KafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
            for call in (
                lambda: consumer.topics(timeout_ms=400),
                lambda: consumer.commit({T0: 1}, timeout_ms=400),
                lambda: consumer.committed(T0, timeout_ms=400),
                lambda: consumer.end_offsets([T0], timeout_ms=400),
                lambda: consumer.partitions_for_topic("t", timeout_ms=400),
            ):
                start = time.monotonic()
                with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1.*refused"):
                    call()
                assert time.monotonic() - start < 20, "no default, which is a minute"
            assert not consumer.bootstrap_connected()
            assert not consumer.bootstrap(timeout_ms=100)
            consumer.close(timeout_ms=200)

    @pytest.mark.parametrize("loop", [False, True])
    def test_unreachable_broker_is_logged_once(self, loop: bool, caplog: pytest.LogCaptureFixture) -> None:
        with KafkaConsumer(bootstrap_servers="127.0.0.1:1", consumer_timeout_ms=400) as consumer:
            consumer.assign([T0])
            if loop:
                assert list(consumer) == []
            else:
                for _ in range(4):
                    assert consumer.poll(100) == {}
        (said,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert "Connection to bootstrap server 127.0.0.1:1 failed: Connection refused" in said.getMessage()
