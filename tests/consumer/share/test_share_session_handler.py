"""Share sessions against a model of the broker's side."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pykclient.consumer.share.acknowledgements import Acknowledgements
from pykclient.consumer.share.share_consume_request_manager import FINAL_EPOCH, ShareSessionHandler
from pykclient.consumer.values import FetchConfig
from pykclient.errors import (
    BrokerError,
    DisconnectError,
    InvalidShareSessionEpochError,
    KafkaError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownServerError,
)
from pykclient.log_context import LogContext
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from pykclient.protocol.messages.share_fetch import ShareFetchRequest
from pykclient.types import TopicIdPartition, TopicPartition

IDS = [uuid.UUID(int=number) for number in (1, 2)]
#: The same partitions of a topic and of the topic that was created after it.
PARTITIONS = [TopicIdPartition(topic_id, TopicPartition("t", number)) for topic_id in IDS for number in range(3)]
WANTED = st.lists(st.sampled_from(PARTITIONS), unique_by=lambda partition: partition.topic_partition)
ACKNOWLEDGED = st.dictionaries(st.sampled_from(PARTITIONS), st.builds(Acknowledgements, st.just({3: 1})), max_size=2)


class Session(RuleBasedStateMachine):
    """The broker has the partitions that the client believes it to have, and expects the client's next epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.handler = ShareSessionHandler(LogContext(), 1, "g", "m")
        self.epoch: int | None = None  # that the broker expects; None without a session
        self.partitions: set[tuple[uuid.UUID, int]] = set()

    def _answer(self, request: Any) -> KafkaError | None:
        """Process a request as the broker does; return its error."""
        epoch = request.share_session_epoch
        if epoch == 0:
            self.epoch, self.partitions = 0, set()
        elif self.epoch is None:
            return ShareSessionNotFoundError()
        elif epoch != self.epoch:
            return InvalidShareSessionEpochError()
        self.epoch += 1
        return None

    @initialize()
    def begin(self) -> None:
        assert self.handler.is_new

    @rule(wanted=WANTED, acknowledged=ACKNOWLEDGED, takes_records=st.booleans())
    def fetch(self, wanted: Any, acknowledged: Any, takes_records: bool) -> None:
        given = {} if self.handler.is_new else acknowledged
        builder = self.handler.build_fetch(wanted, given, FetchConfig(), takes_records=takes_records)
        if builder is None:
            assert not takes_records
            assert not given
            return
        request = builder.message
        assert isinstance(request, ShareFetchRequest)
        assert bool(request.max_records) is takes_records
        error = self._answer(request)
        if error is None:
            named = {(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions}
            forgotten = {
                (each.topic_id, number) for each in request.forgotten_topics_data for number in each.partitions
            }
            with_batches = {
                (topic.topic_id, each.partition_index)
                for topic in request.topics
                for each in topic.partitions
                if each.acknowledgement_batches
            }
            assert with_batches == {(tip.topic_id, tip.partition) for tip in given}
            self.partitions |= named - (with_batches - {(tip.topic_id, tip.partition) for tip in wanted})
            self.partitions -= forgotten
            assert self.partitions == {(tip.topic_id, tip.partition) for tip in wanted}
        self.handler.handle_response(error)

    @rule(acknowledged=ACKNOWLEDGED)
    def acknowledge(self, acknowledged: Any) -> None:
        if not self.handler.is_new:
            request = self.handler.build_acknowledge(acknowledged).message
            assert isinstance(request, ShareAcknowledgeRequest)
            self.handler.handle_response(self._answer(request))

    @rule()
    def lose_the_session(self) -> None:
        self.epoch = None

    @rule(kind=st.sampled_from([UnknownServerError, ShareSessionLimitReachedError]))
    def refuse(self, kind: type[BrokerError]) -> None:
        """The broker counts a request that it refuses for another reason than its session."""
        self.handler.build_fetch(PARTITIONS[:2], {}, FetchConfig())
        if kind is UnknownServerError and not self.handler.is_new and self.epoch == self.handler.epoch:
            self.epoch += 1
            self.partitions = {(tip.topic_id, tip.partition) for tip in PARTITIONS[:2]}
            self.handler.handle_response(UnknownServerError())
        else:
            self.handler.handle_response(ShareSessionLimitReachedError())
            assert self.handler.is_new

    @rule()
    def lose_an_answer(self) -> None:
        request = self.handler.build_fetch(PARTITIONS[:1], {}, FetchConfig())
        assert request is not None
        self._answer(request.message)
        self.handler.handle_error(DisconnectError("lost"))
        assert self.handler.is_new

    @invariant()
    def after_a_lost_session_a_new_one_begins(self) -> None:
        assert self.handler.epoch != FINAL_EPOCH


TestSession = Session.TestCase
TestSession.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_last_request_has_the_final_epoch() -> None:
    handler = ShareSessionHandler(LogContext(), 1, "g", "m")
    handler.build_fetch(PARTITIONS[:1], {}, FetchConfig())
    handler.handle_response(None)
    request = handler.build_acknowledge({}, is_last=True).message
    assert isinstance(request, ShareAcknowledgeRequest)
    assert request.share_session_epoch == FINAL_EPOCH


def test_renewal_requests_no_records_and_needs_version_2() -> None:
    handler = ShareSessionHandler(LogContext(), 1, "g", "m")
    handler.build_fetch(PARTITIONS[:1], {}, FetchConfig())
    handler.handle_response(None)
    builder = handler.build_fetch(PARTITIONS[:1], {PARTITIONS[0]: Acknowledgements({1: 4})}, FetchConfig())
    assert builder is not None
    request = builder.message
    assert isinstance(request, ShareFetchRequest)
    assert request.is_renew_ack
    assert (request.max_wait_ms, request.max_records, request.max_bytes) == (0, 0, 0)
    assert builder.oldest_allowed_version == 2
