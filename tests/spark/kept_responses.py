"""The memory that a worker keeps for the next micro-batches of its streams.

    python -m tests.spark.kept_responses BOOTSTRAP_SERVERS TOPIC PARTITIONS STREAMS

Each stream reads a few rows of each partition, twice: the second time from what it has fetched ahead. Prints the number
of warm consumers, and the bytes that are allocated beyond those before the first task.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc

from pykclient import KafkaConsumer
from pykclient.spark.batch_reader import new_read_task
from pykclient.spark.consumer_pool import ConsumerPool
from pykclient.spark.options import ReadOptions
from pykclient.spark.range_reader import read_ranges
from pykclient.spark.ranges import OffsetRange
from pykclient.types import TopicPartition

ROWS = 5


def main(servers: str, topic: str, partitions: int, streams: int) -> None:
    options = ReadOptions.parse({"kafka.bootstrap.servers": servers, "subscribe": topic}, streaming=True)
    task, pool = new_read_task(options, ("value",)), ConsumerPool()
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    with KafkaConsumer(bootstrap_servers=servers) as consumer:
        topic_id = consumer.describe_topics(topics=[topic])[topic].topic_id

    def read(start: int) -> None:
        ranges = [OffsetRange(tp, start, start + ROWS, topic_id) for tp in tps]
        for stream in range(streams):
            for _ in read_ranges(task, ranges, f"run {stream}", pool):
                pass

    for _ in read_ranges(task, [OffsetRange(tp, 0, 1, topic_id) for tp in tps], None, pool):
        pass  # loads all modules
    pool.close()
    gc.collect()
    tracemalloc.start()
    read(0)
    read(ROWS)
    gc.collect()
    print(sum(each.is_warm for each in pool._idle), tracemalloc.get_traced_memory()[0])
    pool.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
