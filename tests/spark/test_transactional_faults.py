"""Faults of the exactly-once sink, without Spark: drivers and brokers that die, lost answers, two-phase commits."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.admin import Admin
from pykclient.admin.values import Results
from pykclient.clock import SYSTEM_CLOCK
from pykclient.errors import (
    ConfigError,
    InvalidPidMappingError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKeys
from pykclient.spark.sink_driver import SinkDriver
from pykclient.spark.transactions import Request, settle
from tests.chaos.frame_proxy import FrameProxy
from tests.kafka.cluster import KafkaCluster
from tests.producer.test_two_phase_commit_on_kafka import ALLOWED
from tests.spark.test_transactional_writer import Query, committed, decided
from tests.support.any_kafka import EMBEDDED, REAL, AnyKafka
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.wait import eventually

#: What a driver does in a micro-batch, in order, and with its first request in the middle of it.
OPENING = ("Read", "Fence", "Read", "FindOpen")
COMMITTING = ("Fence", "FindEnded", "Write", "End", "Write", "FindOpen")
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

        def watched(driver: SinkDriver, steps: Any, commit_task: Any = None) -> Any:
            for kind, perform in list(driver._performers.items()):
                driver._performers[kind] = self._dying(driver, perform)
            return run(driver, steps, commit_task)

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
def test_driver_dying_at_any_step_loses_and_repeats_nothing(
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


def test_restarts_lose_and_repeat_nothing(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    restarts_in_a_row(query, monkeypatch, 10)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_two_hundred_restarts_lose_and_repeat_nothing(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    restarts_in_a_row(query, monkeypatch, 200)


# --- brokers


@pytest.mark.parametrize("of_request", [False, True], ids=["answer", "request"])
@pytest.mark.parametrize("step", ["_write", "_end"])
def test_lost_end_transaction_requests_lose_nothing(
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
def test_two_phase_commits_survive_the_timeout(
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


def test_timeout_without_two_phase_commit_repeats_the_batch(
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


# --- the ledger


class EndingClock:
    """A clock with which a transaction ends as soon as somebody waits for more than a response."""

    now_ms = staticmethod(SYSTEM_CLOCK.now_ms)

    def __init__(self, producer: KafkaProducer[Any, Any]) -> None:
        self._producer: KafkaProducer[Any, Any] | None = producer

    def sleep_ms(self, duration_ms: int) -> None:
        if duration_ms > 100 and self._producer is not None:
            self._producer.abort_transaction()
            self._producer = None
        SYSTEM_CLOCK.sleep_ms(duration_ms)


@pytest.mark.parametrize("moment", ["decided", "done"])
def test_an_open_transaction_of_another_query_hides_no_decision(
    query: Query, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its driver is between its write to the ledger and the end of the transaction, until this one's waits."""
    query.run(0, *values_of(0))
    messages = query.tasks(1, *values_of(1))
    with KafkaProducer[Any, Any](
        bootstrap_servers=query.options["kafka.bootstrap.servers"], transactional_id=f"{query.ledger}-other-driver"
    ) as other:
        other.init_transactions()
        other.begin_transaction()
        other.send(query.ledger, b"{}", key=b"other", partition=0).get(30)
        if moment == "done":
            query.writer().commit(messages, 1)  # and the driver dies before Spark knows it
        else:

            def end_one(admin: Admin, transactions: Any, commit: bool) -> Any:
                end(admin, dict([next(iter(transactions.items()))]), commit).all()
                raise Killed

            end = Admin.end_transactions
            with monkeypatch.context() as patch:
                patch.setattr(Admin, "end_transactions", end_one)
                with pytest.raises(Killed):
                    query.writer().commit(messages, 1)
        monkeypatch.setattr("pykclient.spark.compacted_topic.SYSTEM_CLOCK", EndingClock(other))
        query.run(1, *values_of(1))
        query.run(2, *values_of(2))
        assert committed(query, 9) == expected(3)


