from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from pykclient.consumer.values import ConsumerInterceptors
from pykclient.log_context import LogContext
from pykclient.types import OffsetAndMetadata, TopicPartition


class Adds:
    def __init__(self, name: str) -> None:
        self.name = name
        self.commits: list[Any] = []
        self.closed = False

    def on_consume(self, records: list[str]) -> list[str]:
        return [*records, self.name]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(offsets)

    def close(self) -> None:
        self.closed = True


class Fails(Adds):
    def on_consume(self, records: list[str]) -> list[str]:
        raise RuntimeError("on_consume")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("on_commit")

    def close(self) -> None:
        raise RuntimeError("close")


def test_chain_continues_after_a_failure_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    first, last = Adds("first"), Adds("last")
    interceptors = ConsumerInterceptors([first, Fails("x"), last, object()], LogContext("[c] "))
    offsets = {TopicPartition("a", 0): OffsetAndMetadata(1)}
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert interceptors.on_consume(["r"]) == ["r", "first", "last"]
            interceptors.on_commit(offsets)
        interceptors.close()
    assert last.commits == [offsets] * 3
    assert last.closed
    assert [record.getMessage().split()[1] for record in caplog.records] == [
        "Fails.on_consume",
        "Fails.on_commit",
        "Fails.close",
    ]
    assert not interceptors.is_empty
    assert ConsumerInterceptors([], LogContext()).is_empty
