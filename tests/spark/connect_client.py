"""A program with the Spark Connect client: ``python -m tests.spark.connect_client URL SERVERS TOPIC FOLDER``.

Writes 60 records to a topic, reads them as a batch and as a stream into Parquet, copies them exactly once, and prints
what it read as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pykclient.spark import has_shuffle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark 4.1 lets no Python data source limit a micro-batch.
LIMITS = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None


def main(url: str, servers: str, topic: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    from pykclient.spark import KafkaDataSource

    spark = SparkSession.builder.remote(url).getOrCreate()
    try:
        spark.dataSource.register(KafkaDataSource)
        print(json.dumps(answers(spark, servers, topic, Path(folder))))
    finally:
        spark.stop()


def answers(spark: SparkSession, servers: str, topic: str, folder: Path) -> dict[str, Any]:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    made = spark.sql("SELECT CAST(id % 7 AS STRING) AS key, CAST(id AS STRING) AS value FROM range(0, 60, 1, 3)")
    made.write.format("pykclient").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()
    batch = spark.read.format("pykclient").options(**options).load()
    exactly_once = {
        "kafka.bootstrap.servers": servers,
        "topic": f"{topic}-copy",
        "delivery": "exactly-once",
        "transactionalIdPrefix": f"{topic}-copy",
        "ledgerTopic": f"{topic}-ledger",
        "checkpointLocation": str(folder / "copying"),
    }
    copied = spark.readStream.format("pykclient").options(**options).load().select("value")
    copy = copied.writeStream.format("pykclient").options(**exactly_once).trigger(availableNow=True).start()
    assert copy.awaitTermination(100)
    committed = {**options, "subscribe": f"{topic}-copy", "kafka.isolation.level": "read_committed"}
    limit = {"maxOffsetsPerTrigger": "25"} if LIMITS else {}
    stream = spark.readStream.format("pykclient").options(**options, **limit).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.option("path", str(folder / "rows")).trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    return {
        "client": type(spark).__module__,
        "batch": values(batch),
        "copy": values(spark.read.format("pykclient").options(**committed).load()),
        "stream": values(spark.read.parquet(str(folder / "rows"))),
        "shuffles": [has_shuffle(stream), has_shuffle(stream.repartition(3))],
        "micro-batches": [progress.numInputRows for progress in query.recentProgress if progress.numInputRows],
        "refusal": refusal(spark.read.format("pykclient").options(**options, startingOffset="earliest")),
    }


def values(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def refusal(reader: Any) -> str:
    from pyspark.errors import PySparkException

    try:
        reader.load().count()
    except PySparkException as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
