"""Options and ranges of tasks, compared with the results of the classes of Spark's own source."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ConfigError
from pykclient.spark.java_regex import compile_java_regex
from pykclient.spark.option_values import parse_time_ms
from pykclient.spark.options import ReadOptions
from pykclient.spark.ranges import OffsetRange, rate_limit, split_ranges
from pykclient.types import TopicPartition
from tests.spark import builtin
from tests.spark.oracle import Oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(not builtin.has_builtin(), reason="this Spark has no Kafka source of its own here")

SUBSCRIBE = {"subscribe": "t"}


@pytest.fixture(scope="module")
def oracle(spark: SparkSession) -> Oracle:
    return Oracle(spark)


def some_ranges(rng: random.Random) -> list[OffsetRange]:
    ranges = []
    for partition in range(rng.randint(1, 6)):
        start = rng.choice([0, rng.randint(0, 1_000), rng.randint(0, 1 << 50)])
        size = rng.choice([0, 1, rng.randint(0, 10), rng.randint(0, 10_000), rng.randint(0, 1 << 40)])
        ranges.append(OffsetRange(TopicPartition("t", partition), start, start + size))
    return ranges


def test_ranges_are_split_as_builtin(oracle: Oracle) -> None:
    rng = random.Random(1)
    for _ in range(150):
        ranges = some_ranges(rng)
        largest = max(each.size for each in ranges)
        min_partitions = rng.choice([None, rng.randint(1, 40)])
        max_records = rng.choice([None, rng.randint(largest // 50 + 1, largest + 2)])
        expected = oracle.split(ranges, min_partitions, max_records)
        assert split_ranges(ranges, min_partitions, max_records) == expected, (ranges, min_partitions, max_records)


def test_micro_batches_are_limited_as_builtin(oracle: Oracle) -> None:
    rng = random.Random(2)
    for _ in range(60):
        ranges = some_ranges(rng)
        start = {each.topic_partition: each.start for each in ranges}
        until = {each.topic_partition: each.end for each in ranges}
        limit = rng.choice([1, rng.randint(1, 100), rng.randint(1, 100_000), (1 << 63) - 1])
        assert rate_limit(limit, start, until, {}) == oracle.rate_limit(limit, start, until), (limit, ranges)


@pytest.mark.parametrize("text", ["15m", "10s", "500ms", "7", " 3 MIN ", "2h", "1d", "999us", "1500us", "0", "", "s"])
@pytest.mark.parametrize("wrong", ["", "x", ".5"])
def test_times_are_parsed_as_builtin(oracle: Oracle, text: str, wrong: str) -> None:
    text = wrong + text
    try:
        ours = parse_time_ms("maxTriggerDelay", text)
    except ConfigError:
        assert oracle.time_ms(text) is None
    else:
        # Spark refuses the space before the unit, and accepts a negative delay.
        assert oracle.time_ms(text.replace(" ", "")) == ours


NAMES = (
    "orders",
    "Orders-1",
    "a.b_c-d",
    "x",
    "topic.2024-01",
    "aab",
    "ps",
    "sps",
    "--",
    "__x",
    "w-.",
    "abcabc",
    "b" * 9,
)

PATTERNS = (
    "ps", "^ps", r"orders.*", r"orders*", r"[\w-.]+$", r"^[\w-]+$", r"[]a]", r"[^]a]", r"[a-]", r"[-a]", r"[a-c-.]",
    r"[a^]", r"[--a]", r"[+--]", r"[---]", r"[^-a]", r"[^^]", r"[&a]", r"[a||b]", r"[~~]", r"[\w-a]", r"[\d-x]",
    r"[\d\-x]", r"[.-]", r"[\]]", r"[\.]", r"\Qa.b\E_", r"\Qa.b", r"\Q\E", "(?i)orders", "(?i:O)rders", "(?i-s:A)b",
    r"(?<n>ab)c\k<n>c", r"(a)\1b", "a++b", "(?>a+)b", "a{2}", "a{2,}b", "a??", "a?+b", r"\z", r"ps\z", r"ps\Z",
    r"\A[a-z]+\z", r"\x61", r"\u0061", "(?<=a)b", "(?<!a)b", "()", "^$", "}", r"\_\-\.", r"\bs\b", r"\Bs", "a|", "é",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_the_same_topics(oracle: Oracle, pattern: str) -> None:
    ours = compile_java_regex(pattern)
    assert [ours.search(name) is not None for name in NAMES] == [oracle.found(pattern, name) for name in NAMES]


def test_random_patterns_match_the_same_topics(oracle: Oracle) -> None:
    atoms = [
        "a", "b", "s", "-", ".", r"\.", r"\w", r"\d", "[a-z]", "[^a]", r"[\w-]", "[a-c.]", "[-.]", "^", "$", "(a|b)",
        "(?:o|O)", "(?i:A)", "x", r"\b", "(?=s)", "|",
    ]  # fmt: skip
    repetitions = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "++", "?+"]
    rng = random.Random(3)
    compared = 0
    while compared < 60:
        pattern = "".join(rng.choice(atoms) + rng.choice(repetitions) for _ in range(rng.randint(1, 5)))
        try:
            ours = compile_java_regex(pattern)
        except ValueError:
            continue  # such as a repeated $, which Java takes
        compared += 1
        assert [ours.search(name) is not None for name in NAMES] == [oracle.found(pattern, name) for name in NAMES]


#: Options beside bootstrap servers.
COMBINATIONS: tuple[dict[str, str], ...] = (
    {},
    SUBSCRIBE,
    {"SUBSCRIBE": "t"},
    {"subscribe": "t", "assign": '{"t":[0]}'},
    {"subscribe": "t", "subscribePattern": "t"},
    {"subscribe": " , "},
    {"subscribe": ""},
    {"subscribePattern": "  "},
    {"subscribePattern": "t.*"},
    {"assign": ""},
    {"assign": "t"},
    {"assign": '{"t":[0,1]}'},
    {"assign": '{"t":0}'},
    {"assign": "{"},
    {**SUBSCRIBE, "startingOffsets": "earliest"},
    {**SUBSCRIBE, "startingOffsets": " Earliest "},
    {**SUBSCRIBE, "startingOffsets": "latest"},
    {**SUBSCRIBE, "startingOffsets": "tomorrow"},
    {**SUBSCRIBE, "startingOffsets": '{"t":{"0":5,"1":-2}}'},
    {**SUBSCRIBE, "startingOffsets": '{"t":{"0":-1}}'},
    {**SUBSCRIBE, "startingOffsets": '{"t":{"a":1}}'},
    {**SUBSCRIBE, "startingOffsets": '{"t":[1]}'},
    {**SUBSCRIBE, "startingOffsets": '{"t":{"0":"5"}}'},
    {**SUBSCRIBE, "endingOffsets": "latest"},
    {**SUBSCRIBE, "endingOffsets": "earliest"},
    {**SUBSCRIBE, "endingOffsets": '{"t":{"0":-1}}'},
    {**SUBSCRIBE, "endingOffsets": '{"t":{"0":-2}}'},
    {**SUBSCRIBE, "startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":1}}'},
    {**SUBSCRIBE, "startingOffsets": '{"t":{"0":2}}', "endingOffsets": '{"t":{"0":1}}'},
    {**SUBSCRIBE, "startingOffsets": '{"t":{"0":2}}', "endingOffsets": '{"t":{"0":-1}}'},
    {**SUBSCRIBE, "startingOffsets": '{"t":{"0":2}}', "endingOffsets": '{"t":{"1":5}}'},
    {**SUBSCRIBE, "startingTimestamp": "5"},
    {**SUBSCRIBE, "startingTimestamp": "soon"},
    {**SUBSCRIBE, "startingTimestamp": "5", "startingOffsets": "latest"},
    {**SUBSCRIBE, "startingTimestamp": "5", "startingOffsets": "nonsense"},
    {**SUBSCRIBE, "startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "nonsense"},
    {**SUBSCRIBE, "startingOffsetsByTimestamp": "5"},
    {**SUBSCRIBE, "endingOffsetsByTimestamp": '{"t":{"0":5}}'},
    {
        **SUBSCRIBE,
        "startingOffsetsByTimestamp": '{"t":{"0":5}}',
        "endingOffsetsByTimestamp": '{"t":{"0":4}}',
    },
    {
        **SUBSCRIBE,
        "startingOffsetsByTimestamp": '{"t":{"0":5}}',
        "endingOffsetsByTimestamp": '{"t":{"1":6}}',
    },
    {**SUBSCRIBE, "startingOffsetsByTimestampStrategy": "Latest"},
    {**SUBSCRIBE, "startingOffsetsByTimestampStrategy": "none"},
    {**SUBSCRIBE, "failOnDataLoss": "FALSE"},
    {**SUBSCRIBE, "failOnDataLoss": "no"},
    {**SUBSCRIBE, "includeHeaders": "true"},
    {**SUBSCRIBE, "includeHeaders": "1"},
    {**SUBSCRIBE, "minPartitions": "0"},
    {**SUBSCRIBE, "minPartitions": "3"},
    {**SUBSCRIBE, "minPartitions": "3.5"},
    {**SUBSCRIBE, "minPartitions": str(1 << 31)},
    {**SUBSCRIBE, "maxRecordsPerPartition": "-1"},
    {**SUBSCRIBE, "maxRecordsPerPartition": str(1 << 31)},
    {**SUBSCRIBE, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
    {**SUBSCRIBE, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "5"},
    {**SUBSCRIBE, "kafka.group.id": "g", "groupIdPrefix": "p"},
    {**SUBSCRIBE, "kafka.auto.offset.reset": "earliest"},
    {**SUBSCRIBE, "kafka.key.deserializer": "x"},
    {**SUBSCRIBE, "kafka.value.deserializer": "x"},
    {**SUBSCRIBE, "kafka.enable.auto.commit": "false"},
    {**SUBSCRIBE, "kafka.interceptor.classes": "x"},
    {**SUBSCRIBE, "Kafka.Fetch.Min.Bytes": "1"},
    {**SUBSCRIBE, "kafkaConsumer.pollTimeoutMs": "1000"},
    {**SUBSCRIBE, "kafkaConsumer.pollTimeoutMs": "never"},
)


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "stream"])
@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_options_are_accepted_and_refused_as_builtin(oracle: Oracle, options: dict[str, str], streaming: bool) -> None:
    expected = oracle.refusal(options, streaming=streaming)
    ours: str | None = None
    try:
        ReadOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", **options}, streaming=streaming)
    except ConfigError as error:
        ours = str(error)
    assert (ours is None) == (expected is None), f"ours: {ours}; Spark's: {expected}"


@pytest.mark.parametrize(
    ("options", "streaming"),
    [
        ({**SUBSCRIBE, "startingOffset": "earliest"}, False),
        ({**SUBSCRIBE, "startingOffsets": '{"t":{"0":1.5}}'}, True),
        ({**SUBSCRIBE, "startingOffsets": '{"t":{"0":1,"0":2}}'}, True),
        ({**SUBSCRIBE, "startingOffsets": '{"t":{"0":-3}}'}, True),
        ({**SUBSCRIBE, "minOffsetsPerTrigger": "-5"}, True),
        ({**SUBSCRIBE, "endingTimestamp": "5"}, True),
        ({**SUBSCRIBE, "maxOffsetsPerTrigger": "0"}, True),
    ],
)
def test_mistakes_accepted_by_builtin_are_refused(oracle: Oracle, options: dict[str, str], streaming: bool) -> None:
    """All are mistakes; see the docstring of ``options``. Fails once Spark refuses them, too."""
    assert oracle.refusal(options, streaming=streaming) is None
    with pytest.raises(ConfigError):
        ReadOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", **options}, streaming=streaming)
