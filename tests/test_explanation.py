"""``explain``: what clients say about themselves, from any thread and on a signal."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

import pykclient
from pykclient import KafkaConsumer, KafkaProducer, KafkaShareConsumer, TopicPartition
from pykclient.aio import AIOKafkaConsumer, AIOKafkaProducer
from pykclient.errors import IllegalStateError
from pykclient.explanation import counted, shown_duration, shown_size
from pykclient.log_context import LogContext
from pykclient.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("explained", 2)
        yield cluster


def test_producer_names_waiting_batches_and_the_reason(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000, client_id="waiting") as producer:
        producer.partitions_for("explained")
        for _ in range(3):
            producer.send("explained", b"secret value", key=b"secret key", partition=1)
        text = producer.explain()
        producer.flush()
        flushed = producer.explain()
    assert text.startswith("<KafkaProducer waiting>\n")
    assert re.search(r"3 records in 1 batch waiting, the oldest for [\d.]+ m?s", text)
    assert re.search(r"explained-1: 3 records .* lingers for another (5\d\.\d s|1 min 0 s)", text)
    assert "of buffer.memory=32 MiB in use" in text
    assert "secret" not in text
    assert "none waiting" in flushed
    assert re.search(r"broker [12] \(127\.0\.0\.1:\d+\): connected", flushed)
    assert "producer id" in flushed


def test_producer_names_unreachable_brokers() -> None:
    with KafkaProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=500, client_id="lost") as producer:
        with pytest.raises(pykclient.errors.KafkaTimeoutError):
            producer.send("explained", b"x")
        text = producer.explain()
    assert "none received; the bootstrap servers are 127.0.0.1:1" in text
    assert re.search(r"bootstrap server 127\.0\.0\.1:1: .*failing for .*: Connection refused", text)
    assert re.search(r"\d\d:\d\d:\d\d WARNING .*127\.0\.0\.1:1", text)


def test_producer_names_a_partition_without_leader() -> None:
    with (
        EmbeddedCluster(brokers=2) as own,
        KafkaProducer(bootstrap_servers=own.bootstrap_servers, delivery_timeout_ms=60_000, linger_ms=0) as producer,
    ):
        own.create_topic("one", 1, replication_factor=1)
        producer.send("one", b"first").get(10)
        leader = own.leader(TopicPartition("one", 0))
        assert leader is not None
        own.stop(leader)
        future = producer.send("one", b"second")
        with pytest.raises(pykclient.errors.KafkaTimeoutError):
            future.get(1)
        text = producer.explain()
        own.restart(leader)
        future.get(30)
    assert re.search(r"one-0: 1 record in 1 batch waiting.*(no leader|the next is in|waits for broker)", text)


def test_producer_shows_its_transaction(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="explained-tx") as producer:
        assert "transactional.id 'explained-tx', UNINITIALIZED" in producer.explain()
        producer.init_transactions()
        with producer.transaction():
            producer.send("explained", b"x")
            text = producer.explain()
    assert re.search(r"transactional.id 'explained-tx', IN_TRANSACTION, begun \d+ ms ago", text)


def test_consumer_names_its_group_positions_and_lag(cluster: EmbeddedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(5):
            producer.send("explained", b"x", partition=0)
    with KafkaConsumer(
        "explained", bootstrap_servers=cluster.bootstrap_servers, group_id="explaining", auto_offset_reset="earliest"
    ) as consumer:
        while not consumer.poll(10_000, max_records=1):
            pass
        text = consumer.explain()
    assert re.search(r"explaining, protocol classic: STABLE, generation 1 \(member consumer-explaining", text)
    assert "coordinator: group coordinator (broker " in text
    assert re.search(r"last poll \d+ m?s ago \(max\.poll\.interval\.ms=300000\)", text)
    assert "subscribe(explained)" in text
    assert re.search(r"explained-[01]: position \d+, lag \d+, fetched from broker \d", text)


def test_consumer_without_a_group_names_paused_partitions(cluster: EmbeddedCluster) -> None:
    tp = TopicPartition("explained", 1)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([tp])
        assert "explained-1: no position yet (INITIALIZING)" in consumer.explain()
        consumer.seek(tp, 0)
        consumer.pause(tp)
        text = consumer.explain()
    assert "explained-1: position 0, lag unknown, as nothing has been fetched, paused" in text
    assert "Group" not in text


def test_share_consumer_names_its_group_and_partitions(cluster: EmbeddedCluster) -> None:
    with KafkaShareConsumer("explained", bootstrap_servers=cluster.bootstrap_servers, group_id="sharing") as consumer:
        text = ""
        expected = ("sharing, a share group: STABLE", "Assignment, 2 partitions: explained-0, explained-1")
        while not all(part in text for part in expected):  # a member is stable before it has its partitions, too
            consumer.poll(100)
            text = consumer.explain()
        assert "KafkaShareConsumer" in pykclient.explain_clients()
    assert "share.acknowledgement.mode=implicit" in text
    assert "KafkaShareConsumer" not in pykclient.explain_clients()


def test_other_threads_may_call_explain(cluster: EmbeddedCluster) -> None:
    texts: list[str] = []
    failures: list[BaseException] = []
    stop = threading.Event()
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer,
        KafkaConsumer("explained", bootstrap_servers=cluster.bootstrap_servers, group_id="asked") as consumer,
    ):

        def ask() -> None:
            while not stop.is_set():
                try:
                    texts.append(producer.explain() + consumer.explain())
                except BaseException as error:  # noqa: BLE001 - whatever it is fails the test
                    failures.append(error)
                    return

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            for number in range(300):
                producer.send("explained", b"%d" % number)
                consumer.poll(1)
        finally:
            stop.set()
            thread.join(30)
    assert not failures
    assert any("in poll() in thread 'MainThread'" in text for text in texts)


def test_explain_in_a_signal_handler_is_refused_with_advice(cluster: EmbeddedCluster) -> None:
    """A handler may interrupt a call that holds a lock, so explain() refuses there. explain_on_signal() may."""
    errors: list[Exception] = []

    def ask(*_: object) -> None:
        try:
            consumer.explain()
        except IllegalStateError as error:
            if not errors:
                consumer.wakeup()
            errors.append(error)

    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("explained", 0)])
        previous = signal.signal(signal.SIGALRM, ask)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)  # again if the first comes before the call
            with pytest.raises(pykclient.errors.WakeupError):
                consumer.poll(30_000)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
    assert "in the middle of poll()" in str(errors[0])


PROGRAM = """
import os, signal, sys
import pykclient
from pykclient import KafkaConsumer, KafkaProducer, KafkaShareConsumer, TopicPartition

