"""The sender against a mock client: its requests, their order, and the handling of responses (Java: SenderTest)."""

from __future__ import annotations

import pytest

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.errors import (
    AuthenticationError,
    BrokerError,
    ClusterAuthorizationError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    LocalProtocolError,
    NetworkError,
    RecordTooLargeError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from pykclient.metrics import KafkaMetric, MetricsReporter
from pykclient.network.client_request import RequestBuilder
from pykclient.producer.future import ProducerBatch
from pykclient.producer.outbox import REST_MS
from pykclient.producer.produce_requests import PUBLISH_INTERVAL_MS
from pykclient.producer.transactions import transaction_state as state
from pykclient.protocol.message import Request
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.record import Compression, CompressionRatioEstimator, CompressionType
from tests.producer.harness import (
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    TOPIC,
    TOPIC_ID,
    TP0,
    TP1,
    SenderHarness,
    deliveries,
    metadata_response,
    nodes,
    produce_response,
)

NOT_LEADER = errors.NotLeaderOrFollowerError.code
OUT_OF_ORDER = errors.OutOfOrderSequenceError.code
DUPLICATE = errors.DuplicateSequenceError.code
UNKNOWN_PRODUCER = errors.UnknownProducerIdError.code
INVALID_EPOCH = errors.InvalidProducerEpochError.code
TOO_LARGE = errors.RecordTooLargeError.code
AFTER_APPEND = errors.NotEnoughReplicasAfterAppendError.code
INVALID_RECORD = errors.InvalidRecordError.code
TIMED_OUT = errors.RequestTimedOutError.code


@pytest.fixture
def h() -> SenderHarness:
    harness = SenderHarness()
    harness.manager and harness.append(tp=TP1)
    harness.get_producer_id()
    harness.run_once()
    harness.respond(tp=TP1)
    harness.run_once()
    return harness


@pytest.fixture
def warm(h: SenderHarness) -> SenderHarness:
    """A sender whose sequence 0 of the partition is acknowledged, so several batches may be in flight."""
    h.append()
    h.run_once()
    h.respond(base_offset=0)
    h.run_once()
    return h


def test_a_record_is_sent_and_acknowledged() -> None:
    h = SenderHarness(idempotent=False)
    seen: list[tuple[Exception | None, int]] = []
    future = h.append(on_delivery=deliveries(seen))
    h.run_once()
    assert h.client.in_flight_request_count() == 1
    assert not future.done()
    h.respond(base_offset=42)
    h.run_once()
    metadata = future.get(0)
    assert (metadata.topic_partition, metadata.offset, metadata.serialized_key_size) == (TP0, 42, 3)
    assert seen == [(None, 42)]
    assert h.pool.available_memory == h.pool.total_memory


def test_produce_request_has_topic_ids_and_names(h: SenderHarness) -> None:
    h.append()
    h.run_once()
    request = h.requests()[0].request_builder
    assert request.latest_allowed_version == 13
    message = request.message
    assert isinstance(message, ProduceRequest)
    assert [(topic.name, topic.topic_id) for topic in message.topic_data] == [(TOPIC, TOPIC_ID)]


def test_produce_request_uses_names_without_topic_id() -> None:
    h = SenderHarness(idempotent=False, metadata=metadata_response(topic_ids={"other": TOPIC_ID}))
    future = h.append()
    h.run_once()
    assert h.requests()[0].request_builder.latest_allowed_version == 12
    h.respond(base_offset=1, by_id=False)
    h.run_once()
    assert future.get(0).offset == 1


def test_log_append_time_replaces_the_timestamp() -> None:
    h = SenderHarness(idempotent=False)
    future = h.append()
    h.run_once()
    h.respond(log_append_time_ms=77)
    h.run_once()
    assert future.get(0).timestamp == 77


def test_acks_0_succeeds_when_sent() -> None:
    h = SenderHarness(idempotent=False, acks=0)
    future = h.append()
    h.run_once()
    assert not h.requests()[0].expect_response
    h.client.respond(None)
    h.run_once()
    assert future.get(0).offset == -1


def test_linger_delays_batch() -> None:
    h = SenderHarness(idempotent=False, linger_ms=10)
    h.append()
    h.run_once()
    assert h.client.in_flight_request_count() == 0
    h.clock.advance(10)
    h.run_once()
    assert h.client.in_flight_request_count() == 1


def test_a_retriable_error_is_retried_after_the_backoff() -> None:
    h = SenderHarness(idempotent=False)
    future = h.append()
    h.run_once()
    h.respond(NOT_LEADER, -1)
    h.run_once()
    assert h.client.in_flight_request_count() == 0
    assert not future.done()
    assert h.metadata.update_requested or h.client.has_pending_metadata_updates() is False
    h.clock.advance(RETRY_BACKOFF_MS)
    h.run_once()
    h.respond(base_offset=3)
    h.run_once()
    assert future.get(0).offset == 3


def test_a_new_leader_is_tried_without_backoff() -> None:
    h = SenderHarness(idempotent=False)
    h.append()
    h.run_once()
    h.respond(NOT_LEADER, -1)
    h.run_once()
    h.client.update_metadata(metadata_response({TP0: 1, TP1: 1}, epoch=2))
    h.run_once()
    assert [request.destination for request in h.requests()] == ["1"]


def test_a_leader_hint_redirects_the_retry() -> None:
    """KIP-951."""
    h = SenderHarness(idempotent=False)
    h.append()
    h.run_once()
    h.respond(NOT_LEADER, -1, leader=(1, 9), endpoints=nodes(2))
    h.run_once(2)
    assert [request.destination for request in h.requests()] == ["1"]
    assert h.metadata.fetch().leader_for(TP0) == nodes(2)[1]


def test_retries_are_counted() -> None:
    h = SenderHarness(idempotent=False, retries=1)
    future = h.append()
    for _ in range(2):
        h.run_once()
        h.client.respond(None, disconnected=True)
        h.run_once()
        h.clock.advance(RETRY_BACKOFF_MS)
        h.client.update_metadata(metadata_response())
    with pytest.raises(NetworkError, match="the connection to broker 0 was lost"):
        future.get(0)
    assert h.pool.available_memory == h.pool.total_memory


def test_non_retriable_error_fails_records(h: SenderHarness) -> None:
    seen: list[tuple[Exception | None, int]] = []
    future = h.append(on_delivery=deliveries(seen))
    h.run_once()
    h.respond(errors.TopicAuthorizationError.code, -1)
    h.run_once()
    with pytest.raises(TopicAuthorizationError, match="'orders'"):
        future.get(0)
    assert isinstance(seen[0][0], TopicAuthorizationError)


def test_each_record_gets_its_own_error(h: SenderHarness) -> None:
    """KIP-467."""
    futures = [h.append(value=b"%d" % index) for index in range(4)]
    h.run_once()
    h.respond(errors.InvalidRecordError.code, -1, record_errors={1: "bad one", 2: None}, error_message="bad batch")
    h.run_once()
    texts = [(type(future.exception), str(future.exception)) for future in futures]
    assert texts[1] == (InvalidRecordError, "bad one")
    assert texts[2] == (InvalidRecordError, "bad batch")
    assert texts[0][0] is texts[3][0] is KafkaError
    assert "its batch contains an invalid record" in texts[0][1]


def test_a_single_bad_record_gets_the_error_of_the_partition(h: SenderHarness) -> None:
    future = h.append()
    h.run_once()
    h.respond(errors.InvalidTimestampError.code, -1, record_errors={0: "too old"})
    h.run_once()
    assert type(future.exception) is errors.InvalidTimestampError
    assert str(future.exception) == "too old"


def test_a_version_mismatch_fails_the_records() -> None:
    h = SenderHarness(idempotent=False)
    h.client.prepare_unsupported_version_response()
    future = h.append()
    h.run_once(2)
    with pytest.raises(UnsupportedVersionError):
        future.get(0)


@pytest.mark.parametrize("ordered", [False, True])
def test_unbuildable_request_fails_only_its_records(monkeypatch: pytest.MonkeyPatch, ordered: bool) -> None:
    h = SenderHarness(idempotent=False, guarantee_message_order=ordered)

    def build(_self: RequestBuilder, _version: int) -> Request:
        raise LocalProtocolError("a string cannot be written")

    monkeypatch.setattr(RequestBuilder, "build", build)
    h.client.prepare_response(produce_response({TP0: (0, 1)}))
    bad = h.append()
    h.run_once(2)
    with pytest.raises(LocalProtocolError):
        bad.get(0)
    monkeypatch.undo()
    assert not h.accumulator.has_incomplete
    assert h.pool.available_memory == h.pool.total_memory
    h.client.prepare_response(produce_response({TP0: (0, 1)}))
    good = h.append()
    h.run_once(2)
    assert good.get(0).offset == 1


def test_unanswered_request_times_out() -> None:
    h = SenderHarness(idempotent=False, retries=0, delivery_timeout_ms=60_000)
    future = h.append()
    h.run_once()
    h.clock.advance(REQUEST_TIMEOUT_MS + 5000)
    h.run_once(2)
    assert isinstance(future.exception, BrokerError)


def test_response_for_other_partitions_causes_retry(h: SenderHarness, caplog: pytest.LogCaptureFixture) -> None:
    """After a response for other partitions, the record is retried with the same numbers and no memory is lost."""
    future = h.append()
    h.run_once()
    sent = h.sent_batches()
    h.client.respond(produce_response({TP1: (0, 0)}))
    h.run_once()
    assert "responded for partitions not in the request: orders-1" in caplog.text
    assert not future.done()
    h.clock.advance(RETRY_BACKOFF_MS * 2)
    h.run_once(2)
    assert h.sent_batches() == sent
    h.respond(base_offset=3)
    h.run_once()
    assert future.get(0).offset == 3
    assert h.pool.available_memory == h.pool.total_memory


# --- expiry ----------------------------------------------------------------------------------------------------------


def test_waiting_batch_expires_unsent() -> None:
    h = SenderHarness(idempotent=False)
    h.client.backoff(nodes(1)[0], 10 * DELIVERY_TIMEOUT_MS)
    future = h.append()
    h.run_once()
    h.clock.advance(DELIVERY_TIMEOUT_MS)
    h.run_once()
    with pytest.raises(
        KafkaTimeoutError, match=r"1 record\(s\) for orders-0 expired: the batch was not sent within 1.5 s"
    ):
        future.get(0)
    assert h.pool.available_memory == h.pool.total_memory


def test_expired_batch_in_flight_keeps_memory_until_response() -> None:
    h = SenderHarness(idempotent=False)
    future = h.append()
    h.run_once()
    request = h.requests()[0]
    request.request_timeout_ms = 10 * DELIVERY_TIMEOUT_MS
    h.clock.advance(DELIVERY_TIMEOUT_MS)
    h.run_once()
    with pytest.raises(KafkaTimeoutError, match="received no response within"):
        future.get(0)
    assert h.pool.available_memory < h.pool.total_memory
    h.respond(base_offset=5)
    h.run_once()
    assert h.pool.available_memory == h.pool.total_memory
    assert isinstance(future.exception, KafkaTimeoutError)


def test_a_retried_batch_expires() -> None:
    h = SenderHarness()
    future = h.append()
    h.get_producer_id()
    h.run_once()
    h.respond(NOT_LEADER, -1)
    h.run_once()
    h.client.backoff(nodes(1)[0], 10 * DELIVERY_TIMEOUT_MS)
    h.clock.advance(DELIVERY_TIMEOUT_MS)
    h.run_once()
    assert isinstance(future.exception, KafkaTimeoutError)
    assert h.manager is not None
    assert h.manager._unresolved
    h.run_once()
    # Its sequence numbers may be in use, so numbering restarts in a new epoch.
    assert h.manager.producer_id_and_epoch == (13, 0)
    h.append()
    h.run_once()
    assert h.manager.producer_id_and_epoch == (13, 1)


def test_records_are_not_numbered_before_pending_epoch_bump(warm: SenderHarness) -> None:
    """A record that arrives while an epoch bump is pending is numbered after the bump."""
    h = warm
    h.append()
    h.run_once()
    h.clock.advance(DELIVERY_TIMEOUT_MS)
    h.run_once(2)
    h.append()
    assert h.drained() == []
    h.run_once()
    assert h.sent_batches()[-1] == (13, 1, 0, 1)


def test_success_of_later_batch_resolves_expired_one(warm: SenderHarness) -> None:
    """The next batch's success proves that an expired batch was written, so no epoch bump is needed."""
    h = warm
    first = h.append(value=b"1")
    h.run_once()
    h.clock.advance(DELIVERY_TIMEOUT_MS // 2)
    second = h.append(value=b"2")
    h.run_once()
    requests = h.requests()
    for request in requests:
        request.request_timeout_ms = 10 * DELIVERY_TIMEOUT_MS
    h.clock.advance(DELIVERY_TIMEOUT_MS - DELIVERY_TIMEOUT_MS // 2)
    h.run_once()
    assert isinstance(first.exception, KafkaTimeoutError)
    third = h.append(value=b"3")
    h.run_once()
    assert len(h.requests()) == 2  # the third waits for the first one's result
    h.respond_to(requests[1], 0, 1)
    h.run_once(2)
    assert second.get(0).offset == 1
    assert h.manager is not None
    assert not h.manager._unresolved
    assert h.sent_batches()[-1] == (13, 0, 3, 1)
    h.respond_to(h.requests()[-1], 0, 2)
    h.run_once()
    assert third.get(0).offset == 2


def test_late_success_of_old_epoch_resolves_nothing(warm: SenderHarness) -> None:
    h = warm
    for offset in range(1, 4):
        h.append()
        h.run_once()
        h.respond(base_offset=offset)
        h.run_once()
    expired = h.append()
    h.run_once()
    (request,) = h.requests()
    request.request_timeout_ms = 10 * DELIVERY_TIMEOUT_MS
    h.clock.advance(DELIVERY_TIMEOUT_MS)
    h.run_once(2)
    assert isinstance(expired.exception, KafkaTimeoutError)
    h.append()
    h.run_once(2)
    assert h.sent_batches()[-1] == (13, 1, 0, 1)
    h.respond_to(request, 0, 4)
    h.run_once()
    assert h.manager is not None
    assert h.manager.last_acked_sequence(TP0) == -1  # 4 was in the old epoch


# --- order -----------------------------------------------------------------------------------------------------------


def test_one_in_flight_mutes_the_partition() -> None:
    h = SenderHarness(idempotent=False, guarantee_message_order=True)
    h.append(value=b"1")
    h.run_once()
    h.append(value=b"2")
    h.run_once()
    assert h.client.in_flight_request_count() == 1
    h.respond()
    h.run_once(2)
    assert h.client.in_flight_request_count() == 1


def test_first_batch_of_partition_is_sent_alone(h: SenderHarness) -> None:
    """A partition's first batch is sent alone, because a broker accepts any first sequence number (KAFKA-14359).

    If the first batch failed, a broker without state of the producer would accept the second.
    """
    first = h.append(value=b"1")
    h.run_once()
    second = h.append(value=b"2")
    h.run_once()
    assert h.sent_batches() == [(13, 0, 0, 1)]
    h.respond(NOT_LEADER, -1)
    h.run_once()
    h.clock.advance(RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 0, 0, 1)]
    h.respond(base_offset=0)
    h.run_once(2)
    h.respond(base_offset=1)
    h.run_once()
    assert (first.get(0).offset, second.get(0).offset) == (0, 1)


def test_first_batch_after_idle_time_is_sent_alone(warm: SenderHarness) -> None:
    """A batch after an idle time is sent alone, because the broker may have forgotten the producer.

    It does so after ``producer.id.expiration.ms``, and then accepts any sequence number.
    """
    h = warm

    def in_flight_after(rest_ms: int) -> int:
        h.clock.advance(rest_ms)
        for _ in range(3):
            h.append(value=b"x")
            h.run_once(2)
        count = h.client.in_flight_request_count()
        while h.client.in_flight_request_count():
            h.respond(base_offset=0)
            h.run_once(2)
        return count

    assert in_flight_after(REST_MS - 1_000) == 3
    assert in_flight_after(REST_MS) == 1
    assert in_flight_after(0) == 3


def test_five_in_flight_that_all_fail_come_back_in_order(warm: SenderHarness) -> None:
    h = warm
    futures = []
    for index in range(1, 6):
        futures.append(h.append(value=b"%d" % index))
        h.run_once()
    assert [batch[2] for batch in h.sent_batches()] == [1, 2, 3, 4, 5]
    requests = h.requests()
    h.respond_to(requests[0], NOT_LEADER, -1)
    for request in reversed(requests[1:]):
        h.respond_to(request, OUT_OF_ORDER, -1)
    h.run_once()
    for index in range(1, 6):
        h.clock.advance(RETRY_BACKOFF_MS)
        h.run_once()
        # Retries go one at a time, lowest sequence first.
        assert h.sent_batches() == [(13, 0, index, 1)]
        h.respond(base_offset=index)
        h.run_once()
    assert [future.get(0).offset for future in futures] == [1, 2, 3, 4, 5]


def test_filled_sequence_gap_needs_no_new_epoch(warm: SenderHarness) -> None:
    h = warm
    first, second = h.append(value=b"1"), None
    h.run_once()
    second = h.append(value=b"2")
    h.run_once()
    requests = h.requests()
    h.respond_to(requests[1], OUT_OF_ORDER, -1)
    h.run_once()
    assert h.sent_batches() == [(13, 0, 1, 1)]
    h.respond_to(requests[0], 0, 10)
    h.run_once()
    h.clock.advance(RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 0, 2, 1)]
    h.respond(base_offset=11)
    h.run_once()
    assert (first.get(0).offset, second.get(0).offset) == (10, 11)


def test_sequence_gap_bumps_epoch_and_renumbers_batches(h: SenderHarness) -> None:
    """A broker that lost acknowledged records causes an epoch bump and renumbering (KIP-360)."""
    h.append(value=b"0")
    h.run_once()
    h.respond(base_offset=0)
    h.run_once()
    first = h.append(value=b"1")
    h.run_once()
    second = h.append(value=b"2")
    h.run_once()
    requests = h.requests()
    h.respond_to(requests[0], OUT_OF_ORDER, -1)
    h.respond_to(requests[1], OUT_OF_ORDER, -1)
    h.run_once()
    h.clock.advance(RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 1, 0, 1)]
    h.respond(base_offset=1)
    h.run_once(2)
    assert h.sent_batches() == [(13, 1, 1, 1)]
    h.respond(base_offset=2)
    h.run_once()
    assert (first.get(0).offset, second.get(0).offset) == (1, 2)


