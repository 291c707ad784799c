"""examples/frameworks: each worker process has clients of its own; Django announces what it has committed."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.frameworks import worker_producer
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.admin import Admin
from pykclient.testing import EmbeddedCluster
from tests.kafka.ports import PortReservations
from tests.support.wait import eventually

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", partitions=1)
        yield cluster


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port for a server of the test's; no other test process takes it meanwhile."""
    ports = PortReservations()
    yield ports.take()
    ports.close()


def ended(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
    """End a process, and return its exit code."""
    process.send_signal(number)
    try:
        return process.wait(60)
    finally:
        process.kill()
        process.wait()


def test_gunicorn_workers_have_a_producer_each(cluster: EmbeddedCluster, free_port: int) -> None:
    pytest.importorskip("gunicorn")
    command = ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{free_port}"]
    command += ["--config", "examples/frameworks/gunicorn_orders.py", "--log-level", "warning"]
    command += ["examples.frameworks.gunicorn_orders:app"]
    process = subprocess.Popen(
        [sys.executable, *command], env=os.environ | {"BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    )
    try:

        def place(number: int) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", free_port, timeout=30)
            try:
                connection.request("POST", f"/{number}", b"tea")
                return connection.getresponse().status
            except ConnectionRefusedError:
                return 0
            finally:
                connection.close()

        eventually(lambda: place(0) == 202, 60.0, "gunicorn accepts an order")
        assert [place(number) for number in range(1, 20)] == [202] * 19
    finally:
        code = ended(process)
    assert code == 0
    assert [record.key for record in cluster.log(ORDERS)] == [b"/%d" % number for number in range(20)]


def test_celery_worker_closes_its_producer(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    pytest.importorskip("celery")
    environment = os.environ | {"BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "CELERY_BROKER": "filesystem://"}
    setup = f"""
from examples.frameworks.celery_orders import app, place_order
app.conf.broker_transport_options = {{
    "data_folder_in": {str(tmp_path)!r}, "data_folder_out": {str(tmp_path)!r}, "control_folder": {str(tmp_path / "c")!r}
}}
"""
    place = setup + "for number in range(10): place_order.delay(str(number), 'tea')"
    subprocess.run([sys.executable, "-c", place], env=environment, check=True, timeout=60)
    work = setup + "app.worker_main(['worker', '--concurrency=1', '--loglevel=ERROR', '--without-mingle'])"
    process = subprocess.Popen([sys.executable, "-c", work], env=environment, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: len(cluster.log(ORDERS)) == 10, 60.0, "the tasks have written their orders")
    finally:
        code = ended(process)
    assert code == 0
    assert {record.key for record in cluster.log(ORDERS)} == {b"%d" % number for number in range(10)}


def test_processes_of_multiprocessing_share_a_group_until_sigterm(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("packed", partitions=1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(20):
            producer.send("orders", key=b"%d" % number, value=b"tea")
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.frameworks.multiprocessing_orders", "2"],
        env=os.environ | {"BOOTSTRAP_SERVERS": cluster.bootstrap_servers},
    )
    packed = TopicPartition("packed", 0)
    try:
        eventually(lambda: len(cluster.log(packed)) == 20, 60.0, "all orders are packed")
    finally:
        code = ended(process)
    assert code == 0
    assert {record.key for record in cluster.log(packed)} == {b"%d" % number for number in range(20)}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert not admin.describe_groups(["packers"])["packers"].members  # both have left
        (committed,) = admin.list_group_offsets("packers")["packers"].values()
        assert committed is not None
        assert committed.offset == 20


def test_commands_of_the_django_program_run(cluster: EmbeddedCluster, free_port: int, tmp_path: Path) -> None:
    pytest.importorskip("django")
    text = (Path(worker_producer.__file__).parent / "django_orders.py").read_text(encoding="utf-8")
    commands = re.findall(r"^    python (-m \S+ \w+)", text, re.MULTILINE)
    assert [command.split()[-1] for command in commands] == ["runserver", "follow"]
    environment = os.environ | {
        "BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "DATABASE": str(tmp_path / "orders.db"),
        "PYTHONUNBUFFERED": "1",
    }
    words = [*commands[0].split(), f"127.0.0.1:{free_port}", "--noreload"]
    web = subprocess.Popen([sys.executable, *words], env=environment, stderr=subprocess.DEVNULL)
    follower = subprocess.Popen(
        [sys.executable, *commands[1].split()], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:

        def status() -> int:
            connection = http.client.HTTPConnection("127.0.0.1", free_port, timeout=30)
            try:
                connection.request("POST", "/orders/7", b"tea")
                return connection.getresponse().status
            except ConnectionRefusedError:
                return 0
            finally:
                connection.close()

        eventually(lambda: status() == 202, 60.0, "Django accepts an order")
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"7 tea\n"
        follower.stdout.close()
    finally:
        for process in (web, follower):
            ended(process)


def test_django_announces_committed_orders_only(
    cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("django")
    monkeypatch.setenv("BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.setenv("DATABASE", str(tmp_path / "orders.db"))
    from django.db import IntegrityError, connections
    from django.test import Client

    from examples.frameworks import django_orders

    worker_producer.worker_producer.cache_clear()
    try:
        client = Client()
        assert client.post("/orders/7", b"tea", content_type="text/plain").status_code == 202
        with pytest.raises(IntegrityError):
            client.post("/orders/7", b"tea again", content_type="text/plain")
        assert client.post("/orders/8", b"coffee", content_type="text/plain").status_code == 202
        worker_producer.close_producer()
        django_orders.follow(max_records=2)
    finally:
        worker_producer.worker_producer.cache_clear()
        connections.close_all()
    assert capfd.readouterr().out.splitlines() == ["7 tea", "8 coffee"]
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.end_offsets([ORDERS]) == {ORDERS: 2}
