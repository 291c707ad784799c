"""Offset resets, validation and lookups, without a network (Java: OffsetsRequestManagerTest)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import NOTHING, RequestFuture, UnsentRequest
from pykclient.consumer.offsets_request_manager import list_offsets_builder, prepare_request
from pykclient.consumer.subscription_state import FetchPosition
from pykclient.errors import (
    AuthenticationError,
    DisconnectError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from pykclient.network.cluster_connection_states import ApiVersions
from pykclient.network.metadata import LeaderAndEpoch
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest
from pykclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from pykclient.protocol.wire import Reader, Writer
from pykclient.types import Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from tests.consumer.harness import TOPIC, TP0, TP1, Harness
from tests.consumer.responses import epoch_response, list_offsets_response, metadata_response
from tests.consumer.unsent import message, respond

T = TypeVar("T")
OTHER = TopicPartition("other", 0)


class Offsets(Harness):
    """A manager that is polled by the test, and the answers to its requests."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.waiting: list[UnsentRequest] = []
        self.wait_ms = 0
        self._answers: list[tuple[Any, Callable[[Any], bool], Node | None]] = []

    def prepare(
        self,
        answer: Any,
        matches: Callable[[Any], bool] = lambda _: True,
        *,
        node: Node | None = None,
        disconnected: bool = False,
    ) -> None:
        """Prepare the answer to the next request, which is a response or an error."""
        self._answers.append((DisconnectError("the connection was lost") if disconnected else answer, matches, node))

    def respond(self, answer: Any, *, disconnected: bool = False) -> None:
        """Answer the oldest request."""
        request = self.waiting.pop(0)
        if disconnected:
            request.future.raise_error(DisconnectError("the connection was lost"))
        elif isinstance(answer, Exception):
            request.future.raise_error(answer)
        else:
            respond(request, answer)

    def poll(self, duration_ms: int = 0) -> None:
        """Poll the manager and answer its requests with what is prepared."""
        result = self.offsets.poll(self.clock.now_ms())
        self.wait_ms = result.wait_ms
        self.waiting += result.requests
        while self.waiting and self._answers:
            answer, matches, node = self._answers.pop(0)
            assert matches(message(self.waiting[0]))
            assert node is None or self.waiting[0].node == node
            self.respond(answer)

    def run(self, future: RequestFuture[T], metadata: Any = None) -> T:
        """Poll until the future is done. Metadata that is requested arrives, and time passes while nothing else does.

        The metadata is ``metadata``, by default what there was.
        """
        for _ in range(100):
            self.poll()
            if future.is_done:
                break
            if self.metadata.update_requested and not self.waiting:
                self.update_metadata() if metadata is None else self.client.update_metadata(metadata)
            else:
                self.clock.advance(self.wait_ms)
        if future.failed:
            raise future.exception
        return future.value


def asks_for(timestamp: int, isolation_level: int = 0) -> Any:
    def matches(request: ListOffsetsRequest) -> bool:
        [partition] = [partition for topic in request.topics for partition in topic.partitions]
        return (partition.timestamp, request.isolation_level, request.replica_id, partition.current_leader_epoch) == (
            timestamp,
            isolation_level,
            -1,
            5,
        )

    return matches


def reset(harness: Offsets) -> None:
    harness.offsets.reset_positions_if_needed()
    harness.poll()


# --- reset -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "timestamp"), [("earliest", -2), ("latest", -1)])
def test_reset_uses_the_configured_policy(strategy: str, timestamp: int) -> None:
    harness = Offsets({"auto.offset.reset": strategy})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    harness.prepare(list_offsets_response({TP0: (-1, 5)}), asks_for(timestamp))
    assert not harness.offsets.can_skip_update_fetch_positions()
    reset(harness)
    assert harness.position(TP0) == 5
    assert harness.subscriptions.is_fetchable(TP0)
    harness.offsets.validate_positions_if_needed()
    assert harness.offsets.can_skip_update_fetch_positions()