def test_duplicate_batch_succeeds_without_offset(h: SenderHarness) -> None:
    future = h.append()
    h.run_once()
    h.respond(DUPLICATE, -1)
    h.run_once()
    assert future.get(0).offset == -1
    h.append()
    h.run_once()
    assert h.sent_batches() == [(13, 0, 1, 1)]


def test_an_unknown_producer_is_retried_in_a_new_epoch(h: SenderHarness) -> None:
    h.append()
    h.run_once()
    h.respond(base_offset=1000)
    h.run_once()
    future = h.append()
    h.run_once()
    h.respond(UNKNOWN_PRODUCER, -1, log_start_offset=2000)
    h.run_once()
    h.clock.advance(RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 1, 0, 1)]
    h.respond(base_offset=2000)
    h.run_once()
    assert future.get(0).offset == 2000


def test_invalid_epoch_fails_batch_and_bumps_epoch(h: SenderHarness) -> None:
    future = h.append()
    h.run_once()
    h.respond(INVALID_EPOCH, -1)
    h.run_once()
    assert isinstance(future.exception, errors.InvalidProducerEpochError)
    h.append()
    h.run_once()
    assert h.sent_batches() == [(13, 1, 0, 1)]


def test_refused_batch_leaves_no_sequence_gap(warm: SenderHarness) -> None:
    h = warm
    first = h.append(value=b"1")
    h.run_once()
    second = h.append(value=b"2")
    h.run_once()
    requests = h.requests()
    h.respond_to(requests[0], TOO_LARGE, -1)
    h.run_once()
    assert isinstance(first.exception, RecordTooLargeError)
    h.respond_to(requests[1], OUT_OF_ORDER, -1)
    h.run_once()
    h.clock.advance(RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 1, 0, 1)]
    h.respond(base_offset=0)
    h.run_once()
    assert second.get(0).offset == 0


