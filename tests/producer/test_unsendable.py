"""An error in one batch fails only that batch; the others are sent, and no memory is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.errors import DisconnectError, KafkaError, KafkaTimeoutError
from pykclient.producer.batch_register import BatchRegister
from pykclient.producer.future import ProducerBatch
from pykclient.producer.record_accumulator import RecordAccumulator
from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
from pykclient.testing import EmbeddedCluster
from tests.producer.harness import RETRY_BACKOFF_MS, TP0, TP1, SenderHarness, produce_response

BAD = 0


def raises(*_: Any) -> Any:
    raise MemoryError("no room")


def only_for_bad(instead: Callable[..., Any], method: Any) -> Callable[..., Any]:
    """Return a function that calls ``instead`` for batches of partition BAD, and ``method`` for all others."""

    def call(*arguments: Any) -> Any:
        (batch,) = (each for each in arguments if isinstance(each, ProducerBatch))
        return (instead if batch.topic_partition.partition == BAD else method)(*arguments)

    return call


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "number": lambda patch: patch.setattr(ProducerIdManager, "number", only_for_bad(raises, ProducerIdManager.number)),
    "compress": lambda patch: patch.setattr(ProducerBatch, "close", only_for_bad(raises, ProducerBatch.close)),
    "build": lambda patch: patch.setattr(
        ProducerBatch,
        "records",
        property(only_for_bad(raises, ProducerBatch.records.__get__)),
    ),
    "encode": lambda patch: patch.setattr(
        ProducerBatch,
        "records",
        property(only_for_bad(lambda _: 5, ProducerBatch.records.__get__)),
    ),
}


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("where", BREAKS)
def test_a_batch_that_cannot_be_sent_fails_alone(where: str, in_flight: int) -> None:
    with (
        EmbeddedCluster(brokers=2) as cluster,
        KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            linger_ms=60_000,
            retry_backoff_ms=10,
            max_in_flight_requests_per_connection=in_flight,
        ) as producer,
    ):
        cluster.create_topic("t", assignment={0: [1], 1: [1], 2: [2]})

        def send_to_all() -> list[Exception | None]:
            """Send a record to each partition; only the flush makes them due, so all are sent in one round."""
            futures = [producer.send("t", b"v", partition=number) for number in (0, 1, 2)]
            producer.flush(10)
            return [future.exception for future in futures]

        assert send_to_all() == [None] * 3
        pool = producer._accumulator._pool
        with pytest.MonkeyPatch.context() as patch:
            BREAKS[where](patch)
            for _ in range(2):
                bad, *others = send_to_all()
                assert others == [None, None]
                assert isinstance(bad, (KafkaError, MemoryError))
                assert not isinstance(bad, KafkaTimeoutError)
                assert pool.available_memory == pool.total_memory
        assert send_to_all() == [None] * 3


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("cls", "method"),
    [(RecordAccumulator, "drain"), (RecordAccumulator, "delay_of_rest_ms"), (BatchRegister, "succeed")],
)
def test_error_in_sender_round_strands_no_record(cls: type, method: str, ordered: bool) -> None:
    """An error within a round of the sender, or while it handles a response, strands no record."""
    h = SenderHarness(idempotent=False, guarantee_message_order=ordered)
    original = getattr(cls, method)

    def raises_afterwards(*arguments: Any, **keywords: Any) -> Any:
        if method != "succeed":
            original(*arguments, **keywords)
        raise MemoryError("no room")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cls, method, raises_afterwards)
        futures = [h.append(TP0), h.append(TP1)]
        for _ in range(2):
            for _ in range(2):
                h.run_once_safely()
                h.clock.advance(RETRY_BACKOFF_MS)
            for request in h.requests():
                h.respond_to(request, 0, 0, TP0 if request.destination == "0" else TP1)
    for _ in range(3):
        h.run_once()
    assert all(future.done() for future in futures)
    if method != "delay_of_rest_ms":  # here the error came after sending
        for future in futures:
            assert isinstance(future.exception, KafkaError)
            assert "an unexpected error kept" in str(future.exception)
    assert not h.accumulator.has_incomplete
    assert h.pool.available_memory == h.pool.total_memory
    h.client.prepare_response(produce_response({TP0: (0, 1)}))
    good = h.append()
    h.run_once(2)
    assert good.get(0).offset == 1


def test_a_client_that_is_closing_takes_no_request() -> None:
    h = SenderHarness(idempotent=False)

    def refuse(*_: Any) -> None:
        raise DisconnectError("the client is closing")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(h.client, "send", refuse)
        future = h.append()
        h.run_once()
    assert isinstance(future.exception, DisconnectError)
    assert h.pool.available_memory == h.pool.total_memory


def test_accumulator_refuses_float_as_partition() -> None:
    """A float that equals an integer is refused: it would create a separate queue that no request can carry."""
    h = SenderHarness()
    with pytest.raises(TypeError):
        h.accumulator.append(TP0.topic, 4 / 2, 0, b"", b"", (), None, 0, h.metadata.fetch())  # type: ignore[arg-type]
    assert h.pool.available_memory == h.pool.total_memory
