"""The data source class that Spark uses for the format ``pykclient``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pykclient.errors import ConfigError
from pykclient.spark.options import EXACTLY_ONCE, ReadOptions, WriteOptions
from pykclient.spark.schema import COLUMNS, ddl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from pykclient.spark.formats import Formats

#: Spark's worker that pushes filters. It is loaded only if filter pushdown is enabled.
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"

#: A property that SQL's CREATE TABLE adds, and the prefix of the properties that are options.
_PROVIDER, _OPTION = "provider", "option."


class KafkaDataSource(DataSource):
    """Reads from and writes to Kafka, in batches and in streams (Spark: KafkaSourceProvider).

    It takes the options of Spark's own source and returns its columns; docs/spark.md has the table. Spark pickles an
    instance by the name of its class, so pykclient must be installed wherever Python workers run.

    A user's schema (``.schema("value binary")``) selects columns, as the option ``columns`` does. Spark's own source
    refuses a schema.

    Thread: owner.
    """

    #: The formats of the columns that are decoded, as resolved by ``schema``. Spark pickles them with the instance.
    _formats: Formats | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format. ``kafka`` is reserved for Spark's own source, installed or not."""
        return "pykclient"

    def schema(self) -> str:
        """Return the columns as DDL, and check all options. Called by ``load``.

        Spark does not tell yet whether the query is a batch or a stream. Options that only one of the two allows are
        therefore refused later, when the query is planned. With a user's schema Spark does not call this method, and
        all options are checked then.

        Raises:
            ConfigError: An option is unknown, missing or wrong; the text names it.
            KafkaError: A schema registry does not answer, or its schema cannot be columns.
        """
        options: Mapping[str, str] = self.options
        if _PROVIDER in options and not (options := _options_of_table(options)):
            return ddl([name for name in COLUMNS if name != "headers"])
        parsed = _parse_for_either(options)
        if not parsed.formats:
            return ddl(parsed.column_names)
        from pykclient.spark.formats import column_formats, column_types

        self._formats = column_formats(parsed)
        return ddl(parsed.column_names, {**COLUMNS, **column_types(self._formats)})

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for one batch query.

        Raises:
            ConfigError: An option is wrong, or the schema has other columns than the format.
        """
        from pykclient.spark.batch_reader import (
            KafkaBatchReader,
            KafkaBatchReaderWithPushdown,
            checked_formats,
            keeps_filters_apart,
        )

        options = ReadOptions.parse(self.options, streaming=False)
        columns, formats = checked_formats(schema, options, self._formats)
        pushes = keeps_filters_apart() if options.push_filters is None else options.push_filters
        # Spark refuses a reader with pushFilters if pushdown is disabled, which is the default.
        kind = KafkaBatchReaderWithPushdown if pushes and _PUSHING in sys.modules else KafkaBatchReader
        return kind(options, columns, formats)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader for one streaming query. Errors in options and schema are raised on its first use.

        The user would see an error raised here as an unrelated ``UnboundLocalError`` of Spark.
        """
        from pykclient.spark.stream_reader import KafkaStreamReader

        return KafkaStreamReader(self.options, schema, formats=self._formats)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer for one batch query.

        Raises:
            ConfigError: An option is wrong.
            IllegalArgumentError: The columns or the save mode cannot be written.
        """
        options = WriteOptions.parse(self.options, streaming=False)
        if options.delivery == EXACTLY_ONCE:
            from pykclient.spark.transactional_writer import TransactionalWriter

            return TransactionalWriter(options, schema, overwrite)
        from pykclient.spark.writer import KafkaWriter

        return KafkaWriter(options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return a writer for one streaming query.

        Raises:
            ConfigError: An option is wrong.
            IllegalArgumentError: The columns cannot be written.
        """
        options = WriteOptions.parse(self.options, streaming=True)
        if options.by_task:
            from pykclient.spark.transactional_writer import CommittingStreamWriter

            return CommittingStreamWriter(options, schema, overwrite)
        if options.delivery == EXACTLY_ONCE:
            from pykclient.spark.transactional_writer import TransactionalStreamWriter

            return TransactionalStreamWriter(options, schema, overwrite)
        from pykclient.spark.writer import KafkaStreamWriter

        return KafkaStreamWriter(options, schema, overwrite)


def _options_of_table(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options among the properties of a table that is being created.

    They select the columns and are checked. When the table is read, Spark does not pass them on.
    """
    return {name.removeprefix(_OPTION): value for name, value in properties.items() if name.startswith(_OPTION)}


def _parse_for_either(options: Mapping[str, str]) -> ReadOptions:
    """Return the options as parsed for a stream or for a batch. Raises ConfigError if both refuse them."""
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
