"""Run clients in turn: every case in rounds, every client once per round, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.cases import WHOLE, Bench, Case, records_of
from benchmarks.clients import CLIENTS, Client
from benchmarks.results import Line
from tests.support.wait import eventually

#: The limit of a run; the slowest takes a few seconds.
_TIMEOUT_S = 120

#: The client that writes the logs for all consumers.
_WRITER = "confluent-kafka"


class Job(NamedTuple):
    """A run in progress."""

    client: str
    case: Case
    process: subprocess.Popen[str]


def start(client: str, case: Case) -> Job:
    environment = {**os.environ, **CLIENTS[client].environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have their bytecode
    command = [sys.executable, "-m", "benchmarks.worker", client, json.dumps(case._asdict())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    return Job(client, case, process)


def finish(job: Job) -> dict[str, Any] | None:
    """Return the output of the run; None, with the reason on stderr, if the client failed."""
    try:
        output, errors = job.process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        job.process.kill()
        output, errors = job.process.communicate()
        errors += f"\ngiven up after {_TIMEOUT_S} s"
    if job.process.returncode:
        print(f"{job.client} failed at {job.case}:\n{errors[-2000:]}", file=sys.stderr, flush=True)
        return None
    line: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return line


def run(client: str, case: Case) -> dict[str, Any] | None:
    """Run a client and wait for it."""
    return finish(start(client, case))


class Runner:
    """Runs cases on a cluster of one broker. Topics exist for a round of a case, or for a case.

    So there is never more than about a gigabyte on disk. Thread: owner.
    """

    def __init__(self, cluster: Any, clients: Sequence[str], rounds: int, scale: float) -> None:
        self._cluster = cluster
        self._clients = clients
        self._rounds = rounds
        self._scale = scale

    def warm_up(self, codecs: Sequence[str]) -> None:
        """Let the broker's JIT compile its code before the first client runs."""
        self._cluster.create_topic("warm-up", 3)
        for codec in codecs:
            case = self._case(Bench("consume", codec=codec), _WRITER, "warm-up")
            for kind in ("fill", "consume"):
                run(_WRITER, case._replace(kind=kind))
        self._cluster.delete_topic("warm-up")

    def measure(self, bench: Bench) -> Iterator[Line]:
        """Yield the results of all rounds of a case. The order rotates with each round."""
        clients = [name for name in self._clients if takes_part(name, bench)]
        if not clients:
            return
        # Creating many partitions, and writing to each for the first time, takes longer than the measurement.
        lasting = self._written(bench) if bench.reads or bench.many_partitions else None
        for turn in range(self._rounds):
            first = turn % len(clients)
            order = clients[first:] + clients[:first]
            topic = lasting or f"{bench.slug}-{turn}"
            if lasting is None:
                self._cluster.create_topic(topic, bench.partitions)
            yield from ({"round": turn, **line} for line in self._checked_round(bench, order, topic))
            if lasting is None:
                self._cluster.delete_topic(topic)
        if lasting is not None:
            self._cluster.delete_topic(lasting)

    def _checked_round(self, bench: Bench, order: list[str], topic: str) -> list[Line]:
        """Run a round and check that all acknowledged records are in the log."""
        if bench.kind not in ("produce", "busy"):
            return list(self._round(bench, order, topic))
        before = self._records_in(bench, topic)
        lines = list(self._round(bench, order, topic))
        found = self._records_in(bench, topic) - before
        sent = sum(line["sent"] for line in lines)
        if found != sent:
            print(f"{bench}: {sent} records were sent, the log has {found}", file=sys.stderr, flush=True)
        return lines

    def _round(self, bench: Bench, order: list[str], topic: str) -> Iterator[Line]:
        cases = [(client, self._case(bench, client, topic)) for client in order]
        # Idle clients can run at the same time.
        jobs = [start(*case) for case in cases] if bench.idles else (start(*case) for case in cases)
        for job in jobs:
            line = finish(job)
            if line is not None:
                yield line

    def _case(self, bench: Bench, client: str, topic: str) -> Case:
        all_of_them = records_of(bench, 1.0 if bench.idles else self._scale)
        return Case(
            bench.kind,
            self._cluster.bootstrap_servers,
            topic,
            bench.partitions,
            max(1, int(all_of_them * share(CLIENTS[client], bench))),
            bench.size_bytes,
            bench.codec,
            bench.keyed,
            bench.defaults,
        )

    def _written(self, bench: Bench) -> str:
        """Return a topic with records in all its partitions, for clients to read or add to."""
        topic = bench.slug
        self._cluster.create_topic(topic, bench.partitions)
        filled = run(_WRITER, self._case(bench, _WRITER, topic)._replace(kind="fill"))
        if filled is None:
            raise SystemExit(f"could not write the records of {bench}")
        return topic

    def _records_in(self, bench: Bench, topic: str) -> int:
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = {TopicPartition(topic, partition): latest for partition in range(bench.partitions)}

        def found() -> list[int]:
            with contextlib.suppress(KafkaException):  # from a leader that does not know yet that it leads
                return [future.result(30.0).offset for future in admin.list_offsets(ends).values()]
            return []

        return sum(eventually(found, 30.0, f"the ends of {topic}"))


def share(client: type[Client], bench: Bench) -> float:
    """Return a client's number of records relative to confluent-kafka's. Clients become alike as records grow."""
    if bench.kind in WHOLE:
        return 1.0
    times: float = client.share ** (1 - math.log10(bench.size_bytes / 100) / 2)
    if bench.reads:
        return min(times, 1.0)  # the log has no more
    return times * client.share_of_many if bench.many_partitions else times


def takes_part(client: str, bench: Bench) -> bool:
    """Return whether a client supports a case and should run it."""
    kind = CLIENTS[client]
    if client == "java" and bench.keyed:  # its tools have no keys
        return bench.kind != "produce"
    if bench.defaults and not kind.runs_with_defaults:
        return False
    return bench.kind in kind.kinds and (not kind.only_plain or bench._replace(defaults=False) == Bench(bench.kind))
