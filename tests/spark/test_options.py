"""The options of a query: their meanings, valid combinations, and errors for the others."""

from __future__ import annotations

import contextlib
import pickle

import pytest
from hypothesis import given, strategies as st

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.errors import ConfigError
from pykclient.spark.offsets import (
    EARLIEST,
    LATEST,
    GlobalTimestamp,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
)
from pykclient.spark.option_values import parse_time_ms
from pykclient.spark.options import ReadOptions, WriteOptions
from pykclient.spark.schema import COLUMNS
from pykclient.spark.subscription import Assign, Subscribe, SubscribePattern, Topics
from pykclient.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SERVERS = {"kafka.bootstrap.servers": "a:9092,b:9092"}


def batch(**options: str) -> ReadOptions:
    return read(False, **options)


def stream(**options: str) -> ReadOptions:
    return read(True, **options)


def read(streaming: bool, /, **options: str) -> ReadOptions:
    """Parse options of topic t by default. Two underscores stand for a dot."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    if not {"subscribe", "subscribePattern", "assign"} & given.keys():
        given["subscribe"] = "t"
    return ReadOptions.parse({**SERVERS, **given}, streaming=streaming)


def noted(options: ReadOptions | WriteOptions, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings that planning logs about these options. Parsing must not have logged any."""
    assert not caplog.records
    options.log_notes()
    messages = caplog.messages[:]
    caplog.clear()
    return messages


