"""Spark finds data sources in modules named ``pyspark_*``: with this one no ``spark.dataSource.register`` is needed.

One such module that cannot be imported, anybody's, hides all of them, without a word. Registering the class is the sure
way.
"""

from __future__ import annotations

from pykclient.spark.data_source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
