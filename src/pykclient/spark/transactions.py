"""Decisions of the exactly-once sink, without I/O: its ledger, its driver and its tasks.

A micro-batch is written in one transaction for each task that has rows. Tasks leave their transactions open, and the
driver commits them all:

1. ``open_batch``, before the tasks: fence earlier drivers, finish what they have decided, abort the rest.
2. Each task writes its rows in a transaction, and reports its producer id and epoch (``task_role``).
3. ``commit_batch``: record the decision in the ledger, commit all transactions, record that this is done.

The decision counts: from then on the batch is committed, however often that is interrupted. Before it, nothing is.

The ledger is a compacted topic, in which each query has one key and its last entry counts. Its producer is
transactional, with one transactional id for each query, so that a new driver fences all earlier ones. A driver that
opens a batch gets an epoch. It may decide only if it gets the next one, since otherwise another driver has been there.

In the other mode, tasks commit their own transactions, and the driver only checks and counts. Each transaction has the
task's rows and a token (``Token``), in a topic of its own. A repeated task that finds its token writes nothing:

1. ``open_batch``: as above, and find where the tokens of the batch begin.
2. Each task writes its rows in a transaction, and ends with ``commit_task``: fence the other attempts, look for a token
   of the task, and commit if there is none. Fencing comes first, so of two attempts at once, only one can commit.
3. ``complete_batch``: compare the tokens with what tasks have reported, and record that the batch is done.

Functions of the driver are generators. They yield requests, which are sent back answered or raise the error that the
request had. ``sink_driver`` performs them on a cluster, tests do it in a simulation.

This module is independent of pyspark and of any cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from pykclient.errors import IllegalStateError, KafkaError

T = TypeVar("T")
Steps = Generator["Request", Any, T]

# --- the ledger ------------------------------------------------------------------------------------------------------

#: The states of an entry.
CLAIMED: Final = "claimed"  # the query has begun, and has committed nothing
DECIDED: Final = "decided"  # the batch is to be committed
DONE: Final = "done"  # all transactions of the batch are committed
REVERTED: Final = "reverted"  # all transactions of the batch were aborted after the decision: it is repeated
TORN: Final = "torn"  # some were committed, and others aborted: only people can help
BY_TASKS: Final = "committed by tasks"  # a batch after the one that is done may be committed in part

#: The states that may follow a state. None stands for a query without an entry.
MOVES: Final[Mapping[str | None, frozenset[str]]] = {
    None: frozenset((CLAIMED, BY_TASKS)),
    CLAIMED: frozenset((CLAIMED, DECIDED, BY_TASKS)),
    DECIDED: frozenset((DONE, REVERTED, TORN)),
    DONE: frozenset((DECIDED, DONE, BY_TASKS)),  # DONE by people
    REVERTED: frozenset((DECIDED, BY_TASKS)),
    TORN: frozenset((DONE, REVERTED)),  # by people
    BY_TASKS: frozenset((BY_TASKS,)),
}

#: Text that ends errors after which a person must decide.
_FORGET = "`pykclient spark-transactions forget` removes the entry of a query that is gone for good"

#: The most ranges of offsets in an entry, as records of a topic are limited in size. Beyond it, each transaction keeps
#: one range, which suffices to find out later whether it was committed.
_MOST_RANGES = 5_000

#: The most ranges of offsets in a token, which only errors show.
_MOST_TOKEN_RANGES = 16

#: The most transactions or ranges that an error names.
_MOST_NAMED = 5

#: The last epoch of a producer id. The next producer of its transactional id gets a new one, and begins with epoch 0.
_LAST_EPOCH = (1 << 15) - 2

_MASK = (1 << 64) - 1

#: The first and last offset of rows, by topic and partition.
Ranges = Mapping[str, Mapping[str, Sequence[int]]]

#: No rows.
NOWHERE: Final[Ranges] = {}


class Producer(NamedTuple):
    """A producer id and an epoch."""

    producer_id: int
    epoch: int

    def follows(self, earlier: Producer) -> bool:
        """Return True if no other producer has had the transactional id since ``earlier``."""
        if self.producer_id == earlier.producer_id:
            return self.epoch == earlier.epoch + 1
        return self.epoch == 0 and earlier.epoch >= _LAST_EPOCH


class Content(NamedTuple):
    """The number of rows, and their fingerprint, which depends neither on their order nor on the tasks that have them.

    ``fingerprint`` is the sum of the rows' hashes, modulo 2**64.
    """

    rows: int
    fingerprint: int

    @staticmethod
    def total(parts: Iterable[tuple[int, int]]) -> Content:
        """Return the content of all parts."""
        rows = fingerprint = 0
        for more, of_more in parts:
            rows, fingerprint = rows + more, fingerprint + of_more & _MASK
        return Content(rows, fingerprint)


class Transaction(NamedTuple):
    """The transaction of a task. ``offsets`` are those of its rows, and ``fingerprint`` is that of ``Content``."""

    id: str
    producer: Producer
    rows: int
    offsets: Ranges
    fingerprint: int = 0

    def __str__(self) -> str:
        places = _places(self.offsets)
        known = sum(last - first + 1 for partitions in self.offsets.values() for first, last in partitions.values())
        if places and known < self.rows:
            places.append("and in partitions that the ledger does not name")
        return f"{self.id} ({self.rows} rows{': ' if places else ''}{', '.join(places)})"


def _places(offsets: Ranges) -> list[str]:
    return [
        f"{topic}-{partition} from offset {first} to {last}"
        for topic, partitions in offsets.items()
        for partition, (first, last) in partitions.items()
    ]


def _first_range(offsets: Ranges) -> Ranges:
    return {topic: dict([next(iter(partitions.items()))]) for topic, partitions in list(offsets.items())[:1]}


def _joined(several: Iterable[Ranges]) -> Ranges:
    """Return for each partition the range that contains those of all transactions."""
    joined: dict[str, dict[str, list[int]]] = {}
    for offsets in several:
        for topic, partitions in offsets.items():
            places = joined.setdefault(topic, {})
            for partition, (first, last) in partitions.items():
                known = places.get(partition, (first, last))
                places[partition] = [min(known[0], first), max(known[1], last)]
    return joined


class Owner(NamedTuple):
    """The query that a prefix belongs to.

    ``checkpoint`` is the location of a stream's checkpoint, empty for batches. ``query`` is Spark's id of a stream,
    which is stored in the checkpoint; None as long as only the driver's planner has seen the query.
    """

    checkpoint: str
    query: str | None = None


class Entry(NamedTuple):
    """An entry of the ledger.

    ``batch`` is the micro-batch it is about, ``done`` the last one that is committed (-1: none), with ``content`` in
    the ranges ``written``. Without rows its content is not known. ``opened`` is the ledger's producer when ``batch``
    was opened. Of BY_TASKS, all tokens of batches after ``done`` are at the offset ``position`` or later; and a
    ``batch`` after ``done`` is one of which people have said that its tokens count, whatever rows it has now.
    """

    state: str
    owner: Owner
    batch: int = -1
    done: int = -1
    content: Content = Content(0, 0)
    opened: Producer | None = None
    transactions: tuple[Transaction, ...] = ()
    written: Ranges = NOWHERE
    position: int = 0

    def move(self, state: str, **changes: Any) -> Entry:
        """Return the next entry. Raises IllegalStateError if the table of moves does not allow it."""
        if state not in MOVES[self.state]:
            raise IllegalStateError(f"the ledger cannot go from {self.state} to {state}")
        return self._replace(state=state, **changes)

    def as_bytes(self) -> bytes:
        """Return the value of the ledger's record."""
        several = [self.written, *(each.offsets for each in self.transactions)]
        ranges = sum(len(partitions) for offsets in several for partitions in offsets.values())
        kept = _first_range if ranges > _MOST_RANGES else dict
        return json.dumps(
            {
                "version": 1,
                "state": self.state,
                "checkpoint": self.owner.checkpoint,
                "query": self.owner.query,
                "batch": self.batch,
                "done": self.done,
                "content": self.content,
                "opened": self.opened,
                "transactions": [
                    [each.id, *each.producer, each.rows, kept(each.offsets), each.fingerprint]
                    for each in self.transactions
                ],
                "written": kept(self.written),
                "position": self.position,
            }
        ).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Entry:
        """Parse the value of a record. Raises KafkaError if it is malformed or of a later version."""
        try:
            found = json.loads(value)
            if found["version"] != 1 or found["state"] not in MOVES:
                raise ValueError(f"version {found['version']}, state {found['state']}")
            return cls(
                found["state"],
                Owner(found["checkpoint"], found["query"]),
                found["batch"],
                found["done"],
                Content(*found["content"]),
                None if found["opened"] is None else Producer(*found["opened"]),
                tuple(
                    Transaction(id, Producer(producer_id, epoch), rows, offsets, fingerprint)
                    for id, producer_id, epoch, rows, offsets, fingerprint in found["transactions"]
                ),
                found["written"],
                found["position"],
            )
        except (ValueError, TypeError, KeyError) as error:
            raise KafkaError(
                f"a record of the ledger cannot be read, perhaps as a later version wrote it: {error}"
            ) from error


