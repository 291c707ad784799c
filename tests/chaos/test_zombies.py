"""A process that is paused in a transaction wakes up when another one has done its work: it writes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.copier import SESSION_MS
from tests.consumer.test_consumer_groups_kafka import set_session_timeout
from tests.consumer.test_groups_kafka import produce
from tests.kafka.cluster import KafkaCluster
from tests.producer.test_transactions_on_kafka import committed_values, generation

__all__ = ["generation"]  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

_ROOT = Path(__file__).resolve().parents[2]
_RECORDS = 10

Process = subprocess.Popen[str]


class _Case:
    """A zombie and the process that replaces it: by the same name, or as another member of its group."""

    def __init__(self, kafka: KafkaCluster, topic: str, protocol: str, *, has_same_name: bool) -> None:
        self._servers = kafka.bootstrap_servers
        self.source = kafka.create_topic(f"{topic}-in")
        self.target = kafka.create_topic(topic)
        self._group, self._protocol = f"group-{topic}", protocol
        self._successor = "zombie" if has_same_name else "other"
        #: The errors of the open transaction, and of the next one.
        self.expected = ["ProducerFencedError", "ProducerFencedError"] if has_same_name else ["CommitFailedError"] * 2
        self.processes: list[Process] = []
        if protocol == "consumer":
            set_session_timeout(kafka, self._group, SESSION_MS)
        produce(kafka, self.source, _RECORDS)

    def _start(self, module: str, instance: str) -> Process:
        command = [sys.executable, "-W", "error", "-m", f"tests.chaos.{module}", self._servers, self.source]
        process = subprocess.Popen(
            [*command, self.target, self._group, self._protocol, instance],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ,
        )
        self.processes.append(process)
        return process

    def start(self) -> None:
        self._start("zombie", "zombie")

    def replace(self) -> None:
        """Pause the zombie in its transaction, and start its successor."""
        zombie = self.processes[0]
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "holding\n"
        zombie.send_signal(signal.SIGSTOP)
        self._start("copier", self._successor)

    def await_successor(self) -> None:
        """Wait until the successor has committed."""
        successor = self.processes[1]
        assert successor.stdout is not None
        assert successor.stdout.readline().startswith("generation ")

    def wake(self) -> list[str]:
        """Let the zombie go on; return the names of its errors."""
        zombie = self.processes[0]
        zombie.send_signal(signal.SIGCONT)
        told, _ = zombie.communicate("go\n", timeout=90)
        return told.split()


@pytest.fixture
def cases(kafka: KafkaCluster, topic: str) -> Iterator[list[_Case]]:
    made = [
        _Case(kafka, f"{topic}-{protocol}-{has_same_name}", protocol, has_same_name=has_same_name)
        for protocol in ("classic", "consumer")
        for has_same_name in (True, False)
    ]
    yield made
    for case in made:
        for process in case.processes:
            process.kill()
            process.communicate()


def test_zombies_change_no_committed_records(kafka: KafkaCluster, generation: int, cases: list[_Case]) -> None:
    """All cases go on at the same time: most of it is waiting for sessions to expire."""
    for case in cases:
        case.start()
    for case in cases:
        case.replace()
    for case in cases:
        case.await_successor()
    assert [case.wake() for case in cases] == [case.expected for case in cases]
    for case in cases:
        values = committed_values(kafka.bootstrap_servers, case.target, _RECORDS)
        assert values == [b"%d" % number for number in range(_RECORDS)]
