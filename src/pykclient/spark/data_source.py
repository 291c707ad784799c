"""The class that Spark knows: what is read and written in the format ``pykclient``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pykclient.errors import ConfigError
from pykclient.spark.options import ReadOptions, WriteOptions
from pykclient.spark.schema import COLUMNS, column_names, ddl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

#: Spark's worker that pushes filters; where it runs, pushing them is switched on.
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"

#: What SQL's CREATE TABLE has among its table's properties, and what is in front of those that are options.
_PROVIDER, _OPTION = "provider", "option."


class KafkaDataSource(DataSource):
    """Reads from and writes to Kafka, in batches and in streams (Spark: KafkaSourceProvider).

    Takes the options of Spark's own source and returns its columns; docs/spark.md has the table. Spark pickles an
    instance by the name of its class, so pykclient must be installed wherever Python workers run.

    A schema given by the user (``.schema("value binary")``) chooses columns, as the option ``columns`` does.
    Spark's own source takes none.

    Thread: owner.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format. It cannot be ``kafka``: Spark keeps that for its own source, there or not."""
        return "pykclient"

    def schema(self) -> str:
        """The columns, as DDL. All options are checked here, when ``load`` is called.

        Spark does not say yet whether a batch or a stream is wanted, so what only one of the two allows is refused
        later, when the query is planned. Where the user gave a schema Spark does not ask for ours, and all options are
        checked then.

        Raises ConfigError naming the option that is unknown, missing or wrong.
        """
        options: Mapping[str, str] = self.options
        if _PROVIDER in options and not (options := _options_of_table(options)):
            return ddl([name for name in COLUMNS if name != "headers"])
        return ddl(column_names(_parse_for_either(options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for one batch query. Raises ConfigError for options and for a schema that is not of our columns."""
        from pykclient.spark.batch_reader import (
            KafkaBatchReader,
            KafkaBatchReaderWithPushdown,
            checked_columns,
            keeps_filters_apart,
        )

        options, columns = ReadOptions.parse(self.options, streaming=False), checked_columns(schema)
        pushes = keeps_filters_apart() if options.push_filters is None else options.push_filters
        # Spark refuses a reader that could push filters wherever that is switched off, which it is by default.
        kind = KafkaBatchReaderWithPushdown if pushes and _PUSHING in sys.modules else KafkaBatchReader
        return kind(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader for one streaming query. Its first use, not this call, raises for options and schema.

        An error here would reach the user as an ``UnboundLocalError`` of Spark's own.
        """
        from pykclient.spark.stream_reader import KafkaStreamReader

        return KafkaStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of one batch query. Raises ConfigError for options, IllegalArgumentError for columns and mode."""
        from pykclient.spark.writer import KafkaWriter

        return KafkaWriter(WriteOptions.parse(self.options, streaming=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A writer of one streaming query. Raises ConfigError for options, IllegalArgumentError for columns."""
        from pykclient.spark.writer import KafkaStreamWriter

        return KafkaStreamWriter(WriteOptions.parse(self.options, streaming=True), schema, overwrite)


def _options_of_table(properties: Mapping[str, str]) -> dict[str, str]:
    """The options among the properties of a table that is being created.

    They decide about the columns, and are to be right; when the table is read Spark hands over none of them.
    """
    return {name.removeprefix(_OPTION): value for name, value in properties.items() if name.startswith(_OPTION)}


def _parse_for_either(options: Mapping[str, str]) -> ReadOptions:
    """The options as a stream or as a batch has them. Raises ConfigError where neither may have them."""
    try:
        return ReadOptions.parse(options, streaming=True)
    except ConfigError as error:
        in_stream = error
    try:
        return ReadOptions.parse(options, streaming=False)
    except ConfigError as in_batch:
        if str(in_batch) == str(in_stream):
            raise
        raise ConfigError(f"{in_batch} (read as a batch); {in_stream} (read as a stream)", in_batch.key) from None