def test_the_wait_for_the_ledger_is_bounded_and_names_the_transaction(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.run(0, *values_of(0))
    monkeypatch.setattr("pykclient.spark.compacted_topic.WAIT_MS", 300)
    with KafkaProducer[Any, Any](
        bootstrap_servers=query.options["kafka.bootstrap.servers"], transactional_id=f"{query.ledger}-other-driver"
    ) as other:
        other.init_transactions()
        other.begin_transaction()
        other.send(query.ledger, b"{}", key=b"other", partition=0).get(30)
        producer_id, _ = other.producer_id_and_epoch
        with pytest.raises(KafkaError, match=rf"transactions are open: of producer id {producer_id} from offset \d+\."):
            query.planned()
        with query.driver() as driver:  # which people ask for
            assert list(driver.entries()) == [query.options["transactionalIdPrefix"]]
        other.abort_transaction()
    query.run(1, *values_of(1))
    assert committed(query, 6) == expected(2)


@pytest.mark.parametrize("key", [b"other", b"\xff", None])
def test_records_of_others_in_the_ledger_do_no_harm(query: Query, key: bytes | None) -> None:
    query.run(0, *values_of(0))
    with KafkaProducer[Any, Any](bootstrap_servers=query.options["kafka.bootstrap.servers"]) as producer:
        try:
            producer.send(query.ledger, b'{"version": 2}', key=key, partition=0).get(30)
        except InvalidRecordError:
            assert key is None  # brokers refuse it in a compacted topic
    query.run(1, *values_of(1))
    assert committed(query, 6) == expected(2)
    with query.driver() as driver:
        assert list(driver.entries().values()).count(None) == (key is not None)


@pytest.mark.parametrize(
    ("partitions", "policy", "says"),
    [
        (3, "compact", "has 3 partitions"),
        (1, "delete", "has cleanup.policy=delete"),
        (1, "compact,delete", "needs one"),
    ],
)
def test_a_ledger_that_would_forget_is_refused(query: Query, partitions: int, policy: str, says: str) -> None:
    with Admin(bootstrap_servers=query.options["kafka.bootstrap.servers"]) as admin:
        configs = {"cleanup.policy": policy}
        admin.create_topics({query.ledger: {"num_partitions": partitions, "configs": configs}}).all()
    with pytest.raises(ConfigError, match=rf"{says}.*Change the topic, or name another one in the option ledgerTopic"):
        query.planned()


@pytest.mark.parametrize("error", [KafkaTimeoutError, UnknownTopicOrPartitionError])
def test_a_ledger_that_a_broker_does_not_tell_of_is_not_taken_for_an_empty_one(
    query: Query, monkeypatch: pytest.MonkeyPatch, error: type[KafkaError]
) -> None:
    """Otherwise a restart would write over what was decided."""
    query.run(0, *values_of(0))
    describe, left = Admin.describe_topics, [3]

    def described(admin: Admin, topics: Any, **more: Any) -> Any:
        left[0] -= 1
        return Results({}, {query.ledger: error("no answer")}) if left[0] >= 0 else describe(admin, topics, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Admin, "describe_topics", described)
        if error is KafkaTimeoutError:
            with pytest.raises(KafkaTimeoutError, match="no answer"):
                query.planned()
        else:
            query.planned()
            assert left[0] < 0
    assert query.entry().done == 0
    query.run(0, *values_of(0))
    assert committed(query, 3) == expected(1)


def test_a_ledger_that_was_deleted_is_not_taken_for_an_old_one(query: Query) -> None:
    query.run(0, *values_of(0))
    with query.driver() as driver:
        assert driver.entry() is not None
        driver.admin.delete_topics([query.ledger]).all()
        eventually(lambda: driver.admin.describe_topics([query.ledger]).failed, 30, "the topic is gone")
        with query.driver() as fresh:
            fresh._ledger.check_or_create()
        eventually(lambda: not driver.admin.describe_topics([query.ledger]).failed, 30, "it is back")
        with pytest.raises(KafkaError, match=r"ends at offset 0 and was read up to \d+: it was deleted"):
            driver.entry()


def test_epochs_of_the_ledgers_producer_run_out(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    for module in ("transaction_metadata", "transaction_coordinator"):
        monkeypatch.setattr(f"pykclient.testing.transaction.{module}.MAX_EPOCH", 8)
    monkeypatch.setattr("pykclient.testing.log.producer_state_manager._MAX_EPOCH", 8)
    monkeypatch.setattr("pykclient.spark.transactions._LAST_EPOCH", 7)
    with EmbeddedKafka(1) as kafka:
        kafka.create_topic(topic, partitions=2)
        query, ids = Query(monkeypatch, kafka.bootstrap_servers, topic), set()
        for batch in range(12):
            query.run(batch, *values_of(batch))
            opened = query.entry().opened
            assert opened is not None
            ids.add(opened.producer_id)
        assert len(ids) > 3
        assert committed(query, 36) == expected(12)
        query.forget()


# --- coordinators that have forgotten


@pytest.mark.parametrize("ends", ["all", "one", "none"])
@pytest.mark.parametrize("error", [InvalidPidMappingError, TransactionalIdNotFoundError])
def test_rows_tell_what_became_of_transactions_whose_ids_have_expired(
    query: Query, monkeypatch: pytest.MonkeyPatch, ends: str, error: type[KafkaError]
) -> None:
    messages = decided(query, monkeypatch, 0, values_of(0))
    found = [each.transaction for each in messages if each.transaction is not None]
    with Admin(bootstrap_servers=query.options["kafka.bootstrap.servers"]) as admin:
        for number, each in enumerate(found):
            is_commit = ends == "all" or (ends == "one" and number == 0)
            admin.end_transaction(each.id, *each.producer, is_commit)
    with monkeypatch.context() as patch:
        patch.setattr(Admin, "end_transactions", lambda _, ids, *__: Results({}, {id: error("expired") for id in ids}))
        if ends == "one":
            with pytest.raises(KafkaError, match="batch 0 is committed in part"):
                query.planned()
            return
        query.planned()
    query.run(0, *values_of(0))
    assert committed(query, 3) == expected(1)


# --- older checkpoints, and late decisions


def test_a_batch_that_is_done_with_other_rows_fails_with_its_ranges(query: Query) -> None:
    query.run(0, [b"p0-0"], [b"p0-1"])  # two rows of one source partition
    again = [[b"p1-0"], [b"p0-0"]]  # planned again with an older checkpoint: one of each
    with pytest.raises(
        KafkaError, match=r"committed with 2 rows, in \S+-\d from offset \d.*and now has as many others"
    ):
        query.run(0, *again)
    query.run(0, [b"p0-1", b"p0-0"], [])  # the same, in other tasks
    query.forget()
    with query.driver() as driver:
        driver.run(settle(query.entry(), True, as_written=True))
    query.run(0, *again)  # a person has said so
    query.run(1, [b"next"])
    assert committed(query, 3) == [b"next", b"p0-0", b"p0-1"]


def test_a_batch_is_not_decided_late(query: Query) -> None:
    messages = query.tasks(0, *values_of(0))
    for message in messages:
        message.opened_ms -= 676_000  # of 900 s
    with pytest.raises(KafkaError, match="less than a quarter of transaction"):
        query.writer().commit(messages, 0)
    assert query.open_transactions() == []
    messages = query.tasks(0, *values_of(0))
    for message in messages:
        message.opened_ms -= 600_000
    query.writer().commit(messages, 0)
    assert committed(query, 3) == expected(1)


def test_steady_batches_send_few_requests(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept process reads only new entries of the ledger, and none in the commit."""
    killer = Killer(monkeypatch)
    for batch in range(3):
        killer.next(None)
        planned = pickle.dumps(query.writer())
        messages = [query.task(planned, batch, number, each) for number, each in enumerate(values_of(batch))]
        opening, killer.seen = killer.seen, []
        query.writer().commit(messages, batch)
        if batch:
            assert opening == ["Fence", "Read"]
        assert killer.seen == list(COMMITTING)
    assert committed(query, 9) == expected(3)
    query.forget()
