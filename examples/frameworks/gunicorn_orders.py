"""A web service under gunicorn. This file is both the application and its configuration.

gunicorn --preload --config FILE examples.frameworks.gunicorn_orders:app
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from examples.frameworks.worker_producer import close_producer, worker_producer
from pykclient import KafkaError


def app(environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    """Answer once the order is stored on the brokers."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    try:
        stored = worker_producer().send("orders", key=environ["PATH_INFO"].encode(), value=body).get(timeout=10)
    except KafkaError as error:
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [f"not stored: {error}".encode()]
    start_response("202 Accepted", [("Content-Type", "text/plain")])
    return [b"%d" % stored.offset]


def worker_exit(server: object, worker: object) -> None:  # noqa: ARG001 - gunicorn counts the parameters
    """Close the worker's producer. gunicorn calls this in each worker that ends."""
    close_producer()