pykclient.explain_on_signal()
servers = sys.argv[1]
with KafkaProducer(bootstrap_servers=servers, client_id="p"), KafkaConsumer(bootstrap_servers=servers) as consumer:
    consumer.assign([TopicPartition("explained", 0)])
    print("ready", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGUSR1)
    while "end" not in sys.stdin.readline():
        pass
"""


def test_signal_makes_a_process_explain_itself(cluster: EmbeddedCluster) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), cluster.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        lines: list[str] = []
        while sum("Last warnings and errors" in line for line in lines) < 2:  # the last line of each page
            lines.append(process.stderr.readline())
            assert lines[-1], f"the process ended: {lines}"
        process.stdin.write("end\n")
        process.stdin.flush()
        assert process.wait(30) == 0
    text = "".join(lines)
    assert "<KafkaProducer p>" in text
    assert "<KafkaConsumer client_id=" in text


def test_asyncio_clients_explain_themselves(cluster: EmbeddedCluster) -> None:
    async def main() -> tuple[str, str, str]:
        async with (
            AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="aio-p") as producer,
            AIOKafkaConsumer("explained", bootstrap_servers=cluster.bootstrap_servers, client_id="aio-c") as consumer,
        ):
            await producer.send_and_wait("explained", b"x")
            await consumer.getmany(timeout_ms=1)
            return producer.explain(), consumer.explain(), pykclient.explain_clients()

    producer, consumer, both = asyncio.run(main())
    assert "aio-p" in producer
    assert "none in flight" in producer
    assert "aio-c" in consumer
    assert "subscribe(explained)" in consumer
    assert "aio-p" in both
    assert "aio-c" in both
    assert "aio-p" not in pykclient.explain_clients()
    assert "aio-c" not in pykclient.explain_clients()


def test_warnings_are_kept_at_any_log_level(caplog: pytest.LogCaptureFixture) -> None:
    context = LogContext("[a] ")
    log = context.logger("pykclient.explained")
    caplog.set_level(logging.CRITICAL, "pykclient.explained")
    for number in range(20):
        log.warning("warning %d", number)
    log.info("info")
    assert [problem.message for problem in context.problems] == [f"warning {number}" for number in range(12, 20)]
    assert not caplog.records


def test_log_line_names_its_source_line(caplog: pytest.LogCaptureFixture) -> None:
    log = LogContext("100 % ").logger("pykclient.explained")
    log.warning("%s is here", "a warning")
    (record,) = caplog.records
    assert record.getMessage() == "100 % a warning is here"
    assert record.filename == "test_explanation.py"


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [
        (-1, "0 ms"),
        (12, "12 ms"),
        (999.6, "1.0 s"),
        (1200, "1.2 s"),
        (59_949, "59.9 s"),
        (59_951, "1 min 0 s"),
        (185_000, "3 min 5 s"),
        (7_440_000, "2 h 4 min"),
    ],
)
def test_durations_are_shown_in_readable_units(duration_ms: float, shown: str) -> None:
    assert shown_duration(duration_ms) == shown


def test_sizes_and_counts_are_shown_in_readable_units() -> None:
    assert [shown_size(size) for size in (512, 1536, 32 << 20, 5 << 30)] == ["512 bytes", "1.5 KiB", "32 MiB", "5 GiB"]
    assert [counted(1, "batch", "batches"), counted(1200, "record")] == ["1 batch", "1,200 records"]