# --- tokens ----------------------------------------------------------------------------------------------------------


class Token(NamedTuple):
    """The rows that a task has committed. Its record is part of the task's transaction.

    Records have the prefix and the partition as their key, so that compaction keeps one for each partition.
    ``written`` has the rows' offsets, or some of them. Partitions are those of Spark.
    """

    query: str
    batch: int
    partition: int
    content: Content
    written: Ranges = NOWHERE

    def as_bytes(self) -> bytes:
        """Return the value of the token's record."""
        return json.dumps({"version": 1, **self._replace(written=_some_ranges(self.written))._asdict()}).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Token:
        """Parse the value of a record. Raises KafkaError if it is malformed or of a later version."""
        try:
            found = json.loads(value)
            if found["version"] != 1:
                raise ValueError(f"version {found['version']}")
            content = Content(*found["content"])
            return cls(found["query"], found["batch"], found["partition"], content, found["written"])
        except (ValueError, TypeError, KeyError) as error:
            raise KafkaError(f"a token cannot be read, perhaps as a later version wrote it: {error}") from error


def token_key(prefix: str, partition: int) -> bytes:
    """Return the key of a token's record."""
    return f"{prefix}-{partition}".encode()


def prefix_of(key: bytes) -> str:
    """Return the prefix of a token's key."""
    return key.rpartition(b"-")[0].decode(errors="replace")