class TestTopics:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"subscribe": "b, a,,b "}, Subscribe(["b", "a"])),
            ({"subscribePattern": " t-[0-9]+ "}, SubscribePattern("t-[0-9]+")),
            ({"assign": '{"t":[1,0,1],"s":[5]}'}, Assign([TopicPartition("s", 5), T0, T1])),
        ],
    )
    def test_topics_are_given_by_list_pattern_or_assignment(self, options: dict[str, str], expected: Topics) -> None:
        topics = batch(**options).topics
        assert topics == expected
        assert topics != Subscribe(["other"])

    def test_exactly_one_topic_option_is_required(self) -> None:
        with pytest.raises(ConfigError, match=r"exactly one of .*assign, subscribe, subscribePattern.*none of them"):
            ReadOptions.parse(SERVERS, streaming=False)
        with pytest.raises(ConfigError, match="subscribe and subscribePattern are there"):
            batch(subscribe="t", subscribePattern="t")

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"subscribe": " ,"}, "option subscribe has no topics"),
            ({"subscribePattern": " "}, "option subscribePattern is empty"),
            ({"subscribePattern": "orders-("}, r"subscribePattern must be a regular expression .*'orders-\('"),
            ({"subscribePattern": r"\p{Alpha}"}, r"subscribePattern .* the escape \\p at position 0 is not supported"),
            ({"assign": "{}"}, "option assign has no partitions"),
            ({"assign": "t:0"}, r'option assign: expected JSON such as {"topicA":\[0,1\]'),
            ({"assign": '{"t":{"0":1}}'}, r"option assign: .* 't' has no list of partitions"),
            ({"assign": '{"t":["0"]}'}, r"option assign: .* '0' of 't' is no partition"),
            ({"assign": '{"t":[-1]}'}, r"option assign: .* -1 of 't' is no partition"),
            ({"assign": '{"t":[true]}'}, r"option assign: .* True of 't' is no partition"),
        ],
    )
    def test_values_without_topics_are_refused(self, options: dict[str, str], text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            batch(**options)

    def test_pattern_matches_anywhere_in_the_name(self) -> None:
        topics = batch(subscribePattern="ps").topics
        assert isinstance(topics, SubscribePattern)
        assert [name for name in ("ps", "sps", "p-s") if topics.matches(name)] == ["ps", "sps"]
        assert pickle.loads(pickle.dumps(topics)).matches("sps")


class TestLimits:
    def test_defaults(self) -> None:
        assert batch().starting is EARLIEST
        assert batch().ending is LATEST
        assert stream().starting is LATEST

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"startingOffsets": " Earliest "}, EARLIEST),
            ({"startingOffsets": "LATEST"}, LATEST),
            ({"startingOffsets": '{"t":{"0":23,"1":-2}}'}, SpecificOffsets({T0: 23, T1: -2})),
            ({"startingOffsets": '{"t":{"0":-1}}'}, SpecificOffsets({T0: -1})),
            ({"startingOffsetsByTimestamp": '{"t":{"0":7}}'}, SpecificTimestamps({T0: 7})),
            ({"startingTimestamp": " 9 "}, GlobalTimestamp(9)),
            (
                {"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "Latest"},
                GlobalTimestamp(9, "latest"),
            ),
            (
                {"startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingOffsetsByTimestampStrategy": "latest"},
                SpecificTimestamps({T0: 7}, "latest"),
            ),
        ],
    )
    def test_starting_options_are_parsed(self, options: dict[str, str], expected: OffsetLimit) -> None:
        assert stream(**options).starting == expected

    def test_global_time_overrides_times_and_times_override_offsets(self) -> None:
        offsets, times = '{"t":{"0":1}}', '{"t":{"0":7}}'
        for side in ("starting", "ending"):
            given = {f"{side}Offsets": offsets}
            assert getattr(batch(**given), side) == SpecificOffsets({T0: 1})
            given[f"{side}OffsetsByTimestamp"] = times
            assert isinstance(getattr(batch(**given), side), SpecificTimestamps)
            given[f"{side}Timestamp"] = "9"
            assert isinstance(getattr(batch(**given), side), GlobalTimestamp)
            # Options that do not apply are not parsed.
            assert isinstance(getattr(batch(**{**given, f"{side}Offsets": "nonsense"}), side), GlobalTimestamp)

    @pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
    def test_ending_options_are_refused_for_streams(self, name: str) -> None:
        with pytest.raises(ConfigError, match=rf"option {name} is not for streaming queries.*availableNow=True"):
            stream(**{name: "latest"})

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"startingOffsets": "latest"}, "startingOffsets can't be latest in a batch"),
            ({"endingOffsets": "earliest"}, "endingOffsets can't be earliest in a batch"),
            ({"startingOffsets": '{"t":{"0":1,"1":-1}}'}, r"startingOffsets can't be latest \(-1\) for t-1"),
            ({"endingOffsets": '{"t":{"0":-2}}'}, r"endingOffsets can't be earliest \(-2\) for t-0"),
            (
                {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":1}}'},
                "options startingOffsets and endingOffsets must name the same partitions, but only one .* has t-0, t-1",
            ),
            (
                {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
                "option startingOffsets has 5 for t-0, which is after the 4 that endingOffsets has",
            ),
            (
                {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
                "option startingOffsetsByTimestamp has 5 for t-0, .* the 4 that endingOffsetsByTimestamp has",
            ),
            (
                {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"s":{"0":6}}'},
                "only one of them has s-0, t-0",
            ),
        ],
    )
    def test_offsets_impossible_in_a_batch_are_refused(self, options: dict[str, str], text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            batch(**options)

    @pytest.mark.parametrize(
        "options",
        [
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":5}}'},
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":-1}}'},
            {"startingOffsets": '{"t":{"0":-2}}', "endingOffsets": '{"t":{"0":0}}'},
            {"startingOffsets": '{"t":{"0":5}}', "endingTimestamp": "1"},
        ],
    )
    def test_unknown_offsets_are_not_compared(self, options: dict[str, str]) -> None:
        assert batch(**options).starting != EARLIEST

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"startingOffsets": "tomorrow"}, "must be earliest, latest or JSON such as .*, not 'tomorrow'"),
            ({"startingOffsets": '{"t":{"0":-3}}'}, "t-0 has -3, which is less than -2"),
            (
                {"startingTimestamp": "noon"},
                "option startingTimestamp must be a whole number of at least -1, not 'noon'",
            ),
            ({"startingTimestamp": "-2"}, "startingTimestamp must be a whole number of at least -1"),
            ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "t-0 has -1, which is less than 0"),
            ({"startingOffsetsByTimestampStrategy": "first"}, "must be error or latest, not 'first'"),
        ],
    )
    def test_values_that_mean_nothing(self, options: dict[str, str], text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            stream(**options)


class TestRates:
    def test_defaults(self) -> None:
        options = stream()
        assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (None, None)
        assert options.max_trigger_delay_ms == 15 * 60 * 1_000
        assert (options.min_partitions, options.max_records_per_partition) == (None, None)
        assert options.records_per_task == 4_000
        assert options.poll_timeout_ms == 120_000
        assert (options.num_retries, options.retry_interval_ms) == (3, 1_000)
        assert options.fail_on_data_loss is True
        assert options.freeze_heap is True
        assert options.push_filters is None
        assert options.include_headers is False
        assert options.columns is None

    def test_all_rate_options_are_parsed(self) -> None:
        options = stream(
            maxOffsetsPerTrigger="9",
            minOffsetsPerTrigger="9",
            maxTriggerDelay="1min",
            failOnDataLoss="False",
            kafkaConsumer__pollTimeoutMs="5s",
            fetchOffset__numRetries="1",
            fetchOffset__retryIntervalMs="0",
            gcFreeze="false",
            filterPushdown="TRUE",
            minRecordsPerTask="5",
        )
        assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (9, 9)
        assert options.max_trigger_delay_ms == 60_000
        assert options.fail_on_data_loss is False
        assert options.poll_timeout_ms == 5_000
        assert (options.num_retries, options.retry_interval_ms) == (1, 0)
        assert options.freeze_heap is False
        assert options.push_filters is True
        assert options.records_per_task == 5

    @pytest.mark.parametrize(("name", "most"), [("minPartitions", 2**31 - 1), ("maxOffsetsPerTrigger", 2**63 - 1)])
    def test_numbers_above_sparks_maximum_are_refused(self, name: str, most: int) -> None:
        stream(**{name: str(most)})
        with pytest.raises(
            ConfigError, match=rf"option {name} must be a whole number of at most {most}, not '{most + 1}'"
        ):
            stream(**{name: str(most + 1)})

    def test_min_partitions_overrides_records_per_task(self, caplog: pytest.LogCaptureFixture) -> None:
        assert batch(minPartitions="8").records_per_task == 0
        assert batch(maxRecordsPerPartition="80").records_per_task == 0
        assert not caplog.records
        both = batch(minPartitions="8", minRecordsPerTask="9")
        assert both.records_per_task == 0
        assert noted(both, caplog) == [
            "Option minRecordsPerTask has no effect together with minPartitions or maxRecordsPerPartition"
        ]

    def test_minimum_above_maximum_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"minOffsetsPerTrigger \(5\) is greater than maxOffsetsPerTrigger \(4\)"):
            stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")

    @pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
    def test_trigger_options_are_refused_for_batches(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        assert noted(stream(**{name: "5"}), caplog) == []
        assert noted(batch(**{name: "5"}), caplog) == [f"Option {name} has no effect in a batch query"]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("minPartitions", "0"),
            ("minPartitions", "2147483648"),
            ("minPartitions", "1_0"),
            ("maxRecordsPerPartition", "-1"),
            ("maxRecordsPerPartition", ""),
            ("maxOffsetsPerTrigger", "0"),
            ("maxOffsetsPerTrigger", "9223372036854775808"),
            ("maxOffsetsPerTrigger", "9" * 30),
            ("minOffsetsPerTrigger", "1.5"),
            ("fetchOffset.numRetries", "0"),
            ("minRecordsPerTask", "-1"),
            ("maxTriggerDelay", "-5s"),
            ("kafkaConsumer.pollTimeoutMs", "1.5s"),
            ("fetchOffset.retryIntervalMs", "soon"),
            ("failOnDataLoss", "yes"),
            ("includeHeaders", ""),
            ("gcFreeze", "1"),
        ],
    )
    def test_values_that_mean_nothing(self, name: str, value: str) -> None:
        with pytest.raises(ConfigError, match=rf"^option {name} must be .*, not '{value}'$"):
            ReadOptions.parse({**SERVERS, "subscribe": "t", name: value}, streaming=True)


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "milliseconds"),
        [
            ("15m", 900_000),
            ("15 min", 900_000),
            ("10s", 10_000),
            ("500ms", 500),
            ("500", 500),
            (" 2H ", 7_200_000),
            ("1d", 86_400_000),
            ("1999us", 1),
            ("0", 0),
        ],
    )
    def test_time_units_are_parsed(self, text: str, milliseconds: int) -> None:
        assert parse_time_ms("maxTriggerDelay", text) == milliseconds

    @pytest.mark.parametrize("text", ["", "s", "1.5s", "-1s", "1 s s", "1w", "1e3", "+5", "٣s", "9" * 19])
    def test_malformed_time_is_refused_with_examples(self, text: str) -> None:
        with pytest.raises(
            ConfigError, match="option d must be a time such as 15m, 10s, 500ms or a number of millisec"
        ):
            parse_time_ms("d", text)


