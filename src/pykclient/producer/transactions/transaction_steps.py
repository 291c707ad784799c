"""The requests of a transactional producer to its coordinators, and the meaning of each response.

Java: the TxnRequestHandlers of TransactionManager. No step knows the state of the transaction: TransactionManager
decides which step is next, and what its outcome leads to.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from pykclient import errors
from pykclient.errors import (
    BrokerError,
    ClusterAuthorizationError,
    CommitFailedError,
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    KafkaError,
    NotCoordinatorError,
    OperationNotAttemptedError,
    ProducerFencedError,
    RemoteProtocolError,
    RequestTimedOutError,
    RetriableError,
    StaleMemberEpochError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnsupportedVersionError,
)
from pykclient.network.client_request import RequestBuilder
from pykclient.network.failures import group_denied, shown_node, topics_denied, transactional_id_denied
from pykclient.types import ConsumerGroupMetadata, Node, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.log_context import PrefixLogger
    from pykclient.network.client_request import ClientResponse
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.producer.transactions.producer_id_manager import ProducerIdAndEpoch
    from pykclient.protocol.message import Request
    from pykclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
    from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
    from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
    from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
    from pykclient.types import Node

# --- outcome of a response -------------------------------------------------------------------------------------------

DONE: Final = "DONE"
#: Repeat the request after a backoff.
RETRY: Final = "RETRY"
#: Look for the coordinator, then repeat the request.
FIND_COORDINATOR: Final = "FIND_COORDINATOR"
#: Give up the request. It may be made again later, when its cause, such as a missing permission, is mended.
REFUSED: Final = "REFUSED"
#: The transaction can only be aborted.
ABORTABLE: Final = "ABORTABLE"
#: A newer producer has taken over.
FENCED: Final = "FENCED"
#: The producer has failed permanently.
FATAL: Final = "FATAL"

#: From the mildest to the worst: if a response has several errors, the worst decides.
_SEVERITY = (DONE, RETRY, FIND_COORDINATOR, REFUSED, ABORTABLE, FENCED, FATAL)

#: For each action the errors that lead to it, in this order; any other error is fatal.
_ACTIONS: tuple[tuple[str, tuple[type[Exception], ...]], ...] = (
    (FIND_COORDINATOR, (NotCoordinatorError, CoordinatorNotAvailableError)),
    (FENCED, (ProducerFencedError, InvalidProducerEpochError)),
    (RETRY, (RetriableError,)),
    (
        ABORTABLE,
        (
            TransactionAbortableError,
            UnknownProducerIdError,
            GroupAuthorizationError,
            TopicAuthorizationError,
            OperationNotAttemptedError,
            FencedInstanceIdError,
            UnknownMemberIdError,
            IllegalGenerationError,
            StaleMemberEpochError,
            FencedMemberEpochError,
            CommitFailedError,
        ),
    ),
)

#: The errors of a member whose group has moved on without it.
_LEFT_BEHIND = (UnknownMemberIdError, IllegalGenerationError, StaleMemberEpochError, FencedMemberEpochError)


class Outcome(NamedTuple):
    """The action after a response, and the error that caused it."""

    action: str
    error: Exception | None = None


_SUCCESS = Outcome(DONE)


class CoordinatorKey(NamedTuple):
    """Identifies a coordinator: of a group (type 0), or of a transactional.id (type 1)."""

    type: int
    key: str


GROUP: Final = 0
TRANSACTION: Final = 1

_FIRST_VERSION_WITH_SEVERAL_KEYS = 4
_FIRST_INIT_VERSION_WITH_EPOCH = 3
#: The only version with two-phase commit, which brokers of Kafka 4.3 do not offer by default (KIP-939).
_INIT_VERSION_WITH_TWO_PHASES = 6
#: Sent as the timeout of transactions that have none.
_NO_TIMEOUT_MS = (1 << 31) - 1

#: With two-phase commit: whether ``init_transactions`` keeps or aborts the transaction that an earlier producer has
#: left.
KEEP_PREPARED: Final = "KEEP_PREPARED"
ABORT_PREPARED: Final = "ABORT_PREPARED"
_LAST_ADD_PARTITIONS_VERSION_OF_CLIENTS = 3
#: The versions from the next one on belong to the second generation of transactions (KIP-890).
_LAST_END_TXN_VERSION_OF_V1 = 4
_LAST_OFFSET_COMMIT_VERSION_OF_V1 = 4

#: Gets the response of a request that succeeded.
OnSuccess = Callable[[Any], None]


class TxnStep(ABC):
    """One request: where to send it, how to build it, and what its response means. Thread: io."""

    name: ClassVar[str]
    #: True if the request changes the open transaction, so that it must not arrive in a later one.
    changes_transaction: ClassVar[bool] = True
    #: True if the request is part of ``send_offsets_to_transaction``, which then raises its errors itself.
    is_about_offsets = False

    def __init__(self, coordinator: CoordinatorKey | None, on_success: OnSuccess) -> None:
        #: The coordinator to ask; None for any broker.
        self.coordinator = coordinator
        self.on_success = on_success
        #: Whom the producer authenticates as, if that is known, for messages.
        self.principal: str | None = None

    @abstractmethod
    def builder(self) -> RequestBuilder:
        """Return the request."""

    def errors_in(self, body: Any) -> Iterable[Exception | None]:
        """Return the errors of a response, with None for each part that succeeded."""
        return (errors.for_code(body.error_code),)

    def action_for(self, error: Exception) -> str:
        """Return the action for ``error``."""
        for action, classes in _ACTIONS:
            if isinstance(error, classes):
                return action
        return FATAL

    def outcome(self, body: Any) -> Outcome:
        """Return the outcome of the response: the worst of its errors decides."""
        worst = _SUCCESS
        for error in self.errors_in(body):
            if error is not None:
                action = self.action_for(error)
                if _SEVERITY.index(action) > _SEVERITY.index(worst.action):
                    worst = Outcome(action, error)
        return worst

    def __repr__(self) -> str:
        return self.name


class _FindCoordinatorBuilder(RequestBuilder):
    """A lookup of one coordinator. From v4 on, requests can have several keys (KIP-699)."""

    __slots__ = ("_wanted",)

    def __init__(self, wanted: CoordinatorKey) -> None:
        from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest

        # Version 0 can only look for groups.
        super().__init__(FindCoordinatorRequest(key=wanted.key), min_version=min(wanted.type, 1))
        self._wanted = wanted

    def build(self, version: int) -> Request:
        from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest

        coordinator_type, key = self._wanted
        if version < _FIRST_VERSION_WITH_SEVERAL_KEYS:
            return FindCoordinatorRequest(key=key, key_type=coordinator_type)
        return FindCoordinatorRequest(key_type=coordinator_type, coordinator_keys=[key])


class FindCoordinatorStep(TxnStep):
    """Asks any broker for a coordinator. Thread: io."""

    name = "FindCoordinator"
    changes_transaction = False

    def __init__(self, wanted: CoordinatorKey, on_success: OnSuccess) -> None:
        super().__init__(None, on_success)
        self.wanted = wanted
        self.is_about_offsets = wanted.type == GROUP

    def builder(self) -> RequestBuilder:
        return _FindCoordinatorBuilder(self.wanted)

    def errors_in(self, body: FindCoordinatorResponse) -> Iterable[Exception | None]:
        if len(body.coordinators) > 1:
            return (RemoteProtocolError(f"asked for one coordinator, the broker named {len(body.coordinators)}"),)
        found = body.coordinators[0] if body.coordinators else body
        error = errors.for_code(found.error_code, found.error_message or None)
        if isinstance(error, GroupAuthorizationError):
            error = group_denied(self.principal, self.wanted.key)
        return (error,)

    def action_for(self, error: Exception) -> str:
        return RETRY if isinstance(error, RetriableError) else super().action_for(error)

    @staticmethod
    def coordinator_in(body: FindCoordinatorResponse) -> Node:
        """Return the coordinator that the response names."""
        found = body.coordinators[0] if body.coordinators else body
        return Node(found.node_id, found.host, found.port)


class ProducerStep(TxnStep):
    """A request of the producer ``producer`` to the transaction coordinator, or to that of a group. Thread: io."""

    def __init__(
        self, transactional_id: str, producer: ProducerIdAndEpoch, on_success: OnSuccess, group_id: str | None = None
    ) -> None:
        key = CoordinatorKey(TRANSACTION, transactional_id) if group_id is None else CoordinatorKey(GROUP, group_id)
        super().__init__(key, on_success)
        self._transactional_id = transactional_id
        self._producer = producer

    @property
    def _fields(self) -> dict[str, Any]:
        """The fields that name the producer in most requests."""
        id, epoch = self._producer.producer_id, self._producer.epoch
        return {"transactional_id": self._transactional_id, "producer_id": id, "producer_epoch": epoch}


class InitProducerIdStep(ProducerStep):
    """Gets a producer id and epoch, which fences earlier producers; or bumps the epoch of ``current`` (KIP-360).

    ``two_phases`` is KEEP_PREPARED, ABORT_PREPARED, or None without two-phase commit.
    """

    name = "InitProducerId"
    changes_transaction = False

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        current: ProducerIdAndEpoch,
        on_success: OnSuccess,
        two_phases: str | None = None,
    ) -> None:
        super().__init__(transactional_id, current, on_success)
        self._timeout_ms = timeout_ms
        self._two_phases = two_phases

    def builder(self) -> RequestBuilder:
        from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(**self._fields, transaction_timeout_ms=self._timeout_ms)
        if self._two_phases is None:
            return RequestBuilder(request, _FIRST_INIT_VERSION_WITH_EPOCH if self._producer.is_valid else None)
        request.transaction_timeout_ms = _NO_TIMEOUT_MS
        request.enable2_pc = True
        request.keep_prepared_txn = self._two_phases == KEEP_PREPARED
        return RequestBuilder(request, _INIT_VERSION_WITH_TWO_PHASES, _INIT_VERSION_WITH_TWO_PHASES)

    def action_for(self, error: Exception) -> str:
        if isinstance(error, (TransactionalIdAuthorizationError, ClusterAuthorizationError, TransactionAbortableError)):
            return REFUSED
        if isinstance(error, UnsupportedVersionError) and self._two_phases == KEEP_PREPARED:
            return REFUSED
        return super().action_for(error)

    def explained(self, action: str, error: Exception) -> Exception | None:
        """Return a clearer error for ``error`` and ``action`` if it concerns two-phase commit."""
        if self._two_phases is None:
            return None
        if isinstance(error, TransactionalIdAuthorizationError):
            denied = transactional_id_denied(self.principal, self._transactional_id, f"({self!r})")
            explained: BrokerError = TransactionalIdAuthorizationError(
                f"{denied}. With transaction.two.phase.commit.enable=True, the brokers must also have that setting, "
                "and the principal the permission TWO_PHASE_COMMIT on the transactional id"
            )
        elif not isinstance(error, UnsupportedVersionError):
            return None
        elif action == REFUSED:
            explained = UnsupportedVersionError(
                "the brokers cannot keep a prepared transaction: up to Kafka 4.3 they refuse keep_prepared_txn=True. "
                "init_transactions() without it aborts the transaction that an earlier producer has left"
            )
        else:
            explained = UnsupportedVersionError(
                "two-phase commit needs version 6 of InitProducerId, which the coordinator does not offer: set "
                "unstable.api.versions.enable=true and transaction.two.phase.commit.enable=true in the configuration "
                f"of all brokers (Kafka 4.1 or later), or transaction.two.phase.commit.enable=False here ({error})"
            )
        explained.__cause__ = error
        return explained


class AddPartitionsStep(ProducerStep):
    """Adds partitions to a transaction of the first generation. In the second, the broker adds them on write."""

    name = "AddPartitionsToTxn"

    def __init__(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        on_success: OnSuccess,
    ) -> None:
        super().__init__(transactional_id, producer, on_success)
        self.partitions = partitions

    def builder(self) -> RequestBuilder:
        from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

        topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
        for topic, partition in sorted(self.partitions):
            if topic not in topics:
                topics[topic] = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic)
            topics[topic].partitions.append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer.producer_id,
            v3_and_below_producer_epoch=self._producer.epoch,
            v3_and_below_topics=topics.values(),
        )
        return RequestBuilder(request, max_version=_LAST_ADD_PARTITIONS_VERSION_OF_CLIENTS)

    def errors_in(self, body: AddPartitionsToTxnResponse) -> Iterable[Exception | None]:
        for topic in body.results_by_topic_v3_and_below:
            for partition in topic.results_by_partition:
                error = errors.for_code(partition.partition_error_code)
                if isinstance(error, TopicAuthorizationError):
                    error = topics_denied(self.principal, [topic.name], "WRITE")
                yield error


class AddOffsetsStep(ProducerStep):
    """Adds the offsets of a group to the transaction, in its first generation."""

    name = "AddOffsetsToTxn"
    is_about_offsets = True

    def __init__(
        self, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str, on_success: OnSuccess
    ) -> None:
        super().__init__(transactional_id, producer, on_success)
        self.group_id = group_id

    def builder(self) -> RequestBuilder:
        from pykclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

        return RequestBuilder(AddOffsetsToTxnRequest(**self._fields, group_id=self.group_id))

    def errors_in(self, body: AddOffsetsToTxnResponse) -> Iterable[Exception | None]:
        error = errors.for_code(body.error_code)
        if isinstance(error, GroupAuthorizationError):
            error = group_denied(self.principal, self.group_id)
        return (error,)


class TxnOffsetCommitStep(ProducerStep):
    """Sends offsets to the group coordinator, where they stay pending until the transaction ends (KIP-447)."""

    name = "TxnOffsetCommit"
    is_about_offsets = True

    def __init__(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        is_v2: bool,
        on_success: OnSuccess,
    ) -> None:
        super().__init__(transactional_id, producer, on_success, group.group_id or "")
        self._offsets = offsets
        self._group = group
        self._is_v2 = is_v2

    def builder(self) -> RequestBuilder:
        from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

        topics: dict[str, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = {}
        for (topic, partition), (offset, metadata, leader_epoch) in self._offsets.items():
            if topic not in topics:
                topics[topic] = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic)
            topics[topic].partitions.append(
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            **self._fields,
            group_id=self._group.group_id or "",
            generation_id=self._group.generation_id,
            member_id=self._group.member_id,
            group_instance_id=self._group.group_instance_id,
            topics=topics.values(),
        )
        return RequestBuilder(request, max_version=None if self._is_v2 else _LAST_OFFSET_COMMIT_VERSION_OF_V1)

    def errors_in(self, body: TxnOffsetCommitResponse) -> Iterable[Exception | None]:
        for topic in body.topics:
            for partition in topic.partitions:
                error: Exception | None = errors.for_code(partition.error_code)
                if isinstance(error, GroupAuthorizationError):
                    error = group_denied(self.principal, self._group.group_id or "")
                elif isinstance(error, _LEFT_BEHIND):
                    why = str(error).rstrip(".")
                    left_behind = CommitFailedError(
                        f"the group {self._group.group_id!r} has rebalanced since group_metadata() was read in "
                        f"generation {self._group.generation_id}, so other members may own the partitions now: "
                        f"{why}. Abort the transaction, and continue with the partitions that poll() assigns"
                    )
                    left_behind.__cause__ = error
                    error = left_behind
                yield error

    def action_for(self, error: Exception) -> str:
        # A coordinator that cannot replicate in time is often one that has lost the leadership.
        return FIND_COORDINATOR if isinstance(error, RequestTimedOutError) else super().action_for(error)


class EndTxnStep(ProducerStep):
    """Commits or aborts. In the second generation, the response has the epoch of the next transaction."""

    name = "EndTxn"

    def __init__(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        committed: bool,
        is_v2: bool,
        on_success: OnSuccess,
    ) -> None:
        super().__init__(transactional_id, producer, on_success)
        self.committed = committed
        self._is_v2 = is_v2

    def builder(self) -> RequestBuilder:
        from pykclient.protocol.messages.end_txn import EndTxnRequest

        request = EndTxnRequest(**self._fields, committed=self.committed)
        if self._is_v2:
            return RequestBuilder(request, min_version=_LAST_END_TXN_VERSION_OF_V1 + 1)
        return RequestBuilder(request, max_version=_LAST_END_TXN_VERSION_OF_V1)

    def action_for(self, error: Exception) -> str:
        action = super().action_for(error)
        # What can only be aborted, and cannot be aborted, can only be closed.
        return FATAL if action == ABORTABLE and not self.committed else action


#: The first backoff while the markers of the previous transaction are still being written, which takes milliseconds.
_CONCURRENT_BACKOFF_MS = 20
#: After so many attempts a retry is logged as a warning: a failover takes a few.
_QUIET_ATTEMPTS = 10


class TransactionDialogue:
    """Tracks the coordinators, the request in flight, its response, and the backoff before the next one.

    A response is kept until its step has been handled. So if an exception of a signal handler ends the handling, it is
    repeated. Thread: io.
    """

    def __init__(self, log: PrefixLogger, backoff: ExponentialBackoff) -> None:
        self._log = log
        self._backoff = backoff
        self._coordinators: dict[CoordinatorKey, Node] = {}
        #: The step whose request is in flight, or whose response has not been handled.
        self.in_flight: TxnStep | None = None
        self._lost_at_ms = 0  # the request in flight is then taken for lost
        #: The response to that step, until it is handled.
        self.unhandled: ClientResponse | None = None
        self._attempts = 0  # failed ones since the last success
        #: No request is sent before this time.
        self.not_before_ms = 0
        #: The error of the last failed attempt, until one succeeds.
        self.last_error: Exception | None = None

    def coordinator(self, key: CoordinatorKey) -> Node | None:
        """Return the coordinator if it is known."""
        return self._coordinators.get(key)

    def first_step(self, step: TxnStep) -> TxnStep:
        """Return ``step``, or the lookup of its coordinator if that is unknown."""
        key = step.coordinator
        if key is None or key in self._coordinators:
            return step
        return FindCoordinatorStep(key, lambda body: self.found(key, FindCoordinatorStep.coordinator_in(body)))

    def found(self, key: CoordinatorKey, node: Node) -> None:
        """Note the coordinator."""
        if self._coordinators.get(key) != node:
            self._log.info("The coordinator of %r is %s", key.key, shown_node(node))
        self._coordinators[key] = node

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight, and no response is left to handle."""
        return self.in_flight is None

    def is_waiting(self, now_ms: int) -> bool:
        """Return whether a request is in flight, or its response has not been handled."""
        return self.in_flight is not None and (self.unhandled is not None or now_ms < self._lost_at_ms)

    def sent(self, step: TxnStep, lost_at_ms: int) -> None:
        """Record that ``step`` is about to be sent. Without a response by ``lost_at_ms`` it is resent."""
        self.unhandled = None
        self._lost_at_ms = lost_at_ms
        self.in_flight = step

    def answered(self, step: TxnStep, response: ClientResponse) -> None:
        """Keep the response to ``step`` until it is handled."""
        if step is self.in_flight:
            self.unhandled = response

    def outcome(self, step: TxnStep, response: ClientResponse) -> Outcome:
        """Return the outcome of the response."""
        if response.authentication_error is not None:
            return Outcome(FATAL, response.authentication_error)
        if response.disconnected:
            error = KafkaError(f"the connection to broker {response.destination} was lost")
            return Outcome(RETRY if step.coordinator is None else FIND_COORDINATOR, error)
        if response.build_error is not None:
            return Outcome(FATAL, response.build_error)
        return step.outcome(response.response_body)

    def handled(self, step: TxnStep, outcome: Outcome, now_ms: int) -> None:
        """Record that the response is handled. The next request may be sent, after a backoff if this one failed."""
        if outcome.action == DONE:
            self._attempts = 0
            self.last_error = None
        elif outcome.action in {RETRY, FIND_COORDINATOR}:
            if outcome.action == FIND_COORDINATOR:
                self.forget(step)
            self.back_off(step, outcome.error, now_ms)
        self.unhandled = self.in_flight = None

    def forget(self, step: TxnStep) -> None:
        """Look up the coordinator of ``step`` again before its next request."""
        if step.coordinator is not None:
            self._coordinators.pop(step.coordinator, None)

    def back_off(self, step: TxnStep, error: Exception | None, now_ms: int) -> None:
        """Send nothing during the backoff, because ``step`` has failed."""
        level = logging.WARNING if self._attempts and self._attempts % _QUIET_ATTEMPTS == 0 else logging.DEBUG
        self._log.log(level, "Retrying %r after attempt %d: %s", step, self._attempts + 1, error)
        backoff_ms = self._backoff.backoff(self._attempts)
        if isinstance(error, ConcurrentTransactionsError):
            backoff_ms = min(backoff_ms, _CONCURRENT_BACKOFF_MS << min(self._attempts, 16))
        self.not_before_ms = now_ms + backoff_ms
        self.last_error = error
        self._attempts += 1

    def drop(self) -> None:
        """Forget the request in flight, which the network client has dropped, unless its response is here already."""
        if self.unhandled is None:
            self.in_flight = None
        self.not_before_ms = 0