def tokens_topic(ledger: str) -> str:
    """Return the topic with the tokens of the queries of a ledger.

    It is another topic, as a task may keep a transaction open in it for much longer than a driver in the ledger.
    """
    return f"{ledger}-tokens"


class FoundToken(NamedTuple):
    """A token with the offset of its record, which may be part of an aborted transaction."""

    offset: int
    token: Token


class TokenLog(NamedTuple):
    """The tokens of a prefix in a range of offsets, in order, and the end of the range."""

    end: int
    found: Sequence[FoundToken] = ()


class Tokens(NamedTuple):
    """The tokens as a driver saw them when it opened a batch: the newest batch, where its tokens begin, and the end."""

    newest: int
    first: int
    end: int

    def start_of(self, batch: int) -> int:
        """Return an offset before all tokens of ``batch`` and later ones."""
        return self.end if self.newest < batch else self.first


def _some_ranges(offsets: Ranges) -> Ranges:
    several = [(topic, number, each) for topic, numbers in offsets.items() for number, each in numbers.items()]
    kept: dict[str, dict[str, Sequence[int]]] = {}
    for topic, number, each in several[:_MOST_TOKEN_RANGES]:
        kept.setdefault(topic, {})[number] = each
    return kept


# --- requests --------------------------------------------------------------------------------------------------------


class Request:
    """Base class of the requests of drivers and tasks."""


class Fence(Request):
    """Get a new epoch for the ledger's producer, which fences all earlier ones. Result: Producer."""


class Read(Request):
    """Read the query's last entry of all that were written before this request. Result: Entry or None.

    Other queries write to the same ledger, and their open transactions would hide what comes after them from readers
    of committed records. So they are waited for.
    """


@dataclass(eq=False)
class Write(Request):
    """Write an entry with the producer that ``Fence`` has started, or remove it. Result: the Producer for later writes.

    ``entry`` is None to remove the query from the ledger.
    """

    entry: Entry | None


@dataclass(eq=False)
class End(Request):
    """Commit or abort transactions. Result: one of the outcomes below for each transactional id."""

    transactions: Sequence[Transaction]
    commit: bool


@dataclass(eq=False)
class FindEnded(Request):
    """Find the transactions that are no longer open. Result: the set of their transactional ids."""

    transactions: Sequence[Transaction]


class FindOpen(Request):
    """Find all open transactions of the query's tasks. Result: a list of Transaction, without rows."""


class FindOwner(Request):
    """Find the ledger's current producer. Result: Producer; None if the coordinator knows none."""


