"""A real Kafka of one or more brokers that lives for a ``with`` block.

with KafkaCluster(brokers=3) as cluster:
    cluster.create_topic("orders", partitions=3)
    ...  # cluster.bootstrap_servers
    cluster.brokers[cluster.leader_of("orders", 0)].kill()
"""

from __future__ import annotations

import base64
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.kafka import artifacts
from tests.kafka.broker import Broker
from tests.kafka.ports import PortReservations
from tests.kafka.tools import run_tool
from tests.support.any_kafka import AnyKafka

_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms128m", "-Xmx512m")
_THROUGHPUT = ("-XX:+UseG1GC", "-Xms1g", "-Xmx1g")


class KafkaCluster(AnyKafka):
    """Brokers 1 to ``brokers``, each a KRaft node that is both broker and controller, in a rack of its own.

    ``properties`` go into every broker's configuration, ``broker_properties[id]`` into that of one broker. ``port`` is
    the first broker's port, by default any. ``throughput`` gives the brokers the full compiler and a larger heap, for
    benchmarks. Clients reach each broker on two listeners: directly (``bootstrap_servers``) and through
    ``proxied_port``. A listener of its own advertises that port, but nothing listens on it until ``proxies`` does.
    ``listeners`` maps the names of more listeners to their security protocols; ``Broker.ports`` has their ports.

    Leaving the block kills the brokers and deletes their folder; so does the end of the test process, however it ends.
    Thread: any, one call at a time.
    """

    def __init__(
        self,
        brokers: int = 1,
        properties: Mapping[str, object] | None = None,
        broker_properties: Mapping[int, Mapping[str, object]] | None = None,
        *,
        port: int | None = None,
        throughput: bool = False,
        listeners: Mapping[str, str] | None = None,
        java_options: Sequence[str] | None = None,
        plugins: Path | None = None,
    ) -> None:
        self.size = brokers
        self.brokers: dict[int, Broker] = {}
        self.cluster_id = _random_id()
        self.folder = Path()
        self._properties = dict(properties or {})
        self._broker_properties = broker_properties or {}
        self._port = port
        self._listeners = dict(listeners or {})
        options = _THROUGHPUT if throughput else _QUICK_START
        self._java_options = [*options, *(_class_data() if java_options is None else java_options)]
        self._classpath = None if plugins is None else os.pathsep.join([artifacts.classpath(), str(plugins)])
        self._ports = PortReservations()
        self._controllers: dict[int, int] = {}
        self._watchdog: subprocess.Popen[str] | None = None

    @property
    def bootstrap_controllers(self) -> str:
        """The addresses of the controllers (``bootstrap.controllers``)."""
        return ",".join(f"{Broker.host}:{port}" for port in self._controllers.values())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, timeout_s: float = 120.0) -> None:
        """Start every broker, and wait until each responds and knows the others."""
        self.folder = Path(tempfile.mkdtemp(prefix="pykclient-kafka-"))
        self._watchdog = start_watchdog(self.folder)
        assert self._watchdog.stdin is not None
        try:
            ids = range(1, self.size + 1)
            self._controllers = controllers = {node_id: self._ports.take() for node_id in ids}
            voters = ",".join(f"{node_id}@{Broker.host}:{port}" for node_id, port in controllers.items())
            checkpoint = _bootstrap_checkpoint()
            for node_id in ids:
                port = self._ports.take(self._port if node_id == 1 else None)
                folder = self.folder / f"broker-{node_id}"
                broker = Broker(node_id, port, folder, self._java_options, self._watchdog.stdin, self._classpath)
                broker.proxied_port, broker.behind_proxy_port = self._ports.take(), self._ports.take()
                properties = self._configuration(broker, voters, controllers)
                broker.format(self.cluster_id, _random_id(), properties, checkpoint)
                self.brokers[node_id] = broker
            for broker in self.brokers.values():
                broker.launch()
            for broker in self.brokers.values():
                broker.await_ready(self.size, timeout_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill the running brokers and delete the folder."""
        for broker in self.brokers.values():
            if broker.running:
                broker.kill()
        if self._watchdog is not None:
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()
            self._watchdog.wait(60.0)  # it deletes the folder, which may contain thousands of partitions
            self._watchdog = None
        if self.folder.name:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.brokers = {}
        self._ports.close()

    def _configuration(self, broker: Broker, voters: str, controllers: Mapping[int, int]) -> dict[str, object]:
        """Return the server.properties of one broker."""
        internal = self._ports.take()
        broker.ports = {name: self._ports.take() for name in self._listeners}
        copies, in_sync = min(3, self.size), min(2, self.size)
        ports = {
            "PLAINTEXT": broker.port,
            "PROXIED": broker.behind_proxy_port,
            "INTERNAL": internal,
            "CONTROLLER": controllers[broker.id],
            **broker.ports,
        }
        advertised = {"PLAINTEXT": broker.port, "PROXIED": broker.proxied_port, "INTERNAL": internal, **broker.ports}
        return {
            "process.roles": "broker,controller",
            "node.id": broker.id,
            "broker.rack": f"rack-{broker.id}",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "listeners": _listeners(ports),
            "advertised.listeners": _listeners(advertised),
            "listener.security.protocol.map": ",".join(
                f"{name}:{self._listeners.get(name, 'PLAINTEXT')}" for name in ports
            ),
            "log.dirs": broker.data,
            "num.partitions": 1,
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            **_SETTINGS,
            **self._properties,
            **self._broker_properties.get(broker.id, {}),
        }


#: Small and fast settings that keep tests from waiting for or losing data.
_SETTINGS: dict[str, object] = {
    "num.io.threads": 2,
    "num.network.threads": 1,  # for each of four listeners
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.share.min.session.timeout.ms": 500,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.min.record.lock.duration.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "broker.session.timeout.ms": 4000,  # time until a killed broker's partitions get another leader
    "broker.heartbeat.interval.ms": 500,
    "auto.leader.rebalance.enable": "false",  # only tests move leaders
    "log.retention.ms": -1,  # records may carry any timestamp
    "log.segment.delete.delay.ms": 1000,
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "metadata.max.idle.interval.ms": 0,  # else the controller writes a no-op record twice per second
}


def start_watchdog(folder: Path) -> subprocess.Popen[str]:
    """Start a process that kills brokers and deletes ``folder`` when this process ends. See watchdog.py."""
    watch = [sys.executable, "-S", "-E", str(Path(__file__).with_name("watchdog.py")), str(folder)]
    return subprocess.Popen(watch, stdin=subprocess.PIPE, text=True, start_new_session=True)


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{Broker.host}:{port}" for name, port in ports.items())


def _random_id() -> str:
    """Return a random id in Kafka's form: 16 bytes in URL-safe base 64 that do not start with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


@functools.cache
def _bootstrap_checkpoint() -> bytes:
    """Return the checkpoint that StorageTool's ``format`` writes, made once because all nodes have the same."""
    kept = artifacts.kafka_folder() / "bootstrap.checkpoint"
    if not kept.exists():
        artifacts.lib_folder()
        with artifacts.locked("kafka-format"), tempfile.TemporaryDirectory(dir=kept.parent) as name:
            folder = Path(name)
            (folder / "server.properties").write_text(
                "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
                "controller.quorum.voters=1@127.0.0.1:1\nlisteners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\n"
                f"log.dirs={folder / 'data'}\n"
            )
            run_tool("kafka.tools.StorageTool", "format", "-t", _random_id(), "-c", str(folder / "server.properties"))
            (folder / "data" / kept.name).rename(kept)
    return kept.read_bytes()


@functools.cache
def _class_data() -> list[str]:
    """Return the JVM options for the archive of Kafka's parsed classes; the first broker makes the archive."""
    archive = artifacts.class_archive()
    if not archive.exists():
        with artifacts.locked("kafka-classes"):
            if not archive.exists():
                made = archive.with_suffix(".new")
                with KafkaCluster(java_options=[f"-XX:ArchiveClassesAtExit={made}"]) as cluster:
                    cluster.brokers[1].state(["any"])  # creates the topic
                    cluster.brokers[1].stop()
                made.rename(archive)
    return artifacts.class_data()
