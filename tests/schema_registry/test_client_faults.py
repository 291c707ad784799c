"""Answers that no registry gives, interrupted and shared look-ups, forks, event loops that end."""

from __future__ import annotations

import asyncio
import copy
import http.server
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pykclient.schema_registry import (
    AsyncSchemaRegistryClient,
    MessageField,
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
    SerializationContext,
)
from pykclient.schema_registry.avro import AsyncAvroDeserializer, AvroDeserializer
from pykclient.schema_registry.schema_registry_client import BoundedCache
from pykclient.schema_registry.schemas import AssociationCreateOrUpdateRequest, OAuthTokenError
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry
from tests.support.wait import eventually

VALUE = SerializationContext("orders", MessageField.VALUE)
ONCE: dict[str, Any] = {"max.retries": 0, "timeout": 30}


def holding(registry: EmbeddedSchemaRegistry) -> Callable[[], bool]:
    """Hold all answers. The result tells whether a request has arrived."""
    registry.hold()
    registry.delay(0)
    return lambda: registry._faults[-1].left == 0


class Scripted(http.server.ThreadingHTTPServer):
    """Answers every request in the same way."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.body = b"[]"
        self.headers: dict[str, str] = {}
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Scripted

    def _answer(self) -> None:
        self.server.paths.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with Scripted() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join(30)


ASKED: dict[str, Callable[[SchemaRegistryClient], Any]] = {
    "schema": lambda client: client.get_schema(1),
    "guid": lambda client: client.get_schema_by_guid("5c8a9a2e-8b0b-4b7c-9b1e-1f0d1f0d1f0d"),
    "global id": lambda client: client.get_schema_by_global_id(1),
    "types": lambda client: client.get_schema_types(),
    "subjects of an id": lambda client: client.get_subjects_by_schema_id(1),
    "versions of an id": lambda client: client.get_schema_versions(1),
    "register": lambda client: client.register_schema("s", Schema('"int"')),
    "lookup": lambda client: client.lookup_schema("s", Schema('"int"')),
    "subjects": lambda client: client.get_subjects(),
    "latest": lambda client: client.get_latest_version("s"),
    "metadata": lambda client: client.get_latest_with_metadata("s", {"a": "b"}),
    "version": lambda client: client.get_version("s", 1),
    "referenced by": lambda client: client.get_referenced_by("s"),
    "versions": lambda client: client.get_versions("s"),
    "delete subject": lambda client: client.delete_subject("s"),
    "delete version": lambda client: client.delete_version("s", 1),
    "set compatibility": lambda client: client.set_compatibility("s", "NONE"),
    "compatibility": lambda client: client.get_compatibility("s"),
    "test": lambda client: client.test_compatibility("s", Schema('"int"')),
    "set config": lambda client: client.set_config("s"),
    "config": lambda client: client.get_config("s"),
    "delete config": lambda client: client.delete_config("s"),
    "mode": lambda client: client.get_mode("s"),
    "set mode": lambda client: client.update_mode("s", "READONLY"),
    "delete mode": lambda client: client.delete_mode("s"),
    "global mode": lambda client: client.get_global_mode(),
    "set global mode": lambda client: client.update_global_mode("READONLY"),
    "contexts": lambda client: client.get_contexts(),
    "associations": lambda client: client.get_associations_by_resource_name("t", "-"),
    "create association": lambda client: client.create_association(AssociationCreateOrUpdateRequest("t")),
    "warm up": lambda client: client.warm_up(["t"]),
    "deserializer": lambda client: AvroDeserializer(client)(b"\0\0\0\0\1\2", VALUE),
}


BODIES = (b"5", b'"text"', b'[{"id": "x"}, 5]', b'{"schema": 5, "id": "x"}', b"", b"[" * 90_000)


@pytest.mark.parametrize("name", list(ASKED))
def test_json_that_no_registry_returns_is_an_error_of_the_registry(scripted: Scripted, name: str) -> None:
    for body in BODIES:
        scripted.body = body
        with SchemaRegistryClient({"url": scripted.url, **ONCE}) as client:
            try:
                found = ASKED[name](client)
            except SchemaRegistryError as error:
                failure: SchemaRegistryError | None = error
            else:  # what is optional may be missing
                failure = None
                assert found is not None, body
            assert failure is not None or name not in NEEDED, body
            if failure is not None:
                assert scripted.url in str(failure)
                assert not failure.is_unknown


#: What serializers need of an answer.
NEEDED = frozenset(("schema", "guid", "register", "lookup", "latest", "version", "warm up", "deserializer"))


def test_redirect_is_named_and_not_followed(scripted: Scripted) -> None:
    scripted.status, scripted.headers = 302, {"Location": "https://u:hush@elsewhere.example/x?key=hush"}
    with (
        SchemaRegistryClient({"url": scripted.url}) as client,
        pytest.raises(SchemaRegistryError, match=r"redirects to https://elsewhere\.example/x.*url") as caught,
    ):
        client.get_subjects()
    assert caught.value.http_status_code == 302
    assert "hush" not in str(caught.value)
    assert scripted.paths == ["/subjects?deleted=false&deletedOnly=false&offset=0&limit=-1"]


def test_response_without_end_is_cut_off_and_not_asked_for_again(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykclient.schema_registry.rest._MOST_BYTES", 1000)
    scripted.body = b'["' + b"x" * 2000 + b'"]'
    with (
        SchemaRegistryClient({"url": scripted.url, "retries.wait.ms": 1}) as client,
        pytest.raises(SchemaRegistryError, match="more than 1000 bytes"),
    ):
        client.get_subjects()
    assert len(scripted.paths) == 1


@pytest.mark.parametrize("subject", ["aufträge/été", ":.ctx:orders-value", "a b?c#d%2F", "orders\n\0", "\U0001f600"])
def test_any_text_can_be_a_subject(client: SchemaRegistryClient, subject: str) -> None:
    number = client.register_schema(subject, Schema('"long"'))
    client.clear_caches()
    assert client.get_latest_version(subject).schema_id == number
    assert client.get_versions(subject) == [1]
    assert client.lookup_schema(subject, Schema('"long"')).version == 1


def test_threads_that_share_a_failed_look_up_have_errors_of_their_own(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    has_arrived = holding(registry)
    reader = AvroDeserializer(client)
    started = threading.Barrier(5)

    def read(topic: str) -> SchemaRegistryError:
        started.wait(30)
        with pytest.raises(SchemaRegistryError) as caught:
            reader(b"\0\0\0\0\7\2", SerializationContext(topic, MessageField.VALUE))
        return caught.value

    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(read, topic) for topic in "abcd"]
        started.wait(30)
        eventually(has_arrived)
        registry.release()
        errors = [future.result(30) for future in futures]
    assert len({id(error) for error in errors}) == 4
    for topic, error in zip("abcd", errors, strict=True):
        assert error.__notes__ == [f"for the value of a record of topic {topic!r}, schema id 7"]


@pytest.mark.parametrize("error", [SchemaRegistryError(404, 40403, "t", "GET x"), OAuthTokenError("no", 401, "body")])
def test_errors_can_be_copied_and_sent_to_other_processes(error: SchemaRegistryError) -> None:
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert (str(other), other.http_status_code) == (str(error), error.http_status_code)


def test_other_threads_ask_again_if_the_one_that_asked_is_interrupted(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = client.register_schema("s", Schema('"long"'))
    client.clear_caches()
    send, waiting, is_first = client.rest.send, threading.Event(), threading.Event()

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if not is_first.is_set():
            is_first.set()
            assert waiting.wait(30)
            raise KeyboardInterrupt
        return send(*args, **kwargs)

    monkeypatch.setattr(client.rest, "send", interrupted)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(client.get_schema, number)
        assert is_first.wait(30)
        others = [threads.submit(client.get_schema, number) for _ in range(2)]
        eventually(lambda: all(other.running() for other in others))
        waiting.set()
        with pytest.raises(KeyboardInterrupt):
            first.result(30)
        assert [other.result(30).schema_str for other in others] == ['"long"'] * 2


#: Forks while a thread waits for a response and another connection is idle.
_FORKING = """
import os, sys, threading, time
from pykclient.schema_registry import SchemaRegistryClient
client = SchemaRegistryClient({"url": sys.argv[1], "max.retries": 0})
client.get_subjects()  # leaves an idle connection
asked = threading.Event()
send = client.rest.send
def sending(*args, **kwargs):
    asked.set()
    return send(*args, **kwargs)