@dataclass(eq=False)
class ReadTokens(Request):
    """Read all tokens of the prefix from an offset on, also those of aborted or open transactions. Result: TokenLog.

    It waits for no transaction. If ``start`` is None, only the end is looked up.
    """

    start: int | None


@dataclass(eq=False)
class IsCommitted(Request):
    """Return whether the token at an offset is committed. Waits for transactions that began before it."""

    offset: int


@dataclass(eq=False)
class FenceTask(Request):
    """Fence the producer of a transactional id. Returns once its last transaction has ended, if there is any."""

    id: str


@dataclass(eq=False)
class CommitTask(Request):
    """Write the token in the task's transaction, and commit that."""

    token: Token


#: Outcomes of ``End``: it has ended in this way, now or before; it was ended in the other way; that is not known now;
#: or cannot be known any more, as neither its coordinator nor its first row is there to tell.
ENDED: Final = "ended"
LOST: Final = "lost"
UNKNOWN: Final = "unknown"
FORGOTTEN: Final = "forgotten"


# --- the driver ------------------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """An opened batch, for its tasks and its commit.

    ``producer`` is the ledger's at that time. With ``is_fenced`` it is this driver's. Otherwise no driver was fenced.
    ``tokens`` is None unless tasks commit their own rows.
    """

    producer: Producer | None
    entry: Entry
    is_fenced: bool = True
    tokens: Tokens | None = None


def open_batch(owner: Owner, clean_since: Producer | None = None, *, by_tasks: bool = False) -> Steps[Opened]:
    """Prepare the ledger for the tasks of a batch.

    ``clean_since`` is the producer that this process opened its last batch with; None in a restart. If that batch is
    done, nothing was opened since, so that there is nothing to abort. With ``by_tasks``, tasks commit their own rows.

    Raises:
        KafkaError: The prefix belongs to another query, or an earlier batch is torn or cannot be finished now; or tasks
            have committed their own rows before, and are not to do so now.
    """
    entry: Entry | None = None
    if clean_since is None:
        entry = yield Read()  # first, so that another query is not fenced
    if entry is not None and entry.owner.checkpoint != owner.checkpoint:
        if not entry.owner.query or not owner.checkpoint or not entry.owner.checkpoint:
            raise _taken(entry)
        if entry.state in {DECIDED, TORN}:
            raise KafkaError(
                f"the transactionalIdPrefix belongs to a query with the checkpoint {entry.owner.checkpoint}, which has "
                f"not finished batch {entry.batch}. If its checkpoint was moved, `pykclient spark-transactions commit` "
                "finishes the batch; otherwise give this query a prefix of its own"
            )
        if by_tasks != (entry.state == BY_TASKS):
            raise _other_mode(entry, "has moved its checkpoint")
        # Another query, or the same one whose checkpoint was moved. Only tasks know Spark's id of the query.
        tokens = (yield from _tokens(entry)) if by_tasks else None
        return Opened((yield FindOwner()), entry, is_fenced=False, tokens=tokens)
    producer: Producer = yield Fence()
    entry = yield Read()  # an earlier driver may have written until it was fenced
    if entry is None:
        # Tokens before that are those of a query that was forgotten.
        entry = Entry(BY_TASKS, owner, position=(yield ReadTokens(None)).end) if by_tasks else Entry(CLAIMED, owner)
        producer = yield Write(entry)
    elif entry.owner.checkpoint != owner.checkpoint:
        raise _taken(entry)
    elif entry.state == TORN:
        raise _torn(entry)
    elif entry.state == DECIDED:
        entry, producer = yield from finish(entry)
    if entry.state == BY_TASKS and not by_tasks:
        raise _other_mode(entry, "has used it so far")
    if by_tasks and entry.state != BY_TASKS:
        entry = entry.move(BY_TASKS, batch=entry.done, position=(yield ReadTokens(None)).end)
        producer = yield Write(entry)
    if (entry.opened is None or entry.opened != clean_since) and not (yield from _abort_open(producer)):
        raise KafkaError(
            "another driver has opened a batch with the same transactionalIdPrefix just now. Run the query only once"
        )
    return Opened(producer, entry, tokens=(yield from _tokens(entry)) if by_tasks else None)


def _tokens(entry: Entry) -> Steps[Tokens]:
    log: TokenLog = yield ReadTokens(entry.position)
    newest = max((each.token.batch for each in log.found), default=-1)
    first = next((each.offset for each in log.found if each.token.batch == newest), log.end)
    return Tokens(newest, first, log.end)


def _other_mode(entry: Entry, why: str) -> KafkaError:
    return KafkaError(
        f"the query {why} with exactlyOnceMode={'task' if entry.state == BY_TASKS else 'driver'}, and a micro-batch "
        f"after batch {entry.done} may be committed in part. Start it with that mode"
    )


def _abort_open(producer: Producer) -> Steps[bool]:
    """Abort the open transactions of the query's tasks. Return False if ``producer`` does not own the ledger any more.

    Another driver may open a batch at any moment, and its transactions must not be aborted, as it may have decided to
    commit them. The owner is asked for after the transactions were listed, so those are older than what another driver
    opens. They are aborted by producer id and epoch, which a later transaction with the same transactional id does not
    have.
    """
    found: list[Transaction] = yield FindOpen()
    if not found:
        return True
    if (yield FindOwner()) != producer:
        return False
    yield End(found, False)
    return True


def finish(entry: Entry, forgotten: str | None = None) -> Steps[tuple[Entry, Producer]]:
    """Commit a decided batch, and return the next entry and producer.

    The entry is DONE; or REVERTED, if all of its transactions were aborted, because they had timed out. ``forgotten``
    is what a person takes FORGOTTEN transactions for: ENDED or LOST.

    Raises:
        KafkaError: Some transactions could not be ended now, so that this must be repeated; or some were committed and
            others aborted, which is recorded.
    """
    outcomes: Mapping[str, str] = yield End(entry.transactions, True)
    if forgotten is not None:
        outcomes = {id: forgotten if outcome == FORGOTTEN else outcome for id, outcome in outcomes.items()}
    gone = [each for each in entry.transactions if outcomes[each.id] == FORGOTTEN]
    if gone:
        raise KafkaError(
            f"batch {entry.batch} is decided, but nobody can tell whether {len(gone)} of its {len(entry.transactions)} "
            f"transactions were committed, because their rows were deleted since: {_named(gone)}. `pykclient "
            "spark-transactions commit --deleted-rows committed` (or aborted) goes on as you say"
        )
    unknown = [each for each in entry.transactions if outcomes[each.id] == UNKNOWN]
    lost = [each for each in entry.transactions if outcomes[each.id] == LOST]
    if unknown:
        raise KafkaError(
            f"batch {entry.batch} is decided, but {len(unknown)} of its {len(entry.transactions)} transactions could "
            "not be committed yet. The next start of the query goes on with that"
        )
    if not lost:
        content = Content.total((each.rows, each.fingerprint) for each in entry.transactions)
        written = _joined(each.offsets for each in entry.transactions)
        ended = entry.move(DONE, done=entry.batch, content=content, transactions=(), written=written)
    elif len(lost) == len(entry.transactions):
        ended = entry.move(REVERTED, transactions=())
    else:
        ended = entry.move(TORN, transactions=tuple(lost))
    producer: Producer = yield Write(ended)
    if ended.state == TORN:
        raise _torn(ended)
    return ended, producer


def commit_batch(
    opened: Opened,
    owner: Owner,
    batch: int,
    transactions: Sequence[Transaction],
    repeated: Content | None,
    is_late: Callable[[], bool] = lambda: False,
) -> Steps[None]:
    """Decide to commit a batch, and do it.

    ``repeated`` is what tasks have seen without writing it, as the batch is done already; None if they have written.
    ``is_late`` returns True if the transactions may time out soon, so that it is too late to decide.

    Raises:
        KafkaError: The batch is not committed, and is repeated when the query starts again; or it is decided and not
            finished, which the next start does.
    """
    if repeated is not None:
        _check_repeated(opened.entry, batch, repeated)
        return
    if not transactions:
        return
    yield from _still_owner(opened, batch, "Nothing of this batch is committed.")
    entry = opened.entry
    ended: set[str] = yield FindEnded(transactions)
    if ended:
        rest = [each for each in transactions if each.id not in ended]
        yield End(rest, False)
        raise KafkaError(
            f"batch {batch} is not committed, because {len(ended)} of its {len(transactions)} transactions are not "
            "open any more: a task started again, or they were open for longer than transaction.timeout.ms (option "
            "kafka.transaction.timeout.ms). Make micro-batches smaller (maxOffsetsPerTrigger) or raise it"
        )
    if is_late():
        yield End(transactions, False)
        raise KafkaError(
            f"batch {batch} is not committed, because less than a quarter of transaction.timeout.ms (option "
            "kafka.transaction.timeout.ms) is left: if the driver died now, some transactions could be committed, and "
            "others time out. Make micro-batches smaller (maxOffsetsPerTrigger) or raise it"
        )
    decided = entry.move(
        DECIDED,
        owner=owner,
        batch=batch,
        content=Content(0, 0),
        opened=opened.producer,
        transactions=tuple(transactions),
        written=NOWHERE,
    )
    yield Write(decided)
    done, producer = yield from finish(decided)
    if done.state == REVERTED:
        raise KafkaError(
            f"all transactions of batch {batch} were aborted before they could be committed, so it is repeated when "
            "the query starts again"
        )
    # Those of attempts whose rows Spark did not take. If another driver has opened a batch since, it aborts them.
    yield from _abort_open(producer)


def _still_owner(opened: Opened, batch: int, committed: str) -> Steps[Producer]:
    """Fence earlier drivers. Raises KafkaError if another one has opened a batch since."""
    producer: Producer = yield Fence()
    if opened.producer is not None and not producer.follows(opened.producer):
        raise KafkaError(
            f"another driver has opened a batch with the same transactionalIdPrefix since batch {batch} was opened. "
            f"{committed} Run the query only once"
        )
    # If this producer follows the one that opened the batch, nobody has written to the ledger in between. Without
    # fencing, somebody may have: the driver that has been there before.
    if not opened.is_fenced and (yield Read()) != opened.entry:
        raise KafkaError(f"the ledger has changed since batch {batch} was opened, so another driver runs. {committed}")
    return producer


def complete_batch(
    opened: Opened, owner: Owner, batch: int, committed: Sequence[Token], repeated: Content | None
) -> Steps[None]:
    """Record that a batch is done whose tasks have committed their own rows.

    ``committed`` are the tokens that tasks have reported, and ``repeated`` is as in ``commit_batch``.

    Raises:
        KafkaError: Tokens are there that no task has reported, or another driver runs.
    """
    if repeated is not None:
        _check_repeated(opened.entry, batch, repeated)
        return
    assert opened.tokens is not None
    if not committed and opened.tokens.newest < batch:
        return
    producer: Producer = yield from _still_owner(opened, batch, "Its tasks may have committed rows.")
    # Those of attempts that were lost, or not fast enough. Nobody need wait for their tokens.
    if not (yield from _abort_open(producer)):
        raise KafkaError(f"another driver has opened a batch since the tasks of batch {batch} ended")
    start = opened.tokens.start_of(batch)
    log: TokenLog = yield ReadTokens(start)
    reported = {token.partition for token in committed}
    others = []
    for offset, token in log.found:
        if token.batch >= batch and token.partition not in reported and (yield IsCommitted(offset)):
            others.append(token)
    if others and opened.entry.batch != batch:
        raise _other_rows(batch, others, f"{len(reported)} other tasks have rows for it now")
    entry = opened.entry.move(
        BY_TASKS,
        owner=owner,
        batch=batch,
        done=batch,
        content=Content.total(token.content for token in committed),
        opened=opened.producer,
        written=_joined(token.written for token in committed),
        position=start,
    )
    yield Write(entry)


def abort_batch(transactions: Sequence[Transaction], *, begun: bool) -> Steps[None]:
    """Abort the transactions of a batch in which tasks have failed.

    If its commit has ``begun``, nothing is done: the commit may have been decided, so only the next start knows.
    """
    if transactions and not begun:
        yield End(transactions, False)


def settle(entry: Entry, commit: bool, forgotten: str | None = None, *, as_written: bool = False) -> Steps[Entry]:
    """Settle the transactions that a dead driver has left, and return the last entry. For operators.

    A decided batch can only be committed. A torn one becomes done (``commit``), or is repeated, and its other
    transactions are then written twice. ``forgotten``: see ``finish``. With ``as_written``, a batch that is done, or
    the last one that tasks have committed, is not compared with what the query has for it when it repeats it.

    Raises:
        KafkaError: The batch is decided, and was to be aborted; or the query runs.
    """
    if entry.state == DECIDED and not commit:
        raise KafkaError(
            f"batch {entry.batch} is decided: some of its {len(entry.transactions)} transactions may be committed. "
            "Commit the rest"
        )
    producer = yield from _own(entry)
    if entry.state == DECIDED:
        entry, producer = yield from finish(entry, forgotten)
    elif entry.state == TORN:
        done = entry.batch if commit else entry.done
        entry = entry.move(
            DONE if commit else REVERTED, done=done, content=Content(0, 0), transactions=(), written=NOWHERE
        )
        producer = yield Write(entry)
    if as_written and entry.state == DONE:
        entry = entry.move(DONE, content=Content(0, 0))
        producer = yield Write(entry)
    elif as_written and entry.state == BY_TASKS:
        tokens: Tokens = yield from _tokens(entry)
        entry = entry.move(BY_TASKS, batch=max(entry.done, tokens.newest), content=Content(0, 0))
        producer = yield Write(entry)
    if not (yield from _abort_open(producer)):
        raise KafkaError("the query has been started in the meantime, so its open transactions are not aborted")
    return entry


def forget(entry: Entry) -> Steps[None]:
    """Remove a retired query from the ledger, and fence its driver. For operators.

    Raises:
        KafkaError: The batch is decided, or the query runs.
    """
    if entry.state == DECIDED:
        raise KafkaError(f"batch {entry.batch} is decided and not finished; use commit first")
    yield from _own(entry)
    yield Write(None)


def _own(entry: Entry) -> Steps[Producer]:
    """Fence the query's driver. Raises KafkaError if ``entry`` is not the last one any more."""
    producer: Producer = yield Fence()
    if (yield Read()) != entry:
        raise KafkaError("the ledger has changed in the meantime, so the query runs. Stop it first")
    return producer


