"""Offsets in checkpoints, and the limits that options give."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given, strategies as st

from pykclient.errors import ConfigError
from pykclient.spark.offsets import (
    EARLIEST,
    LATEST,
    OFFSETS_EXAMPLE,
    GlobalTimestamp,
    OffsetLimit,
    Offsets,
    SpecificOffsets,
    SpecificTimestamps,
    offsets_from_json,
    offsets_to_json,
    partition_list,
    partition_numbers,
)
from pykclient.types import TopicPartition

TOPICS = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=8)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, (1 << 31) - 1)), st.integers(0, (1 << 63) - 1), max_size=12
)


class TestCheckpoints:
    def test_offsets_are_ordered_by_topic_and_number(self) -> None:
        offsets = {
            TopicPartition(topic, partition): partition for topic in ("b", "a-b", "a") for partition in (10, 9, 1)
        }
        text = json.dumps(offsets_to_json(offsets))
        inside = '{"1": 1, "9": 9, "10": 10}'
        assert text == f'{{"a": {inside}, "a-b": {inside}, "b": {inside}}}'

    @given(OFFSETS, st.randoms())
    def test_json_round_trip_is_deterministic(self, offsets: Offsets, rng: object) -> None:
        text = json.dumps(offsets_to_json(offsets))
        assert offsets_from_json(text) == offsets
        assert offsets_from_json(json.loads(text)) == offsets
        items = list(offsets.items())
        rng.shuffle(items)  # type: ignore[attr-defined]
        assert json.dumps(offsets_to_json(dict(items))) == text

    def test_spark_checkpoints_are_read(self) -> None:
        """Spark's JSON has the order of a hash table."""
        written = '{"orders-2":{"8":4,"2":9223372036854775807,"0":0},"orders":{"1":17}}'
        assert offsets_from_json(written) == {
            TopicPartition("orders-2", 8): 4,
            TopicPartition("orders-2", 2): 9223372036854775807,
            TopicPartition("orders-2", 0): 0,
            TopicPartition("orders", 1): 17,
        }

    @pytest.mark.parametrize("value", ["", "[]", "null", '{"t":3}', '{"t":{"0":-1}}', '{"t":{"x":1}}'])
    def test_malformed_checkpoints_are_refused(self, value: str) -> None:
        with pytest.raises(ConfigError, match="the offsets of the checkpoint: expected JSON such as"):
            offsets_from_json(value)


class TestJson:
    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ("{", "Expecting property name"),
            ("7", "it is no JSON object"),
            ('{"t":[1]}', "'t' has no object with partitions and numbers"),
            ('{"t":{"0":1,"0":2}}', "'0' is there twice"),
            ('{"t":{"0":1},"t":{"1":2}}', "'t' is there twice"),
            ('{"t":{"0":1,"00":2}}', "t-0 is there twice"),
            ('{"t":{"-1":1}}', "'-1' of 't' is no partition"),
            ('{"t":{"2147483648":1}}', "2147483648 of 't' is no partition"),
            ('{"t":{"0":1.0}}', "t-0 has 1.0, which is no whole number of 64 bits"),
            ('{"t":{"0":null}}', "t-0 has None"),
            ('{"t":{"0":true}}', "t-0 has True"),
            ('{"t":{"0":"5"}}', "t-0 has '5'"),
            ('{"t":{"0":9223372036854775808}}', "t-0 has 9223372036854775808"),
            ('{"t":{"0":-3}}', "t-0 has -3, which is less than -2"),
            ('{"t":{"0":NaN}}', "t-0 has nan"),
            pytest.param('{"t":' * 100_000, "nested too deeply", id="deep"),
            pytest.param('{"t":{"0":' + "9" * 5_000 + "}}", "Exceeds the limit", id="long"),
        ],
    )
    def test_malformed_json_is_refused_with_an_example(self, value: str, problem: str) -> None:
        with pytest.raises(ConfigError) as caught:
            partition_numbers(value, "option startingOffsets", OFFSETS_EXAMPLE, minimum=-2)
        assert str(caught.value).startswith(f"option startingOffsets: expected JSON such as {OFFSETS_EXAMPLE}, but ")
        assert problem in str(caught.value)

    def test_partitions_are_sorted_and_unique(self) -> None:
        expected = (TopicPartition("s", 3), TopicPartition("t", 0), TopicPartition("t", 10))
        assert partition_list('{"t":[10,0,10],"s":[3]}', "option assign") == expected
        assert partition_list("{}", "option assign") == ()


class TestLimits:
    LIMITS: tuple[OffsetLimit, ...] = (
        EARLIEST,
        LATEST,
        SpecificOffsets({TopicPartition("t", 0): 1}),
        SpecificOffsets({TopicPartition("t", 0): 2}),
        SpecificTimestamps({TopicPartition("t", 0): 1}),
        SpecificTimestamps({TopicPartition("t", 0): 1}, "latest"),
        GlobalTimestamp(1),
        GlobalTimestamp(1, "latest"),
    )

    def test_limits_compare_by_value(self) -> None:
        for index, limit in enumerate(self.LIMITS):
            assert [limit == other for other in self.LIMITS] == [index == at for at in range(len(self.LIMITS))]

    def test_limits_survive_pickling(self) -> None:
        for limit in self.LIMITS:
            assert pickle.loads(pickle.dumps(limit)) == limit
        assert pickle.loads(pickle.dumps(EARLIEST)) is EARLIEST
        assert pickle.loads(pickle.dumps(LATEST)) is LATEST

    def test_repr_shows_the_limit(self) -> None:
        assert repr(LATEST) == "LATEST"
        assert repr(GlobalTimestamp(5, "latest")) == "GlobalTimestamp(timestamp_ms=5, when_none='latest')"
