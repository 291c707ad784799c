"""Fetching the group's committed offsets (Java: the fetch half of ConsumerCoordinator's offsets)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.clock import Timer
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.consumer_parts import ConsumerParts
from pykclient.consumer.coordinator.coordinator_request_manager import group_authorization_error
from pykclient.consumer.coordinator.member_state import Generation
from pykclient.consumer.coordinator.response_handler import handled
from pykclient.consumer.fetch_state import FetchPosition
from pykclient.consumer.request_future import RequestFuture
from pykclient.errors import KafkaError, RetriableError
from pykclient.protocol.messages.offset_fetch import OffsetFetchResponse
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.abstract_coordinator import AbstractCoordinator

#: None: the group has not committed an offset for the partition.
CommittedOffsets = dict[TopicPartition, OffsetAndMetadata | None]


class CommittedOffsetsFetcher:
    """Fetches committed offsets.

    A request that is in flight when a call times out is reused by the next call for the same partitions, and so is the
    backoff after a failed request: calls that do not wait, one after the other, do what one that waits does.
    Thread: application.
    """

    def __init__(self, coordinator: AbstractCoordinator, parts: ConsumerParts) -> None:
        self._coordinator = coordinator
        self._config = coordinator.config
        self._log = coordinator.log_context.logger(__name__)
        self._parts = parts
        self._pending_question: tuple[frozenset[TopicPartition], Generation | None] | None = None
        self._pending: RequestFuture[CommittedOffsets] | None = None
        self._topic_ids: Mapping[str, uuid.UUID] = {}  # the ids in the last request
        self._stable: CommittedOffsets = {}  # of the last request, if some of its offsets were not stable
        self._attempts = 0
        self._not_before_ms = coordinator.clock.now_ms()
        #: The error of the last attempt, for timeout errors.
        self.last_error: Exception | None = None

    def fetch_committed_offsets(self, partitions: Collection[TopicPartition], timer: Timer) -> CommittedOffsets | None:
        """Return the committed offset of each partition, or None if the timer expires first.

        With a timer of 0 this never waits. Raises errors that are not retriable.
        """
        if not partitions:
            return {}
        question = frozenset(partitions), self._coordinator.membership.generation_if_stable()
        if self._pending_question != question:
            self._pending = None
            self._attempts = 0
            self._not_before_ms = self._coordinator.clock.now_ms()
        self._pending_question = question
        self.last_error = None
        while True:
            if not self._coordinator.ensure_coordinator_ready(timer):
                self.last_error = self._coordinator.finder.last_error or self.last_error
                return None
            if self._pending is None and not self._await_backoff(timer):
                return None
            future = self._pending = self._pending or self._send_offset_fetch_request(partitions)
            if not self._coordinator.client.poll_future(future, timer):
                return None
            self._pending = None
            if future.succeeded:
                self._attempts = 0
                return future.value
            self.last_error = future.exception
            if not future.is_retriable:
                raise future.exception
            backoff_ms = self._coordinator.retry_backoff.backoff(self._attempts)
            self._not_before_ms = self._coordinator.clock.now_ms() + backoff_ms
            self._attempts += 1

    def _await_backoff(self, timer: Timer) -> bool:
        """Wait until the backoff allows a request; return False if the timer expires first."""
        timer.update()
        backoff_ms = self._not_before_ms - timer.now_ms
        if backoff_ms > 0 and timer.not_expired:
            timer.sleep_ms(backoff_ms)
        return timer.now_ms >= self._not_before_ms

    def forget_pending(self) -> None:
        """Forget the request in flight: its response may contain offsets from before a later commit."""
        self._pending = None

    def init_with_committed_offsets_if_needed(self, timer: Timer) -> bool:
        """Start partitions without a position at their committed offset, if they have one.

        Return False if the timer expires first; with a timer of 0 this never waits. Partitions whose offset is stable
        do not wait for others whose offset is not, as a transaction that commits it is open.
        """
        subscriptions = self._parts.subscriptions
        self._stable = {}
        offsets = self.fetch_committed_offsets(subscriptions.initializing_partitions(), timer)
        if offsets is not None:
            return self._start_at(offsets)
        if self._stable:
            self._start_at(self._stable)
            # The caller resets these only once all offsets are known.
            subscriptions.reset_initializing_positions(lambda tp: tp in self._stable and self._stable[tp] is None)
        return False

    def _start_at(self, offsets: CommittedOffsets) -> bool:
        """Start at these offsets; return False if some must be fetched again, for a topic that was recreated."""
        subscriptions, metadata = self._parts.subscriptions, self._parts.metadata
        present_ids = metadata.topic_ids
        complete = True
        for tp, committed in offsets.items():
            topic_id = self._topic_ids.get(tp.topic)
            if topic_id != present_ids.get(tp.topic):
                complete = False
                continue
            if committed is None:
                continue
            epoch = committed.leader_epoch if committed.leader_epoch >= 0 else None
            if epoch is not None:
                metadata.update_last_seen_epoch_if_newer(tp, epoch)
            if not subscriptions.is_assigned(tp):
                self._log.info("Ignoring the committed offset of %s, which is no longer assigned", tp)
                continue
            position = FetchPosition(committed.offset, epoch, metadata.current_leader(tp), topic_id)
            subscriptions.seek_unvalidated(tp, position)
            self._log.info("Starting %s at the committed offset %s", tp, position)
        return complete

    def _send_offset_fetch_request(self, partitions: Collection[TopicPartition]) -> RequestFuture[CommittedOffsets]:
        node = self._coordinator.check_and_get_coordinator()
        if node is None:
            return RequestFuture.failure(errors.CoordinatorNotAvailableError("the group coordinator is not known"))
        self._log.debug("Asking for the committed offsets of %d partitions", len(partitions))
        topic_ids = self._topic_ids = self._parts.metadata.topic_ids
        builder = group_requests.OffsetFetchBuilder(self._config.group_id, partitions, topic_ids)
        topic_names = {topic_ids[tp.topic]: tp.topic for tp in partitions if tp.topic in topic_ids}
        return handled(
            self._coordinator.finder,
            self._coordinator.client.send(node, builder),
            lambda response, future: self._handle(response, future, topic_names),
        )

    def _handle(
        self,
        response: OffsetFetchResponse,
        future: RequestFuture[CommittedOffsets],
        topic_names: Mapping[uuid.UUID, str],
    ) -> None:
        code, fetched = group_requests.offsets_of(response, self._config.group_id, topic_names)
        error = errors.for_code(code)
        if error is not None:
            future.raise_error(self._group_failed(error))
            return
        offsets: CommittedOffsets = {}
        unauthorized: set[str] = set()
        unstable: set[TopicPartition] = set()
        for one in fetched:
            error = errors.for_code(one.error_code)
            tp = TopicPartition(one.topic or "?", one.partition)
            if error is None:
                committed = OffsetAndMetadata(one.offset, one.metadata or "", one.leader_epoch)
                offsets[tp] = committed if one.offset >= 0 else None
                continue
            self._log.debug("No committed offset of %s: %s", tp, error)
            if isinstance(error, errors.TopicAuthorizationError):
                unauthorized.add(tp.topic)
            elif isinstance(error, errors.UnstableOffsetCommitError):
                unstable.add(tp)
            elif isinstance(error, errors.UnknownTopicIdError):
                # Deleted or recreated since the metadata was fetched.
                self._parts.metadata.request_update(False)
                future.raise_error(error)
                return
            elif isinstance(error, errors.UnknownTopicOrPartitionError):
                future.raise_error(KafkaError(f"{tp} does not exist, so it has no committed offset"))
                return
            else:
                future.raise_error(KafkaError(f"unexpected error about the committed offset of {tp}: {error}"))
                return
        if unauthorized:
            names = ", ".join(sorted(unauthorized))
            future.raise_error(errors.TopicAuthorizationError(f"not authorized to read offsets of topics: {names}"))
        elif unstable:
            self._log.info(
                "Offsets are not stable yet for %s: a transaction that commits them is open, or their replication is "
                "under way",
                ", ".join(map(str, sorted(unstable))),
            )
            self._stable = offsets
            future.raise_error(errors.UnstableOffsetCommitError("the committed offsets are about to change"))
        else:
            future.complete(offsets)

    def _group_failed(self, error: errors.BrokerError) -> KafkaError:
        if isinstance(error, (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError)):
            self._coordinator.finder.mark_unknown(f"OffsetFetch: {error}")
            return error
        if isinstance(error, errors.GroupAuthorizationError):
            return group_authorization_error(self._config.group_id)
        if isinstance(error, RetriableError):
            return error
        return KafkaError(f"unexpected error about the committed offsets of {self._config.group_id!r}: {error}")
