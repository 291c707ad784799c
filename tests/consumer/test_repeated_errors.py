"""No call raises the same error thousands of times a second, and a group that vanished is joined again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from pykclient import KafkaConsumer, KafkaProducer, KafkaShareConsumer
from pykclient.aio import AIOKafkaConsumer, AIOKafkaShareConsumer
from pykclient.errors import (
    GroupAuthorizationError,
    GroupIdNotFoundError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    WakeupError,
)
from pykclient.pacing import RepeatedErrors
from pykclient.testing import EmbeddedCluster
from tests.support.wait import eventually

BACKOFF_MS = 50


def test_same_error_is_raised_again_after_the_backoff() -> None:
    repeated = RepeatedErrors(100)
    assert repeated.pause_ms(KafkaError("x"), 1_000) == 0
    assert repeated.pause_ms(KafkaError("x"), 1_000) == 100
    assert repeated.pause_ms(KafkaError("x"), 1_130) == 70
    assert repeated.pause_ms(KafkaError("x"), 1_300) == 0
    assert repeated.pause_ms(KafkaError("y"), 1_300) == 0
    assert repeated.pause_ms(KafkaTimeoutError("y"), 1_300) == 0


def test_calls_that_fail_alike_at_the_same_time_wait_at_the_same_time() -> None:
    repeated = RepeatedErrors(100)
    assert [repeated.pause_ms(KafkaError("x"), 1_000) for _ in range(5)] == [0, 100, 100, 100, 100]


@pytest.mark.parametrize("error", [IllegalStateError("x"), ValueError("x")])
def test_errors_that_the_program_causes_may_have_a_pause_of_their_own(error: Exception) -> None:
    repeated = RepeatedErrors(100, 1)
    assert [repeated.pause_ms(error, now_ms) for now_ms in (1_000, 1_000, 1_002)] == [0, 1, 0]


@pytest.mark.parametrize("error", [WakeupError("x"), IllegalStateError("x"), ValueError("x"), KeyboardInterrupt()])
def test_errors_of_the_program_are_raised_without_backoff(error: BaseException) -> None:
    repeated = RepeatedErrors(100)
    assert [repeated.pause_ms(error, 1_000) for _ in range(3)] == [0, 0, 0]


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as made:
        made.create_topic("t")
        with KafkaProducer[bytes, bytes](bootstrap_servers=made.bootstrap_servers) as producer:
            producer.send("t", b"1").get(10)
        yield made


@pytest.fixture
def cluster(running: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    yield running
    running.faults.clear()


HEARTBEATS = {"classic": "JoinGroup", "consumer": "ConsumerGroupHeartbeat", "share": "ShareGroupHeartbeat"}


def settings_of(cluster: EmbeddedCluster, kind: str, group: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": f"{group}-{kind}",
        "retry_backoff_ms": BACKOFF_MS,
    }
    return settings if kind == "share" else {**settings, "group_protocol": kind, "auto_offset_reset": "earliest"}


def failing(call: Callable[[], object], duration_s: float = 1.0) -> int:
    """Return how often ``call`` raises GroupAuthorizationError in this time."""
    end_s, count = time.monotonic() + duration_s, 0
    while time.monotonic() < end_s:
        try:
            call()
        except GroupAuthorizationError:
            count += 1
    return count


@pytest.mark.parametrize("kind", HEARTBEATS)
def test_polls_of_a_membership_that_ended_for_good_do_not_spin(cluster: EmbeddedCluster, kind: str) -> None:
    cluster.faults.answer(HEARTBEATS[kind], GroupAuthorizationError(), times=None)
    settings = settings_of(cluster, kind, "refused")
    consumer: Any = KafkaShareConsumer(**settings) if kind == "share" else KafkaConsumer(**settings)
    with consumer:
        consumer.subscribe(["t"])
        for timeout_ms in (1_000, 0):
            eventually(lambda: failing(lambda: consumer.poll(1_000), 0.01))
            assert failing(lambda: consumer.poll(timeout_ms)) <= 2 * 1_000 / BACKOFF_MS  # noqa: B023


@pytest.mark.parametrize("kind", HEARTBEATS)
@pytest.mark.parametrize("method", ["getone", "getmany"])
def test_asyncio_reads_of_a_membership_that_ended_for_good_do_not_spin(
    cluster: EmbeddedCluster, kind: str, method: str
) -> None:
    async def main() -> None:
        settings = settings_of(cluster, kind, "refused-aio")
        consumer: Any = AIOKafkaShareConsumer(**settings) if kind == "share" else AIOKafkaConsumer(**settings)
        async with consumer:
            cluster.faults.answer(HEARTBEATS[kind], GroupAuthorizationError(), times=None)
            consumer.subscribe(["t"])
            read: Callable[[], Awaitable[object]] = consumer.getone
            if method == "getmany":
                read = lambda: consumer.getmany(timeout_ms=1_000)  # noqa: E731
            count, end_s = 0, time.monotonic() + 1.0
            while time.monotonic() < end_s or not count:
                try:
                    await read()
                except GroupAuthorizationError:
                    count += 1
            assert count <= 2 * 1_000 / BACKOFF_MS

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_member_joins_again_if_its_group_has_vanished(cluster: EmbeddedCluster, kind: str) -> None:
    settings = settings_of(cluster, kind, "vanished")
    consumer: Any = KafkaShareConsumer(**settings) if kind == "share" else KafkaConsumer(**settings)

    def beats() -> list[Any]:
        bodies: list[Any] = [request.body for request in cluster.requests_of(HEARTBEATS[kind])]
        return [body for body in bodies if body.group_id == settings["group_id"]]

    def is_of_member(request: Any) -> bool:
        return bool(request.body.member_epoch > 0)

    with consumer:
        consumer.subscribe(["t"])
        eventually(lambda: consumer.poll(50) or any(beat.member_epoch > 0 for beat in beats()))
        vanished = cluster.faults.answer(HEARTBEATS[kind], GroupIdNotFoundError(), times=1, when=is_of_member)
        joined = len([beat for beat in beats() if beat.member_epoch == 0])

        def has_joined_again() -> bool:
            consumer.poll(50)
            return len([beat for beat in beats() if beat.member_epoch == 0]) > joined

        eventually(has_joined_again)
        assert vanished.hits == 1