class TestColumns:
    def test_columns_are_parsed_in_any_case_and_order(self) -> None:
        options = batch(columns=" Offset , VALUE,timestamptype")
        assert options.columns == ("offset", "value", "timestampType")
        assert options.include_headers is False

    def test_headers_column_needs_no_include_headers(self) -> None:
        assert batch(columns="value,headers").include_headers is True
        assert batch(columns=",".join(COLUMNS), includeHeaders="true").columns == tuple(COLUMNS)

    @pytest.mark.parametrize(
        ("columns", "headers", "text"),
        [
            ("value,headers", "false", "includeHeaders is false, but columns is value, headers"),
            ("value", "true", "includeHeaders is true, but columns is value;"),
            ("value,values", None, "list of key, value, topic, .*; there is no column 'values'"),
            ("", None, "there is no column ''"),
            ("value,Value", None, "columns has 'Value' twice"),
        ],
    )
    def test_contradicting_column_options_are_refused(self, columns: str, headers: str | None, text: str) -> None:
        with pytest.raises(ConfigError, match=text):
            batch(columns=columns, **({} if headers is None else {"includeHeaders": headers}))


class TestNames:
    def test_option_names_ignore_case(self) -> None:
        given = {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "T", "StartingOFFSETS": "earliest"}
        options = ReadOptions.parse(given, streaming=True)
        assert options.topics == Subscribe(["T"])
        assert options.starting is EARLIEST
        assert options.driver_config()["bootstrap.servers"] == "a:1"

    def test_option_given_in_two_cases_is_refused(self) -> None:
        twice = {**SERVERS, "subscribe": "t", "SUBSCRIBE": "u"}
        with pytest.raises(ConfigError, match="option 'subscribe' is given twice with two values, also as 'SUBSCRIBE'"):
            ReadOptions.parse(twice, streaming=True)
        assert ReadOptions.parse({**twice, "SUBSCRIBE": "t"}, streaming=True).topics == Subscribe(["t"])

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("startingOffset", "unknown option 'startingOffset'; did you mean 'startingOffsets'?"),
            ("max_offsets_per_trigger", "did you mean 'maxOffsetsPerTrigger'?"),
            ("failOnDataloss2", "did you mean 'failOnDataLoss'?"),
            ("fetchOffset.numRetry", "did you mean 'fetchOffset.numRetries'?"),
            ("bootstrap.servers", "did you mean 'kafka.bootstrap.servers'?"),
            ("bootstrap_servers", "did you mean 'kafka.bootstrap.servers'?"),
            ("isolation.level", "did you mean 'kafka.isolation.level'?"),
            ("fetch_min_bytes", "did you mean 'kafka.fetch.min.bytes'?"),
            ("xyzzy", "unknown option 'xyzzy'; Kafka's own keys have 'kafka.' in front"),
            ("topic", "option 'topic' has no meaning where Kafka is read; it is one of the sink"),
        ],
    )
    def test_unknown_options_are_refused_with_advice(self, name: str, text: str) -> None:
        with pytest.raises(ConfigError) as caught:
            ReadOptions.parse({**SERVERS, "subscribe": "t", name: "1"}, streaming=True)
        assert text in str(caught.value)

    @pytest.mark.parametrize("name", ["path", "checkpointLocation", "queryName", "serialization.format"])
    def test_options_that_spark_adds_are_ignored(self, name: str) -> None:
        assert batch(**{name: "x"}).driver_config() == batch().driver_config()


