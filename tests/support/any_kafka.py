"""One interface to two kinds of cluster: the embedded one and real Kafka. A test must see the same on both.

Both kinds get queries and changes over the wire. Only what is done to a broker from outside (a kill, a pause, a proxy
in front of it) differs between them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.kafka.probe import ClusterState, PartitionState
from tests.support.proxy import TcpProxy
from tests.support.wait import eventually

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

#: Parameters of the fixtures ``any_kafka``, ``any_cluster`` and ``start_kafka`` that choose the kind of cluster.
EMBEDDED = pytest.param("embedded")
REAL = pytest.param("real", marks=[pytest.mark.kafka, pytest.mark.timeout(180)])

#: ``start_kafka(settings)`` starts one broker with these settings, for a ``with`` block.
StartKafka = Callable[[Mapping[str, object]], "contextlib.AbstractContextManager[AnyKafka]"]


class AnyBroker(Protocol):
    """One broker, which keeps its port during the life of its cluster."""

    @property
    def id(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def proxied_port(self) -> int:
        """The port that clients of ``proxies`` connect to. The broker itself does not listen on it."""

    @property
    def behind_proxy_port(self) -> int:
        """The port on which the broker listens for connections forwarded by a proxy at ``proxied_port``."""

    @property
    def running(self) -> bool: ...

    @property
    def paused(self) -> bool: ...

    @property
    def address(self) -> str: ...

    def state(self, topics: Sequence[str] | None = None, timeout_s: float = 5.0) -> ClusterState:
        """Return brokers and topics (None: all) as this broker sees them. Raises OSError if it does not respond."""

    def launch(self) -> None:
        """Start without waiting."""

    def start(self) -> None:
        """Start, and wait until the broker serves clients."""

    def await_ready(self, brokers: int = 1, timeout_s: float = 60.0) -> None:
        """Wait until this broker responds and knows ``brokers`` brokers, itself included."""

    def kill(self) -> None:
        """Crash the broker."""

    def stop(self) -> None:
        """Shut down in a controlled way, which moves leaders to other brokers first."""

    def pause(self) -> None:
        """Stop responding while connections stay open."""

    def resume(self) -> None:
        """End a ``pause``; do nothing otherwise."""

    def restart(self) -> None:
        """Stop if running, then start."""


class AnyKafka:
    """Brokers 1 to ``size``, each in a rack of its own. Thread: any, one call at a time."""

    size: int
    brokers: Mapping[int, AnyBroker]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def proxied_bootstrap_servers(self) -> str:
        """The bootstrap servers for a client that must reach brokers only through ``proxies``."""
        return ",".join(f"{broker.host}:{broker.proxied_port}" for broker in self.brokers.values())

    @contextlib.contextmanager
    def proxies(self) -> Iterator[dict[int, TcpProxy]]:
        """Yield a proxy in front of each broker, by broker id, for clients of ``proxied_bootstrap_servers``."""
        with contextlib.ExitStack() as stack:
            yield {
                broker.id: stack.enter_context(
                    TcpProxy((broker.host, broker.behind_proxy_port), port=broker.proxied_port)
                )
                for broker in self.brokers.values()
            }

    def any_broker(self) -> AnyBroker:
        """Return a broker that is running and not paused."""
        for broker in self.brokers.values():
            if broker.running and not broker.paused:
                return broker
        raise AssertionError("no broker is running")

    def make_healthy(self, timeout_s: float = 60.0) -> None:
        """Resume or start every broker that is not up, then wait until every replica of every partition is in sync."""
        for broker in self.brokers.values():
            broker.resume()
            if not broker.running:
                broker.launch()
        for broker in self.brokers.values():
            broker.await_ready(self.size, timeout_s)
        eventually(lambda: not self.out_of_sync(), timeout_s, "every replica in sync")

    def out_of_sync(self) -> list[str]:
        """Return the partitions without a leader or with replicas out of sync, such as ``orders-0``."""
        try:
            topics = self.any_broker().state().topics
        except OSError as error:
            return [str(error)]
        return [
            f"{topic}-{partition}"
            for topic, partitions in topics.items()
            for partition, state in partitions.items()
            if state.leader < 0 or set(state.isr) != set(state.replicas)
        ]

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int | None = None,
        config: Mapping[str, object] | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> str:
        """Create a topic and return its name once every broker knows it.

        The replication factor is ``replication``, by default three or the number of brokers if that is smaller.
        ``assignment`` names the replicas of each partition instead, the leader first.
        """
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        settings = {key: str(value) for key, value in (config or {}).items()}
        if assignment is None:
            topic = NewTopic(name, partitions, replication or min(3, self.size), config=settings)
        else:
            partitions = len(assignment)
            topic = NewTopic(name, partitions, replica_assignment=[list(row) for row in assignment], config=settings)
        admin = self._admin()
        admin.create_topics([topic])[name].result(30.0)
        self._await_topic(name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no running broker knows it."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(30.0)
        eventually(lambda: not any(name in topics for topics in self._views()), 30.0, f"topic {name!r} deleted")

    def partition(self, topic: str, partition: int) -> PartitionState:
        """Return the leader, replicas and in-sync replicas of a partition, as the first running broker sees them."""
        state = self.any_broker().state([topic]).topics.get(topic, {}).get(partition)
        assert state is not None, f"{topic}-{partition} is unknown"
        return state

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition, or -1 if it has no leader."""
        return self.partition(topic, partition).leader

    def await_leader(self, topic: str, partition: int, *, other_than: int = -1, timeout_s: float = 30.0) -> int:
        """Wait until a partition has a leader other than ``other_than``, and return it."""

        def leader() -> int | None:
            with contextlib.suppress(OSError):
                found = self.leader_of(topic, partition)
                return found if found not in (-1, other_than) else None
            return None

        found = eventually(leader, timeout_s, f"a leader of {topic}-{partition} other than {other_than}")
        assert found is not None
        return found

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make broker ``to`` lead a partition; add a replica there first if it has none."""
        replicas = self.partition(topic, partition).replicas
        wanted = [to, *(broker for broker in replicas if broker != to)][: len(replicas)]
        if wanted != list(replicas):
            self._reassign(topic, partition, wanted)
        if self.leader_of(topic, partition) != to:
            from confluent_kafka import ElectionType, TopicPartition

            admin = self._admin()
            admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, partition)]).result(30.0)
        eventually(
            lambda: all(topics[topic][partition].leader == to for topics in self._views()),
            30.0,
            f"broker {to} leads {topic}-{partition}",
        )

    def _reassign(self, topic: str, partition: int, replicas: list[int]) -> None:
        """Move a partition to ``replicas``, and wait until they are in sync. (confluent-kafka has no such call.)"""
        from kafka import TopicPartition
        from kafka.admin import KafkaAdminClient

        def done() -> bool:
            state = self.partition(topic, partition)
            return list(state.replicas) == replicas and set(state.isr) == set(replicas)

        admin = KafkaAdminClient(bootstrap_servers=self.any_broker().address)
        try:
            admin.alter_partition_reassignments({TopicPartition(topic, partition): replicas})
        finally:
            admin.close()
        eventually(done, 30.0, f"{topic}-{partition} on {replicas}")

    def _views(self) -> list[dict[str, dict[int, PartitionState]]]:
        """Return what each running broker knows of all topics."""
        return [b.state().topics for b in self.brokers.values() if b.running and not b.paused]

    def _await_topic(self, name: str, partitions: int) -> None:
        def known() -> bool:
            for topics in self._views():
                states = topics.get(name, {})
                if len(states) != partitions or any(state.leader < 0 for state in states.values()):
                    return False
            return True

        eventually(known, 30.0, f"every broker knows topic {name!r}")

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
