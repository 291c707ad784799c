"""The tables and plots: which figures of which clients they compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.cases import CODECS, CONSUME, FLUSHES, LATENCY, PRODUCE, SIZES, TRANSACTIONS, Bench
from benchmarks.plots import Panel, Row, three_digits
from benchmarks.results import REFERENCE, Results

_PEERS = ("kafka-python", "aiokafka", "confluent-kafka", "java")
_PRODUCERS = ("pykclient", "pykclient-columns", "pykclient-python", *_PEERS)
_CONSUMERS = ("pykclient", "pykclient-1000", "pykclient-columns", "pykclient-views", "pykclient-python", *_PEERS)
_PER_RECORD = ("pykclient", "pykclient-python", *_PEERS)
_OURS_AND_PEERS = ("pykclient", "pykclient-columns", *_PEERS)

_CODECS_AND_SIZES = [(size, codec) for size in SIZES for codec in CODECS]


class TableRow(NamedTuple):
    """A row.

    With ``to_bench``, cells are compared with the same client's figure there instead of the reference client's.
    """

    label: str
    bench: Bench
    figure: str
    to_bench: Bench | None = None


class Table(NamedTuple):
    """A table.

    Figures are divided by ``unit``; ``reference`` is the client whose figures are 1, unless a row says otherwise.
    """

    title: str
    caption: str
    clients: Sequence[str]
    rows: Sequence[TableRow]
    unit: float = 1.0
    reference: str = REFERENCE


class Filled(NamedTuple):
    """A table with its figures as text."""

    heads: list[str]
    rows: list[tuple[str, list[str]]]


class Plot(NamedTuple):
    """A plot. Panels are a title, a case and clients."""

    title: str
    unit: str
    figure: str
    panels: Sequence[tuple[str, Bench, Sequence[str]]]
    divisor: float = 1.0
    logarithmic: bool = True


_NAMES = {
    ("pykclient", "produce"): "`send`",
    ("pykclient", "consume"): "`poll`",
    ("pykclient-1000", "consume"): "`poll`, 1,000",
    ("pykclient-columns", "produce"): "`send_batch`",
    ("pykclient-columns", "consume"): "`poll_arrow`",
    ("pykclient-views", "consume"): "`poll_arrow`, views",
    ("pykclient-values", "consume"): "`poll_arrow`, values as views",
    ("pykclient-python", "produce"): "`send`, in Python",
    ("pykclient-python", "consume"): "`poll`, in Python",
    ("pykclient-python-columns", "produce"): "`send_batch`, in Python",
    ("pykclient-python-columns", "consume"): "`poll_arrow`, in Python",
    ("pykclient-aio", "consume"): "`getmany` in asyncio",
    ("pykclient-aio-loop", "consume"): "`async for` in asyncio",
    ("aiokafka-loop", "consume"): "aiokafka, `async for`",
    ("confluent-kafka-reports", "produce"): "confluent-kafka with `on_delivery`",
    ("confluent-kafka-polled-rarely", "produce"): "confluent-kafka, polled rarely",
    ("confluent-kafka-polled", "consume"): "confluent-kafka, `poll`",
    ("pykclient-confluent", "consume"): "`confluent`: `consume(1000)`",
    ("pykclient-confluent-polled", "consume"): "`confluent`: `poll`",
    ("pykclient-confluent-reports", "produce"): "`confluent`: `on_delivery`",
}
_METHODS = {"busy": "produce", "busy-consume": "consume"}


def label(client: str, kind: str) -> str:
    """Return a client's name for readers: ours by the method that is called."""
    if client == "java":
        return "Java"
    named = _NAMES.get((client, _METHODS.get(kind, kind)))
    return named or client.replace("pykclient-python", "pykclient in Python")


def _by_size(kind: str, figure: str) -> list[TableRow]:
    rows = [_row(Bench(kind, size, codec), figure) for size, codec in _CODECS_AND_SIZES]
    return [*rows, _row(Bench(kind, keyed=True), figure), _row(Bench(kind, defaults=True), figure)]


def _row(bench: Bench, figure: str) -> TableRow:
    return TableRow(str(bench), bench, figure)


def _sizes_and_codecs(kind: str) -> list[TableRow]:
    rows = [Bench(kind, size, codec) for size, codec in _CODECS_AND_SIZES]
    return [_row(bench, "cpu_us_per_record") for bench in rows]


def _by_partitions(kind: str) -> list[TableRow]:
    rows = []
    for keyed in (False, True):
        few = Bench(kind, keyed=keyed)
        for partitions in (3, 1000, 10_000):
            bench = few._replace(partitions=partitions)
            keys = "keys" if keyed else "no keys"
            rows.append(TableRow(f"{kind}, {keys}, {partitions:,} partitions", bench, "cpu_us_per_record", few))
    return rows


_BESIDE = "In parentheses: the ratio to confluent-kafka."