class TestKafkasSettings:
    @pytest.mark.parametrize("servers", ["a b:9092", "b:9092,a:port", "a:99999"])
    def test_malformed_bootstrap_servers_are_refused(self, servers: str) -> None:
        given = {"kafka.bootstrap.servers": servers}
        expected = r"^a kafka\.\* option is wrong: bootstrap\.servers: .*'a"
        with pytest.raises(ConfigError, match=expected):
            ReadOptions.parse({**given, "subscribe": "t"}, streaming=True)
        with pytest.raises(ConfigError, match=expected):
            WriteOptions.parse(given, streaming=True)

    def test_bootstrap_servers_are_required(self) -> None:
        with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers must be set"):
            ReadOptions.parse({"subscribe": "t"}, streaming=False)
        with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers must be set"):
            WriteOptions.parse({"topic": "t"}, streaming=False)

    @pytest.mark.parametrize(
        ("key", "cure"),
        [
            ("auto.offset.reset", "startingOffsets"),
            ("key.deserializer", "binary columns"),
            ("value.deserializer", "binary columns"),
            ("enable.auto.commit", "checkpoint"),
            ("interceptor.classes", "interceptors"),
        ],
    )
    def test_unsupported_consumer_settings_are_refused(self, key: str, cure: str) -> None:
        for name in (f"kafka.{key}", f"kafka.{key.replace('.', '_')}", f"Kafka.{key.upper()}"):
            with pytest.raises(ConfigError, match=rf"(?i)option kafka.* is not supported: .*{cure}"):
                ReadOptions.parse({**SERVERS, "subscribe": "t", name: "x"}, streaming=False)

    @pytest.mark.parametrize("key", ["key.serializer", "value.serializer"])
    def test_unsupported_producer_settings_are_refused(self, key: str) -> None:
        with pytest.raises(ConfigError, match=rf"option kafka.{key} is not supported: .*bytes"):
            WriteOptions.parse({**SERVERS, f"kafka.{key}": "x"}, streaming=False)

    @pytest.mark.parametrize(
        ("name", "value", "text"),
        [
            ("kafka.fetch.min.byte", "1", "did you mean 'fetch.min.bytes'?"),
            ("kafka.fetch.min.bytes", "many", "fetch.min.bytes"),
            ("kafka.linger.ms", "5", "linger.ms"),
        ],
    )
    def test_wrong_settings_are_refused_on_the_driver(self, name: str, value: str, text: str) -> None:
        with pytest.raises(ConfigError) as caught:
            ReadOptions.parse({**SERVERS, "subscribe": "t", name: value}, streaming=False)
        assert str(caught.value).startswith("a kafka.* option is wrong: ")
        assert text in str(caught.value)
        assert "'fetch.min.bytes'" not in str(caught.value) or value == "1"

    def test_setting_in_two_spellings_is_refused(self) -> None:
        given = {**SERVERS, "subscribe": "t", "kafka.client_id": "a", "kafka.client.id": "b"}
        with pytest.raises(ConfigError, match=r"is given twice, as kafka\.client_id and as kafka\.client\.id$"):
            ReadOptions.parse(given, streaming=False)

    def test_driver_config_has_the_settings_and_no_group(self) -> None:
        config = batch(kafka__isolation__level="read_committed").driver_config()
        assert config == {
            "bootstrap.servers": "a:9092,b:9092",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        ConsumerConfig(config)

    def test_executors_fetch_in_bulk_by_default(self) -> None:
        config = batch().executor_config()
        assert config["auto.offset.reset"] == "none"
        assert config["enable.auto.commit"] is False
        assert config["max.partition.fetch.bytes"] == 8 * 1024 * 1024
        config = batch(kafka__max__partition__fetch__bytes="7").executor_config()
        assert config["max.partition.fetch.bytes"] == "7"
        config = ReadOptions.parse(
            {**SERVERS, "subscribe": "t", "kafka.max_partition_fetch_bytes": "7"}, streaming=False
        ).executor_config()
        assert ConsumerConfig(config)["max.partition.fetch.bytes"] == 7

    def test_group_id_derives_from_the_prefix_and_topics(self, caplog: pytest.LogCaptureFixture) -> None:
        assert "group.id" not in batch().executor_config()
        prefixed = batch(groupIdPrefix="mine")
        group = str(prefixed.executor_config()["group.id"])
        assert group.startswith("mine-")
        assert prefixed.driver_config()["group.id"] == group
        assert batch(groupIdPrefix="mine").group_id == group  # in another process of the same query
        assert batch(groupIdPrefix="mine", subscribe="u").group_id != group
        chosen = batch(kafka__group__id="g", groupIdPrefix="mine")
        assert chosen.executor_config()["group.id"] == "g"
        assert noted(chosen, caplog) == [
            "Option kafka.group.id is set: do not share the group id with other consumers or queries",
            "Option groupIdPrefix has no effect together with kafka.group.id",
        ]

    @pytest.mark.parametrize("servers", ["a", "a:9092,b", "[::1]", "PLAINTEXT://a"])
    def test_every_address_has_a_port(self, servers: str) -> None:
        """As with the built-in. A client would try port 9092, and time out if nothing listens there."""
        for parse in (ReadOptions.parse, WriteOptions.parse):
            with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers must have a port .*as host:9092"):
                parse({"kafka.bootstrap.servers": servers}, streaming=False)

    def test_duplicate_addresses_are_noted_once(self, caplog: pytest.LogCaptureFixture) -> None:
        """Clients warn of them, too: those of the driver, and those of each task."""
        given = {"kafka.bootstrap.servers": "a:1, b:2,a:1"}
        reads = ReadOptions.parse({**given, "subscribe": "t"}, streaming=True)
        writes = WriteOptions.parse(given, streaming=True)
        expected = ["Option kafka.bootstrap.servers has duplicates, which are ignored: a:1,b:2 is used"]
        assert noted(reads, caplog) == noted(writes, caplog) == expected
        for config in (reads.driver_config(), reads.executor_config()):
            assert ConsumerConfig(config)["bootstrap.servers"] == ["a:1", "b:2"]
        assert writes.producer_config() == {"bootstrap.servers": "a:1,b:2"}
        assert not caplog.records

    def test_secrets_are_not_shown(self) -> None:
        """Spark shows plans, which contain the options' representations."""
        options = batch(kafka__client__id="hush")
        written = WriteOptions.parse({**SERVERS, "topic": "t", "kafka.client.id": "hush"}, streaming=True)
        assert "hush" not in repr(options) + str(options) + repr(written)
        assert repr(options) == "ReadOptions(batch, Subscribe(names=('t',)), starting=EARLIEST, ending=LATEST)"
        assert repr(written) == "WriteOptions(topic='t', include_headers=False)"


class TestPickling:
    def test_options_survive_pickling(self) -> None:
        options = stream(startingOffsets="earliest", groupIdPrefix="g", kafka__client__id="c", columns="value")
        copy = pickle.loads(pickle.dumps(options))
        assert vars(copy) == vars(options)
        assert copy.starting is EARLIEST
        assert copy.ending is LATEST
        written = WriteOptions.parse({**SERVERS, "topic": " t "}, streaming=True)
        copy = pickle.loads(pickle.dumps(written))
        assert (copy.topic, copy.producer_config()) == ("t", {"bootstrap.servers": "a:9092,b:9092"})

    def test_returned_configurations_are_copies(self) -> None:
        options = batch()
        options.driver_config().clear()
        options.executor_config().clear()
        assert options.driver_config()["bootstrap.servers"] == "a:9092,b:9092"


class TestWriting:
    def test_topic_and_producer_settings_are_parsed(self) -> None:
        options = WriteOptions.parse(
            {**SERVERS, "TOPIC": "t", "includeheaders": "true", "gcfreeze": "false", "kafka.linger.ms": "5"},
            streaming=False,
        )
        assert (options.topic, options.include_headers, options.freeze_heap) == ("t", True, False)
        assert options.producer_config() == {"bootstrap.servers": "a:9092,b:9092", "linger.ms": "5"}
        plain = WriteOptions.parse(SERVERS, streaming=False)
        assert (plain.topic, plain.include_headers, plain.freeze_heap) == (None, False, True)

    @pytest.mark.parametrize(
        ("name", "value", "text"),
        [
            ("topic", " ", "option topic is empty"),
            ("startingOffsets", "latest", "has no meaning where Kafka is written; it is one of the source"),
            ("topics", "t", "did you mean 'topic'?"),
            ("includeHeaders", "maybe", "option includeHeaders must be true or false, not 'maybe'"),
            ("kafka.fetch.min.bytes", "1", "a kafka.* option is wrong: "),
            ("kafka.linger.m", "5", "did you mean 'linger.ms'?"),
            ("kafka.partitioner.class", "com.acme.Ours", "Java classes do not run here"),
            ("kafka.partitioner.class", "json.nothing", "has no attribute 'nothing'"),
        ],
    )
    def test_wrong_options_are_explained(self, name: str, value: str, text: str) -> None:
        with pytest.raises(ConfigError) as caught:
            WriteOptions.parse({**SERVERS, name: value}, streaming=True)
        assert text in str(caught.value)

    def test_options_that_spark_adds_are_ignored(self) -> None:
        added = {"checkpointLocation": "/c", "queryName": "q", "path": "/p", "outputMode": "append"}
        assert WriteOptions.parse({**SERVERS, **added}, streaming=True).topic is None


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=30), max_size=4), st.booleans())
def test_arbitrary_options_raise_only_config_errors(options: dict[str, str], streaming: bool) -> None:
    try:
        parsed = ReadOptions.parse({**SERVERS, "subscribe": "t", **options}, streaming=streaming)
    except ConfigError:
        return
    assert parsed.topics is not None


