"""Faults of the exactly-once sink, without Spark: drivers and brokers that die, lost answers, two-phase commits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.admin import Admin
from pykclient.errors import KafkaError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.spark.sink_driver import SinkDriver
from pykclient.spark.transactions import Request
from tests.chaos.frame_proxy import FrameProxy
from tests.kafka.cluster import KafkaCluster
from tests.producer.test_two_phase_commit_on_kafka import ALLOWED
from tests.spark.test_transactional_writer import Query, committed, decided
from tests.support.any_kafka import EMBEDDED, REAL, AnyKafka
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.wait import eventually

#: What a driver does in a micro-batch, in order, and with its first request in the middle of it.
OPENING = ("Read", "Fence", "Read", "AbortOpen")
COMMITTING = ("Fence", "FindEnded", "Write", "End", "Write", "AbortOpen")
STEPS = [
    (phase, index, moment)
    for phase, names in (("open", OPENING), ("commit", COMMITTING))
    for index in range(len(names))
    for moment in ("before", "after")
]
STEPS.append(("commit", COMMITTING.index("End"), "within"))

#: The steps at which ``make test`` kills, too: around the decision and the end.
FEW = {
    ("open", 1, "after"),
    ("commit", 2, "before"),
    ("commit", 2, "after"),
    ("commit", 3, "within"),
    ("commit", 4, "before"),
}


class Killed(BaseException):
    """The end of a driver's process. Nothing of it runs any more, except that its connections end."""