def test_reset_by_duration_asks_for_a_timestamp() -> None:
    harness = Offsets({"auto.offset.reset": "by_duration:PT1H"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    an_hour_ago = harness.clock.wall_ms() - 3_600_000
    harness.prepare(list_offsets_response({TP0: (an_hour_ago, 7)}), asks_for(an_hour_ago))
    reset(harness)
    assert harness.position(TP0) == 7


@pytest.mark.parametrize(("second_answer", "position"), [((-1, -1), 30), ((9_999, 29), 29)])
def test_reset_by_duration_falls_back_to_the_end(second_answer: tuple[int, int], position: int) -> None:
    """The position moves to the end, but not past a record that was written during the lookup of the end."""
    harness = Offsets({"auto.offset.reset": "by_duration:PT1H"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    an_hour_ago = harness.clock.wall_ms() - 3_600_000
    harness.prepare(list_offsets_response({TP0: (-1, -1)}), asks_for(an_hour_ago))
    harness.prepare(list_offsets_response({TP0: (-1, 30)}), asks_for(-1))
    harness.prepare(list_offsets_response({TP0: second_answer}), asks_for(an_hour_ago))
    reset(harness)
    for _ in range(2):
        harness.clock.advance(1000)
        harness.poll()
    assert harness.position(TP0) == position


def test_reset_without_a_policy_raises() -> None:
    harness = Offsets({"auto.offset.reset": "none"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.request_offset_reset((TP0,))
    with pytest.raises(NoOffsetForPartitionError, match="test-0"):
        harness.offsets.reset_positions_if_needed()


def test_read_committed_asks_for_the_last_stable_offset() -> None:
    harness = Offsets({"auto.offset.reset": "latest", "isolation.level": "read_committed"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    harness.prepare(list_offsets_response({TP0: (-1, 5)}), asks_for(-1, isolation_level=1))
    reset(harness)
    assert harness.position(TP0) == 5


def test_reset_is_asked_once_at_a_time_and_again_after_a_backoff() -> None:
    harness = Offsets({"auto.offset.reset": "earliest"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    reset(harness)
    reset(harness)
    assert len(harness.waiting) == 1
    code = errors.NotLeaderOrFollowerError.code
    harness.respond(list_offsets_response({}, errors={TP0: code}))
    harness.poll()
    assert harness.metadata.update_requested
    reset(harness)
    assert len(harness.waiting) == 0
    harness.clock.advance(100)
    harness.prepare(list_offsets_response({TP0: (-1, 5)}))
    reset(harness)
    assert harness.position(TP0) == 5


def test_reset_survives_a_disconnection() -> None:
    harness = Offsets({"auto.offset.reset": "earliest"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    harness.prepare(None, disconnected=True)
    reset(harness)
    assert harness.metadata.update_requested
    harness.clock.advance(100)
    harness.prepare(list_offsets_response({TP0: (-1, 5)}))
    reset(harness)
    assert harness.position(TP0) == 5


def test_seek_overrides_a_reset_in_flight() -> None:
    harness = Offsets({"auto.offset.reset": "earliest"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    reset(harness)
    harness.seek(TP0, 50)
    harness.respond(list_offsets_response({TP0: (-1, 5)}))
    harness.poll()
    assert harness.position(TP0) == 50


def test_reset_response_for_an_unassigned_partition_is_ignored() -> None:
    harness = Offsets({"auto.offset.reset": "earliest"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    reset(harness)
    harness.subscriptions.assign_from_user({TP1})
    harness.respond(list_offsets_response({}, errors={TP0: errors.NotLeaderOrFollowerError.code}))
    harness.poll()


def test_fatal_error_of_a_reset_is_raised_by_the_next_call() -> None:
    harness = Offsets({"auto.offset.reset": "earliest"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    denied = list_offsets_response({}, errors={TP0: errors.TopicAuthorizationError.code})
    harness.prepare(denied)
    reset(harness)
    assert not harness.offsets.can_skip_update_fetch_positions()
    with pytest.raises(TopicAuthorizationError, match=TOPIC):
        harness.offsets.reset_positions_if_needed()
    harness.clock.advance(100)
    harness.prepare(list_offsets_response({TP0: (-1, 5)}))
    reset(harness)
    assert harness.position(TP0) == 5


def test_unknown_leader_asks_for_metadata() -> None:
    harness = Offsets({"auto.offset.reset": "earliest"})
    harness.subscriptions.assign_from_user({TP0})
    harness.update_metadata(leaders={TP0: -1})
    harness.subscriptions.reset_initializing_positions()
    harness.offsets.reset_positions_if_needed()
    assert harness.metadata.update_requested
    assert not harness.waiting


# --- validation (KIP-320) --------------------------------------------------------------------------------------------


def _with_new_leader(config: dict[str, Any] | None = None) -> Offsets:
    harness = Offsets(config)
    harness.assign(TP0, offset=None)
    leader = harness.metadata.current_leader(TP0)
    harness.subscriptions.seek_validated(TP0, FetchPosition(10, 4, leader))
    harness.update_metadata(epoch=6)
    return harness


def validate(harness: Offsets) -> None:
    harness.offsets.validate_positions_if_needed()
    harness.poll()


def test_position_known_to_the_new_leader_is_kept() -> None:
    harness = _with_new_leader()
    asked: list[tuple[int, int, int]] = []

    def matches(request: Any) -> bool:
        [partition] = request.topics[0].partitions
        asked.append((partition.leader_epoch, partition.current_leader_epoch, request.replica_id))
        return True

    harness.prepare(epoch_response({TP0: (4, 20)}), matches)
    harness.offsets.validate_positions_if_needed()
    assert not harness.subscriptions.is_fetchable(TP0)
    harness.poll()
    assert asked == [(4, 6, -1)]
    assert harness.subscriptions.is_fetchable(TP0)
    assert harness.position(TP0) == 10


def test_truncation_moves_the_position_to_the_divergence() -> None:
    harness = _with_new_leader({"auto.offset.reset": "latest"})
    harness.prepare(epoch_response({TP0: (3, 8)}))
    validate(harness)
    position = harness.subscriptions.position(TP0)
    assert position is not None
    assert (position.offset, position.offset_epoch) == (8, 3)
    assert harness.subscriptions.is_fetchable(TP0)


def test_truncation_without_a_policy_raises() -> None:
    harness = _with_new_leader({"auto.offset.reset": "none"})
    harness.prepare(epoch_response({TP0: (3, 8)}))
    validate(harness)
    with pytest.raises(LogTruncationError, match=r"test-0 \(position 10, agrees up to 8\)") as caught:
        harness.offsets.validate_positions_if_needed()
    assert caught.value.divergent_offsets == {TP0: OffsetAndMetadata(8, "", 3)}
    assert not harness.subscriptions.is_fetchable(TP0)


def test_unknown_epoch_end_resets_the_position() -> None:
    harness = _with_new_leader({"auto.offset.reset": "latest"})
    harness.prepare(epoch_response({TP0: (-1, -1)}))
    validate(harness)
    assert harness.subscriptions.is_offset_reset_needed(TP0)


@pytest.mark.parametrize(
    "error", [errors.FencedLeaderEpochError, errors.UnknownLeaderEpochError, errors.UnknownTopicOrPartitionError]
)
def test_failed_validation_is_retried(error: type[errors.BrokerError]) -> None:
    harness = _with_new_leader()
    harness.prepare(epoch_response({}, errors={TP0: error.code}))
    validate(harness)
    assert TP0 in harness.subscriptions.partitions_needing_validation(1 << 60)
    assert harness.metadata.update_requested
    validate(harness)
    assert not harness.waiting
    harness.clock.advance(100)
    harness.prepare(epoch_response({TP0: (4, 20)}))
    validate(harness)
    assert harness.subscriptions.is_fetchable(TP0)


def test_denied_validation_is_raised() -> None:
    harness = _with_new_leader()
    harness.prepare(epoch_response({}, errors={TP0: errors.TopicAuthorizationError.code}))
    validate(harness)
    with pytest.raises(TopicAuthorizationError):
        harness.offsets.validate_positions_if_needed()


def test_validation_waits_for_the_connection() -> None:
    harness = _with_new_leader()
    harness.offsets._api_versions = ApiVersions()
    validate(harness)
    assert not harness.waiting
    harness.driver.step(harness.timer(0), wakeup=False)
    assert harness.client.is_ready(harness.node(), harness.clock.now_ms())


# --- questions of the application ------------------------------------------------------------------------------------


def test_beginning_and_end_offsets_are_looked_up() -> None:
    harness = Offsets(partitions={TOPIC: 2, "other": 1}, brokers=2)
    harness.assign(TP0)
    harness.prepare(list_offsets_response({TP0: (-1, 2)}), node=harness.node(0))
    harness.prepare(list_offsets_response({TP1: (-1, 3)}), node=harness.node(1))
    assert harness.run(harness.offsets.beginning_offsets([TP0, TP1], 1000)) == {TP0: 2, TP1: 3}
    assert harness.subscriptions.partition_end_offset(TP0, 0) is None
    harness.prepare(list_offsets_response({TP0: (-1, 12)}), asks_for(-1))
    assert harness.run(harness.offsets.end_offsets([TP0], 1000)) == {TP0: 12}
    assert harness.offsets.current_lag(TP0) == 12
    assert harness.run(harness.offsets.end_offsets([], 1000)) == {}


def test_lookup_adds_its_topics_to_the_metadata_temporarily() -> None:
    harness = Offsets()
    harness.assign(TP0)
    harness.prepare(list_offsets_response({OTHER: (-1, 4)}))
    metadata = metadata_response({TOPIC: 2, "other": 1})
    assert harness.run(harness.offsets.end_offsets([OTHER], 1000), metadata) == {OTHER: 4}
    assert "other" not in harness.metadata.new_metadata_request_builder().topics


def test_offsets_for_times_returns_none_without_records() -> None:
    harness = Offsets()
    harness.assign(TP0)
    harness.prepare(list_offsets_response({TP0: (1500, 7), TP1: (-1, -1)}))
    found = harness.run(harness.offsets.offsets_for_times({TP0: 1000, TP1: 2000}, 1000))
    assert found == {TP0: OffsetAndTimestamp(7, 1500), TP1: None}


def test_old_message_format_finds_no_timestamps() -> None:
    harness = Offsets()
    harness.assign(TP0)
    code = errors.UnsupportedForMessageFormatError.code
    harness.prepare(list_offsets_response({}, errors={TP0: code}))
    assert harness.run(harness.offsets.offsets_for_times({TP0: 1000}, 1000)) == {TP0: None}


@pytest.mark.parametrize(
    "error",
    [
        errors.NotLeaderOrFollowerError,
        errors.UnknownTopicOrPartitionError,
        errors.FencedLeaderEpochError,
        errors.LeaderNotAvailableError,
        errors.UnknownServerError,
    ],
)
def test_failed_partitions_are_looked_up_again(error: type[errors.BrokerError]) -> None:
    harness = Offsets()
    harness.assign(TP0)
    harness.prepare(list_offsets_response({TP1: (-1, 1)}, errors={TP0: error.code}))
    harness.prepare(list_offsets_response({TP0: (-1, 12)}), asks_for(-1))
    assert harness.run(harness.offsets.end_offsets([TP0, TP1], 1000)) == {TP0: 12, TP1: 1}


@pytest.mark.parametrize("responded", [False, True], ids=["no response", "only errors"])
def test_lookups_time_out_at_their_deadline(responded: bool) -> None:
    harness = Offsets()
    harness.assign(TP0)
    future = harness.offsets.end_offsets([TP0], 500)
    harness.poll()
    assert harness.wait_ms == 500
    if responded:
        harness.respond(None, disconnected=True)
    harness.clock.advance(499)
    harness.poll()
    assert harness.wait_ms == 1
    assert not future.is_done
    harness.clock.advance(1)
    harness.poll()
    assert harness.wait_ms == FOREVER_MS
    reason = "the connection was lost" if responded else "no answer"
    assert str(future.exception) == f"no offsets of test-0 within 500 ms: {reason}"
    assert isinstance(future.exception, KafkaTimeoutError)
    if not responded:
        harness.respond(list_offsets_response({TP0: (-1, 12)}))  # too late, and ignored
    assert harness.offsets.poll(harness.clock.now_ms()) is NOTHING


def test_a_lookup_that_failed_waits_for_newer_metadata() -> None:
    harness = Offsets()
    harness.assign(TP0)
    future = harness.offsets.end_offsets([TP0], 5000)
    harness.poll()
    harness.respond(None, disconnected=True)
    assert harness.metadata.update_requested
    harness.clock.advance(1000)
    harness.poll()
    assert not harness.waiting
    assert harness.wait_ms == 4000
    harness.update_metadata()
    harness.prepare(list_offsets_response({TP0: (-1, 12)}))
    harness.poll()
    assert future.value == {TP0: 12}


def test_a_lookup_without_a_leader_waits_for_newer_metadata() -> None:
    harness = Offsets()
    harness.subscriptions.assign_from_user({TP0})
    harness.update_metadata(leaders={TP0: -1})
    future = harness.offsets.end_offsets([TP0], 5000)
    harness.poll()
    assert not harness.waiting
    assert harness.metadata.update_requested
    harness.prepare(list_offsets_response({TP0: (-1, 12)}))
    assert harness.run(future) == {TP0: 12}


def test_failed_leader_authentication_fails_the_lookup() -> None:
    harness = Offsets()
    harness.assign(TP0)
    harness.client.authentication_failed(harness.node(), 300)
    future = harness.offsets.end_offsets([TP0], 5000)
    harness.poll()
    assert isinstance(future.exception, AuthenticationError)


@pytest.mark.parametrize("failed_lookup", [1, 2, 3])
def test_failed_leader_authentication_fails_a_reset_by_duration(failed_lookup: int) -> None:
    harness = Offsets({"auto.offset.reset": "by_duration:PT1H"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()

    def refuse(number: int) -> None:
        if number == failed_lookup:
            harness.client.authentication_failed(harness.node(), 300)

    refuse(1)
    if failed_lookup == 1:
        with pytest.raises(AuthenticationError):
            harness.offsets.reset_positions_if_needed()
        return
    harness.offsets.reset_positions_if_needed()
    harness.poll()
    refuse(2)
    harness.respond(list_offsets_response({TP0: (-1, -1)}))
    if failed_lookup == 3:
        harness.poll()
        refuse(3)
        harness.respond(list_offsets_response({TP0: (-1, 30)}))
    with pytest.raises(AuthenticationError):
        harness.offsets.reset_positions_if_needed()


def test_non_retriable_errors_fail_the_lookup() -> None:
    harness = Offsets()
    harness.assign(TP0)
    harness.prepare(list_offsets_response({}, errors={TP0: errors.TopicAuthorizationError.code}))
    with pytest.raises(TopicAuthorizationError):
        harness.run(harness.offsets.end_offsets([TP0], 1000))
    harness.prepare(UnsupportedVersionError("too old"))
    with pytest.raises(UnsupportedVersionError):
        harness.run(harness.offsets.offsets_for_times({TP0: 1}, 1000))
    assert harness.offsets.poll(harness.clock.now_ms()) is NOTHING


def test_read_committed_lookups_need_version_2() -> None:
    harness = Offsets({"isolation.level": "read_committed"})
    harness.assign(TP0)
    harness.offsets.end_offsets([TP0], 1000)
    harness.poll()
    [request] = harness.waiting
    assert request.builder.oldest_allowed_version == 2


def test_interrupted_call_ends_its_lookup() -> None:
    harness = Offsets()
    harness.assign(TP0)
    future = harness.offsets.end_offsets([OTHER], 1000)
    assert "other" in harness.metadata.new_metadata_request_builder().topics
    future.give_up(KafkaError("interrupted"))
    assert "other" not in harness.metadata.new_metadata_request_builder().topics
    assert harness.offsets.poll(harness.clock.now_ms()) is NOTHING


def test_topics_stay_in_the_metadata_until_the_last_lookup_has_ended() -> None:
    harness = Offsets()
    harness.assign(TP0)
    first, second = harness.offsets.end_offsets([OTHER], 1000), harness.offsets.end_offsets([OTHER], 1000)
    first.give_up(KafkaError("interrupted"))
    assert "other" in harness.metadata.new_metadata_request_builder().topics
    second.give_up(KafkaError("interrupted"))
    assert "other" not in harness.metadata.new_metadata_request_builder().topics


def test_interrupted_lookups_in_flight_are_sent_again() -> None:
    harness = Offsets({"auto.offset.reset": "earliest"})
    harness.assign(TP0, offset=None)
    harness.subscriptions.reset_initializing_positions()
    reset(harness)
    harness.offsets.current_lag(TP0)
    lookup = harness.offsets.end_offsets([OTHER], 1000)
    harness.poll()
    assert len(harness.waiting) == 2
    harness.waiting.clear()
    harness.offsets.reset()
    assert "other" not in harness.metadata.new_metadata_request_builder().topics
    assert not harness.subscriptions.partition_end_offset_requested(TP0)
    harness.clock.advance(100)
    harness.prepare(list_offsets_response({TP0: (-1, 5)}))
    reset(harness)
    assert harness.position(TP0) == 5
    assert not lookup.is_done


def test_current_lag_is_looked_up_in_the_background() -> None:
    harness = Offsets()
    harness.assign(TP0, offset=4)
    assert harness.offsets.current_lag(TP0) is None
    assert harness.offsets.current_lag(TP0) is None
    harness.poll()
    assert len(harness.waiting) == 1
    harness.respond(list_offsets_response({TP0: (-1, 12)}))
    harness.poll()
    assert harness.offsets.current_lag(TP0) == 8


def test_current_lag_lookup_is_retried_after_a_failure() -> None:
    harness = Offsets()
    harness.assign(TP0, offset=4)
    assert harness.offsets.current_lag(TP0) is None
    harness.poll()
    harness.respond(None, disconnected=True)
    harness.poll()
    assert harness.offsets.current_lag(TP0) is None
    harness.poll()
    assert len(harness.waiting) == 1


# --- on the wire ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_list_offsets_can_be_written_in_every_version(isolation_level: int) -> None:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, current_leader_epoch=3, timestamp=1000)
    builder = list_offsets_builder({TP0: partition}, isolation_level, True, 30_000)
    assert builder.oldest_allowed_version == max(ListOffsetsRequest.VERSIONS[0], 1 + isolation_level)
    for version in range(builder.oldest_allowed_version, builder.latest_allowed_version + 1):
        writer = Writer()
        builder.build(version).write(writer, version)
        read = ListOffsetsRequest.read(Reader(b"".join(map(bytes, writer.buffers()))), version)
        assert read.topics[0].partitions[0].timestamp == 1000
        assert read.isolation_level == (isolation_level if version >= 2 else 0)


def test_epoch_requests_can_be_written_in_every_version() -> None:
    builder = prepare_request({TP0: FetchPosition(10, 3, LeaderAndEpoch(None, 4)), TP1: FetchPosition(10)})
    for version in range(builder.oldest_allowed_version, builder.latest_allowed_version + 1):
        writer = Writer()
        builder.build(version).write(writer, version)
        read = OffsetForLeaderEpochRequest.read(Reader(b"".join(map(bytes, writer.buffers()))), version)
        [partition] = read.topics[0].partitions
        assert (partition.leader_epoch, partition.current_leader_epoch, read.replica_id) == (3, 4, -1)