def _check_repeated(entry: Entry, batch: int, repeated: Content) -> None:
    if entry.done != batch or not entry.content.rows or entry.content == repeated:
        return
    rows = entry.content.rows
    now = f"now has {repeated.rows}" if repeated.rows != rows else "now has as many others"
    places = _places(entry.written)
    named = f", in {', '.join(places[:_MOST_NAMED])}" if places else ""
    more = f" and {len(places) - _MOST_NAMED} more partitions" if len(places) > _MOST_NAMED else ""
    raise KafkaError(
        f"batch {batch} is committed with {rows} rows{named}{more}, and {now}. Either its checkpoint is older than "
        "what it has written, so that rows would be lost and others come twice: restore the newer checkpoint. Or the "
        "query is not deterministic: `pykclient spark-transactions commit --as-written` has it go on after what is "
        f"committed. {_FORGET}; the batch is then written again"
    )


def _other_rows(batch: int, committed: Sequence[Token], now: str) -> KafkaError:
    """Return the error for a batch that is committed in part, with other tasks or other rows than it has now."""
    named = "; ".join(
        f"Spark partition {token.partition} ({token.content.rows} rows"
        f"{': ' if token.written else ''}{', '.join(_places(token.written)[:_MOST_NAMED])})"
        for token in committed[:_MOST_NAMED]
    )
    return KafkaError(
        f"{named} of batch {batch} {'is' if len(committed) == 1 else 'are'} committed, and {now}. The query's "
        "partitioning or its rows are not deterministic, or options have changed that decide on them: start it with "
        "the earlier ones. `pykclient spark-transactions commit --as-written` takes the batch for what is committed, "
        "whatever rows these tasks have now; rows may be lost, or come twice. exactlyOnceMode=driver has no such limit"
    )


