"""Producers shared by tasks, without Spark: their reuse, their end, and the errors of failed tasks."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from pykclient import KafkaProducer, TopicPartition
from pykclient.config.producer_config import ProducerConfig
from pykclient.errors import (
    ClusterAuthorizationError,
    ConfigError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from pykclient.producer.columns import BatchFuture, RefusedRows
from pykclient.producer.future import FutureRecordMetadata, ProduceRequestResult, failed_future
from pykclient.spark import producers
from pykclient.spark.arrow_write import write_arrow
from pykclient.spark.deliveries import Deliveries, described
from pykclient.spark.producers import ProducerPool, bulk_config, close_shared_producers, shared_producer
from pykclient.testing import EmbeddedCluster
from tests.support.mock_clock import MockClock

TP = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders")
        yield cluster


@pytest.fixture
def cluster(brokers: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    yield brokers
    brokers.faults.clear()


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProducerPool]:
    own = ProducerPool()
    monkeypatch.setattr(producers, "_pool", own)
    yield own
    own.close()


def values(cluster: EmbeddedCluster, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in cluster.log(TopicPartition(topic, 0))]


# --- with ------------------------------------------------------------------------------------------------------------


def test_block_ends_after_all_records_are_written(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    before = len(values(cluster))
    producer = shared_producer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000
    )
    for task in range(2):
        with producer as p:
            p.send("orders", b"one", key=b"k", headers=[("h", b"v")])
            p.send_batch("orders", [b"two", b"three"])
            assert p.partitions_for("orders") == {0}
        assert values(cluster)[before + 3 * task :] == [b"one", b"two", b"three"]
    assert len(pool) == 1


def test_equal_settings_share_a_producer(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    """Even after pickling, as for each task, and in whichever form they are given."""
    config = {"bootstrap.servers": [cluster.bootstrap_servers], "acks": "all"}
    seen = set()
    for producer in (
        shared_producer(config),
        shared_producer(dict(reversed(config.items()))),
        pickle.loads(pickle.dumps(shared_producer(config))),
        shared_producer({"bootstrap.servers": config["bootstrap.servers"]}, acks="all"),
        shared_producer({**config, "acks": "1"}, acks="all"),  # as KafkaProducer has it
        shared_producer(bootstrap_servers=config["bootstrap.servers"], acks="all"),
    ):
        with producer as p:
            seen.add(repr(p))
    assert len(seen) == len(pool) == 1
    with shared_producer(config, client_id="another"):
        assert len(pool) == 2


def test_nested_and_concurrent_blocks_share_a_producer(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    producer = shared_producer(bootstrap_servers=cluster.bootstrap_servers)
    before = len(values(cluster))

    def task() -> None:
        with producer as p:
            for _ in range(100):
                p.send("orders", b"in a thread")

    threads = [threading.Thread(target=task) for _ in range(4)]
    with producer as outer:
        for thread in threads:
            thread.start()
        with producer as inner:
            assert inner is not outer
            inner.send("orders", b"inner")
        outer.send("orders", b"outer")
        for thread in threads:
            thread.join()
    assert len(values(cluster)) == before + 402
    assert len(pool) == 1


def test_send_after_the_block_is_refused(cluster: EmbeddedCluster) -> None:
    with shared_producer(bootstrap_servers=cluster.bootstrap_servers) as p:
        pass
    with pytest.raises(IllegalStateError, match="with block of this shared producer has ended"):
        p.send("orders", b"late")


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_producer_entered_on_the_driver_cannot_be_pickled(
    dumps: Callable[[object], bytes], cluster: EmbeddedCluster, pool: ProducerPool
) -> None:
    """A function closes over the producer of a block on the driver."""
    with shared_producer(bootstrap_servers=cluster.bootstrap_servers) as p:
        for each in (p, partial(p.send, "orders")):
            with pytest.raises(TypeError, match=r"cannot be pickled.*the result of shared_producer\(\)"):
                dumps(each)
        p.send("orders", b"goes on")
    assert values(cluster)[-1] == b"goes on"
    assert len(pool) == 1


def test_failed_records_fail_the_block(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    """In whichever way they were sent. The next block gets another producer."""
    producer = shared_producer(bootstrap_servers=cluster.bootstrap_servers)
    with producer as p:
        p.send("orders", b"good")
    cluster.faults.answer("Produce", TopicAuthorizationError, times=None)

    def task() -> None:
        with producer as p:
            for _ in range(20):
                p.send("orders", b"secret")
            p.send_batch("orders", [b"secret"] * 10)

    with pytest.raises(KafkaError) as raised:
        task()
    said = str(raised.value)
    assert said.startswith(
        "30 of 30 records of Spark partition 0 (attempt 1) were not written to Kafka; the first error is "
    )
    assert "TopicAuthorizationError" in said
    assert "secret" not in said
    assert len(pool) == 0
    cluster.faults.clear()
    with producer as p:
        p.send("orders", b"good again")
    assert values(cluster)[-1] == b"good again"


def test_oversized_records_fail_and_others_are_written(cluster: EmbeddedCluster) -> None:
    producer = shared_producer(bootstrap_servers=cluster.bootstrap_servers)

    def task() -> None:
        with producer as p:
            p.send("orders", b"small")
            p.send("orders", bytes(2_000_000))

    with pytest.raises(KafkaError) as raised:
        task()
    assert str(raised.value).startswith("1 of 2 records")
    assert values(cluster)[-1] == b"small"


def test_failing_block_does_not_wait_for_records(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    """``delivery.timeout.ms`` would be two minutes."""
    held = cluster.faults.hold("Produce")
    sent: list[FutureRecordMetadata] = []

    def task() -> None:
        with shared_producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as p:
            sent.append(p.send("orders", b"x"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        task()
    assert sent[0].failed()
    assert len(pool) == 0
    held.remove()


def test_generator_that_is_not_exhausted_does_not_fail(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    """As in ``mapPartitions`` below a limit: Spark closes the generator, and the task succeeds."""
    before = len(values(cluster))
    producer = shared_producer(bootstrap_servers=cluster.bootstrap_servers)
    sent: list[FutureRecordMetadata] = []

    def task() -> Generator[int]:
        with producer as p:
            for number in range(10):
                sent.append(p.send("orders", b"row"))
                yield number

    generator = task()
    assert [next(generator), next(generator)] == [0, 1]
    cluster.faults.answer("Produce", NotEnoughReplicasError, times=5)  # takes more than a second
    generator.close()
    assert [future.succeeded() for future in sent] == [True, True]
    assert len(values(cluster)) == before + 2
    assert len(pool) == 1


def test_callbacks_may_send_while_the_block_ends(cluster: EmbeddedCluster) -> None:
    """The block waits for what they send, and raises its errors."""
    producer = shared_producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=200)
    before = len(values(cluster))

    def task(last: bytes) -> None:
        with producer as p:

            def echo(_error: Exception | None, _metadata: object) -> None:
                if more:
                    p.send("orders", more.pop(), on_delivery=echo)

            more = [last, b"third", b"second"]
            p.send("orders", b"first", on_delivery=echo)

    task(b"last")
    assert values(cluster)[before:] == [b"first", b"second", b"third", b"last"]
    with pytest.raises(KafkaError, match=r"^1 of 4 records"):
        task(bytes(2_000_000))


def test_shared_producer_survives_failure_in_another_block(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    """If one of two threads that share it fails, the other one's records are still written. Then it is closed."""
    producer = shared_producer(bootstrap_servers=cluster.bootstrap_servers)
    with producer as good:
        with pytest.raises(ZeroDivisionError), producer:
            raise ZeroDivisionError
        good.send("orders", b"goes on")
        assert len(pool) == 0
    assert values(cluster)[-1] == b"goes on"


