"""Fetch requests, their responses, and the records returned (Java: FetcherTest)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pykclient import errors
from pykclient.consumer.application_driver import NOTHING
from pykclient.consumer.fetch_collector import Deserializers
from pykclient.consumer.fetch_request_manager import FetchSizes
from pykclient.errors import (
    KafkaError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from pykclient.network.cluster_connection_states import NodeApiVersions
from pykclient.protocol.messages.fetch import FetchRequest
from pykclient.types import Headers, TopicPartition
from tests.consumer.harness import TOPIC, TP0, TP1, Harness, offsets, values
from tests.consumer.responses import batch, fetch_response, partition_data, topic_id
from tests.consumer.unsent import message, respond


def test_fetch_returns_records_and_advances_the_position() -> None:
    harness = Harness()
    harness.assign(TP0)
    fetch = harness.fetch({TP0: partition_data(TP0, batch(0, [b"a", b"b", None]))})
    assert values(fetch, TP0) == [b"a", b"b", None]
    assert fetch.position_advanced
    assert harness.position(TP0) == 3
    record = fetch.records[TP0][1]
    assert (record.topic, record.partition, record.offset, record.timestamp) == (TOPIC, 0, 1, 1001)
    assert (record.key, record.serialized_key_size, record.leader_epoch) == (b"k1", 2, 1)
    assert fetch.records[TP0][2].serialized_value_size == -1
    assert not harness.fetch_buffer.completed


def test_request_has_the_configured_limits() -> None:
    harness = Harness(
        {
            "fetch.min.bytes": 7,
            "fetch.max.bytes": 8000,
            "fetch.max.wait.ms": 90,
            "max.partition.fetch.bytes": 1000,
            "isolation.level": "read_committed",
            "client.rack": "r1",
        }
    )
    harness.assign(TP0, offset=5)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    request: FetchRequest = harness.sent()
    assert (request.min_bytes, request.max_bytes, request.max_wait_ms) == (7, 8000, 90)
    assert (request.isolation_level, request.rack_id) == (1, "r1")
    assert (request.session_id, request.session_epoch, request.replica_id) == (0, 0, -1)
    [topic] = request.topics
    assert (topic.topic, topic.topic_id) == (TOPIC, topic_id(TOPIC))
    [partition] = topic.partitions
    assert (partition.fetch_offset, partition.partition_max_bytes) == (5, 1000)
    assert (partition.current_leader_epoch, partition.last_fetched_epoch, partition.log_start_offset) == (5, -1, -1)


def test_one_request_per_node_at_a_time() -> None:
    harness = Harness(partitions={TOPIC: 4}, brokers=2)
    partitions = [TopicPartition(TOPIC, index) for index in range(4)]
    harness.assign(*partitions)
    assert harness.fetches.create_fetch_requests() == 2
    assert harness.fetches.create_fetch_requests() == 0
    harness.poll()
    of_node_1 = {partitions[1]: partition_data(partitions[1], batch(0, [b"a"])), partitions[3]: partition_data(TP1)}
    of_node_1[partitions[3]].partition_index = 3
    harness.client.respond_from(fetch_response(of_node_1), harness.node(1))
    harness.poll()
    # A node with buffered records gets no request until they are returned.
    assert harness.fetches.create_fetch_requests() == 0
    assert values(harness.collect_fetch(), partitions[1]) == [b"a"]
    assert harness.fetches.create_fetch_requests() == 1


def test_max_poll_records_spans_batches_and_polls() -> None:
    harness = Harness({"max.poll.records": 2})
    harness.assign(TP0, TP1)
    records = batch(0, [b"a"]) + batch(1, [b"b", b"c"])
    first = harness.fetch({TP0: partition_data(TP0, records), TP1: partition_data(TP1, batch(0, [b"x"]))})
    assert (values(first, TP0), values(first, TP1)) == ([b"a", b"b"], [])
    assert harness.position(TP0) == 2
    assert harness.fetches.has_available_fetches()
    second = harness.collect_fetch()
    assert (values(second, TP0), values(second, TP1)) == ([b"c"], [b"x"])
    assert harness.collect_fetch().is_empty


def test_collect_accepts_a_smaller_limit() -> None:
    harness = Harness({"max.poll.records": 2})
    harness.assign(TP0)
    assert harness.fetches.create_fetch_requests() == 1
    harness.client.prepare_response(fetch_response({TP0: partition_data(TP0, batch(0, [b"a", b"b", b"c", b"d"]))}))
    harness.poll()
    assert values(harness.collect_fetch(1), TP0) == [b"a"]
    assert values(harness.collect_fetch(), TP0) == [b"b", b"c"]


def test_the_last_record_frees_the_node_before_it_is_returned() -> None:
    harness = Harness({"max.poll.records": 2})
    harness.assign(TP0)
    fetch = harness.fetch({TP0: partition_data(TP0, batch(0, [b"a", b"b"]))})
    assert values(fetch, TP0) == [b"a", b"b"]
    assert harness.fetches.create_fetch_requests() == 1


def test_records_before_the_position_are_skipped() -> None:
    harness = Harness()
    harness.assign(TP0, offset=2)
    fetch = harness.fetch({TP0: partition_data(TP0, batch(0, [b"a", b"b", b"c", b"d"]))})
    assert offsets(fetch, TP0) == [2, 3]


def test_seek_discards_fetched_records() -> None:
    harness = Harness()
    harness.assign(TP0)
    assert harness.fetches.create_fetch_requests() == 1
    harness.client.prepare_response(fetch_response({TP0: partition_data(TP0, batch(0, [b"a"]))}))
    harness.poll()
    harness.seek(TP0, 50)
    assert harness.collect_fetch().is_empty
    assert harness.position(TP0) == 50
    assert harness.fetches.create_fetch_requests() == 1


def test_seek_between_polls_drops_buffered_records() -> None:
    harness = Harness({"max.poll.records": 1})
    harness.assign(TP0)
    assert values(harness.fetch({TP0: partition_data(TP0, batch(0, [b"a", b"b"]))}), TP0) == [b"a"]
    harness.seek(TP0, 0)
    assert harness.collect_fetch().is_empty
    assert values(harness.fetch({TP0: partition_data(TP0, batch(0, [b"a", b"b"]))}), TP0) == [b"a"]


def test_paused_partitions_keep_buffered_records() -> None:
    harness = Harness({"max.poll.records": 1})
    harness.assign(TP0, TP1)
    data = {TP0: partition_data(TP0, batch(0, [b"a", b"b"])), TP1: partition_data(TP1, batch(0, [b"x"]))}
    assert values(harness.fetch(data), TP0) == [b"a"]
    harness.subscriptions.pause(TP0)
    assert values(harness.collect_fetch(), TP1) == [b"x"]
    assert harness.collect_fetch().is_empty
    assert harness.fetch_buffer.completed
    assert not harness.fetches.has_available_fetches()
    harness.subscriptions.resume(TP0)
    assert values(harness.collect_fetch(), TP0) == [b"b"]


def test_paused_and_revoked_partitions_are_not_fetched() -> None:
    harness = Harness()
    harness.assign(TP0, TP1)
    harness.subscriptions.pause(TP0)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    assert [partition.partition for topic in harness.sent().topics for partition in topic.partitions] == [1]
    harness = Harness()
    harness.assign(TP0)
    harness.subscriptions.mark_pending_revocation([TP0])
    assert harness.fetches.create_fetch_requests() == 0


def test_records_of_unassigned_partition_are_dropped() -> None:
    harness = Harness()
    harness.assign(TP0, TP1)
    assert harness.fetches.create_fetch_requests() == 1
    data = {TP0: partition_data(TP0, batch(0, [b"a"])), TP1: partition_data(TP1, batch(0, [b"x"]))}
    harness.client.prepare_response(fetch_response(data))
    harness.poll()
    harness.subscriptions.assign_from_user({TP1})
    harness.fetch_buffer.retain_all({TP1})
    fetch = harness.collect_fetch()
    assert (values(fetch, TP0), values(fetch, TP1)) == ([], [b"x"])


def test_a_compacted_end_moves_the_position_past_the_batch() -> None:
    harness = Harness()
    harness.assign(TP0)
    records = bytearray(batch(0, [b"a", b"b"]))
    records[23:27] = (9).to_bytes(4, "big")  # last offset delta: compaction removed offsets 2 to 9
    harness = Harness({"check.crcs": False})
    harness.assign(TP0)
    assert offsets(harness.fetch({TP0: partition_data(TP0, bytes(records))}), TP0) == [0, 1]
    assert harness.position(TP0) == 10


# --- errors of partitions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        errors.NotLeaderOrFollowerError,
        errors.ReplicaNotAvailableError,
        errors.KafkaStorageError,
        errors.FencedLeaderEpochError,
        errors.OffsetNotAvailableError,
        errors.UnknownTopicOrPartitionError,
        errors.UnknownTopicIdError,
        errors.InconsistentTopicIdError,
    ],
)
def test_stale_metadata_is_refreshed(error: type[errors.BrokerError]) -> None:
    harness = Harness()
    harness.assign(TP0)
    assert not harness.metadata.update_requested
    assert harness.fetch({TP0: partition_data(TP0, error_code=error.code)}).is_empty
    assert harness.metadata.update_requested
    assert harness.position(TP0) == 0
    assert harness.fetches.create_fetch_requests() == 0
    harness.update_metadata()
    assert harness.fetches.create_fetch_requests() == 1


def test_without_new_metadata_a_node_is_asked_again_after_a_backoff() -> None:
    harness = Harness({"retry.backoff.ms": 70})
    harness.assign(TP0, TP1)
    code = errors.NotLeaderOrFollowerError.code
    for tps in ((TP0, TP1), (TP0,), (TP0,)):
        harness.fetch({tp: partition_data(tp, error_code=code) for tp in tps}, session_id=123)
        assert harness.fetches.resting_nodes
        harness.clock.advance(69)
        assert harness.fetches.create_fetch_requests() == 0
        harness.clock.advance(1)
    # Partitions with records do not wait for those with errors.
    harness.fetch(
        {TP0: partition_data(TP0, error_code=code), TP1: partition_data(TP1, batch(0, [b"a"]))}, session_id=123
    )
    assert not harness.fetches.resting_nodes
    assert harness.fetches.create_fetch_requests() == 1


@pytest.mark.parametrize("error", [errors.UnknownLeaderEpochError, errors.UnknownServerError])
def test_retriable_errors_are_retried_after_a_backoff(error: type[errors.BrokerError]) -> None:
    harness = Harness()
    harness.assign(TP0)
    assert harness.fetch({TP0: partition_data(TP0, error_code=error.code)}).is_empty
    assert not harness.metadata.update_requested
    assert harness.fetches.create_fetch_requests() == 0
    harness.clock.advance(100)
    assert harness.fetches.create_fetch_requests() == 1


def test_authorization_error_is_raised_once_per_fetch() -> None:
    harness = Harness()
    harness.assign(TP0)
    with pytest.raises(TopicAuthorizationError, match=TOPIC):
        harness.fetch({TP0: partition_data(TP0, error_code=errors.TopicAuthorizationError.code)})
    assert harness.collect_fetch().is_empty
    assert harness.fetches.create_fetch_requests() == 1


def test_corrupt_record_error_names_partition_and_offset() -> None:
    harness = Harness()
    harness.assign(TP0, offset=7)
    with pytest.raises(KafkaError, match=r"test-0 is corrupt at offset 7"):
        harness.fetch({TP0: partition_data(TP0, error_code=errors.CorruptRecordError.code)})


def test_unexpected_errors_are_raised() -> None:
    harness = Harness()
    harness.assign(TP0)
    with pytest.raises(errors.IllegalStateError, match="test-0 at offset 0"):
        harness.fetch({TP0: partition_data(TP0, error_code=errors.InvalidTxnStateError.code)})


def test_an_error_waits_until_what_came_before_is_returned() -> None:
    harness = Harness()
    harness.assign(TP0, TP1)
    data = {
        TP0: partition_data(TP0, batch(0, [b"a"])),
        TP1: partition_data(TP1, error_code=errors.TopicAuthorizationError.code),
    }
    assert values(harness.fetch(data), TP0) == [b"a"]
    with pytest.raises(TopicAuthorizationError):
        harness.collect_fetch()
    assert harness.collect_fetch().is_empty


def test_offset_out_of_range_requests_a_reset() -> None:
    harness = Harness({"auto.offset.reset": "earliest"})
    harness.assign(TP0)
    assert harness.fetch({TP0: partition_data(TP0, error_code=errors.OffsetOutOfRangeError.code)}).is_empty
    assert harness.subscriptions.is_offset_reset_needed(TP0)
    assert harness.fetches.create_fetch_requests() == 0


def test_offset_out_of_range_raises_without_a_policy() -> None:
    harness = Harness({"auto.offset.reset": "none"})
    harness.assign(TP0, offset=4)
    with pytest.raises(OffsetOutOfRangeError, match="position 4 of test-0") as caught:
        harness.fetch({TP0: partition_data(TP0, error_code=errors.OffsetOutOfRangeError.code)})
    assert caught.value.offset_out_of_range_partitions == {TP0: 4}
    assert harness.fetches.create_fetch_requests() == 1


def test_out_of_range_after_a_seek_is_stale() -> None:
    harness = Harness({"auto.offset.reset": "none"})
    harness.assign(TP0)
    assert harness.fetches.create_fetch_requests() == 1
    answer = partition_data(TP0, error_code=errors.OffsetOutOfRangeError.code)
    harness.client.prepare_response(fetch_response({TP0: answer}))
    harness.poll()
    harness.seek(TP0, 9)
    assert harness.collect_fetch().is_empty
    assert harness.position(TP0) == 9


def test_leader_hints_are_followed_without_metadata() -> None:
    harness = Harness(brokers=2)
    harness.assign(TP0)
    moved = partition_data(TP0, error_code=errors.NotLeaderOrFollowerError.code, leader=(2, 6))
    harness.fetch({TP0: moved}, endpoints=[(2, "new-host", 9999)])
    leader = harness.metadata.current_leader(TP0)
    assert leader.leader is not None
    assert (leader.leader.id, leader.leader.host, leader.epoch) == (2, "new-host", 6)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    assert harness.client.requests[0].destination == "2"


# --- sessions and topic ids ------------------------------------------------------------------------------------------


def test_incremental_sessions_send_only_changes() -> None:
    harness = Harness()
    harness.assign(TP0, TP1)
    data = {TP0: partition_data(TP0, batch(0, [b"a"])), TP1: partition_data(TP1)}
    harness.fetch(data, session_id=123)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    request: FetchRequest = harness.sent()
    assert (request.session_id, request.session_epoch) == (123, 1)
    assert [(each.partition, each.fetch_offset) for topic in request.topics for each in topic.partitions] == [(0, 1)]
    harness.client.respond(fetch_response({}, session_id=123))
    harness.poll()
    harness.subscriptions.pause(TP1)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    request = harness.sent()
    assert (request.session_id, request.session_epoch, request.topics) == (123, 2, [])
    [forgotten] = request.forgotten_topics_data
    assert (forgotten.topic, forgotten.topic_id, forgotten.partitions) == (TOPIC, topic_id(TOPIC), [1])


@pytest.mark.parametrize("session_id", [0, 123])
def test_look_behind_waits_for_a_fetch_that_finds_nothing(session_id: int) -> None:
    harness = Harness()
    harness.assign(TP0)
    fetches = harness.fetches
    ticket = fetches.look_behind(TP0, 0, None)
    assert ticket is not None, "nothing was fetched yet"
    harness.fetch({TP0: partition_data(TP0, batch(0, [b"a"]))}, session_id=session_id)
    ticket = fetches.look_behind(TP0, 1, ticket)
    assert ticket is not None, "the fetch read from another offset"
    assert fetches.create_fetch_requests() == 1
    ticket = fetches.look_behind(TP0, 1, ticket)
    assert ticket is not None, "the fetch is in flight"
    harness.client.prepare_response(fetch_response({TP0: partition_data(TP0, batch(1, [b"b"]))}, session_id=session_id))
    harness.poll()
    ticket = fetches.look_behind(TP0, 1, ticket)
    assert ticket is not None, "it has found a record, which is buffered"
    harness.collect_fetch()
    assert harness.position(TP0) == 2
    ticket = fetches.look_behind(TP0, 2, ticket)
    assert ticket is not None
    empty = {} if session_id else {TP0: partition_data(TP0)}
    harness.fetch(empty, session_id=session_id)
    assert fetches.look_behind(TP0, 2, ticket) is None


def test_look_behind_ignores_a_fetch_in_flight_from_another_offset() -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0, batch(0, [b"a"]))}, session_id=123)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    ticket = harness.fetches.look_behind(TP0, 5, None)
    harness.client.respond(fetch_response({}, session_id=123))
    harness.poll()
    assert harness.fetches.look_behind(TP0, 5, ticket) is ticket
    harness.seek(TP0, 5)
    harness.fetch({}, session_id=123)
    assert harness.fetches.look_behind(TP0, 5, ticket) is None


def test_unassigned_partition_is_removed_from_the_session() -> None:
    harness = Harness()
    harness.assign(TP0, TP1)
    harness.fetch({TP0: partition_data(TP0), TP1: partition_data(TP1)}, session_id=123)
    harness.subscriptions.assign_from_user({TP1})
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    request: FetchRequest = harness.sent()
    assert request.topics == []
    assert [topic.partitions for topic in request.forgotten_topics_data] == [[0]]


def test_failed_partition_moves_to_the_end() -> None:
    harness = Harness()
    harness.assign(TP0, TP1)
    first, second = harness.subscriptions.assigned_partitions_list()
    code = errors.NotLeaderOrFollowerError.code
    harness.fetch({first: partition_data(first, error_code=code), second: partition_data(second)})
    assert harness.subscriptions.assigned_partitions_list() == [second, first]


def test_lost_session_is_replaced() -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0)}, session_id=123)
    assert harness.fetch({}, error_code=errors.FetchSessionIdNotFoundError.code).is_empty
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    assert (harness.sent().session_id, harness.sent().session_epoch) == (0, 0)
    assert len(harness.sent().topics) == 1


def test_disconnection_restarts_the_session() -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0)}, session_id=123)
    assert harness.fetches.create_fetch_requests() == 1
    harness.client.prepare_response(None, disconnected=True)
    harness.poll()
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    assert (harness.sent().session_id, harness.sent().session_epoch) == (123, 0)


def test_fetch_version_without_ids_is_used_without_topic_ids() -> None:
    harness = Harness()
    harness.subscriptions.assign_from_user({TP0})
    harness.update_metadata(ids={})
    harness.seek(TP0, 0)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    assert harness.client.requests[0].request_builder.latest_allowed_version == 12
    harness.client.respond(fetch_response({TP0: partition_data(TP0, batch(0, [b"a"]))}))
    harness.poll()
    assert values(harness.collect_fetch(), TP0) == [b"a"]


def test_recreated_topic_replaces_the_old_one() -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0)}, session_id=9)
    other = uuid.uuid4()
    harness.update_metadata(ids={TOPIC: other})
    harness.seek(TP0, 0)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    request: FetchRequest = harness.sent()
    assert [topic.topic_id for topic in request.topics] == [other]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [topic_id(TOPIC)]
    # Names alone cannot tell the two topics apart, so the request must not forget the old one.
    assert not harness.client.requests[0].request_builder.build(12).forgotten_topics_data  # type: ignore[attr-defined]


def test_unknown_partition_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown partition is logged once, and once more if it was available in between."""
    harness = Harness({"retry.backoff.ms": 0})
    harness.assign(TP0)
    unknown = {TP0: partition_data(TP0, error_code=errors.UnknownTopicOrPartitionError.code)}
    for _ in range(3):
        harness.fetch(unknown)
        harness.update_metadata()
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    harness.fetch({TP0: partition_data(TP0, batch(0, [b"a"]))})
    harness.fetch(unknown)
    assert [record.levelname for record in caplog.records].count("WARNING") == 2