def test_refused_batch_keeps_numbers_of_possibly_written_predecessor(warm: SenderHarness) -> None:
    h = warm
    futures = []
    for value in (b"1", b"2", b"3"):
        futures.append(h.append(value=value))
        h.run_once()
    requests = h.requests()
    h.respond_to(requests[0], AFTER_APPEND, -1)
    h.respond_to(requests[1], INVALID_RECORD, -1)
    h.respond_to(requests[2], OUT_OF_ORDER, -1)
    h.run_once()
    assert isinstance(futures[1].exception, InvalidRecordError)
    h.clock.advance(2 * RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 0, 1, 1)]  # the batch that the broker has written
    h.respond(base_offset=1)
    h.run_once(2)
    assert h.sent_batches() == [(13, 0, 3, 1)]
    h.respond(OUT_OF_ORDER, -1)
    h.run_once()
    h.clock.advance(4 * RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 1, 0, 1)]
    h.respond(base_offset=2)
    h.run_once()
    assert (futures[0].get(0).offset, futures[2].get(0).offset) == (1, 2)


def test_refusal_after_lost_response_keeps_possibly_written_numbers(warm: SenderHarness) -> None:
    h = warm
    first = h.append(value=b"1")
    h.run_once()
    h.append(value=b"2")
    h.run_once()
    for request in h.requests():
        h.respond_to(request, AFTER_APPEND, -1)
    h.run_once()
    h.clock.advance(2 * RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 0, 1, 1)]
    h.respond(INVALID_RECORD, -1)  # refuses the retry, but the first attempt may be written
    h.run_once()
    assert isinstance(first.exception, InvalidRecordError)
    h.clock.advance(4 * RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 0, 2, 1)]


