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
    assert len(SNIPPETS) == 11


def test_quick_start_writes_and_reads(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    code = snippet("async def main()")
    assert "localhost:9092" in code
    names(code.replace("localhost:9092", cluster.bootstrap_servers))
    assert capsys.readouterr().out == "0 0\n"
    code = snippet("async def print_flights()")
    assert "localhost:9092" in code
    print_flights = names(code.replace("localhost:9092", cluster.bootstrap_servers))["print_flights"]

    async def main() -> None:
        reading = asyncio.ensure_future(print_flights())
        printed = ""
        while not printed:
            await asyncio.sleep(0.01)
            printed = capsys.readouterr().out
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert printed == "0 0 b'UA' b'1545'\n"

    run(main())


def test_snippet_sends_many_records_in_order(cluster: EmbeddedCluster) -> None:
    copy = names(snippet("async def copy("))["copy"]

    async def main() -> None:
        async with aio.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert await copy(producer, [b"%d" % number for number in range(1_000)]) == list(range(1_000))

    run(main())


def test_snippet_waits_when_the_buffer_is_full(cluster: EmbeddedCluster) -> None:
    forward = names(snippet("async def forward("))["forward"]

    async def main() -> None:
        async with aio.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, buffer_memory=20_000, max_batch_size=2_000
        ) as producer:
            await forward(producer, source(3_000))

    run(main())
    assert values(cluster, "events") == [b"%d" % number for number in range(3_000)]


def test_snippet_reports_failed_records(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    forward = names(snippet("def report("))["forward_and_report"]
    cluster.faults.answer("Produce", RecordTooLargeError())

    async def main() -> None:
        async with aio.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await forward(producer, source(1))

    run(main())
    assert capsys.readouterr().out.startswith("a record was not written:")


def test_snippet_with_asynchronous_serializers_works(cluster: EmbeddedCluster) -> None:
    async def schema_is_known(_value: object) -> None:
        await asyncio.sleep(0)

    defined = names(snippet("async def to_json("), json=json, schema_is_known=schema_is_known)
    run(defined["send_json"](cluster.bootstrap_servers))
    assert values(cluster, "orders")[-1] == b'{"order": 1}'


def test_sigterm_snippet_sends_pending_records(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    serve = names(snippet("async def serve("))["serve"]

    async def work(producer: aio.AIOKafkaProducer) -> None:
        await producer.send("flights", b"sent before the end")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    run(serve(cluster.bootstrap_servers, work))
    assert capsys.readouterr().out == "stopping\n"
    assert values(cluster, "flights")[-1] == b"sent before the end"


async def filled(cluster: EmbeddedCluster, topic: str, count: int) -> None:
    cluster.create_topic(topic, 1)
    async with aio.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number)


def test_snippet_processes_records_in_batches(cluster: EmbeddedCluster) -> None:
    process = names(snippet("async def process_in_batches("))["process_in_batches"]
    seen: list[bytes] = []

    async def handle(record: Any) -> None:
        await asyncio.sleep(0)
        seen.append(record.value)

    async def main() -> None:
        await filled(cluster, "in-batches", 1_000)
        settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
        settings |= {"group_id": "batches", "enable_auto_commit": False}
        async with aio.AIOKafkaConsumer("in-batches", **settings) as consumer:
            processing = asyncio.ensure_future(process(consumer, handle))
            while await consumer.committed(TopicPartition("in-batches", 0)) != 1_000:
                await asyncio.sleep(0.01)
            processing.cancel()
        assert seen == [b"%d" % number for number in range(1_000)]

    run(main())


def test_snippet_listener_saves_state_on_rebalance(cluster: EmbeddedCluster) -> None:
    counts = names(snippet("class Counts("))["Counts"]

    class Store:
        def __init__(self) -> None:
            self.saved: dict[TopicPartition, int] = {}

        async def load(self, partition: TopicPartition) -> int:
            await asyncio.sleep(0)
            return self.saved.get(partition, 0)

        async def save(self, partition: TopicPartition, count: int) -> None:
            self.saved[partition] = count

    store = Store()

    async def main() -> None:
        await filled(cluster, "counted", 10)
        settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
        settings |= {"group_id": "counts", "enable_auto_commit": False}
        for many in (4, 6):
            consumer = aio.AIOKafkaConsumer(**settings)
            listener = counts(consumer, store)
            consumer.subscribe(["counted"], listener=listener)
            async with consumer:
                for _ in range(many):
                    record = await consumer.getone()
                    listener.counts[TopicPartition(record.topic, record.partition)] += 1
                await listener.on_partitions_revoked(consumer.assignment())
        assert store.saved == {TopicPartition("counted", 0): 10}

    run(main())


def test_sigterm_cancels_the_reader_snippet(cluster: EmbeddedCluster) -> None:
    read = names(snippet("async def read("), signal=signal, AIOKafkaConsumer=aio.AIOKafkaConsumer)["read"]
    seen: list[bytes] = []

    async def handle(record: Any) -> None:
        seen.append(record.value)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.ensure_future(filled(cluster, "orders-to-read", 5))
        reading = asyncio.ensure_future(read(cluster.bootstrap_servers, handle))
        with pytest.raises(asyncio.CancelledError):
            await reading

    code = snippet("async def read(").replace('"orders"', '"orders-to-read"')
    read = names(code, signal=signal, AIOKafkaConsumer=aio.AIOKafkaConsumer)["read"]
    run(main())

    async def rest() -> int | None:
        async with aio.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="billing") as consumer:
            return await consumer.committed(TopicPartition("orders-to-read", 0))

    assert (seen, run(rest())) == ([b"0", b"1", b"2"], 2)


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


def test_fastapi_snippet_writes_posted_orders(cluster: EmbeddedCluster) -> None:
    defined = names(snippet("app = FastAPI"), BOOTSTRAP_SERVERS=cluster.bootstrap_servers)
    status, body = run(lifespan_and_request(defined["app"], "/orders/7", b"tea"))
    assert (status, json.loads(body)) == (200, {"partition": 0, "offset": len(values(cluster, "orders")) - 1})
    assert (values(cluster, "orders")[-1], cluster.log(TopicPartition("orders", 0))[-1].key) == (b"tea", b"7")
