"""Common parts of the adapters: payloads, the stopwatch, and the loops of a program that uses a client."""

from __future__ import annotations

import contextlib
import functools
import random
import resource
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import TRANSACTION_RECORDS, Case
from tests.support.wait import eventually

LINGER_MS = 5
BATCH_SIZE = 131_072
#: The size in cases in which all other settings are the clients' defaults.
BATCH_SIZE_WITH_DEFAULTS = 65_536
BUFFER_MEMORY = 32 << 20

#: Bytes of distinct values, which are then repeated: more than a codec's window.
_POOL_BYTES = 4 << 20
_KEYS = 10_000
_CHUNK = 1000

#: The bound of joining a group, and the time of the first two commits and heartbeats.
_JOIN_S, _ROUTINE_S = 60, 11


class Sample(NamedTuple):
    """The result of one run.

    ``sleeps`` is how often its threads waited for anything: the GIL, the broker, each other. ``sent`` is the number of
    records that the log must have received, including those before the measurement. ``peak_rss_mb``, ``start_cpu_s``
    and ``start_s`` are set if the client was another process.
    """

    records: int
    cpu_s: float
    wall_s: float
    latencies_ms: list[float]
    sleeps: int | None = None
    sent: int = 0
    peak_rss_mb: float | None = None
    start_cpu_s: float | None = None
    start_s: float | None = None


def running_threads() -> list[str]:
    """Return the ids of the other threads of this process that run, or wait for a core."""
    running = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            state = (task / "stat").read_text().rpartition(") ")[2][0]
            if state == "R" and int(task.name) != threading.get_native_id():
                running.append(task.name)
    return running


def settle() -> None:
    """Wait until no other thread of this process runs.

    An import may start threads. OpenBLAS, which numpy imports, starts one for each further core, and they spin for 0.1
    s before they sleep. That is a third of the CPU time of a run that begins right after the import.
    """
    eventually(lambda: not running_threads(), 30.0, "the threads that imports have started are idle")


class Stopwatch:
    """CPU time, wall time and number of sleeps of all threads of this process, between ``start`` and ``stop``."""

    def start(self) -> None:
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._wall_s = time.perf_counter()

    def stop(self, records: int, latencies_ms: list[float] | None = None) -> Sample:
        wall_s = time.perf_counter() - self._wall_s
        before, usage = self._usage, resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
        return Sample(records, cpu_s, wall_s, latencies_ms or [], usage.ru_nvcsw - before.ru_nvcsw)


