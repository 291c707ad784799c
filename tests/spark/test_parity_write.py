"""Both sinks write the same keys, values, headers, topics and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.kafka.cluster import KafkaCluster
from tests.spark.parity import BUILTIN, FORMATS, Kinds, load, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: 300 rows: keys and values that are null now and then, as text or bytes, a partition for some, one header or two.
_ROWS = """
SELECT concat('{topic}-', id % 2) AS topic,
       CASE WHEN id % 5 = 0 THEN NULL ELSE concat('clé ', id) END AS key,
       CASE WHEN id % 7 = 0 THEN NULL ELSE CAST(concat('value ', id) AS BINARY) END AS value,
       CASE WHEN id % 5 = 0 OR id % 3 = 0 THEN CAST(id % 4 AS INT) END AS partition,
       CASE WHEN id % 11 = 0 THEN NULL
            WHEN id % 2 = 0 THEN array(named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY)))
            ELSE array(named_struct('key', 'h', 'value', CAST('1' AS BINARY)),
                       named_struct('key', 'h', 'value', CAST(NULL AS BINARY))) END AS headers
FROM range(0, 300, 1, 3)
"""


def written(
    spark: SparkSession, kafka: KafkaCluster, prefix: str, format: str, query: str, **options: Any
) -> list[Any]:
    """Write ``query`` to two topics of four partitions; return the sorted records without offsets and timestamps."""
    topics = [kafka.create_topic(f"{prefix}-{format}-{number}", 4) for number in range(2)]
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}
    frame = spark.sql(query.format(topic=f"{prefix}-{format}"))
    frame.write.format(format).options(**given).mode("append").save()
    rows = rows_of(load(spark, kafka, BUILTIN, {"subscribe": ",".join(topics), "includeHeaders": True}))
    return sorted((row[2].rsplit("-", 1)[1], row[3], row[1] or b"", row[0] or b"", str(row[7])) for row in rows)


def test_all_columns_are_written_alike(spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, topic: str) -> None:
    theirs, ours = (written(spark, kafka, topic, format, _ROWS, includeHeaders=True) for format in FORMATS)
    assert len(theirs) == 300
    assert ours == theirs


def test_both_sinks_write_all_rows_to_the_option_topic(
    spark: SparkSession, kafka: KafkaCluster, kinds: Kinds, topic: str
) -> None:
    query = "SELECT 'elsewhere' AS topic, CAST(id AS STRING) AS key, 'v' AS value FROM range(0, 50, 1, 2)"
    theirs, ours = (
        written(spark, kafka, topic, format, query, topic=f"{topic}-{format}-0", **{"kafka.compression.type": "zstd"})
        for format in FORMATS
    )
    assert len(theirs) == 50
    assert ours == theirs
