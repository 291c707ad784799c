"""Closes the consumers of fake clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.consumer.share.fake_share_brokers import FakeShareCluster


@pytest.fixture(autouse=True)
def _close_consumers() -> Iterator[None]:
    yield
    for cluster in FakeShareCluster.made:
        cluster.brokers.overrides.clear()
        cluster.consumer.close(timeout_ms=0)
    FakeShareCluster.made.clear()