def test_a_position_keeps_its_topic_id() -> None:
    """Until the position is reset, fetches use the topic id of its offset, whatever id the metadata has by then."""
    harness = Harness()
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0)}, session_id=9)
    harness.update_metadata(ids={TOPIC: uuid.uuid4()})
    harness.subscriptions.pause(TP0)
    harness.subscriptions.resume(TP0)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    request: FetchRequest = harness.sent()
    assert request.topics == []
    assert request.forgotten_topics_data == []


@pytest.mark.parametrize("position", ["reset", "at the same offset"])
def test_records_of_a_deleted_topic_are_not_returned(position: str) -> None:
    """Records that were in flight or buffered when the topic was recreated are not returned."""
    harness = Harness({"auto.offset.reset": "earliest"})
    harness.assign(TP0)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    harness.update_metadata(ids={TOPIC: uuid.uuid4()})
    harness.offsets.validate_positions_on_metadata_change()
    assert harness.offsets.take_recreated() == {TP0}
    if position != "reset":
        harness.seek(TP0, 0)
    harness.client.respond(fetch_response({TP0: partition_data(TP0, batch(0, [b"old"]))}))
    harness.poll()
    assert harness.collect_fetch().is_empty
    assert harness.position(TP0) == (None if position == "reset" else 0)


