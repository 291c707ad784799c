"""Producers that are used or left in ways that they are not meant for: an error or a warning, and never a hang."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import re
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient.aio import AIOKafkaProducer
from pykclient.errors import IllegalStateError
from pykclient.testing import EmbeddedCluster
from pykclient.types import TopicPartition
from tests.aio.loops import LOOPS, run, until

WAIT_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        made.create_topic("t", 1)
        yield made


def values(cluster: EmbeddedCluster) -> list[bytes | None]:
    return [record.value for record in cluster.log(TopicPartition("t", 0))]


@pytest.mark.parametrize("loop", LOOPS)
def test_unclosed_producer_warns_and_sends_buffered_records(cluster: EmbeddedCluster, loop: str) -> None:
    value = f"dropped in {loop}".encode()
    told: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        producers = [AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)]
        await producers[0].start()
        future = await producers[0].send("t", value)
        reference = weakref.ref(producers[0])
        with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):
            producers.clear()
        assert [context["message"][:26] for context in told] == ["Unclosed AIOKafkaProducer "]
        told.clear()
        assert reference() is None
        await future
        assert not told

    run(main(), loop)
    assert value in values(cluster)


def test_producer_is_unusable_after_its_loop(cluster: EmbeddedCluster) -> None:
    async def begin() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)
        await producer.start()
        await producer.send("t", b"never sent")
        return producer

    async def use(producer: AIOKafkaProducer) -> None:
        with pytest.raises(IllegalStateError, match="another event loop"):
            await producer.send("t", b"v")
        with pytest.raises(IllegalStateError, match="another event loop"):
            await producer.flush()
        await producer.stop()
        await producer.stop()

    run(use(run(begin())))
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):
        run(begin())


def test_second_event_loop_is_refused(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:

            def elsewhere() -> None:
                async def use() -> None:
                    for call in (producer.send("t", b"v"), producer.stop()):
                        with pytest.raises(IllegalStateError, match="another event loop"):
                            await call

                run(use())

            await asyncio.to_thread(elsewhere)
            await producer.send_and_wait("t", b"still usable")

    run(main())


def test_loop_argument_is_deprecated_and_checked(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        with pytest.warns(DeprecationWarning, match="`loop` parameter"):
            producer = AIOKafkaProducer(loop=asyncio.get_running_loop(), bootstrap_servers=cluster.bootstrap_servers)
        async with producer:
            await producer.send_and_wait("t", b"v")
        other = asyncio.new_event_loop()
        with pytest.warns(DeprecationWarning, match="`loop` parameter"):
            producer = AIOKafkaProducer(loop=other, bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(IllegalStateError, match="Please create objects with the same loop as running with"):
            await producer.start()
        other.close()

    run(main())


def test_unstarted_producer_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
        gc.collect()


def test_clients_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(AIOKafkaProducer(client_id="mine"))


def test_loop_without_add_reader_fails_start(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.get_running_loop(), "add_reader", refuse)
            with pytest.raises(NotImplementedError):
                await producer.start()
        await producer.start()
        await producer.stop()

    run(main())


def test_a_plugin_that_ends_the_program_ends_the_producer(cluster: EmbeddedCluster) -> None:
    from pykclient import ProducerInterceptor

    class Exit(ProducerInterceptor):
        def on_acknowledgement(self, *_: object) -> None:
            raise SystemExit(3)

    async def main() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, interceptor_classes=[Exit()]
        ) as producer:
            await producer.send_and_wait("t", b"v")  # a listener's exceptions are logged, whatever they are

    run(main())


def test_producer_is_refused_after_a_fork(cluster: EmbeddedCluster) -> None:
    program = f"""
import asyncio, os, sys
from pykclient.aio import AIOKafkaProducer

async def main():
    producer = AIOKafkaProducer(bootstrap_servers={cluster.bootstrap_servers!r})
    await producer.start()
    await producer.send_and_wait("t", b"parent")
    child = os.fork()
    if not child:
        try:
            await producer.send("t", b"child")
        except Exception as error:
            print(type(error).__name__, flush=True)
        await producer.stop()
        os._exit(0)
    os.waitpid(child, 0)
    await producer.send_and_wait("t", b"parent again")
    await producer.stop()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["UseAfterForkError"]), done.stderr


@pytest.mark.parametrize("ending", ["return", "raise SystemExit(0)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_programs_end_promptly_and_send_all_records(cluster: EmbeddedCluster, ending: str) -> None:
    program = f"""
import asyncio, os, signal
from pykclient.aio import AIOKafkaProducer

async def main():
    async with AIOKafkaProducer(bootstrap_servers={cluster.bootstrap_servers!r}, linger_ms=60_000) as producer:
        await producer.send("t", {ending.encode()!r})
        {ending}
        await asyncio.sleep(100)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ending.encode() in values(cluster)


def test_program_without_stop_ends(cluster: EmbeddedCluster) -> None:
    program = f"""
import asyncio
from pykclient.aio import AIOKafkaProducer

async def main():
    global producer
    producer = AIOKafkaProducer(bootstrap_servers={cluster.bootstrap_servers!r})
    await producer.start()
    await producer.send_and_wait("t", b"v")

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0
    assert "Unclosed AIOKafkaProducer" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_package_is_loaded_on_demand() -> None:
    program = "import sys, pykclient; assert not {'asyncio', 'pykclient.aio'} & set(sys.modules), 'loaded'"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_modules_have_the_names_of_aiokafka() -> None:
    from pykclient import aio, errors, types
    from pykclient.aio import errors as its_errors, producer, structs

    assert producer.AIOKafkaProducer is aio.AIOKafkaProducer is aio.AsyncProducer
    assert structs.TopicPartition is types.TopicPartition is aio.TopicPartition
    assert its_errors.KafkaError is errors.KafkaError
    assert its_errors.IllegalOperation is errors.IllegalStateError
    assert its_errors.KafkaConnectionError is errors.KafkaConnectionError
    assert set(aio.__all__) <= set(dir(aio))
    for module, name in ((aio, "Nothing"), (its_errors, "NothingError")):
        with pytest.raises(AttributeError, match=name):
            getattr(module, name)
    for error in (its_errors.ProducerClosed("closed"), its_errors.MissingTopicError("missing")):
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), str(copied)) == (type(error), str(error))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux tells the open descriptors")
def test_stop_closes_all_file_descriptors(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        for round in range(4):
            if round == 2:
                before = len(os.listdir("/proc/self/fd"))
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send_and_wait("t", b"v")
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)

    run(main())


def test_repr_shows_the_client_id(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        assert repr(AIOKafkaProducer(client_id="mine")) == "<AIOKafkaProducer mine>"
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert re.fullmatch(r"<AIOKafkaProducer producer-\d+>", repr(producer))

    run(main())
