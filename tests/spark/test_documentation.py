"""docs/spark.md is true: its table has exactly the existing options, and its Python and SQL code runs."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock, Mock

import pytest
from pyspark.errors import StreamingQueryException

from benchmarks.report import Place
from benchmarks.results import Results
from benchmarks.spark.cases import BACKLOGS, CASES, EXACTLY_ONCE, OURS, REFERENCE
from pykclient.spark import consumer_pool, option_values, options
from pykclient.spark.options import ReadOptions, WriteOptions
from pykclient.spark.worker import KEPT_BYTES, MAX_WARM
from tests.spark.topics import produce
from tests.support.any_kafka import EMBEDDED, AnyKafka
from tests.support.wait import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")

READ = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
WRITE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}

on_embedded = pytest.mark.parametrize("any_kafka", [EMBEDDED], indirect=True)

NAME = re.compile(r"`([A-Za-z][A-Za-z.]*\*?)`")


def table(title: str) -> list[list[str]]:
    """Return the cells of the first table of a section, row by row, without its header."""
    section = re.split(r"(?m)^## ", PAGE.split(f"\n## {title}\n", 1)[1])[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def rows(verdict: str) -> list[list[str]]:
    """Return the rows about Kafka's keys with this verdict."""
    return [row for row in table("Options") if row[0].startswith("`kafka.") and row[2] == verdict]


def test_each_option_is_in_the_table_once() -> None:
    named = [name for row in table("Options") for name in NAME.findall(row[0]) if not name.startswith("kafka.")]
    assert sorted(named) == sorted({*options._READ_OPTIONS, *options._WRITE_OPTIONS})


def test_refused_keys_are_in_the_table() -> None:
    (row,) = [row for row in rows("same") if "kafka.auto.offset.reset" in row[0]]
    assert {name.removeprefix("kafka.") for name in NAME.findall(row[0])} == {*options._REFUSED_IN_SOURCE}
    assert {name.removeprefix("kafka.") for name in NAME.findall(row[3])} == {*options._REFUSED_IN_SINK}


SECURE = {
    "kafka.security.protocol": "SSL",
    "kafka.ssl.truststore.location": "ca.pem",
    "kafka.ssl.keystore.location": "client.pem",
    "kafka.ssl.key.password": "a-secret",
}


@pytest.mark.parametrize(("parse", "others"), [(ReadOptions.parse, READ), (WriteOptions.parse, WRITE)])
def test_security_options_equal_the_clients(parse: Any, others: dict[str, str]) -> None:
    (row,) = [row for row in rows("same") if "kafka.security.protocol" in row[0]]
    assert all(any(fnmatch.fnmatchcase(key, pattern) for pattern in NAME.findall(row[0])) for key in SECURE)
    options = parse({**others, **SECURE}, streaming=False)
    assert "a-secret" not in repr(options)


def test_defaults_in_the_table_are_the_real_defaults() -> None:
    defaults = {name: row[1].strip("`") for row in table("Options") for name in NAME.findall(row[0])}
    read = ReadOptions.parse(READ, streaming=False)
    assert {name: defaults[name] for name in ("failOnDataLoss", "includeHeaders", "gcFreeze")} == {
        "failOnDataLoss": str(read.fail_on_data_loss).lower(),
        "includeHeaders": str(read.include_headers).lower(),
        "gcFreeze": str(read.freeze_heap).lower(),
    }
    assert option_values.parse_time_ms("", defaults["kafkaConsumer.pollTimeoutMs"]) == read.poll_timeout_ms
    assert option_values.parse_time_ms("", defaults["fetchOffset.retryIntervalMs"]) == read.retry_interval_ms
    assert option_values.parse_time_ms("", defaults["maxTriggerDelay"]) == read.max_trigger_delay_ms
    assert int(defaults["fetchOffset.numRetries"]) == read.num_retries
    assert int(defaults["minRecordsPerTask"]) == read.records_per_task


