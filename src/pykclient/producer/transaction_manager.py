"""The producer id of an idempotent producer, and its epoch (KIP-98, KIP-360; Java: TransactionManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.errors import (
    AuthenticationError,
    ClusterAuthorizationError,
    InvalidPidMappingError,
    KafkaError,
    ProducerFencedError,
    RetriableError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)
from pykclient.log_context import LogContext
from pykclient.network.authorization_errors import idempotence_denied
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.producer import transaction_state as state
from pykclient.producer.producer_batch import ProducerBatch
from pykclient.producer.sequence_numbers import SequenceNumbers
from pykclient.producer.txn_partition_map import NO_PRODUCER_ID_AND_EPOCH, ProducerIdAndEpoch
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.producer.send_path import SendPath
    from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse

_MAX_EPOCH = (1 << 15) - 1
_NO_TIMEOUT_MS = (1 << 31) - 1

#: Errors after which the producer has failed permanently. Any other error affects only the batch that failed.
FATAL_ERRORS = (
    ClusterAuthorizationError,
    TransactionalIdAuthorizationError,
    ProducerFencedError,
    UnsupportedVersionError,
    InvalidPidMappingError,
)


class InitProducerIdHandler:
    """Requests a producer id and handles the response (Java: TransactionManager.InitProducerIdHandler). Thread: io."""

    __slots__ = ("_manager", "retry_not_before_ms")

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager
        #: The next request is sent at this time, unless the one in flight has its outcome earlier.
        self.retry_not_before_ms = 0

    def request_builder(self) -> RequestBuilder:
        from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest

        return RequestBuilder(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS))

    def on_complete(self, response: ClientResponse) -> None:
        self._manager.handle_init_producer_id(self, response)


class TransactionManager(SequenceNumbers):
    """Gets a producer id, and bumps its epoch when sequence numbers no longer match what a broker expects.

    Thread: io, but for ``maybe_fail_with_error``, which any thread may call.
    """

    def __init__(self, log_context: LogContext, retry_backoff_ms: int) -> None:
        super().__init__(log_context)
        self._retry_backoff_ms = retry_backoff_ms
        self._state: str = state.UNINITIALIZED
        self._send_path: SendPath | None = None
        self.last_error: Exception | None = None
        self._init_producer_id = InitProducerIdHandler(self)

    # --- state -------------------------------------------------------------------------------------------------

    @property
    def current_state(self) -> str:
        return self._state

    @property
    def is_settled(self) -> bool:
        """True if there is a producer id, no error, and no partition whose numbers must be looked at."""
        return self._state == state.READY and not self._unresolved and not self._partitions_to_rewrite

    @property
    def has_fatal_error(self) -> bool:
        return self._state == state.FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self._state == state.ABORTABLE_ERROR

    def maybe_fail_with_error(self) -> None:
        """Raise the error that made this producer unusable, if there is one.

        Raises:
            KafkaError: the producer has failed permanently.
        """
        if self._state == state.FATAL_ERROR:
            raise KafkaError(
                f"the producer has failed permanently after {self.last_error!r}; close it and create a new one"
            ) from self.last_error

    def transition_to_fatal_error(self, error: Exception) -> None:
        self._log.error("The producer has failed permanently: %r", error)
        self._transition_to(state.FATAL_ERROR, error)

    def transition_to_abortable_error(self, error: Exception) -> None:
        self._transition_to(state.ABORTABLE_ERROR, error)

    def transition_to_uninitialized(self) -> None:
        """Return to the initial state, so that the next batch requests a producer id again."""
        self._transition_to(state.UNINITIALIZED)

    def _transition_to(self, target: str, error: Exception | None = None) -> None:
        state.check_move(self._state, target)
        self._log.debug("Transition from state %s to %s", self._state, target)
        self._enter(target, error)

    def _enter(self, target: str, error: Exception | None) -> None:
        """Be in the state ``target``. Interrupted anywhere, this leaves records to the Python ``send``."""
        path = self._send_path
        if path is not None:
            path.refuses = True
        self.last_error = error
        self._state = target
        if path is not None:
            path.refuses = self.refuses_records

    @property
    def refuses_records(self) -> bool:
        """True if ``maybe_fail_with_error`` may raise."""
        return self._state == state.FATAL_ERROR

    def update_send_path(self, path: SendPath) -> None:
        """Set ``path.refuses``, now and whenever it changes."""
        self._send_path = path
        path.refuses = self.refuses_records

    @property
    def is_completing(self) -> bool:
        """True while a transaction ends: all of its batches are due."""
        return False

    def send_failed(self, error: Exception) -> None:
        """Note that a record did not get into a batch, which matters to a transaction only. Thread: any."""

    # --- getting an id -----------------------------------------------------------------------------------------

    def bump_idempotent_epoch_and_reset_id_if_needed(self) -> None:
        """Bump the epoch if a failure requires it, and begin to request a producer id if there is none."""
        if self.is_about_to_bump_epoch:
            self._bump_epoch()
        if self._state == state.UNINITIALIZED and not self.has_producer_id:
            self._init_producer_id.retry_not_before_ms = 0
            self._transition_to(state.INITIALIZING)

    @property
    def is_about_to_bump_epoch(self) -> bool:
        """True if the next round starts with an epoch bump, which needs no response from a broker."""
        return bool(self._partitions_to_rewrite) and self.has_producer_id

    def _bump_epoch(self) -> None:
        """Bump the epoch locally: an idempotent producer shares its id with no other producer (KIP-360)."""
        producer_id, epoch = self.producer_id_and_epoch
        if epoch == _MAX_EPOCH:
            # Batches in flight get new numbers once the new id arrives. Java numbers them under "no id" at once. It so
            # sends them without idempotence, and a retry can be written twice.
            self._set_producer_id_and_epoch(NO_PRODUCER_ID_AND_EPOCH)
            self._transition_to(state.UNINITIALIZED)
        else:
            self._set_producer_id_and_epoch(ProducerIdAndEpoch(producer_id, epoch + 1))
            self._rewrite_partitions()

    def request_epoch_bump(self, topic_partition: TopicPartition) -> None:
        """Bump the epoch in the next round, and renumber the partition's batches in flight from 0."""
        self._partitions_to_rewrite.add(topic_partition)

    def next_request(self) -> InitProducerIdHandler | None:
        """Return the request, other than produce requests, to be sent next; None if there is none."""
        return self._init_producer_id if self._state == state.INITIALIZING else None

    def authentication_failed(self, error: AuthenticationError) -> None:
        """Handle a failed authentication with the broker to be asked for a producer id."""
        if self._state == state.INITIALIZING:
            self.transition_to_abortable_error(error)

    def handle_init_producer_id(self, handler: InitProducerIdHandler, response: ClientResponse) -> None:
        """Handle the response to the request for a producer id."""
        if self._state != state.INITIALIZING:
            # The outcome of an earlier request came late. Java fails.
            self._log.debug("Ignoring the response to a second request for a producer id")
            return
        handler.retry_not_before_ms = response.received_ms + self._retry_backoff_ms
        if response.authentication_error is not None:
            self.authentication_failed(response.authentication_error)
        elif response.disconnected:
            self._log.debug("Disconnected from node %s while requesting a producer id", response.destination)
        elif response.build_error is not None:
            self.transition_to_fatal_error(response.build_error)
        else:
            body: InitProducerIdResponse = response.response_body
            error = errors.for_code(body.error_code)
            if error is None:
                self._set_producer_id_and_epoch(ProducerIdAndEpoch(body.producer_id, body.producer_epoch))
                self._rewrite_partitions()
                self._transition_to(state.READY)
            elif isinstance(error, RetriableError):
                self._log.debug("Requesting a producer id again after %r", error)
            elif isinstance(error, ClusterAuthorizationError):
                self.transition_to_abortable_error(idempotence_denied(self._log.principal))
            else:
                self.transition_to_fatal_error(error)

    # --- batches -----------------------------------------------------------------------------------------------

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition) -> bool:  # noqa: ARG002 - transactions'
        return self._state != state.FATAL_ERROR

    def handle_failed_batch(self, batch: ProducerBatch, error: Exception, refused: bool) -> None:
        """Update the state and the partition's sequence numbers after a batch has failed permanently.

        ``refused``: the batch is certainly not in the log.
        """
        if isinstance(error, FATAL_ERRORS):
            self.transition_to_fatal_error(error)
        if batch.has_sequence and not self.has_fatal_error:
            self._leave_gap(batch, error, refused)
        self.remove_in_flight_batch(batch)

    def recover(self, numbered: list[ProducerBatch]) -> None:
        """Track ``numbered``, all incomplete batches with numbers, after an exception in the middle of a step."""
        super().recover(numbered)
        self._init_producer_id.retry_not_before_ms = 0
