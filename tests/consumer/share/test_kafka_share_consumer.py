"""KafkaShareConsumer over brokers that respond at once."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from pykclient.consumer.share.acknowledgements import AcknowledgeType
from pykclient.consumer.share.kafka_share_consumer import KafkaShareConsumer
from pykclient.errors import (
    ConcurrentModificationError,
    CorruptRecordError,
    DisconnectError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidGroupIdError,
    InvalidRecordStateError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    RecordDeserializationError,
    ShareSessionNotFoundError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    WakeupError,
)
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from pykclient.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykclient.types import TopicPartition
from tests.consumer.responses import batch, marker, metadata_response, topic_id
from tests.consumer.share.fake_share_brokers import LOCK_MS, T0, T1, TOPIC, FakeShareCluster, SharePartition
from tests.consumer.share.share_groups import Outcomes, Record, flat, numbers

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def values(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def cluster(count: int = 10, mode: str = "implicit", **settings: Any) -> FakeShareCluster:
    """Return a cluster with one partition."""
    return FakeShareCluster({T0: SharePartition.of(values(count))}, mode, **settings)


def poll(one: FakeShareCluster, timeout_ms: int = 2_000) -> list[Record]:
    return flat(one.consumer.poll(timeout_ms))


def states(one: FakeShareCluster, tp: TopicPartition = T0) -> list[str]:
    return list(one.brokers.partitions[tp].states.values())


# --- implicit acknowledgement -----------------------------------------------------------------------------------------


def test_next_poll_accepts_the_previous_records() -> None:
    one = cluster()
    assert numbers(poll(one)) == list(range(10))
    assert states(one) == ["acquired"] * 10
    assert not poll(one, 100)
    assert states(one) == ["accept"] * 10
    fetches = one.brokers.requests_of(ShareFetchRequest)
    assert len(one.brokers.requests_of(ShareAcknowledgeRequest)) == 0, "a fetch has taken them along"
    assert [fetch.share_session_epoch for fetch in fetches] == list(range(len(fetches)))


def test_commits_accept_the_last_records() -> None:
    one = cluster()
    poll(one)
    assert list(one.consumer.commit_sync().values()) == [None]
    assert states(one) == ["accept"] * 10
    assert one.consumer.commit_sync() == {}
    one.brokers.partitions[T0].states[3] = "available"
    assert numbers(poll(one)) == [3]
    one.consumer.commit_async()
    assert states(one) == ["accept"] * 10


def test_close_releases_unacknowledged_records() -> None:
    one = cluster()
    poll(one)
    one.consumer.close()
    assert states(one) == ["available"] * 10
    assert one.brokers.sessions == {}
    beats = one.brokers.requests_of(ShareGroupHeartbeatRequest)
    assert beats[-1].member_epoch == -1
    with pytest.raises(IllegalStateError, match="this KafkaShareConsumer is closed"):
        one.consumer.poll()
    with pytest.raises(IllegalStateError, match="this KafkaShareConsumer is closed"):
        next(iter(one.consumer))
    one.consumer.close()


def test_acknowledge_needs_explicit_mode() -> None:
    one = cluster()
    with pytest.raises(IllegalStateError, match=r"share\.acknowledgement\.mode=explicit"):
        one.consumer.acknowledge(poll(one)[0])


def test_loop_accepts_returned_records_and_resumes() -> None:
    one = cluster(7, consumer_timeout_ms=500)
    loop = iter(one.consumer)
    assert numbers([next(loop), next(loop)]) == [0, 1]
    one.consumer.commit_sync()
    assert states(one) == ["accept"] * 2 + ["acquired"] * 5
    assert numbers(poll(one)) == [2, 3, 4, 5, 6], "a poll resumes where the loop stopped"
    assert list(one.consumer) == []
    assert states(one) == ["accept"] * 7
    assert next(one.consumer, None) is None


def test_close_ends_a_running_loop() -> None:
    one = cluster()
    seen = []
    for record in one.consumer:
        seen.append(record)
        one.consumer.close()
    assert numbers(seen) == [0]


# --- explicit acknowledgement -----------------------------------------------------------------------------------------


def test_records_can_be_accepted_released_or_rejected() -> None:
    one = cluster(9, "explicit")
    outcomes = Outcomes()
    one.consumer.set_acknowledgement_commit_callback(outcomes)
    types = [ACCEPT, RELEASE, REJECT]
    for record in poll(one):
        one.consumer.acknowledge(record, RELEASE)
        one.consumer.acknowledge(record, types[record.offset % 3])  # replaces the first
    again = poll(one)
    assert numbers(again) == [1, 4, 7]
    assert {record.delivery_count for record in again} == {2}
    assert states(one) == ["accept", "acquired", "reject"] * 3
    assert outcomes.offsets() == list(range(9))


def test_all_records_must_be_acknowledged() -> None:
    one = cluster(3, "explicit")
    records = poll(one)
    one.consumer.acknowledge(records[0])
    with pytest.raises(IllegalStateError, match="2 records of the last poll"):
        one.consumer.poll()
    one.consumer.commit_sync()  # of the first only
    assert states(one) == ["accept", "acquired", "acquired"]
    with pytest.raises(IllegalStateError, match=r"the record at offset 0 of t-0 .* its acknowledgement has been sent"):
        one.consumer.acknowledge(records[0])
    for record in records[1:]:
        one.consumer.acknowledge(record)
    assert not poll(one, 100)
    assert states(one) == ["accept"] * 3


def test_renewed_records_are_returned_again() -> None:
    one = cluster(4, "explicit")
    outcomes = Outcomes()
    one.consumer.set_acknowledgement_commit_callback(outcomes)
    for record in poll(one):
        one.consumer.acknowledge(record, RENEW if record.offset % 2 else ACCEPT)
    again = poll(one)
    assert numbers(again) == [1, 3]
    assert {record.delivery_count for record in again} == {1}
    assert states(one) == ["accept", "acquired", "accept", "acquired"]
    assert one.brokers.requests_of(ShareAcknowledgeRequest)[-1].is_renew_ack
    for record in again:
        one.consumer.acknowledge(record)
    assert not poll(one, 100)
    assert states(one) == ["accept"] * 4


def test_a_poll_waits_for_renewals_while_other_records_are_buffered() -> None:
    partitions = {T0: SharePartition.of(values(2)), T1: SharePartition.of(values(2))}
    one = FakeShareCluster(partitions, "explicit", max_poll_records=1)
    for record in poll(one):
        one.consumer.acknowledge(record, RENEW)
    one.brokers.overrides["ShareAcknowledgeRequest"] = lambda *_: None
    rounds = 0

    def count() -> None:
        nonlocal rounds
        rounds += 1

    one.clock.listeners.append(count)
    assert not poll(one, 1_000)
    assert rounds < 200, "it waits instead of spinning"
    one.clock.listeners.clear()
    del one.brokers.overrides["ShareAcknowledgeRequest"]
    assert len(poll(one)) == 2


def test_a_lock_that_has_expired_cannot_be_renewed() -> None:
    one = cluster(2, "explicit")
    outcomes = Outcomes()
    one.consumer.set_acknowledgement_commit_callback(outcomes)
    for record in poll(one):
        one.consumer.acknowledge(record, RENEW)
    one.brokers.partitions[T0].release()
    again = poll(one)
    assert outcomes.offsets(InvalidRecordStateError) == [0, 1]
    assert {record.delivery_count for record in again} == {2}, "fetched anew, not renewed"


def test_wrong_arguments_are_refused() -> None:
    one = cluster(1, "explicit")
    record = poll(one)[0]
    for args in ((), (record, 1), ("t", 0), (record, ACCEPT, 1), ("t", 0, 0, "ACCEPT")):
        with pytest.raises(IllegalArgumentError):
            one.consumer.acknowledge(*args)
    with pytest.raises(IllegalStateError, match="by its offset"):
        one.consumer.acknowledge("t", 0, 0, ACCEPT)
    with pytest.raises(IllegalArgumentError, match="is a function"):
        one.consumer.set_acknowledgement_commit_callback(1)  # type: ignore[arg-type]
    with pytest.raises(InvalidGroupIdError, match=r"needs a group\.id"):
        KafkaShareConsumer("t", bootstrap_servers="localhost:9092")
    with pytest.raises(IllegalArgumentError, match="KafkaShareConsumer's positional arguments are topics"):
        KafkaShareConsumer("localhost:9092", group_id="g")


# --- records that cannot be read --------------------------------------------------------------------------------------


def two_is_bad(data: bytes) -> int:
    if data == b"2":
        raise ValueError("two")
    return int(data)


def test_a_record_that_cannot_be_deserialized_is_released() -> None:
    one = cluster(4, value_deserializer=two_is_bad)
    assert [record.value for record in poll(one)] == [0, 1]
    with pytest.raises(RecordDeserializationError, match=r"offset 2 of t-0 .* is released") as raised:
        poll(one)
    assert (raised.value.offset, raised.value.record.value, raised.value.record.delivery_count) == (2, b"2", 1)
    assert isinstance(raised.value, ValueError)
    assert [record.value for record in poll(one)] == [3]
    with pytest.raises(RecordDeserializationError) as raised:
        poll(one)
    assert raised.value.record.delivery_count == 2
    assert states(one) == ["accept", "accept", "acquired", "accept"]


def test_the_release_of_a_record_that_cannot_be_deserialized_can_be_changed() -> None:
    one = cluster(3, "explicit", value_deserializer=two_is_bad)
    for record in poll(one):
        one.consumer.acknowledge(record)
    with pytest.raises(RecordDeserializationError):
        poll(one)
    one.consumer.acknowledge(TOPIC, 0, 2, REJECT)
    assert not poll(one, 100)
    assert states(one) == ["accept", "accept", "reject"]


def test_a_corrupt_batch_is_rejected() -> None:
    good, bad = batch(0, values(2)), bytearray(batch(2, values(2)))
    bad[-1] ^= 1
    partition = SharePartition([good, bytes(bad), batch(4, values(1))], dict.fromkeys(range(5), "available"))
    one = FakeShareCluster({T0: partition})
    assert [record.offset for record in poll(one)] == [0, 1]
    with pytest.raises(CorruptRecordError, match=r"t-0 at offsets 2 to 3: .* are rejected"):
        poll(one)
    assert [record.offset for record in poll(one)] == [4]
    poll(one, 100)
    assert states(one) == ["accept", "accept", "reject", "reject", "accept"]


def test_unreadable_bytes_are_released() -> None:
    broken = batch(0, values(2)) + bytes(8) + (3).to_bytes(4, "big") + bytes(20)
    one = FakeShareCluster({T0: SharePartition([broken], dict.fromkeys(range(4), "available"))})
    assert [record.offset for record in poll(one)] == [0, 1]
    with pytest.raises(CorruptRecordError, match="that follow in the response are released"):
        poll(one)
    one.consumer.commit_sync()
    assert states(one) == ["accept", "accept", "available", "available"]


def test_offsets_without_records_are_gaps() -> None:
    batches = [batch(0, values(2)), marker(2, 7, commit=True), batch(5, values(1))]
    one = FakeShareCluster({T0: SharePartition(batches, dict.fromkeys(range(8), "available"))})
    assert [record.offset for record in poll(one)] == [0, 1, 5]
    poll(one, 100)
    assert states(one) == ["accept", "accept", "gap", "gap", "gap", "accept", "gap", "gap"]


def test_gaps_alone_are_acknowledged() -> None:
    one = FakeShareCluster({T0: SharePartition([marker(0, 7, commit=True)], {0: "available"})})
    assert not poll(one, 600)
    assert states(one) == ["gap"]


def test_records_of_other_members_are_not_returned() -> None:
    one = cluster(10)
    states_of = one.brokers.partitions[T0].states
    states_of.update(dict.fromkeys((0, 3, 4, 9), "of another member"))
    assert numbers(poll(one)) == [1, 2, 5, 6, 7, 8]
    poll(one, 100)
    assert states_of[3] == "of another member"


def test_more_acquired_records_than_fetched_is_an_error() -> None:
    def fetch(_: int, request: ShareFetchRequest) -> ShareFetchResponse:
        data = ShareFetchResponse.PartitionData(
            partition_index=0,
            records=batch(0, values(1)),
            acquired_records=[ShareFetchResponse.AcquiredRecords(first_offset=0, last_offset=1 << 60)],
        )
        topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id(TOPIC), partitions=[data])
        return ShareFetchResponse(responses=[topic])

    one = cluster()
    one.brokers.overrides["ShareFetchRequest"] = fetch
    with pytest.raises(Exception, match="claims to have acquired more than"):
        poll(one)


# --- lost locks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_acknowledgements_fail_after_a_leader_change(commit: bool) -> None:
    """The acknowledgement fails, whether it is sent alone or with a fetch, and the new leader delivers again."""
    one = FakeShareCluster({T0: SharePartition.of(values(4)), T1: SharePartition.of([])})
    outcomes = Outcomes()
    one.consumer.set_acknowledgement_commit_callback(outcomes)
    assert len(poll(one)) == 4
    one.brokers.move_leader(T0, 1)
    if commit:
        (error,) = one.consumer.commit_sync().values()
        assert isinstance(error, NotLeaderOrFollowerError)
    again = poll(one)
    assert outcomes.offsets(NotLeaderOrFollowerError) == [0, 1, 2, 3]
    assert numbers(again) == [0, 1, 2, 3]
    assert {record.delivery_count for record in again} == {2}
    poll(one, 100)
    assert states(one) == ["accept"] * 4


def test_acknowledgements_are_not_sent_to_a_former_leader() -> None:
    one = FakeShareCluster({T0: SharePartition.of(values(4)), T1: SharePartition.of([])})
    poll(one)
    one.brokers.move_leader(T0, 1)
    one.components.metadata.update_with_current_request_version(one.brokers.describe(), False, one.clock.now_ms())
    before = len(one.brokers.received)
    (error,) = one.consumer.commit_sync().values()
    assert isinstance(error, NotLeaderOrFollowerError)
    assert "is no longer the leader" in str(error)
    assert ShareAcknowledgeRequest not in {type(request) for _, request in one.brokers.received[before:]}


def test_metadata_is_requested_if_the_leader_is_not_known() -> None:
    one = cluster(4)
    poll(one)
    metadata = metadata_response({TOPIC: 1}, brokers=2, epoch=one.brokers.leader_epoch + 1, leaders={T0: -1})
    one.components.metadata.update_with_current_request_version(metadata, False, one.clock.now_ms())
    assert one.components.metadata.current_leader(T0).leader is None
    version = one.components.metadata.update_version
    one.brokers.leader_epoch += 2
    assert list(one.consumer.commit_sync().values()) == [None]
    poll(one, 200)
    assert one.components.metadata.update_version > version
    assert states(one) == ["accept"] * 4


@pytest.mark.parametrize("commit", [True, False])
def test_acknowledgements_fail_with_a_lost_session_and_records_come_again(commit: bool) -> None:
    one = cluster(4)
    outcomes = Outcomes()
    one.consumer.set_acknowledgement_commit_callback(outcomes)
    poll(one)
    one.brokers.lose_session(0)
    if commit:
        (error,) = one.consumer.commit_sync().values()
        assert isinstance(error, ShareSessionNotFoundError)
    again = poll(one)
    assert outcomes.offsets(ShareSessionNotFoundError) == [0, 1, 2, 3]
    assert {record.delivery_count for record in again} == {2}
    poll(one, 100)
    assert states(one) == ["accept"] * 4


def test_acknowledgements_fail_with_a_lost_connection() -> None:
    one = cluster(4)
    outcomes = Outcomes()
    one.consumer.set_acknowledgement_commit_callback(outcomes)
    poll(one)
    one.brokers.overrides["ShareAcknowledgeRequest"] = lambda *_: None
    one.consumer.commit_async()
    one.brokers.disconnect("0")
    one.brokers.lose_session(0)
    del one.brokers.overrides["ShareAcknowledgeRequest"]
    again = poll(one)
    assert outcomes.offsets(DisconnectError) == [0, 1, 2, 3]
    assert "not known" in str(outcomes.calls[0][1])
    assert {record.delivery_count for record in again} == {2}


def refused_for_now(
    attempts: list[ShareAcknowledgeRequest], _: int, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    attempts.append(request)
    data = ShareAcknowledgeResponse.PartitionData(partition_index=0, error_code=15)  # COORDINATOR_NOT_AVAILABLE
    topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=topic_id(TOPIC), partitions=[data])
    return ShareAcknowledgeResponse(responses=[topic])


def test_acknowledgements_are_retried_until_their_timeout() -> None:
    attempts: list[ShareAcknowledgeRequest] = []
    one = cluster(4)
    poll(one)
    one.brokers.overrides["ShareAcknowledgeRequest"] = partial(refused_for_now, attempts)
    (error,) = one.consumer.commit_sync(2_000).values()
    assert isinstance(error, KafkaTimeoutError)
    assert 3 < len(attempts) < 20
    assert [each.share_session_epoch for each in attempts] == list(range(1, len(attempts) + 1))


def test_acknowledgements_are_not_retried_after_their_timeout() -> None:
    attempts: list[ShareAcknowledgeRequest] = []
    one = cluster(4)
    outcomes = Outcomes()
    one.consumer.set_acknowledgement_commit_callback(outcomes)
    poll(one)
    one.brokers.overrides["ShareAcknowledgeRequest"] = partial(refused_for_now, attempts)
    one.consumer.commit_sync(1_000)
    for _ in range(20):
        one.clock.advance(500)
        one.components.client.poll_background()
    count = len(attempts)
    one.clock.advance(30_000)
    one.components.client.poll_background()
    assert len(attempts) == count
    poll(one, 100)
    assert outcomes.offsets(KafkaTimeoutError) == [0, 1, 2, 3]


def test_acknowledgements_of_a_fetch_fail_with_its_connection() -> None:
    one = cluster(4)
    outcomes = Outcomes()
    one.consumer.set_acknowledgement_commit_callback(outcomes)
    poll(one)
    one.brokers.overrides["ShareFetchRequest"] = lambda *_: None
    assert not poll(one, 100)
    one.brokers.disconnect("0")
    one.brokers.lose_session(0)
    del one.brokers.overrides["ShareFetchRequest"]
    again = poll(one)
    assert outcomes.offsets(DisconnectError) == [0, 1, 2, 3]
    assert outcomes.offsets() == []
    assert {record.delivery_count for record in again} == {2}


def test_failures_without_a_callback_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    one = cluster(4)
    poll(one)
    one.brokers.partitions[T0].release()
    one.consumer.commit_sync()
    assert "The acknowledgement of 4 records of t-0 failed" in caplog.text


def test_failing_callbacks_do_not_break_the_consumer(caplog: pytest.LogCaptureFixture) -> None:
    def callback(*_: Any) -> None:
        called.append(1)
        one.consumer.poll()

    called: list[int] = []
    one = cluster(4)
    one.consumer.set_acknowledgement_commit_callback(callback)
    poll(one)
    one.consumer.commit_sync()
    assert called == [1]
    assert "in the middle of commit_sync()" in caplog.text


# --- errors -----------------------------------------------------------------------------------------------------------


def test_unauthorized_topic_raises() -> None:
    def fetch(_: int, request: ShareFetchRequest) -> ShareFetchResponse:
        data = ShareFetchResponse.PartitionData(partition_index=0, error_code=29)
        topic = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id(TOPIC), partitions=[data])
        return ShareFetchResponse(responses=[topic])

    one = cluster()
    one.brokers.overrides["ShareFetchRequest"] = fetch
    with pytest.raises(TopicAuthorizationError, match="READ on topic 't'"):
        poll(one)
    before = len(one.brokers.received)
    with pytest.raises(TopicAuthorizationError):
        poll(one)
    assert len(one.brokers.received) - before < 5, "it rests between fetches that fail"


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (30, "GroupAuthorizationError", "READ on group 'g'"),
        (35, "UnsupportedVersionError", "share.version=1"),
        (69, "GroupIdNotFoundError", "is not a share group"),
        (81, "GroupMaxSizeReachedError", "group.share.max.size"),
    ],
)
def test_join_errors_are_raised_by_each_poll(code: int, kind: str, text: str) -> None:
    one = cluster()
    one.brokers.overrides["ShareGroupHeartbeatRequest"] = lambda *_: ShareGroupHeartbeatResponse(error_code=code)
    for _ in range(2):
        with pytest.raises(Exception, match=text) as raised:
            poll(one)
        assert type(raised.value).__name__ == kind
    del one.brokers.overrides["ShareGroupHeartbeatRequest"]
    one.consumer.unsubscribe()
    one.consumer.subscribe([TOPIC])
    assert len(poll(one)) == 10


def test_a_member_that_the_coordinator_has_removed_joins_again() -> None:
    one = cluster()
    assert len(poll(one)) == 10
    one.brokers.overrides["ShareGroupHeartbeatRequest"] = lambda *_: ShareGroupHeartbeatResponse(error_code=25)
    poll(one, 6_000)
    del one.brokers.overrides["ShareGroupHeartbeatRequest"]
    one.brokers.partitions[T0].states[4] = "available"
    assert numbers(poll(one)) == [4]
    joins = [beat for beat in one.brokers.requests_of(ShareGroupHeartbeatRequest) if beat.member_epoch == 0]
    assert len({beat.member_id for beat in joins}) == 1


def test_slow_application_leaves_and_rejoins() -> None:
    one = cluster(max_poll_interval_ms=10_000)
    poll(one)
    one.clock.advance(20_000)
    one.components.client.poll_background()
    assert one.brokers.requests_of(ShareGroupHeartbeatRequest)[-1].member_epoch == -1
    one.brokers.partitions[T0].states[4] = "available"
    assert numbers(poll(one)) == [4]


def test_brokers_without_share_groups_are_refused() -> None:
    one = cluster(share_acquire_mode="record_limit")
    one.brokers.set_api_versions(ShareFetchRequest.API_KEY, 1, 1)
    with pytest.raises(UnsupportedVersionError, match=r"Share groups need Kafka 4\.1"):
        poll(one)


def test_poll_without_a_subscription_is_refused() -> None:
    one = cluster()
    one.consumer.unsubscribe()
    assert one.consumer.subscription() is None
    with pytest.raises(IllegalStateError, match="subscribe"):
        one.consumer.poll()


def test_unsubscribe_releases_unreturned_records() -> None:
    one = FakeShareCluster({T0: SharePartition.of(values(20)), T1: SharePartition.of(values(20))}, max_poll_records=5)
    first = poll(one)
    assert len(first) == 5
    one.consumer.unsubscribe()
    assert len(one.consumer.commit_sync()) == 1, "the records of the last poll can still be acknowledged"
    every = states(one) + states(one, T1)
    assert every.count("accept") == 5
    assert every.count("available") == 35


def test_wakeup_interrupts_a_poll_once() -> None:
    one = cluster()
    one.consumer.wakeup()
    with pytest.raises(WakeupError):
        poll(one)
    assert len(poll(one)) == 10
    one.consumer.wakeup()
    with pytest.raises(WakeupError):
        poll(one)
    poll(one, 100)
    assert states(one) == ["accept"] * 10


def test_second_thread_is_refused() -> None:
    one = cluster()
    errors: list[BaseException] = []

    def intrude() -> None:
        try:
            one.consumer.poll()
        except ConcurrentModificationError as error:
            errors.append(error)

    def tick() -> None:
        one.clock.listeners.clear()
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()

    one.clock.listeners.append(tick)
    poll(one)
    assert "KafkaShareConsumer is not safe for use by several threads" in str(errors[0])


def test_background_thread_sends_acknowledgements() -> None:
    """An acknowledgement waits while a fetch is in flight, but not for the application's next call."""
    one = FakeShareCluster({T0: SharePartition.of(values(4)), T1: SharePartition.of([])})
    assert len(poll(one)) == 4
    assert not poll(one, 10)  # accepts them; the fetches are in flight
    one.brokers.partitions[T0].states.update(dict.fromkeys(range(4), "available"))
    assert len(poll(one, 1_000)) == 4
    one.consumer.commit_async()
    for _ in range(10):
        one.components.client.poll_background()
        one.clock.advance(100)
    assert states(one) == ["accept"] * 4


def test_fetched_records_whose_locks_have_expired_are_not_returned() -> None:
    partitions = {T0: SharePartition.of(values(5)), T1: SharePartition.of(values(5))}
    one = FakeShareCluster(partitions, max_poll_records=5)
    (first,) = {record.partition for record in poll(one)}
    other = TopicPartition(TOPIC, 1 - first)
    assert states(one, other) == ["acquired"] * 5
    one.clock.advance(LOCK_MS)
    one.brokers.partitions[other].release()
    again = poll(one)
    assert {(record.partition, record.delivery_count) for record in again} == {(other.partition, 2)}


def test_metrics_count_records_and_acknowledgements() -> None:
    one = cluster()
    poll(one)
    one.consumer.commit_sync()
    metrics = one.consumer.metrics()
    fetch = metrics["consumer-share-fetch-manager-metrics"]
    assert fetch["records-consumed-total"] == 10
    assert fetch["acknowledgements-send-total"] == 10
    assert fetch["acknowledgements-error-total"] == 0
    assert metrics["consumer-share-coordinator-metrics"]["rebalance-total"] == 1
    assert metrics["consumer-share-metrics"]["last-poll-seconds-ago"] == 0
