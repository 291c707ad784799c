"""Our data source for Spark beside the Kafka source that comes with it: ``python -m benchmarks.spark``."""