def test_buffered_records_of_a_deleted_topic_are_not_returned() -> None:
    """The rest of a partly returned buffer is dropped after the topic is recreated, even at a matching new position."""
    harness = Harness({"max.poll.records": 1})
    harness.assign(TP0)
    assert values(harness.fetch({TP0: partition_data(TP0, batch(0, [b"a", b"b"]))}), TP0) == [b"a"]
    harness.update_metadata(ids={TOPIC: uuid.uuid4()})
    harness.offsets.validate_positions_on_metadata_change()
    harness.seek(TP0, 1)
    assert harness.collect_fetch().is_empty


def test_a_leader_hint_of_a_deleted_topic_is_ignored() -> None:
    harness = Harness(brokers=2)
    harness.assign(TP0)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    harness.update_metadata(ids={TOPIC: uuid.uuid4()}, epoch=0)
    code = errors.NotLeaderOrFollowerError.code
    harness.client.respond(
        fetch_response({TP0: partition_data(TP0, error_code=code, leader=(1, 9))}, endpoints=[(0, "localhost", 9092)])
    )
    harness.poll()
    assert harness.metadata.current_leader(TP0) == (harness.node(0), 0)


def test_topic_id_error_of_a_session_refreshes_metadata() -> None:
    harness = Harness()
    harness.assign(TP0)
    assert harness.fetch({}, error_code=errors.FetchSessionTopicIdError.code).is_empty
    assert harness.metadata.update_requested
    assert harness.fetches.create_fetch_requests() == 0
    harness.update_metadata()
    assert harness.fetches.create_fetch_requests() == 1


