"""Three embedded brokers, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.embedded_kafka import EmbeddedKafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as cluster:
        yield cluster
