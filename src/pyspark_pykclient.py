"""Lets Spark find the data source without ``spark.dataSource.register``: Spark imports all modules named ``pyspark_*``.

If any one of them fails to import, whichever package it belongs to, Spark silently ignores them all. Registering the
class always works.
"""

from __future__ import annotations

from pykclient.spark.data_source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
