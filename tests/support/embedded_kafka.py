"""The embedded cluster behind the interface that these tests share with real Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from tests.kafka.ports import PortReservations
from tests.kafka.probe import ClusterState, cluster_state
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pykclient.testing import EmbeddedCluster


class EmbeddedBroker:
    """One broker of an embedded cluster. Thread: any."""

    host = "127.0.0.1"

    def __init__(self, cluster: EmbeddedCluster, id: int, port: int, proxied_port: int) -> None:
        self._cluster = cluster
        self.id = id
        self.port = port
        self.proxied_port = proxied_port
        self.behind_proxy_port = cluster.address_behind_proxy(id)[1]
        self.running = True
        self.paused = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def state(self, topics: Sequence[str] | None = None, timeout_s: float = 5.0) -> ClusterState:
        return cluster_state(self.host, self.port, topics, timeout_s)

    def launch(self) -> None:
        assert not self.running, f"broker {self.id} is running"
        self._cluster.restart(self.id)
        self.running, self.paused = True, False

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def await_ready(self, brokers: int = 1, timeout_s: float = 60.0) -> None:
        def ready() -> bool:
            with contextlib.suppress(OSError):
                known = self.state(()).brokers
                return self.id in known and len(known) >= brokers
            return False

        eventually(ready, timeout_s, f"broker {self.id} knows {brokers} brokers")

    def kill(self) -> None:
        self._cluster.kill(self.id)
        self.running = self.paused = False

    def stop(self) -> None:
        self.resume()
        self._cluster.stop(self.id)
        self.running = False

    def pause(self) -> None:
        assert self.running, f"broker {self.id} is not running"
        self._cluster.pause(self.id)
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self._cluster.resume(self.id)
            self.paused = False

    def restart(self) -> None:
        if self.running:
            self.stop()
        self.start()


class EmbeddedKafka(AnyKafka):
    """An embedded cluster set up as ``KafkaCluster`` sets up a real one. Thread: any, one call at a time."""

    def __init__(
        self,
        brokers: int = 1,
        properties: Mapping[str, object] | None = None,
        *,
        release: str | None = None,
        transaction_version: int | None = None,
    ) -> None:
        self.size = brokers
        self.brokers = {}
        self._properties = dict(properties or {})
        self._release = release
        self._transaction_version = transaction_version
        self._cluster: EmbeddedCluster | None = None
        self._ports = PortReservations()

    def __enter__(self) -> Self:
        from pykclient.testing import EmbeddedCluster

        copies, in_sync = min(3, self.size), min(2, self.size)
        settings = {
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            **_SETTINGS,
            **self._properties,
        }
        ids = range(1, self.size + 1)
        proxied_ports = {id: self._ports.take() for id in ids}
        self._cluster = cluster = EmbeddedCluster(
            self.size,
            racks={id: f"rack-{id}" for id in ids},
            proxies={id: (EmbeddedBroker.host, port) for id, port in proxied_ports.items()},
            release=self._release,
            transaction_version=self._transaction_version,
            config=settings,
        )
        cluster.start()
        ports = [int(address.rsplit(":", 1)[1]) for address in cluster.bootstrap_servers.split(",")]
        self.brokers = {id: EmbeddedBroker(cluster, id, ports[id - 1], proxied_ports[id]) for id in ids}
        return self

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int | None = None,
        config: Mapping[str, object] | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> str:
        # The cluster's own way, as confluent-kafka may not be installed.
        assert self._cluster is not None
        places = None if assignment is None else {number: list(row) for number, row in enumerate(assignment)}
        self._cluster.create_topic(name, partitions, replication, config, places)
        return name

    def __exit__(self, *_: object) -> None:
        assert self._cluster is not None
        self._cluster.close()
        self._ports.close()


#: Settings that keep tests from waiting for or losing data, as in ``KafkaCluster``.
_SETTINGS: dict[str, object] = {"log.retention.ms": -1}
