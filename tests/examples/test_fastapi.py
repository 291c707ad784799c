"""examples/fastapi_orders.py stores orders before it answers, and follows the shipments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from examples import fastapi_orders
from pykclient import KafkaProducer, TopicPartition, errors
from pykclient.testing import EmbeddedCluster


async def request(method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    """Return the status and the JSON of the application's response."""
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await fastapi_orders.app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


@asynccontextmanager
async def running() -> AsyncIterator[None]:
    async with fastapi_orders.lifespan(fastapi_orders.app):
        yield


def test_orders_are_stored_and_shipments_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedCluster() as cluster:
        monkeypatch.setenv("BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
        cluster.create_topic("orders", partitions=1)
        cluster.create_topic("shipments", partitions=1)

        async def scenario() -> None:
            async with running():
                assert await request("GET", "/live") == (200, {"live": True})
                assert await request("POST", "/orders/7", b"tea") == (202, {"partition": 0, "offset": 0})
                assert (await request("GET", "/orders/7"))[0] == 404
                with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                    producer.send("shipments", key=b"7", value=b'{"to": "London"}').get(10)
                async with asyncio.timeout(30):
                    while (await request("GET", "/orders/7"))[0] == 404:
                        await asyncio.sleep(0.02)
                assert await request("GET", "/orders/7") == (200, {"to": "London"})

        asyncio.run(scenario())
        (record,) = cluster.log(TopicPartition("orders", 0))
        assert (record.key, record.value) == (b"7", b"tea")


def test_an_order_that_cannot_be_stored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedCluster() as cluster:
        monkeypatch.setenv("BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
        cluster.create_topic("shipments", partitions=1)

        async def scenario() -> None:
            async with running():
                producer = fastapi_orders.app.state.producer
                monkeypatch.setattr(type(producer), "send_and_wait", refuse)
                assert (await request("POST", "/orders/7", b"tea"))[0] == 503

        async def refuse(*_: Any, **__: Any) -> None:
            raise errors.KafkaTimeoutError("no leader")

        asyncio.run(scenario())
