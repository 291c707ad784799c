"""docs/spark.md tells the truth about options: the table has each of them, and nothing that is not there."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

from pykclient.errors import ConfigError
from pykclient.spark import option_values, options
from pykclient.spark.options import ReadOptions, WriteOptions

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")

READ = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
WRITE = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}

NAME = re.compile(r"`([A-Za-z][A-Za-z.]*\*?)`")


def table(title: str) -> list[list[str]]:
    """The cells of the first table of a section, row by row, without its head."""
    section = re.split(r"(?m)^## ", PAGE.split(f"\n## {title}\n", 1)[1])[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def rows(verdict: str) -> list[list[str]]:
    """The rows about Kafka's own keys of which the table says so."""
    return [row for row in table("Options") if row[0].startswith("`kafka.") and row[2] == verdict]


def test_each_option_is_in_the_table_once() -> None:
    named = [name for row in table("Options") for name in NAME.findall(row[0]) if not name.startswith("kafka.")]
    assert sorted(named) == sorted({*options._READ_OPTIONS, *options._WRITE_OPTIONS})


def test_what_is_refused_of_kafkas_keys_is_in_the_table() -> None:
    (row,) = [row for row in rows("same") if "kafka.auto.offset.reset" in row[0]]
    assert {name.removeprefix("kafka.") for name in NAME.findall(row[0])} == {*options._REFUSED_IN_SOURCE}
    assert {name.removeprefix("kafka.") for name in NAME.findall(row[3])} == {*options._REFUSED_IN_SINK}


@pytest.mark.parametrize("key", ["kafka.security.protocol", "kafka.ssl.truststore.location", "kafka.sasl.jaas.config"])
def test_what_is_not_available_says_so(key: str) -> None:
    (row,) = rows("not available")
    assert any(fnmatch.fnmatchcase(key, pattern) for pattern in NAME.findall(row[0]))
    value = "SASL_SSL" if key.endswith("protocol") else "a-secret"
    for parse, others in ((ReadOptions.parse, READ), (WriteOptions.parse, WRITE)):
        with pytest.raises(ConfigError, match="later version") as caught:
            parse({**others, key: value}, streaming=False)
        assert "a-secret" not in str(caught.value)


def test_the_defaults_of_the_table() -> None:
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


def test_the_python_of_the_page_is_python() -> None:
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE)
    assert blocks
    for block in blocks:
        compile(block, "docs/spark.md", "exec")