def test_unknown_broker_error_keeps_numbers_of_possibly_written_batch(warm: SenderHarness) -> None:
    h = warm
    h.append(value=b"1")
    h.run_once()
    second = h.append(value=b"2")
    h.run_once()
    requests = h.requests()
    h.respond_to(requests[0], errors.UnknownServerError.code, -1)  # although the batch was written
    h.respond_to(requests[1], AFTER_APPEND, -1)
    h.run_once()
    h.clock.advance(2 * RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 0, 2, 1)]
    h.respond(base_offset=2)
    h.run_once()
    assert second.get(0).offset == 2


def test_disconnected_batch_is_retried_with_same_numbers(h: SenderHarness) -> None:
    future = h.append()
    h.run_once()
    h.client.respond(None, disconnected=True)
    h.run_once()
    h.client.update_metadata(metadata_response())
    h.clock.advance(RETRY_BACKOFF_MS)
    h.run_once()
    assert h.sent_batches() == [(13, 0, 0, 1)]
    h.respond(base_offset=4)
    h.run_once()
    assert future.get(0).offset == 4


def test_exhausted_epoch_requests_new_producer_id() -> None:
    h = SenderHarness()
    h.append()
    h.get_producer_id(epoch=(1 << 15) - 1)
    h.run_once()
    h.respond(INVALID_EPOCH, -1)
    h.run_once()
    future = h.append()
    h.client.prepare_response(InitProducerIdResponse(producer_id=14, producer_epoch=0))
    h.run_once(3)
    assert h.sent_batches() == [(14, 0, 0, 1)]
    h.respond()
    h.run_once()
    assert future.succeeded()