def test_close_ends_the_sessions() -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0)}, session_id=123)
    ended: list[tuple[int, int]] = []

    def is_final(request: FetchRequest) -> bool:
        ended.append((request.session_id, request.session_epoch))
        return True

    harness.client.prepare_response(fetch_response({}), is_final)
    assert len(harness.fetches.close_sessions()) == 1
    harness.poll()
    assert harness.fetches.close_sessions() == []
    harness.poll()
    assert ended == [(123, -1)]


def test_close_discards_the_fetch_in_flight(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0)}, session_id=123)
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    harness.client.respond(fetch_response({TP0: partition_data(TP0, batch(0, [b"a"]))}, session_id=123))
    harness.client.prepare_response(fetch_response({}))
    with caplog.at_level("INFO"):
        futures = harness.fetches.close_sessions()
        harness.poll()
    assert all(future.succeeded for future in futures)
    assert not caplog.records
    assert not harness.fetch_buffer.completed


def test_requests_wait_for_a_poll_and_are_returned_once() -> None:
    harness = Harness()
    harness.assign(TP0)
    assert harness.fetches.poll(0) is NOTHING
    assert harness.fetches.create_fetch_requests() == 1
    [request] = harness.fetches.poll(0).requests
    assert request.node == harness.node()
    assert harness.fetches.poll(0) is NOTHING
    assert harness.fetches.create_fetch_requests() == 0
    respond(request, fetch_response({TP0: partition_data(TP0, batch(0, [b"a"]))}))
    assert values(harness.collect_fetch(), TP0) == [b"a"]


