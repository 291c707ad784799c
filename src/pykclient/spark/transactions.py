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

Functions of the driver are generators. They yield requests, which are sent back answered or raise the error that the
request had. ``sink_driver`` performs them on a cluster, tests do it in a simulation.

This module is independent of pyspark and of any cluster.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
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

#: The states that may follow a state. None stands for a query without an entry.
MOVES: Final[Mapping[str | None, frozenset[str]]] = {
    None: frozenset((CLAIMED,)),
    CLAIMED: frozenset((CLAIMED, DECIDED)),
    DECIDED: frozenset((DONE, REVERTED, TORN)),
    DONE: frozenset((DECIDED,)),
    REVERTED: frozenset((DECIDED,)),
    TORN: frozenset((DONE, REVERTED)),  # by people
}

#: Text that ends errors after which a person must decide.
_FORGET = "`pykclient spark-transactions forget` removes the entry of a query that is gone for good"

#: The most ranges of offsets in an entry, as records of a topic are limited in size. Beyond it, each transaction keeps
#: one range, which suffices to find out later whether it was committed.
_MOST_RANGES = 5_000

#: The most transactions that an error names.
_MOST_NAMED = 5


class Producer(NamedTuple):
    """A producer id and an epoch."""

    producer_id: int
    epoch: int

    def follows(self, earlier: Producer) -> bool:
        """Return True if no other producer has had the transactional id since ``earlier``."""
        return self == (earlier.producer_id, earlier.epoch + 1)


class Transaction(NamedTuple):
    """The transaction of a task. ``offsets`` are the first and last offset of its rows, by topic and partition."""

    id: str
    producer: Producer
    rows: int
    offsets: Mapping[str, Mapping[str, Sequence[int]]]

    def __str__(self) -> str:
        places = [
            f"{topic}-{partition} from offset {first} to {last}"
            for topic, partitions in self.offsets.items()
            for partition, (first, last) in partitions.items()
        ]
        known = sum(last - first + 1 for partitions in self.offsets.values() for first, last in partitions.values())
        if places and known < self.rows:
            places.append("and in partitions that the ledger does not name")
        return f"{self.id} ({self.rows} rows{': ' if places else ''}{', '.join(places)})"


def _all_ranges(offsets: Mapping[str, Mapping[str, Sequence[int]]]) -> Mapping[str, Mapping[str, Sequence[int]]]:
    return offsets


def _first_range(offsets: Mapping[str, Mapping[str, Sequence[int]]]) -> Mapping[str, Mapping[str, Sequence[int]]]:
    return {topic: dict([next(iter(partitions.items()))]) for topic, partitions in list(offsets.items())[:1]}


class Owner(NamedTuple):
    """The query that a prefix belongs to.

    ``checkpoint`` is the location of a stream's checkpoint, empty for batches. ``query`` is Spark's id of a stream,
    which is stored in the checkpoint; None as long as only the driver's planner has seen the query.
    """

    checkpoint: str
    query: str | None = None


