"""Drills for a pipeline that has copied everything: each provokes one situation that schedules seldom meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pykclient.consumer.kafka_consumer import KafkaConsumer
from pykclient.errors import KafkaError, KafkaTimeoutError
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing.simulation.checks import InvariantError
from pykclient.types import ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.faults import Control
    from tests.simulation.pipeline import Pipeline

_OFFSETS_LOG: Final = TopicPartition("__consumer_offsets", 0)
_TRANSACTION_LOG: Final = TopicPartition("__transaction_state", 0)
#: An offset that no worker commits.
_FOREIGN_OFFSET: Final = 1_000
#: A group without members.
_OTHER_GROUP: Final = "drill"
_STABLE_TIMEOUT_MS: Final = 400
_COMMIT_TIMEOUT_MS: Final = 1_500
#: The transaction version from which on each transaction has an epoch of its own (KIP-890).
_FENCES_LATE_MARKERS: Final = 2
_TRANSACTION_TIMEOUT_MS: Final = 1_000
_DOWN_MS: Final = 50
#: The settings of a producer that soon gives up a record.
_IMPATIENT: Final[Mapping[str, int]] = MappingProxyType({"delivery.timeout.ms": 800, "request.timeout.ms": 400})


class Drills:
    """The drills, on a healthy cluster without workers. Most leave a transaction that no worker began.

    Thread: owner of the simulation, in an actor.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._cluster = pipeline.cluster
        self._clock = pipeline.clock
        self._source, self._target = pipeline.sources[0], pipeline.targets[0]

    def run(self) -> None:
        """Run a drill of each kind, chosen by the seed."""
        for drills in (self._of_applications(), self._of_brokers()):
            drill = self._pipeline.simulation.new_rng().choice(drills)
            self._pipeline.note("drill", drill.__name__)
            drill()

    def _of_applications(self) -> list[Callable[[], None]]:
        """Return the drills in which producers or members are late, or ask for what they must not get."""
        drills: list[Callable[[], None]] = [
            self._open_offsets,
            self._former_member,
            self._late_record,
            self._record_of_the_last_transaction,
        ]
        if self._pipeline.schedule.settings.min_isr > 1:
            drills.append(self._lost_decision)
        if len(self._pipeline.targets) > 1:
            drills.append(self._timed_out)
        if self._pipeline.schedule.transaction_version >= _FENCES_LATE_MARKERS:
            drills.append(self._late_marker)
        return drills

    def _of_brokers(self) -> list[Callable[[], None]]:
        """Return the drills in which the end of a transaction meets something else."""
        drills: list[Callable[[], None]] = [self._offset_of_an_older_transaction]
        if self._pipeline.schedule.settings.replication_factor > 1:
            drills += [self._marker_of_a_former_coordinator, self._marker_without_replicas]
        return drills

    # --- drills ------------------------------------------------------------------------------------------------------

    def _open_offsets(self) -> None:
        """Nobody sees the offsets of a transaction that is open or aborted, whichever broker coordinates the group."""
        reader = self._consumer()
        before = reader.committed(self._source)
        producer = self._producer()
        self._begin(producer)
        producer.send_offsets_to_transaction({self._source: _FOREIGN_OFFSET}, ConsumerGroupMetadata(self._group))
        self._check_unstable(reader)
        self._move(_OFFSETS_LOG)
        self._check_unstable(reader)
        self._move(_TRANSACTION_LOG)
        producer.abort_transaction()
        self._check_committed(reader, before)
        self._move(_OFFSETS_LOG)
        self._check_committed(reader, before)
        producer.close()
        reader.close()

    def _former_member(self) -> None:
        """A member cannot commit offsets with a generation, or member epoch, that is over."""
        consumer = self._consumer()
        consumer.subscribe([self._source.topic])
        self._pipeline.await_("the drill has partitions", lambda: bool(consumer.poll(0) or consumer.assignment()))
        consumer.pause(*consumer.assignment())
        current = consumer.group_metadata()
        producer = self._producer()
        self._begin(producer)
        try:
            former = current._replace(generation_id=current.generation_id - 1)
            producer.send_offsets_to_transaction({self._source: _FOREIGN_OFFSET}, former)
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            self._pipeline.note("refused", type(error).__name__)
        else:
            raise InvariantError(f"offsets were accepted of {former}, and {current} is current")
        producer.abort_transaction()
        producer.close()
        consumer.close()

    def _late_record(self) -> None:
        """A record that arrives after its transaction has ended does not begin another one, which nobody would end."""
        producer = self._producer(**_IMPATIENT)
        self._begin(producer)
        control = self._send_late(producer)
        producer.abort_transaction()
        producer.close()
        control.release()

    def _record_of_the_last_transaction(self) -> None:
        """A record that arrives after its transaction was aborted does not become part of the next one.

        It is the first of its transaction, so its sequence number is the one with which any epoch begins. With the
        coordinator not asked any more, its epoch alone tells the leader that it is late.
        """
        producer = self._producer(**_IMPATIENT)
        producer.begin_transaction()
        self._pipeline.begin_foreign()
        control = self._send_late(producer)
        producer.abort_transaction()
        self._begin(producer)
        self._verify_transactions(False)
        control.release()
        self._commit(producer)
        self._verify_transactions(True)
        producer.close()

    def _late_marker(self) -> None:
        """A marker that arrives after the coordinator has repeated it does not end the next transaction."""
        producer = self._producer()
        self._begin(producer)
        control = self._cluster.faults.hold("WRITE_TXN_MARKERS", party="broker-*", times=1)
        self._commit(producer)
        self._begin(producer)
        control.release()
        self._clock.sleep_ms(_DOWN_MS)
        producer.abort_transaction()
        producer.close()

    def _timed_out(self) -> None:
        """A producer cannot go on with a transaction that has timed out, not even in another partition."""
        producer = self._producer(**{"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS})
        self._begin(producer)
        self._clock.sleep_ms(_TRANSACTION_TIMEOUT_MS)
        self._pipeline.await_("the transaction is aborted", lambda: self._pipeline.is_stable(self._target))
        other = self._pipeline.targets[1]
        try:
            producer.send(other.topic, self._pipeline.foreign_value(other), partition=other.partition).get()
            producer.commit_transaction()
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            self._pipeline.note("refused", type(error).__name__)
        else:
            raise InvariantError("a transaction was committed that had timed out, with the rest of its records")
        producer.close()

    def _lost_decision(self) -> None:
        """A commit is not confirmed while its decision is not replicated."""
        producer = self._producer(**{"max.block.ms": _COMMIT_TIMEOUT_MS})
        self._begin(producer)
        leader = self._cluster.leader(_TRANSACTION_LOG)
        assert leader is not None
        others = [id for id in self._cluster.nodes if id != leader]
        for other in others:
            self._cluster.faults.cut(leader, other)
        transaction = self._pipeline.transactions[-1]
        transaction.outcome = None  # the decision may be in the log, and is carried out then
        try:
            producer.commit_transaction()
        except KafkaError as error:
            self._pipeline.note("not committed", type(error).__name__)
        else:
            raise InvariantError(f"a commit was confirmed while {_TRANSACTION_LOG} was on broker {leader} alone")
        self._pipeline.faults.heal()
        self._pipeline.drill_values += [value for values in transaction.values.values() for value in values]
        while True:
            try:
                producer.commit_transaction()
                transaction.outcome = True
                break
            except KafkaTimeoutError:
                continue
            except KafkaError as error:
                self._pipeline.note("commit failed", type(error).__name__)
                break
        producer.close()

    def _offset_of_an_older_transaction(self) -> None:
        """The commit of a transaction does not replace an offset that was committed after the transaction sent its."""
        reader = self._consumer(**{"group.id": _OTHER_GROUP})
        producer = self._producer()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({self._source: _FOREIGN_OFFSET}, ConsumerGroupMetadata(_OTHER_GROUP))
        reader.commit({self._source: _FOREIGN_OFFSET + 1})
        producer.commit_transaction()
        self._check_last_sent(reader)
        self._move(_OFFSETS_LOG)
        self._check_last_sent(reader)
        producer.close()
        reader.close()

    def _marker_of_a_former_coordinator(self) -> None:
        """A marker that arrives after the next coordinator has written its own does not end the next transaction."""
        producer = self._producer()
        self._begin(producer)
        control = self._cluster.faults.hold("WRITE_TXN_MARKERS", party="broker-*", times=1)
        self._commit(producer)
        self._pipeline.await_("a marker is on its way", lambda: bool(control.held))
        self._move(_TRANSACTION_LOG)
        self._pipeline.await_("the next coordinator has ended it", lambda: self._pipeline.is_stable(self._target))
        self._begin(producer)
        control.release()
        self._clock.sleep_ms(_DOWN_MS)
        producer.abort_transaction()
        producer.close()

    def _marker_without_replicas(self) -> None:
        """The records of a transaction are not shown while its marker is on the leader alone.

        If that leader dies, the next one knows of no marker, and takes back what it was the end of.
        """
        target = self._target
        self._pipeline.await_("the target has replicas", lambda: len(self._cluster.isr(target)) > 1)
        reader = self._consumer()
        producer = self._producer()
        self._begin(producer)
        stable = reader.end_offsets([target])
        control = self._cluster.faults.hold("WRITE_TXN_MARKERS", party="broker-*", times=1)
        self._commit(producer)
        self._pipeline.await_("a marker is on its way", lambda: bool(control.held))
        leader = self._cluster.leader(target)
        assert leader is not None
        end_offset = self._end_offset(leader)
        for other in self._cluster.nodes:
            if other != leader:
                self._cluster.faults.cut(leader, other)
        control.release()
        self._pipeline.await_("the leader has the marker", lambda: self._end_offset(leader) > end_offset)
        found = reader.end_offsets([target])
        # Once the others are out of the ISR, the leader may go on without them.
        if found != stable and len(self._cluster.isr(target)) > 1:
            raise InvariantError(f"the last stable offset is {found} and was {stable}: the marker is on one replica")
        self._pipeline.faults.heal()
        self._pipeline.await_("the marker has its replicas", lambda: self._pipeline.is_stable(target))
        producer.close()
        reader.close()

    # --- their parts -------------------------------------------------------------------------------------------------

    @property
    def _group(self) -> str:
        return self._pipeline.group

    def _common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._pipeline.simulation.bootstrap_servers,
            "client.id": "drill",
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 80,
            "socket.connection.setup.timeout.ms": 300,
            "socket.connection.setup.timeout.max.ms": 600,
        }

    def _producer(self, **settings: Any) -> KafkaProducer[bytes, bytes]:
        producer: KafkaProducer[bytes, bytes] = KafkaProducer.in_environment(
            self._pipeline.simulation.environment("drill"),
            self._common()
            | {
                "transactional.id": "drill",
                "transaction.timeout.ms": 60_000,
                "max.block.ms": 60_000,
                "request.timeout.ms": 500,
            }
            | settings,
        )
        while True:
            try:
                producer.init_transactions()
                return producer
            except KafkaTimeoutError:
                continue

    def _consumer(self, **settings: Any) -> KafkaConsumer[bytes, bytes]:
        return KafkaConsumer.in_environment(
            self._pipeline.simulation.environment("drill-reader"),
            self._common()
            | {
                "group.id": self._group,
                "group.protocol": self._pipeline.schedule.group_protocol,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "request.timeout.ms": 1_000,
                "default.api.timeout.ms": 60_000,
            }
            | settings,
        )

    def _begin(self, producer: KafkaProducer[bytes, bytes]) -> None:
        """Begin a transaction that is not to be committed, with a record of its own."""
        producer.begin_transaction()
        self._pipeline.begin_foreign()
        self._send(producer).get()

    def _commit(self, producer: KafkaProducer[bytes, bytes]) -> None:
        """Commit the transaction that was noted last."""
        producer.commit_transaction()
        transaction = self._pipeline.transactions[-1]
        transaction.outcome = True
        self._pipeline.drill_values += [value for values in transaction.values.values() for value in values]

    def _send_late(self, producer: KafkaProducer[bytes, bytes]) -> Control:
        """Send a record that does not arrive in time; return what still holds its requests."""
        control = self._cluster.faults.hold("PRODUCE", party="client:drill")
        try:
            self._send(producer).get()
        except KafkaError as error:
            self._pipeline.note("late", type(error).__name__)
        control.remove()
        return control

    def _send(self, producer: KafkaProducer[bytes, bytes]) -> Any:
        value = self._pipeline.foreign_value(self._target)
        return producer.send(self._target.topic, value, partition=self._target.partition)

    def _verify_transactions(self, verifies: bool) -> None:
        """Have leaders of the target ask the coordinator of a transaction, or not."""
        for broker in self._cluster.alive_brokers():
            partition = broker.replica_manager.partition(self._target)
            if partition is not None and partition.log is not None:
                partition.log.producer_state.verifies_transactions = verifies

    def _end_offset(self, broker: int) -> int:
        """Return where the target's log ends on a broker."""
        partition = self._cluster.broker(broker).replica_manager.partition(self._target)
        assert partition is not None
        assert partition.log is not None
        return partition.log.log_end_offset

    def _check_unstable(self, reader: KafkaConsumer[bytes, bytes]) -> None:
        try:
            found = reader.committed(self._source, timeout_ms=_STABLE_TIMEOUT_MS)
        except KafkaTimeoutError:
            return
        raise InvariantError(
            f"the offset {found} of {self._source} is told while a transaction that commits one is open"
        )

    def _check_last_sent(self, reader: KafkaConsumer[bytes, bytes]) -> None:
        found = reader.committed(self._source)
        if found != _FOREIGN_OFFSET + 1:
            raise InvariantError(f"offset {found} of {self._source} is committed, not the last one that was sent")

    def _check_committed(self, reader: KafkaConsumer[bytes, bytes], before: Any) -> None:
        found = reader.committed(self._source)
        if found != before:
            raise InvariantError(f"offset {found} of {self._source} is committed, not {before}: that was aborted")

    def _move(self, log: TopicPartition) -> None:
        """Give a log another leader, which loads what it coordinates; or restart the broker, if there is only one."""
        leader = self._cluster.leader(log)
        assert leader is not None
        others = [id for id in self._cluster.isr(log) if id != leader]
        if others:
            self._pipeline.faults.move_leader(log, others[0])
        else:
            self._cluster.kill_broker(leader)
            self._clock.sleep_ms(_DOWN_MS + self._pipeline.schedule.settings.session_timeout_ms)
            self._cluster.start_broker(leader)
        self._pipeline.await_(f"{log} is led", self._is_led)

    def _is_led(self) -> bool:
        logs = (_OFFSETS_LOG, _TRANSACTION_LOG, *self._pipeline.targets)
        return self._pipeline.faults.all_running() and all(self._cluster.leader(log) is not None for log in logs)
