"""The rules of the exactly-once sink in a simulation: drivers that die or live on, lost answers, time-outs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import IllegalStateError, KafkaError, ProducerFencedError
from pykclient.spark import transactions as rules
from pykclient.spark.transactions import (
    CLAIMED,
    DECIDED,
    DONE,
    MOVES,
    REVERTED,
    TORN,
    Entry,
    Opened,
    Owner,
    Producer,
    Request,
    Steps,
    Transaction,
    pattern_of,
    task_role,
    transactional_id,
)

PREFIX, QUERY, CHECKPOINT = "p", "q", "/c"
BATCHES, TASKS = 4, 3

ONGOING, COMMITTED, ABORTED = "ongoing", "committed", "aborted"


class Cluster:
    """Transactions of the second generation, and the ledger, as brokers keep them."""

    def __init__(self, rng: random.Random, *, lossy: bool) -> None:
        self.rng = rng
        #: Answers to EndTxn get lost, and coordinators cannot be reached.
        self.lossy = lossy
        self.epochs: Counter[str] = Counter()
        #: The state and the rows of each transaction that was begun, by its id and epoch.
        self.begun: dict[tuple[str, int], tuple[str, tuple[int, int]]] = {}
        self.ledger: list[Entry] = []
        self.ledger_epoch = 0

    def init(self, id: str) -> Producer:
        self.time_out(id)
        self.epochs[id] += 1
        return Producer(1, self.epochs[id])

    def time_out(self, id: str) -> None:
        """Abort the transaction if it is open."""
        place = (id, self.epochs[id])
        if self.begun.get(place, ("",))[0] == ONGOING:
            self.begun[place] = (ABORTED, self.begun[place][1])
            self.epochs[id] += 1

    def write_row(self, id: str, producer: Producer, row: tuple[int, int]) -> None:
        if self.epochs[id] != producer.epoch:
            raise ProducerFencedError(id)
        self.begun[id, producer.epoch] = (ONGOING, row)

    def open(self) -> list[str]:
        return [id for (id, epoch), (state, _) in self.begun.items() if state == ONGOING and self.epochs[id] == epoch]

    def _end(self, wanted: Transaction, commit: bool) -> str:
        if self.lossy and self.rng.random() < 0.1:
            return rules.UNKNOWN
        epoch = wanted.producer.epoch
        state, row = self.begun[wanted.id, epoch]
        target = COMMITTED if commit else ABORTED
        if state == ONGOING and self.epochs[wanted.id] == epoch:
            self.begun[wanted.id, epoch] = (target, row)
            self.epochs[wanted.id] += 1
        if self.lossy and self.rng.random() < 0.1:
            return rules.UNKNOWN
        return rules.ENDED if self.begun[wanted.id, epoch][0] == target else rules.LOST

    def committed(self) -> Counter[tuple[int, int]]:
        return Counter(row for state, row in self.begun.values() if state == COMMITTED)


class Session:
    """One process's clients: the ledger's producer, which another one can fence."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.epoch = -1

    def perform(self, request: Request) -> Any:
        cluster = self.cluster
        if isinstance(request, rules.Read):
            return cluster.ledger[-1] if cluster.ledger else None
        if isinstance(request, rules.Fence):
            if self.epoch < 0:
                cluster.ledger_epoch += 1
                self.epoch = cluster.ledger_epoch
            return Producer(0, self.epoch)
        if isinstance(request, rules.Write):
            if self.epoch != cluster.ledger_epoch:
                raise ProducerFencedError("the ledger")
            cluster.ledger.append(Entry.from_bytes(request.entry.as_bytes()))
            cluster.ledger_epoch += 1
            self.epoch = cluster.ledger_epoch
            return Producer(0, self.epoch)
        if isinstance(request, rules.End):
            return {each.id: cluster._end(each, request.commit) for each in request.transactions}
        if isinstance(request, rules.FindEnded):
            still = set(cluster.open())
            return {
                each.id
                for each in request.transactions
                if each.id not in still or cluster.epochs[each.id] != each.producer.epoch
            }
        assert isinstance(request, rules.AbortOpen)
        found = cluster.open()
        for id in found:
            cluster.init(id)
        return len(found)


class Checkpoint:
    """Spark's checkpoint: the next batch to run."""

    def __init__(self) -> None:
        self.next = 0


def performed(cluster: Cluster, steps: Steps[Any]) -> Generator[None, None, Any]:
    """Perform the requests of the driver. Each yield is a moment at which it can die, or others can act."""
    session = Session(cluster)
    try:
        request = next(steps)
        while True:
            yield
            try:
                answer = session.perform(request)
            except KafkaError as error:
                request = steps.throw(error)
            else:
                yield
                request = steps.send(answer)
    except StopIteration as end:
        return end.value


