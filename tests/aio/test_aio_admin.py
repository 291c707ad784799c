"""The admin client for asyncio: the same calls as coroutines, on the loop's own thread."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka.admin
import pytest

from pykclient.admin import Admin, ConfigResource
from pykclient.aio import AIOKafkaAdminClient, errors as aio_errors
from pykclient.errors import (
    GroupIdNotFoundError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaTimeoutError,
    TopicExistsError,
)
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.aio.loops import run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3) as made:
        yield made


def test_generated_file_is_up_to_date() -> None:
    command = [sys.executable, "tools/aio_admin.py", "src/pykclient/aio/admin.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr


def test_methods_and_signatures_equal_the_blocking_clients() -> None:
    calls = {name for name, found in vars(Admin).items() if not name.startswith("_") and callable(found)}
    assert len(calls) > 40
    for name in calls:
        ours = getattr(AIOKafkaAdminClient, name)
        assert inspect.iscoroutinefunction(ours)
        assert inspect.signature(ours) == inspect.signature(getattr(Admin, name))


def test_calls_run_at_the_same_time_on_the_loops_thread(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        before = threading.active_count()
        async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            names = [f"t{number}" for number in range(5)]
            created = await asyncio.gather(*(admin.create_topics({name: {"num_partitions": 2}}) for name in names))
            for name, results in zip(names, created, strict=True):
                assert results[name].num_partitions == 2
            assert sorted(topic.name for topic in await admin.list_topics()) == names
            again = await admin.create_topics(["t0"])
            assert isinstance(again.failed["t0"], TopicExistsError)
            configs = await admin.describe_configs([ConfigResource("topic", "t0")])
            assert "retention.ms" in configs[ConfigResource("topic", "t0")]
            offsets = await admin.list_offsets({TopicPartition("t0", 1): -1})
            assert offsets[TopicPartition("t0", 1)].offset == 0
            assert (await admin.describe_groups(["nobody"])).failed
            assert len((await admin.describe_cluster()).nodes) == 3
            assert threading.active_count() == before
            assert admin.metrics()
            (await admin.delete_topics(names)).all()
        assert await admin.close() is None  # type: ignore[func-returns-value]

    run(main())


def test_a_cancelled_call_leaves_the_client_usable(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            task = asyncio.ensure_future(admin.list_topics())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await admin.list_topics() == []

    run(main())


def test_close_ends_calls_in_progress() -> None:
    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers="127.0.0.1:1")
        await admin.start()
        task = asyncio.ensure_future(admin.list_topics())
        await asyncio.sleep(0)
        await admin.close()
        with pytest.raises(IllegalStateError, match="closed during the call"):
            await task
        with pytest.raises(IllegalStateError, match="closed"):
            await admin.list_topics()

    run(main())


def test_error_messages_name_the_fix() -> None:
    async def main() -> None:
        with pytest.raises(IllegalArgumentError, match="bootstrap_servers="):
            AIOKafkaAdminClient("localhost:9092")  # type: ignore[arg-type]
        admin = AIOKafkaAdminClient(bootstrap_servers="127.0.0.1:1")
        assert "not started" in repr(admin)
        with pytest.raises(IllegalStateError, match="async with"):
            await admin.list_topics()
        async with admin:
            with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1"):
                await admin.list_topics(timeout_ms=200)
            with pytest.raises(IllegalArgumentError, match="new_topics"):
                await admin.create_topics("abc")
            with pytest.raises(IllegalStateError, match="started before"):
                await admin.start()
            with pytest.raises(TypeError, match="pickled"):
                admin.__reduce__()

    run(main())


def test_client_refuses_another_event_loop(cluster: EmbeddedCluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)

    async def begin() -> None:
        await admin.start()
        await admin.list_topics()

    async def go_on() -> None:
        with pytest.raises(IllegalStateError, match="another event loop"):
            await admin.list_topics()
        await admin.close()

    asyncio.run(begin())
    asyncio.run(go_on())


def test_a_given_loop_must_be_the_one_that_runs_start(cluster: EmbeddedCluster) -> None:
    async def start(loop: asyncio.AbstractEventLoop) -> None:
        with pytest.warns(DeprecationWarning, match="`loop` parameter"):
            client = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, loop=loop)
        async with client:
            await client.describe_cluster()

    async def with_the_running_loop() -> None:
        await start(asyncio.get_running_loop())

    run(with_the_running_loop())
    other = asyncio.new_event_loop()
    try:
        with pytest.raises(IllegalStateError, match="another event loop"):
            run(start(other))
    finally:
        other.close()


def test_unclosed_client_warns(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        await admin.start()
        await admin.list_topics()
        with pytest.warns(ResourceWarning, match="never closed"):
            del admin
        await asyncio.sleep(0)

    run(main())


# --- aiokafka's other methods ----------------------------------------------------------------------------------------


def test_all_methods_of_aiokafka_exist_with_their_arguments() -> None:
    for name, theirs in vars(aiokafka.admin.AIOKafkaAdminClient).items():
        if name.startswith("_") or not callable(theirs):
            continue
        assert callable(getattr(AIOKafkaAdminClient, name))
        if name in AIOKAFKAS:
            ours = getattr(AIOKafkaAdminClient, name)
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters), name


AIOKAFKAS = {
    "alter_configs",
    "describe_consumer_groups",
    "find_coordinator",
    "list_consumer_group_offsets",
    "list_consumer_groups",
}


async def _expect_equal_errors(admin: AIOKafkaAdminClient, theirs: aiokafka.admin.AIOKafkaAdminClient) -> None:
    """Expect that the response about a new topic and one that exists reads as in aiokafka."""
    found: Any = await admin.create_topics(["new", "aiokafkas"])
    topics = [aiokafka.admin.NewTopic(name, 1, 1) for name in ("newer", "aiokafkas")]
    expected = (await theirs.create_topics(topics)).to_object()
    assert found.to_object().keys() == expected.keys()
    codes = [(each["error_code"], each.keys()) for each in found.to_object()["topic_errors"]]
    assert codes == [(each["error_code"], each.keys()) for each in expected["topic_errors"]]
    assert [code for code, _ in codes] == [0, 36]
    assert aio_errors.for_code(36) is aio_errors.TopicAlreadyExistsError


def test_group_and_config_methods_work_as_in_aiokafka(cluster: EmbeddedCluster) -> None:
    partitions = [TopicPartition("aiokafkas", number) for number in range(2)]

    async def main() -> None:
        async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            (await admin.create_topics({"aiokafkas": {"num_partitions": 2}})).all()
            (await admin.alter_group_offsets("readers", {partitions[0]: 7})).all()

            theirs = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
            await theirs.start()
            await _expect_equal_errors(admin, theirs)
            assert await admin.find_coordinator("readers") == await theirs.find_coordinator("readers")
            await theirs.close()
            assert await admin.find_coordinator("an id", 1) in {1, 2, 3}
            with pytest.raises(IllegalArgumentError, match="0 for groups or 1 for transactions"):
                await admin.find_coordinator("an id", 2)

            assert ("readers", "") in await admin.list_consumer_groups()
            coordinator = await admin.find_coordinator("readers")
            assert ("readers", "") in await admin.list_consumer_groups([coordinator])
            assert ("readers", "") not in await admin.list_consumer_groups([coordinator % 3 + 1])

            (described,) = await admin.describe_consumer_groups(["readers"])
            assert (described.group_id, described.members) == ("readers", ())
            with pytest.raises(GroupIdNotFoundError):
                await admin.describe_consumer_groups(["readers", "nobody"])

            offsets = await admin.list_consumer_group_offsets("readers")
            assert {tp: found.offset for tp, found in offsets.items()} == {partitions[0]: 7}
            asked = await admin.list_consumer_group_offsets("readers", partitions=partitions)
            assert {tp: found.offset for tp, found in asked.items()} == {partitions[0]: 7, partitions[1]: -1}

            resource = ConfigResource("topic", "aiokafkas", {"retention.ms": "1000"})
            assert (await admin.alter_configs([resource]))[resource] is None
            await admin.alter_configs([ConfigResource("topic", "aiokafkas", {"segment.bytes": "2000000"})])
            entries = (await admin.describe_configs([ConfigResource("topic", "aiokafkas")])).all()
            (found,) = entries.values()
            assert (found["retention.ms"].value, found["segment.bytes"].value) == ("1000", "2000000")

    run(main())