def _taken(entry: Entry) -> KafkaError:
    place = f"the checkpoint {entry.owner.checkpoint}" if entry.owner.checkpoint else "a batch"
    return KafkaError(
        f"the transactionalIdPrefix belongs to another query, with {place}. Give each query a prefix of its own. "
        f"{_FORGET}"
    )


def _torn(entry: Entry) -> KafkaError:
    return KafkaError(
        f"batch {entry.batch} is committed in part: its transactions were aborted by the brokers, after "
        "transaction.timeout.ms, before all of them could be committed. Missing are the rows of "
        f"{_named(entry.transactions)}, which consumers with read_uncommitted still see. "
        "`pykclient spark-transactions list` shows them all. Write them again, and have the query go on after the "
        "batch (`spark-transactions commit`), or have it repeat the whole batch (`spark-transactions abort`)"
    )


def _named(transactions: Sequence[Transaction]) -> str:
    more = len(transactions) - _MOST_NAMED
    return "; ".join(map(str, transactions[:_MOST_NAMED])) + (f"; and {more} more" if more > 0 else "")


# --- tasks -----------------------------------------------------------------------------------------------------------

WRITES: Final = "writes"
REPEATS: Final = "repeats"


def task_role(opened: Opened, query: str | None, batch: int) -> str:
    """Return whether a task of a micro-batch WRITES its rows, or REPEATS a completed batch.

    Raises:
        KafkaError: The prefix belongs to another query, or the checkpoint is older than the ledger.
    """
    entry = opened.entry
    if entry.owner.query is not None and entry.owner.query != query:
        raise _taken(entry)
    newest = entry.done if opened.tokens is None else max(entry.done, opened.tokens.newest)
    if batch < newest:
        raise _older(batch, newest)
    return REPEATS if batch == entry.done else WRITES


