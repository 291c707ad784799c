"""The client side of fetch sessions, against a model of the broker side (Java: FetchSessionHandlerTest)."""

from __future__ import annotations

import uuid
from uuid import UUID

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pykclient import errors
from pykclient.consumer.fetch_request_manager import (
    INITIAL,
    FetchMetadata,
    FetchRequestBuilder,
    FetchRequestData,
    FetchSessionHandler,
    PartitionData,
)
from pykclient.consumer.values import FetchConfig
from pykclient.log_context import LogContext
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.wire import ZERO_UUID, Reader, Writer
from pykclient.types import TopicPartition
from tests.consumer.responses import fetch_response, partition_data, topic_id
from tests.support.examples import examples

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
LATEST = FetchRequest.VERSIONS[1]


def wanted(tp: TopicPartition, offset: int = 0, id: UUID | None = None) -> PartitionData:
    return PartitionData(topic_id(tp.topic) if id is None else id, offset, 1000)


def build(handler: FetchSessionHandler, partitions: dict[TopicPartition, PartitionData]) -> FetchRequestData:
    return handler.build(partitions)


def answer(
    handler: FetchSessionHandler, *partitions: TopicPartition, session_id: int = 7, version: int = LATEST
) -> set[TopicPartition] | None:
    response = fetch_response({tp: partition_data(tp) for tp in partitions}, session_id=session_id)
    result = handler.handle_response(response, version)
    return None if result is None else set(result)


def test_session_epochs_increase_and_wrap() -> None:
    assert INITIAL.is_full
    assert FetchMetadata(7, -1).is_full
    assert FetchMetadata(7, 0).next_incremental() == FetchMetadata(7, 1)
    assert FetchMetadata(7, (1 << 31) - 1).next_incremental() == FetchMetadata(7, 1)
    assert FetchMetadata(7, -1).next_incremental() == FetchMetadata(7, -1)
    assert FetchMetadata(7, 4).next_close_existing() == FetchMetadata(7, -1)
    assert FetchMetadata(7, 4).next_close_existing_attempt_new() == FetchMetadata(7, 0)
    assert str(INITIAL) == "no session, epoch initial"


def test_brokers_without_sessions_get_full_requests() -> None:
    handler = FetchSessionHandler(LogContext(), 1)
    for offset in (0, 10):
        data = build(handler, {A0: wanted(A0, offset), A1: wanted(A1, offset)})
        assert (data.metadata, set(data.to_send)) == (INITIAL, {A0, A1})
        assert answer(handler, A0, A1, session_id=0) == {A0, A1}


def test_incremental_requests_name_differences() -> None:
    handler = FetchSessionHandler(LogContext(), 1)
    first = {A0: wanted(A0), A1: wanted(A1)}
    assert build(handler, first).to_send == first
    assert answer(handler, A0, A1) == {A0, A1}
    data = build(handler, {A0: wanted(A0), A1: wanted(A1, 5), B0: wanted(B0)})
    assert data.metadata == FetchMetadata(7, 1)
    assert data.to_send == {A1: wanted(A1, 5), B0: wanted(B0)}
    assert set(data.session_partitions) == {A0, A1, B0}
    assert answer(handler, A1) == {A1}
    data = build(handler, {B0: wanted(B0)})
    assert (data.metadata, data.to_send) == (FetchMetadata(7, 2), {})
    assert set(data.session_partitions) == {B0}
    assert [partition.topic_partition for partition in data.to_forget] == [A0, A1]
    assert "2 forgotten" in str(data)
    assert answer(handler, session_id=0) == set()
    assert build(handler, {B0: wanted(B0)}).metadata == INITIAL


@pytest.mark.parametrize("version", [12, LATEST])
def test_response_with_wrong_partitions_is_refused(version: int) -> None:
    handler = FetchSessionHandler(LogContext(), 1)
    build(handler, {A0: wanted(A0), A1: wanted(A1)})
    assert answer(handler, A0, version=version) is None  # a full response that omits a partition
    assert build(handler, {A0: wanted(A0)}).metadata == INITIAL
    assert answer(handler, A0, B0, version=version) is None  # a response with a partition that was not requested
    build(handler, {A0: wanted(A0)})
    assert answer(handler, A0, version=version) == {A0}
    build(handler, {A0: wanted(A0)})
    assert answer(handler, B0, version=version) is None
    assert build(handler, {A0: wanted(A0)}).metadata == FetchMetadata(7, 0)


def test_response_with_unknown_topic_ids_is_refused() -> None:
    handler = FetchSessionHandler(LogContext(), 1)
    build(handler, {A0: wanted(A0)})
    assert answer(handler, A0) == {A0}
    build(handler, {A0: wanted(A0)})
    strange = fetch_response({A0: partition_data(A0)}, session_id=7, ids={"a": uuid.uuid4()})
    assert handler.handle_response(strange, LATEST) is None


