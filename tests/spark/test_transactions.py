"""The rules of the exactly-once sink in a simulation: drivers that die or live on, lost answers, time-outs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import IllegalStateError, KafkaError, ProducerFencedError
from pykclient.spark import transactions as rules
from pykclient.spark.transactions import (
    BY_TASKS,
    CLAIMED,
    DECIDED,
    DONE,
    MOVES,
    REVERTED,
    TORN,
    Content,
    Entry,
    FoundToken,
    Opened,
    Owner,
    Producer,
    Request,
    Steps,
    Token,
    TokenLog,
    Transaction,
    attempt_ids,
    pattern_of,
    task_role,
    transactional_id,
)

CHECKPOINT, QUERY = "/c0", "q"
BATCHES, TASKS = 4, 3

ONGOING, COMMITTED, ABORTED = "ongoing", "committed", "aborted"

#: The hash of each row.
HASH = 1 << 63 | 5


class Record:
    """A record of the ledger, in a transaction of the query with this prefix."""

    def __init__(self, prefix: str, entry: Entry) -> None:
        self.prefix = prefix
        self.entry = entry
        self.state = ONGOING


class Cluster:
    """Transactions of the second generation, and the ledger, as brokers keep them."""

    def __init__(self, rng: random.Random, *, lossy: bool) -> None:
        self.rng = rng
        #: Answers to EndTxn get lost, and coordinators cannot be reached.
        self.lossy = lossy
        self.epochs: Counter[str] = Counter()
        #: The state and the rows of each transaction that was begun, by its id and epoch.
        self.begun: dict[tuple[str, int], tuple[str, tuple[str, int, int]]] = {}
        self.ledger: list[Record] = []
        #: The current producers of the ledger by prefix.
        self.owners: dict[str, Producer] = {}
        #: Tokens with their prefix, and the id and epoch of their transaction, or None if they are in none.
        self.tokens: list[tuple[str, tuple[str, int] | None, Token]] = []

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

    def write_row(self, id: str, producer: Producer, row: tuple[str, int, int]) -> None:
        if self.epochs[id] != producer.epoch:
            raise ProducerFencedError(id)
        self.begun[id, producer.epoch] = (ONGOING, row)

    def open(self, prefix: str) -> list[Transaction]:
        return [
            Transaction(id, Producer(1, epoch), 0, {})
            for (id, epoch), (state, row) in self.begun.items()
            if state == ONGOING and self.epochs[id] == epoch and row[0] == prefix
        ]

    def end(self, wanted: Transaction, commit: bool) -> str:
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

    def committed(self) -> Counter[tuple[str, int, int]]:
        return Counter(row for state, row in self.begun.values() if state == COMMITTED)

    # --- the ledger

    def next_owner(self, prefix: str) -> Producer:
        owner = self.owners.get(prefix, Producer(0, -1))
        exhausted = owner.epoch >= rules._LAST_EPOCH
        self.owners[prefix] = Producer(owner.producer_id + 1, 0) if exhausted else owner._replace(epoch=owner.epoch + 1)
        return self.owners[prefix]

    def abort_record(self, prefix: str) -> None:
        """End the open transaction of the query in the ledger, as its timeout or its next producer does."""
        for record in self.ledger:
            if record.prefix == prefix and record.state == ONGOING:
                record.state = ABORTED
                self.next_owner(prefix)

    def first_open_record(self) -> int:
        """The last stable offset."""
        places = (place for place, record in enumerate(self.ledger) if record.state == ONGOING)
        return next(places, len(self.ledger))

    def last_entry(self, prefix: str, end: int) -> Entry | None:
        found = [each.entry for each in self.ledger[:end] if each.prefix == prefix and each.state == COMMITTED]
        return found[-1] if found else None


class Session:
    """One process's clients: the ledger's producer, which another one can fence. Each yield: see ``performed``."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.prefix = prefix
        self.producer: Producer | None = None

    def perform(self, request: Request) -> Generator[None, None, Any]:
        cluster, prefix = self.cluster, self.prefix
        if isinstance(request, rules.Read):
            return (yield from self.read())
        if isinstance(request, rules.Fence):
            if self.producer is None:
                cluster.abort_record(prefix)
                self.producer = cluster.next_owner(prefix)
            return self.producer
        if isinstance(request, rules.Write):
            assert request.entry is not None
            self.check_owner()
            record = Record(prefix, Entry.from_bytes(request.entry.as_bytes()))
            cluster.ledger.append(record)
            yield
            self.check_owner()
            record.state = COMMITTED
            self.producer = cluster.next_owner(prefix)
            if cluster.lossy and cluster.rng.random() < 0.03:
                raise KafkaError("no answer from the ledger")
            return self.producer
        if isinstance(request, rules.End):
            outcomes = {}
            for each in request.transactions:
                outcomes[each.id] = cluster.end(each, request.commit)
                yield
            return outcomes
        if isinstance(request, rules.FindEnded):
            still = {(each.id, each.producer.epoch) for each in cluster.open(prefix)}
            return {each.id for each in request.transactions if (each.id, each.producer.epoch) not in still}
        if isinstance(request, rules.FindOwner):
            return cluster.owners.get(prefix)
        if isinstance(request, rules.ReadTokens):
            end = len(cluster.tokens)
            yield
            several = enumerate(cluster.tokens[:end])
            return TokenLog(
                end,
                [
                    FoundToken(offset, token)
                    for offset, (of, _, token) in several
                    if of == prefix and request.start is not None and offset >= request.start
                ],
            )
        if isinstance(request, rules.IsCommitted):
            place = cluster.tokens[request.offset][1]
            patience = 30
            while place is not None and cluster.begun[place][0] == ONGOING:
                yield
                patience -= 1
                if patience < 0:
                    raise KafkaError("an open transaction hides the token")
            return place is None or cluster.begun[place][0] == COMMITTED
        if isinstance(request, rules.FenceTask):
            yield
            cluster.init(request.id)
            return None
        assert isinstance(request, rules.FindOpen)
        return cluster.open(prefix)

    def read(self) -> Generator[None, None, Entry | None]:
        """Read up to the high watermark. The transaction of a driver that is dead ends with its timeout."""
        cluster, end, patience = self.cluster, len(self.cluster.ledger), 30
        while (first := cluster.first_open_record()) < end:
            yield
            patience -= 1
            if patience < 0:
                cluster.abort_record(cluster.ledger[first].prefix)
        return cluster.last_entry(self.prefix, end)

    def commit_task(self, id: str, producer: Producer, token: Token) -> Generator[None, None, None]:
        """Perform CommitTask, in the transaction with this id and producer."""
        cluster, place = self.cluster, (id, producer.epoch)
        if cluster.epochs[id] != producer.epoch:
            raise ProducerFencedError(id)
        cluster.tokens.append((self.prefix, self.place_of_token(place), token))
        yield
        if cluster.epochs[id] != producer.epoch:
            raise ProducerFencedError(id)
        cluster.begun[place] = (COMMITTED, cluster.begun[place][1])
        cluster.epochs[id] += 1
        yield
        if cluster.lossy and cluster.rng.random() < 0.1:
            raise KafkaError("no answer to EndTxn")

    def place_of_token(self, place: tuple[str, int]) -> tuple[str, int] | None:
        return place

    def check_owner(self) -> None:
        if self.producer != self.cluster.owners[self.prefix]:
            raise ProducerFencedError("the ledger")


