"""The commands in the documentation run as they are printed, against an embedded cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import examples
from pykclient import KafkaConsumer, KafkaProducer
from pykclient.admin import Admin
from pykclient.schema_registry import Schema, SchemaRegistryClient
from pykclient.testing import EmbeddedCluster, EmbeddedSchemaRegistry

ROOT = Path(examples.__file__).parents[1]
PAGES = (
    "README.md",
    "docs/quickstart.md",
    "docs/cli.md",
    "docs/testing.md",
    "docs/tutorials/order-service.md",
    "docs/spark.md",
)
#: A record schema that the commands of the page on schemas register, and a later form of it.
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]}
LATER_ORDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "item", "type": "string", "default": ""}]}
#: Commands that run until somebody ends them. They are ended once they have printed a line.
ENDLESS = re.compile(r"--watch|^pykclient embedded")
#: Commands that do not run here, and why.
NOT_RUN = {
    "tail -f orders.log | pykclient produce orders": "never ends, and prints nothing",
}
#: What a command needs that asks on a terminal.
ANSWERS = {
    "pykclient topics delete-records orders --before @-7d": " --yes",
    "pykclient users set alice --mechanism SCRAM-SHA-512": " <<< new-secret",
}


def commands(page: str) -> list[str]:
    """Return the lines of a page's blocks that call ``pykclient``, without comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*).*?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    shown = [line for language, block in blocks if language in {"", "console"} for line in block.splitlines()]
    lines = [re.sub(r"\s{2,}#.*", "", line).removeprefix("$ ").strip() for line in shown]
    return [line for line in lines if re.search(r"(^|\| )(pykclient|python -m pykclient\S*) ", line)]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Three brokers with records, and with groups that have committed."""
    with EmbeddedCluster(brokers=3) as running:
        servers = running.bootstrap_servers
        for topic in ("orders", "copy", "shipments", "orders.dead"):
            running.create_topic(topic, partitions=2)
        with KafkaProducer(bootstrap_servers=servers) as producer:
            for topic in ("orders", "shipments", "orders.dead"):
                producer.send(topic, key=b"7", value=b"tea", headers=[("reason", b"none")]).get(10)
        for group in ("tower", "billing", "shipping"):
            with KafkaConsumer(
                "orders", bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
            ) as consumer:
                while not consumer.poll(timeout_ms=1000):
                    pass
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that the commands read."""
    (tmp_path / "flights.csv").write_text("UA,1545\nAA,1141\n", encoding="utf-8")
    (tmp_path / "orders.txt").write_text("tea\ncoffee\n", encoding="utf-8")
    (tmp_path / "keyed.txt").write_text("7:tea\n8:coffee\n", encoding="utf-8")
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    return tmp_path


def run(command: str, servers: str, folder: Path, **settings: str) -> int:
    """Run a line of a shell, and return its exit code; 0 for an endless command that has printed a line.

    ``settings`` are environment variables.
    """
    line = command + ANSWERS.get(command, "")
    line = re.sub(r"(localhost|broker1):9092", servers.split(",", maxsplit=1)[0], line)
    line = line.replace("--port 9092", "--port 0")
    line = re.sub(r"(^|\| )pykclient ", rf"\1{sys.executable} -m pykclient ", line)
    line = re.sub(r"(^|\| )python ", rf"\1{sys.executable} ", line)
    environment = {**os.environ, "PYKCLIENT_BOOTSTRAP_SERVERS": servers, "XDG_CONFIG_HOME": str(folder), **settings}
    endless = ENDLESS.search(command) is not None
    process = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        if endless:
            return 0 if process.stdout.readline() else process.wait(60)
        process.communicate(timeout=60)
        return process.returncode
    finally:
        if endless:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=60)


@pytest.mark.timeout(240)
@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_succeed(page: str, cluster: EmbeddedCluster, folder: Path) -> None:
    pytest.importorskip("click")
    found = [command for command in commands(page) if command not in NOT_RUN]
    assert found
    if page == "docs/cli.md":
        assert {*NOT_RUN, *ANSWERS} <= set(commands(page))
    assert {command: code for command in found if (code := run(command, cluster.bootstrap_servers, folder))} == {}


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_commands_of_the_schema_page_succeed(folder: Path) -> None:
    pytest.importorskip("click")
    pytest.importorskip("fastavro")
    (folder / "order.avsc").write_text(json.dumps(LATER_ORDER), encoding="utf-8")
    (folder / "orders.jsonl").write_text('{"number": 7, "item": "tea"}\n', encoding="utf-8")
    found = commands("docs/schemas.md")
    assert len(found) == 7
    with EmbeddedCluster() as cluster, EmbeddedSchemaRegistry() as registry:
        for topic in ("orders", "orders-dead"):
            cluster.create_topic(topic, partitions=1)
        with SchemaRegistryClient({"url": registry.url}) as client:
            client.register_schema("orders-value", Schema(json.dumps(ORDER), "AVRO"))
        codes = {
            command: run(command, cluster.bootstrap_servers, folder, SCHEMA_REGISTRY_URL=registry.url)
            for command in found[:-1]
        }
        assert codes == dict.fromkeys(found[:-1], 0)
        # The last one follows the topic until it is interrupted. It prints a record, and so has joined its group.
        assert "--exit" not in found[-1]
        command = f"{found[-1]} -o beginning --exit"
        assert run(command, cluster.bootstrap_servers, folder, SCHEMA_REGISTRY_URL=registry.url) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_commands_of_the_confluent_page_run_a_program_and_its_tests(folder: Path) -> None:
    program = "import confluent_kafka, pykclient\nassert confluent_kafka.Producer.__module__.startswith('pykclient')\n"
    (folder / "app.py").write_text(program, encoding="utf-8")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_app.py").write_text(f"def test_app():\n    import app\n\n{program}", encoding="utf-8")
    found = commands("docs/from-confluent.md")
    assert len(found) == 2
    assert {command: run(command, "localhost:1", folder) for command in found} == dict.fromkeys(found, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_commands_of_the_fastapi_tutorial_store_an_order(folder: Path) -> None:
    pytest.importorskip("uvicorn")
    page = (ROOT / "docs/tutorials/fastapi.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```console\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    _, serve, order = block.splitlines()
    with EmbeddedCluster() as cluster:
        for topic in ("orders", "shipments"):
            cluster.create_topic(topic, partitions=1)
        server = subprocess.Popen(
            [sys.executable, "-m", *serve.split(), "--port", "0"],
            cwd=ROOT,
            env={**os.environ, "BOOTSTRAP_SERVERS": cluster.bootstrap_servers},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stderr is not None
            port = next(found[1] for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
            command = order.replace("localhost:8000", f"127.0.0.1:{port}")
            response = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
            assert json.loads(response.stdout) == {"partition": 0, "offset": 0}
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=60)


def test_new_partitions_of_the_command_line_page(cluster: EmbeddedCluster, folder: Path) -> None:
    assert run("pykclient topics create flights:6 -b broker1:9092", cluster.bootstrap_servers, folder) == 0
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert len(admin.describe_topics(["flights"]).all()["flights"].partitions) == 6


def test_command_that_fails_is_noticed(cluster: EmbeddedCluster, folder: Path) -> None:
    assert run("pykclient topics describe no-such-topic", cluster.bootstrap_servers, folder) == 1