def test_throttled_empty_response_starts_no_session() -> None:
    handler = FetchSessionHandler(LogContext(), 1)
    build(handler, {A0: wanted(A0)})
    assert handler.handle_response(fetch_response({}, throttle_ms=50), LATEST) is None
    assert build(handler, {A0: wanted(A0)}).metadata == INITIAL


def test_session_errors_restart_the_session() -> None:
    handler = FetchSessionHandler(LogContext(), 1)
    for code, expected in (
        (errors.FetchSessionIdNotFoundError.code, INITIAL),
        (errors.InvalidFetchSessionEpochError.code, FetchMetadata(7, 0)),
        (errors.FetchSessionTopicIdError.code, FetchMetadata(7, 0)),
    ):
        handler = FetchSessionHandler(LogContext(), 1)
        build(handler, {A0: wanted(A0)})
        answer(handler, A0)
        build(handler, {A0: wanted(A0)})
        assert handler.handle_response(fetch_response({}, error_code=code), LATEST) is None
        assert build(handler, {A0: wanted(A0)}).metadata == expected
    handler.handle_error(errors.DisconnectError("gone"))
    assert build(handler, {A0: wanted(A0)}).metadata == FetchMetadata(7, 0)


def test_session_follows_appearing_and_missing_topic_ids() -> None:
    handler = FetchSessionHandler(LogContext(), 1)
    assert not build(handler, {A0: wanted(A0, id=ZERO_UUID)}).can_use_topic_ids
    assert answer(handler, A0, version=12) == {A0}
    data = build(handler, {A0: wanted(A0), B0: wanted(B0)})
    assert data.can_use_topic_ids
    assert set(data.to_send) == {A0, B0}
    assert data.to_replace == []  # may be the same topic: its id was unknown before
    assert answer(handler, A0, B0, version=LATEST) == {A0, B0}
    assert not build(handler, {A0: wanted(A0), B0: wanted(B0, id=ZERO_UUID)}).can_use_topic_ids
    assert answer(handler, A0, version=12) == {A0}
    # A partition without a topic id must be forgotten by name, which versions with ids cannot do.
    assert not build(handler, {A0: wanted(A0)}).can_use_topic_ids


def test_recreated_topic_is_replaced_in_the_session() -> None:
    handler = FetchSessionHandler(LogContext(), 1)
    build(handler, {A0: wanted(A0)})
    answer(handler, A0)
    other = uuid.uuid4()
    data = build(handler, {A0: wanted(A0, id=other)})
    assert data.to_send == {A0: wanted(A0, id=other)}
    assert [(each.topic_id, each.topic_partition) for each in data.to_replace] == [(topic_id("a"), A0)]
    assert data.to_forget == []


def test_close_sends_the_final_epoch() -> None:
    handler = FetchSessionHandler(LogContext(), 1)
    build(handler, {A0: wanted(A0)})
    answer(handler, A0)
    handler.notify_close()
    data = handler.build({})
    assert (data.metadata, data.to_send, data.to_forget) == (FetchMetadata(7, -1), {}, [])


# --- against a model of the broker -----------------------------------------------------------------------------------


