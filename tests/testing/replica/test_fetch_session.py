"""Fetch sessions: the broker's half alone, and together with the consumer's (KIP-227)."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from pykclient.consumer.fetch_request_manager import FetchSessionHandler, PartitionData
from pykclient.log_context import LogContext
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.testing.replica.fetch_session import (
    FetchContext,
    FetchManager,
    FetchPartitionData,
    FetchPosition,
    FetchSession,
    FetchSessionCache,
    FollowerFetchSession,
    FullFetchContext,
    IncrementalFetchContext,
    PartitionFetch,
    next_epoch,
)
from pykclient.types import TopicPartition
from tests.support.examples import examples

IDS = {f"topic{n}": UUID(int=n + 1) for n in range(3)}
NAMES = {id: name for name, id in IDS.items()}
ALL = [TopicPartition(name, index) for name in IDS for index in range(2)]

ID_NOT_FOUND = 70
INVALID_EPOCH = 71
TOPIC_ID_ERROR = 106


def manager(max_sessions: int = 10) -> FetchManager:
    broker = SimpleNamespace(loop=SimpleNamespace(now_ms=1_000), rng=random.Random(1))
    return FetchManager(cast(Any, broker), max_sessions)


def fetch(tp: TopicPartition, offset: int = 0, topic_id: UUID | None = None) -> PartitionFetch:
    return PartitionFetch(tp, offset, 1_000, topic_id=topic_id or IDS[tp.topic])


def data(high_watermark: int = 0, size: int = 0, error_code: int = 0) -> FetchPartitionData:
    return FetchPartitionData(error_code, high_watermark, high_watermark, 0, (b"x" * size,) if size else (), size)


def context(
    sessions: FetchManager,
    id: int,
    epoch: int,
    *fetches: PartitionFetch,
    forgotten: list[TopicPartition] | None = None,
    version: int = 13,
) -> FetchContext:
    keys: list[Any] = [(IDS[tp.topic] if version >= 13 else tp.topic, tp.partition) for tp in forgotten or []]
    return sessions.new_context(version, id, epoch, fetches, keys, NAMES.get, is_from_follower=False)


def answer(found: FetchContext, **by_name: FetchPartitionData) -> tuple[int, int, list[TopicPartition]]:
    results = [(part, by_name.get(part.topic_partition.topic, data())) for part in found.partitions]
    id, error, news = found.update_and_generate_response(results)
    return id, error, [part.topic_partition for part, _ in news]


A, B = TopicPartition("topic0", 0), TopicPartition("topic1", 0)


def test_session_returns_only_changes() -> None:
    sessions = manager()
    id, error, news = answer(context(sessions, 0, 0, fetch(A), fetch(B)))
    assert (error, news) == (0, [A, B])
    assert id in sessions.cache
    assert answer(context(sessions, id, 1)) == (id, 0, [])
    assert answer(context(sessions, id, 2), topic1=data(1)) == (id, 0, [B])
    assert answer(context(sessions, id, 3), topic1=data(1)) == (id, 0, [])
    assert answer(context(sessions, id, 4), topic0=data(0, size=5), topic1=data(1)) == (id, 0, [A])


def test_new_leader_epoch_repeats_the_high_watermark() -> None:
    """A follower drops the response of an earlier epoch, so it has not seen the high watermark in it."""
    sessions = manager()
    again = fetch(A)
    again.current_leader_epoch = 1
    id, _, _ = answer(context(sessions, 0, 0, fetch(A), fetch(B)), topic0=data(5), topic1=data(5))
    assert answer(context(sessions, id, 1, again), topic0=data(5), topic1=data(5)) == (id, 0, [A])
    assert answer(context(sessions, id, 2), topic0=data(5), topic1=data(5)) == (id, 0, [])


def test_errors_are_repeated_until_they_end() -> None:
    sessions = manager()
    id, _, _ = answer(context(sessions, 0, 0, fetch(A)))
    for epoch in (1, 2):
        assert answer(context(sessions, id, epoch), topic0=FetchPartitionData(6)) == (id, 0, [A])
    assert answer(context(sessions, id, 3)) == (id, 0, [A])
    assert answer(context(sessions, id, 4)) == (id, 0, [])


def test_wrong_session_epoch_is_refused() -> None:
    sessions = manager()
    id, _, _ = answer(context(sessions, 0, 0, fetch(A)))
    assert answer(context(sessions, id, 2)) == (0, INVALID_EPOCH, [])
    assert answer(context(sessions, id + 1, 1)) == (0, ID_NOT_FOUND, [])
    assert answer(context(sessions, id, 1)) == (id, 0, [])


def test_older_of_two_concurrent_requests_is_refused() -> None:
    sessions = manager()
    id, _, _ = answer(context(sessions, 0, 0, fetch(A)))
    first = context(sessions, id, 1)
    context(sessions, id, 2)
    assert answer(first) == (0, INVALID_EPOCH, [])


def test_session_uses_either_names_or_ids() -> None:
    sessions = manager()
    by_id, _, _ = answer(context(sessions, 0, 0, fetch(A)))
    assert answer(context(sessions, by_id, 1, version=12)) == (0, TOPIC_ID_ERROR, [])
    by_name, _, _ = answer(context(sessions, 0, 0, fetch(A), version=12))
    assert answer(context(sessions, by_name, 1, version=13)) == (0, TOPIC_ID_ERROR, [])
    assert answer(context(sessions, by_name, 1, version=12)) == (by_name, 0, [])


def test_changed_and_forgotten_partitions_are_applied() -> None:
    sessions = manager()
    id, _, _ = answer(context(sessions, 0, 0, fetch(A), fetch(B)))
    found = context(sessions, id, 1, fetch(A, 7), forgotten=[B])
    assert [(part.topic_partition, part.fetch_offset) for part in found.partitions] == [(A, 7)]
    emptied = context(sessions, id, 1 + 1, forgotten=[A])
    assert answer(emptied) == (0, 0, [])
    assert id not in sessions.cache


def test_topic_names_are_resolved_when_known() -> None:
    sessions = manager()
    unknown = PartitionFetch(TopicPartition("", 3), 0, 10, topic_id=IDS["topic2"])
    none: list[Any] = []
    found = sessions.new_context(13, 0, 0, [unknown], none, lambda _: None, is_from_follower=False)
    id, _, _ = answer(found)
    assert sessions.new_context(13, id, 1, [], none, lambda _: None, is_from_follower=False).partitions[0]
    later = sessions.new_context(13, id, 2, [], none, NAMES.get, is_from_follower=False)
    assert later.partitions[0].topic_partition == TopicPartition("topic2", 3)


def test_partitions_with_records_move_to_the_end() -> None:
    sessions = manager()
    id, _, _ = answer(context(sessions, 0, 0, fetch(A), fetch(B)))
    answer(context(sessions, id, 1), topic0=data(1, size=1))
    assert [part.topic_partition for part in context(sessions, id, 2).partitions] == [B, A]


def test_full_request_replaces_the_previous_session() -> None:
    sessions = manager()
    first, _, _ = answer(context(sessions, 0, 0, fetch(A)))
    second, _, _ = answer(context(sessions, first, 0, fetch(A)))
    assert first not in sessions.cache
    assert second in sessions.cache
    assert answer(context(sessions, second, -1, fetch(B))) == (0, 0, [B])
    assert len(sessions.cache) == 0


def test_old_versions_have_no_sessions() -> None:
    sessions = manager()
    assert answer(context(sessions, 0, -1, fetch(A), version=6)) == (0, 0, [A])
    assert len(sessions.cache) == 0


def test_request_epoch_selects_the_context_class() -> None:
    sessions = manager()
    full = context(sessions, 0, 0, fetch(A))
    assert isinstance(full, FullFetchContext)
    id, _, _ = answer(full)
    assert isinstance(context(sessions, id, 1), IncrementalFetchContext)


def session(id: int, now_ms: int, partitions: int = 1, *, follower: bool = False) -> FetchSession:
    cached: Any = dict.fromkeys(range(partitions))
    return FetchSession(id, cached, now_ms, is_from_follower=follower, uses_topic_ids=True)


def test_idle_session_is_evicted() -> None:
    cache = FetchSessionCache(1)
    assert cache.add(session(1, 0))
    assert not cache.add(session(2, 120_000))
    assert cache.add(session(3, 120_001))
    assert 1 not in cache


def test_follower_session_evicts_a_consumer_session() -> None:
    cache = FetchSessionCache(2)
    cache.add(session(1, 0, 5))
    cache.add(session(2, 0, 2))
    assert cache.add(session(3, 1, follower=True))
    assert 2 not in cache
    assert cache.add(session(4, 1, follower=True))
    assert not cache.add(session(5, 1, follower=True))


def test_larger_session_evicts_an_older_smaller_one() -> None:
    cache = FetchSessionCache(1)
    busy = session(1, 0, 2)
    cache.add(busy)
    cache.touch(busy, 100_000)
    assert not cache.add(session(2, 130_000, 2))
    assert not cache.add(session(3, 110_000, 3))
    assert cache.add(session(4, 130_000, 3))


def test_cache_of_size_zero_has_no_sessions() -> None:
    sessions = manager(0)
    assert answer(context(sessions, 0, 0, fetch(A)))[0] == 0


def test_session_epoch_wraps_to_one() -> None:
    assert next_epoch((1 << 31) - 1) == 1


# --- with the consumer's half ----------------------------------------------------------------------------------------


def response(id: int, error: int, news: Any, version: int = 13) -> FetchResponse:
    topics: dict[str, FetchResponse.FetchableTopicResponse] = {}
    for part, found in news:
        name, index = part.topic_partition
        topics.setdefault(
            name, FetchResponse.FetchableTopicResponse(topic=name, topic_id=part.topic_id)
        ).partitions.append(FetchResponse.PartitionData(partition_index=index, high_watermark=found.high_watermark))
    return FetchResponse(error_code=error, session_id=id, responses=topics.values())


Round = tuple[dict[TopicPartition, int], dict[TopicPartition, int], str]
rounds = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(ALL), st.integers(0, 3), max_size=6),  # wanted partitions, their offsets
        st.dictionaries(st.sampled_from(ALL), st.integers(0, 5), max_size=4),  # changed high watermarks
        st.sampled_from(["ok"] * 6 + ["answer lost", "request lost", "evicted", "closed"]),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=examples(150), deadline=None)
@given(rounds)
def test_broker_and_consumer_sessions_agree(steps: list[Round]) -> None:
    """After any changes and losses, the broker reads what the consumer wants, and the consumer misses no update."""
    sessions = manager()
    consumer = FetchSessionHandler(LogContext(), 1)
    high_watermarks = dict.fromkeys(ALL, 0)
    known: dict[TopicPartition, int] = {}
    for wanted, moved, fate in steps:
        high_watermarks |= moved
        request = consumer.build({tp: PartitionData(IDS[tp.topic], offset, 0, 1_000) for tp, offset in wanted.items()})
        if fate == "request lost":
            consumer.handle_error(ConnectionError("lost"))
            continue
        if fate == "evicted":
            sessions.cache.pop(request.metadata.session_id, None)
        forgotten: list[Any] = [
            (gone.topic_id, gone.topic_partition.partition) for gone in [*request.to_forget, *request.to_replace]
        ]
        found = sessions.new_context(
            13,
            request.metadata.session_id,
            request.metadata.epoch,
            [fetch(tp, part.fetch_offset) for tp, part in request.to_send.items()],
            forgotten,
            NAMES.get,
            is_from_follower=False,
        )
        if fate == "evicted" and not request.metadata.is_full:
            assert found.error_code == ID_NOT_FOUND
        else:
            assert found.error_code == 0
            assert {part.topic_partition: part.fetch_offset for part in found.partitions} == wanted
        results = [(part, data(high_watermarks[part.topic_partition])) for part in found.partitions]
        reply = response(*found.update_and_generate_response(results))
        if fate == "answer lost":
            consumer.handle_error(ConnectionError("lost"))
            continue
        partitions = consumer.handle_response(reply, 13)
        if found.error_code:
            assert partitions is None
            continue
        assert partitions is not None
        known = {tp: offset for tp, offset in known.items() if tp in wanted}
        known |= {tp: part.high_watermark for tp, part in partitions.items()}
        assert known == {tp: high_watermarks[tp] for tp in wanted}
        if fate == "closed":
            consumer.notify_close()
            known = {}
    assert len(sessions.cache) <= 1 + len(steps)


# --- with the follower's half ----------------------------------------------------------------------------------------


@settings(max_examples=examples(150), deadline=None)
@given(rounds)
def test_follower_and_leader_sessions_agree(steps: list[Round]) -> None:
    sessions = manager()
    follower = FollowerFetchSession()
    wanted_before: dict[TopicPartition, int] = {}
    changed: set[TopicPartition] = set()
    for wanted, _, fate in steps:
        changed |= {tp for tp in ALL if wanted.get(tp) != wanted_before.get(tp)}
        wanted_before = wanted
        request = FetchRequest()
        names = list(wanted) if follower.is_full else sorted(changed)
        changed.clear()
        positions = [(tp, FetchPosition(IDS[tp.topic], wanted[tp], 0, 0, 0) if tp in wanted else None) for tp in names]
        if not follower.build(request, positions, 1_000):
            assert not wanted
            continue
        if fate == "request lost":
            follower.handle_error()
            continue
        if fate == "evicted":
            sessions.cache.pop(request.session_id, None)
        forgotten: list[Any] = [
            (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
        ]
        fetches = [
            fetch(TopicPartition(NAMES[topic.topic_id], part.partition), part.fetch_offset)
            for topic in request.topics
            for part in topic.partitions
        ]
        found = sessions.new_context(
            13, request.session_id, request.session_epoch, fetches, forgotten, NAMES.get, is_from_follower=True
        )
        if not found.error_code:
            assert {part.topic_partition: part.fetch_offset for part in found.partitions} == wanted
        reply = response(*found.update_and_generate_response([(part, data()) for part in found.partitions]))
        if fate == "answer lost":
            follower.handle_error()
            continue
        assert follower.handle_response(reply) == (found.error_code == 0)
        assert all(follower.topic_name(IDS[tp.topic]) == tp.topic for tp in wanted)


@pytest.mark.parametrize("code", [ID_NOT_FOUND, INVALID_EPOCH, 56])
def test_follower_restarts_its_session_after_an_error(code: int) -> None:
    follower = FollowerFetchSession()
    follower.handle_response(FetchResponse(session_id=5))
    assert not follower.is_full
    assert not follower.handle_response(FetchResponse(error_code=code))
    assert follower.is_full