def incarnation(cluster: Cluster, checkpoint: Checkpoint, how: Any) -> Iterator[None]:
    """Run the query from its checkpoint on, until its end or an error."""
    known: Producer | None = None
    while checkpoint.next < BATCHES:
        batch = checkpoint.next
        opened: Opened = yield from performed(cluster, how.open_batch(Owner(CHECKPOINT), known))
        known = opened.producer
        transactions, repeated = [], None
        for number in range(TASKS):
            yield
            if task_role(opened, QUERY, batch) == rules.REPEATS:
                repeated = (repeated or 0) + 1
                continue
            attempt = 0
            while cluster.rng.random() < 0.1:  # a failed, or a speculative attempt
                id = transactional_id(PREFIX, number, attempt)
                cluster.write_row(id, cluster.init(id), (batch, number))
                attempt += 1
                yield
            id = transactional_id(PREFIX, number, attempt)
            producer = cluster.init(id)
            yield
            cluster.write_row(id, producer, (batch, number))
            transactions.append(Transaction(id, producer, 1, {}))
        yield from performed(cluster, how.commit_batch(opened, Owner(CHECKPOINT, QUERY), batch, transactions, repeated))
        yield
        if checkpoint.next == batch:  # Spark lets no two queries write the same batch to a checkpoint
            checkpoint.next = batch + 1


class Correct:
    open_batch = staticmethod(rules.open_batch)
    commit_batch = staticmethod(rules.commit_batch)


def simulate(seed: int, *, faults: int, zombies: bool, timeouts: bool, lossy: bool, how: Any = Correct) -> str:
    """Run a query with faults until it ends, and check what it has written. Return the last state of its ledger."""
    rng = random.Random(seed)
    cluster, checkpoint = Cluster(rng, lossy=lossy), Checkpoint()
    alive = [incarnation(cluster, checkpoint, how)]
    restarts = 0
    while checkpoint.next < BATCHES and restarts < 400:
        index = rng.randrange(len(alive))
        chance = rng.random()
        if faults and chance < 0.05:
            faults -= 1
            if not zombies or chance < 0.03:
                alive.clear()
            alive.append(incarnation(cluster, checkpoint, how))
            continue
        if timeouts and chance > 0.99 and (found := cluster.open()):
            cluster.time_out(rng.choice(found))
        try:
            next(alive[index])
        except (KafkaError, StopIteration):
            del alive[index]
            if cluster.ledger and cluster.ledger[-1].state == TORN:
                break
            if not alive:
                restarts += 1
                alive.append(incarnation(cluster, checkpoint, how))
    state = cluster.ledger[-1].state
    rows = cluster.committed()
    assert max(rows.values(), default=0) <= 1, "a row is committed twice"
    if state == TORN:
        entry = cluster.ledger[-1]
        batches, missing = entry.batch + 1, {cluster.begun[one.id, one.producer.epoch][1] for one in entry.transactions}
    else:
        assert checkpoint.next == BATCHES, "the query does not end"
        batches, missing = BATCHES, set()
    assert set(rows) == {(batch, task) for batch in range(batches) for task in range(TASKS)} - missing
    return state


@pytest.mark.parametrize("seed", range(300))
def test_crashes_lose_and_repeat_nothing(seed: int) -> None:
    assert simulate(seed, faults=6, zombies=False, timeouts=False, lossy=True) == DONE


@pytest.mark.parametrize("seed", range(300))
def test_drivers_and_tasks_that_live_on_lose_and_repeat_nothing_unsaid(seed: int) -> None:
    simulate(seed, faults=6, zombies=True, timeouts=False, lossy=True)


@pytest.mark.parametrize("seed", range(300))
def test_timeouts_lose_and_repeat_nothing_unsaid(seed: int) -> None:
    simulate(seed, faults=4, zombies=True, timeouts=True, lossy=True)


def test_two_hundred_restarts_in_a_row() -> None:
    assert simulate(1, faults=200, zombies=False, timeouts=False, lossy=False) == DONE


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1_000, 21_000, 1_000))
def test_many_schedules(seed: int) -> None:
    for each in range(seed, seed + 1_000):
        simulate(each, faults=8, zombies=each % 2 == 0, timeouts=each % 3 == 0, lossy=True)


# --- deliberate faults -----------------------------------------------------------------------------------------------


def without(steps: Steps[Any], kind: type[Request], answer: Any) -> Steps[Any]:
    """Leave out requests of a kind, as if the answer had come."""
    try:
        request = next(steps)
        while True:
            if isinstance(request, kind):
                request = steps.send(answer(request) if callable(answer) else answer)
                continue
            try:
                found = yield request
            except KafkaError as error:
                request = steps.throw(error)
            else:
                request = steps.send(found)
    except StopIteration as end:
        return end.value


class NeverLooksForEnded(Correct):
    """The driver decides without a look at the transactions."""

    @staticmethod
    def commit_batch(*given: Any) -> Steps[None]:
        return without(rules.commit_batch(*given), rules.FindEnded, set())


class NeverFinishes(Correct):
    """A restart takes what is decided for done."""

    @staticmethod
    def open_batch(owner: Owner, clean_since: Producer | None = None) -> Steps[Opened]:
        everything = lambda request: {each.id: rules.ENDED for each in request.transactions}  # noqa: E731
        return without(rules.open_batch(owner, clean_since), rules.End, everything)