class Broker:
    """A broker's session cache with one slot; it knows partitions by id and index from v13 on, and by name before."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.uses_ids = False
        self.partitions: dict[tuple[object, int], int] = {}
        self.next_session_id = 1

    def evict(self) -> None:
        self.session_id = 0
        self.partitions = {}

    def handle(self, request: FetchRequest, version: int, make_session: bool) -> FetchResponse:
        named: dict[tuple[object, int], int] = {
            (topic.topic_id if version >= 13 else topic.topic, partition.partition): partition.fetch_offset
            for topic in request.topics
            for partition in topic.partitions
        }
        if request.session_epoch in (0, -1):
            if request.session_id == self.session_id:
                self.evict()
            if make_session and request.session_epoch == 0:
                self.session_id, self.next_session_id = self.next_session_id, self.next_session_id + 1
                self.epoch, self.partitions, self.uses_ids = 1, dict(named), version >= 13
            return self._answer(named, version, self.session_id if make_session else 0)
        if not self.session_id or request.session_id != self.session_id:
            return FetchResponse(error_code=errors.FetchSessionIdNotFoundError.code)
        if request.session_epoch != self.epoch:
            return FetchResponse(error_code=errors.InvalidFetchSessionEpochError.code)
        if self.uses_ids != (version >= 13):
            return FetchResponse(error_code=errors.FetchSessionTopicIdError.code)
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self.partitions.pop((topic.topic_id if version >= 13 else topic.topic, partition), None)
        self.partitions.update(named)
        self.epoch += 1
        return self._answer(dict(list(self.partitions.items())[::2]), version, self.session_id)

    def _answer(self, partitions: dict[tuple[object, int], int], version: int, session_id: int) -> FetchResponse:
        return FetchResponse(
            session_id=session_id,
            responses=[
                FetchResponse.FetchableTopicResponse(
                    topic="" if version >= 13 else str(topic),
                    topic_id=topic if isinstance(topic, UUID) else ZERO_UUID,
                    partitions=[FetchResponse.PartitionData(partition_index=index)],
                )
                for topic, index in partitions
            ],
        )


class SessionMachine(RuleBasedStateMachine):
    """After each exchange that both sides accept, both have the same partitions at the same offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.handler = FetchSessionHandler(LogContext(), 1)
        self.broker = Broker()
        self.wanted: dict[TopicPartition, int] = {}
        self.ids = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2)}
        self.next_id = 3
        self.agreed = False
        self.last: FetchRequestData | None = None
        self.in_a_row = 0

    @rule(tp=st.sampled_from([A0, A1, B0]), offset=st.integers(0, 3))
    def want(self, tp: TopicPartition, offset: int) -> None:
        self.wanted[tp] = offset

    @rule(tp=st.sampled_from([A0, A1, B0]))
    def unwant(self, tp: TopicPartition) -> None:
        self.wanted.pop(tp, None)

    @rule(topic=st.sampled_from(["a", "b"]), known=st.booleans())
    def recreate(self, topic: str, known: bool) -> None:
        self.ids[topic] = uuid.UUID(int=self.next_id) if known else ZERO_UUID
        self.next_id += 1

    @rule()
    def evict(self) -> None:
        self.broker.evict()

    @precondition(lambda self: self.wanted)
    @rule(
        fate=st.sampled_from(["good", "good", "good", "lost request", "lost response", "no session"]),
        by_changes=st.booleans(),
    )
    def exchange(self, fate: str, by_changes: bool) -> None:
        partitions = {tp: wanted(tp, offset, self.ids[tp.topic]) for tp, offset in self.wanted.items()}
        if self.handler.next_is_incremental and by_changes:
            known = dict.fromkeys(self.handler.session_topic_partitions())
            data = self.handler.build_changes({**known, **partitions})
        else:
            data = self.handler.build(partitions)
        builder = FetchRequestBuilder(FetchConfig(), data)
        version = builder.latest_allowed_version
        self.agreed = False
        if fate != "lost request":
            response = self.broker.handle(builder.build(version), version, fate != "no session")
            if fate != "lost response":
                result = self.handler.handle_response(response, version)
                self.agreed = result is not None and bool(self.handler.session_id)
                # An earlier loss may cause one refusal; after that, a new session must work.
                self.in_a_row = 0 if result is not None else self.in_a_row + 1
                assert self.in_a_row < 2
                self.last = data
                return
        self.in_a_row = 0
        self.handler.handle_error(errors.DisconnectError("gone"))

    @invariant()
    def both_know_the_same(self) -> None:
        if not self.agreed or self.last is None or self.broker.session_id != self.handler.session_id:
            return
        ours = {
            (data.topic_id if self.broker.uses_ids else tp.topic, tp.partition): data.fetch_offset
            for tp, data in self.last.session_partitions.items()
        }
        assert ours == self.broker.partitions


TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


# --- on the wire ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(FetchRequest.VERSIONS[0], LATEST + 1))
def test_requests_can_be_written_in_every_version(version: int) -> None:
    """Sessions are omitted for brokers before 1.1, epochs before 2.3 and racks before 2.4."""
    handler = FetchSessionHandler(LogContext(), 1)
    config = FetchConfig(client_rack_id="r1", isolation_level=1)
    partitions = {A0: wanted(A0, 5)._replace(current_leader_epoch=3), B0: wanted(B0)}
    requests = [handler.build(partitions)]
    if version >= 7:
        answer(handler, A0, B0, version=version)
        requests.append(handler.build({A0: wanted(A0, 6)}))
    for data in requests:
        request = FetchRequestBuilder(config, data).build(version)
        writer = Writer()
        request.write(writer, version)
        read = FetchRequest.read(Reader(b"".join(map(bytes, writer.buffers()))), version)
        assert [partition.fetch_offset for topic in read.topics for partition in topic.partitions] == [
            partition.fetch_offset for topic in request.topics for partition in topic.partitions
        ]
        assert (read.isolation_level, read.max_wait_ms, read.replica_id) == (1, 500, -1)
        if version >= 7:
            assert (read.session_id, read.session_epoch) == data.metadata
            assert len(read.forgotten_topics_data) == len(data.to_forget)
        if version >= 11:
            assert read.rack_id == "r1"