class Killer:
    """Kills drivers at chosen steps. Thread: owner."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: The number of the request at which to die, and the moment.
        self.at: tuple[int, str] | None = None
        self.seen: list[str] = []
        run = SinkDriver.run

        def watched(driver: SinkDriver, steps: Any) -> Any:
            for kind, perform in list(driver._performers.items()):
                driver._performers[kind] = self._dying(driver, perform)
            return run(driver, steps)

        monkeypatch.setattr(SinkDriver, "run", watched)

    def _dying(self, driver: SinkDriver, perform: Any) -> Any:
        if hasattr(perform, "dies"):
            return perform

        def performed(request: Request) -> Any:
            number = len(self.seen)
            self.seen.append(type(request).__name__)
            at, moment = self.at or (-1, "")
            if number == at and moment == "before":
                raise Killed
            if number == at and moment == "within":
                driver.admin.end_transactions(
                    {each.id: tuple(each.producer) for each in request.transactions[:1]},  # type: ignore[attr-defined]
                    True,
                )
                raise Killed
            answer = perform(request)
            if number == at:
                raise Killed
            return answer

        performed.dies = True  # type: ignore[attr-defined]
        return performed

    def next(self, at: tuple[int, str] | None) -> None:
        self.at, self.seen = at, []


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, any_kafka: AnyKafka, topic: str) -> Query:
    any_kafka.create_topic(topic, partitions=2)
    return Query(monkeypatch, any_kafka.bootstrap_servers, topic)


def values_of(batch: int) -> list[list[bytes]]:
    return [[b"%d-%d" % (batch, task)] for task in range(3)]


def expected(batches: int) -> list[bytes]:
    return sorted(value for batch in range(batches) for values in values_of(batch) for value in values)


@pytest.mark.parametrize(
    ("phase", "index", "moment"),
    [
        pytest.param(*step, id="-".join(map(str, step)), marks=() if step in FEW else pytest.mark.exhaustive)
        for step in STEPS
    ],
)
def test_a_driver_that_dies_at_any_step_loses_and_repeats_nothing(
    query: Query, monkeypatch: pytest.MonkeyPatch, phase: str, index: int, moment: str
) -> None:
    killer = Killer(monkeypatch)
    query.run(0, *values_of(0))
    killer.next((index, moment) if phase == "open" else None)
    try:
        messages = query.tasks(1, *values_of(1))
    except Killed:
        assert killer.seen == list(OPENING[: index + 1])
    else:
        killer.next((index, moment))
        with pytest.raises(Killed):
            query.writer().commit(messages, 1)
        assert killer.seen == list(COMMITTING[: index + 1])
    killer.next(None)
    query.run(1, *values_of(1))
    query.run(2, *values_of(2))
    assert committed(query, 9) == expected(3)
    assert query.open_transactions() == []


def restarts_in_a_row(query: Query, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    rng, killer, batch, restarts = random.Random(count), Killer(monkeypatch), 0, 0
    while restarts < count:
        dies_opening = rng.random() < 0.4
        at = (rng.randrange(len(OPENING if dies_opening else COMMITTING)), rng.choice(("before", "after")))
        killer.next(at if dies_opening else None)
        try:
            messages = query.tasks(batch, *values_of(batch))
            killer.next(at)
            query.writer().commit(messages, batch)
            batch += 1
        except Killed:
            restarts += 1
    killer.next(None)
    query.run(batch, *values_of(batch))
    assert committed(query, 3 * (batch + 1)) == expected(batch + 1)
    assert query.open_transactions() == []


def test_restarts_in_a_row(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    restarts_in_a_row(query, monkeypatch, 10)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_two_hundred_restarts_in_a_row(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    restarts_in_a_row(query, monkeypatch, 200)


# --- brokers


@pytest.mark.parametrize("of_request", [False, True], ids=["answer", "request"])
@pytest.mark.parametrize("step", ["_write", "_end"])
def test_lost_requests_and_answers_to_end_a_transaction(
    monkeypatch: pytest.MonkeyPatch, any_kafka: AnyKafka, topic: str, step: str, of_request: bool
) -> None:
    any_kafka.create_topic(topic, partitions=2)
    broker = any_kafka.any_broker()
    perform = getattr(SinkDriver, step)
    with FrameProxy((broker.host, broker.behind_proxy_port), broker.proxied_port) as proxy:
        query = Query(monkeypatch, any_kafka.proxied_bootstrap_servers, topic)
        query.run(0, *values_of(0))
        messages, cuts = query.tasks(1, *values_of(1)), []

        def cut(driver: SinkDriver, request: Any) -> Any:
            cuts.append(proxy.cut(ApiKeys.END_TXN, 5, of_request=of_request))
            return perform(driver, request)

        with monkeypatch.context() as patch:
            patch.setattr(SinkDriver, step, cut)
            query.forget()
            query.writer().commit(messages, 1)
        assert all(each.inside for each in cuts)
        assert cuts
        query.run(2, *values_of(2))
        assert committed(query, 9) == expected(3)
        query.forget()


@pytest.mark.exhaustive
@pytest.mark.parametrize("moment", ["before the decision", "after the decision"])
@pytest.mark.timeout(300)
def test_killed_brokers_lose_and_repeat_nothing(
    monkeypatch: pytest.MonkeyPatch, any_cluster: AnyKafka, topic: str, moment: str
) -> None:
    """One after the other, so that each coordinator and leader is among them."""
    any_cluster.create_topic(topic, partitions=2, replication=3)
    query = Query(monkeypatch, any_cluster.bootstrap_servers, topic)
    query.run(0, *values_of(0))
    batch = 1
    for broker in list(any_cluster.brokers.values()):
        if moment == "before the decision":
            messages = query.tasks(batch, *values_of(batch))
            broker.kill()
            query.writer().commit(messages, batch)
        else:
            decided(query, monkeypatch, batch, values_of(batch))
            broker.kill()
            query.run(batch, *values_of(batch))
        broker.start()
        any_cluster.make_healthy()
        batch += 1
    assert committed(query, 3 * batch) == expected(batch)
    assert query.open_transactions() == []


# --- two-phase commits


@pytest.fixture(scope="module", params=[EMBEDDED, REAL])
def allowing(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """One broker that allows two-phase commits."""
    with (KafkaCluster if request.param == "real" else EmbeddedKafka)(1, ALLOWED) as running:
        yield running


def wait_for_a_timeout(servers: str, topic: str) -> None:
    """Wait until the broker has aborted an ordinary transaction that begins now, after its timeout of a second."""
    id = f"{topic}-ordinary"
    with KafkaProducer[Any, Any](
        bootstrap_servers=servers, transactional_id=id, transaction_timeout_ms=1000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"late").get(30)
        with Admin(bootstrap_servers=servers) as admin:
            eventually(
                lambda: not admin.list_transactions(states=["Ongoing"], transactional_id_pattern=id), 60, "timeout"
            )


@pytest.mark.parametrize("moment", ["before the decision", "after the decision"])
def test_two_phase_commits_outlive_the_timeout(
    monkeypatch: pytest.MonkeyPatch, allowing: AnyKafka, topic: str, moment: str
) -> None:
    """The driver is away for longer than transaction.timeout.ms, which does not count for them."""
    allowing.create_topic(topic, partitions=2)
    short = {"kafka.transaction.timeout.ms": "1000", "restartBudget": "1s"}
    query = Query(monkeypatch, allowing.bootstrap_servers, topic, **short)
    if moment == "before the decision":
        messages = query.tasks(0, *values_of(0))
        wait_for_a_timeout(allowing.bootstrap_servers, topic)
        query.writer().commit(messages, 0)
    else:
        messages = decided(query, monkeypatch, 0, values_of(0))
        first = messages[0].transaction
        assert first is not None
        with Admin(bootstrap_servers=allowing.bootstrap_servers) as admin:
            admin.end_transactions({first.id: (first.producer.producer_id, first.producer.epoch)}, True).all()
        wait_for_a_timeout(allowing.bootstrap_servers, topic)
        query.run(0, *values_of(0))
    assert committed(query, 3) == expected(1)
    assert query.open_transactions() == []


def test_without_them_the_same_absence_repeats_the_batch(
    monkeypatch: pytest.MonkeyPatch, any_kafka: AnyKafka, topic: str
) -> None:
    any_kafka.create_topic(topic, partitions=2)
    short = {"kafka.transaction.timeout.ms": "1000", "restartBudget": "1s"}
    query = Query(monkeypatch, any_kafka.bootstrap_servers, topic, **short)
    messages = query.tasks(0, *values_of(0))
    eventually(lambda: not query.open_transactions(), 60, "the broker aborts the transactions")
    with pytest.raises(KafkaError, match="3 of its 3 transactions are not open"):
        query.writer().commit(messages, 0)
    short["kafka.transaction.timeout.ms"] = "60000"
    query.options.update(short)
    query.run(0, *values_of(0))
    assert committed(query, 3) == expected(1)
