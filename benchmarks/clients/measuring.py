"""What all adapters share: payloads, the stopwatch, and the loops of a program that uses a client."""

from __future__ import annotations

import functools
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks.cases import Case

LINGER_MS = 5
BATCH_SIZE = 131_072
BUFFER_MEMORY = 32 << 20

#: Bytes of different values, which then come again: more than a codec looks back.
_POOL_BYTES = 4 << 20
_KEYS = 10_000
_CHUNK = 1000


class Sample(NamedTuple):
    """One run. ``peak_rss_mb`` where the client was another process, ``start_cpu_s`` and ``start_s`` its start's.

    ``sleeps``: how often its threads waited for something: the interpreter's lock, the broker, each other.
    ``sent``: how many records the log must have got, with those that were sent before the clock ran.
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


class Stopwatch:
    """CPU and wall time of this process and how often it slept, all threads, between ``start`` and ``stop``."""

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
    """Values of which no two are equal, half of them noise: codecs make of them what they make of events."""
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
    """One value."""
    return payloads(size_bytes)[0]


def keys(count: int) -> list[bytes]:
    """As many keys, of which 10,000 are different."""
    return [b"customer-%05d" % (number * 7919 % _KEYS) for number in range(count)]


def chunks(case: Case, records: int) -> Iterator[list[Any]]:
    """As many values, or pairs of key and value, in lists: what a program has at hand before it sends."""
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
    """How many records are sent before the clock runs: connections, metadata, the producer's id, late imports."""
    return max(100, case.records // 20)


def produce_all(case: Case, send_chunk: Callable[[list[Any]], Any], flush: Callable[[], Any]) -> Sample:
    """Drive a blocking client: ``send_chunk`` is the loop of a program that sends, without anything around it."""
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
    """Each record is sent when the one before it has been acknowledged."""
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


class Patience:
    """Ends a run that waits for records which do not come. Thread: owner."""

    _POLLS = 30

    def __init__(self) -> None:
        self._empty = 0

    def after(self, got: int) -> None:
        """Raises TimeoutError after so many polls without a record."""
        self._empty = 0 if got else self._empty + 1
        if self._empty == self._POLLS:
            raise TimeoutError(f"no records in {self._POLLS} polls")


def consume_all(case: Case, poll: Callable[[], int], first_poll: Callable[[], int] | None = None) -> Sample:
    """Drive a blocking client: ``poll()`` waits a second at most, and returns how many records it gave and looked at.

    Where one call may return all there is, ``first_poll`` takes a few.
    """
    patience = Patience()
    seen = 0
    while seen == 0:  # connection, metadata and the first fetch are not part of the figure
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
    """``case.records`` seconds of doing nothing."""
    poll()
    watch = Stopwatch()
    watch.start()
    until_s = time.perf_counter() + case.records
    while time.perf_counter() < until_s:
        poll()
    return watch.stop(case.records)


class NeverResting:
    """An application's thread that computes all the time, and so wants the interpreter's lock all the time."""

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
