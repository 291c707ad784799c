"""Processes of ``multiprocessing`` that pack orders: each creates its clients itself, and closes them at its end.

    python -m examples.frameworks.multiprocessing_orders 4   # four processes, until SIGTERM or Ctrl-C

It works with each start method, because the parent process has no client that a fork could copy.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.synchronize import Event

from pykclient import KafkaConsumer, KafkaProducer


def pack_orders(stopping: Event) -> None:
    """Write each order to the topic ``packed``, as a member of the group, until ``stopping`` is set."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent answers it
    servers = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    with (
        KafkaProducer(bootstrap_servers=servers) as producer,
        KafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id="packers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        while not stopping.is_set():
            batches = consumer.poll(timeout_ms=500)
            futures = [
                producer.send("packed", key=record.key, value=record.value)
                for records in batches.values()
                for record in records
            ]
            for future in futures:
                future.get(timeout=30)
            if batches:
                consumer.commit()


def main(workers: int) -> int:
    """Run ``workers`` processes until SIGTERM or SIGINT. Return 0 if each has ended well."""
    stopping = multiprocessing.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    processes = [multiprocessing.Process(target=pack_orders, args=(stopping,)) for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return max(abs(process.exitcode or 0) for process in processes)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