def _older(batch: int, newest: int) -> KafkaError:
    return KafkaError(
        f"batch {batch} is run, but batch {newest} is written already: the checkpoint is older than what the query has "
        f"written. Restore the newer checkpoint. {_FORGET}; its rows are then written again"
    )


def needs_token(opened: Opened, batch: int, attempt: int) -> bool:
    """Return True if a task is likely to have a token already, so that it should look before it writes."""
    assert opened.tokens is not None
    return attempt > 0 or opened.tokens.newest >= batch


def find_token(opened: Opened, query: str, batch: int, partition: int) -> Steps[Token | None]:
    """Return the token that a task's earlier attempt has committed; None if there is none.

    Raises:
        KafkaError: The prefix belongs to another query, or the checkpoint is older than the tokens.
    """
    assert opened.tokens is not None
    log: TokenLog = yield ReadTokens(opened.tokens.start_of(batch))
    for offset, token in reversed(log.found):
        if token.partition != partition or token.batch < batch or not (yield IsCommitted(offset)):
            continue
        if token.query != query:
            raise _taken(opened.entry)
        if token.batch > batch:
            raise _older(batch, token.batch)
        return token
    return None


def commit_task(opened: Opened, token: Token, other_id: str) -> Steps[Token]:
    """Commit a task's transaction with its token. If another attempt has committed one, return that instead.

    ``other_id`` is the transactional id of the other attempts. They are fenced first: what they have committed until
    then is found, and later they cannot commit. The transaction's own id is fenced by the start of its producer.

    Raises:
        KafkaError: Another attempt has committed other rows, or fenced this one.
    """
    yield FenceTask(other_id)
    found: Token | None = yield from find_token(opened, token.query, token.batch, token.partition)
    if found is not None:
        check_token(opened, found, token.content)
        return found
    yield CommitTask(token)
    return token