class Query:
    """A streaming query, and its checkpoint: the next batch to run."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.next = 0
        #: The number of its runs so far. The executors of an earlier one may be gone.
        self.runs = 0
        self.state = ""


def performed(
    session: Session, steps: Steps[Any], id: str = "", producer: Producer | None = None
) -> Generator[None, None, Any]:
    """Perform the requests of a driver, or of a task with a transaction.

    Each yield is a moment at which it can die, or others can act.
    """
    try:
        request = next(steps)
        while True:
            yield
            try:
                if isinstance(request, rules.CommitTask) and producer is not None:
                    yield from session.commit_task(id, producer, request.token)
                    answer = None
                else:
                    answer = yield from session.perform(request)
            except KafkaError as error:
                request = steps.throw(error)
            else:
                yield
                request = steps.send(answer)
    except StopIteration as end:
        return end.value


def incarnation(cluster: Cluster, query: Query, how: Any, *, moves: bool, zombie_tasks: bool) -> Iterator[None]:
    """Run the query from its checkpoint on, until its end or an error. With ``moves``, the checkpoint may be moved."""
    query.runs += 1
    run, known, prefix = query.runs, None, query.prefix
    place = f"/c{cluster.rng.randrange(2)}" if moves else CHECKPOINT
    while query.next < BATCHES:
        batch = query.next
        opening = how.session(cluster, prefix)
        opened: Opened = yield from performed(opening, how.open_batch(Owner(place), known))
        known = opened.producer
        transactions, repeated = [], None
        for number in range(TASKS):
            yield
            if not zombie_tasks and query.runs != run:
                return
            row = (prefix, batch, number)
            if task_role(opened, QUERY, batch) == rules.REPEATS:
                repeated = Content.total([repeated or Content(0, 0), Content(1, HASH + number)])
                continue
            attempt = 0
            while cluster.rng.random() < 0.1:  # a failed, or a speculative attempt
                id = transactional_id(prefix, number, attempt)
                cluster.write_row(id, cluster.init(id), row)
                attempt += 1
                yield
                if not zombie_tasks and query.runs != run:
                    return
            id = transactional_id(prefix, number, attempt)
            producer = cluster.init(id)
            yield
            cluster.write_row(id, producer, row)
            transactions.append(Transaction(id, producer, 1, {}, HASH + number))
        committing = how.session(cluster, prefix)
        yield from performed(committing, how.commit_batch(opened, Owner(place, QUERY), batch, transactions, repeated))
        yield
        if query.next == batch:  # Spark lets no two queries write the same batch to a checkpoint
            query.next = batch + 1


def attempt_by_task(
    session: Session, how: Any, opened: Opened, batch: int, number: int, attempt: int
) -> Generator[None, None, Token | Content]:
    """Run an attempt of a task that commits its own rows. Return its token, or the row that it did not write."""
    cluster, prefix = session.cluster, session.prefix
    content = Content(1, HASH + number)
    token = Token(QUERY, batch, number, content)
    if task_role(opened, QUERY, batch) == rules.REPEATS:
        return content
    if rules.needs_token(opened, batch, attempt):
        found: Token | None = yield from performed(session, rules.find_token(opened, QUERY, batch, number))
        if found is not None:
            rules.check_token(opened, found, content)
            return found
    id, other = attempt_ids(prefix, number, attempt)
    producer = cluster.init(id)
    yield
    cluster.write_row(id, producer, (prefix, batch, number))
    yield
    committing = performed(session, how.commit_task(opened, token, other), id, producer)
    committed: Token = yield from committing
    if committed is not token:
        cluster.time_out(id)  # the task aborts it
    return committed


def tasks_by_task(
    cluster: Cluster, query: Query, how: Any, opened: Opened, batch: int, run: int, *, zombie_tasks: bool
) -> Generator[None, None, list[Token | Content]]:
    """Run all tasks of a batch, some of them as two attempts at once, and return the results that Spark takes.

    With four failures of a task, the batch fails.
    """
    rng, session = cluster.rng, how.session(cluster, query.prefix)
    results: dict[int, Token | Content] = {}
    failures: Counter[int] = Counter()
    attempts: Counter[int] = Counter()
    running: list[tuple[int, Generator[None, None, Token | Content]]] = []

    def start(number: int) -> None:
        running.append((number, attempt_by_task(session, how, opened, batch, number, attempts[number])))
        attempts[number] += 1

    for number in range(TASKS):
        start(number)
    while len(results) < TASKS:
        yield
        if not zombie_tasks and query.runs != run:
            raise KafkaError("the executors are gone")
        number, turn = running.pop(rng.randrange(len(running)))
        alone = number not in [each for each, _ in running]
        if alone and number not in results and rng.random() < 0.05:
            start(number)  # a speculative attempt
        error = KafkaError("its worker is killed, and its transaction stays open")
        if rng.random() >= 0.03:
            try:
                next(turn)
                running.append((number, turn))
                continue
            except StopIteration as end:
                results.setdefault(number, end.value)
                if rng.random() < 0.5:  # Spark kills the other attempt, or it goes on for a while
                    running = [each for each in running if each[0] != number]
                continue
            except KafkaError as failed:
                error = failed
        failures[number] += 1
        if number in results:
            continue
        if failures[number] == 4:
            raise error
        if number not in [each for each, _ in running]:
            start(number)
    return [results[number] for number in range(TASKS)]


def incarnation_by_task(cluster: Cluster, query: Query, how: Any, *, moves: bool, zombie_tasks: bool) -> Iterator[None]:
    """Run the query from its checkpoint on, with tasks that commit their own rows: see ``incarnation``."""
    query.runs += 1
    run, known, prefix = query.runs, None, query.prefix
    place = f"/c{cluster.rng.randrange(2)}" if moves else CHECKPOINT
    while query.next < BATCHES:
        batch = query.next
        opening = how.session(cluster, prefix)
        opened: Opened = yield from performed(opening, how.open_batch(Owner(place), known, by_tasks=True))
        known = opened.producer
        found = yield from tasks_by_task(cluster, query, how, opened, batch, run, zombie_tasks=zombie_tasks)
        tokens = [each for each in found if isinstance(each, Token)]
        repeated = [each for each in found if isinstance(each, Content)]
        content = Content.total(repeated) if repeated else None
        committing = how.session(cluster, prefix)
        yield from performed(committing, how.complete_batch(opened, Owner(place, QUERY), batch, tokens, content))
        yield
        if query.next == batch:
            query.next = batch + 1


class Correct:
    incarnation = staticmethod(incarnation)
    session = Session
    open_batch = staticmethod(rules.open_batch)
    commit_batch = staticmethod(rules.commit_batch)


class CorrectByTask(Correct):
    incarnation = staticmethod(incarnation_by_task)
    commit_task = staticmethod(rules.commit_task)
    complete_batch = staticmethod(rules.complete_batch)


class Run:
    """A run of a query, which does nothing for some steps at times."""

    def __init__(self, query: Query, turn: Iterator[None], sleeps_until: int) -> None:
        self.query = query
        self.turn = turn
        self.sleeps_until = sleeps_until


def simulate(
    seed: int,
    *,
    faults: int,
    zombies: bool,
    timeouts: bool,
    lossy: bool,
    how: Any = Correct,
    queries: int = 1,
    moves: bool = False,
    zombie_tasks: bool = True,
) -> set[str]:
    """Run queries with faults until they end, and check what they have written. Return their last states."""
    rng = random.Random(seed)
    cluster = Cluster(rng, lossy=lossy)
    running = [Query(f"p{number}") for number in range(queries)]

    alive: list[Run] = []
    step = restarts = 0

    def start(query: Query) -> None:
        turn = how.incarnation(cluster, query, how, moves=moves, zombie_tasks=zombie_tasks)
        alive.append(Run(query, turn, step + rng.randrange(100)))  # it is down for a while

    for query in running:
        start(query)
    while alive and restarts < 400:
        step += 1
        run = rng.choice(alive)
        if run.sleeps_until > step:
            continue
        query, chance = run.query, rng.random()
        if faults and chance < 0.05:
            faults -= 1
            if not zombies or chance < 0.03:
                alive = [each for each in alive if each.query is not query]
            run.sleeps_until = step + rng.randrange(200)  # a driver that lives on may have been paused
            start(query)
            continue
        if timeouts and chance > 0.99 and (found := cluster.open(query.prefix)):
            cluster.time_out(rng.choice(found).id)
        try:
            next(run.turn)
        except (KafkaError, StopIteration):
            alive.remove(run)
            last = cluster.last_entry(query.prefix, len(cluster.ledger))
            query.state = last.state if last else ""
            if query.state == TORN:
                alive = [each for each in alive if each.query is not query]
            elif query.next < BATCHES and query not in [each.query for each in alive]:
                restarts += 1
                start(query)
    rows = cluster.committed()
    assert max(rows.values(), default=0) <= 1, "a row is committed twice"
    expected = set()
    for query in running:
        batches, missing = BATCHES, set()
        if query.state == TORN:
            entry = cluster.last_entry(query.prefix, len(cluster.ledger))
            assert entry is not None
            batches = entry.batch + 1
            missing = {cluster.begun[each.id, each.producer.epoch][1] for each in entry.transactions}
        else:
            assert query.next == BATCHES, "the query does not end"
        expected |= {(query.prefix, batch, task) for batch in range(batches) for task in range(TASKS)} - missing
    assert set(rows) == expected
    return {query.state for query in running}


@pytest.mark.parametrize("seed", range(300))
def test_crashes_lose_and_repeat_nothing(seed: int) -> None:
    assert simulate(seed, faults=6, zombies=False, timeouts=False, lossy=True) == {DONE}


@pytest.mark.parametrize("seed", range(300))
def test_zombie_drivers_and_tasks_lose_nothing_silently(seed: int) -> None:
    simulate(seed, faults=6, zombies=True, timeouts=False, lossy=True)


@pytest.mark.parametrize("seed", range(300))
def test_timeouts_lose_and_repeat_nothing_silently(seed: int) -> None:
    simulate(seed, faults=4, zombies=True, timeouts=True, lossy=True)


@pytest.mark.parametrize("seed", range(300))
def test_drivers_that_live_on_tear_nothing(seed: int) -> None:
    """Their executors are gone."""
    assert simulate(seed, faults=6, zombies=True, timeouts=False, lossy=True, zombie_tasks=False) == {DONE}


@pytest.mark.parametrize("seed", range(200))
def test_checkpoints_that_were_moved_lose_and_repeat_nothing(seed: int) -> None:
    assert simulate(seed, faults=6, zombies=False, timeouts=False, lossy=True, moves=True) == {DONE}
    simulate(seed, faults=6, zombies=True, timeouts=False, lossy=True, moves=True)


@pytest.mark.parametrize("seed", range(300))
def test_queries_with_one_ledger_hide_no_decisions_from_each_other(seed: int) -> None:
    assert simulate(seed, faults=8, zombies=False, timeouts=False, lossy=True, queries=3) == {DONE}


@pytest.mark.parametrize("seed", range(200))
def test_epochs_of_the_ledgers_producer_run_out(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(rules, "_LAST_EPOCH", 5)
    assert simulate(seed, faults=0, zombies=False, timeouts=False, lossy=False) == {DONE}
    assert simulate(seed, faults=6, zombies=True, timeouts=False, lossy=True, zombie_tasks=False) == {DONE}


def test_two_hundred_restarts_lose_and_repeat_nothing() -> None:
    assert simulate(1, faults=200, zombies=False, timeouts=False, lossy=False) == {DONE}


@pytest.mark.parametrize("seed", range(300))
def test_tasks_that_commit_their_rows_lose_and_repeat_nothing(seed: int) -> None:
    """In spite of drivers and tasks that live on, and of transactions that time out: there is nothing to tear."""
    how = CorrectByTask
    assert simulate(seed, faults=6, zombies=False, timeouts=True, lossy=True, how=how) == {BY_TASKS}
    assert simulate(seed, faults=6, zombies=True, timeouts=True, lossy=True, how=how) == {BY_TASKS}
    assert simulate(seed, faults=8, zombies=True, timeouts=True, lossy=True, how=how, queries=3) == {BY_TASKS}
    assert simulate(seed, faults=6, zombies=False, timeouts=True, lossy=True, how=how, moves=True) == {BY_TASKS}
    simulate(seed, faults=6, zombies=True, timeouts=True, lossy=True, how=how, moves=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", [Correct, CorrectByTask])
@pytest.mark.parametrize("seed", range(1_000, 21_000, 1_000))
def test_many_schedules_pass_with_spark_transactions(seed: int, how: Any) -> None:
    for each in range(seed, seed + 1_000):
        zombies, timeouts, queries = each % 2 == 0, each % 3 == 0, 1 + each % 3
        simulate(each, faults=8, zombies=zombies, timeouts=timeouts, lossy=True, queries=queries, moves=True, how=how)


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
    def open_batch(owner: Owner, clean_since: Producer | None = None, *, by_tasks: bool = False) -> Steps[Opened]:
        everything = lambda request: {each.id: rules.ENDED for each in request.transactions}  # noqa: E731
        return without(rules.open_batch(owner, clean_since, by_tasks=by_tasks), rules.End, everything)


class DecidesLate(Correct):
    """The driver commits first, and records it then."""

    @staticmethod
    def commit_batch(
        opened: Opened,
        owner: Owner,
        batch: int,
        transactions: Any,
        repeated: Content | None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> Steps[None]:
        if repeated is None:
            yield rules.Fence()
            yield rules.End(transactions, True)
            entry = opened.entry._replace(state=DONE, owner=owner, batch=batch, done=batch, content=Content(0, 0))
            yield rules.Write(entry)


class ReadsStable(Correct):
    """The ledger is read up to its last stable offset, which the transaction of another query holds back."""

    class session(Session):  # noqa: N801
        def read(self) -> Generator[None, None, Entry | None]:
            yield
            return self.cluster.last_entry(self.prefix, self.cluster.first_open_record())


class AbortsAnything(Correct):
    """What is open is aborted, whoever has opened it."""

    @staticmethod
    def open_batch(owner: Owner, clean_since: Producer | None = None, *, by_tasks: bool = False) -> Steps[Opened]:
        steps = rules.open_batch(owner, clean_since, by_tasks=by_tasks)
        producer: Producer | None = None
        request = next(steps)
        try:
            while True:
                answer = producer if isinstance(request, rules.FindOwner) else (yield request)
                if isinstance(request, (rules.Fence, rules.Write)):
                    producer = answer
                request = steps.send(answer)
        except StopIteration as end:
            opened: Opened = end.value
            return opened


@pytest.mark.parametrize("how", [NeverLooksForEnded, NeverFinishes, DecidesLate, ReadsStable, AbortsAnything])
def test_simulation_notices_deliberate_faults(how: Any) -> None:
    failures = 0
    for seed in range(600):
        try:
            states = simulate(
                seed,
                faults=6,
                zombies=how is not ReadsStable,
                timeouts=how is NeverLooksForEnded,
                lossy=False,
                how=how,
                queries=3 if how is ReadsStable else 1,
                zombie_tasks=how is not AbortsAnything,
            )
            failures += TORN in states
        except (AssertionError, IllegalStateError):
            failures += 1
    assert failures > 3


class TokenOutsideOfTheTransaction(CorrectByTask):
    """It counts even if the rows are aborted."""

    class session(Session):  # noqa: N801
        def place_of_token(self, place: tuple[str, int]) -> tuple[str, int] | None:
            del place
            return None


class TokenAfterTheCommit(CorrectByTask):
    """A task that dies in between leaves rows without a token."""

    class session(Session):  # noqa: N801
        def commit_task(self, id: str, producer: Producer, token: Token) -> Generator[None, None, None]:
            steps = super().commit_task(id, producer, token)
            next(steps)
            later = self.cluster.tokens.pop()
            yield from steps
            self.cluster.tokens.append(later)


class TakesAbortedTokens(CorrectByTask):
    """A token counts as soon as it is written."""

    class session(Session):  # noqa: N801
        def perform(self, request: Request) -> Generator[None, None, Any]:
            if isinstance(request, rules.IsCommitted):
                return True
            return (yield from super().perform(request))


class LooksBeforeFencing(CorrectByTask):
    """Another attempt can commit after the look."""

    @staticmethod
    def commit_task(opened: Opened, token: Token, other_id: str) -> Steps[Token]:
        found = yield from rules.find_token(opened, token.query, token.batch, token.partition)
        yield rules.FenceTask(other_id)
        if found is None:
            yield rules.CommitTask(token)
        return found or token


class FencesNobody(CorrectByTask):
    """Attempts with the other id go on."""

    @staticmethod
    def commit_task(opened: Opened, token: Token, other_id: str) -> Steps[Token]:
        return without(rules.commit_task(opened, token, other_id), rules.FenceTask, None)


class LooksPastTheTokens(CorrectByTask):
    """Tasks look only for tokens that were written after their batch was opened."""

    @staticmethod
    def open_batch(owner: Owner, clean_since: Producer | None = None, *, by_tasks: bool = False) -> Steps[Opened]:
        opened = yield from rules.open_batch(owner, clean_since, by_tasks=by_tasks)
        assert opened.tokens is not None
        return opened._replace(tokens=rules.Tokens(-1, opened.tokens.end, opened.tokens.end))


@pytest.mark.parametrize(
    "how",
    [
        TokenOutsideOfTheTransaction,
        TokenAfterTheCommit,
        TakesAbortedTokens,
        LooksBeforeFencing,
        FencesNobody,
        LooksPastTheTokens,
    ],
)
def test_simulation_notices_deliberate_faults_of_tasks(how: Any) -> None:
    failures = seed = 0
    while failures < 3 and seed < 600:
        seed += 1
        try:
            simulate(seed, faults=6, zombies=True, timeouts=True, lossy=False, how=how)
        except AssertionError:
            failures += 1
    assert failures == 3


# --- the ledger and the names ----------------------------------------------------------------------------------------


def test_ledger_allows_only_valid_moves() -> None:
    assert set(MOVES) == {None, CLAIMED, DECIDED, DONE, REVERTED, TORN, BY_TASKS}
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
    st.integers(0, (1 << 64) - 1),
)


@given(
    st.sampled_from(sorted(each for each in MOVES if each)),
    st.text(),
    st.none() | st.text(),
    st.integers(-1, 1 << 62),
    st.none() | st.builds(Producer, st.integers(0, 1 << 62), st.integers(0, 32767)),
    st.lists(TRANSACTIONS, max_size=3),
)
def test_ledger_entries_survive_encoding(
    state: str, checkpoint: str, query: str | None, batch: int, opened: Producer | None, found: list[Transaction]
) -> None:
    content = Content(5, (1 << 64) - 1)
    entry = Entry(state, Owner(checkpoint, query), batch, batch, content, opened, tuple(found), {"a": {"0": [1, 2]}}, 7)
    assert Entry.from_bytes(entry.as_bytes()) == entry


@given(st.text(), st.integers(0, 1 << 62), st.integers(0, 1 << 31), st.builds(Content, st.integers(), st.integers()))
def test_tokens_survive_encoding(query: str, batch: int, partition: int, content: Content) -> None:
    token = Token(query, batch, partition, content, {"a": {"0": [1, 2]}})
    assert Token.from_bytes(token.as_bytes()) == token


def test_token_with_many_ranges_keeps_some() -> None:
    written = {topic: {str(number): [5, 7] for number in range(10)} for topic in "abc"}
    found = Token.from_bytes(Token("q", 1, 2, Content(3, 4), written).as_bytes())
    assert [(topic, len(kept)) for topic, kept in found.written.items()] == [("a", 10), ("b", 6)]


def many_ranges(count: int) -> Entry:
    offsets = {"a": {str(number): [5, 7] for number in range(count)}}
    two = tuple(Transaction(f"p-{each}-0", Producer(1, 1), 3 * count, offsets) for each in range(2))
    return Entry(DECIDED, Owner(CHECKPOINT, QUERY), 4, 3, transactions=two)


def test_entry_with_many_ranges_keeps_one_per_transaction() -> None:
    assert Entry.from_bytes(many_ranges(2_500).as_bytes()) == many_ranges(2_500)
    found = Entry.from_bytes(many_ranges(2_501).as_bytes())
    assert [each.offsets for each in found.transactions] == [{"a": {"0": [5, 7]}}] * 2
    assert str(found.transactions[1]) == (
        "p-1-0 (7503 rows: a-0 from offset 5 to 7, and in partitions that the ledger does not name)"
    )


@pytest.mark.parametrize(("taken_for", "state"), [(rules.ENDED, DONE), (rules.LOST, TORN)])
def test_administrators_settle_unknown_outcomes(taken_for: str, state: str) -> None:
    entry = many_ranges(1)
    written: list[Entry] = []

    def settled(forgotten: str | None) -> None:
        steps = rules.settle(entry, True, forgotten)
        answers = {
            rules.Fence: Producer(0, 1),
            rules.Read: entry,
            rules.End: {"p-0-0": rules.ENDED, "p-1-0": rules.FORGOTTEN},
            rules.Write: Producer(0, 2),
            rules.FindOpen: [],
        }
        request = next(steps)
        while True:
            if isinstance(request, rules.Write):
                assert request.entry is not None
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


@pytest.mark.parametrize("value", [b"", b"{}", b'{"version": 2}', b"[]", b'{"version": 1}', b"\xff"])
def test_unreadable_tokens_are_an_error(value: bytes) -> None:
    with pytest.raises(KafkaError, match="cannot be read"):
        Token.from_bytes(value)


def test_keys_of_tokens_name_one_prefix() -> None:
    for prefix in ("a", "a-1", "a-1-20", ""):
        assert rules.prefix_of(rules.token_key(prefix, 20)) == prefix
    assert rules.prefix_of(b"\xff-1") == "\ufffd"


def test_pattern_matches_only_task_ids() -> None:
    import re

    pattern = pattern_of("orders.copy+1")
    assert re.fullmatch(pattern, transactional_id("orders.copy+1", 12, 3))
    for other in ("orders.copy+1-driver", "ordersxcopy+1-1-1", "orders.copy+1-x-1-1"):
        assert not re.fullmatch(pattern, other)
