"""Send a hundred records: ``python -m examples.quickstart_producer --bootstrap-servers HOST:PORT``."""

from examples.options import run
from pykclient import KafkaProducer


def produce(bootstrap_servers: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="lz4") as producer:
        for number in range(99):
            producer.send(topic, key=b"N14228", value=b"flight %d" % number)
        last = producer.send(topic, key=b"N14228", value=b"the last one")
        print("acknowledged at offset", last.get(timeout=10).offset)
    # At the end of the block everything has been sent, and the connections are closed.


if __name__ == "__main__":
    run(produce, topic="quickstart")
