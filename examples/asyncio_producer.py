"""Await deliveries in asyncio.

What ``send`` returns can be awaited. ``send`` itself puts the record into a batch, which takes microseconds; it blocks
only while a topic's metadata is missing, or ``buffer.memory`` is full. So the metadata is asked for in a thread first,
and a program that sends faster than its brokers take it would send in a thread as well.
"""

from __future__ import annotations

import asyncio

from examples.options import run
from pykclient import KafkaProducer


async def ticker(stop: asyncio.Event) -> int:
    """Something else that the loop does meanwhile."""
    ticks = 0
    while not stop.is_set():
        await asyncio.sleep(0)
        ticks += 1
    return ticks


async def produce(bootstrap_servers: str, topic: str) -> None:
    stop = asyncio.Event()
    other_work = asyncio.create_task(ticker(stop))
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await asyncio.to_thread(producer.partitions_for, topic)
        sends = [producer.send(topic, b"%d" % number) for number in range(1_000)]
        written = [await future for future in sends]
        print(f"{len(written)} records acknowledged, the last at {written[-1].topic_partition}")
        await asyncio.to_thread(producer.close)
    stop.set()
    print("the loop was", "free meanwhile" if await other_work > 1 else "held up")


def main(bootstrap_servers: str, topic: str) -> None:
    asyncio.run(produce(bootstrap_servers, topic))


if __name__ == "__main__":
    run(main, topic="asyncio")