class Page:
    """The page's code, run in a session on a topic with records."""

    def __init__(self, spark: SparkSession, kafka: AnyKafka, topic: str) -> None:
        self.spark = spark
        self.names: dict[str, Any] = {"spark": spark}
        self._ours = {"broker:9092": kafka.bootstrap_servers, '"orders"': f'"{topic}"', "'orders'": f"'{topic}'"}

    def block(self, language: str, text: str) -> str:
        """Return the page's code block that contains ``text``, with our brokers and topic."""
        blocks: list[str] = re.findall(rf"(?ms)^```{language}\n(.*?)^```$", PAGE)
        (found,) = [block for block in blocks if text in block]
        for theirs, ours in self._ours.items():
            found = found.replace(theirs, ours)
        return found

    def python(self, text: str) -> None:
        exec(self.block("python", text), self.names)

    def sql(self, text: str) -> list[Any]:
        """Run a block's statements, and return the rows of the last one."""
        for statement in self.block("sql", text).split(";"):
            if statement.strip():
                rows = self.spark.sql(statement).collect()
        return rows


@pytest.fixture
def page(spark: SparkSession, any_kafka: AnyKafka, topic: str) -> Page:
    any_kafka.create_topic(topic, 2)
    produce(any_kafka, topic, {0: ['{"amount": 1.5}', "{}"], 1: ["{}"]})
    return Page(spark.newSession(), any_kafka, topic)


@on_embedded
def test_reading_examples_of_the_page_run(page: Page, any_kafka: AnyKafka, topic: str) -> None:
    page.python("register(KafkaDataSource)")
    assert page.names["orders"].isStreaming
    page.names["options"] = {"kafka.bootstrap.servers": any_kafka.bootstrap_servers, "subscribe": topic}
    page.python("filterPushdown")
    assert page.names["records"].where("timestamp >= '2020-01-01' AND partition = 0").count() == 2


@on_embedded
def test_writing_examples_of_the_page_run(page: Page, topic: str) -> None:
    page.python("register(KafkaDataSource)")
    page.names["orders"] = page.spark.createDataFrame([(1, 2.5)], "id long, amount double")
    page.python("to_json(struct(*))")
    page.names["df"] = page.spark.createDataFrame(
        [("1", "{}", "1", "{}")], "id string, json string, key string, value string"
    )
    page.python("foreachPartition(send)")
    assert [row.records for row in page.names["written"] if row.records] == [1]
    page.python("send_in_transaction")
    rows = page.sql("CREATE TEMPORARY VIEW")
    assert len(rows) == 7
    assert {row[1].amount for row in rows} == {1.5, 2.5, None}


