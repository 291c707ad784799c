"""Read as a member of a group: ``python -m examples.quickstart_consumer --bootstrap-servers HOST:PORT``.

The program ends when nothing has arrived for five seconds. Run two at once, and they share the topic's partitions. Run
one again, and it continues after the last record that was read.
"""

from examples.options import run
from pykclient import KafkaConsumer


def consume(bootstrap_servers: str, topic: str) -> None:
    with KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=f"{topic}-readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=5_000,
    ) as consumer:
        for record in consumer:
            print(record.partition, record.offset, record.key, record.value)


if __name__ == "__main__":
    run(consume, topic="quickstart")
