"""Fixtures of the Spark tests. The session is in tests/conftest.py, because other tests use it, too."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator

import pytest

from tests.kafka.cluster import KafkaCluster
from tests.spark import builtin
from tests.spark.parity import Kinds

#: Spark 4.1 knows no limits of what a micro-batch reads, which these tests hand to the reader.
collect_ignore = [] if importlib.util.find_spec("pyspark.sql.streaming.datasource") else ["test_stream_reader.py"]


@pytest.fixture(scope="session")
def kinds(kafka: KafkaCluster) -> Iterator[Kinds]:
    """Topics of all kinds on real Kafka, for both sources. Tests must not write to them."""
    if not builtin.has_builtin():
        pytest.skip("there is no Kafka source of this Spark to compare with")
    with Kinds(kafka, f"kinds-{uuid.uuid4().hex[:8]}").filled() as filled:
        yield filled
