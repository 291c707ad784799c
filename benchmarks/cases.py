"""The benchmark cases, and their numbers of records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Bench(NamedTuple):
    """A case that all clients run in turn.

    ``kind`` is produce, consume, busy (produce beside a CPU-bound thread), busy-consume, latency (one record at a
    time), transactions (of 100 records), flushes (one after each 100 records), idle-producer, idle-consumer (without a
    group), or idle-group-classic and idle-group-consumer (the only member of a group by that protocol, with automatic
    commits). The latencies of transactions and flushes are those of the calls that end them. With ``defaults``, clients
    keep their default settings except for ``batch.size``, and confluent-kafka's program calls ``poll(0)`` after every
    thousand records.
    """

    kind: str
    size_bytes: int = 100
    codec: str = "none"
    keyed: bool = False
    partitions: int = 3
    defaults: bool = False

    def __str__(self) -> str:
        size = f"{self.size_bytes} B" if self.size_bytes < 1000 else f"{self.size_bytes // 1000} KB"
        parts = [self.kind, size, self.codec]
        if self.keyed:
            parts.append("keys")
        if self.partitions != 3:
            parts.append(f"{self.partitions:,} partitions")
        if self.defaults:
            parts.append("defaults")
        return ", ".join(parts)

    @property
    def slug(self) -> str:
        """The case's part of a topic name."""
        keyed = "keyed" if self.keyed else "unkeyed"
        settings = "-defaults" if self.defaults else ""
        return f"{self.kind}-{self.size_bytes}-{self.codec}-{keyed}-{self.partitions}{settings}"

    @property
    def reads(self) -> bool:
        """True if clients read a log that is written once for all of them."""
        return self.kind in ("consume", "busy-consume")

    @property
    def many_partitions(self) -> bool:
        return self.partitions > 100

    @property
    def idles(self) -> bool:
        return self.kind.startswith("idle")


#: The records of a transaction, and between flushes.
TRANSACTION_RECORDS = 100


class Case(NamedTuple):
    """A run of one client. For idle cases, ``records`` is the number of seconds. With a ``ca_file``, it uses TLS."""

    kind: str
    bootstrap_servers: str
    topic: str
    partitions: int
    records: int
    size_bytes: int
    codec: str
    keyed: bool = False
    defaults: bool = False
    ca_file: str = ""

    @property
    def connection(self) -> dict[str, str]:
        """The settings of connections, in the names of librdkafka."""
        settings = {"bootstrap.servers": self.bootstrap_servers}
        return {**settings, "security.protocol": "SSL", "ssl.ca.location": self.ca_file} if self.ca_file else settings


#: Records per run, by kind and size: about the same number of bytes for each size, and about a second for fast clients.
_RECORDS = {
    "produce": {100: 600_000, 1000: 60_000, 10_000: 6000},
    "consume": {100: 1_200_000, 1000: 120_000, 10_000: 12_000},
    "busy": {100: 200_000},
    "busy-consume": {100: 400_000},
    "latency": {100: 2500},
    "transactions": {100: 30_000},
    "flushes": {100: 30_000},
    "idle-producer": {100: 5},
    "idle-consumer": {100: 5},
    # A heartbeat every 3 or 5 s, and a commit every 5 s.
    "idle-group-classic": {100: 15},
    "idle-group-consumer": {100: 15},
}

#: Kinds with the same number for each client: seconds, single records, or few at a time.
WHOLE = ("latency", "transactions", "flushes", *(kind for kind in _RECORDS if kind.startswith("idle")))

KINDS = tuple(_RECORDS)
SIZES = (100, 1000, 10_000)
CODECS = ("none", "lz4", "zstd")
#: The same settings for all clients, or each client's own.
SETTINGS = ("tuned", "defaults")

#: The cases of the goals.
PRODUCE, CONSUME, LATENCY = Bench("produce"), Bench("consume"), Bench("latency")
TRANSACTIONS, FLUSHES = Bench("transactions"), Bench("flushes")
PRODUCE_AT_DEFAULTS, CONSUME_AT_DEFAULTS = PRODUCE._replace(defaults=True), CONSUME._replace(defaults=True)


def records_of(bench: Bench, scale: float) -> int:
    """Return the number of records for a client with share 1."""
    counts = _RECORDS[bench.kind]
    records = counts.get(bench.size_bytes) or counts[100] * 100 // bench.size_bytes
    if bench.kind == "produce" and bench.many_partitions:
        records //= 3
    return max(1, int(records * scale))


def plan(
    kinds: Sequence[str] = KINDS,
    sizes: Sequence[int] = SIZES,
    codecs: Sequence[str] = CODECS,
    partitions: Sequence[int] = (3, 1000),
    settings: Sequence[str] = SETTINGS,
) -> Iterator[Bench]:
    """Yield the selected cases.

    Cases with keys, with many partitions, with defaults and those not about bytes use 100 bytes, uncompressed.
    """
    for kind in kinds:
        is_bulk = kind in ("produce", "consume")
        if is_bulk and "defaults" in settings and 3 in partitions:
            yield Bench(kind, defaults=True)
        if "tuned" not in settings:
            continue
        if not is_bulk:
            yield Bench(kind)
            continue
        if 3 in partitions:
            for size_bytes in sizes:
                for codec in codecs:
                    yield Bench(kind, size_bytes, codec)
            yield Bench(kind, keyed=True)
        for many in partitions:
            if many != 3:
                yield Bench(kind, partitions=many)
                yield Bench(kind, keyed=True, partitions=many)
