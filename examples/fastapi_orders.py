"""A web service with FastAPI: it writes orders to a topic, and reads shipments from another one in the background.

    uvicorn examples.fastapi_orders:app

The environment variable ``BOOTSTRAP_SERVERS`` names the cluster (default: localhost:9092).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request

from pykclient import errors
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer


def bootstrap_servers() -> str:
    """Return the cluster's address."""
    return os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def follow_shipments(shipped: dict[str, Any]) -> None:
    """Keep ``shipped`` up to date. Each instance reads the whole topic, so it needs no group."""
    async with AIOKafkaConsumer(
        "shipments", bootstrap_servers=bootstrap_servers(), auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            shipped[(record.key or b"").decode()] = json.loads(record.value or b"null")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the producer and the background task with the application, and stop them with it."""
    app.state.shipped = {}
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers()) as producer:
        app.state.producer = producer
        following = asyncio.create_task(follow_shipments(app.state.shipped))
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}", status_code=202)
async def place_order(number: str, request: Request) -> dict[str, int]:
    """Answer once the order is stored on the brokers."""
    try:
        stored = await request.app.state.producer.send_and_wait(
            "orders", key=number.encode(), value=await request.body()
        )
    except errors.KafkaTimeoutError as error:
        raise HTTPException(503, "the order could not be stored in time; it may be stored later") from error
    return {"partition": stored.partition, "offset": stored.offset}


@app.get("/orders/{number}")
async def shipment(number: str, request: Request) -> Any:
    """Return the shipment of an order."""
    if number not in request.app.state.shipped:
        raise HTTPException(404, "not shipped yet")
    return request.app.state.shipped[number]


@app.get("/live")
async def live() -> dict[str, bool]:
    """The liveness probe. It does not depend on the brokers: a restart would not bring them back."""
    return {"live": True}
