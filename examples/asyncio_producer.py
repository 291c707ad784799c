"""Await deliveries in asyncio.

You can await the result of ``send``. The call itself puts the record into a batch, which takes microseconds. It blocks
only while a topic's metadata is missing or ``buffer.memory`` is full. So this program first fetches the metadata in a
thread. A program that sends faster than its brokers accept records should call ``send`` in a thread as well.
"""

from __future__ import annotations

import asyncio

from examples.options import run
from pykclient import KafkaProducer


async def ticker(stop: asyncio.Event) -> int:
    """Count ticks, as a stand-in for the other work of the loop."""
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