def test_settings_are_checked_at_once_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="bootstrap"):
        shared_producer({"bootstrap.serverz": "x"})
    with pytest.raises(ConfigError, match="topik"):
        write_arrow({"bootstrap.servers": "localhost:1", "topik": "x"})
    with pytest.raises(ConfigError, match=r"batch\.size is given twice"):
        write_arrow({"bootstrap.servers": "localhost:1", "batch_size": 1, "batch.size": 2})
    with pytest.raises(ConfigError, match="interceptors do not see"):
        write_arrow({"bootstrap.servers": "localhost:1", "interceptor_classes": "x"})
    for make in (shared_producer, write_arrow):
        with pytest.raises(ConfigError, match=r"'a b' is not an address"):
            make({"bootstrap.servers": "localhost:1,a b"})
    secret = {"bootstrap.servers": "localhost:1", "client.id": "hush"}
    assert repr(shared_producer(secret)) == "<SharedProducer for localhost:1>"
    assert repr(write_arrow(secret)) == "<ArrowWrite to the topics of each row>"
    assert repr(write_arrow(secret, "orders")) == "<ArrowWrite to orders>"


# --- the pool --------------------------------------------------------------------------------------------------------


class FakeProducer:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.closed: list[float | None] = []

    def close(self, timeout: float | None = None) -> None:
        self.closed.append(timeout)


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def fakes(clock: MockClock) -> ProducerPool:
    return ProducerPool(clock, FakeProducer, idle_timeout_ms=1000, max_idle=2)  # type: ignore[arg-type]


