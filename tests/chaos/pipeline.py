"""Exactly-once pipelines of processes on real Kafka, the faults that strike them, and the check of what they wrote.

A pipeline is a group of ``copier`` processes that copy one topic to another. A supervisor kills and pauses half of
them, as a seed says, and starts those that have ended.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import confluent_kafka

from pykclient import KafkaProducer
from tests.chaos.copier import SESSION_MS

_ROOT = Path(__file__).resolve().parents[2]
KEYS = 30
PARTITIONS = 6

#: Errors after which a process cannot go on: another one has its name, its transaction was too old, or brokers were
#: away for too long. A broker that stops may also answer the end of a transaction with UNKNOWN_SERVER_ERROR, which ends
#: Java's producer, too.
EXPECTED_ENDS = {"ProducerFencedError", "InvalidProducerEpochError", "KafkaTimeoutError", "UnknownServerError"}


class Feed:
    """A thread that writes numbered records under some keys, until ``stop``."""

    def __init__(self, servers: str, topic: str, per_second: int) -> None:
        self.topic = topic
        self.count = 0
        self._pause_s = 1 / per_second
        self._producer = KafkaProducer[bytes, bytes](bootstrap_servers=servers, linger_ms=5, request_timeout_ms=5_000)
        self._failures: list[Exception] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            key, number = self.count % KEYS, self.count // KEYS
            self._producer.send(
                self.topic, b"%d" % number, key=b"key-%d" % key, on_delivery=lambda error, _: self._note(error)
            )
            self.count += 1
            self._stopping.wait(self._pause_s)

    def _note(self, error: Exception | None) -> None:
        if error is not None:
            self._failures.append(error)

    def stop(self) -> None:
        """Stop, and wait until all records are acknowledged."""
        self._stopping.set()
        self._thread.join(60)
        self._producer.close(60)
        assert not self._thread.is_alive()
        assert not self._failures, self._failures[:3]

    def abandon(self) -> None:
        """Stop without waiting, at the end of a test that has failed."""
        self._stopping.set()
        self._producer.close(0)

    def expected(self) -> dict[bytes, list[int]]:
        """Return the numbers of each key."""
        return {b"key-%d" % key: list(range(-(-(self.count - key) // KEYS))) for key in range(min(KEYS, self.count))}


class Committed:
    """What read_committed shows of a topic, by key, read by confluent-kafka as it grows."""

    def __init__(self, servers: str, topic: str) -> None:
        self.by_key: defaultdict[bytes, list[int]] = defaultdict(list)
        self.count = 0
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"reader-{topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "check.crcs": True,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._ends: set[int | None] = set()

    def read(self) -> int:
        """Read what has come; return how many records there are in all."""
        for message in self._consumer.consume(10_000, 0.05):
            error = message.error()
            if error is None:
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                self.by_key[key].append(int(value))
                self.count += 1
                self._ends.discard(message.partition())
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self._ends.add(message.partition())
        return self.count

    def is_at_end(self) -> bool:
        """Read on; return whether the last word of each partition was that there is no more."""
        self.read()
        return len(self._ends) == PARTITIONS

    def close(self) -> None:
        self._consumer.close()


def check_copies(expected: Mapping[bytes, Sequence[int]], copied: Mapping[bytes, Sequence[int]]) -> None:
    """Check that each record was copied exactly once, and that those of each key are in order.

    Raises:
        AssertionError: for each key that is wrong, the numbers that are lost, doubled or foreign, or that they are out
            of order.
    """
    problems = []
    for key in sorted({*expected, *copied}):
        sent, found = list(expected.get(key, ())), list(copied.get(key, ()))
        if found == sent:
            continue
        counts = Counter(found)
        lost = [number for number in sent if number not in counts]
        doubled = [number for number, count in counts.items() if count > 1]
        foreign = [number for number in counts if number not in set(sent)]
        what = f"lost {lost}, doubled {doubled}, foreign {foreign}" if lost or doubled or foreign else "out of order"
        problems.append(f"{key!r}: {what}")
    assert not problems, "\n".join(problems)


class _Process(NamedTuple):
    """A running member."""

    name: str
    process: subprocess.Popen[str]
    log: Path

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def report(self) -> str:
        return f"{self.name} ended with {self.process.returncode}: " + "\n".join(self.lines()[-60:])


class Pipeline:
    """A group of processes by one group protocol. Thread: the supervisor's."""

    def __init__(self, servers: str, source: str, target: str, protocol: str, size: int, folder: Path) -> None:
        self.target = target
        self.group = f"{target}-group"
        self.names = [f"{protocol}-{number}" for number in range(size)]
        #: How processes ended: ``killed``, or the name of an error.
        self.ends: Counter[str] = Counter()
        #: The generations of transactions that each process that ended, or was stopped, had used.
        self.generations: list[tuple[int, ...]] = []
        self.zombies: list[_Process] = []  # paused for so long that a successor has been started
        self._command = [sys.executable, "-W", "error", "-m", "tests.chaos.copier", servers, source, target]
        self._command += [self.group, protocol]
        self._folder = folder
        self._running: dict[str, _Process] = {}
        self._starts = 0

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a process, beside a zombie of the same name if there is one."""
        self._starts += 1
        path = self._folder / f"{name}-{self._starts}.log"
        with path.open("w") as log:
            process = subprocess.Popen(
                [*self._command, name], cwd=_ROOT, stdout=log, stderr=subprocess.STDOUT, text=True, env=os.environ
            )
        self._running[name] = _Process(name, process, path)

    def supervise(self) -> None:
        """Start the processes that have ended by an error."""
        for name, running in [*self._running.items()]:
            if running.process.poll() is not None:
                self._note_end(running)
                self.start(name)
        for zombie in [zombie for zombie in self.zombies if zombie.process.poll() is not None]:
            self.zombies.remove(zombie)
            self._note_end(zombie)

    def _note_end(self, ended: _Process) -> None:
        lines = ended.lines()
        self.generations.append(_generations(lines))
        kind = lines[-1].removeprefix("ends ") if lines else ""
        assert ended.process.returncode == _FAILED, ended.report()
        assert kind in EXPECTED_ENDS, ended.report()
        self.ends[kind] += 1

    def kill(self, name: str) -> None:
        """Kill a process, which stays away until it is started."""
        killed = self._running.pop(name)
        killed.process.kill()
        killed.process.wait(30)
        self.ends["killed"] += 1

    def pause(self, name: str) -> _Process:
        """Stop a process: others take its partitions."""
        paused = self._running[name]
        paused.process.send_signal(signal.SIGSTOP)
        return paused

    def replace(self, name: str) -> None:
        """Start a successor of a paused process, which fences it."""
        self.zombies.append(self._running.pop(name))
        self.start(name)

    def stop(self) -> None:
        """End all processes in good order."""
        for running in self._running.values():
            running.process.send_signal(signal.SIGTERM)
        for running in self._running.values():
            code = running.process.wait(90)
            if code == -signal.SIGTERM:
                continue  # it had only just started
            if code != 0:
                self._note_end(running)
            else:
                self.generations.append(_generations(running.lines()))
        self._running.clear()

    def kill_all(self) -> None:
        for running in [*self._running.values(), *self.zombies]:
            running.process.kill()
            running.process.wait(30)


def _generations(lines: list[str]) -> tuple[int, ...]:
    """Return the generations of transactions that a process has told."""
    return tuple(int(line.split()[1]) for line in lines if line.startswith("generation "))


#: The exit code of a process that cannot go on.
_FAILED = 3


class Supervisor:
    """A thread that kills and pauses half of the processes of each pipeline, and starts what has ended."""

    def __init__(self, pipelines: list[Pipeline], seed: int) -> None:
        self.told: list[str] = []
        self._pipelines = pipelines
        self._rng = random.Random(seed)
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._harmed: set[str] = set()
        self._calm, self._stopping = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def __enter__(self) -> Self:
        for pipeline in self._pipelines:
            pipeline.start_all()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(200)
        for pipeline in self._pipelines:
            pipeline.kill_all()

    def check(self) -> None:
        """Raise the supervisor's failure, such as a process that ended by an error of a kind that should not occur."""
        if self._failure is not None:
            raise AssertionError("\n".join(self.told)) from self._failure

    def calm(self) -> None:
        """Harm no more processes."""
        self._calm.set()

    def stop(self) -> None:
        """End all processes in good order."""
        self._stopping.set()
        self._thread.join(200)
        self.check()
        for pipeline in self._pipelines:
            pipeline.stop()

    def note(self, what: str) -> None:
        self.told.append(f"{time.strftime('%H:%M:%S')} {what}")

    def _run(self) -> None:
        next_s = time.monotonic() + 3
        try:
            while not self._stopping.wait(0.1):
                now_s = time.monotonic()
                self._do_due(now_s)
                if now_s >= next_s and not self._calm.is_set():
                    self._harm(now_s)
                    next_s = now_s + self._rng.uniform(0.5, 2.5)
                for pipeline in self._pipelines:
                    pipeline.supervise()
            self._do_due(float("inf"))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must hear of it
            self._failure = error

    def _do_due(self, now_s: float) -> None:
        due = [act for at_s, act in self._later if at_s <= now_s]
        self._later = [(at_s, act) for at_s, act in self._later if at_s > now_s]
        for act in due:
            act()

    def _harm(self, now_s: float) -> None:
        """Kill or pause a process; one of the other half is never harmed."""
        pipeline = self._rng.choice(self._pipelines)
        name = self._rng.choice(pipeline.names[: len(pipeline.names) // 2])
        after_s = now_s + self._rng.uniform(0.0, 3.0)
        roll = self._rng.random()
        if name in self._harmed:
            return
        self._harmed.add(name)
        if roll < 0.6:
            self.note(f"kill {name}")
            pipeline.kill(name)
            self._later.append((after_s, lambda: self._start(pipeline, name)))
            return
        # Sometimes for longer than its session lasts, so that others have its partitions when it wakes up.
        until_s = now_s + self._rng.uniform(1.0, 2.0 * SESSION_MS / 1000)
        paused = pipeline.pause(name)
        if roll < 0.8:
            self.note(f"pause {name}")
        else:
            self.note(f"pause {name}, and start its successor")
            self._later.append((min(after_s, until_s), lambda: pipeline.replace(name)))
        self._later.append((until_s, lambda: self._resume(paused)))

    def _start(self, pipeline: Pipeline, name: str) -> None:
        pipeline.start(name)
        self._harmed.discard(name)

    def _resume(self, paused: _Process) -> None:
        paused.process.send_signal(signal.SIGCONT)
        self._harmed.discard(paused.name)
