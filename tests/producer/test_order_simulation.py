"""A sender against a model of a broker that checks sequence numbers and loses responses in every way.

The test runs on virtual time and is repeatable from a seed. Each record is written once, in order, at the place that
its future returns.
"""

from __future__ import annotations

import random

import pytest

from pykclient import errors
from pykclient.errors import OutOfOrderSequenceError, RetriableError
from pykclient.network.client_request import ClientRequest
from pykclient.producer.future import FutureRecordMetadata
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.record import DefaultRecordBatch, MemoryRecords
from pykclient.types import TopicPartition
from tests.producer.harness import RETRY_BACKOFF_MS, TOPIC_ID, TP0, TP1, SenderHarness, metadata_response, nodes

NOT_LEADER = errors.NotLeaderOrFollowerError.code
REMEMBERED_BATCHES = 5


class PartitionLog:
    """One partition's log: records, and the last batches of each producer (ProducerStateManager)."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.epoch: int | None = None
        self.batches: list[tuple[int, int, int]] = []  # base sequence, last sequence, base offset

    def append(self, batch: DefaultRecordBatch) -> tuple[int, int]:
        """Append a batch; return (error code, base offset)."""
        values = [record.value for record in batch.records()]
        first, last = batch.base_sequence, batch.base_sequence + len(values) - 1
        if self.epoch is not None and batch.producer_epoch < self.epoch:
            return errors.InvalidProducerEpochError.code, -1
        if batch.producer_epoch == self.epoch:
            for base, end, offset in self.batches:
                if (base, end) == (first, last):
                    return 0, offset
            expected = self.batches[-1][1] + 1
            if first != expected:
                code = errors.DuplicateSequenceError.code if last < expected else errors.OutOfOrderSequenceError.code
                return code, -1
        elif self.epoch is not None and first != 0:
            return errors.OutOfOrderSequenceError.code, -1
        else:
            self.epoch, self.batches = batch.producer_epoch, []  # any sequence is accepted from an unknown producer
        offset = len(self.values)
        self.values += values
        self.batches = [*self.batches, (first, last, offset)][-REMEMBERED_BATCHES:]
        return 0, offset


class Simulation:
    def __init__(self, seed: int, delivery_timeout_ms: int = 10_000_000) -> None:
        self.rng = random.Random(seed)
        self.h = SenderHarness(delivery_timeout_ms=delivery_timeout_ms)
        self.logs = {TP0: PartitionLog(), TP1: PartitionLog()}
        self.leaders = {TP0: 0, TP1: 1}
        self.epoch = 1
        self.sent: dict[TopicPartition, list[tuple[bytes, FutureRecordMetadata]]] = {TP0: [], TP1: []}

    def run(self, steps: int) -> None:
        self.send()
        self.h.get_producer_id()
        actions = [self.send, self.send, self.round, self.round, self.pass_time, self.answer, self.answer, self.fault]
        for _ in range(steps):
            self.rng.choice(actions)()
        for _ in range(2000):
            if not self.h.accumulator.has_incomplete and not self.h.client.requests:
                return
            self.refresh_metadata()
            self.round()
            while self.h.client.requests:
                self.answer()
            self.round()
            self.h.clock.advance(RETRY_BACKOFF_MS)
        raise AssertionError(f"not done: {self.h.sent_batches()}")

    def send(self) -> None:
        tp = self.rng.choice([TP0, TP1])
        value = b"%d" % len(self.sent[tp])
        self.sent[tp].append((value, self.h.append(tp, value)))

    def round(self) -> None:
        self.h.run_once()

    def pass_time(self) -> None:
        self.h.clock.advance(self.rng.choice([1, RETRY_BACKOFF_MS]))

    def refresh_metadata(self) -> None:
        self.h.client.update_metadata(metadata_response(self.leaders, epoch=self.epoch))

    def answer(self) -> None:
        """Process the oldest request of some node and respond to it."""
        request = self.pick()
        if request is not None:
            self.h.client.respond_to_request(request, self.process(request))

    def fault(self) -> None:
        self.rng.choice([self.disconnect, self.disconnect, self.move_leader, self.refuse])()

    def disconnect(self) -> None:
        """Process the first few requests in flight to a node, and disconnect without a response."""
        node = self.rng.choice(nodes(2))
        on_the_way = [request for request in self.h.requests() if request.destination == node.id_string]
        for request in on_the_way[: self.rng.randrange(len(on_the_way) + 1)]:
            self.process(request)
        self.h.client.disconnect(node.id_string)
        if self.rng.random() < 0.5:
            self.refresh_metadata()

    def move_leader(self) -> None:
        tp = self.rng.choice([TP0, TP1])
        self.leaders[tp] = 1 - self.leaders[tp]
        self.epoch += 1
        if self.rng.random() < 0.7:
            self.refresh_metadata()

    def refuse(self) -> None:
        """Refuse a request as a broker that is not ready yet does, and write nothing."""
        request = self.pick()
        if request is not None:
            self.h.client.respond_to_request(request, self.process(request, error_code=NOT_LEADER))

    def pick(self) -> ClientRequest | None:
        heads: dict[str, ClientRequest] = {}
        for request in self.h.requests():
            heads.setdefault(request.destination, request)
        return self.rng.choice(list(heads.values())) if heads else None

    def process(self, request: ClientRequest, error_code: int | None = None) -> ProduceResponse:
        message = request.request_builder.message
        assert isinstance(message, ProduceRequest)
        answers = []
        for topic in message.topic_data:
            for part in topic.partition_data:
                tp = TopicPartition(topic.name, part.index)
                assert part.records is not None
                (batch,) = MemoryRecords(bytes(part.records)).batches()
                assert isinstance(batch, DefaultRecordBatch)
                batch.ensure_valid()
                if error_code is not None or str(self.leaders[tp]) != request.destination:
                    code, offset = NOT_LEADER, -1
                else:
                    code, offset = self.logs[tp].append(batch)
                answers.append(
                    ProduceResponse.PartitionProduceResponse(index=part.index, error_code=code, base_offset=offset)
                )
        topic_response = ProduceResponse.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=answers)
        return ProduceResponse(responses=[topic_response])

    def check(self) -> None:
        for tp, log in self.logs.items():
            assert log.values == [value for value, _ in self.sent[tp]]
            for place, (_, future) in enumerate(self.sent[tp]):
                assert future.get(0).offset in (place, -1)  # -1 if the broker only knew that it is a duplicate
        self.check_memory()

    def check_with_expiry(self) -> None:
        """Check the log when records may fail, written or not.

        The log has every successful record, no duplicate, and no record out of order.
        """
        for tp, log in self.logs.items():
            numbers = [int(value or b"-1") for value in log.values]
            assert numbers == sorted(set(numbers))
            for value, future in self.sent[tp]:
                assert future.done()
                if future.succeeded():
                    assert int(value) in numbers
                    assert future.get(0).offset in (numbers.index(int(value)), -1)
                else:
                    assert isinstance(future.exception, RetriableError | OutOfOrderSequenceError)
        self.check_memory()

    def check_memory(self) -> None:
        assert self.h.pool.available_memory == self.h.pool.total_memory
        assert not self.h.accumulator.has_incomplete


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 400, 50)], ids=str)
def test_records_are_written_once_and_in_order(seeds: range) -> None:
    for seed in seeds:
        simulation = Simulation(seed)
        try:
            simulation.run(steps=120)
            simulation.check()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 400, 50)], ids=str)
def test_order_holds_when_batches_expire(seeds: range) -> None:
    for seed in seeds:
        simulation = Simulation(seed, delivery_timeout_ms=6 * RETRY_BACKOFF_MS)
        try:
            simulation.run(steps=200)
            simulation.check_with_expiry()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
