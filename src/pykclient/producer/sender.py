"""The states of a Sender, as a table.

A sender that is closing first sends the remaining batches (DRAINING). A forced close fails them instead (FORCED). An
exception that ends the driver closes from any state.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from pykclient.clock import FOREVER_MS, Clock, Signal
from pykclient.errors import (
    DisconnectError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
    check_move,
)
from pykclient.log_context import LogContext
from pykclient.network.client_request import RequestBuilder
from pykclient.network.failures import raise_if_of_signal_handler, shown_node
from pykclient.network.kafka_client import KafkaClient
from pykclient.producer.future import ProducerBatch
from pykclient.producer.produce_requests import (
    PUBLISH_INTERVAL_MS,
    BatchesRequest,
    ProduceRequestBuilder,
    ProduceResponseHandler,
    ProduceTemplate,
    SenderMetrics,
)
from pykclient.producer.producer_metadata import ProducerMetadata
from pykclient.producer.record_accumulator import RecordAccumulator
from pykclient.producer.transactions.producer_id_manager import ProducerIdManager
from pykclient.producer.transactions.transaction_steps import FIND_COORDINATOR, Outcome
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pykclient.network.client_request import ClientResponse
    from pykclient.network.metadata import MetadataSnapshot
    from pykclient.producer.batch_register import NodeQueues
    from pykclient.producer.transactions.transaction_manager import TransactionManager
    from pykclient.producer.transactions.transaction_steps import TxnStep

RUNNING: Final = "RUNNING"
DRAINING: Final = "DRAINING"
FORCED: Final = "FORCED"
CLOSED: Final = "CLOSED"

STATES = (RUNNING, DRAINING, FORCED, CLOSED)

#: The allowed next states of each state.
MOVES: dict[str, frozenset[str]] = {
    RUNNING: frozenset((DRAINING, FORCED, CLOSED)),
    DRAINING: frozenset((FORCED, CLOSED)),
    FORCED: frozenset((CLOSED,)),
    CLOSED: frozenset(),
}

#: The states in which a forced close changes the state.
MAY_BE_FORCED = frozenset(source for source in STATES if FORCED in MOVES[source])


#: From the next version on, produce requests identify topics by id only (KIP-516).
_LAST_VERSION_WITH_TOPIC_NAMES = 12
#: From the next version on, a produce request adds its partitions to the transaction (KIP-890).
_LAST_VERSION_OF_TRANSACTIONS_V1 = 11
#: If a request for a producer id has no outcome for this many times ``request.timeout.ms``, an exception must have
#: kept the outcome from the sender, and another request is sent.
_REQUEST_TIMEOUTS_PER_ID = 2

_CLOSED_BY_FORCE = "the producer was closed by force before the record was sent"
_CLOSED_DURING_CALL = "the producer was closed during the call"

#: A transaction ends after the callbacks of its records have run. Look again after this time, if nobody says so.
_CALLBACKS_MS = 5


class SenderConfig(NamedTuple):
    """The settings of a Sender.

    ``acks`` is -1 for all. Times are in milliseconds, sizes in bytes.
    """

    acks: int
    retries: int
    max_request_size: int
    request_timeout_ms: int
    retry_backoff_ms: int
    #: The lowest version of the produce request that brokers must support; None allows any.
    min_produce_version: int | None = None


class Purge(NamedTuple):
    """A call to give up batches: the errors for the queued ones and for those in flight, None to keep them."""

    queued: Exception | None
    in_flight: Exception | None
    done: Signal


class Sender:
    """Drains batches that are due from the accumulator, sends them to their leaders, and completes them.

    It decides and never waits: a driver calls ``step`` and polls the network client in turn. A step also fails the
    batches that have expired (``ProducerBatch.expiry_ms``).

    Thread: io, but for ``wakeup``, ``purge``, ``initiate_close``, ``abandon``, ``force_close``, ``is_running`` and
    ``is_closed``, which any thread may use.
    """

    def __init__(
        self,
        config: SenderConfig,
        client: KafkaClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        metrics: SenderMetrics,
        clock: Clock,
        log_context: LogContext,
        id_manager: ProducerIdManager | None = None,
    ) -> None:
        self._log = log_context.logger(__name__)
        self._thread = accumulator.sender_thread
        self._config = config
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._register = accumulator.register
        self._waiting = accumulator.waiting
        self._metrics = metrics
        self._clock = clock
        self._id_manager = id_manager
        self._transactions: TransactionManager | None = None
        if id_manager is not None and id_manager.is_transactional:
            self._transactions = cast("TransactionManager", id_manager)
        transactional_id = None if self._transactions is None else self._transactions.transactional_id
        self._template = ProduceTemplate(transactional_id, config.acks, config.request_timeout_ms)
        self._close_deadline_ms: int | None = None  # of the abort of the transaction that is open at the close
        self._state: str = RUNNING
        #: True once the producer has closed: the driver ends. ``_state`` is then CLOSED.
        self.is_closed = False
        # Requests of other threads. ``_state`` follows them in the next step, so only the driver changes it.
        self._is_closing = False
        self._is_forced = False
        self._keeps_transaction = False
        self._purges: deque[Purge] = deque()
        self._last_error = ""
        self._next_round_ms = 0  # later than now after a round that failed
        self._responses = ProduceResponseHandler(
            accumulator,
            metadata,
            metrics,
            clock,
            log_context,
            retries=config.retries,
            id_manager=id_manager,
        )

    # --- rounds ------------------------------------------------------------------------------------------------

    def step(self, now_ms: int, *, is_borrowed: bool = False) -> int:
        """Do everything that is due at ``now_ms``; return how long the driver may wait for the network, in ms.

        This requests a producer id if needed, sends batches that are due, fails expired ones, and continues a close.
        It neither polls nor waits. The driver polls the network client after each step, and calls this again when the
        poll has ended, until ``is_closed``.

        An Exception raised in a round is logged and fails only the batches that it left behind. The next round starts
        ``retry.backoff.ms`` later. Any other exception is raised, and the driver must pass it to ``fail``. On a thread
        of the application (``is_borrowed``) all exceptions are raised, because they may be those of a signal handler,
        and the next driver must call ``recover``.
        """
        if self._is_closing or self._is_forced:
            self._go_on_closing(now_ms)
            if self.is_closed:
                return 0
        delay_ms = self._next_round_ms - now_ms
        if delay_ms > 0:
            return delay_ms
        if not self._register.incomplete and not self._purges:
            rest_ms = self._waiting.next_look_ms - now_ms
            if 0 < rest_ms <= PUBLISH_INTERVAL_MS and self._rests():
                return rest_ms
        if is_borrowed:
            return self._run_round(now_ms)
        try:
            return self._run_round(now_ms)
        except Exception as error:  # noqa: BLE001 - the producer must go on
            return self.round_failed(error, now_ms)

    def _rests(self) -> bool:
        """Return True if a producer without batches has nothing to do before the time of its next check.

        This is so after the response to its last batch. A thread that adds a batch wakes the sender if the batch is due
        before that check. The check itself publishes metrics, so it must not be further off than their interval.
        """
        if self._register.held or self._transactions is not None:
            return False
        return self._id_manager is None or self._id_manager.is_settled

    def round_failed(self, error: Exception, now_ms: int) -> int:
        """Clean up after an exception that ended a step or a poll early; return the backoff in ms.

        Batches that are neither queued nor in flight fail. Until the backoff has passed, ``step`` starts no round.
        """
        if repr(error) != self._last_error:  # log a repeated error only once
            self._log.error("Error in the producer's I/O thread", exc_info=error)
        self._last_error = repr(error)
        backoff_ms = self._config.retry_backoff_ms
        self._next_round_ms = now_ms + backoff_ms
        self._accumulator.look_at_all()
        self._responses.fail_held(error)
        return backoff_ms

    def recover(self, now_ms: int) -> None:
        """Recover after an exception, for example of a signal handler, ended a step or a poll.

        All connections and requests are dropped. Batches that were sent, or answered, are retried under the same
        numbers, as after a lost connection. This may itself be interrupted and repeated.
        """
        self._client.drop_connections()
        self._accumulator.look_at_all()
        numbered = self._register.hold_all(self._accumulator.queued_batches)
        if self._id_manager is not None:
            self._id_manager.recover(numbered)
        self._responses.retry_held(now_ms)

    def call_listeners(self) -> None:
        """Call the listeners of results that were set on other threads. Thread: the sender's own."""
        self._register.call_listeners()

    def _run_round(self, now_ms: int) -> int:
        self._waiting.begin_look()
        if self._register.held:  # failing them after an exception raised another one
            self._responses.fail_held(IllegalStateError("an earlier round of the sender ended early"))
        if self._purges:
            self._make_purges(now_ms)
        if self._transactions is not None:
            return self._run_transactional_round(self._transactions, now_ms)
        manager = self._id_manager
        if manager is not None and not manager.is_settled:
            manager.maybe_resolve_sequences()
            if manager.has_fatal_error:
                self._abort_batches(manager.last_error)
                return self._config.retry_backoff_ms
            if manager.has_abortable_error:
                # The cause may be temporary: fail the waiting batches, and let the next record try again.
                self._abort_batches(manager.last_error)
                manager.transition_to_uninitialized()
            if self._register.incomplete:  # an idle producer needs no id
                manager.bump_idempotent_epoch_and_reset_id_if_needed()
            wait_ms = self._maybe_send_transactional_request(manager, now_ms)
            if wait_ms is not None:
                return wait_ms
        return self._send_producer_data(now_ms)

    def _abort_batches(self, error: Exception | None) -> None:
        if error is not None and self._accumulator.has_incomplete:
            self._log.error("Failing all batches: %r", error)
            self._register.abort(error)

    # --- sending -----------------------------------------------------------------------------------------------

    def _send_producer_data(self, now_ms: int) -> int:
        """Send the batches that are due; return how long the network client may wait, in ms.

        Fail expired batches first, and request metadata for missing leaders. Then visit the nodes, send to each that
        can take a request what is due, and compute the time of the next check.

        Java fails expired batches after draining, and so may send a batch that it has just failed.
        """
        metrics = self._metrics
        waiting = self._waiting
        if not self._register.incomplete:  # nothing is queued or in flight
            timeout_ms = metrics.publish_if_due(now_ms)
            waiting.next_look_ms = now_ms + timeout_ms
            return timeout_ms
        snapshot = self._metadata.fetch_metadata_snapshot()
        waiting.file(snapshot)
        if now_ms >= waiting.next_expiry_ms:
            self._fail_expired_batches(now_ms)
            waiting.file(snapshot)
        if waiting.leaderless:
            self._request_leaders({queue.topic_partition.topic for queue in waiting.leaderless}, now_ms)
        next_check_ms = self._send_to_nodes(snapshot, now_ms)
        timeout_ms = metrics.publish_if_due(now_ms)
        expiry_ms = waiting.next_expiry_ms - now_ms
        timeout_ms = timeout_ms if timeout_ms < expiry_ms else expiry_ms
        timeout_ms = timeout_ms if timeout_ms < next_check_ms else next_check_ms
        waiting.next_look_ms = now_ms + timeout_ms  # batches due later need no wakeup
        return timeout_ms if timeout_ms > 0 else 0

    def _send_to_nodes(self, snapshot: MetadataSnapshot, now_ms: int) -> int:
        """Send a request to each node with batches that are due; return in how many ms to check again."""
        accumulator = self._accumulator
        send_all = accumulator.sends_all
        timeout_ms = FOREVER_MS
        visited: list[NodeQueues] = []
        has_sent = False
        for of_node in self._waiting.nodes.values():
            delay_ms = of_node.delay_ms(now_ms, send_all)
            if delay_ms > 0:
                timeout_ms = min(timeout_ms, delay_ms)
                continue
            node = of_node.node
            is_ready = self._client.ready(node, now_ms)
            of_node.is_blocked = not is_ready
            if accumulator.load.excludes_nodes:
                accumulator.load.update(node.id, now_ms, is_ready)
            if not is_ready:
                timeout_ms = min(timeout_ms, self._client.poll_delay_ms(node, now_ms))
                continue
            visited.append(of_node)
            batches = accumulator.drain(of_node, self._config.max_request_size, now_ms)
            if accumulator.unsendable:
                self._fail_unsendable_batches()
            if batches:
                has_sent = True
                self._metrics.collect_request(batches)
                self._send_produce_request(node, batches, snapshot, now_ms)
        if not visited:
            return timeout_ms
        if has_sent:
            # Requests may not have held all batches. Java checks again at once, and so runs one useless round after
            # each request.
            rest_ms = accumulator.delay_of_rest_ms(snapshot, visited, now_ms)
            return timeout_ms if timeout_ms < rest_ms else rest_ms
        # The batches are due, but wait for sequence numbers: until the epoch is bumped, or a response arrives.
        manager = self._id_manager
        is_about_to_bump = manager is not None and manager.is_about_to_bump_epoch
        return 0 if is_about_to_bump else min(timeout_ms, self._config.retry_backoff_ms)

    def _request_leaders(self, topics: set[str], now_ms: int) -> None:
        """Request metadata for topics with no known leader.

        Their election may be pending, or they may have been idle long enough to leave the metadata.
        """
        for topic in topics:
            self._metadata.add(topic, now_ms)
        self._log.debug("Requesting metadata: no leader is known for partitions of %s", topics)
        self._metadata.request_update(False)

    def _fail_expired_batches(self, now_ms: int) -> None:
        """Fail the batches whose ``delivery.timeout.ms`` is over, those in queues first."""
        accumulator = self._accumulator
        waiting = accumulator.expired_batches(now_ms)
        in_flight = self._register.expired_in_flight(accumulator.delivery_timeout_ms, now_ms)
        for batch in waiting:
            self._fail_expired(batch, now_ms, "received no successful response" if batch.in_retry else "was not sent")
        for batch in in_flight:
            self._fail_expired(batch, now_ms, "received no response")

    def _fail_unsendable_batches(self) -> None:
        unsendable, self._accumulator.unsendable = self._accumulator.unsendable, []
        for batch, error in unsendable:
            self._log.error("%s could not be prepared for sending: %r", batch, error)
            refused = batch.attempts == 0 and not batch.may_be_written  # the batch was never sent
            self._responses.fail_batch(batch, error, refused=refused)

    def _fail_expired(self, batch: ProducerBatch, now_ms: int, what: str) -> None:
        report = self._client.connection_report()
        error = KafkaTimeoutError(
            f"{batch.record_count} record(s) for {batch.topic_partition} expired: the batch {what} within "
            f"{(now_ms - batch.created_ms) / 1000} s (delivery.timeout.ms){': ' + report if report else ''}"
        )
        self._responses.fail_batch(batch, error)

    def _send_produce_request(
        self, node: Node, batches: list[ProducerBatch], snapshot: MetadataSnapshot, now_ms: int
    ) -> None:
        """Send ``batches`` in one request.

        If the request cannot be built or sent, its batches fail. Batches for other nodes are not affected.
        """
        config = self._config
        by_partition: dict[TopicPartition, ProducerBatch] = {}
        for batch in batches:
            by_partition[batch.topic_partition] = batch
        try:
            builder, topic_names = self._produce_request(batches, snapshot, now_ms)
            request = self._client.new_client_request(
                node.id_string,
                builder,
                now_ms,
                config.acks != 0,
                config.request_timeout_ms,
                partial(self._handle_produce_response, by_partition, topic_names),
            )
        except Exception as error:  # noqa: BLE001 - these batches must complete in any case
            raise_if_of_signal_handler(error)
            self._handle_build_error(by_partition, error)
            return
        self._register.sent(batches)
        try:
            self._client.send(request, now_ms)
        except (IllegalStateError, DisconnectError) as error:  # the client did not accept the request
            self._register.answered(batches)
            self._responses.fail_unsent(by_partition, error)
        except Exception as error:  # noqa: BLE001 - the client has disconnected, and its next poll completes the request
            raise_if_of_signal_handler(error)
            self._log.exception("A request could not be handed to the network")

    def _handle_produce_response(
        self, batches: dict[TopicPartition, ProducerBatch], topic_names: Mapping[UUID, str], response: ClientResponse
    ) -> None:
        build_error = response.build_error
        try:
            self._register.answered(batches.values())
            if build_error is None or isinstance(build_error, UnsupportedVersionError):
                self._responses.handle(response, batches, topic_names)
            else:
                self._handle_build_error(batches, build_error)
        except Exception as error:
            if self._thread.is_borrowed:
                # It may be that of a signal handler. The network client would log it, so the driver raises it, and the
                # next driver has the sender start again with these batches.
                self._thread.interruption = error
                return
            # No other response will complete these batches.
            self._register.answered(batches.values())
            self._responses.fail_held(error)
            raise
        finally:
            self._accumulator.memory_returned()

    def _handle_build_error(self, batches: dict[TopicPartition, ProducerBatch], error: Exception) -> None:
        """Fail the batches that prevented a request from being built, and requeue the others."""
        to_blame = {tp: batch for tp, batch in batches.items() if len(batches) == 1 or not self._can_be_sent(batch)}
        if not to_blame:
            to_blame = batches
        self._responses.fail_unsent(to_blame, error)
        self._responses.put_back_unsent({tp: batch for tp, batch in batches.items() if tp not in to_blame})

    def _can_be_sent(self, batch: ProducerBatch) -> bool:
        """Return whether a request can be built and encoded for ``batch`` alone."""
        from pykclient.protocol.headers import encode_request

        snapshot = self._metadata.fetch_metadata_snapshot()
        try:
            builder, _ = self._produce_request([batch], snapshot, self._clock.now_ms())
            version = builder.latest_allowed_version
            encode_request(builder.build(version), version, 0, "")
        except Exception as error:  # noqa: BLE001 - the caller has the error of the whole request
            raise_if_of_signal_handler(error)
            return False
        return True

    def _produce_request(
        self, batches: list[ProducerBatch], snapshot: MetadataSnapshot, now_ms: int
    ) -> tuple[RequestBuilder, Mapping[UUID, str]]:
        """Return the request for ``batches``, and the names of the topics it identifies by id.

        The names are kept with the request: a topic may be recreated with another id before the response arrives.
        """
        topics: dict[str, list[ProducerBatch]] = {}
        topic_ids, topic_names = snapshot.cluster.topic_ids, snapshot.cluster.topic_names
        max_version: int | None = None
        for batch in batches:
            name = batch.topic_partition.topic
            of_topic = topics.get(name)
            if of_topic is not None:
                of_topic.append(batch)
                continue
            topics[name] = [batch]
            self._metadata.add(name, now_ms)  # marks the topic as used, so the metadata keeps it
            if name not in topic_ids:
                max_version = _LAST_VERSION_WITH_TOPIC_NAMES
        if self._transactions is not None and not self._transactions.is_v2:
            max_version = _LAST_VERSION_OF_TRANSACTIONS_V1
        request = BatchesRequest(self._template, topics, topic_ids)
        return ProduceRequestBuilder(request, self._config.min_produce_version, max_version), topic_names

    # --- the producer id ---------------------------------------------------------------------------------------

    def _maybe_send_transactional_request(self, manager: ProducerIdManager, now_ms: int) -> int | None:
        """Request a producer id from any broker if one is needed.

        Return for how many ms the driver may wait for it; None if no id is needed, so batches can be sent.
        """
        retry_backoff_ms = self._config.retry_backoff_ms
        if not manager.needs_id:
            return None
        self._fail_expired_batches(now_ms)
        wait_ms = manager.retry_not_before_ms - now_ms
        node = None if wait_ms > 0 else self._client.least_loaded_node(now_ms).node
        if node is not None and self._client.ready(node, now_ms):
            request = self._client.new_client_request(
                node.id_string,
                manager.init_producer_id_request(),
                now_ms,
                True,
                self._config.request_timeout_ms,
                manager.handle_init_producer_id,
            )
            self._client.send(request, now_ms)
            manager.retry_not_before_ms = now_ms + _REQUEST_TIMEOUTS_PER_ID * self._config.request_timeout_ms
        else:
            error = None if node is None else self._client.authentication_error(node)
            if error is not None:
                manager.authentication_failed(error)
            elif node is None and wait_ms <= 0:
                self._metadata.request_update(False)
        return min(wait_ms, retry_backoff_ms) if wait_ms > 0 else retry_backoff_ms

    # --- transactions ------------------------------------------------------------------------------------------

    def _run_transactional_round(self, manager: TransactionManager, now_ms: int) -> int:
        """Begin the call that the application has made, send batches, and send the next request to a coordinator."""
        only_collects = manager.only_collects and self._state == RUNNING
        if not only_collects:
            if manager.dialogue.unhandled is not None:  # an exception has kept the callback from handling it
                manager.handle_answer(now_ms)
            if manager.begin_pending():
                self._accumulator.await_appends()  # a record appended after this is not part of the transaction
            if manager.refuses_batches:
                if manager.has_fatal_error:
                    self._abort_batches(manager.last_error)
                    return self._config.retry_backoff_ms
                error = manager.undrained_error
                if error is not None and self._accumulator.has_incomplete:
                    self._register.abort_undrained(error)
        wait_ms = self._send_producer_data(now_ms)
        if manager.new_partitions:
            manager.add_partitions_of([*self._register.incomplete])
        elif only_collects:  # a call that the application makes meanwhile has the next round begin at once
            return wait_ms
        wait_ms = min(wait_ms, self._send_transactional_request(manager, now_ms))
        has_ended = self._state == DRAINING and not self._has_work_left(now_ms)
        return 0 if has_ended else wait_ms

    def _handle_coordinator_response(
        self, manager: TransactionManager, step: TxnStep, response: ClientResponse
    ) -> None:
        """Handle the response to ``step`` now: a caller that waits for its result then needs no further round."""
        try:
            manager.dialogue.answered(step, response)
            manager.handle_answer(response.received_ms)
        except Exception as error:
            if not self._thread.is_borrowed:
                raise
            # It may be that of a signal handler: as for produce responses, the driver raises it. The response is kept,
            # and the next round handles it.
            self._thread.interruption = error

    def _send_transactional_request(self, manager: TransactionManager, now_ms: int) -> int:
        """Send the next request to a coordinator, if one is due; return in how many ms to look again."""
        dialogue = manager.dialogue
        is_flushed = not (self._register.incomplete or self._register.has_in_flight)
        step = manager.next_step(now_ms, is_flushed)
        if step is None:
            return _CALLBACKS_MS if self._thread.results and manager.is_completing else FOREVER_MS
        wait_ms = dialogue.not_before_ms - now_ms
        if wait_ms > 0:
            return wait_ms
        node = None if step.coordinator is None else dialogue.coordinator(step.coordinator)
        if node is None:
            node = self._client.least_loaded_node(now_ms).node
        if node is None:
            self._metadata.request_update(False)
            return self._config.retry_backoff_ms
        if not self._client.ready(node, now_ms):
            authentication_error = self._client.authentication_error(node)
            if authentication_error is not None:
                manager.authentication_failed(authentication_error)
                return 0
            if step.coordinator is not None and self._client.connection_failed(node):
                error = KafkaError(f"no connection to {shown_node(node)}")
                dialogue.handled(step, Outcome(FIND_COORDINATOR, error), now_ms)
            return min(self._client.poll_delay_ms(node, now_ms), self._config.retry_backoff_ms)
        timeout_ms = self._config.request_timeout_ms
        on_response = partial(self._handle_coordinator_response, manager, step)
        request = self._client.new_client_request(node.id_string, step.builder(), now_ms, True, timeout_ms, on_response)
        dialogue.sent(step, now_ms + _REQUEST_TIMEOUTS_PER_ID * timeout_ms)
        self._client.send(request, now_ms)
        return FOREVER_MS

    def _is_aborting_for_close(self, now_ms: int) -> bool:
        """Abort the transaction that the application has left open; return True while it is in progress.

        It is given up once the coordinator does it by itself, because the transaction has timed out.
        """
        manager = self._transactions
        if manager is None or not manager.must_end_for_close:
            return False
        if self._keeps_transaction and not manager.has_calls_left:
            return False
        if self._close_deadline_ms is None:
            self._close_deadline_ms = now_ms + manager.transaction_timeout_ms
        if now_ms >= self._close_deadline_ms:
            return False
        manager.begin_abort_for_close()
        return True

    # --- purging -----------------------------------------------------------------------------------------------

    def _make_purges(self, now_ms: int) -> None:
        """Fail batches as if their delivery.timeout.ms had passed, apart from the error."""
        while self._purges:
            queued, in_flight, done = self._purges[0]
            if queued is not None:
                for batch in self._accumulator.expired_batches(now_ms, 0):
                    refused = batch.attempts == 0 and not batch.may_be_written  # the batch was never sent
                    self._responses.fail_batch(batch, queued, refused=refused)
            if in_flight is not None:
                for batch in self._register.expired_in_flight(0, now_ms):
                    self._responses.fail_batch(batch, in_flight)
            self._fail_expired_batches(now_ms)  # computes the next expiry of what is left
            self._purges.popleft()
            done.set()

    # --- closing -----------------------------------------------------------------------------------------------

    def _go_on_closing(self, now_ms: int) -> None:
        """Follow the requests of other threads to close; close once nothing is left to send."""
        if self._is_forced and self._state in MAY_BE_FORCED:
            self._move_to(FORCED)
        elif self._is_closing and self._state == RUNNING:
            self._accumulator.close()  # ``abandon`` has not done it
            self._move_to(DRAINING)
        if self._state == FORCED or (self._state == DRAINING and not self._has_work_left(now_ms)):
            self._close()

    def _has_work_left(self, now_ms: int) -> bool:
        return (
            self._accumulator.has_undrained
            or self._client.in_flight_request_count() > 0
            or self._is_aborting_for_close(now_ms)
        )

    def _close(self) -> None:
        is_forced = self._state == FORCED
        self._move_to(CLOSED)
        if self._transactions is not None:
            self._transactions.close(KafkaError(_CLOSED_DURING_CALL))
        if is_forced or self._accumulator.has_incomplete:  # nothing else would ever complete them
            self._accumulator.abort_incomplete_batches(KafkaError(_CLOSED_BY_FORCE))
        self._client.close()
        self._register.client_closed()
        self._metadata.close()

    def _move_to(self, target: str) -> None:
        check_move("a sender", MOVES, self._state, target)
        self._log.debug("The sender goes from %s to %s", self._state, target)
        self._state = target
        self.is_closed = target == CLOSED

    def fail(self, error: BaseException) -> None:
        """Close because of an exception, such as SystemExit raised by a plugin, that ended the driver.

        All remaining records fail, and later ones are refused.
        """
        self._log.critical("The producer's I/O thread ends, because an error was raised in it", exc_info=error)
        thread = self._thread
        thread.failure = error
        self._is_closing = True
        if self._state != CLOSED:
            self._move_to(CLOSED)
        self._accumulator.close()
        if self._transactions is not None:
            self._transactions.close(thread.explain(KafkaError()))
        try:
            self._accumulator.abort_incomplete_batches(thread.explain(KafkaError()))
        finally:
            try:
                self._client.close()
                self._register.client_closed()
            finally:
                self._metadata.close()

    # --- for other threads -------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """False once the producer is closing."""
        return not self._is_closing

    @property
    def has_incomplete(self) -> bool:
        """True if any batch has no result yet, or a call to a coordinator is in progress."""
        if self._register.incomplete:
            return True
        return self._transactions is not None and self._transactions.has_calls_left

    @property
    def is_completing_transaction(self) -> bool:
        """True while a transaction ends, which may wait for callbacks."""
        return self._transactions is not None and self._transactions.is_completing

    def purge(self, purge: Purge) -> None:
        """Have the next step give up batches, which sets ``purge.done`` then."""
        self._purges.append(purge)
        self.wakeup()

    def wakeup(self) -> None:
        """Have ``step`` called at once."""
        self._thread.wakeup()

    def initiate_close(self, *, keep_transaction: bool = False) -> None:
        """Accept no more records, send the remaining ones, and close.

        The open transaction is aborted, unless ``keep_transaction``, which only the first call decides.
        """
        if not self._is_closing:
            self._keeps_transaction = keep_transaction
        # Close the accumulator first: a record appended after the last step would never complete.
        self._accumulator.close()
        self._is_closing = True
        self.wakeup()

    def abandon(self) -> None:
        """Close like ``initiate_close``, but take no lock.

        For a producer that is being garbage-collected, and for signal handlers.
        """
        self._is_closing = True
        self.wakeup()

    def force_close(self) -> None:
        """Accept no more records, fail the remaining ones, and close."""
        self._is_forced = True
        self.initiate_close()
