"""The code of docs/asyncio.md runs as it is printed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykclient import aio
from pykclient.errors import RecordTooLargeError
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.aio.loops import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "asyncio.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        for topic in ("flights", "lines", "events", "orders"):
            made.create_topic(topic, 1)
        yield made


def snippet(beginning: str) -> str:
    """Return the snippet that contains a line with this beginning."""
    (found,) = [text for text in SNIPPETS if re.search(rf"^{re.escape(beginning)}", text, re.MULTILINE)]
    return str(found)


def names(code: str, **given: Any) -> dict[str, Any]:
    """Run a snippet; return the names that it defines."""
    defined: dict[str, Any] = {"asyncio": asyncio, "AIOKafkaProducer": aio.AIOKafkaProducer, **given}
    exec(compile(code, "asyncio.md", "exec"), defined)
    return defined


def values(cluster: EmbeddedCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.log(TopicPartition(topic, 0))]


async def source(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        await asyncio.sleep(0)
        yield b"%d" % number


def test_each_snippet_is_tested() -> None:
    assert len(SNIPPETS) == 7


def test_the_quick_start(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    code = snippet("async def main()")
    assert "localhost:9092" in code
    names(code.replace("localhost:9092", cluster.bootstrap_servers))
    assert capsys.readouterr().out == "0 0\n"


def test_many_records(cluster: EmbeddedCluster) -> None:
    copy = names(snippet("async def copy("))["copy"]

    async def main() -> None:
        async with aio.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert await copy(producer, [b"%d" % number for number in range(1_000)]) == list(range(1_000))

    run(main())


def test_back_pressure(cluster: EmbeddedCluster) -> None:
    forward = names(snippet("async def forward("))["forward"]

    async def main() -> None:
        async with aio.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, buffer_memory=20_000, max_batch_size=2_000
        ) as producer:
            await forward(producer, source(3_000))

    run(main())
    assert values(cluster, "events") == [b"%d" % number for number in range(3_000)]


def test_failures_are_reported(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    forward = names(snippet("def report("))["forward_and_report"]
    cluster.faults.answer("Produce", RecordTooLargeError())

    async def main() -> None:
        async with aio.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await forward(producer, source(1))

    run(main())
    assert capsys.readouterr().out.startswith("a record was not written:")


def test_asynchronous_serializers(cluster: EmbeddedCluster) -> None:
    async def schema_is_known(_value: object) -> None:
        await asyncio.sleep(0)

    defined = names(snippet("async def to_json("), json=json, schema_is_known=schema_is_known)
    run(defined["send_json"](cluster.bootstrap_servers))
    assert values(cluster, "orders")[-1] == b'{"order": 1}'


def test_a_graceful_shutdown(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    serve = names(snippet("import signal"))["serve"]

    async def work(producer: aio.AIOKafkaProducer) -> None:
        await producer.send("flights", b"sent before the end")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    run(serve(cluster.bootstrap_servers, work))
    assert capsys.readouterr().out == "stopping\n"
    assert values(cluster, "flights")[-1] == b"sent before the end"


async def lifespan_and_request(app: Any, path: str, body: bytes) -> tuple[int, bytes]:
    """Start an ASGI application, post to it, and shut it down; return the response's status and body."""
    to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    state: dict[str, Any] = {}
    lifespan = asyncio.ensure_future(app({"type": "lifespan", "state": state}, to_app.get, from_app.put))
    to_app.put_nowait({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "state": state,
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    to_app.put_nowait({"type": "lifespan.shutdown"})
    await lifespan
    assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_fastapi(cluster: EmbeddedCluster) -> None:
    defined = names(snippet("from contextlib"), BOOTSTRAP_SERVERS=cluster.bootstrap_servers)
    status, body = run(lifespan_and_request(defined["app"], "/orders/7", b"tea"))
    assert (status, json.loads(body)) == (200, {"partition": 0, "offset": len(values(cluster, "orders")) - 1})
    assert (values(cluster, "orders")[-1], cluster.log(TopicPartition("orders", 0))[-1].key) == (b"tea", b"7")