def closed(pooled: producers.PooledProducer) -> list[float | None]:
    fake = pooled.producer
    assert isinstance(fake, FakeProducer)
    return fake.closed


def test_unused_producers_are_closed(fakes: ProducerPool, clock: MockClock) -> None:
    idle, used = fakes.acquire({"a": 1}), fakes.acquire({"a": 2})
    fakes.release(idle)
    clock.advance(1000)
    assert fakes.acquire({"a": 1}) is idle
    fakes.release(idle)
    clock.advance(1001)
    last = fakes.acquire({"a": 3})
    assert (closed(idle), closed(used), closed(last)) == ([None], [], [])
    assert len(fakes) == 2


def test_number_of_idle_producers_is_limited(fakes: ProducerPool, clock: MockClock) -> None:
    all_of_them = [fakes.acquire({"a": number}) for number in range(4)]
    for pooled in all_of_them:
        fakes.release(pooled)
        clock.advance(1)
    assert [closed(pooled) for pooled in all_of_them] == [[None], [None], [], []]


def test_a_failed_producer_is_closed_by_its_last_user(fakes: ProducerPool) -> None:
    one, two = fakes.acquire({"a": 1}), fakes.acquire({"a": 1})
    assert one is two
    fakes.release(one, failed=True)
    assert closed(one) == []
    three = fakes.acquire({"a": 1})
    assert three is not one
    fakes.release(two)
    assert closed(one) == [1.0]
    assert len(fakes) == 1


def test_closing_the_pool_closes_idle_and_then_used_producers(fakes: ProducerPool) -> None:
    idle, used = fakes.acquire({"a": 1}), fakes.acquire({"a": 2})
    fakes.release(idle)
    fakes.close()
    assert (closed(idle), closed(used), len(fakes)) == ([None], [], 0)
    fakes.release(used)
    assert closed(used) == [1.0]


def test_settings_with_any_values_are_compared(fakes: ProducerPool) -> None:
    """They are compared if possible. 1, True and '1' differ."""
    configs: list[dict[str, Any]] = [{"a": [1, {"b": (2,)}]}, {"a": True}, {"a": 1}, {"a": "1"}, {"a": KafkaProducer}]
    found = [fakes.acquire(config) for config in configs]
    assert len(fakes) == len(configs)
    assert [fakes.acquire(pickle.loads(pickle.dumps(config))) for config in configs] == found