@functools.cache
def payloads(size_bytes: int) -> list[bytes]:
    """Return distinct values, half of each random, which compress like typical events."""
    source = random.Random(size_bytes)
    states = (b"ordered", b"shipped", b"returned", b"delivered")

    def rows() -> Iterator[bytes]:
        while True:
            noise = b"%030x" % source.getrandbits(120)
            state = states[source.getrandbits(2)]
            yield b'{"id":%d,"state":"%s","amount":%d.99,"trace":"%s"}' % (
                source.getrandbits(24),
                state,
                source.randrange(1000),
                noise,
            )

    row = rows()
    values = []
    for _ in range(max(100, _POOL_BYTES // size_bytes)):
        parts, length = [], 0
        while length < size_bytes:
            parts.append(next(row))
            length += len(parts[-1])
        values.append(b"".join(parts)[:size_bytes])
    return values


def payload(size_bytes: int) -> bytes:
    """Return one value."""
    return payloads(size_bytes)[0]


def keys(count: int) -> list[bytes]:
    """Return ``count`` keys, 10,000 of them distinct."""
    return [b"customer-%05d" % (number * 7919 % _KEYS) for number in range(count)]


def chunks(case: Case, records: int) -> Iterator[list[Any]]:
    """Yield lists of values, or of pairs of key and value, ``records`` in total."""
    values: list[Any] = payloads(case.size_bytes)
    if case.keyed:
        values = list(zip(keys(len(values)), values, strict=True))
    lists = [values[begun : begun + _CHUNK] for begun in range(0, len(values), _CHUNK)]
    while True:
        for chunk in lists:
            if records <= len(chunk):
                yield chunk[:records]
                return
            records -= len(chunk)
            yield chunk


def warm_up_records(case: Case) -> int:
    """Return the number of records to send before the measurement: for connections, metadata, the producer id, late
    imports.
    """
    return max(100, case.records // 20)


def produce_all(case: Case, send_chunk: Callable[[list[Any]], Any], flush: Callable[[], Any]) -> Sample:
    """Drive a blocking client. ``send_chunk`` is the bare loop of a program that sends."""
    for chunk in chunks(case, warm_up_records(case)):
        send_chunk(chunk)
    flush()
    prepared = list(chunks(case, case.records))
    watch = Stopwatch()
    watch.start()
    for chunk in prepared:
        send_chunk(chunk)
    flush()
    return watch.stop(case.records)._replace(sent=warm_up_records(case) + case.records)


def one_at_a_time(case: Case, send_and_wait: Callable[[bytes], Any]) -> Sample:
    """Send each record after the previous one is acknowledged."""
    latencies_ms: list[float] = []
    clock = time.perf_counter
    value = payload(case.size_bytes)
    for _ in range(200):
        send_and_wait(value)
    watch = Stopwatch()
    watch.start()
    for _ in range(case.records):
        begun_s = clock()
        send_and_wait(value)
        latencies_ms.append((clock() - begun_s) * 1000)
    return watch.stop(case.records, latencies_ms)


def in_groups(case: Case, begin: Callable[[], Any], send: Callable[[bytes], Any], end: Callable[[], Any]) -> Sample:
    """Send groups of records: transactions, or records with a flush after each group.

    The latencies are those of ``end``.
    """
    latencies_ms: list[float] = []
    clock = time.perf_counter
    values = payloads(case.size_bytes)[:TRANSACTION_RECORDS]

    def run(groups: int) -> None:
        for _ in range(groups):
            begin()
            for value in values:
                send(value)
            begun_s = clock()
            end()
            latencies_ms.append((clock() - begun_s) * 1000)

    run(50)
    latencies_ms.clear()
    groups = max(1, case.records // TRANSACTION_RECORDS)
    watch = Stopwatch()
    watch.start()
    run(groups)
    return watch.stop(groups * len(values), latencies_ms)


class Patience:
    """Ends a run whose records do not arrive. Thread: owner."""

    _POLLS = 30

    def __init__(self) -> None:
        self._empty = 0

    def after(self, got: int) -> None:
        """Count polls without a record.

        Raises:
            TimeoutError: there were too many.
        """
        self._empty = 0 if got else self._empty + 1
        if self._empty == self._POLLS:
            raise TimeoutError(f"no records in {self._POLLS} polls")


def consume_all(case: Case, poll: Callable[[], int], first_poll: Callable[[], int] | None = None) -> Sample:
    """Drive a blocking client. ``poll()`` waits at most a second, and returns the number of records it got and read.

    If one call may return everything, ``first_poll`` takes a few records.
    """
    patience = Patience()
    seen = 0
    while seen == 0:  # connection, metadata and the first fetch are not measured
        seen = (first_poll or poll)()
        patience.after(seen)
    counted = 0
    watch = Stopwatch()
    watch.start()
    while seen + counted < case.records:
        got = poll()
        patience.after(got)
        counted += got
    return watch.stop(counted)


def idle(case: Case, poll: Callable[[], Any]) -> Sample:
    """Be idle for ``case.records`` seconds."""
    poll()
    watch = Stopwatch()
    watch.start()
    until_s = time.perf_counter() + case.records
    while time.perf_counter() < until_s:
        poll()
    return watch.stop(case.records)


def joined(poll: Callable[[], Any], assignment: Callable[[], Collection[Any]]) -> None:
    """Poll until the group has assigned partitions, and then until heartbeats and commits are routine.

    Raises:
        TimeoutError: there is no assignment after a minute.
    """
    until_s = time.perf_counter() + _JOIN_S
    while not assignment():
        if time.perf_counter() > until_s:
            raise TimeoutError(f"the group has assigned nothing within {_JOIN_S} s")
        poll()
    until_s = time.perf_counter() + _ROUTINE_S
    while time.perf_counter() < until_s:
        poll()


class NeverResting:
    """A CPU-bound thread, which always wants the GIL."""

    def __enter__(self) -> None:
        self._done = False
        self._thread = threading.Thread(target=self._compute)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done = True
        self._thread.join()

    def _compute(self) -> None:
        while not self._done:
            sum([number * number for number in range(50)])
