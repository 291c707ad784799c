"""The group's committed offsets (Java: CommitRequestManager.OffsetFetchRequestState, ConsumerCoordinator)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.clock import FOREVER_MS, Clock
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager, handled
from pykclient.consumer.coordinator.group_member import CoordinatedConsumer
from pykclient.consumer.coordinator.member_state import Generation
from pykclient.consumer.coordinator.membership import StaleMemberError
from pykclient.consumer.fetch_state import FetchPosition
from pykclient.consumer.request_manager import (
    NOTHING,
    PollResult,
    RequestFuture,
    TimedOperation,
    UnsentRequest,
    timeout_error,
)
from pykclient.errors import KafkaError, RetriableError
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import group_denied, topics_denied
from pykclient.protocol.messages.offset_fetch import OffsetFetchResponse
from pykclient.types import Node, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.membership import Membership
    from pykclient.consumer.network_client_delegate import NetworkClientDelegate
    from pykclient.log_context import LogContext

#: None: the group has not committed an offset for the partition.
CommittedOffsets = dict[TopicPartition, OffsetAndMetadata | None]

_Question = tuple[frozenset[TopicPartition], Generation | None]


class _Lookup:
    """A lookup for some partitions, from the first attempt to the result. Thread: application."""

    __slots__ = (
        "attempts",
        "future",
        "in_flight",
        "is_outdated",
        "is_wanted",
        "last_error",
        "next_ms",
        "question",
        "stable",
        "topic_ids",
        "waiting",
    )

    def __init__(self, question: _Question) -> None:
        self.question = question
        self.future: RequestFuture[CommittedOffsets] = RequestFuture()
        self.waiting: list[TimedOperation[CommittedOffsets]] = []  # calls of the application
        self.is_wanted = True  # asked for since the last attempt
        self.is_outdated = False  # a commit came after it
        self.in_flight = False
        self.attempts = 0
        self.next_ms = 0  # the earliest time of the next attempt
        self.stable: CommittedOffsets = {}  # of the last attempt, if some of its offsets were not stable
        self.topic_ids: Mapping[str, uuid.UUID] = {}  # the ids in the last request
        self.last_error: Exception | None = None


class CommittedOffsetsRequestManager:
    """Fetches committed offsets, for calls of the application and for partitions without a position.

    A lookup that is not done when a call times out serves the next one for the same partitions, with its backoff.
    Thread: application.
    """

    runs_in_background = False

    def __init__(
        self,
        group_id: str,
        log_context: LogContext,
        client: NetworkClientDelegate,
        membership: Membership,
        coordinator: CoordinatorRequestManager,
        clock: Clock,
        retry_backoff: ExponentialBackoff,
        consumer: CoordinatedConsumer,
    ) -> None:
        self._group_id = group_id
        self._log = log_context.logger(__name__)
        self._client = client
        self._membership = membership
        self._coordinator = coordinator
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._consumer = consumer
        self.pending: list[_Lookup] = []

    def fetch(self, partitions: Collection[TopicPartition], timeout_ms: int) -> RequestFuture[CommittedOffsets]:
        """Look up the committed offset of each partition. Abandon the future to cancel.

        The future fails with KafkaTimeoutError ``timeout_ms`` after the next poll, or with an error that is not
        retriable.
        """
        if not partitions:
            return RequestFuture.success({})
        waiting: TimedOperation[CommittedOffsets] = TimedOperation(timeout_ms)
        lookup = self._ask(partitions)
        if lookup.future.is_done:
            self._drop(lookup)
            lookup.future.chain(waiting.future)
        else:
            lookup.waiting.append(waiting)
        return waiting.future

    def start_new_partitions(self) -> bool:
        """Start partitions without a position at their committed offset, if they have one; else look it up.

        Return False while the offsets of some are not known. Partitions whose offset is stable do not wait for others
        whose offset is not, as a transaction that commits it is open. Raises errors that are not retriable.
        """
        subscriptions = self._consumer.subscriptions
        partitions = subscriptions.initializing_partitions()
        if not partitions:
            return True
        if self._coordinator.unknown:
            self._coordinator.raise_fatal_error()
        lookup = self._ask(partitions)
        if lookup.future.is_done:
            self._drop(lookup)
            if lookup.future.failed:
                raise lookup.future.exception
            return self._start_at(lookup.future.value, lookup.topic_ids)
        stable, lookup.stable = lookup.stable, {}
        if stable:
            self._start_at(stable, lookup.topic_ids)
            # The caller resets these only once all offsets are known.
            subscriptions.reset_initializing_positions(lambda tp: tp in stable and stable[tp] is None)
        return False

    def forget(self) -> None:
        """Do not reuse lookups in progress for later calls: their responses may predate a later commit."""
        self.pending = [lookup for lookup in self.pending if lookup.waiting]
        for lookup in self.pending:
            lookup.is_outdated = True

    @property
    def last_error(self) -> Exception | None:
        """The error of a lookup in progress."""
        return next((lookup.last_error for lookup in self.pending if lookup.last_error is not None), None)

    def _ask(self, partitions: Collection[TopicPartition]) -> _Lookup:
        question = frozenset(partitions), self._membership.generation_if_stable()
        found = (lookup for lookup in self.pending if lookup.question == question and not lookup.is_outdated)
        lookup = next(found, None)
        if lookup is None:
            lookup = _Lookup(question)
            # The others have become pointless, unless tasks of an event loop wait for them.
            self.pending = [other for other in self.pending if other.waiting]
            self.pending.append(lookup)
        lookup.is_wanted = True
        if not lookup.in_flight:
            self._client.managers.poll_soon()
        return lookup

    # --- the states of a lookup --------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the attempts that are due, and fail calls that have timed out."""
        if not self.pending:
            return NOTHING
        requests: list[UnsentRequest] = []
        wait_ms = min([self._advance(lookup, now_ms, requests) for lookup in self.pending.copy()])
        return PollResult(wait_ms, requests) if requests or wait_ms < FOREVER_MS else NOTHING

    def reset(self) -> None:
        """Forget the lookups in progress. The calls that waited for them have ended."""
        self.pending = []

    def _advance(self, lookup: _Lookup, now_ms: int, requests: list[UnsentRequest]) -> int:
        """Add the lookup's next attempt to ``requests`` if it is due; return the milliseconds until it must go on."""
        if lookup.future.is_done:
            return FOREVER_MS
        left_ms = self._time_left_ms(lookup, now_ms)
        if lookup.in_flight or not lookup.is_wanted:
            return left_ms
        node = self._coordinator.check_and_get()
        if node is None:
            self._coordinator.look_up()
            error = self._coordinator.take_fatal_error() if lookup.waiting else None
            if error is not None:
                self._end(lookup, error)
            return left_ms
        if now_ms < lookup.next_ms:
            return min(left_ms, lookup.next_ms - now_ms)
        requests.append(self._request(lookup, node))
        return left_ms

    def _time_left_ms(self, lookup: _Lookup, now_ms: int) -> int:
        if not lookup.waiting:
            return FOREVER_MS
        for waiting in lookup.waiting:
            if waiting.is_over(now_ms):
                waiting.fail(self._timeout_error(lookup, waiting.timeout_ms))
        # Some are done, or given up by the calls that waited for them.
        lookup.waiting = [waiting for waiting in lookup.waiting if not waiting.future.is_done]
        lookup.is_wanted = bool(lookup.waiting)
        return min([waiting.left_ms(now_ms) for waiting in lookup.waiting], default=FOREVER_MS)

    def _timeout_error(self, lookup: _Lookup, timeout_ms: int) -> KafkaError:
        coordinator = self._coordinator
        reason = (coordinator.last_error if coordinator.unknown else None) or lookup.last_error
        what = "the lookup of committed offsets"
        return timeout_error(self._client, what, timeout_ms, reason or coordinator.last_error)

    def _request(self, lookup: _Lookup, node: Node) -> UnsentRequest:
        partitions, _ = lookup.question
        self._log.debug("Asking for the committed offsets of %d partitions", len(partitions))
        topic_ids = lookup.topic_ids = self._consumer.metadata.topic_ids
        topic_names = {topic_ids[tp.topic]: tp.topic for tp in partitions if tp.topic in topic_ids}
        is_member = self._consumer.subscriptions.has_auto_assigned_partitions()
        member = self._membership.generation_for_fetches() if is_member else None
        builder = group_requests.OffsetFetchBuilder(self._group_id, partitions, topic_ids, member)
        request = UnsentRequest(builder, node)
        lookup.in_flight = True
        lookup.is_wanted = False
        answer: RequestFuture[CommittedOffsets] = handled(
            self._coordinator,
            request.future,
            lambda response, future: self._handle(response, future, lookup, topic_names),
        )
        answer.add_listener(partial(self._succeeded, lookup), partial(self._attempt_failed, lookup))
        return request

    def _succeeded(self, lookup: _Lookup, offsets: CommittedOffsets) -> None:
        if lookup.waiting:
            self._drop(lookup)
            for waiting in lookup.waiting:
                waiting.complete(offsets)
        lookup.future.complete(offsets)

    def _attempt_failed(self, lookup: _Lookup, error: Exception) -> None:
        lookup.in_flight = False
        lookup.last_error = error
        if not isinstance(error, RetriableError):
            self._end(lookup, error)
            return
        lookup.next_ms = self._clock.now_ms() + self._retry_backoff.backoff(lookup.attempts)
        lookup.attempts += 1

    def _end(self, lookup: _Lookup, error: Exception) -> None:
        if lookup.waiting:
            self._drop(lookup)
            for waiting in lookup.waiting:
                waiting.fail(error)
        lookup.future.raise_error(error)

    def _drop(self, lookup: _Lookup) -> None:
        if lookup in self.pending:
            self.pending.remove(lookup)

    # --- offsets -----------------------------------------------------------------------------------------------------

    def _start_at(self, offsets: CommittedOffsets, topic_ids: Mapping[str, uuid.UUID]) -> bool:
        """Start at these offsets; return False if some must be fetched again, for a topic that was recreated."""
        subscriptions, metadata = self._consumer.subscriptions, self._consumer.metadata
        present_ids = metadata.topic_ids
        complete = True
        for tp, committed in offsets.items():
            topic_id = topic_ids.get(tp.topic)
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

    def _handle(
        self,
        response: OffsetFetchResponse,
        future: RequestFuture[CommittedOffsets],
        lookup: _Lookup,
        topic_names: Mapping[uuid.UUID, str],
    ) -> None:
        code, fetched = group_requests.offsets_of(response, self._group_id, topic_names)
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
                self._consumer.metadata.request_update(False)
                future.raise_error(error)
                return
            elif isinstance(error, errors.UnknownTopicOrPartitionError):
                future.raise_error(KafkaError(f"{tp} does not exist, so it has no committed offset"))
                return
            else:
                future.raise_error(KafkaError(f"unexpected error about the committed offset of {tp}: {error}"))
                return
        if unauthorized:
            future.raise_error(topics_denied(self._log.principal, unauthorized, "READ", "to get committed offsets"))
        elif unstable:
            self._log.info(
                "Offsets are not stable yet for %s: a transaction that commits them is open, or their replication is "
                "under way",
                ", ".join(map(str, sorted(unstable))),
            )
            lookup.stable = offsets
            future.raise_error(errors.UnstableOffsetCommitError("the committed offsets are about to change"))
        else:
            future.complete(offsets)

    def _group_failed(self, error: errors.BrokerError) -> KafkaError:
        if isinstance(error, (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError)):
            self._coordinator.mark_unknown(f"OffsetFetch: {error}")
            return error
        if isinstance(error, errors.GroupAuthorizationError):
            return group_denied(self._log.principal, self._group_id)
        if isinstance(error, RetriableError):
            return error
        if isinstance(error, (errors.StaleMemberEpochError, errors.UnknownMemberIdError)):
            return StaleMemberError(str(error))  # a heartbeat brings the new epoch, or the end of the membership
        return KafkaError(f"unexpected error about the committed offsets of {self._group_id!r}: {error}")