TABLES = {
    "cpu-produce": Table(
        "CPU of producing, µs a record", _BESIDE, _PRODUCERS, _by_size("produce", "cpu_us_per_record")
    ),
    "cpu-consume": Table(
        "CPU of consuming, µs a record", _BESIDE, _CONSUMERS, _by_size("consume", "cpu_us_per_record")
    ),
    "page-defaults-produce": Table(
        "CPU of producing with defaults, µs a record",
        _BESIDE,
        _OURS_AND_PEERS,
        [_row(Bench("produce", defaults=True), "cpu_us_per_record")],
    ),
    "page-defaults-consume": Table(
        "CPU of consuming with defaults, µs a record",
        _BESIDE,
        _OURS_AND_PEERS,
        [_row(Bench("consume", defaults=True), "cpu_us_per_record")],
    ),
    "page-produce": Table("CPU of producing, µs a record", _BESIDE, _OURS_AND_PEERS, _sizes_and_codecs("produce")),
    "page-consume": Table("CPU of consuming, µs a record", _BESIDE, _OURS_AND_PEERS, _sizes_and_codecs("consume")),
    "rate-produce": Table(
        "Producing, thousand records/s", _BESIDE, _PRODUCERS, _by_size("produce", "records_per_s"), 1000
    ),
    "rate-consume": Table(
        "Consuming, thousand records/s", _BESIDE, _CONSUMERS, _by_size("consume", "records_per_s"), 1000
    ),
    "latency": Table(
        "One record at a time, ms",
        _BESIDE,
        _PER_RECORD,
        [TableRow("p50", LATENCY, "p50_ms"), TableRow("p99", LATENCY, "p99_ms")],
    ),
    "transactions": Table(
        "Transactions of 100 records",
        "In parentheses: the ratio to confluent-kafka; for the CPU of transactions, to the same client with flushes.",
        ("pykclient", "pykclient-python", "kafka-python", "confluent-kafka"),
        [
            TableRow("CPU, µs a record, with a flush after each 100", FLUSHES, "cpu_us_per_record"),
            TableRow("CPU, µs a record, in transactions of 100", TRANSACTIONS, "cpu_us_per_record", FLUSHES),
            TableRow("flush, ms, p50", FLUSHES, "p50_ms"),
            TableRow("commit, ms, p50", TRANSACTIONS, "p50_ms"),
            TableRow("commit, ms, p99", TRANSACTIONS, "p99_ms"),
        ],
    ),
    "memory-produce": Table(
        "Peak memory of producing, MB",
        _BESIDE,
        _PRODUCERS,
        [_row(Bench("produce", size), "peak_rss_mb") for size in SIZES]
        + [_row(Bench("produce", partitions=1000), "peak_rss_mb")],
    ),
    "memory-consume": Table(
        "Peak memory of consuming, MB",
        _BESIDE,
        _CONSUMERS,
        [_row(Bench("consume", size), "peak_rss_mb") for size in SIZES]
        + [_row(Bench("consume", partitions=1000), "peak_rss_mb")],
    ),
    "idle": Table(
        "Idle cost, percent of a core",
        _BESIDE,
        _PER_RECORD[:-1],
        [
            TableRow("producer", Bench("idle-producer"), "cpu_share"),
            TableRow("consumer", Bench("idle-consumer"), "cpu_share"),
            TableRow("consumer in a group, classic protocol", Bench("idle-group-classic"), "cpu_share"),
            TableRow("consumer in a group, consumer protocol", Bench("idle-group-consumer"), "cpu_share"),
        ],
        0.01,
    ),
    "busy": Table(
        "Beside a CPU-bound thread, thousand records/s",
        "In parentheses: the ratio to the same client without that thread.",
        ("pykclient", "pykclient-columns", "pykclient-python", *_PEERS[:-1]),
        [
            TableRow("produce", Bench("busy"), "records_per_s", PRODUCE),
            TableRow("consume", Bench("busy-consume"), "records_per_s", CONSUME),
        ],
        1000,
    ),
    "handovers": Table(
        "Sleeps of the threads while producing, per 1,000 records",
        "",
        ("pykclient", "pykclient-columns", "pykclient-python", *_PEERS[:-1]),
        [
            TableRow("alone", PRODUCE, "sleeps_per_1000_records", PRODUCE),
            TableRow("beside a CPU-bound thread", Bench("busy"), "sleeps_per_1000_records", Bench("busy")),
        ],
    ),
    "scale-produce": Table(
        "Many partitions: CPU of producing, µs a record",
        "In parentheses: the ratio to the same client with 3 partitions.",
        _PRODUCERS,
        _by_partitions("produce"),
    ),
    "scale-consume": Table(
        "Many partitions: CPU of consuming, µs a record",
        "In parentheses: the ratio to the same client with 3 partitions.",
        _CONSUMERS,
        _by_partitions("consume"),
    ),
}

#: The tables of a terminal: those of the short page repeat parts of the others.
DETAILS = {name: table for name, table in TABLES.items() if not name.startswith("page-")}

