"""A broker process that can be killed, stopped, paused and restarted on its own port."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.kafka import artifacts
from tests.kafka.probe import ClusterState, cluster_state
from tests.support.wait import eventually

_LOG4J = Path(__file__).with_name("log4j2.properties")


class BrokerError(RuntimeError):
    """A broker died or did not become ready; the message has the end of its log."""


class Broker:
    """A KRaft node that is both broker and controller, of Kafka's current release unless ``classpath`` is another's.

    KafkaCluster and OldKafka create it. Thread: any, one call at a time.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        node_id: int,
        port: int,
        folder: Path,
        java_options: Sequence[str],
        watchdog: IO[str],
        classpath: str | None = None,
    ) -> None:
        self.id = node_id
        self.port = port
        self.proxied_port = 0
        self.behind_proxy_port = 0
        self.ports: dict[str, int] = {}
        self.folder = folder
        self.log = folder / "server.log"
        self.data = folder / "data"
        self.process: subprocess.Popen[bytes] | None = None
        self.paused = False
        self._java_options = list(java_options)
        self._classpath = classpath or artifacts.classpath()
        self._watchdog = watchdog

    def __repr__(self) -> str:
        return f"<Broker {self.id} at {self.address}>"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def configure(self, properties: Mapping[str, object]) -> None:
        """Write the configuration."""
        self.data.mkdir(parents=True)
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        (self.folder / "server.properties").write_text("".join(lines))

    def write_ids(self, cluster_id: str, directory_id: str) -> None:
        """Mark the storage as formatted."""
        meta = {"version": 1, "cluster.id": cluster_id, "node.id": self.id, "directory.id": directory_id}
        (self.data / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in meta.items()))

    def format(self, cluster_id: str, directory_id: str, properties: Mapping[str, object], checkpoint: bytes) -> None:
        """Write the configuration, and format the storage as StorageTool does."""
        self.configure(properties)
        self.write_ids(cluster_id, directory_id)
        (self.data / "bootstrap.checkpoint").write_bytes(checkpoint)

    def launch(self) -> None:
        """Start the process without waiting until it is ready."""
        if self.running:
            raise AssertionError(f"{self!r} is running")
        command = [artifacts.java_tool(), *self._java_options, "-Dpykclient.log.level=INFO"]
        command += [f"-Dlog4j2.configurationFile={_LOG4J}", "-cp", self._classpath]
        command += ["kafka.Kafka", str(self.folder / "server.properties")]
        with self.log.open("ab") as log:  # a session of its own, so that Ctrl-C reaches the tests but not the broker
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        self.paused = False
        self._tell_watchdog(f"+{self.process.pid}")

    def start(self, timeout_s: float = 120.0) -> None:
        """Start, and wait until the broker serves clients."""
        self.launch()
        self.await_ready(timeout_s=timeout_s)

    def await_ready(self, brokers: int = 1, timeout_s: float = 120.0) -> None:
        """Wait until this broker responds and knows ``brokers`` brokers, itself included."""

        def ready() -> bool:
            self.check_alive()
            with contextlib.suppress(OSError):
                known = self.state(()).brokers
                return self.id in known and len(known) >= brokers
            return False

        try:
            eventually(ready, timeout_s, every_s=0.05)
        except AssertionError:
            raise BrokerError(f"{self!r} was not ready within {timeout_s} s; its log ends\n{self.log_tail()}") from None

    def check_alive(self) -> None:
        """Raise BrokerError with the end of the log if the process has ended."""
        if not self.running:
            code = None if self.process is None else self.process.returncode
            raise BrokerError(f"{self!r} ended with code {code}; its log ends\n{self.log_tail()}")

    def state(self, topics: Sequence[str] | None = None, timeout_s: float = 5.0) -> ClusterState:
        """Return brokers and topics (None: all) as this broker sees them. Raises OSError if it does not respond."""
        return cluster_state(self.host, self.port, topics, timeout_s)

    def kill(self) -> None:
        """Crash the broker (SIGKILL)."""
        self._signal(signal.SIGKILL)
        self._reap(10.0)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Shut down in a controlled way (SIGTERM), which moves leaders away first; SIGKILL after ``timeout_s``."""
        self.resume()
        self._signal(signal.SIGTERM)
        try:
            self._reap(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """Stop responding while connections stay open (SIGSTOP)."""
        self._signal(signal.SIGSTOP)
        self.paused = True
        eventually(self._has_stopped, what=f"{self!r} is paused")  # until then its threads may respond

    def _has_stopped(self) -> bool:
        assert self.process is not None
        return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

    def resume(self) -> None:
        """End a ``pause`` (SIGCONT); do nothing otherwise."""
        if self.paused:
            self._signal(signal.SIGCONT)
            self.paused = False

    def restart(self, timeout_s: float = 120.0) -> None:
        """Stop if running, then start on the same port with the same data."""
        if self.running:
            self.stop()
        self.start(timeout_s)

    def log_tail(self, lines: int = 40) -> str:
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            raise AssertionError(f"{self!r} is not running, so it cannot be sent {number.name}")
        os.kill(self.process.pid, number)

    def _reap(self, timeout_s: float) -> None:
        assert self.process is not None
        self.process.wait(timeout_s)
        self.paused = False
        self._tell_watchdog(f"-{self.process.pid}")

    def _tell_watchdog(self, line: str) -> None:
        self._watchdog.write(line + "\n")
        self._watchdog.flush()
