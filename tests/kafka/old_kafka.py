"""An old release of Kafka: one broker, with the ZooKeeper that releases before 3.3 need.

with OldKafka("2.1.1") as kafka:
    ...  # kafka.bootstrap_servers
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Self

from tests.kafka import artifacts
from tests.kafka.broker import Broker
from tests.kafka.cluster import start_watchdog
from tests.kafka.ports import PortReservations
from tests.support.wait import eventually

#: The first release whose brokers need no ZooKeeper.
_KRAFT = (3, 3)

_JAVA_OPTIONS = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m", "-Xmx256m"),
    *("-Dzookeeper.admin.enableServer=false", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
)

_SETTINGS: dict[str, object] = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "log.retention.ms": -1,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}


class OldKafka:
    """A broker of an old release, and its ZooKeeper if it needs one. Thread: any, one call at a time."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.folder = Path()
        self.broker: Broker | None = None
        self._zookeeper: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[str] | None = None
        self._ports = PortReservations()

    def __enter__(self) -> Self:
        classpath = artifacts.old_classpath(self.version)
        self.folder = Path(tempfile.mkdtemp(prefix="pykclient-old-kafka-"))
        self._watchdog = start_watchdog(self.folder)
        assert self._watchdog.stdin is not None
        try:
            folder, port = self.folder / "broker-1", self._ports.take()
            self.broker = Broker(1, port, folder, _JAVA_OPTIONS, self._watchdog.stdin, classpath)
            listener = f"PLAINTEXT://{self.broker.address}"
            settings: dict[str, object] = {"log.dirs": self.broker.data, **_SETTINGS}
            if tuple(int(part) for part in self.version.split(".")[:2]) >= _KRAFT:
                controller = self._ports.take()
                settings |= {
                    "process.roles": "broker,controller",
                    "node.id": 1,
                    "controller.quorum.voters": f"1@{Broker.host}:{controller}",
                    "controller.listener.names": "CONTROLLER",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                    "listeners": f"{listener},CONTROLLER://{Broker.host}:{controller}",
                    "advertised.listeners": listener,
                }
                self.broker.configure(settings)
                self.broker.write_ids("AAAAAAAAAAAAAAAAAAAAAQ", uuid.uuid4().hex[:22])
            else:
                settings |= {
                    "broker.id": 1,
                    "listeners": listener,
                    "zookeeper.connect": f"{Broker.host}:{self._start_zookeeper(classpath)}",
                }
                self.broker.configure(settings)
            self.broker.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.broker is not None and self.broker.running:
            self.broker.kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper.wait(10.0)
            self._tell_watchdog(f"-{self._zookeeper.pid}")
        if self._watchdog is not None:
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()
            self._watchdog.wait(10.0)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._ports.close()

    @property
    def bootstrap_servers(self) -> str:
        assert self.broker is not None
        return self.broker.address

    def create_topic(self, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Create a topic and return its name once the broker leads all its partitions."""
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(30.0)

        def known() -> bool:
            assert self.broker is not None
            states = self.broker.state([name]).topics.get(name, {})
            return len(states) == partitions and all(state.leader == 1 for state in states.values())

        eventually(known, 30.0, f"topic {name!r} is known")
        return name

    def _start_zookeeper(self, classpath: str) -> int:
        """Start ZooKeeper and return its port. The broker itself waits until ZooKeeper responds."""
        port = self._ports.take()
        command = [artifacts.java_tool(), *_JAVA_OPTIONS, "-cp", classpath]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(port), str(self.folder / "zookeeper")]
        with (self.folder / "zookeeper.log").open("ab") as log:
            self._zookeeper = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._tell_watchdog(f"+{self._zookeeper.pid}")

        def listens() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((Broker.host, port), 1.0):
                return True
            return False

        eventually(listens, 30.0, "ZooKeeper listens")
        return port

    def _tell_watchdog(self, line: str) -> None:
        assert self._watchdog is not None
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.write(line + "\n")
        self._watchdog.stdin.flush()