_EVERY_PRODUCER = (
    *("pykclient-columns", "pykclient-python-columns", "pykclient", "pykclient-python"),
    *(
        "confluent-kafka",
        "confluent-kafka-polled-rarely",
        "confluent-kafka-reports",
        "aiokafka",
        "kafka-python",
        "java",
    ),
)
_EVERY_CONSUMER = (
    *("pykclient-values", "pykclient-views", "pykclient-columns", "pykclient-python-columns"),
    *("pykclient-1000", "pykclient", "pykclient-python", "confluent-kafka", "aiokafka", "kafka-python", "java"),
)
_BOTH = (("Producing", PRODUCE, _EVERY_PRODUCER), ("Consuming", CONSUME, _EVERY_CONSUMER))

PLOTS = {
    "cpu": Plot("CPU per record of 100 bytes", "µs of all threads; less is better", "cpu_us_per_record", _BOTH),
    "rate": Plot("Records a second, of 100 bytes", "thousand records/s; more is better", "records_per_s", _BOTH, 1000),
    "latency": Plot(
        "One record at a time, from send to acknowledgement",
        "ms, p50; less is better",
        "p50_ms",
        (("p50", LATENCY, _PER_RECORD),),
        logarithmic=False,
    ),
    "memory": Plot(
        "Peak memory with records of 100 bytes", "MB; less is better", "peak_rss_mb", _BOTH, logarithmic=False
    ),
}


def filled(results: Results, table: Table) -> Filled:
    """Return a table with only the measured rows and clients."""
    measured = {
        (client, row) for client in table.clients for row in table.rows if results.figure(client, row.bench, row.figure)
    }
    clients = [client for client in table.clients if any((client, row) in measured for row in table.rows)]
    rows = [row for row in table.rows if any((client, row) in measured for client in clients)]
    # A table about producing and consuming names clients, not methods.
    kinds = {_METHODS.get(row.bench.kind, row.bench.kind) for row in table.rows}
    kind = kinds.pop() if len(kinds) == 1 else ""
    return Filled(
        [_head(client, kind) for client in clients],
        [(row.label, [_cell(results, table, row, client) for client in clients]) for row in rows],
    )


def _head(client: str, kind: str) -> str:
    return label(client, kind) if kind else {"pykclient-columns": "pykclient by columns"}.get(client, label(client, ""))


def _cell(results: Results, table: Table, row: TableRow, client: str) -> str:
    spread = results.figure(client, row.bench, row.figure)
    if spread is None:
        return ""
    text = three_digits(spread.median / table.unit)
    if row.to_bench is not None:
        to_client, to_bench = client, row.to_bench
    else:
        to_client, to_bench = table.reference, row.bench
    if (client, row.bench) == (to_client, to_bench):
        return text
    ratio = results.ratio(client, row.bench, row.figure, to_client, to_bench)
    return text if ratio is None else f"{text} ({three_digits(ratio.median)})"


def behind(results: Results, margin: float = 1.05) -> Iterator[tuple[str, str, str, float]]:
    """Yield each case in which a compiled method of ours takes more CPU per record than a peer.

    A tuple has the case, our method, the peer, and the ratio of medians. Ratios up to ``margin`` count as equal.
    """
    for row in (*_by_size("produce", "cpu_us_per_record"), *_by_size("consume", "cpu_us_per_record")):
        for ours in ("pykclient", "pykclient-columns"):
            for peer in _PEERS:
                ratio = results.ratio(ours, row.bench, row.figure, peer)
                if ratio is not None and ratio.median > margin:
                    yield row.label, label(ours, row.bench.kind), label(peer, row.bench.kind), ratio.median


def panels(results: Results, plot: Plot) -> list[Panel]:
    """Return the panels of a plot, without cases that the run does not have."""
    found = []
    for title, bench, clients in plot.panels:
        rows = []
        for client in clients:
            spread = results.figure(client, bench, plot.figure)
            if spread is not None:
                kind = "reference" if client == REFERENCE else "ours" if client.startswith("pykclient") else "other"
                scaled = type(spread)(*(value / plot.divisor for value in spread))
                rows.append(Row(label(client, bench.kind).replace("`", ""), scaled, kind))
        if rows:
            found.append(Panel(title, rows))
    return found


def figures_of(bench: Bench) -> tuple[str, ...]:
    """Return the figures that are meaningful for a case."""
    if bench.kind in ("latency", "transactions", "flushes"):
        return ("p50_ms", "p99_ms", "cpu_us_per_record", "peak_rss_mb")
    if bench.idles:
        return ("cpu_share", "peak_rss_mb")
    if bench.kind.startswith("busy"):  # the CPU time is that of the thread beside the client
        return ("records_per_s", "sleeps_per_1000_records", "peak_rss_mb")
    return ("cpu_us_per_record", "records_per_s", "sleeps_per_1000_records", "peak_rss_mb")