def check_token(opened: Opened, token: Token, now: Content) -> None:
    """Raise KafkaError if a task has other rows than its token, unless people have said that the token counts."""
    if now != token.content and opened.entry.batch != token.batch:
        rows = f"has {now.rows}" if now.rows != token.content.rows else "has as many others"
        raise _other_rows(token.batch, [token], f"the task {rows} now")


def attempt_ids(prefix: str, partition: int, attempt: int) -> tuple[str, str]:
    """Return the transactional ids of an attempt that commits its own rows, and of the others.

    Spark runs at most two attempts of a task at once, so two ids suffice for a speculative one not to abort the other.
    """
    return transactional_id(prefix, partition, attempt % 2), transactional_id(prefix, partition, 1 - attempt % 2)


def transactional_id(prefix: str, partition: int, attempt: int) -> str:
    """Return the transactional id of a task's attempt.

    Attempts of a task can run at the same time, so each has an id of its own; otherwise a second attempt would abort
    the transaction of a first one that Spark has taken. If Spark repeats a stage, attempts count from 0 again, and
    ``commit_batch`` notices a transaction that was aborted so. Batches use the same ids again, as coordinators remember
    each id for a week.
    """
    return f"{prefix}-{partition}-{attempt}"


def pattern_of(prefix: str) -> str:
    """Return the regular expression (of RE2/J, for brokers) for the transactional ids of a prefix's tasks."""
    escaped = "".join(each if each.isalnum() or each in "-_" else f"\\{each}" for each in prefix)
    return rf"{escaped}-[0-9]+-[0-9]+"


def driver_id(prefix: str) -> str:
    """Return the transactional id of the ledger's producer."""
    return f"{prefix}-driver"


def offsets_of(pieces: Mapping[tuple[str, int], tuple[int, int]]) -> dict[str, dict[str, list[int]]]:
    """Return the first and last offsets of topic partitions as ``Transaction.offsets``."""
    found: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), offsets in sorted(pieces.items()):
        found.setdefault(topic, {})[str(partition)] = list(offsets)
    return found