# --- splitting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_too_large_for_the_broker_is_split(idempotent: bool) -> None:
    CompressionRatioEstimator.set_estimation(TOPIC, CompressionType.GZIP, 0.2)
    h = SenderHarness(
        idempotent=idempotent,
        compression=Compression.of("gzip"),
        batch_size=1024,
        linger_ms=0,
        metadata=metadata_response(),
    )
    seen: list[tuple[Exception | None, int]] = []
    futures = [h.append(value=bytes([65 + index]) * 300, on_delivery=deliveries(seen)) for index in range(4)]
    if idempotent:
        h.get_producer_id()
    h.run_once()
    assert [batch[3] for batch in h.sent_batches()] == [4]
    h.respond(TOO_LARGE, -1)
    h.run_once()
    offset = 0
    while h.accumulator.has_incomplete:
        h.clock.advance(RETRY_BACKOFF_MS)
        h.run_once()
        ((_, _, sequence, count),) = h.sent_batches()
        assert sequence == (offset if idempotent else -1)
        h.respond(base_offset=offset)
        h.run_once()
        offset += count
    assert [future.get(0).offset for future in futures] == [0, 1, 2, 3]
    assert seen == [(None, 0), (None, 1), (None, 2), (None, 3)]
    assert h.pool.available_memory == h.pool.total_memory


