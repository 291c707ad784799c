"""Process records in asyncio tasks, at least once.

One task reads batches. The records of a batch are processed at the same time, and their offsets are committed once all
of them are done. The consumer is stopped in the middle, between a batch and its commit. Another one of the group goes
on from the last commit, so only the records of that batch come twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from examples.options import run
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

RECORDS = 300
BATCH = 50


class Interrupted(Exception):  # noqa: N818 - not an error
    """Stands for a crash of the program."""


async def process(record: ConsumerRecord[bytes, bytes], seen: Counter[tuple[int, int]]) -> None:
    """Stand in for a request to another service."""
    await asyncio.sleep(0.001)
    seen[record.partition, record.offset] += 1


async def read(bootstrap_servers: str, topic: str, seen: Counter[tuple[int, int]], stop_after: int) -> None:
    """Process records until all were seen, or raise Interrupted after ``stop_after`` of them."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=f"{topic}-workers",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    async with consumer:
        while len(seen) < RECORDS:
            batches = await consumer.getmany(timeout_ms=1_000, max_records=BATCH)
            records = [record for batch in batches.values() for record in batch]
            await asyncio.gather(*(process(record, seen) for record in records))
            if seen.total() >= stop_after:
                raise Interrupted
            if records:
                await consumer.commit()


async def produce_and_consume(bootstrap_servers: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number, key=b"%d" % (number % 10))
    seen: Counter[tuple[int, int]] = Counter()
    try:
        await read(bootstrap_servers, topic, seen, stop_after=RECORDS // 2)
    except Interrupted:
        print(f"interrupted after {seen.total()} records")
    await read(bootstrap_servers, topic, seen, stop_after=10 * RECORDS)
    twice = [place for place, times in seen.items() if times > 1]
    print(f"{len(seen)} records were processed, {len(twice)} of them twice")


def main(bootstrap_servers: str, topic: str) -> None:
    asyncio.run(produce_and_consume(bootstrap_servers, topic))


if __name__ == "__main__":
    run(main, topic="asyncio-reads")