def test_reset_forgets_requests_and_data() -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0)}, session_id=123)
    harness.fetches.create_fetch_requests()
    harness.fetches.reset()
    assert harness.fetches.poll(0) is NOTHING
    assert harness.fetches.create_fetch_requests() == 1
    [request] = harness.fetches.poll(0).requests
    assert (message(request).session_id, message(request).session_epoch) == (0, 0)
    respond(request, fetch_response({TP0: partition_data(TP0, batch(0, [b"a"]))}))
    harness.fetches.reset()
    assert harness.collect_fetch().is_empty


# --- closest replica (KIP-392) ---------------------------------------------------------------------------------------


def _read_from_replica() -> Harness:
    harness = Harness({"metadata.max.age.ms": 10_000, "auto.offset.reset": "earliest"}, brokers=2)
    harness.assign(TP0)
    assert harness.fetch({TP0: partition_data(TP0, preferred_read_replica=1)}).is_empty
    assert harness.subscriptions.preferred_read_replica(TP0) == 1
    return harness


def _target(harness: Harness) -> str:
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    return harness.client.requests[-1].destination


def test_preferred_replica_is_read_from() -> None:
    harness = _read_from_replica()
    assert _target(harness) == "1"


def test_lease_of_a_preferred_replica_expires() -> None:
    harness = _read_from_replica()
    harness.clock.advance(10_001)
    assert _target(harness) == "0"
    assert harness.subscriptions.preferred_read_replica(TP0) is None


def test_offline_replica_falls_back_to_the_leader() -> None:
    harness = _read_from_replica()
    harness.update_metadata(offline=[1])
    assert harness.fetches.create_fetch_requests() == 1
    assert harness.metadata.update_requested
    harness.poll()
    assert harness.client.requests[-1].destination == "0"


def test_unknown_replica_is_ignored() -> None:
    harness = Harness(brokers=2)
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0, preferred_read_replica=12)})
    assert _target(harness) == "0"


@pytest.mark.parametrize("code", [errors.OffsetOutOfRangeError.code, errors.NotLeaderOrFollowerError.code])
def test_replica_errors_fall_back_to_the_leader(code: int) -> None:
    harness = _read_from_replica()
    harness.fetch({TP0: partition_data(TP0, error_code=code)})
    assert harness.position(TP0) == 0
    assert _target(harness) == "0"


def test_lost_replica_connection_falls_back_to_the_leader() -> None:
    harness = _read_from_replica()
    assert harness.fetches.create_fetch_requests() == 1
    harness.client.prepare_response(None, disconnected=True)
    harness.poll()
    assert harness.subscriptions.preferred_read_replica(TP0) is None
    assert _target(harness) == "0"


