"""``client_instance_id`` of all clients: the id of KIP-714 that brokers know a client by."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from pykclient import KafkaAdminClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from pykclient.admin import Admin
from pykclient.aio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaShareConsumer
from pykclient.errors import IllegalArgumentError, IllegalStateError, KafkaError, UnsupportedVersionError
from pykclient.testing import EmbeddedCluster
from tests.aio.loops import run

Settings = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        made.create_topic("t", 1)
        made.collect_telemetry()
        yield made


@pytest.fixture
def settings(cluster: EmbeddedCluster) -> Settings:
    return {"bootstrap_servers": cluster.bootstrap_servers}


def is_id(value: object) -> bool:
    return isinstance(value, UUID) and value.int != 0


def consumers(settings: Settings, **more: Any) -> list[Any]:
    return [KafkaConsumer(**settings, **more), KafkaShareConsumer(group_id="g", **settings, **more)]


def test_producer_gets_client_instance_id(settings: Settings) -> None:
    with KafkaProducer(**settings) as producer:
        found = producer.client_instance_id(60)
        assert is_id(found)
        assert producer.client_instance_id(0) == found
        with pytest.raises(IllegalArgumentError):
            producer.client_instance_id(-1)


def test_client_instance_id_in_callback_raises(settings: Settings) -> None:
    with KafkaProducer(**settings) as producer:
        errors: list[KafkaError] = []

        def callback(_: object) -> None:
            producer._components.client.telemetry._subscription = None  # type: ignore[union-attr]
            try:
                producer.client_instance_id()
            except KafkaError as error:
                errors.append(error)
            assert producer.client_instance_id(0) is None

        producer.send("t", b"").add_callback(callback)
        producer.flush()
        assert "called by a callback" in str(errors[0])


def test_consumers_get_client_instance_id(settings: Settings) -> None:
    for consumer in consumers(settings):
        with consumer:
            found = consumer.client_instance_id(60_000)
            assert is_id(found)
            assert consumer.client_instance_id(0) == found
            with pytest.raises(IllegalArgumentError):
                consumer.client_instance_id(-1)


def test_admin_clients_get_client_instance_id(settings: Settings) -> None:
    with Admin(**settings, enable_metrics_push=True) as admin:
        found = admin.client_instance_id()
        assert is_id(found)
        assert admin.client_instance_id() == found
        assert admin._components.telemetry is not None
        assert admin._components.telemetry.client_instance_id == found
    with KafkaAdminClient(**settings, enable_metrics_push=True) as other:
        assert is_id(other.client_instance_id())
        assert other.client_instance_id() != found


def test_asyncio_clients_get_client_instance_id(settings: Settings) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(**settings) as producer:
            assert is_id(await producer.client_instance_id())
        for consumer in (AIOKafkaConsumer(**settings), AIOKafkaShareConsumer(group_id="g", **settings)):
            async with consumer:
                found = await consumer.client_instance_id(60_000)
                assert is_id(found)
                assert await consumer.client_instance_id(0) == found
        async with AIOKafkaAdminClient(**settings, enable_metrics_push=True) as admin:
            assert is_id(await admin.client_instance_id())

    run(main())


def test_disabled_telemetry_has_no_client_instance_id(settings: Settings) -> None:
    off = {**settings, "enable_metrics_push": False}
    text = "set enable.metrics.push=true"
    for client in (KafkaProducer(**off), *consumers(off), Admin(**settings), KafkaAdminClient(**settings)):
        with client, pytest.raises(IllegalStateError, match=text):
            client.client_instance_id()

    async def main() -> None:
        for client in (AIOKafkaProducer(**off), AIOKafkaConsumer(**off), AIOKafkaShareConsumer(group_id="g", **off)):
            async with client:
                with pytest.raises(IllegalStateError, match=text):
                    await client.client_instance_id()

    run(main())


def test_brokers_without_telemetry_give_no_instance_id() -> None:
    with EmbeddedCluster() as cluster:
        settings: Settings = {"bootstrap_servers": cluster.bootstrap_servers}
        with KafkaProducer(**settings) as producer:
            assert producer.client_instance_id(0.01) is None
        for consumer in consumers(settings):
            with consumer:
                assert consumer.client_instance_id(10) is None
        with Admin(**settings, enable_metrics_push=True) as admin, pytest.raises(UnsupportedVersionError):
            admin.client_instance_id()


def test_next_call_gets_id_after_cancelled_call(cluster: EmbeddedCluster, settings: Settings) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(**settings) as producer:
            hold = cluster.faults.hold("GetTelemetrySubscriptions")
            waiting = asyncio.ensure_future(producer.client_instance_id())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            hold.remove()
            hold.release()
            assert is_id(await producer.client_instance_id())

    run(main())
