"""Tasks of the exactly-once sink that commit their own rows, without Spark: repeated, killed, speculative, fenced."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from pykclient import KafkaProducer
from pykclient.admin import Admin
from pykclient.errors import ConfigError, KafkaError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.spark.sink_driver import SinkDriver
from pykclient.spark.transactional_writer import CommittingStreamWriter
from pykclient.spark.transactions import BY_TASKS, CommitTask, Request, forget, settle, token_key, tokens_topic
from tests.chaos.frame_proxy import FrameProxy
from tests.spark.test_transactional_faults import Killed, Killer, expected, values_of, wait_for_a_timeout
from tests.spark.test_transactional_writer import BY_TASK, Query, committed
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, any_kafka: AnyKafka, topic: str) -> Query:
    any_kafka.create_topic(topic, partitions=2)
    return Query(monkeypatch, any_kafka.bootstrap_servers, topic, **BY_TASK)


@contextlib.contextmanager
def dying(kind: type[Request], moment: str) -> Iterator[None]:
    """Die at the next request of a kind, before or after it is performed."""
    run = SinkDriver.run

    def steps_of(steps: Any) -> Any:
        request = next(steps)
        try:
            while True:
                if isinstance(request, kind) and moment == "before":
                    raise Killed
                try:
                    answer = yield request
                except KafkaError as failed:
                    request = steps.throw(failed)
                    continue
                if isinstance(request, kind):
                    raise Killed
                request = steps.send(answer)
        except StopIteration as end:
            return end.value

    def dies(driver: SinkDriver, steps: Any, commit_task: Any = None) -> Any:
        return run(driver, steps_of(steps), commit_task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SinkDriver, "run", dies)
        try:
            yield
        except Killed:
            return
    raise AssertionError(f"there was no {kind.__name__}")


def test_each_task_commits_its_own_rows(query: Query) -> None:
    planned = query.planned()
    messages = [query.task(planned, 0, 0, [b"a", b"b"]), query.task(planned, 0, 1, [])]
    assert committed(query, 2) == [b"a", b"b"]  # before the driver knows of it
    messages.append(query.task(planned, 0, 2, [b"c"]))
    query.writer().commit(messages, 0)
    query.run(1, [], [b"d"])
    query.run(2, [])
    query.run(3, [b"e"])
    assert committed(query, 5) == [b"a", b"b", b"c", b"d", b"e"]
    entry = query.entry()
    assert (entry.state, entry.done, entry.content.rows, entry.owner.query) == (BY_TASKS, 3, 1, query.id)
    assert query.open_transactions() == []


def test_restart_writes_only_what_is_missing(query: Query) -> None:
    query.run(0, *values_of(0))
    planned = query.planned()
    for task in (0, 2):
        query.task(planned, 1, task, values_of(1)[task])  # and the driver dies
    query.run(1, *values_of(1))
    query.run(1, *values_of(1))  # the driver has died after it was done
    query.run(2, *values_of(2))
    assert committed(query, 9) == expected(3)


def test_driver_away_for_longer_than_the_timeout_loses_nothing(query: Query) -> None:
    """With a transaction that is committed, and one that is not."""
    query.options["kafka.transaction.timeout.ms"] = "1000"
    query.run(0, *values_of(0))
    planned = query.planned()
    query.task(planned, 1, 0, values_of(1)[0])
    with dying(CommitTask, "before"):
        query.task(planned, 1, 1, values_of(1)[1])
    wait_for_a_timeout(query.options["kafka.bootstrap.servers"], query.options["topic"])
    query.options["kafka.transaction.timeout.ms"] = "60000"
    query.run(1, *values_of(1))
    query.run(2, *values_of(2))
    assert committed(query, 9) == expected(3)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_worker_dying_around_its_commit_loses_and_repeats_nothing(query: Query, moment: str) -> None:
    planned = query.planned()
    messages = [query.task(planned, 0, 0, [b"a"])]
    with dying(CommitTask, moment):
        query.task(planned, 0, 1, [b"b"])
    messages.append(query.task(planned, 0, 1, [b"b"], attempt=1))
    query.writer().commit(messages, 0)
    query.run(1, [b"c"])
    assert committed(query, 3) == [b"a", b"b", b"c"]
    assert query.open_transactions() == []


@pytest.mark.parametrize("of_request", [False, True], ids=["answer", "request"])
def test_lost_end_of_a_task_is_repeated(
    monkeypatch: pytest.MonkeyPatch, any_kafka: AnyKafka, topic: str, of_request: bool
) -> None:
    any_kafka.create_topic(topic, partitions=2)
    broker = any_kafka.any_broker()
    with FrameProxy((broker.host, broker.behind_proxy_port), broker.proxied_port) as proxy:
        query = Query(monkeypatch, any_kafka.proxied_bootstrap_servers, topic, **BY_TASK)
        query.run(0, *values_of(0))
        planned = query.planned()
        cut = proxy.cut(ApiKeys.END_TXN, 5, of_request=of_request)
        messages = [query.task(planned, 1, task, values) for task, values in enumerate(values_of(1))]
        assert cut.inside
        query.writer().commit(messages, 1)
        assert committed(query, 6) == expected(2)
        query.forget()


@pytest.mark.parametrize("later", ["begins", "commits"])
def test_of_two_attempts_at_once_one_commits(query: Query, later: str) -> None:
    """The second one, in which the first one lags behind: before its first row, or after its last one."""
    planned = query.planned()
    second: list[Any] = []
    run, encoders = SinkDriver.run, CommittingStreamWriter._encoders

    def in_between() -> None:
        if not second:
            second.append(None)
            second[0] = query.task(planned, 0, 0, [b"a", b"b"], attempt=1)
            query.forget()  # it was another process

    def before_the_rows(writer: CommittingStreamWriter) -> Any:
        in_between()
        return encoders(writer)

    def before_the_end(driver: SinkDriver, steps: Any, commit_task: Any = None) -> Any:
        if commit_task is not None:
            in_between()
        return run(driver, steps, commit_task)

    if later == "begins":
        query.monkeypatch.setattr(CommittingStreamWriter, "_encoders", before_the_rows)
    else:
        query.monkeypatch.setattr(SinkDriver, "run", before_the_end)
    first = query.task(planned, 0, 0, [b"a", b"b"])
    assert first.token == second[0].token
    query.writer().commit([first], 0)
    assert committed(query, 2) == [b"a", b"b"]
    assert query.open_transactions() == []


def test_task_of_an_earlier_driver_repeats_nothing(query: Query) -> None:
    """It has not begun when another driver opens the batch, and ends when the batch is done."""
    earlier = query.planned()
    query.run(0, *values_of(0))
    message = query.task(earlier, 0, 1, values_of(0)[1])
    with pytest.raises(KafkaError, match=r"another driver has opened a batch.*Its tasks may have committed"):
        query.writer().commit([message], 0)
    query.run(1, *values_of(1))
    assert committed(query, 6) == expected(2)


def test_other_rows_of_a_task_fail_with_the_committed_range(query: Query) -> None:
    planned = query.planned()
    query.task(planned, 0, 0, [b"a", b"b"])
    planned = query.planned()
    with pytest.raises(KafkaError, match=r"Spark partition 0 \(2 rows: \S+ from offset \d.* has as many others now"):
        query.task(planned, 0, 0, [b"a", b"c"])
    with pytest.raises(KafkaError, match=r"the task has 0 now.*--as-written"):
        query.task(planned, 0, 0, [])
    query.task(planned, 0, 0, [b"b", b"a"])
    query.forget()
    with query.driver() as driver:
        driver.run(settle(query.entry(), True, as_written=True))
    query.run(0, [b"a", b"c"], [b"d"])  # a person has said so
    query.run(1, [b"e"])
    assert committed(query, 4) == [b"a", b"b", b"d", b"e"]


def test_fewer_tasks_for_the_same_batch_fail(query: Query) -> None:
    planned = query.planned()
    for task in range(3):
        query.task(planned, 0, task, values_of(0)[task])
    planned = query.planned()
    messages = [query.task(planned, 0, task, values_of(0)[task]) for task in range(2)]
    with pytest.raises(KafkaError, match=r"Spark partition 2 \(1 rows.* is committed, and 2 other tasks have rows"):
        query.writer().commit(messages, 0)
    query.run(0, *values_of(0))
    assert committed(query, 3) == expected(1)


def test_older_checkpoint_is_refused_before_anything_is_written(query: Query) -> None:
    query.run(0, *values_of(0))
    query.run(1, *values_of(1))
    planned = query.planned()
    query.task(planned, 2, 0, values_of(2)[0])
    planned = query.planned()
    with pytest.raises(KafkaError, match="batch 1 is run, but batch 2 is written already: the checkpoint is older"):
        query.task(planned, 1, 1, [b"x"])
    query.run(2, *values_of(2))
    assert committed(query, 9) == expected(3)


def test_batch_that_is_done_with_other_rows_fails(query: Query) -> None:
    query.run(0, [b"a"], [b"b"])
    with pytest.raises(KafkaError, match=r"committed with 2 rows, in .*and now has 3"):
        query.run(0, [b"a"], [b"b"], [b"new"])
    query.run(0, [b"a", b"b"])  # the same rows in another task, of which nothing is written
    assert committed(query, 2) == [b"a", b"b"]


def test_other_query_with_the_prefix_is_refused(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.run(0, [b"a"])
    servers, topic = query.options["kafka.bootstrap.servers"], query.options["topic"]
    other = Query(monkeypatch, servers, topic, checkpointLocation="/elsewhere", **BY_TASK)
    planned = other.planned()
    with pytest.raises(KafkaError, match="belongs to another query, with the checkpoint /checkpoints"):
        other.task(planned, 0, 0, [b"x"])
    other.id = query.id  # the same query, with its checkpoint moved
    other.run(1, [b"b"])
    other.run(2, [b"c"])
    assert other.entry().owner == ("/elsewhere", query.id)
    assert committed(query, 3) == [b"a", b"b", b"c"]


def test_modes_change_only_where_nothing_can_be_half_done(query: Query) -> None:
    by_driver = {name: value for name, value in query.options.items() if name not in BY_TASK}
    by_task = query.options
    query.options = by_driver
    query.run(0, [b"a"])
    query.options = by_task
    query.run(1, [b"b"])
    query.run(1, [b"b"])
    query.options = by_driver
    with pytest.raises(KafkaError, match="exactlyOnceMode=task, and a micro-batch after batch 1 may be committed in"):
        query.planned()
    query.options = by_task
    query.run(2, [b"c"])
    assert committed(query, 3) == [b"a", b"b", b"c"]


def test_forgotten_query_leaves_no_tokens(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in range(3):
        query.run(batch, [b"%d" % batch])
    query.forget()
    with query.driver() as driver:
        assert driver._token_keys() == [token_key(query.options["transactionalIdPrefix"], 0)]
        driver.run(forget(query.entry()))
        assert driver._token_keys() == []
    other = Query(monkeypatch, query.options["kafka.bootstrap.servers"], query.options["topic"], **BY_TASK)
    other.run(0, [b"x"])
    other.run(0, [b"x"])
    other.run(1, [b"y"])
    assert committed(query, 5) == [b"0", b"1", b"2", b"x", b"y"]


def test_open_transaction_behind_which_no_token_is_delays_nobody(query: Query) -> None:
    """A task that dies between its token and its commit holds back the last stable offset of all tokens."""
    query.run(0, *values_of(0))
    with KafkaProducer[Any, Any](
        bootstrap_servers=query.options["kafka.bootstrap.servers"], transactional_id=f"{query.ledger}-other-0-0"
    ) as other:
        other.init_transactions()
        other.begin_transaction()
        other.send(tokens_topic(query.ledger), b"{}", key=token_key("other", 0), partition=0).get(30)
        query.monkeypatch.setattr("pykclient.spark.sink_driver.WAIT_MS", 300)
        query.monkeypatch.setattr("pykclient.spark.compacted_topic.WAIT_MS", 300)
        query.run(1, *values_of(1))
        planned = query.planned()
        query.task(planned, 2, 0, values_of(2)[0])
        planned = query.planned()
        with pytest.raises(KafkaError, match="an open transaction may begin before it"):
            query.task(planned, 2, 0, values_of(2)[0])  # which must know whether its token counts
        other.abort_transaction()
    query.run(2, *values_of(2))
    assert committed(query, 9) == expected(3)


def test_deleted_tokens_are_not_taken_for_none(query: Query) -> None:
    query.run(0, *values_of(0))
    query.forget()
    topic = tokens_topic(query.ledger)
    with Admin(bootstrap_servers=query.options["kafka.bootstrap.servers"]) as admin:
        admin.delete_topics([topic]).all()
        eventually(lambda: admin.describe_topics([topic]).failed, 30, "the topic is gone")
        with pytest.raises(KafkaError, match="does not exist any more"):
            query.planned()


def test_token_topic_that_would_forget_is_refused(query: Query) -> None:
    with Admin(bootstrap_servers=query.options["kafka.bootstrap.servers"]) as admin:
        admin.create_topics({tokens_topic(query.ledger): {"num_partitions": 3}}).all()
    with pytest.raises(ConfigError, match=r"the token topic .* has 3 partitions"):
        query.planned()


#: What a driver does when it is restarted, and when it completes a micro-batch.
OPENING = ("Read", "Fence", "Read", "FindOpen", "ReadTokens")
COMPLETING = ("Fence", "FindOpen", "ReadTokens", "Write")


@pytest.mark.parametrize(
    ("phase", "index", "moment"),
    [
        pytest.param(phase, index, moment, id=f"{phase}-{names[index]}-{index}-{moment}", marks=marks)
        for phase, names in (("open", OPENING), ("complete", COMPLETING))
        for index in range(len(names))
        for moment in ("before", "after")
        for marks in [() if names[index] == "Write" else pytest.mark.exhaustive]
    ],
)
def test_driver_dying_at_any_step_repeats_no_committed_task(
    query: Query, monkeypatch: pytest.MonkeyPatch, phase: str, index: int, moment: str
) -> None:
    killer = Killer(monkeypatch)
    query.run(0, *values_of(0))
    if phase == "open":
        query.task(query.planned(), 1, 0, values_of(1)[0])
        killer.next((index, moment))
        with pytest.raises(Killed):
            query.planned()
    else:
        messages = query.tasks(1, *values_of(1))
        killer.next((index, moment))
        with pytest.raises(Killed):
            query.writer().commit(messages, 1)
    assert killer.seen == list((OPENING if phase == "open" else COMPLETING)[: index + 1])
    killer.next(None)
    query.run(1, *values_of(1))
    query.run(2, *values_of(2))
    assert committed(query, 9) == expected(3)
    assert query.open_transactions() == []


def test_steady_batches_and_tasks_send_few_requests(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    killer = Killer(monkeypatch)
    for batch in range(3):
        killer.next(None)
        planned = pickle.dumps(query.writer())
        opening, killer.seen = killer.seen, []
        messages = [query.task(planned, batch, number, each) for number, each in enumerate(values_of(batch))]
        tasks, killer.seen = killer.seen, []
        query.writer().commit(messages, batch)
        if batch:
            assert opening == ["Fence", "Read", "ReadTokens"]
        assert tasks == 3 * ["FenceTask", "ReadTokens"]
        assert killer.seen == list(COMPLETING)
    assert committed(query, 9) == expected(3)
    query.forget()


def test_failed_task_leaves_the_others_committed(query: Query) -> None:
    planned = query.planned()
    message = query.task(planned, 0, 0, [b"a"])
    with pytest.raises(KafkaError, match="not written"):
        query.task(planned, 0, 1, [b"x" * 2_000_000])
    query.writer().abort([message, None], 0)
    assert committed(query, 1) == [b"a"]
    query.run(0, [b"a"], [b"b"])
    assert committed(query, 2) == [b"a", b"b"]


def test_message_pickles(query: Query) -> None:
    message = query.tasks(0, [b"a"])[0]
    assert pickle.loads(pickle.dumps(message)).token == message.token