def test_new_record_does_not_join_part_of_split_batch() -> None:
    """A part of a split batch takes no more records.

    It has its sequence numbers, so another record would share a number with the next batch.
    """
    CompressionRatioEstimator.set_estimation(TOPIC, CompressionType.GZIP, 0.2)
    h = SenderHarness(compression=Compression.of("gzip"), batch_size=1024, linger_ms=0, metadata=metadata_response())
    for index in range(4):
        h.append(value=bytes([65 + index]) * 300)
    h.get_producer_id()
    h.run_once()
    h.respond(TOO_LARGE, -1)
    h.run_once()
    h.append(value=b"small")
    sent = []
    while h.accumulator.has_incomplete:
        h.clock.advance(RETRY_BACKOFF_MS)
        h.run_once()
        sent += h.sent_batches()
        h.respond(base_offset=len(sent))
        h.run_once()
    *parts, (_, _, sequence, count) = sent
    assert sum(part[3] for part in parts) == 4
    assert (sequence, count) == (4, 1)


def test_parts_of_possibly_written_batch_keep_their_numbers() -> None:
    """Parts keep their numbers if the batch may be written: its response was lost, then the size limit was lowered."""
    CompressionRatioEstimator.set_estimation(TOPIC, CompressionType.GZIP, 0.2)
    h = SenderHarness(compression=Compression.of("gzip"), batch_size=1024, linger_ms=0, metadata=metadata_response())
    futures = [h.append(value=bytes([65 + index]) * 300) for index in range(4)]
    h.get_producer_id()
    h.run_once()
    h.client.respond(None, disconnected=True)
    h.run_once()
    h.client.update_metadata(metadata_response())
    h.clock.advance(2 * RETRY_BACKOFF_MS)
    h.run_once()
    h.respond(TOO_LARGE, -1)
    h.run_once(2)
    sent = []
    while h.requests():
        sent += h.sent_batches()
        h.respond(OUT_OF_ORDER, -1)
        h.run_once()
        h.clock.advance(2 * RETRY_BACKOFF_MS)
        h.run_once(2)
    assert sent == [(13, 0, 0, 2), (13, 0, 2, 2)]
    assert all(isinstance(future.exception, errors.OutOfOrderSequenceError) for future in futures)
    assert h.pool.available_memory == h.pool.total_memory
    h.append()
    h.run_once(2)
    assert h.sent_batches() == [(13, 1, 0, 1)]