client.rest.send = sending
thread = threading.Thread(target=client.get_schema, args=(int(sys.argv[2]),), daemon=True)
sys.stdin.readline()  # the registry holds its answers
thread.start()
assert asked.wait(30)
pid = os.fork()
if pid:
    print("forked", flush=True)
    thread.join(60)
    _, status = os.waitpid(pid, 0)
    print("parent", client.get_subjects(), os.waitstatus_to_exitcode(status), flush=True)
else:
    assert not client.rest._idle
    print("child", client.get_schema(int(sys.argv[2])).schema_str, client.get_subjects(), flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_child_asks_by_connections_of_its_own(
    registry: EmbeddedSchemaRegistry, client: SchemaRegistryClient
) -> None:
    number = client.register_schema("s", Schema('"long"'))
    program = [sys.executable, "-W", "ignore", "-c", _FORKING, registry.url, str(number)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        eventually(lambda: any(request.path == "/subjects" for request in registry.requests))
        registry.hold()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "forked\n"
        registry.release()
        out, _ = process.communicate(timeout=60)
    assert sorted(out.splitlines()) == ["child \"long\" ['s']", "parent ['s'] 0"]
    assert process.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_locks_that_a_thread_of_the_parent_held_are_free_in_a_child(client: SchemaRegistryClient) -> None:
    caches = [held for held in vars(client).values() if isinstance(held, BoundedCache)]
    assert caches
    pid = -1
    for cache in caches:
        cache._lock.acquire()
    try:
        pid = os.fork()
        if pid == 0:
            is_free = all(cache._lock.acquire(timeout=30) for cache in caches)
            os._exit(0 if is_free else 1)
    finally:
        for cache in caches:
            cache._lock.release()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_cancelled_awaiter_leaves_a_shared_look_up_to_the_others(registry: EmbeddedSchemaRegistry) -> None:
    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            number = await client.register_schema("s", Schema('"long"'))
            await client.clear_caches()
            has_arrived, before = holding(registry), len(registry.requests)
            tasks = [asyncio.create_task(client.get_schema(number)) for _ in range(3)]
            while not has_arrived():
                await asyncio.sleep(0.001)
            tasks[0].cancel()
            tasks[1].cancel()
            for task in tasks[:2]:
                with pytest.raises(asyncio.CancelledError):
                    await task
            registry.release()
            assert (await asyncio.wait_for(tasks[2], 30)).schema_str == '"long"'
            assert len(registry.requests) == before + 1

    asyncio.run(asyncio.wait_for(main(), 60))


def test_loop_that_ends_during_a_look_up_leaves_the_client_to_the_next_one(
    registry: EmbeddedSchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    client = AsyncSchemaRegistryClient({"url": registry.url})
    number = asyncio.run(client.register_schema("s", Schema('"long"')))
    client.blocking.clear_caches()
    has_arrived = holding(registry)

    async def start() -> asyncio.Task[Schema]:
        task = asyncio.create_task(client.get_schema(number))
        while not has_arrived():
            await asyncio.sleep(0.001)
        return task  # which asyncio.run() cancels

    with caplog.at_level(logging.WARNING):
        asyncio.run(start())
        registry.release()
        assert asyncio.run(asyncio.wait_for(client.get_schema(number), 30)).schema_str == '"long"'
        threads = client._threads
        assert threads is not None
        asyncio.run(client.close())
        threads.shutdown(wait=True)
    assert caplog.records == []


#: Is interrupted by Ctrl-C while the registry does not answer, and then ends.
_INTERRUPTED = """
import asyncio, sys
from pykclient.schema_registry import AsyncSchemaRegistryClient

async def main():
    async with AsyncSchemaRegistryClient({"url": sys.argv[1], "timeout": 600}) as client:
        print("asking", flush=True)
        await client.get_subjects()

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_program_that_is_interrupted_during_a_look_up_ends(registry: EmbeddedSchemaRegistry) -> None:
    has_arrived = holding(registry)
    program = [sys.executable, "-c", _INTERRUPTED, registry.url]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            eventually(has_arrived)
            process.send_signal(2)
            out, err = process.communicate(timeout=60)  # and not for as long as the registry is silent
        finally:
            process.kill()
    assert (out, err, process.returncode) == ("asking\ninterrupted\n", "", 0)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no alarms")
@pytest.mark.parametrize("is_token", [False, True])
def test_time_limit_by_an_alarm_ends_a_look_up(registry: EmbeddedSchemaRegistry, is_token: bool) -> None:
    def on_alarm(*_: object) -> None:
        raise TimeoutError("the application's own limit")  # which is an OSError

    conf: dict[str, Any] = {"url": registry.url, "retries.wait.ms": 1}
    if is_token:
        conf |= {
            "bearer.auth.credentials.source": "OAUTHBEARER_AZURE_IMDS",
            "bearer.auth.issuer.endpoint.url": f"{registry.url}/token",
        }
    has_arrived = holding(registry)
    before = signal.signal(signal.SIGALRM, on_alarm)

    def ring() -> None:
        eventually(has_arrived)
        os.kill(os.getpid(), signal.SIGALRM)

    alarm = threading.Thread(target=ring)
    try:
        with SchemaRegistryClient(conf) as client:
            alarm.start()
            with pytest.raises(TimeoutError, match="the application's own limit"):
                client.get_subjects()
    finally:
        alarm.join(60)
        signal.signal(signal.SIGALRM, before)


def test_errors_of_asyncio_name_the_record(registry: EmbeddedSchemaRegistry) -> None:
    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            with pytest.raises(SchemaRegistryError) as caught:
                await AsyncAvroDeserializer(client)(b"\0\0\0\0\7\2", VALUE)
            assert caught.value.__notes__ == ["for the value of a record of topic 'orders', schema id 7"]

    asyncio.run(asyncio.wait_for(main(), 60))