def test_leader_change_ends_the_replica_lease() -> None:
    harness = _read_from_replica()
    harness.update_metadata(epoch=6, leaders={TP0: 1})
    harness.offsets.validate_positions_on_metadata_change()
    assert harness.subscriptions.preferred_read_replica(TP0) is None


# --- connections -----------------------------------------------------------------------------------------------------


def test_node_in_backoff_is_not_fetched_from() -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.client.backoff(harness.node(), 500)
    assert harness.fetches.create_fetch_requests() == 0
    harness.clock.advance(500)
    assert harness.fetches.create_fetch_requests() == 1


def test_failed_authentication_is_raised() -> None:
    harness = Harness()
    harness.assign(TP0)
    harness.client.authentication_failed(harness.node(), 500)
    with pytest.raises(errors.AuthenticationError):
        harness.fetches.create_fetch_requests()


def test_failed_authentication_of_one_node_does_not_upset_the_session_of_another() -> None:
    harness = Harness(brokers=2)
    harness.assign(TP0, TP1)
    assert harness.fetches.create_fetch_requests() == 2
    harness.poll()
    harness.client.respond_from(
        fetch_response({TP0: partition_data(TP0, batch(0, [b"a", b"b"]))}, session_id=7), harness.node(0)
    )
    harness.client.respond_from(
        fetch_response({TP1: partition_data(TP1, batch(0, [b"x"]))}, session_id=8), harness.node(1)
    )
    harness.poll()
    harness.collect_fetch()
    first, second = harness.subscriptions.fetch_node_ids()
    harness.client.authentication_failed(harness.node(second), 300)
    with pytest.raises(errors.AuthenticationError):
        harness.fetches.create_fetch_requests()
    harness.clock.sleep_ms(300)
    assert harness.fetches.create_fetch_requests() == 2
    harness.poll()
    request: FetchRequest = harness.sent(harness.node(first))
    tp = (TP0, TP1)[first]
    asked = [(each.partition, each.fetch_offset) for topic in request.topics for each in topic.partitions]
    assert (request.session_epoch, asked) == (1, [(tp.partition, harness.position(tp))])


def test_unknown_leader_asks_for_metadata() -> None:
    harness = Harness()
    harness.subscriptions.assign_from_user({TP0})
    harness.update_metadata(leaders={TP0: -1})
    harness.seek(TP0, 0)
    assert harness.fetches.create_fetch_requests() == 0
    assert harness.metadata.update_requested


# --- bad bytes and deserializers -------------------------------------------------------------------------------------


def test_corrupt_batch_is_told_until_it_is_passed() -> None:
    harness = Harness()
    harness.assign(TP0)
    broken = bytearray(batch(1, [b"b"]))
    broken[-1] ^= 1
    fetch = harness.fetch({TP0: partition_data(TP0, batch(0, [b"a"]) + bytes(broken) + batch(2, [b"c"]))})
    assert values(fetch, TP0) == [b"a"]
    for _ in range(2):
        with pytest.raises(KafkaError, match=r"test-0 at offset 1"):
            harness.collect_fetch()
    assert harness.position(TP0) == 1
    harness.seek(TP0, 2)
    assert harness.collect_fetch().is_empty
    assert values(harness.fetch({TP0: partition_data(TP0, batch(2, [b"c"]))}), TP0) == [b"c"]


def test_crc_checks_can_be_disabled() -> None:
    harness = Harness({"check.crcs": False})
    harness.assign(TP0)
    broken = bytearray(batch(0, [b"a"]))
    broken[17] ^= 1
    assert values(harness.fetch({TP0: partition_data(TP0, bytes(broken))}), TP0) == [b"a"]


def test_response_without_a_complete_batch_raises() -> None:
    harness = Harness()
    harness.assign(TP0)
    with pytest.raises(KafkaError, match="without a complete batch"):
        harness.fetch({TP0: partition_data(TP0, batch(0, [b"a"])[:30])})


def test_batch_cut_off_at_the_end_is_fetched_again() -> None:
    harness = Harness()
    harness.assign(TP0)
    fetch = harness.fetch({TP0: partition_data(TP0, batch(0, [b"a"]) + batch(1, [b"b"])[:30])})
    assert values(fetch, TP0) == [b"a"]
    assert harness.position(TP0) == 1
    assert harness.fetches.create_fetch_requests() == 1


@pytest.mark.parametrize("part", ["key", "value"])
def test_undecodable_record_raises_where_it_is_and_can_be_skipped(part: str) -> None:
    def fails_on_second(topic: str, headers: Headers, data: bytes) -> Any:
        if data in (b"k1", b"b"):
            raise ValueError("bad")
        return data.decode()

    harness = Harness(deserializers=Deserializers(**{part: fails_on_second}))
    harness.assign(TP0)
    fetch = harness.fetch({TP0: partition_data(TP0, batch(0, [b"a", b"b", b"c"]))})
    assert offsets(fetch, TP0) == [0]
    assert harness.position(TP0) == 1
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            harness.collect_fetch()
        assert (caught.value.topic_partition, caught.value.offset) == (TP0, 1)
        assert isinstance(caught.value.__cause__, ValueError)
    harness.seek(TP0, 2)
    assert harness.collect_fetch().is_empty
    assert offsets(harness.fetch({TP0: partition_data(TP0, batch(0, [b"a", b"b", b"c"]))}), TP0) == [2]


