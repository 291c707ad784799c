"""The compiled producer path and its Python version: the same calls give the same results."""

from __future__ import annotations

import inspect
import random
import struct
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings, strategies as st

from tests.support.examples import examples
from tests.support.twins import load

MODULES = (
    "pykclient.clock",
    "pykclient.config.producer_config",
    "pykclient.log_context",
    "pykclient.network.environment",
    "pykclient.producer.kafka_producer",
    "pykclient.producer.partitioner.hashing",
    "pykclient.producer.producer_metadata",
    "pykclient.producer.producer_components",
    "pykclient.producer.transactions.transaction_state",
    "pykclient.record.compression",
    "pykclient.record.memory_records_builder",
    "pykclient.types",
    "tests.producer.harness",
    "tests.support.mock_client",
    "tests.support.mock_clock",
)
TOPIC = "orders"


class Twin:
    """The modules of one implementation, by the last part of their names."""

    def __init__(self, implementation: str) -> None:
        self.implementation = implementation
        self._modules = {name.rpartition(".")[2]: module for name, module in load(implementation, MODULES).items()}

    def __getattr__(self, name: str) -> ModuleType:
        return self._modules[name]


@pytest.fixture(scope="module")
def twins() -> tuple[Twin, Twin]:
    return Twin("python"), Twin("c")


class NoThread:
    """A substitute for the sender's thread that sends nothing, so batches stay for inspection."""

    ident = -1

    def start(self) -> None:
        pass

    def join(self, timeout: float | None = None) -> None:
        pass

    def is_alive(self) -> bool:
        return False


def failure(error: BaseException) -> tuple[str, str]:
    return type(error).__name__, str(error)


class BytesSubclass(bytes):
    pass


class StrangeSequence:
    """Headers of an unusual class."""

    def __init__(self, *headers: Any) -> None:
        self._headers = headers

    def __iter__(self) -> Iterator[Any]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


# --- the builder -----------------------------------------------------------------------------------------------------

plain = st.none() | st.binary(max_size=80) | st.integers(0, 400).map(bytes)
hostile_data = st.sampled_from((BytesSubclass(b"sub"), "text", 7, ())) | st.one_of(
    st.builds(bytearray, st.just(b"array")),
    st.builds(lambda: memoryview(b"view")),
    st.builds(lambda: memoryview(b"12345678").cast("I")),
)
data = plain | plain | plain | hostile_data
timestamps = st.integers(-1, 1 << 62) | st.sampled_from((0, 1, (1 << 63) - 1, 1 << 63, -2, -(1 << 70), True))
names = st.text(max_size=20) | st.sampled_from(("\ud800", "ä" * 70, 5, b"name"))
proper_headers = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), plain), max_size=3)
hostile_headers = st.lists(st.tuples(names, data), max_size=2) | st.sampled_from(
    ([("a",)], [["a", b"b"]], [("a", b"b", b"c")], StrangeSequence(("a", b"1")), {"a": b"1"}.items(), "ab", 3)
)


class Append(NamedTuple):
    timestamp: Any
    key: Any
    value: Any
    headers: Any = ()


appends = st.builds(Append, timestamps, data, data, st.just(()) | proper_headers | proper_headers.map(tuple))
hostile_appends = st.builds(Append, timestamps, data, data, hostile_headers)


def build(
    twin: Twin, records: list[Append], codec: str, limit: int, room: int, ratio: float, base_offset: int, magic: int
) -> list[Any]:
    """Return everything observable of a builder, including the bytes of its batch."""
    buffer = bytearray(b"\xaa" * room)
    view = memoryview(buffer) if room % 2 else None  # a view of the buffer keeps it from growing
    builder = twin.memory_records_builder.MemoryRecordsBuilder(
        buffer,
        magic=magic,
        compression=twin.compression.Compression.of(codec),
        write_limit=limit,
        base_offset=base_offset,
    )
    builder.set_estimated_compression_ratio(ratio)
    told: list[Any] = []
    for record in records:
        try:
            told.append(builder.try_append(*record))
        except Exception as error:  # noqa: BLE001 - whatever it is, the twin has to raise it as well
            told.append(failure(error))
        told += [builder.num_records, builder.estimated_size_in_bytes, builder.is_full, builder._position]
        told += [builder._base_timestamp, builder._last_offset, builder._max_timestamp, builder._uncompressed_size]
    try:
        told.append(bytes(builder.build()))
        told.append(tuple(builder.info()))
    except Exception as error:  # noqa: BLE001 - whatever it is, the twin has to raise it as well
        told.append(failure(error))
    told += [builder.try_append(0, None, None), bytes(buffer), len(view or b"")]
    return told


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(appends | hostile_appends, max_size=12),
    st.sampled_from(("none", "none", "gzip", "lz4")),
    st.integers(0, 2000),
    st.integers(0, 1500),
    st.floats(0.1, 1.5),
    st.sampled_from((0, 1, 1 << 40, (1 << 63) - 40)),
    st.sampled_from((2, 2, 2, 1)),
)
@example(  # the timestamp delta does not fit 64 bits
    records=[Append(-1, None, None, ()), Append((1 << 63) - 1, None, None, ())],
    codec="none",
    limit=0,
    room=0,
    ratio=1.0,
    base_offset=0,
    magic=2,
)
def test_python_and_c_build_same_batches(
    twins: tuple[Twin, Twin],
    records: list[Append],
    codec: str,
    limit: int,
    room: int,
    ratio: float,
    base_offset: int,
    magic: int,
) -> None:
    python, c = (build(twin, records, codec, limit, room, ratio, base_offset, magic) for twin in twins)
    assert c == python