def test_a_single_record_too_large_fails(h: SenderHarness) -> None:
    future = h.append()
    h.run_once()
    h.respond(TOO_LARGE, -1)
    h.run_once()
    assert isinstance(future.exception, RecordTooLargeError)


# --- the producer id -------------------------------------------------------------------------------------------------


def test_idle_producer_sends_no_request() -> None:
    h = SenderHarness()
    h.run_once(3)
    assert not h.requests()


def test_authorization_error_fails_waiting_records_but_not_producer() -> None:
    h = SenderHarness()
    future = h.append()
    h.client.prepare_response(InitProducerIdResponse(error_code=ClusterAuthorizationError.code))
    h.run_once(3)
    assert isinstance(future.exception, ClusterAuthorizationError)
    assert h.manager is not None
    assert h.manager.current_state == state.UNINITIALIZED
    later = h.append()
    h.get_producer_id()
    h.run_once()
    h.respond(base_offset=0)
    h.run_once()
    assert later.succeeded()


def test_aborted_batches_do_not_block_new_producer_id(warm: SenderHarness) -> None:
    """Aborted batches do not count as in flight, so a partition can switch to a new producer id.

    Their responses come late or never.
    """
    h = warm
    aborted = h.append()
    h.run_once()
    h.append(tp=TP1)
    h.run_once()
    assert h.manager is not None
    h.accumulator.register.abort(KafkaError("no permission"))
    assert isinstance(aborted.exception, KafkaError)
    assert not h.manager.has_inflight_batches(TP0)
    assert not h.manager.has_inflight_batches(TP1)


def test_producer_id_request_is_retried() -> None:
    h = SenderHarness()
    h.append()
    h.client.prepare_response(InitProducerIdResponse(error_code=errors.CoordinatorLoadInProgressError.code))
    h.run_once()
    h.run_once()
    h.clock.advance(RETRY_BACKOFF_MS)
    h.get_producer_id()


def test_a_fatal_error_ends_the_producer() -> None:
    h = SenderHarness()
    future = h.append()
    h.client.prepare_unsupported_version_response()
    h.run_once(3)
    assert isinstance(future.exception, UnsupportedVersionError)
    assert h.manager is not None
    assert h.manager.has_fatal_error
    with pytest.raises(KafkaError, match="failed permanently"):
        h.manager.maybe_fail_with_error()


def test_producer_id_request_is_retried_after_lost_connection() -> None:
    h = SenderHarness()
    future = h.append()
    h.client.prepare_response(InitProducerIdResponse(), disconnected=True)
    h.run_once(2)
    assert not future.done()
    h.clock.advance(RETRY_BACKOFF_MS)
    h.get_producer_id()
    h.run_once()
    h.respond(base_offset=0)
    h.run_once()
    assert future.succeeded()


def test_authentication_error_fails_waiting_records_but_not_producer() -> None:
    h = SenderHarness()
    waiting = h.append()
    for node in nodes(2):
        h.client.create_pending_authentication_error(node, RETRY_BACKOFF_MS)
    h.run_once(3)
    assert isinstance(waiting.exception, AuthenticationError)
    h.client.reset()
    h.clock.advance(2 * RETRY_BACKOFF_MS)
    later = h.append()
    h.get_producer_id()
    h.run_once()
    h.respond(base_offset=0)
    h.run_once()
    assert later.succeeded()


@pytest.mark.parametrize("error", [errors.InvalidRequestError, errors.TransactionalIdAuthorizationError])
def test_final_refusal_of_producer_id_ends_producer(error: type[BrokerError]) -> None:
    h = SenderHarness()
    waiting = h.append()
    h.client.prepare_response(InitProducerIdResponse(error_code=error.code))
    h.run_once(3)
    assert isinstance(waiting.exception, error)
    assert h.manager is not None
    with pytest.raises(KafkaError, match="failed permanently"):
        h.manager.maybe_fail_with_error()
    h.run_once(3)
    assert not h.requests()