def test_deserializers_get_topic_and_headers_and_no_nulls() -> None:
    seen: list[tuple[str, bytes]] = []

    def upper(topic: str, headers: Headers, data: bytes) -> bytes:
        seen.append((topic, data))
        return data.upper()

    harness = Harness(deserializers=Deserializers(value=upper))
    harness.assign(TP0)
    fetch = harness.fetch({TP0: partition_data(TP0, batch(0, [b"a", None]))})
    assert values(fetch, TP0) == [b"A", None]
    assert seen == [(TOPIC, b"a")]


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_count_fetched_records_and_lag() -> None:
    harness = Harness({"max.poll.records": 2})
    harness.assign(TP0)
    data = partition_data(TP0, batch(0, [b"a", b"b", b"c"]), high_watermark=10, log_start_offset=0)
    harness.fetch({TP0: data})
    group = "consumer-fetch-manager-metrics"
    metrics = harness.metrics.by_group()
    assert metrics[f"{group}.{TOPIC}.0"]["records-lag"] == 8
    assert metrics[f"{group}.{TOPIC}.0"]["records-lead"] == 2
    assert metrics[f"{group}.{TOPIC}.0"]["preferred-read-replica"] == -1
    assert metrics[group]["records-consumed-total"] == 0  # recorded once the whole response is read
    harness.collect_fetch()
    metrics = harness.metrics.by_group()
    assert metrics[group]["records-consumed-total"] == 3
    assert metrics[group]["records-per-request-avg"] == 3
    assert metrics[f"{group}.{TOPIC}"]["records-consumed-total"] == 3
    assert metrics[group]["bytes-consumed-total"] > 3
    assert metrics[group]["records-lag-max"] == 8
    assert metrics[group]["fetch-total"] == 1
    harness.subscriptions.unsubscribe()
    harness.fetches.create_fetch_requests()
    assert f"{group}.{TOPIC}.0" not in harness.metrics.by_group()


def test_ten_thousand_partitions_do_not_slow_down_waits() -> None:
    count = 10_000
    harness = Harness(partitions={TOPIC: count}, brokers=3)
    partitions = [TopicPartition(TOPIC, index) for index in range(count)]
    harness.assign(*partitions)
    assert harness.fetches.create_fetch_requests() == 3
    harness.poll()
    assert harness.fetches.create_fetch_requests() == 0
    some = TopicPartition(TOPIC, 3)
    full = {tp: partition_data(tp) for tp in partitions if tp.partition % 3 == 0}
    full[some] = partition_data(some, batch(0, [b"a"]))
    harness.client.respond_from(fetch_response(full, session_id=1), harness.node(0))
    harness.poll()
    assert values(harness.collect_fetch(), some) == [b"a"]
    assert harness.fetches.create_fetch_requests() == 1
    harness.poll()
    request: FetchRequest = harness.sent(harness.node(0))
    assert [each.partition for topic in request.topics for each in topic.partitions] == [3]


def test_old_brokers_get_no_validation_requests() -> None:
    harness = Harness()
    harness.api_versions.update("0", NodeApiVersions.create([(23, 0, 2)]))
    harness.assign(TP0)
    harness.fetch({TP0: partition_data(TP0, batch(0, [b"a"]))})
    harness.update_metadata(epoch=6)
    harness.offsets.validate_positions_if_needed()
    assert harness.subscriptions.has_valid_position(TP0)


def test_too_old_node_raises_once_per_attempt() -> None:
    harness = Harness()
    harness.assign(TP0)
    for _ in range(2):
        harness.client.prepare_unsupported_version_response()
        assert harness.fetches.create_fetch_requests() == 1
        harness.poll()
        assert harness.fetches.has_available_fetches()  # so a caller does not wait for more
        with pytest.raises(UnsupportedVersionError, match=r"cannot read from \S+:\d+: "):
            harness.collect_fetch()
        assert harness.collect_fetch().is_empty
    # The position is updated, and fetching continues.
    assert values(harness.fetch({TP0: partition_data(TP0, batch(0, [b"a"]))}), TP0) == [b"a"]


def test_unchanged_topics_add_nothing_to_the_session() -> None:
    harness = Harness()
    harness.assign(TP0, TP1)
    harness.offsets.validate_positions_on_metadata_change()
    harness.fetch({tp: partition_data(tp) for tp in (TP0, TP1)}, session_id=5)
    for _ in range(2):
        harness.update_metadata()
        harness.offsets.validate_positions_on_metadata_change()
        assert harness.subscriptions.take_changes_of(0) == {}
        assert harness.fetches.create_fetch_requests() == 1
        harness.poll()
        assert harness.sent().topics == []
        harness.client.respond(fetch_response({}, session_id=5))
        harness.poll()
        harness.collect_fetch()


def test_first_and_last_poll_of_a_response_record_lag() -> None:
    harness = Harness({"max.poll.records": 2})
    harness.assign(TP0)
    data = partition_data(TP0, batch(0, [b"a", b"b", b"c", b"d", b"e"]), high_watermark=10, log_start_offset=0)
    harness.fetch({TP0: data})

    def of_partition(*names: str) -> list[float]:
        metrics = harness.metrics.by_group()[f"consumer-fetch-manager-metrics.{TOPIC}.0"]
        return [metrics[name] for name in names]

    assert of_partition("records-lag", "records-lag-avg", "records-lead", "records-lead-avg") == [8, 8, 2, 2]
    harness.collect_fetch()
    assert of_partition("records-lag", "records-lag-avg", "records-lead", "records-lead-avg") == [6, 8, 4, 2]
    harness.collect_fetch()
    assert of_partition("records-lag", "records-lag-avg", "records-lag-max") == [5, 6.5, 8]
    assert of_partition("records-lead", "records-lead-avg", "records-lead-min") == [5, 3.5, 2]


