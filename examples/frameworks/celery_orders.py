"""A Celery task that writes a record, and is run again if the record was not stored.

celery --app examples.frameworks.celery_orders worker
"""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_process_shutdown

from examples.frameworks.worker_producer import close_producer, worker_producer
from pykclient.errors import RetriableError

app = Celery("orders", broker=os.environ.get("CELERY_BROKER", "memory://"))


@app.task(autoretry_for=(RetriableError,), retry_backoff=True, acks_late=True)  # type: ignore[untyped-decorator]
def place_order(number: str, item: str) -> int:
    """Return the offset of the order. A task that is run again may write its order twice, so consumers use the key."""
    return worker_producer().send("orders", key=number.encode(), value=item.encode()).get(timeout=10).offset


@worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def close(**_: object) -> None:
    """Close the worker's producer. Celery calls this in each worker process that ends."""
    close_producer()