def test_batches_expire_without_producer_id() -> None:
    h = SenderHarness()
    for node in nodes(2):
        h.client.set_unreachable(node, 10 * DELIVERY_TIMEOUT_MS)
    future = h.append()
    h.run_once()
    h.clock.advance(DELIVERY_TIMEOUT_MS)
    h.run_once()
    assert isinstance(future.exception, KafkaTimeoutError)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_cannot_be_closed_fails_alone(idempotent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    h = SenderHarness(idempotent=idempotent, metadata=metadata_response({TP0: 0, TP1: 0}))
    bad, good = h.append(tp=TP1), h.append()
    if idempotent:
        h.get_producer_id()
    close = ProducerBatch.close

    def close_some(batch: ProducerBatch) -> None:
        if batch.topic_partition == TP1:
            raise MemoryError
        close(batch)

    monkeypatch.setattr(ProducerBatch, "close", close_some)
    h.run_once()
    assert isinstance(bad.exception, MemoryError)
    h.respond(base_offset=5)
    h.run_once()
    assert good.get(0).offset == 5
    monkeypatch.undo()
    assert not h.accumulator.has_incomplete
    assert h.pool.available_memory == h.pool.total_memory
    again = h.append(tp=TP1)
    h.run_once(2)
    assert h.sent_batches() == [(13, 1, 0, 1) if idempotent else (-1, -1, -1, 1)]
    h.respond(base_offset=6, tp=TP1)
    h.run_once()
    assert again.get(0).offset == 6


# --- closing ---------------------------------------------------------------------------------------------------------


def test_close_sends_what_is_left() -> None:
    h = SenderHarness(idempotent=False, linger_ms=10_000)
    future = h.append()
    h.client.prepare_response(produce_response({TP0: (0, 8)}))
    h.sender.initiate_close()
    h.driver.run()
    assert future.get(0).offset == 8
    assert not h.client.active


def test_close_completes_all_futures() -> None:
    """Close completes the futures of all batches, even of one that is neither queued nor in flight."""
    h = SenderHarness(idempotent=False)
    future = h.append()
    h.drained()
    h.sender.initiate_close()
    h.driver.run()
    with pytest.raises(KafkaError, match="before the record was sent"):
        future.get(0)


def test_forced_close_fails_remaining_records() -> None:
    h = SenderHarness(idempotent=False)
    sent, waiting = h.append(), h.append(tp=TP1)
    h.run_once()
    unsent = h.append()
    h.sender.force_close()
    h.driver.run()
    for future in (sent, waiting, unsent):
        with pytest.raises(KafkaError, match="closed by force"):
            future.get(0)


def test_metrics_count_sent_records(h: SenderHarness) -> None:
    h.append()
    h.run_once()
    h.respond(NOT_LEADER, -1)
    h.run_once()
    values = h.metrics.by_group()
    assert values["producer-metrics"]["record-send-total"] == 2
    assert values["producer-metrics"]["record-retry-total"] == 1
    assert values["producer-topic-metrics.orders"]["record-retry-total"] == 1


def test_metrics_read_directly_include_sent_records(h: SenderHarness) -> None:
    """A reporter and a push of telemetry read the metric itself, and not through ``metrics()``."""
    before = {
        (name.group, name.name): metric.metric_value()
        for name, metric in h.metrics.metrics.items()
        if name.name.startswith(("record-send-total", "batch-size"))
    }
    h.append(value=b"a longer value")
    h.append(value=b"a longer value")
    h.run_once()
    after = {(name.group, name.name): metric.metric_value() for name, metric in h.metrics.metrics.items()}
    for group in ("producer-metrics", "producer-topic-metrics"):
        assert after[group, "record-send-total"] == before[group, "record-send-total"] + 2
    assert after["producer-metrics", "batch-size-max"] > before["producer-metrics", "batch-size-max"]


def test_idle_metrics_are_published_ten_times_a_second(h: SenderHarness) -> None:
    h.sender_metrics.publish(h.clock.now_ms())
    h.append()
    h.run_once()
    assert 0 < h.sender_metrics.publish_if_due(h.clock.now_ms()) <= PUBLISH_INTERVAL_MS
    h.clock.advance(PUBLISH_INTERVAL_MS)
    h.run_once()
    assert h.sender_metrics.publish_if_due(h.clock.now_ms()) == FOREVER_MS


def test_reporter_may_read_metric_when_it_is_added() -> None:
    h = SenderHarness(idempotent=False)
    read: list[str] = []

    class Reporter(MetricsReporter):
        def metric_change(self, metric: KafkaMetric) -> None:
            metric.metric_value()
            read.append(metric.metric_name.group)

    h.metrics.add_reporter(Reporter())
    h.append()
    h.run_once()
    assert "producer-topic-metrics" in read


def test_abandoned_sender_wakes_up_and_ends(h: SenderHarness) -> None:
    """A sender that waits in the selector would otherwise end only when something else happens."""
    woken: list[bool] = []
    h.client.wakeup_hook = lambda: woken.append(h.sender.is_running)
    h.sender.abandon()
    assert woken == [False]
