"""The drills of share groups: each provokes one situation that schedules seldom meet, and checks one rule exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pykclient.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from pykclient.consumer.share.acknowledgements import AcknowledgeType
from pykclient.consumer.share.kafka_share_consumer import KafkaShareConsumer
from pykclient.errors import KafkaError
from pykclient.producer.kafka_producer import KafkaProducer
from pykclient.testing.simulation.checks import InvariantError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.types import ConsumerRecord
    from tests.simulation.share_groups import ShareWorld

    Consumer = KafkaShareConsumer[bytes, bytes]
    Record = ConsumerRecord[bytes, bytes]

#: The client ids of drills begin with this.
DRILL: Final = "drill"

_TOPIC: Final = "drill"
_GROUP: Final = "drillers"
_PARTITION: Final = TopicPartition(_TOPIC, 0)
_SHARE_STATE: Final = TopicPartition("__share_group_state", 0)
#: The deliveries of a record before it is given up.
_DELIVERIES: Final = 3
#: The time in which a healthy cluster delivers a record that is available.
_PROMPT_MS: Final = 500
_POLL_MS: Final = 20
_FETCH_WAIT_MS: Final = 100


class ShareDrills:
    """The drills, with a topic and a group of their own, on a healthy cluster without members.

    Thread: owner of the simulation, in an actor.
    """

    def __init__(self, world: ShareWorld, lock_ms: int) -> None:
        self._world = world
        self._cluster = world.cluster
        self._clock = world.clock
        self._lock_ms = lock_ms
        self._names = 0

    def run(self) -> None:
        """Run one drill, chosen by the seed, and one that needs a leader that has delivered records before."""
        drills: list[Callable[[], None]] = [
            self._expired,
            self._renewed,
            self._slowly_written,
            self._given_up,
            self._rejected,
            self._released,
            self._left_behind,
            self._aborted,
        ]
        if len(self._cluster.nodes) > 1:
            drills += [self._counted, self._former_leader]
        drill = self._world.simulation.new_rng().choice(drills)
        self._world.note("drill", drill.__name__)
        self._prepare()
        drill()
        if len(self._cluster.nodes) > 1:
            self._world.note("drill", self._returning_leader.__name__)
            self._returning_leader()

    # --- drills ------------------------------------------------------------------------------------------------------

    def _expired(self) -> None:
        """A record is delivered again when its lock ends, not before, and its former owner cannot acknowledge it."""
        self._send(b"one")
        first, second = self._consumer(), self._consumer()
        begun_ms = self._clock.now_ms()
        record = self._take(first)
        locked_ms = self._clock.now_ms()
        again = self._take(second, self._lock_ms + 4 * _PROMPT_MS)
        now_ms = self._clock.now_ms()
        self._expect(again.delivery_count == 2, f"the second delivery has the count {again.delivery_count}")
        passed_ms = now_ms - begun_ms
        self._expect(passed_ms >= self._lock_ms, f"a lock of {self._lock_ms} ms ended after {passed_ms} ms")
        self._expect(now_ms <= locked_ms + self._lock_ms + _PROMPT_MS, "a lock did not end in time")
        first.acknowledge(record, AcknowledgeType.ACCEPT)
        self._expect(self._commit(first) is not None, "a member accepted a record that another one holds")
        second.acknowledge(again, AcknowledgeType.ACCEPT)
        self._expect_none(self._commit(second))
        self._expect_nothing(second)
        self._close(first, second)

    def _renewed(self) -> None:
        """A renewed lock lasts as long again, and others that began with it do not."""
        self._send(b"one", b"two")
        first, second = self._consumer(), self._consumer()
        forgotten, renewed = self._take_all(first)
        self._clock.sleep_ms(self._lock_ms * 7 // 10)
        first.acknowledge(renewed, AcknowledgeType.RENEW)
        self._expect_none(self._commit(first))
        again = self._take(second, self._lock_ms)
        self._expect(again.offset == forgotten.offset, f"offset {again.offset} was delivered although it was renewed")
        second.acknowledge(again, AcknowledgeType.ACCEPT)
        self._expect_none(self._commit(second))
        self._expect_nothing(second, self._lock_ms * 2 // 10)
        first.acknowledge(forgotten, AcknowledgeType.ACCEPT)
        self._commit(first)  # brokers ignore it, or refuse it
        (renewed,) = self._poll_once(first)
        first.acknowledge(renewed, AcknowledgeType.ACCEPT)
        self._expect_none(self._commit(first))
        self._expect_nothing(second, self._lock_ms + _PROMPT_MS)
        self._close(first, second)

    def _slowly_written(self) -> None:
        """While an acknowledgement is being written, it decides about the record, and not the end of the lock.

        If it cannot be written, the lock counts again.
        """
        self._send(b"one")
        first, second = self._consumer(), self._consumer()
        record = self._take(first)
        self._expect_nothing(second, self._lock_ms * 8 // 10)
        is_written = self._world.simulation.new_rng().random() < 0.5
        control = self._cluster.faults.hold("WRITE_SHARE_GROUP_STATE", party="broker-*", times=1)
        until_end_ms = self._lock_ms * 3 // 10
        self._world.simulation.loop.call_later(until_end_ms, control.remove)
        if is_written:
            self._world.simulation.loop.call_later(until_end_ms, control.release)
        first.acknowledge(record, AcknowledgeType.ACCEPT)
        error = self._commit(first)
        self._expect(is_written == (error is None), f"an acknowledgement that was slowly written got {error!r}")
        if is_written:
            self._expect_nothing(second)
        else:
            self._accept_at_once(second)
        self._close(first, second)

    def _given_up(self) -> None:
        """A record that no member accepts is delivered as often as the group allows, and then never again."""
        self._send(b"poison", b"good")
        consumer = self._consumer()
        deliveries: dict[bytes, int] = {}
        deadline_ms = self._clock.now_ms() + 10 * _PROMPT_MS
        while self._clock.now_ms() < deadline_ms:
            for record in self._poll_once(consumer):
                deliveries[self._value(record)] = deliveries.get(self._value(record), 0) + 1
                is_good = record.value == b"good"
                consumer.acknowledge(record, AcknowledgeType.ACCEPT if is_good else AcknowledgeType.RELEASE)
            self._expect_none(self._commit(consumer))
        expected = {b"poison": _DELIVERIES, b"good": 1}
        self._expect(deliveries == expected, f"the deliveries were {deliveries}, and not {expected}")
        self._close(consumer)

    def _rejected(self) -> None:
        """A rejected record is not delivered again, and the ones around it are."""
        self._send(b"one", b"two", b"three")
        consumer = self._consumer()
        rejected: set[int] = set()
        while len(rejected) < 1:
            for record in self._poll_once(consumer):
                if record.value == b"two":
                    rejected.add(record.offset)
                    consumer.acknowledge(record, AcknowledgeType.REJECT)
                else:
                    consumer.acknowledge(record, AcknowledgeType.RELEASE)
            self._expect_none(self._commit(consumer))
        self._move(_PARTITION)
        values = set()
        for record in self._take_all(consumer):
            values.add(self._value(record))
            consumer.acknowledge(record, AcknowledgeType.ACCEPT)
            self._expect_none(self._commit(consumer))
        self._expect(b"two" not in values, "a rejected record was delivered again")
        self._close(consumer)

    def _released(self) -> None:
        """A released record is available at once, for any member."""
        first, second = self._members()
        self._send(b"one")
        record = self._take(first)
        first.acknowledge(record, AcknowledgeType.RELEASE)
        self._expect_none(self._commit(first))
        self._accept_at_once(second)
        self._close(first, second)

    def _left_behind(self) -> None:
        """The records of a member that closes, or is disconnected, are available at once."""
        first, second = self._members()
        party = f"client:{DRILL}-{self._names - 1}"
        self._send(b"one")
        self._take(first)
        if self._world.simulation.new_rng().random() < 0.5:
            self._close(first)
        else:
            leader = self._leader(_PARTITION)
            assert leader is not None
            self._cluster.faults.cut(party, leader, reset=True)
            self._world.faults.heal()
        self._accept_at_once(second)
        self._close(first, second)

    def _accept_at_once(self, consumer: Consumer) -> None:
        """Accept a record that is delivered for the second time, before any lock could have ended."""
        record = self._take(consumer, within_ms=_PROMPT_MS)
        self._expect(record.delivery_count == 2, f"the second delivery has the count {record.delivery_count}")
        consumer.acknowledge(record, AcknowledgeType.ACCEPT)
        self._expect_none(self._commit(consumer))

    def _aborted(self) -> None:
        """Records of transactions that are open or aborted are not delivered with read_committed."""
        producer: KafkaProducer[bytes, bytes] = KafkaProducer.in_environment(
            self._environment(), self._common() | {"transactional.id": "drill", "max.block.ms": 60_000}
        )
        producer.init_transactions()
        consumer = self._consumer()
        producer.begin_transaction()
        producer.send(_TOPIC, b"aborted", partition=0).get()
        self._expect_nothing(consumer)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(_TOPIC, b"committed", partition=0).get()
        producer.commit_transaction()
        producer.close()
        record = self._take(consumer)
        self._expect(record.value == b"committed", f"the record {record.value!r} was delivered")
        consumer.acknowledge(record, AcknowledgeType.ACCEPT)
        self._expect_none(self._commit(consumer))
        self._close(consumer)

    def _counted(self) -> None:
        """A new leader knows how often a released record was delivered."""
        self._send(b"one")
        consumer = self._consumer()
        for count in range(1, _DELIVERIES + 1):
            record = self._take(consumer)
            self._expect(record.delivery_count == count, f"delivery {count} has the count {record.delivery_count}")
            last = count == _DELIVERIES
            consumer.acknowledge(record, AcknowledgeType.ACCEPT if last else AcknowledgeType.RELEASE)
            self._expect_none(self._commit(consumer))
            self._move(_PARTITION)
            self._move(_SHARE_STATE)
        self._expect_nothing(consumer)
        self._close(consumer)

    def _former_leader(self) -> None:
        """A leader that does not know yet that another one has replaced it confirms no acknowledgement."""
        former = self._leader(_PARTITION)
        assert former is not None
        if len(set(self._cluster.isr(_SHARE_STATE)) - {former}) < self._world.schedule.settings.min_isr:
            return  # its log was created while a broker was down, and nothing could be written to it
        self._send(b"one")
        first = self._consumer()
        record = self._take(first)
        if former == self._leader(_SHARE_STATE):
            self._move(_SHARE_STATE)
        self._cluster.faults.cut(former, "coordination")
        self._world.await_("the partition has another leader", lambda: self._leader(_PARTITION) not in (former, None))
        others = ",".join(f"{node.host}:{node.port}" for id, node in self._cluster.nodes.items() if id != former)
        second = self._consumer(others)
        again = self._take(second)
        second.acknowledge(again, AcknowledgeType.ACCEPT)
        self._expect_none(self._commit(second))
        first.acknowledge(record, AcknowledgeType.RELEASE)
        self._expect(self._commit(first) is not None, "a former leader has confirmed a release")
        self._close(first, second)
        self._world.faults.heal()
        self._world.await_("all brokers lead again", self._is_led)
        self._move(_PARTITION)
        third = self._consumer()
        self._expect_nothing(third)
        self._close(third)

    def _returning_leader(self) -> None:
        """A leader that was replaced meanwhile does not deliver again what was accepted from another one."""
        self._send(b"returned")
        former = self._leader(_PARTITION)
        assert former is not None
        first = self._consumer()
        first.acknowledge(self._take(first), AcknowledgeType.RELEASE)
        self._expect_none(self._commit(first))
        self._move(_PARTITION)
        second = self._consumer()
        second.acknowledge(self._take(second), AcknowledgeType.ACCEPT)
        self._expect_none(self._commit(second))
        self._move(_PARTITION, former)
        self._expect_nothing(second)
        self._close(first, second)

    # --- their parts -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        admin = KafkaAdminClient.in_environment(self._environment(), self._common())
        admin.create_topics([NewTopic(_TOPIC, 1, self._world.schedule.settings.replication_factor)])
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(_DELIVERIES),
            "share.isolation.level": "read_committed",
        }
        admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, _GROUP, configs)])
        admin.close()
        self._world.await_("the topic of the drill is led", self._is_led)

    def _environment(self) -> Any:
        self._names += 1
        return self._world.simulation.environment(f"{DRILL}-{self._names}")

    def _common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._world.simulation.bootstrap_servers,
            "client.id": f"{DRILL}-{self._names}",
            "request.timeout.ms": 1_000,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 80,
            "socket.connection.setup.timeout.ms": 300,
            "socket.connection.setup.timeout.max.ms": 600,
        }

    def _consumer(self, bootstrap_servers: str = "") -> Consumer:
        """Return a member of the group, which joins with its first poll."""
        environment = self._environment()
        settings = self._common() | {
            "group.id": _GROUP,
            "share.acknowledgement.mode": "explicit",
            "fetch.max.wait.ms": _FETCH_WAIT_MS,
            "default.api.timeout.ms": 2_000,
        }
        if bootstrap_servers:
            settings["bootstrap.servers"] = bootstrap_servers
        return KafkaShareConsumer.in_environment(environment, settings, _TOPIC)

    def _members(self) -> tuple[Consumer, Consumer]:
        """Return two members that have their assignment."""
        first, second = self._consumer(), self._consumer()
        for _ in range(2):
            self._expect_nothing(first)
            self._expect_nothing(second)
        # A fetch that the last poll has left with the broker would take the record that is sent next.
        self._clock.sleep_ms(2 * _FETCH_WAIT_MS)
        return first, second

    def _send(self, *values: bytes) -> None:
        producer: KafkaProducer[bytes, bytes] = KafkaProducer.in_environment(self._environment(), self._common())
        for value in values:
            producer.send(_TOPIC, value, partition=0).get()
        producer.close()

    def _value(self, record: Record) -> bytes:
        return record.value or b""

    def _poll_once(self, consumer: Consumer) -> list[Record]:
        return [record for records in consumer.poll(_POLL_MS).values() for record in records]

    def _take(self, consumer: Consumer, within_ms: int = 4 * _PROMPT_MS) -> Record:
        """Return a record that is delivered within this time, which is enough for a new member to join."""
        deadline_ms = self._clock.now_ms() + within_ms
        while self._clock.now_ms() <= deadline_ms:
            records = self._poll_once(consumer)
            if records:
                self._expect(len(records) == 1, f"{len(records)} records were delivered instead of one")
                return records[0]
        raise InvariantError(f"no record was delivered within {within_ms} ms")

    def _take_all(self, consumer: Consumer) -> list[Record]:
        deadline_ms = self._clock.now_ms() + 4 * _PROMPT_MS
        while self._clock.now_ms() <= deadline_ms:
            records = self._poll_once(consumer)
            if records:
                return records
        return []

    def _commit(self, consumer: Consumer) -> KafkaError | None:
        """Send the acknowledgements; return their error."""
        return next(iter(consumer.commit_sync().values()), None)

    def _close(self, *consumers: Consumer) -> None:
        for consumer in consumers:
            consumer.close()

    def _expect(self, is_true: bool, otherwise: str) -> None:
        if not is_true:
            raise InvariantError(otherwise)

    def _expect_none(self, error: KafkaError | None) -> None:
        if error is not None:
            raise InvariantError(f"an acknowledgement was refused on a healthy cluster: {error!r}")

    def _expect_nothing(self, consumer: Consumer, for_ms: int = _PROMPT_MS) -> None:
        deadline_ms = self._clock.now_ms() + for_ms
        while self._clock.now_ms() < deadline_ms:
            for record in self._poll_once(consumer):
                raise InvariantError(f"offset {record.offset} was delivered, delivery {record.delivery_count}")

    def _leader(self, tp: TopicPartition) -> int | None:
        return self._cluster.leader(tp)

    def _move(self, tp: TopicPartition, to: int | None = None) -> None:
        """Give a partition another leader: ``to``, or any, if it has more than one replica."""
        leader = self._leader(tp)
        others = [id for id in self._cluster.isr(tp) if id != leader and to in (id, None)]
        if others:
            self._world.faults.move_leader(tp, others[0])
            self._world.await_(f"{tp} is led by another broker", lambda: self._leads(tp) == [others[0]])

    def _leads(self, tp: TopicPartition) -> list[int]:
        """Return the brokers that take themselves for the leader."""
        partitions = {broker.id: broker.replica_manager.partition(tp) for broker in self._cluster.alive_brokers()}
        return [id for id, partition in partitions.items() if partition is not None and partition.is_leader]

    def _is_led(self) -> bool:
        if not self._world.faults.all_running():
            return False
        return all(self._leads(tp) == [self._leader(tp)] for tp in (_PARTITION, _SHARE_STATE))