@on_embedded
def test_update_mode_example_of_the_page_runs(page: Page, any_kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    page.python("register(KafkaDataSource)")
    any_kafka.create_topic(f"{topic}-counts")
    servers = {"kafka.bootstrap.servers": any_kafka.bootstrap_servers}
    orders = page.spark.readStream.format("pykclient").options(**servers, subscribe=topic, startingOffsets="earliest")
    counts = orders.load().groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
    page.names |= {"counts": counts, "options": {**servers, "topic": f"{topic}-counts"}, "folder": str(tmp_path / "1")}
    page.python('outputMode("update")')
    query = page.names["query"]
    try:
        query.processAllAvailable()
        produce(any_kafka, topic, {0: ["{}"]})
        query.processAllAvailable()
    finally:
        query.stop()
    written = page.spark.read.format("pykclient").options(**servers, subscribe=f"{topic}-counts").load()
    assert sorted(bytes(row.value) for row in written.collect()) == [b"1", b"2", b"3"]

    sink = counts.writeStream.format("pykclient").options(**page.names["options"]).outputMode("update")
    with pytest.raises(StreamingQueryException, match="pykclient does not support Update mode"):
        sink.option("checkpointLocation", str(tmp_path / "2")).start().awaitTermination(60)


@on_embedded
def test_example_of_tasks_that_commit_runs(page: Page, any_kafka: AnyKafka, topic: str, tmp_path: Path) -> None:
    any_kafka.create_topic("orders-copy", 2)
    page.python("register(KafkaDataSource)")
    servers = {"kafka.bootstrap.servers": any_kafka.bootstrap_servers}
    source = page.spark.readStream.format("pykclient").options(**servers, subscribe=topic, startingOffsets="earliest")
    page.names["orders"] = source.load()
    page._ours['"/checkpoints'] = f'"{tmp_path}'
    page.python("exactlyOnceMode")
    query = page.names["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    copies = page.spark.read.format("pykclient").options(**servers, subscribe="orders-copy")
    rows = copies.option("kafka.isolation.level", "read_committed").load().collect()
    assert sorted(bytes(row.value) for row in rows) == [b'{"amount": 1.5}', b"{}", b"{}"]


BLOCKS: list[tuple[str, str]] = re.findall(r"(?ms)^```(python|sql)\n(.*?)^```$", PAGE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_block_is_a_program(spark: SparkSession, number: int) -> None:
    language, text = BLOCKS[number]
    if language == "python":
        compile(text, f"block {number}", "exec")
        return
    parser = spark._jsparkSession.sessionState().sqlParser()
    for statement in text.split(";"):
        if statement.strip():
            parser.parsePlan(statement)


@pytest.mark.parametrize("function", ["append", "merge"])
def test_the_pages_sinks_for_each_batch(spark: SparkSession, function: str) -> None:
    """Delta and Iceberg are not installed, so only the calls and the statement are checked."""
    names: dict[str, Any] = {"orders": Mock()}
    (block,) = [text for _, text in BLOCKS if f"def {function}(" in text]
    exec(block, names)
    names["orders"].writeStream.option().foreachBatch.assert_called_once_with(names[function])
    batch = MagicMock()
    names[function](batch, 7)
    if function == "append":
        writer = batch.write.format.return_value
        batch.write.format.assert_called_once_with("delta")
        writer.option.assert_called_once_with("txnAppId", "orders-to-bronze")
        writer.option.return_value.option.assert_called_once_with("txnVersion", 7)
    else:
        (statement,) = batch.sparkSession.sql.call_args.args
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)
        assert plan.nodeName() == "MergeIntoTable"


def measurements() -> list[str]:
    """Return the table of measurements that the stored results give: figures beside the built-in's."""
    results = Results.read(Place.of_repository().spark_lines)

    def ratio(case: str, figure: str, ours: str = OURS, to: str = REFERENCE) -> str:
        found = results.ratio(ours, CASES[case].bench, figure, to)
        return "" if found is None else f"{found.median:.2f}"

    lines = [
        f"| {CASES[case].what} | {ratio(case, 'wall_s')} | {ratio(case, 'cpu_us_per_record')} |"
        for case in ("read", "read-lz4", "read-1k", "filter", "stream", "triggers", "write")
    ]
    lines += [
        f"| {CASES[case].what} | {ratio(case, 'trigger_ms')} | {ratio(case, 'all_us_per_record')} |"
        for case in ("triggers-1k", *BACKLOGS)
    ]
    latency, cpu = (ratio("sink", figure, EXACTLY_ONCE, OURS) for figure in ("trigger_ms", "all_us_per_record"))
    lines.append(f"| {CASES['sink'].what}, exactly once beside at least once | {latency} | {cpu} |")
    return lines


def test_measurements_are_those_of_the_stored_results() -> None:
    section = re.split(r"(?m)^##+ ", PAGE.split("\n### Measurements\n", 1)[1])[0]
    found = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert found == measurements(), "\n".join(measurements())
    results = Results.read(Place.of_repository().spark_lines)
    for case in BACKLOGS:
        fetched = results.figure(OURS, CASES[case].bench, "fetched_ratio")
        connections = results.figure(OURS, CASES[case].bench, "connections_per_trigger")
        assert fetched is not None
        assert connections is not None
        assert f"{fetched.median:.2f} bytes for each byte needed with {CASES[case].bench.partitions} par" in section
        assert connections.high == 0


def test_memory_that_is_named_is_the_codes() -> None:
    assert f"{KEPT_BYTES >> 20} MiB of each broker" in PAGE
    assert f"in streams {KEPT_BYTES // MAX_WARM >> 20} MiB" in PAGE
    assert f"{consumer_pool.CAPACITY} consumers for five minutes, {MAX_WARM} of them" in PAGE


@on_embedded
def test_table_example_of_the_page_runs(page: Page) -> None:
    page.spark.sql("DROP TABLE IF EXISTS orders")
    try:
        assert [row[0] for row in page.sql("CREATE TABLE")] == [3]
    finally:
        page.spark.sql("DROP TABLE orders")


@on_embedded
def test_listener_example_of_the_page_runs(page: Page, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page.python("register(KafkaDataSource)")
    page.python("StreamingQueryListener")
    reader = page.names["orders"]  # starts at the latest offsets
    writer = reader.writeStream.format("noop").queryName("ordered").option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    shown = ""

    def told() -> bool:
        nonlocal shown
        shown += capsys.readouterr().out
        return "ordered is behind by 0 offsets" in shown

    eventually(told, 30.0, "the listener was told of the query")