class Entry(NamedTuple):
    """An entry of the ledger.

    ``batch`` is the micro-batch it is about, ``done`` the last one that is committed (-1: none), with ``rows`` rows.
    ``opened`` is the ledger's producer when ``batch`` was opened.
    """

    state: str
    owner: Owner
    batch: int = -1
    done: int = -1
    rows: int = 0
    opened: Producer | None = None
    transactions: tuple[Transaction, ...] = ()

    def move(self, state: str, **changes: Any) -> Entry:
        """Return the next entry. Raises IllegalStateError if the table of moves does not allow it."""
        if state not in MOVES[self.state]:
            raise IllegalStateError(f"the ledger cannot go from {self.state} to {state}")
        return self._replace(state=state, **changes)

    def as_bytes(self) -> bytes:
        """Return the value of the ledger's record."""
        ranges = sum(len(partitions) for one in self.transactions for partitions in one.offsets.values())
        kept = _all_ranges if ranges <= _MOST_RANGES else _first_range
        return json.dumps(
            {
                "version": 1,
                "state": self.state,
                "checkpoint": self.owner.checkpoint,
                "query": self.owner.query,
                "batch": self.batch,
                "done": self.done,
                "rows": self.rows,
                "opened": self.opened,
                "transactions": [
                    [each.id, *each.producer, each.rows, kept(each.offsets)] for each in self.transactions
                ],
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
                found["rows"],
                None if found["opened"] is None else Producer(*found["opened"]),
                tuple(
                    Transaction(id, Producer(producer_id, epoch), rows, offsets)
                    for id, producer_id, epoch, rows, offsets in found["transactions"]
                ),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise KafkaError(
                f"a record of the ledger cannot be read, perhaps as a later version wrote it: {error}"
            ) from (error)


# --- requests of the driver ------------------------------------------------------------------------------------------


class Request:
    """Base class of the driver's requests."""

    __slots__ = ()


class Fence(Request):
    """Get a new epoch for the ledger's producer, which fences all earlier ones. Result: Producer."""

    __slots__ = ()


class Read(Request):
    """Read the query's last entry. Result: Entry or None."""

    __slots__ = ()


class Write(Request):
    """Write an entry with the producer that ``Fence`` has started. Result: the Producer for later writes."""

    __slots__ = ("entry",)

    def __init__(self, entry: Entry) -> None:
        self.entry = entry


class End(Request):
    """Commit or abort transactions. Result: one of the outcomes below for each transactional id."""

    __slots__ = ("commit", "transactions")

    def __init__(self, transactions: Sequence[Transaction], commit: bool) -> None:
        self.transactions = transactions
        self.commit = commit


class FindEnded(Request):
    """Find the transactions that are no longer open. Result: the set of their transactional ids."""

    __slots__ = ("transactions",)

    def __init__(self, transactions: Sequence[Transaction]) -> None:
        self.transactions = transactions


class AbortOpen(Request):
    """Abort all open transactions of the query's tasks. Result: their number."""

    __slots__ = ()


#: Outcomes of ``End``: it has ended in this way, now or before; it was ended in the other way; that is not known now;
#: or cannot be known any more, as neither its coordinator nor its first row is there to tell.
ENDED: Final = "ended"
LOST: Final = "lost"
UNKNOWN: Final = "unknown"
FORGOTTEN: Final = "forgotten"


# --- the driver ------------------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """An opened batch, for its tasks and its commit. ``producer`` is None if no driver was fenced."""

    producer: Producer | None
    entry: Entry


def open_batch(owner: Owner, clean_since: Producer | None = None) -> Steps[Opened]:
    """Prepare the ledger for the tasks of a batch.

    ``clean_since`` is the producer that this process opened its last batch with; None in a restart. If that batch is
    done, nothing was opened since, so that there is nothing to abort.

    Raises:
        KafkaError: The prefix belongs to another query, or an earlier batch is torn or cannot be finished now.
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
        # Another query, or the same one whose checkpoint was moved. Only tasks know Spark's id of the query.
        return Opened(None, entry)
    producer: Producer = yield Fence()
    entry = yield Read()  # an earlier driver may have written until it was fenced
    if entry is None:
        entry = Entry(CLAIMED, owner)
        producer = yield Write(entry)
    elif entry.owner.checkpoint != owner.checkpoint:
        raise _taken(entry)
    elif entry.state == TORN:
        raise _torn(entry)
    elif entry.state == DECIDED:
        entry, producer = yield from finish(entry)
    if entry.opened is None or entry.opened != clean_since:
        yield AbortOpen()
    return Opened(producer, entry)


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
        rows = sum(each.rows for each in entry.transactions)
        ended = entry.move(DONE, done=entry.batch, rows=rows, transactions=())
    elif len(lost) == len(entry.transactions):
        ended = entry.move(REVERTED, transactions=())
    else:
        ended = entry.move(TORN, transactions=tuple(lost))
    producer: Producer = yield Write(ended)
    if ended.state == TORN:
        raise _torn(ended)
    return ended, producer


def commit_batch(
    opened: Opened, owner: Owner, batch: int, transactions: Sequence[Transaction], repeated_rows: int | None
) -> Steps[None]:
    """Decide to commit a batch, and do it.

    ``repeated_rows`` is the number of rows that tasks have seen without writing them, as the batch is done already;
    None if they have written.

    Raises:
        KafkaError: The batch is not committed, and is repeated when the query starts again; or it is decided and not
            finished, which the next start does.
    """
    if repeated_rows is not None:
        _check_repeated(opened.entry, batch, repeated_rows)
        return
    if not transactions:
        return
    producer: Producer = yield Fence()
    if opened.producer is not None and not producer.follows(opened.producer):
        raise KafkaError(
            f"another driver has opened a batch with the same transactionalIdPrefix since batch {batch} was opened. "
            "Nothing of this batch is committed. Run the query only once"
        )
    # If this producer follows the one that opened the batch, nobody has written to the ledger in between.
    if opened.producer is None and (yield Read()) != opened.entry:
        raise KafkaError(
            f"the ledger has changed since batch {batch} was opened, so another driver runs. Nothing of it is committed"
        )
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
    decided = entry.move(
        DECIDED, owner=owner, batch=batch, rows=0, opened=opened.producer, transactions=tuple(transactions)
    )
    yield Write(decided)
    done, _ = yield from finish(decided)
    if done.state == REVERTED:
        raise KafkaError(
            f"all transactions of batch {batch} were aborted before they could be committed, so it is repeated when "
            "the query starts again"
        )
    yield AbortOpen()  # of attempts whose rows Spark did not take


def abort_batch(transactions: Sequence[Transaction], *, begun: bool) -> Steps[None]:
    """Abort the transactions of a batch in which tasks have failed.

    If its commit has ``begun``, nothing is done: the commit may have been decided, so only the next start knows.
    """
    if transactions and not begun:
        yield End(transactions, False)


def settle(entry: Entry, commit: bool, forgotten: str | None = None) -> Steps[Entry]:
    """Settle the transactions that a dead driver has left, and return the last entry. For operators.

    A decided batch can only be committed. A torn one becomes done (``commit``), or is repeated, and its other
    transactions are then written twice. ``forgotten``: see ``finish``.

    Raises:
        KafkaError: The batch is decided, and was to be aborted.
    """
    if entry.state == DECIDED and not commit:
        raise KafkaError(
            f"batch {entry.batch} is decided: some of its {len(entry.transactions)} transactions may be committed. "
            "Commit the rest"
        )
    yield Fence()
    found: Entry | None = yield Read()
    if found is None or found != entry:
        raise KafkaError("the ledger has changed in the meantime, so the query runs. Stop it first")
    if entry.state == DECIDED:
        entry, _ = yield from finish(entry, forgotten)
    elif entry.state == TORN:
        done = entry.batch if commit else entry.done
        entry = entry.move(DONE if commit else REVERTED, done=done, rows=0, transactions=())
        yield Write(entry)
    yield AbortOpen()
    return entry


def _check_repeated(entry: Entry, batch: int, rows: int) -> None:
    if entry.done == batch and entry.rows not in {rows, 0}:
        raise KafkaError(
            f"batch {batch} is committed with {entry.rows} rows, and now has {rows}. Either the query is not "
            "deterministic, or its checkpoint is older than what it has written, so that rows would be lost. Restore "
            f"the newer checkpoint. {_FORGET}; the batch is then written again"
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
    if batch < entry.done:
        raise KafkaError(
            f"batch {batch} is run, but batch {entry.done} is committed already: the checkpoint is older than what the "
            f"query has written. Restore the newer checkpoint. {_FORGET}; its rows are then written again"
        )
    return REPEATS if batch == entry.done else WRITES


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