def test_taking_records_does_not_visit_every_buffered_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    tps = [TopicPartition(TOPIC, number) for number in range(200)]
    harness = Harness({"max.poll.records": 1}, partitions={TOPIC: len(tps)}, brokers=2)
    harness.assign(*tps)
    assert harness.fetches.create_fetch_requests() == 2
    for node_id in (0, 1):
        answer = {tp: partition_data(tp, batch(0, [b"a"])) for tp in tps if tp.partition % 2 == node_id}
        harness.client.prepare_response_from(fetch_response(answer), harness.node(node_id))
    harness.poll()
    asked: list[TopicPartition] = []
    node_of = harness.subscriptions.fetch_node_id

    def fetch_node_id(tp: TopicPartition) -> int | None:
        asked.append(tp)
        return node_of(tp)

    monkeypatch.setattr(harness.subscriptions, "fetch_node_id", fetch_node_id)
    sent = []
    for _ in tps:
        fetch = harness.collect_fetch()
        assert fetch.num_records == 1
        sent.append(harness.fetches.create_fetch_requests())
    # A node gets a new request once its own records are all returned, regardless of the other node's.
    assert sorted(sent)[-2:] == [1, 1]
    assert sum(sent) == 2
    assert sent[-1] == 1
    assert len(asked) < 5 * len(tps)


# --- sizes of fetches up to an end offset


@pytest.fixture
def sizes() -> FetchSizes:
    found = FetchSizes(1_000_000)
    found.ends = {TP0: 1000, TP1: 1000}
    return found


def batches(first: int, count: int, records: int = 10, size: int = 500) -> bytes:
    """Return batches of ``records`` records of ``size`` bytes, from offset ``first`` on."""
    return b"".join(batch(first + records * each, [b"v" * size] * records) for each in range(count))


def test_fetch_size_covers_only_the_records_left(sizes: FetchSizes) -> None:
    data = batches(0, 3)
    one = len(data) // 3
    sizes.learn(TP0, data + data[: one - 1])  # the last batch is cut off
    left = 1000 - 30
    assert sizes.of(TP0, 30) == pytest.approx(left / 10 * one * 1.02 + one, abs=2)
    assert sizes.of(TP1, 30) == pytest.approx(left / 10 * one * 1.02 + 2 * one, abs=2)  # may begin within a batch
    assert sizes.of(TP0, 990) < 3.1 * one


def test_without_an_end_or_beyond_it_a_fetch_has_the_configured_size(sizes: FetchSizes) -> None:
    other = TopicPartition(TOPIC, 7)
    sizes.learn(other, batches(0, 3))
    sizes.learn(TP0, batches(0, 3))
    assert sizes.of(other, 0) == sizes.of(TP0, 1000) == sizes.of(TP0, 2000) == 1_000_000
    sizes.ends = {TP0: 1_000_000}
    assert sizes.of(TP0, 0) == 1_000_000


def test_first_fetch_size_is_estimated(sizes: FetchSizes) -> None:
    assert (sizes.of(TP0, 0), sizes.of(TP0, 999)) == (1_000_000, 65_536)
    sizes.ends = {TP0: 500}
    assert sizes.of(TP0, 0) == 500 * 1024


def test_gaps_count_as_offsets(sizes: FetchSizes) -> None:
    sizes.learn(TP0, batches(0, 1) + batches(90, 1))
    assert sizes.of(TP0, 100) < 900 * 500 / 2


def test_larger_batches_make_the_sizes_of_other_partitions_outdated(sizes: FetchSizes) -> None:
    sizes.learn(TP0, batches(0, 1))
    assert sizes.outdated == {TP0, TP1}
    sizes.outdated.clear()
    sizes.learn(TP0, batches(10, 1, records=5))
    assert not sizes.outdated
    sizes.learn(TP0, batches(15, 1, records=20))
    assert sizes.outdated == {TP0, TP1}


@given(data=st.binary(max_size=300), change=st.tuples(st.integers(0, 60), st.integers(0, 255)))
def test_fetch_sizes_stay_in_bounds_for_any_bytes(data: bytes, change: tuple[int, int]) -> None:
    found = FetchSizes(1_000_000)
    found.ends = {TP0: 1000}
    damaged = bytearray(batches(0, 2, size=10))
    damaged[change[0]] = change[1]
    for records in (data, bytes(damaged), bytes(damaged) + data):
        found.learn(TP0, records)
        assert 0 < found.of(TP0, 5) <= 1_000_000


def test_fetches_that_were_too_small_are_sent_again_larger() -> None:
    """A broker may return nothing of a partition whose first batch is larger than its fetch."""
    harness = Harness()
    harness.assign(TP0, TP1)
    harness.fetches.sizes.ends = {TP0: 10, TP1: 10}

    def sent() -> dict[int, int]:
        assert harness.fetches.create_fetch_requests() == 1
        harness.poll()
        request: FetchRequest = harness.sent()
        return {each.partition: each.partition_max_bytes for topic in request.topics for each in topic.partitions}

    assert sent() == {0: 65_536, 1: 65_536}
    found = {TP0: partition_data(TP0, batch(0, [b"v" * 100_000] * 4)), TP1: partition_data(TP1)}
    harness.client.respond(fetch_response(found, session_id=5))
    harness.poll()
    assert values(harness.collect_fetch(), TP0) != []
    later = sent()
    assert later[1] > 800_000
