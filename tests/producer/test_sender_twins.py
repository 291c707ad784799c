"""The compiled walks over the batches of a node and of a response do what the Python ones do."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.producer.harness import DELIVERY_TIMEOUT_MS, RETRY_BACKOFF_MS, TOPIC
from tests.support.examples import examples
from tests.support.twins import load

MODULES = (
    "pykclient.producer.produce_requests",
    "pykclient.producer.record_accumulator",
    "pykclient.producer.transactions.producer_id_manager",
    "pykclient.producer.batch_register",
    "pykclient.record.compression",
    "pykclient.record.record_batch",
    "pykclient.types",
    "tests.producer.harness",
)
PARTITIONS = 6

Twin = dict[str, ModuleType]


@pytest.fixture(scope="module")
def twins() -> tuple[Twin, Twin]:
    python, c = (
        {name.rpartition(".")[2]: module for name, module in load(implementation, MODULES).items()}
        for implementation in ("python", "c")
    )
    return python, c


class World:
    """A sender whose brokers respond at random, and a record of all that it does."""

    def __init__(self, twin: Twin, config: dict[str, Any], seed: int) -> None:
        self.twin = twin
        self.rng = random.Random(seed)
        self.told: list[Any] = []
        self.futures: list[Any] = []
        self.epoch = 1
        codec = twin["compression"].Compression.of(config.pop("codec"))
        # Other tests of this process may have left an estimate.
        twin["compression"].CompressionRatioEstimator.reset_estimation(TOPIC)
        self.h = twin["harness"].SenderHarness(compression=codec, metadata=self._metadata(), **config)
        if self.h.manager is not None:
            self.append()
            self.h.get_producer_id(13, self.rng.choice((0, 3)))

    def _tp(self, partition: int) -> Any:
        return self.twin["types"].TopicPartition(TOPIC, partition)

    def _metadata(self) -> Any:
        leaders = {self._tp(number): self.rng.choice((0, 0, 0, 1, -1)) for number in range(PARTITIONS)}
        leaders[self._tp(0)] = 0
        return self.twin["harness"].metadata_response(leaders, epoch=self.epoch)

    def append(self) -> None:
        # A batch that could wait for memory would wait for this thread.
        if self.h.pool.available_memory < 5000:
            return
        partition = self.rng.randrange(PARTITIONS)
        listens = self.rng.random() < 0.2

        def on_delivery(error: Exception | None, metadata: Any) -> None:
            self.told.append((partition, type(error).__name__, metadata.offset))

        value = bytes(self.rng.randrange(300))
        self.futures.append(self.h.append(self._tp(partition), value, on_delivery=on_delivery if listens else None))

    def step(self) -> None:
        self.h.run_once_safely()

    def tick(self) -> None:
        self.h.clock.advance(self.rng.choice((1, 3, RETRY_BACKOFF_MS, 500)))

    def expire(self) -> None:
        self.h.clock.advance(DELIVERY_TIMEOUT_MS)

    def rest(self) -> None:
        self.h.clock.advance(self.twin["producer_id_manager"].REST_MS)

    def move(self) -> None:
        """Elect other leaders."""
        self.epoch += self.rng.randrange(2)
        self.h.client.update_metadata(self._metadata())

    def use_up(self) -> None:
        """Leave few sequence numbers to a partition."""
        if self.h.manager is not None:
            entry = self.h.manager._partitions[self._tp(self.rng.randrange(PARTITIONS))]
            if not entry.in_flight and entry.last_acked_sequence >= 0:
                entry.next_sequence = self.twin["record_batch"].MAX_INT32 - self.rng.randrange(3)
                entry.last_acked_sequence = entry.next_sequence - 1

    def respond(self) -> None:
        """Let a broker respond to a request: with success, with errors, for other partitions too, or not at all."""
        requests = self.h.requests()
        if not requests:
            return
        request = self.rng.choice(requests[:2])
        if type(request.request_builder.message).__name__ != "BatchesRequest":
            return
        message = request.request_builder.build(request.request_builder.latest_allowed_version)
        indexes = [partition.index for topic in message.topic_data for partition in topic.partition_data]
        offset = self.rng.choice((0, 1000, -1))
        how = self.rng.random()
        body: Any = None
        if how < 0.7:
            if self.rng.random() < 0.2:
                self.rng.shuffle(indexes)
                indexes = [*indexes[1:], 77]
            written = [(index, 0, offset, self.rng.choice((-1, 5)), 0, 1, 0, 0) for index in indexes]
            topic = ("", self.twin["harness"].TOPIC_ID, written)
            body = self.twin["produce_requests"].WrittenResponse([topic], 0)
        elif how < 0.9:
            codes = {self._tp(index): (self.rng.choice((0, 6, 7, 10, 45, 46, 87, 3)), offset) for index in indexes}
            body = self.twin["harness"].produce_response(codes)
        self.h.client.respond_to_request(request, body, disconnected=body is None)

    def look(self) -> None:
        """Note the state."""
        accumulator = self.h.accumulator
        register, waiting = accumulator.register, accumulator.waiting
        self.told.append((self.h.sent_batches(), self.h.pool.available_memory))
        for batches in (register.incomplete, register.held, register._in_flight):
            self.told.append([self._batch(batch) for batch in batches])
        for id, node in waiting.nodes.items():
            due = [(due_ms, number, queue.topic_partition.partition) for due_ms, number, queue in node.due]
            of_node = [queue.topic_partition.partition for queue in node.waiting]
            self.told.append((id, of_node, due, node.has_due_rest, node.is_blocked))
        changed = [queue.topic_partition.partition for queue in waiting.changed_queues]
        leaderless = [queue.topic_partition.partition for queue in waiting.leaderless]
        self.told.append((changed, leaderless, waiting.next_expiry_ms, waiting.next_look_ms, len(waiting.muted)))
        for info in accumulator._topics.values():
            self.told.append(info.changes)
            for queue in info.queues.values():
                state = (queue.due_ms, queue.last_batch_bytes, queue.leader_epoch, queue.leader and queue.leader.id)
                self.told.append((state, [self._batch(batch) for batch in queue.batches]))
        if self.h.manager is not None:
            for tp, entry in self.h.manager._partitions.items():
                names = ("next_sequence", "last_acked_sequence", "last_acked_offset", "is_known_to_broker")
                numbers = [getattr(entry, name) for name in names]
                in_flight = [self._batch(batch) for batch in entry.in_flight]
                self.told.append((tp.partition, numbers, tuple(entry.producer_id_and_epoch), in_flight))

    def _batch(self, batch: Any) -> tuple[Any, ...]:
        names = ("state", "final_state", "attempts", "base_sequence", "producer_id", "producer_epoch", "created_ms")
        more = ("drained_ms", "last_attempt_ms", "current_leader_epoch", "_attempts_when_leader_last_changed")
        sizes = ("size_in_bytes", "compression_ratio", "record_count", "is_open")
        return (batch.topic_partition.partition, *(getattr(batch, name) for name in (*names, *more, *sizes)))

    def end(self) -> list[Any]:
        for _ in range(30):
            self.step()
            self.respond()
            self.look()
        self.told += [
            (future.done(), type(future.exception).__name__, future._result.base_offset) for future in self.futures
        ]
        return self.told


def run(twin: Twin, config: dict[str, Any], steps: list[str], seed: int) -> list[Any]:
    world = World(twin, dict(config), seed)
    for name in steps:
        getattr(world, name)()
        world.look()
    return world.end()


configs = st.fixed_dictionaries(
    {
        "idempotent": st.sampled_from((True, True, False)),
        "guarantee_message_order": st.sampled_from((False, False, True)),
        "codec": st.sampled_from(("none", "none", "none", "gzip")),
        "batch_size": st.sampled_from((400, 1000)),
        "memory": st.sampled_from((8000, 100_000)),
        "linger_ms": st.sampled_from((0, 2, 5)),
        "max_request_size": st.sampled_from((700, 1 << 20)),
    }
)
usual = st.sampled_from(("append", "append", "append", "step", "tick", "respond"))
steps = st.lists(usual | usual | usual | st.sampled_from(("expire", "rest", "move", "use_up")), min_size=5, max_size=60)


@settings(max_examples=examples(150), deadline=None)
@given(configs, steps, st.integers(0, 1 << 30))
def test_senders_behave_alike(twins: tuple[Twin, Twin], config: dict[str, Any], steps: list[str], seed: int) -> None:
    python, c = (run(twin, config, steps, seed) for twin in twins)
    assert c == python


def test_usual_batches_take_compiled_path(twins: tuple[Twin, Twin], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fallback would be slow without any other symptom."""
    twin = twins[1]
    world = World(twin, {"codec": "none"}, 1)
    leaders = {world._tp(partition): 0 for partition in range(PARTITIONS)}
    world.h.client.update_metadata(twin["harness"].metadata_response(leaders))

    def send_to_all() -> None:
        world.futures = [world.h.append(world._tp(partition)) for partition in range(PARTITIONS)]
        for _ in range(4):
            world.step()
            for request in world.h.requests():
                message = request.request_builder.build(request.request_builder.latest_allowed_version)
                written = [(each.index, 0, 0, -1, 0, 1, 0, 0) for each in message.topic_data[0].partition_data]
                topic = ("", twin["harness"].TOPIC_ID, written)
                world.h.client.respond_to_request(request, twin["produce_requests"].WrittenResponse([topic], 0))

    for _ in range(2):  # the first batch of a partition is not usual
        send_to_all()
    left: list[str] = []
    accumulator = world.h.accumulator
    for part, name in (
        (accumulator, "drain_queue"),
        (accumulator.waiting, "file_queue"),
        (accumulator.register, "succeed"),
        (accumulator.register, "conclude"),
    ):
        monkeypatch.setattr(type(part), name, lambda *_, name=name: left.append(name))
    send_to_all()
    assert not left
    assert all(future.succeeded() for future in world.futures)
