"""Publishers that write to Kafka and to a database in one unit, by two-phase commit (KIP-939), under faults.

A publisher crashes or hangs at any point, and a successor takes over, while brokers and requests fail as in the
pipeline. After all faults, read_committed shows what the databases have committed, in order and once; and no
transaction is left open.

    python -m tests.simulation.two_phase_commit --count 1000
"""

from __future__ import annotations

import random
import sys
from typing import Any, ClassVar, Final

from pykclient.errors import IllegalStateError, KafkaError
from pykclient.producer.transactions.transactional_calls import PreparedTxnState
from pykclient.testing.simulation.checks import InvariantError
from pykclient.types import TopicPartition
from tests.simulation import pipeline, seeds
from tests.simulation.pipeline import CRASH, HANG, TARGET, TRANSACTIONS, Pipeline, PipelineSchedule, Worker
from tests.simulation.schedule import Step

_ROUNDS: Final = 5
_WAITS_MS: Final = (0, 0, 5, 30, 200)
_REFUSED_PERCENT: Final = 15


class Database:
    """A publisher's commits outside of Kafka. Each call is atomic, and survives all crashes."""

    def __init__(self, publisher: int) -> None:
        self.publisher = publisher
        self.rounds = 0
        self.values: list[tuple[TopicPartition, bytes]] = []
        self._owner = ""
        self._state = ""

    def claim(self, owner: str) -> PreparedTxnState:
        """Refuse what earlier owners commit from now on; return the state of the last transaction."""
        self._owner = owner
        return self.state

    @property
    def state(self) -> PreparedTxnState:
        """The state of the last transaction that is committed here."""
        return PreparedTxnState(self._state)

    def commit(self, owner: str, state: PreparedTxnState, values: list[tuple[TopicPartition, bytes]]) -> None:
        """Commit a transaction.

        Raises:
            IllegalStateError: the database has another owner.
        """
        if owner != self._owner:
            raise IllegalStateError(f"{owner} is not the owner of database {self.publisher}")
        self._state = str(state)
        self.values += values
        self.rounds += 1


class Publisher(Worker):
    """A process with a producer and a database. A new life completes what the one before has prepared."""

    _pipeline: Publication

    def _open(self) -> None:
        self._database = self._pipeline.databases[self.number]
        self._producer = self._new_producer(
            transactional_id=f"publisher-{self.number}", transaction_two_phase_commit_enable=True
        )

    def _work(self) -> None:
        producer, database = self._producer, self._database
        self._again(lambda: producer.init_transactions(keep_prepared_txn=True))
        self._wait()
        state = database.claim(self.name)
        self._wait()
        self._again(lambda: producer.complete_transaction(state))
        while not self.stopping and database.rounds < _ROUNDS:
            self._round()
        self.stopping = True  # it needs no successor

    def _round(self) -> None:
        producer, database = self._producer, self._database
        producer.begin_transaction()
        states: list[PreparedTxnState] = []
        values = []
        for _ in range(self._rng.choice((0, 1, 1, 4))):
            target = self._rng.choice(self._pipeline.targets)
            values.append((target, self._pipeline.output(b"p%d" % self.number)))
        try:
            for target, value in values:
                producer.send(TARGET, value, partition=target.partition)
            self._again(lambda: states.append(producer.prepare_transaction()))
        except KafkaError as error:
            self._pipeline.note("not prepared", self.name, type(error).__name__)
            self._again(producer.abort_transaction)
            return
        self._wait()
        if self._rng.randrange(100) >= _REFUSED_PERCENT:
            database.commit(self.name, states[0], values)
            self._pipeline.note("decided", self.name, states[0])
        self._wait()
        self._again(lambda: producer.complete_transaction(database.state))

    def _wait(self) -> None:
        """Let the database take its time, or hang."""
        self._simulation.clock.sleep_ms(self._rng.choice(_WAITS_MS))
        self._hang()


class Publication(Pipeline):
    """A cluster, the publishers and their databases."""

    broker_settings: ClassVar[dict[str, Any]] = {
        "unstable.api.versions.enable": True,
        "transaction.two.phase.commit.enable": True,
    }
    state_logs: ClassVar[tuple[TopicPartition, ...]] = (TopicPartition(TRANSACTIONS, 0),)

    def __init__(self, schedule: PipelineSchedule) -> None:
        super().__init__(schedule)
        self.databases = [Database(number) for number in range(schedule.workers)]

    def _worker(self, number: int, life: int) -> Worker:
        return Publisher(self, number, life)

    def _feed(self) -> None:
        """Write nothing: publishers have no source."""

    def _settle(self) -> None:
        self.await_("all brokers run", self.faults.all_running)
        self.await_(
            "everything is published",
            lambda: (
                all(database.rounds >= _ROUNDS for database in self.databases)
                and all(worker.closed for worker in (*self.workers, *self.former))
            ),
        )
        self.await_("no transaction is open", self._is_stable)
        if self.unprovoked:
            raise InvariantError(f"publishers failed without a fault: {self.unprovoked}")
        self.await_("all replicas have everything", self._is_replicated)
        self.await_("everything is read", lambda: self._reader.has_read(self._shown()))
        self._reader.stopping = True

    def _check(self) -> None:
        shown = self._shown()
        if self._reader.read != shown:
            raise InvariantError(f"a consumer read {self._reader.read}, and read_committed shows {shown}")
        for tp, values in shown.items():
            for database in self.databases:
                expected = [value for target, value in database.values if target == tp]
                found = [value for value in values if value.startswith(b"p%d/" % database.publisher)]
                if found != expected:
                    raise InvariantError(
                        f"{tp} has {found} of publisher {database.publisher}, and its database has {expected}"
                    )
            if any(not value.startswith(b"p") for value in values):
                raise InvariantError(f"{tp} has {values}, and not all of them are of publishers")
        self._check_replicas()


def make(seed: int) -> PipelineSchedule:
    """Return the pipeline's schedule with more crashes, in the second generation of transactions."""
    schedule = pipeline.make(seed)
    rng = random.Random(f"two-phase commit {seed}")
    crashes = [
        Step(rng.randrange(1_500), rng.choice((CRASH, CRASH, HANG)), (rng.randrange(3), rng.choice((1, 50, 300))))
        for _ in range(rng.choice((0, 2, 5)))
    ]
    return schedule._replace(transaction_version=2, steps=tuple(sorted((*schedule.steps, *crashes))))


def run(schedule: PipelineSchedule) -> Pipeline:
    """Run the schedule; raise InvariantError, or any other error that occurs."""
    return Publication(schedule).run()


if __name__ == "__main__":
    sys.exit(seeds.main("tests.simulation.two_phase_commit", lambda seed: Publication(make(seed))))
