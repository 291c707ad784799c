"""The cluster that other tests rely on starts, fails, recovers and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.broker import BrokerError
from tests.kafka.cluster import KafkaCluster
from tests.kafka.ports import PortReservations
from tests.kafka.tools import ToolError, console_consumer, console_producer, dump_log
from tests.support.wait import eventually

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).resolve().parents[2]


def produce(bootstrap_servers: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "delivery.timeout.ms": 20_000, "log_level": 0})
    failures: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(25.0) == 0
    assert failures == [None]


def consume(bootstrap_servers: str, topic: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = eventually(lambda: consumer.poll(1.0), 20.0, "a message")
        assert message is not None
        value = message.value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


def test_independent_client_uses_a_one_broker_cluster(kafka: KafkaCluster, topic: str) -> None:
    produce(kafka.bootstrap_servers, topic, b"hello")
    assert consume(kafka.bootstrap_servers, topic) == b"hello"


def test_console_tools_work_with_the_cluster(kafka: KafkaCluster, topic: str) -> None:
    kafka.create_topic(topic)
    console_producer(kafka.bootstrap_servers, topic, "k:ü\n".encode(), "--reader-property", "parse.key=true",
                     "--reader-property", "key.separator=:")  # fmt: skip
    lines = console_consumer(kafka.bootstrap_servers, topic, 1, "--formatter-property", "print.key=true")
    assert lines == ["k\tü".encode()]
    (segment,) = (kafka.brokers[1].data / f"{topic}-0").glob("*.log")
    assert "payload: ü" in dump_log(segment, "--print-data-log")


def test_error_of_a_failed_tool_shows_its_output() -> None:
    with pytest.raises(ToolError, match="no-such-file"):
        dump_log(Path("no-such-file.log"))


def test_topics_are_placed_altered_and_deleted(kafka_cluster: KafkaCluster, topic: str) -> None:
    kafka_cluster.create_topic(topic, assignment=[[2, 3], [3, 1]], config={"retention.ms": 60_000})
    assert kafka_cluster.leader_of(topic, 0) == 2
    kafka_cluster.move_leader(topic, 0, to=3)
    assert kafka_cluster.partition(topic, 0).replicas == (3, 2)
    kafka_cluster.move_leader(topic, 1, to=2)
    assert kafka_cluster.partition(topic, 1).replicas == (2, 3)
    kafka_cluster.delete_topic(topic)


def test_another_broker_leads_after_a_kill(kafka_cluster: KafkaCluster, topic: str) -> None:
    kafka_cluster.create_topic(topic)
    produce(kafka_cluster.bootstrap_servers, topic, b"kept")
    leader = kafka_cluster.leader_of(topic, 0)
    kafka_cluster.brokers[leader].kill()
    assert kafka_cluster.await_leader(topic, 0, other_than=leader) != leader
    assert consume(kafka_cluster.bootstrap_servers, topic) == b"kept"
    kafka_cluster.make_healthy()
    assert set(kafka_cluster.partition(topic, 0).isr) == {1, 2, 3}


def test_brokers_stop_pause_and_restart_on_their_ports(kafka_cluster: KafkaCluster) -> None:
    before = kafka_cluster.bootstrap_servers
    kafka_cluster.brokers[1].stop()
    with pytest.raises(AssertionError, match="not running, so it cannot be sent SIGSTOP"):
        kafka_cluster.brokers[1].pause()
    kafka_cluster.brokers[1].start()
    kafka_cluster.brokers[2].pause()
    with pytest.raises(OSError, match="timed out"):
        kafka_cluster.brokers[2].state(timeout_s=0.2)
    kafka_cluster.brokers[2].resume()
    kafka_cluster.brokers[3].restart()
    kafka_cluster.make_healthy()
    assert kafka_cluster.bootstrap_servers == before


def test_clients_can_be_sent_through_proxies(kafka_cluster: KafkaCluster, topic: str) -> None:
    with kafka_cluster.proxies() as proxies:
        kafka_cluster.create_topic(topic)
        produce(kafka_cluster.proxied_bootstrap_servers, topic, b"through")
        leader = proxies[kafka_cluster.leader_of(topic, 0)]
        passed = leader.response_bytes
        assert passed > 0
        leader.cut_after(10)
        assert consume(kafka_cluster.proxied_bootstrap_servers, topic) == b"through"
        assert leader.cuts == 1


def test_error_of_a_broker_that_cannot_start_shows_its_log() -> None:
    with (
        pytest.raises(BrokerError, match=r"num\.network\.threads"),
        KafkaCluster(properties={"num.network.threads": 0}),
    ):
        pass


def test_port_stays_reserved_until_released() -> None:
    ports, others = PortReservations(), PortReservations()
    try:
        port = ports.take()
        with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 is in use"):
            others.take(port)
        ports.close()
        assert others.take(port) == port
    finally:
        ports.close()
        others.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_command_leaves_no_processes_or_files(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.kafka"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            _, address, logs = (process.stdout.readline().strip() for _ in range(3))
            port, folder = int(address.rsplit(":", 1)[1]), Path(logs.removeprefix("logs: "))
            assert folder.is_dir()
            pids = broker_processes(folder)
            assert len(pids) == 1
            process.send_signal(number)
            assert process.wait(10.0) == (-9 if number is signal.SIGKILL else 0)
        finally:
            process.kill()
    eventually(lambda: not folder.exists() and not any(alive(pid) for pid in pids), 30.0, "the broker's end")
    ports = PortReservations()
    assert ports.take(port) == port
    ports.close()


def broker_processes(folder: Path) -> list[int]:
    done = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if str(folder) in line and "kafka.Kafka" in line]
    return [int(line.split()[0]) for line in lines]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
