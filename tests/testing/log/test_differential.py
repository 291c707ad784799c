"""The embedded broker responds like a real one to any requests for a partition, in any order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pykclient.record.compression import Compression
from pykclient.record.memory_records import MemoryRecords
from tests.kafka.cluster import KafkaCluster
from tests.support.embedded_kafka import EmbeddedKafka
from tests.support.wait import eventually
from tests.testing.handlers.raw_client import RawClient
from tests.testing.log.support import batch
from tests.testing.log.test_as_kafka import Partition

_TIMES = st.sampled_from((-1, 100, 200, 300, 400, 500))
_KEYS = st.sampled_from((None, b"", b"a", b"b"))
_VALUES = st.sampled_from((None, b"", b"x", b"y" * 100))
_PRODUCERS = st.one_of(
    st.just((-1, -1, -1)),
    st.tuples(st.sampled_from((1001, 1002)), st.integers(0, 2), st.sampled_from((0, 1, 2, 3, 4, (1 << 31) - 1))),
)
_PRODUCE = st.tuples(
    st.just("produce"),
    st.lists(st.tuples(_TIMES, _KEYS, _VALUES), min_size=1, max_size=3),
    st.sampled_from(("none", "none", "gzip", "lz4")),
    _PRODUCERS,
)
_STEPS = st.lists(
    st.one_of(
        _PRODUCE,
        _PRODUCE,
        st.tuples(st.just("list"), st.one_of(st.integers(-7, 0), st.integers(1, 600)), st.integers(1, 11)),
        st.tuples(st.just("fetch"), st.integers(0, 14), st.integers(1, 600)),
        st.tuples(st.just("delete"), st.integers(-2, 14)),
        st.tuples(st.just("epoch"), st.integers(-1, 2), st.integers(-1, 1)),
    ),
    max_size=14,
)
_number = itertools.count()


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1) as cluster:
        yield cluster


def leads(partition: Partition) -> bool:
    """Return whether the broker already leads the partition."""
    return partition.list_offset(-1)[0] == 0


def ask(partition: Partition, step: tuple[Any, ...]) -> object:
    """Send the request of a step and return the broker's response."""
    kind, *arguments = step
    if kind == "produce":
        records, codec, producer = arguments
        data = batch(
            [(key, value) for _, key, value in records],
            timestamps=[time for time, _, _ in records],
            compression=Compression.of(codec),
            producer=producer,
        )
        answer = partition.produce(data)
        indexes = [error.batch_index for error in answer.record_errors]
        return answer.error_code, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset, indexes
    if kind == "list":
        return partition.list_offset(*arguments)
    if kind == "delete":
        return partition.delete_records(*arguments)
    if kind == "epoch":
        return partition.end_of_epoch(*arguments)
    found = partition.fetch(*arguments)
    whole = [bytes(one.buffer) for one in MemoryRecords(found.records or b"").batches()]
    return found.error_code, found.high_watermark, found.last_stable_offset, found.log_start_offset, whole


def test_random_requests_get_equal_responses(kafka: KafkaCluster, embedded: EmbeddedKafka) -> None:
    with RawClient(kafka.bootstrap_servers) as real_client, RawClient(embedded.bootstrap_servers) as our_client:

        @settings(max_examples=40)
        @given(_STEPS, st.sampled_from(("delete", "delete", "compact", "compact,delete", "")))
        def same(steps: list[tuple[Any, ...]], cleanup_policy: str) -> None:
            # The real broker's cleaner does not touch a log that has only one segment.
            config = {"retention.ms": -1, "cleanup.policy": cleanup_policy}
            name = f"differential-{next(_number)}"
            real = Partition(real_client, kafka.create_topic(name, config=config))
            ours = Partition(our_client, embedded.create_topic(name, config=config))
            for one in (ours, real):
                # Metadata may name a leader before the broker itself knows that it leads.
                eventually(partial(leads, one), 30.0, "a leader")
            for step in steps:
                assert ask(ours, step) == ask(real, step), step
            assert ours.stored() == real.stored()

        same()