@given(
    st.sampled_from(["startingOffsets", "startingOffsetsByTimestamp", "assign", "subscribePattern", "maxTriggerDelay"]),
    st.text(alphabet='{}[]":,0123456789-.eE \\\nt()?*+^$|', max_size=25),
)
def test_arbitrary_values_raise_only_config_errors(name: str, value: str) -> None:
    given = {**SERVERS, name: value}
    if name not in {"assign", "subscribePattern"}:
        given["subscribe"] = "t"
    with contextlib.suppress(ConfigError):
        assert ReadOptions.parse(given, streaming=True).topics is not None


# --- what Spark's own source takes, too ------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("given", "idle_ms"),
    [
        ({"kafka.connections.max.idle.ms": "10000"}, 30_001),
        ({"kafka.request.timeout.ms": "600000"}, 600_001),
        ({"kafka.connections.max.idle.ms": "5000", "kafka.request.timeout.ms": "7000"}, 7_001),
        ({"kafka.connections.max.idle.ms": "-1"}, -1),
        ({"kafka.connections.max.idle.ms": "90000"}, 90_000),
    ],
)
def test_idle_connections_are_kept_for_longer_than_a_request(
    given: dict[str, str], idle_ms: int, streaming: bool
) -> None:
    options = ReadOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}, streaming=streaming)
    assert ConsumerConfig(options.executor_config())["connections.max.idle.ms"] == idle_ms
    noted = [note for note in options.notes if "connections.max.idle.ms" in note]
    assert bool(noted) == (0 < int(given.get("kafka.connections.max.idle.ms", "0")) < idle_ms)


@pytest.mark.parametrize("value", ["true", "false"])
def test_jmx_setting_is_ignored(value: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "kafka.auto.include.jmx.reporter": value}
    for options in (
        ReadOptions.parse({**given, "subscribe": "t"}, streaming=True),
        WriteOptions.parse({**given, "topic": "t"}, streaming=False),
    ):
        assert [note for note in options.notes if "auto.include.jmx.reporter has no effect" in note]


def test_timestamp_of_minus_one_is_the_end_of_the_log() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingTimestamp": "-1", "endingTimestamp": "-1"}
    options = ReadOptions.parse(given, streaming=False)
    never = GlobalTimestamp((1 << 63) - 1, "latest")
    assert (options.starting, options.ending) == (never, never)
    with pytest.raises(ConfigError, match="at least -1"):
        ReadOptions.parse({**given, "startingTimestamp": "-2"}, streaming=False)