class DecidesLate(Correct):
    """The driver commits first, and records it then."""

    @staticmethod
    def commit_batch(opened: Opened, owner: Owner, batch: int, transactions: Any, repeated: int | None) -> Steps[None]:
        if repeated is None:
            yield rules.Fence()
            yield rules.End(transactions, True)
            entry = opened.entry._replace(state=DONE, owner=owner, batch=batch, done=batch, rows=TASKS)
            yield rules.Write(entry)


@pytest.mark.parametrize("how", [NeverLooksForEnded, NeverFinishes, DecidesLate])
def test_simulation_notices_deliberate_faults(how: Any) -> None:
    failures = 0
    for seed in range(400):
        try:
            state = simulate(seed, faults=6, zombies=True, timeouts=how is NeverLooksForEnded, lossy=False, how=how)
            failures += state == TORN
        except (AssertionError, IllegalStateError):
            failures += 1
    assert failures > 3


# --- the ledger and the names ----------------------------------------------------------------------------------------


def test_moves_of_the_ledger() -> None:
    assert set(MOVES) == {None, CLAIMED, DECIDED, DONE, REVERTED, TORN}
    reachable = {each for targets in MOVES.values() for each in targets}
    assert reachable == set(MOVES) - {None}
    with pytest.raises(IllegalStateError, match="from torn to decided"):
        Entry(TORN, Owner(CHECKPOINT)).move(DECIDED)


TRANSACTIONS = st.builds(
    Transaction,
    st.text(),
    st.builds(Producer, st.integers(0, 1 << 62), st.integers(0, 32767)),
    st.integers(0, 1 << 40),
    st.dictionaries(st.sampled_from(["a", "b"]), st.just({"0": [1, 2], "7": [0, 1 << 40]})),
)


@given(
    st.sampled_from(sorted(each for each in MOVES if each)),
    st.text(),
    st.none() | st.text(),
    st.integers(-1, 1 << 62),
    st.none() | st.builds(Producer, st.integers(0, 1 << 62), st.integers(0, 32767)),
    st.lists(TRANSACTIONS, max_size=3),
)
def test_entries_survive_the_ledger(
    state: str, checkpoint: str, query: str | None, batch: int, opened: Producer | None, found: list[Transaction]
) -> None:
    entry = Entry(state, Owner(checkpoint, query), batch, batch, 5, opened, tuple(found))
    assert Entry.from_bytes(entry.as_bytes()) == entry


def many_ranges(count: int) -> Entry:
    offsets = {"a": {str(number): [5, 7] for number in range(count)}}
    two = tuple(Transaction(f"p-{each}-0", Producer(1, 1), 3 * count, offsets) for each in range(2))
    return Entry(DECIDED, Owner(CHECKPOINT, QUERY), 4, 3, transactions=two)


def test_an_entry_with_very_many_ranges_keeps_one_of_each_transaction() -> None:
    assert Entry.from_bytes(many_ranges(2_500).as_bytes()) == many_ranges(2_500)
    found = Entry.from_bytes(many_ranges(2_501).as_bytes())
    assert [each.offsets for each in found.transactions] == [{"a": {"0": [5, 7]}}] * 2
    assert str(found.transactions[1]) == (
        "p-1-0 (7503 rows: a-0 from offset 5 to 7, and in partitions that the ledger does not name)"
    )


@pytest.mark.parametrize(("taken_for", "state"), [(rules.ENDED, DONE), (rules.LOST, TORN)])
def test_people_settle_what_nobody_can_tell_any_more(taken_for: str, state: str) -> None:
    entry = many_ranges(1)
    written: list[Entry] = []

    def settled(forgotten: str | None) -> None:
        steps = rules.settle(entry, True, forgotten)
        answers = {
            rules.Fence: Producer(0, 1),
            rules.Read: entry,
            rules.End: {"p-0-0": rules.ENDED, "p-1-0": rules.FORGOTTEN},
            rules.Write: Producer(0, 2),
            rules.AbortOpen: 0,
        }
        request = next(steps)
        while True:
            if isinstance(request, rules.Write):
                written.append(request.entry)
            request = steps.send(answers[type(request)])

    with pytest.raises(KafkaError, match=r"1 of its 2 transactions.*p-1-0 .*--deleted-rows"):
        settled(None)
    assert written == []
    with pytest.raises(KafkaError if state == TORN else StopIteration):
        settled(taken_for)
    assert [each.state for each in written] == [state]


@pytest.mark.parametrize("value", [b"", b"{}", b'{"version": 2}', b"[]", b'{"version": 1, "state": "odd"}', b"\xff"])
def test_unreadable_entries_are_an_error(value: bytes) -> None:
    with pytest.raises(KafkaError, match="cannot be read"):
        Entry.from_bytes(value)


def test_pattern_finds_the_ids_of_tasks_only() -> None:
    import re

    pattern = pattern_of("orders.copy+1")
    assert re.fullmatch(pattern, transactional_id("orders.copy+1", 12, 3))
    for other in ("orders.copy+1-driver", "ordersxcopy+1-1-1", "orders.copy+1-x-1-1"):
        assert not re.fullmatch(pattern, other)