def test_shared_producers_are_closed_on_demand(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    with shared_producer(bootstrap_servers=cluster.bootstrap_servers) as p:
        p.send("orders", b"x")
    close_shared_producers()
    assert len(pool) == 0


class Upper:
    """A serializer without ``__eq__``, as most are."""

    def serialize(self, _topic: str, _headers: object, data: str) -> bytes:
        return data.upper().encode()

    def close(self) -> None:
        pass


@dataclasses.dataclass
class Coding:
    """A serializer with ``__eq__``, and therefore without a hash."""

    name: str

    def __call__(self, data: str) -> bytes:
        return data.encode(self.name)


@pytest.mark.parametrize("serializer", [lambda data: data.encode(), Upper(), Coding("utf-8"), Coding("utf-8").__call__])
def test_tasks_share_a_producer_with_objects_in_its_settings(
    serializer: Any, cluster: EmbeddedCluster, pool: ProducerPool
) -> None:
    """Each task unpickles its own copies."""
    producer = shared_producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=serializer)
    for _ in range(2):
        pickled = cloudpickle.dumps(producer)  # type: ignore[no-untyped-call]
        for _ in range(2):
            with cloudpickle.loads(pickled) as p:
                p.send("orders", "x")
    assert len(pool) == 1
    other = shared_producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=lambda _: b"other")
    with other as p:
        p.send("orders", "x")
    assert len(pool) == 2
    assert values(cluster)[-1] == b"other"


@pytest.mark.parametrize("serializer", [lambda data: data.encode(), Upper(), Coding("utf-8")])
def test_driver_calls_share_one_producer(serializer: Any, cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    """As in a ``foreachBatch`` that calls ``shared_producer`` each time, with objects of its closure."""
    for _ in range(2):
        with shared_producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=serializer) as p:
            p.send("orders", "x")
    assert len(pool) == 1


def test_lambda_sees_changed_values_between_jobs(cluster: EmbeddedCluster) -> None:
    mark = "old"
    producer = shared_producer(
        bootstrap_servers=cluster.bootstrap_servers, value_serializer=lambda data: (data + mark).encode()
    )

    def job() -> None:
        pickled = cloudpickle.dumps(producer)  # type: ignore[no-untyped-call]
        with cloudpickle.loads(pickled) as p:
            p.send("orders", "x")

    job()
    mark = "new"
    job()
    assert values(cluster)[-2:] == [b"xold", b"xnew"]


def test_functions_found_by_name_are_equal(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    """As in a ``foreachBatch`` that calls ``shared_producer`` each time."""
    for _ in range(2):
        with shared_producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=encoded) as p:
            p.send("orders", "x")
    assert len(pool) == 1


def encoded(text: str) -> bytes:
    return text.encode()


_FORKING = """
import os, sys
from pykclient.spark import shared_producer

servers = sys.argv[1]
producer = shared_producer(bootstrap_servers=servers)
with producer as p:
    p.send("forked", b"parent")
    child = os.fork()
    if not child:
        with producer as q:
            q.send("forked", b"child")
        os._exit(0)  # as Spark's workers end
    _, status = os.waitpid(child, 0)
    p.send("forked", b"parent again")
print(os.waitstatus_to_exitcode(status))
"""


def test_forked_process_has_its_own_producers(cluster: EmbeddedCluster) -> None:
    """It ends like Spark's workers, without clean-up. The records of its block are written."""
    cluster.create_topic("forked")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _FORKING, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning"},  # newer Pythons warn of forks with threads
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert sorted(value for value in values(cluster, "forked") if value) == [b"child", b"parent", b"parent again"]


# --- mapInArrow ------------------------------------------------------------------------------------------------------


