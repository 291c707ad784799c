"""The producer of a worker process.

A client cannot be used after a fork (``UseAfterForkError``). So no module creates one when it is imported: the first
call in each worker does.
"""

from __future__ import annotations

import functools
import os

from pykclient import KafkaProducer


@functools.cache
def worker_producer() -> KafkaProducer[bytes, bytes]:
    """Return the producer of this process."""
    return KafkaProducer(bootstrap_servers=os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092"))


def close_producer() -> None:
    """Send what is left, for at most 10 s. Does nothing in a process that never used its producer."""
    if worker_producer.cache_info().currsize:
        worker_producer().close(timeout=10)
