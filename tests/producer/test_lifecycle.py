"""Programs that do not close, fork, or are interrupted: each in a process of its own, against a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

_START = """
import os, sys, time
from pykclient.producer.kafka_producer import KafkaProducer
bootstrap_servers, topic = sys.argv[1:]
"""


def start(program: str, bootstrap_servers: str, topic: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", _START + program, bootstrap_servers, topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def finish(process: subprocess.Popen[str], timeout_s: float = 60.0) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the program did not end within {timeout_s} s:\n{out}\n{err}") from None
    return process.returncode, out, err


def read_all(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topic, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes | None] = []

        def complete() -> bool:
            values.extend(message.value() for message in consumer.consume(1000, 0.5) if message.error() is None)
            return len(values) >= count

        eventually(complete, 30)
        return values
    finally:
        consumer.close()


def test_exit_without_close_sends_remaining_records(any_kafka: AnyKafka, topic: str) -> None:
    program = """
producer = KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=10_000)
for index in range(1000):
    producer.send(topic, b"%d" % index)
print("sent")
"""
    code, out, err = finish(start(program, any_kafka.bootstrap_servers, topic))
    assert (code, out) == (0, "sent\n"), err
    assert read_all(any_kafka.bootstrap_servers, topic, 1000) == [b"%d" % index for index in range(1000)]


def test_exit_does_not_wait_for_unreachable_cluster(any_kafka: AnyKafka, topic: str) -> None:
    """The exit is fast although the broker is unreachable and delivery.timeout.ms is two minutes."""
    program = """
producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
producer.send(topic, b"x").get(20)
producer._sender._client.ready = lambda node, now_ms: False
producer.send(topic, b"lost")
print("sent", flush=True)
"""
    process = start(program, any_kafka.bootstrap_servers, topic)
    assert process.stdout is not None
    assert process.stdout.readline() == "sent\n"
    started = time.monotonic()
    finish(process)
    assert time.monotonic() - started < 20.0


def test_ctrl_c_interrupts_waiting_call(any_kafka: AnyKafka, topic: str) -> None:
    program = """
with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
    producer.send(topic, b"x").get(20)
    producer._sender._client.ready = lambda node, now_ms: False
    future = producer.send(topic, b"never")
    print("waiting", flush=True)
    future.get()
"""
    process = start(program, any_kafka.bootstrap_servers, topic)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code != 0
    assert "KeyboardInterrupt" in err
    assert time.monotonic() - started < 20.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_child_is_refused_and_parent_continues(any_kafka: AnyKafka, topic: str) -> None:
    program = """
import gc
from pykclient.errors import UseAfterForkError
producer = KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=60_000)
producer.send(topic, b"before")
producer.flush(20)
pending = producer.send(topic, b"pending")
for lock in (producer._accumulator._lock, producer._metadata._lock):
    lock.acquire()  # as the sender may hold them at that moment
child = os.fork()
if child == 0:
    def send(): producer.send(topic, b"child")
    def partitions(): producer.partitions_for(topic)
    for call in (send, producer.flush, partitions, pending.get):
        try:
            call()
        except UseAfterForkError as error:
            print(error, flush=True)
    producer.close()
    own = KafkaProducer(bootstrap_servers=bootstrap_servers)
    own.send(topic, b"own").get(20)
    own.close()
    sys.exit(0)
for lock in (producer._accumulator._lock, producer._metadata._lock):
    lock.release()
_, status = os.waitpid(child, 0)
producer.send(topic, b"after")
producer.flush(20)
pending.get(0)
producer.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    code, out, err = finish(start(program, any_kafka.bootstrap_servers, topic))
    assert code == 0, err
    assert out.count("made before fork()") == 4
    assert set(read_all(any_kafka.bootstrap_servers, topic, 4)) == {b"after", b"before", b"own", b"pending"}


def test_close_ends_while_a_callback_blocks(any_kafka: AnyKafka, topic: str) -> None:
    program = """
import threading
producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
blocked, release = threading.Event(), threading.Event()
producer.send(topic, b"1", on_delivery=lambda error, metadata: (blocked.set(), release.wait()))
assert blocked.wait(20)
producer.close(0.2)
print("closed", flush=True)
release.set()
"""
    code, out, err = finish(start(program, any_kafka.bootstrap_servers, topic))
    assert code == 0, err
    assert out.strip() == "closed"
    assert "a callback is probably blocking it" in err


def test_unclosed_producer_warns(any_kafka: AnyKafka, topic: str) -> None:
    program = """
import gc, threading
def work():
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, client_id="forgotten")
    producer.send(topic, b"x")
work()
gc.collect()
for thread in threading.enumerate():
    if thread.name.startswith("kafka-producer-network-thread"):
        thread.join(20)  # it sends what is left, and then ends by itself
"""
    code, _, err = finish(start(program, any_kafka.bootstrap_servers, topic))
    assert code == 0
    assert "ResourceWarning: <KafkaProducer forgotten> was never closed" in err
    assert read_all(any_kafka.bootstrap_servers, topic, 1) == [b"x"]
