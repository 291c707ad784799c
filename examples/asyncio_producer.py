"""Send from asyncio tasks, and await deliveries.

The producer runs on the event loop itself. Fifty tasks share it: each waits for its own records, and the records that
they send at the same time share requests. ``send`` waits when the brokers accept less than is sent, and the loop runs
its other tasks meanwhile.
"""

from __future__ import annotations

import asyncio

from examples.options import run
from pykclient.aio import AIOKafkaProducer, RecordMetadata

TASKS = 50
RECORDS_OF_TASK = 20


async def ticker(stop: asyncio.Event) -> int:
    """Count ticks, as a stand-in for the other work of the loop."""
    ticks = 0
    while not stop.is_set():
        await asyncio.sleep(0)
        ticks += 1
    return ticks


async def send_some(producer: AIOKafkaProducer, topic: str, task: int) -> list[RecordMetadata | None]:
    """Send records one by one, each after the one before it is acknowledged."""
    return [
        await producer.send_and_wait(topic, b"%d of task %d" % (number, task), key=b"%d" % task)
        for number in range(RECORDS_OF_TASK)
    ]


async def produce(bootstrap_servers: str, topic: str) -> None:
    stop = asyncio.Event()
    other_work = asyncio.create_task(ticker(stop))
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        by_task = await asyncio.gather(*(send_some(producer, topic, task) for task in range(TASKS)))
        written = [metadata for of_task in by_task for metadata in of_task if metadata is not None]
        print(f"{len(written)} records acknowledged, the last at {written[-1].topic_partition}")
    stop.set()
    print("the loop was", "free meanwhile" if await other_work > 1 else "held up")


def main(bootstrap_servers: str, topic: str) -> None:
    asyncio.run(produce(bootstrap_servers, topic))


if __name__ == "__main__":
    run(main, topic="asyncio")
