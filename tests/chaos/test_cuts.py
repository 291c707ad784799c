"""The connection is cut at every byte of a response or request. The client recovers and loses or duplicates nothing."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import CommitFailedError, RebalanceInProgressError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.chaos.frame_proxy import Cut, FrameProxy
from tests.chaos.verifier import ConsumerWorkload, ProducerWorkload, read_back, verify
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

pytestmark = pytest.mark.slow

#: Frames up to this size are cut at each byte, longer ones at each byte of their start and end and at some between.
SMALL = 100
EDGE = 24
STEP = 37

SETTINGS: dict[str, Any] = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
}

#: Limit of one recovery. It takes some milliseconds, or a request timeout if a request is lost without a trace.
RECOVERY_S = 25.0


@pytest.fixture
def proxy(any_kafka: AnyKafka) -> Iterator[FrameProxy]:
    broker = any_kafka.brokers[1]
    with FrameProxy((broker.host, broker.behind_proxy_port), broker.proxied_port) as proxy:
        yield proxy


def places() -> Generator[int, int, None]:
    """Yield the offsets to cut at; the caller sends back the size of the frame once it is known."""
    after = size = 0
    while after <= size:
        size = max(size, (yield after))  # sizes differ: an empty response is shorter
        if size <= SMALL or after < EDGE or after >= size - EDGE:
            after += 1
        else:
            after = min(after + STEP, size - EDGE)


def cut_everywhere(
    proxy: FrameProxy, api_key: int, act: Callable[[int, Cut], None], *, of_request: bool, reset: bool = False
) -> int:
    """Request a cut and call ``act`` until it has happened and the client has recovered, for each place.

    Return their number.
    """
    where = places()
    after = next(where)
    for number in itertools.count():
        cut = proxy.cut(api_key, after, of_request=of_request, reset=reset)
        start = time.monotonic()
        act(number, cut)
        took_s = time.monotonic() - start
        assert took_s < RECOVERY_S, f"cut after {after} bytes of {cut.size}: recovery took {took_s:.1f} s"
        assert cut.size is not None
        try:
            after = where.send(cut.size)
        except StopIteration:
            return number + 1
    raise AssertionError


@pytest.mark.parametrize("of_request", [False, True], ids=["response", "request"])
@pytest.mark.parametrize("api", ["API_VERSIONS", "METADATA", "PRODUCE"])
def test_producer_survives_cut(any_kafka: AnyKafka, proxy: FrameProxy, topic: str, api: str, of_request: bool) -> None:
    any_kafka.create_topic(topic)
    api_key = getattr(ApiKeys, api)
    producer: KafkaProducer[bytes, bytes] = KafkaProducer(
        bootstrap_servers=proxy.address, linger_ms=0, request_timeout_ms=5000, **SETTINGS
    )
    values: list[bytes] = []
    with producer:
        producer.send(topic, b"first").get(20)

        def act(number: int, cut: Cut) -> None:
            if api_key != ApiKeys.PRODUCE:
                proxy.drop_connections()  # the client sends both on a new connection

            def happened() -> bool:
                values.append(b"%d" % len(values))
                producer.send(topic, values[-1]).get(RECOVERY_S)
                return cut.done

            eventually(happened, RECOVERY_S, f"a cut after {cut.after} bytes", every_s=0.001)

        cuts = cut_everywhere(proxy, api_key, act, of_request=of_request)
    assert cuts > 30
    assert [record.value for record in read_back(any_kafka.bootstrap_servers, topic)[0]] == [b"first", *values]


@pytest.mark.parametrize("of_request", [False, True], ids=["response", "request"])
@pytest.mark.parametrize("api", ["FETCH", "LIST_OFFSETS"])
def test_reader_survives_cuts(any_kafka: AnyKafka, proxy: FrameProxy, topic: str, api: str, of_request: bool) -> None:
    """Each record arrives once and in order, although fetch sessions break."""
    any_kafka.create_topic(topic)
    producer: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=any_kafka.bootstrap_servers, batch_size=0)
    with producer:
        for number in range(1500):
            producer.send(topic, b"%d" % number)
    consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        bootstrap_servers=proxy.address,
        auto_offset_reset="earliest",
        fetch_max_bytes=1,  # each fetch returns one batch, which holds one record
        request_timeout_ms=5000,
        fetch_max_wait_ms=100,
        **SETTINGS,
    )
    tp = TopicPartition(topic, 0)
    with consumer:
        consumer.assign([tp])
        expected = 0

        def act(number: int, cut: Cut) -> None:
            nonlocal expected
            if api == "LIST_OFFSETS":
                consumer.seek_to_beginning(tp)
                expected = 0

            def happened() -> bool:
                nonlocal expected
                for record in consumer.poll(timeout_ms=1000).get(tp, ()):
                    assert record.offset == expected
                    assert record.value == b"%d" % expected
                    expected += 1
                return cut.done

            eventually(happened, RECOVERY_S, f"a cut after {cut.after} bytes", every_s=0)

        assert cut_everywhere(proxy, getattr(ApiKeys, api), act, of_request=of_request) > 30


@pytest.mark.parametrize("of_request", [False, True], ids=["response", "request"])
@pytest.mark.parametrize("api", ["FIND_COORDINATOR", "JOIN_GROUP", "SYNC_GROUP", "OFFSET_COMMIT", "OFFSET_FETCH"])
def test_group_member_survives_a_cut_of_any_request(
    any_kafka: AnyKafka, proxy: FrameProxy, topic: str, group_id: str, api: str, of_request: bool
) -> None:
    any_kafka.create_topic(topic)
    api_key = getattr(ApiKeys, api)
    consumer: KafkaConsumer[bytes, bytes] = KafkaConsumer(
        topic,
        bootstrap_servers=proxy.address,
        group_id=group_id,
        enable_auto_commit=False,
        request_timeout_ms=5000,
        fetch_max_wait_ms=10,
        # A member whose JoinGroup response was lost expires after this time, and delays the others until then.
        session_timeout_ms=1000,
        heartbeat_interval_ms=100,
        max_poll_interval_ms=2000,
        **SETTINGS,
    )
    tp = TopicPartition(topic, 0)

    def joined() -> bool:
        consumer.poll(timeout_ms=20)
        return consumer.assignment() == {tp}

    with consumer:
        eventually(joined, 30.0, "joined", every_s=0)

        def act(number: int, cut: Cut) -> None:
            if api in {"JOIN_GROUP", "SYNC_GROUP"}:
                consumer.enforce_rebalance("cut")
            tries = itertools.count()

            def happened() -> bool:
                if api == "FIND_COORDINATOR" and not cut.done and next(tries) % 10 == 0:
                    # Once may not be enough: a client reconnects an idle connection without a coordinator lookup.
                    proxy.drop_connections()
                if api == "OFFSET_COMMIT":
                    try:
                        consumer.commit({tp: OffsetAndMetadata(number)}, timeout_ms=RECOVERY_S * 1000)
                    except (CommitFailedError, RebalanceInProgressError):  # on a busy machine the session may expire
                        joined()
                        return False
                elif api == "OFFSET_FETCH":
                    consumer.committed(tp, timeout_ms=RECOVERY_S * 1000)
                return joined() and cut.done

            eventually(happened, RECOVERY_S, f"a cut after {cut.after} bytes and a member again", every_s=0)
            if api == "OFFSET_COMMIT":
                assert consumer.committed(tp) == number

        assert cut_everywhere(proxy, api_key, act, of_request=of_request) > 20


def test_producer_recovers_from_connection_resets(any_kafka: AnyKafka, proxy: FrameProxy, topic: str) -> None:
    """After RST the system may discard data that it has already received."""
    any_kafka.create_topic(topic)
    producer: KafkaProducer[bytes, bytes] = KafkaProducer(bootstrap_servers=proxy.address, linger_ms=0, **SETTINGS)
    values: list[bytes] = []
    with producer:

        def act(number: int, cut: Cut) -> None:
            values.extend(b"%d:%d" % (number, record) for record in range(5))
            futures = [producer.send(topic, value) for value in values[-5:]]
            for future in futures:
                future.get(RECOVERY_S)

        cut_everywhere(proxy, ApiKeys.PRODUCE, act, of_request=False, reset=True)
    assert [record.value for record in read_back(any_kafka.bootstrap_servers, topic)[0]] == values


@pytest.mark.parametrize("seed", range(2))
def test_clients_survive_cuts(any_kafka: AnyKafka, proxy: FrameProxy, topic: str, group_id: str, seed: int) -> None:
    """A producer with five requests in flight and a group member survive cuts at random places."""
    any_kafka.create_topic(topic, partitions=3)
    chance = random.Random(seed)
    apis = (
        ["PRODUCE"] * 4 + ["FETCH"] * 2 + ["METADATA", "API_VERSIONS", "HEARTBEAT", "OFFSET_COMMIT", "FIND_COORDINATOR"]
    )
    timeouts = {"request_timeout_ms": 3000}
    with ConsumerWorkload(proxy.address, topic, group_id=group_id, **timeouts) as reader:
        codec = chance.choice(["none", "lz4"])
        tuning: dict[str, Any] = {"linger_ms": 0, "batch_size": 600, "compression_type": codec, **timeouts}
        with ProducerWorkload(proxy.address, topic, 3, **tuning) as load:
            for _ in range(60):
                api_key = getattr(ApiKeys, chance.choice(apis))
                of_request, reset = chance.random() < 0.3, chance.random() < 0.5
                proxy.cut(api_key, chance.randrange(150), of_request=of_request, reset=reset)
                load.await_acknowledged_more(chance.randrange(60))
            load.await_every_partition()
            reader.await_more(100)
        assert load.failures == []
        reader.await_reached(verify(any_kafka.bootstrap_servers, load))
