"""Access to the classes of Spark's own Kafka source, for their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pykclient.spark.ranges import OffsetRange
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KAFKA = "org.apache.spark.sql.kafka010."


class Oracle:
    """Spark's own source in the JVM of a session. Thread: owner."""

    def __init__(self, session: SparkSession) -> None:
        context: Any = session.sparkContext
        self._gateway = context._gateway
        self._jvm = context._jvm
        self._classes = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._none = self._jvm.scala.Option.apply(None)

    def _new(self, name: str, *arguments: Any) -> Any:
        """Create an instance of a class with one constructor, whose name is no Python identifier."""
        (constructor,) = self._jvm.java.lang.Class.forName(_KAFKA + name, True, self._classes).getConstructors()
        return constructor.newInstance(self._array(arguments))

    def _call(self, target: Any, name: str, *arguments: Any) -> Any:
        """Call a private method with a unique name."""
        (method,) = [each for each in target.getClass().getDeclaredMethods() if each.getName() == name]
        method.setAccessible(True)
        return method.invoke(target, self._array(arguments))

    def _array(self, items: Sequence[Any]) -> Any:
        array = self._gateway.new_array(self._jvm.java.lang.Object, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def _options(self, options: Mapping[str, object]) -> Any:
        made = self._jvm.java.util.HashMap()
        for name, value in options.items():
            made.put(name, str(value))
        return self._jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(made)

    def _sequence(self, items: Sequence[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(made).toSeq()

    def split(
        self, ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
    ) -> list[OffsetRange]:
        """Return the ranges into which KafkaOffsetRangeCalculator splits ``ranges``."""
        given = {"minPartitions": min_partitions, "maxRecordsPerPartition": max_records}
        options = self._options({name: value for name, value in given.items() if value is not None})
        package = self._jvm.org.apache.spark.sql.kafka010
        there = [
            package.KafkaOffsetRange(
                self._jvm.org.apache.kafka.common.TopicPartition(*each.topic_partition),
                *(self._jvm.java.lang.Long.parseLong(str(offset)) for offset in (each.start, each.end)),
                self._none,
            )
            for each in ranges
        ]
        found = package.KafkaOffsetRangeCalculator.apply(options).getRanges(self._sequence(there), self._sequence(()))
        return [
            OffsetRange(TopicPartition(each.topic(), each.partition()), each.fromOffset(), each.untilOffset())
            for each in self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(found)
        ]

    def rate_limit(
        self, limit: int, start: Mapping[TopicPartition, int], until: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the end of KafkaMicroBatchStream's micro-batch. All partitions must be in ``start``."""
        assert until.keys() <= start.keys()
        stream = self._scan({"subscribe": "t", "startingOffsets": "earliest"}).toMicroBatchStream("unused")
        stream.prepareForTriggerAvailableNow()
        latest = stream.deserializeOffset(_text(until)).partitionToOffsets()
        self._call(stream, "allDataForTriggerAvailableNow_$eq", latest)  # instead of asking a cluster
        limits = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        end = stream.latestOffset(stream.deserializeOffset(_text(start)), limits.maxRows(limit))
        return {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in json.loads(end.json()).items()
            for partition, offset in partitions.items()
        }

    def _scan(self, options: Mapping[str, object]) -> Any:
        given = {"kafka.bootstrap.servers": "127.0.0.1:1", **options}
        provider = self._jvm.org.apache.spark.sql.kafka010.KafkaSourceProvider()
        return self._new("KafkaSourceProvider$KafkaScan", provider, self._options(given))

    def refusal(self, options: Mapping[str, object], *, streaming: bool) -> str | None:
        """Return KafkaSourceProvider's error for the options of a query; None if it accepts them."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors.exceptions.captured import CapturedException

        try:
            scan = self._scan(options)
            if streaming:
                scan.toMicroBatchStream("unused")
            else:
                scan.toBatch()
        except Py4JJavaError as error:
            cause = error.java_exception
            return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
        except CapturedException as error:  # errors for which PySpark has classes
            return f"{type(error).__name__}: {error}"
        return None

    def time_ms(self, text: str) -> int | None:
        """Return the milliseconds as which Spark parses a time; None if it refuses it."""
        from pyspark.errors.exceptions.captured import NumberFormatException

        try:
            return int(self._jvm.org.apache.spark.network.util.JavaUtils.timeStringAsMs(text))
        except NumberFormatException:
            return None

    def found(self, pattern: str, text: str) -> bool:
        """Return True if Java finds ``pattern`` in ``text``."""
        return bool(self._jvm.java.util.regex.Pattern.compile(pattern).matcher(text).find())


def _text(offsets: Mapping[TopicPartition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)