# --- the hash --------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=70))
def test_python_and_c_murmur2_are_equal(twins: tuple[Twin, Twin], key: bytes) -> None:
    python, c = (twin.hashing.murmur2 for twin in twins)
    assert c(key) == python(key) == c(bytearray(key)) == python(bytearray(key))


@pytest.mark.parametrize("key", ["text", 5, None])
def test_murmur2_refuses_other_types(twins: tuple[Twin, Twin], key: Any) -> None:
    for twin in twins:
        with pytest.raises((TypeError, struct.error)):
            twin.hashing.murmur2(key)


# --- the producer ----------------------------------------------------------------------------------------------------


def serialize(value: Any) -> Any:
    """Serialize, or fail, depending on the value."""
    if value == b"raise":
        raise ValueError("no")
    if value == b"none":
        return None
    if value == b"text":
        return "text"
    if value == b"array":
        return bytearray(b"array")
    return value if value is None or type(value) is bytes else repr(value).encode()


class World:
    """A producer without a thread, and a record of its results."""

    def __init__(self, twin: Twin, config: dict[str, Any], seed: int, auto_tick_ms: int) -> None:
        self.twin = twin
        # Other tests of this process, or the example before, may have taught one of the twins another ratio.
        twin.compression.CompressionRatioEstimator.reset_estimation(TOPIC)
        self.clock = clock = twin.mock_clock.MockClock(auto_tick_ms=auto_tick_ms)
        settings = {"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 20, "linger.ms": 5, **config}
        producer_config = twin.producer_config.ProducerConfig(settings)
        metadata = twin.producer_metadata.ProducerMetadata(
            10, 10, 300_000, 300_000, twin.log_context.LogContext(), clock, rng=random.Random(seed)
        )
        client = twin.mock_client.MockClient(clock, metadata)
        metadata.add(TOPIC, clock.now_ms())
        leaders = {twin.types.TopicPartition(TOPIC, partition): partition % 2 for partition in range(3)}
        client.update_metadata(twin.harness.metadata_response(leaders))
        self.environment = _environment(twin, clock, seed)
        self.parts = twin.producer_components.ProducerComponents(producer_config, self.environment, client, metadata)
        self.producer = twin.kafka_producer.KafkaProducer.of_components(producer_config, self.parts)
        self.told: list[Any] = []
        self.futures: list[Any] = []

    def send(self, listens: bool, *arguments: Any) -> None:
        def on_delivery(error: Exception | None, metadata: Any) -> None:
            self.told.append((None if error is None else failure(error), tuple(metadata)))

        try:
            future = self.producer.send(*arguments, **({"on_delivery": on_delivery} if listens else {}))
        except Exception as error:  # noqa: BLE001 - whatever it is, the twin has to raise it as well
            self.told.append(failure(error))
        else:
            self.futures.append(future)
            self.told.append((repr(future), future.index, future.done(), failure(future.exception or Exception())))

    def send_record(self, *arguments: Any) -> None:
        self.send(False, self.twin.types.ProducerRecord(*arguments))

    def tick(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)

    def complete(self, fails: bool) -> None:
        """Complete the oldest batch of each partition."""
        accumulator = self.parts.accumulator
        register = accumulator.register
        for info in list(accumulator._topics.values()):
            for queue in list(info.queues.values()):
                batch = self.take(queue)
                if batch is None:
                    continue
                self.tell_batch(batch)
                if fails:
                    register.fail(batch, KeyError("refused"))
                else:
                    register.succeed(batch, 1000, -1)

    def take(self, queue: Any) -> Any:
        """Take the oldest batch of ``queue``, as the sender drains it; return None if there is none."""
        with queue.lock:
            if not queue.batches:
                return None
            self.parts.accumulator.register.take(queue.batches[0])
            return queue.batches.popleft()

    def split(self) -> None:
        accumulator = self.parts.accumulator
        if self.parts.id_manager is not None:
            return
        for info in list(accumulator._topics.values()):
            for queue in list(info.queues.values()):
                batch = self.take(queue)
                if batch is not None:
                    batch.close()
                    self.told.append(accumulator.register.split(batch))

    def tell_batch(self, batch: Any) -> None:
        batch.close()
        self.told += [repr(batch), bytes(batch.records), batch.max_record_size, batch.appended_bytes]
        self.told += [batch.estimated_size_in_bytes, batch.created_ms, len(batch.produce_future.listeners)]

    def fatal(self) -> None:
        if self.parts.id_manager is not None:
            self.parts.id_manager.transition_to_fatal_error(ValueError("fatal"))

    def grow(self) -> None:
        """Add partitions to the topic."""
        tp = self.twin.types.TopicPartition
        self.parts.client.update_metadata(self.twin.harness.metadata_response({tp(TOPIC, p): p % 2 for p in range(5)}))

    def stop_appends(self) -> None:
        self.parts.accumulator.close()

    def close(self) -> None:
        self.producer.close(0)

    def end(self) -> list[Any]:
        accumulator = self.parts.accumulator
        for topic, info in accumulator._topics.items():
            sticky = info.partitioner.sticky
            self.told.append((topic, sticky and (sticky.partition, sticky.produced_bytes)))
        for _ in range(50):
            self.complete(False)
        self.told += [failure(f.exception) if f.exception else f.value and tuple(f.value) for f in self.futures]
        self.told += [accumulator.has_incomplete, accumulator._pool.available_memory, self.clock.wall_ms()]
        self.producer.close(0)
        return self.told


def _environment(twin: Twin, clock: Any, seed: int) -> Any:
    class Environment(twin.environment.SystemEnvironment):  # type: ignore[name-defined, misc]
        def new_rng(self) -> random.Random:
            return random.Random(seed)

        def new_thread(self, run: Any, name: str) -> NoThread:
            return NoThread()

    return Environment(clock)


topics = st.just(TOPIC) | st.just(TOPIC) | st.just(TOPIC) | st.sampled_from(("unknown", "", None, 5, b"orders"))
partitions = st.none() | st.none() | st.integers(-1, 5) | st.sampled_from((True, 1.0, "1", 1 << 70))
send_timestamps = st.none() | st.none() | timestamps | st.sampled_from((1.5, "now", b""))
send_headers = st.none() | st.none() | proper_headers | proper_headers.map(tuple) | hostile_headers
moody = st.sampled_from((b"raise", b"none", b"text", b"array", 5, (1, 2)))
send_data = data | moody | st.just(bytes(3000))
ordinary = st.tuples(st.just("send"), st.booleans(), st.just(TOPIC), plain, plain)
unusual = st.tuples(
    st.just("send"), st.booleans(), topics, send_data, send_data, send_headers, partitions, send_timestamps
)
whole = st.tuples(st.just("send_record"), topics, send_data, send_data, proper_headers, partitions, send_timestamps)
events = st.one_of(
    st.tuples(st.just("tick"), st.integers(1, 1000)),
    st.tuples(st.just("complete"), st.booleans()),
    st.sampled_from((("split",), ("split",), ("grow",), ("fatal",), ("stop_appends",), ("close",))),
)
steps = st.lists(st.one_of(ordinary, ordinary, ordinary, unusual, unusual, whole, events), max_size=40)
configs = st.fixed_dictionaries(
    {
        "batch.size": st.sampled_from((0, 120, 400, 1500)),
        "buffer.memory": st.sampled_from((2000, 6000, 100_000)),
        "enable.idempotence": st.booleans(),
        "partitioner.ignore.keys": st.booleans(),
        "compression.type": st.sampled_from(("none", "none", "gzip")),
        "max.request.size": st.sampled_from((500, 1_000_000)),
    },
    optional={
        "key.serializer": st.just(serialize),
        "value.serializer": st.just(serialize),
        "partitioner.class": st.sampled_from(("RoundRobinPartitioner", "UniformStickyPartitioner")),
    },
)


def run(twin: Twin, config: dict[str, Any], todo: list[tuple[Any, ...]], seed: int, auto_tick_ms: int) -> list[Any]:
    world = World(twin, config, seed, auto_tick_ms)
    for name, *arguments in todo:
        getattr(world, name)(*arguments)
    return world.end()


@settings(max_examples=examples(300), deadline=None)
@given(configs, steps, st.integers(0, 9), st.sampled_from((0, 0, 1)))
@example(  # the batch has a little room left behind its first record, which is as large as batch.size allows
    config={
        "batch.size": 0,
        "buffer.memory": 2000,
        "enable.idempotence": False,
        "partitioner.ignore.keys": False,
        "compression.type": "gzip",
        "max.request.size": 500,
    },
    todo=[
        ("send", False, TOPIC, bytes(191), None),
        ("send", False, TOPIC, None, None),
        ("send", False, TOPIC, None, bytes(45)),
    ],
    seed=2,
    auto_tick_ms=0,
)
def test_python_and_c_producers_behave_alike(
    twins: tuple[Twin, Twin], config: dict[str, Any], todo: list[tuple[Any, ...]], seed: int, auto_tick_ms: int
) -> None:
    python, c = (run(twin, config, todo, seed, auto_tick_ms) for twin in twins)
    assert c == python


def test_python_and_c_producers_fill_same_batches(twins: tuple[Twin, Twin]) -> None:
    rng = random.Random(5)
    todo: list[tuple[Any, ...]] = []
    for number in range(3000):
        key = None if rng.random() < 0.5 else b"key-%d" % rng.randrange(50)
        todo.append(("send", number % 50 == 0, TOPIC, bytes(rng.randrange(200)), key))
        if number % 400 == 0:
            todo.append(("complete", number % 800 == 0))
    for memory in (10_000_000, 20_000):  # with less, batches start small and borrow
        config = {"batch.size": 4000, "buffer.memory": memory, "enable.idempotence": False}
        python, c = (run(twin, config, todo, 3, 0) for twin in twins)
        assert c == python


def test_full_batch_is_closed_and_reported_to_sender(twins: tuple[Twin, Twin]) -> None:
    """Otherwise it would linger, if the next batch is for another partition."""
    told = []
    for twin in twins:
        world = World(twin, {"batch.size": 400, "linger.ms": 1000}, 2, 0)
        accumulator = world.parts.accumulator
        changes: list[Any] = []
        for number in range(60):
            world.send(False, TOPIC, bytes(90), None if number % 3 else b"key")
            changes.append([tuple(queue.topic_partition) for queue in accumulator.waiting.changed_queues])
            accumulator.waiting.changed_queues.clear()
            queues = accumulator._topics[TOPIC].queues.values()
            changes.append([[batch.is_full for batch in queue.batches] for queue in queues])
        assert any(len(queues) > 1 for queues in changes[::2])
        told.append((changes, world.end()))
    assert told[0] == told[1]


def test_compiled_send_replaces_python_send(twins: tuple[Twin, Twin]) -> None:
    python, c = (twin.kafka_producer.KafkaProducer for twin in twins)
    assert inspect.isfunction(python.send)
    assert not inspect.isfunction(c.send)
    assert c.send.__doc__ == python.send.__doc__
    assert list(inspect.signature(c.send).parameters) == list(inspect.signature(python.send).parameters)


def test_ordinary_records_take_compiled_path(twins: tuple[Twin, Twin], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinary records take the compiled path; a fallback would be slow without any other symptom."""
    world = World(twins[1], {"value.serializer": serialize}, 1, 0)
    for partition in (None, 0, 1, 2):
        world.send(False, TOPIC, b"v", None, None, partition)
    left: list[Any] = []
    monkeypatch.setattr(type(world.producer), "_do_send", lambda *arguments: left.append(arguments))
    for key in (None, b"", b"a", b"another key"):
        for headers in (None, (), [("h", b"x"), ("n", None)]):
            for partition in (None, 1):
                for timestamp_ms in (None, 5):
                    world.send(True, TOPIC, b"v", key, headers, partition, timestamp_ms)
    world.send(False, TOPIC, {"to": "serialize"})
    assert not left
    assert len(world.futures) == 4 + 48 + 1
    monkeypatch.undo()
    world.end()


def test_borrowing_takes_compiled_path(twins: tuple[Twin, Twin], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is short, most batches outgrow their first memory."""
    world = World(twins[1], {"batch.size": 4000, "buffer.memory": 7000}, 1, 0)
    pool = world.parts.accumulator._pool
    for partition in (0, 1):
        world.send(False, TOPIC, b"v", None, None, partition)
    left: list[Any] = []
    monkeypatch.setattr(type(world.producer), "_do_send", lambda *arguments: left.append(arguments))
    free = [pool.available_memory]
    for _ in range(10):
        world.send(True, TOPIC, bytes(150), None, None, 1)
        free.append(pool.available_memory)
    assert not left
    assert len(world.futures) == 2 + 10
    assert len(set(free)) > 2  # it borrowed more than once
    monkeypatch.undo()
    world.end()
    assert pool.available_memory == pool.total_memory
