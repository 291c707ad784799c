"""Benchmark of our Spark data source and of Spark's own Kafka source: ``python -m benchmarks.spark``."""
