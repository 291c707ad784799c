"""Networks that delay, drop and refuse. The client waits without using the CPU, and continues as soon as it can."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import KafkaTimeoutError
from pykclient.types import TopicPartition
from tests.chaos.verifier import ConsumerWorkload, ProducerWorkload, is_full, read_back, verify
from tests.support.any_kafka import AnyKafka
from tests.support.calls import counted_calls
from tests.support.proxy import TcpProxy
from tests.support.wait import eventually

pytestmark = pytest.mark.slow

OUTAGE_S = 3.0
#: Calls that take longer have missed their timeout: without it they would take half a minute or more.
PROMPT_S = 20.0
#: Limit of calls per second by one client's thread during an outage. It makes up to 15,000; a core has time for a
#: million.
IDLE = 60_000


@pytest.fixture
def proxy(any_kafka: AnyKafka) -> Iterator[TcpProxy]:
    with any_kafka.proxies() as proxies:
        yield proxies[1]


def thread_of(name: str) -> threading.Thread:
    (found,) = [thread for thread in threading.enumerate() if thread.name.startswith(name)]
    return found


def outage(proxy: TcpProxy, kind: str) -> None:
    if kind == "blackhole":
        proxy.blackhole()
    else:
        proxy.refuse()
        proxy.drop_connections()


@pytest.mark.parametrize("kind", ["blackhole", "refuse"])
def test_clients_survive_outages(any_kafka: AnyKafka, proxy: TcpProxy, topic: str, group_id: str, kind: str) -> None:
    any_kafka.create_topic(topic, partitions=2)
    settings: dict[str, Any] = {"request_timeout_ms": 1000, "socket_connection_setup_timeout_ms": 1000}
    with (
        counted_calls() as calls,
        ConsumerWorkload(proxy.address, topic, group_id=group_id, **settings, fetch_max_wait_ms=200) as reader,
    ):
        with ProducerWorkload(proxy.address, topic, 2, delivery_timeout_ms=60_000, **settings) as load:
            load.await_acknowledged(100)
            reader.await_more(100)
            threads = [
                thread_of("kafka-producer-network-thread"),
                thread_of("kafka-coordinator-heartbeat-thread"),
                thread_of("consumer-workload"),
            ]
            outage(proxy, kind)
            made = calls.per_s(lambda: time.sleep(OUTAGE_S), *threads)  # the length of the outage
            proxy.restore()
            assert max(made.values()) < IDLE, made
            load.await_every_partition()
            reader.await_more(100)
        assert load.failures == []
        reader.await_reached(verify(any_kafka.bootstrap_servers, load))


def test_short_faults_break_no_connection(any_kafka: AnyKafka, proxy: TcpProxy, topic: str, group_id: str) -> None:
    """Faults shorter than any timeout break no connection, and no record is sent twice."""
    any_kafka.create_topic(topic)
    with ConsumerWorkload(proxy.address, topic, group_id=group_id) as reader:
        with ProducerWorkload(proxy.address, topic, ahead=100) as load:
            load.await_acknowledged(100)
            reader.await_more(100)
            accepted = proxy.accepted
            for delay_ms in (5, 20, 50):
                proxy.delay_ms = delay_ms
                load.await_acknowledged_more(100)
            proxy.blackhole()
            time.sleep(0.5)  # the length of the outage
            proxy.restore()
            load.await_acknowledged_more(100)
            retries = load.producer.metrics()["producer-metrics"]["record-retry-total"]
        assert load.failures == []
        assert retries == 0
        assert proxy.accepted == accepted
        reader.await_reached(verify(any_kafka.bootstrap_servers, load))


def test_dropped_connections_lose_no_records(any_kafka: AnyKafka, proxy: TcpProxy, topic: str, group_id: str) -> None:
    """Connections drop with up to five requests of several partitions in flight."""
    any_kafka.create_topic(topic, partitions=3)
    settings: dict[str, Any] = {"linger_ms": 0, "batch_size": 500, "retry_backoff_ms": 5, "compression_type": "lz4"}
    with ConsumerWorkload(proxy.address, topic, group_id=group_id) as reader:
        with ProducerWorkload(proxy.address, topic, 3, **settings) as load:
            for _ in range(30):
                load.await_acknowledged_more(30)
                proxy.drop_connections()
            load.await_every_partition()
        assert load.failures == []
        reader.await_reached(verify(any_kafka.bootstrap_servers, load))


def test_one_request_in_flight_keeps_order(any_kafka: AnyKafka, proxy: TcpProxy, topic: str) -> None:
    """With one request in flight, a retry may duplicate records but not reorder them."""
    any_kafka.create_topic(topic, partitions=2)
    settings: dict[str, Any] = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    with ProducerWorkload(proxy.address, topic, 2, linger_ms=0, retry_backoff_ms=5, **settings) as load:
        for _ in range(20):
            load.await_acknowledged_more(20)
            proxy.drop_connections()
        load.await_every_partition()
    assert load.failures == []
    for partition, records in verify(any_kafka.bootstrap_servers, load, exactly_once=False).items():
        first_times = list(dict.fromkeys(record.value for record in records))
        numbers = [int(value.split(b":")[1]) for value in first_times]
        assert numbers == list(range(len(numbers))), partition


@pytest.mark.parametrize("acks", [0, 1])
def test_weak_acks_resolve_each_future(any_kafka: AnyKafka, proxy: TcpProxy, topic: str, acks: int) -> None:
    """Retries may duplicate and reorder, but each record gets a result, and each buffer is returned."""
    any_kafka.create_topic(topic)
    settings: dict[str, Any] = {"acks": acks, "enable_idempotence": False}
    with ProducerWorkload(proxy.address, topic, ordered=False, linger_ms=0, **settings) as load:
        for _ in range(10):
            load.await_acknowledged_more(50)
            proxy.drop_connections()
        load.await_acknowledged_more(50)
    if acks:
        assert load.failures == []
        verify(any_kafka.bootstrap_servers, load, exactly_once=False)


def test_records_expire_during_a_blackhole_and_return_memory(any_kafka: AnyKafka, proxy: TcpProxy, topic: str) -> None:
    """Records expire in time, with the reason, and all memory is returned; later records are delivered."""
    any_kafka.create_topic(topic)
    p: KafkaProducer[bytes, bytes] = KafkaProducer(
        bootstrap_servers=proxy.address, delivery_timeout_ms=4000, request_timeout_ms=2000, linger_ms=0
    )
    with p:
        p.send(topic, b"first").get(20)
        proxy.blackhole()
        start = time.monotonic()
        futures = [p.send(topic, b"%d" % number) for number in range(10)]
        with pytest.raises(KafkaTimeoutError, match=rf"{topic}-0 expired.*delivery\.timeout\.ms") as failed:
            futures[-1].get(60)  # delivery.timeout.ms is two minutes by default
        assert time.monotonic() - start > 3.0
        assert proxy.address in str(failed.value)
        proxy.restore()
        p.send(topic, b"after").get(30)
        eventually(lambda: is_full(p), 30.0, "all memory is back")
    # Expired records may still have been written, but not twice.
    values = [record.value for record in read_back(any_kafka.bootstrap_servers, topic)[0]]
    assert len(set(values)) == len(values)
    assert values[0] == b"first"
    assert values[-1] == b"after"


def test_consumer_calls_end_in_time_during_an_outage(any_kafka: AnyKafka, proxy: TcpProxy, topic: str) -> None:
    any_kafka.create_topic(topic)
    tp = TopicPartition(topic, 0)
    c: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        bootstrap_servers=proxy.address, group_id=topic, request_timeout_ms=1000, auto_offset_reset="earliest"
    )
    with c:
        c.assign([tp])
        c.poll(timeout_ms=500)
        c.commit({tp: 0})
        outage(proxy, "refuse")
        calls: dict[str, Any] = {
            "commit": lambda: c.commit({tp: 0}, timeout_ms=600),
            "committed": lambda: c.committed(tp, timeout_ms=600),
            "end_offsets": lambda: c.end_offsets([tp], timeout_ms=600),
            "list_topics": lambda: c.list_topics(timeout_ms=600),
            "offsets_for_times": lambda: c.offsets_for_times({tp: 0}, timeout_ms=600),
        }
        for name, call in calls.items():
            start = time.monotonic()
            with counted_calls() as made, pytest.raises(KafkaTimeoutError) as failed:
                call()
            assert 0.5 < time.monotonic() - start < PROMPT_S, name
            assert made.of(threading.current_thread()) < 0.6 * IDLE, name
            assert "Connection refused" in str(failed.value), name
        start = time.monotonic()
        assert c.poll(timeout_ms=600) == {}
        assert time.monotonic() - start < PROMPT_S
        proxy.restore()
        c.commit({tp: 0})
        start = time.monotonic()
    assert time.monotonic() - start < PROMPT_S