def test_write_arrow_returns_record_counts(cluster: EmbeddedCluster, pool: ProducerPool) -> None:
    before = len(values(cluster))
    write = pickle.loads(pickle.dumps(write_arrow({"bootstrap.servers": cluster.bootstrap_servers}, "orders")))
    batches = [pa.record_batch({"value": [b"1", b"2"], "id": [1, 2]}), pa.record_batch({"value": [b"3"], "id": [3]})]
    (counts,) = list(write(iter(batches)))
    assert write.schema == "partition_id int, records long"
    assert counts.schema == pa.schema([("partition_id", pa.int32()), ("records", pa.int64())])
    assert counts.to_pylist() == [{"partition_id": 0, "records": 3}]
    assert values(cluster)[before:] == [b"1", b"2", b"3"]


def test_bulk_settings_apply_only_to_unset_keys() -> None:
    """They apply only to keys that the user has not set, and never contradict those that are set."""
    servers = {"bootstrap.servers": "localhost:1"}
    assert bulk_config(servers) == {
        **servers,
        "batch.size": 262_144,
        "linger.ms": 100,
        "buffer.memory": 67_108_864,
    }
    given = {"batch.size": 1, "linger.ms": 2, "buffer.memory": 3, **servers}
    assert (
        bulk_config({"batch_size": 1, "linger_ms": 2, "buffer_memory": 3, "bootstrap_servers": "localhost:1"}) == given
    )
    assert bulk_config({**servers, "max.request.size": 1000})["batch.size"] == 1000
    assert bulk_config({**servers, "buffer.memory": 1_600_000})["batch.size"] == 100_000
    timeouts = {"delivery.timeout.ms": 1000, "request.timeout.ms": 990}
    assert ProducerConfig(bulk_config({**servers, **timeouts}))["linger.ms"] == 5


# --- deliveries ------------------------------------------------------------------------------------------------------


def future_of(result: ProduceRequestResult, index: int) -> FutureRecordMetadata:
    return FutureRecordMetadata(result, index, 0, 1, 1)


def test_number_of_kept_futures_is_limited_to_open_ones() -> None:
    deliveries = Deliveries()
    stuck = ProduceRequestResult(TP)
    for number in range(10):
        deliveries.add(future_of(stuck, number))
    for _ in range(10_000):
        done = ProduceRequestResult(TP)
        done.set(0, -1)
        done.done()
        deliveries.add(future_of(done, 0))
        assert deliveries.pending <= 20
    deliveries.look()
    assert (deliveries.pending, deliveries.sent, deliveries.failed) == (10, 10_000, 0)
    stuck.set(-1, -1, lambda index: KafkaTimeoutError(f"number {index}"))
    stuck.done()
    with pytest.raises(KafkaError, match=r"^10 of 10010 records of a test were not .* KafkaTimeoutError: number 0"):
        deliveries.check("of a test")


def test_rows_are_counted_by_error() -> None:
    deliveries = Deliveries()
    clock = MockClock()
    too_large = RefusedRows(-1, [2, 3], RecordTooLargeError("large"))
    deliveries.add(BatchFuture("orders", 100, [], [too_large], clock))
    deliveries.add(failed_future(TP, TopicAuthorizationError("no")))
    with pytest.raises(KafkaError, match=r"^3 of 101 records .*RecordTooLargeError") as raised:
        deliveries.check("of a test")
    assert isinstance(raised.value.__cause__, RecordTooLargeError)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RecordTooLargeError("9 bytes"), "9 bytes (the producer's max.request.size"),
        (ClusterAuthorizationError("no"), "IDEMPOTENT_WRITE"),
        (KafkaTimeoutError("late"), "kafka.delivery.timeout.ms"),
    ],
)
def test_errors_give_advice(error: Exception, says: str) -> None:
    assert described(error).startswith(f"{type(error).__name__}: ")
    assert says in described(error)


def test_error_without_advice_is_type_and_text() -> None:
    assert described(ValueError("no")) == "ValueError: no"
