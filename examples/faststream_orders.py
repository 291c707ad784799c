"""A service with FastStream, whose broker for Kafka runs on pykclient: it reads orders, and writes shipments.

    python -m pykclient.alias aiokafka -- -m faststream run examples.faststream_orders:app

FastStream imports aiokafka, which ``pykclient.alias`` replaces. The environment variable ``BOOTSTRAP_SERVERS`` names
the cluster (default: localhost:9092).
"""

from __future__ import annotations

import os
from typing import Any

from faststream import FastStream
from faststream.kafka import KafkaBroker

broker = KafkaBroker(os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092"))
app = FastStream(broker)


@broker.subscriber("orders", group_id="shipping", auto_offset_reset="earliest")
@broker.publisher("shipments")
async def ship(order: dict[str, Any]) -> dict[str, Any]:
    """Ship an order; the result is written to the topic ``shipments``."""
    return {"order": order["id"], "to": order["address"]}
