"""Lookup of the group's coordinator, and the common part of handling its responses.

Java: CoordinatorRequestManager, CoordinatorResponseHandler. Responses that equal an earlier one are not parsed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from pykclient import errors
from pykclient.clock import Clock
from pykclient.consumer.application_driver import (
    NOTHING,
    NetworkClientDelegate,
    PollResult,
    RequestFuture,
    UnsentRequest,
)
from pykclient.consumer.consumer_metadata import ConsumerMetadata
from pykclient.consumer.coordinator.group_requests import FindCoordinatorBuilder
from pykclient.consumer.coordinator.membership import GroupRebalanceConfig, Membership, fenced_error
from pykclient.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    DisconnectError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    KafkaError,
    NotCoordinatorError,
    RetriableError,
)
from pykclient.log_context import LogContext, PrefixLogger
from pykclient.network.client_request import ClientResponse
from pykclient.network.exponential_backoff import ExponentialBackoff
from pykclient.network.failures import COORDINATOR_ID_BASE, REMINDER_INTERVAL_MS, group_denied, shown_node
from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.types import Node

#: A coordinator that has been known for this long without being lost again is available.
_STABLE_MS = 1_000


class _OutageLog:
    """Logs when the coordinator is lost and when it is back, with a reminder once a minute in between.

    After a broker has failed, it is still named as the coordinator for a while, so it is found and lost repeatedly.
    That is one outage. Thread: any; a line may be lost or doubled when two threads notice the same event.
    """

    def __init__(self, log: PrefixLogger, now_ms: int) -> None:
        self._log = log
        self._broker: Node | None = None  # the one that the log has last called the coordinator
        self._found_ms = now_ms
        #: When the coordinator was lost; None while it is known.
        self.since_ms: int | None = None
        self._told_ms = now_ms

    def found(self, broker: Node, now_ms: int) -> None:
        """Note that a broker was named as the coordinator."""
        self._found_ms = now_ms
        is_news = broker != self._broker
        self._broker = broker
        level = logging.INFO if is_news else logging.DEBUG
        self._log.log(level, "Found the group coordinator: %s", shown_node(broker))

    def lost(self, broker: Node, cause: str, now_ms: int) -> None:
        """Note that the coordinator cannot be used."""
        if self.since_ms is not None and now_ms - self._found_ms < _STABLE_MS:
            self.missing(cause, now_ms)
            return
        self.since_ms = self._told_ms = now_ms
        self._log.info("The group coordinator, %s, is not available: %s", shown_node(broker), cause)

    def missing(self, cause: object, now_ms: int) -> None:
        """Note that there is still no coordinator."""
        if self.since_ms is None:
            self.since_ms = self._told_ms = now_ms
        elif now_ms - self._told_ms >= REMINDER_INTERVAL_MS:
            self._told_ms = now_ms
            self._log.warning("Without a group coordinator for %d s: %s", (now_ms - self.since_ms) // 1000, cause)

    def known(self, now_ms: int) -> None:
        """Note that the coordinator is known and can be used."""
        if self.since_ms is not None and self._broker is not None and now_ms - self._found_ms >= _STABLE_MS:
            lasted_s = (now_ms - self.since_ms) // 1000
            self.since_ms = None
            self._log.info("The group coordinator is %s, after %d s without one", shown_node(self._broker), lasted_s)


class CoordinatorRequestManager:
    """Tracks the coordinator, and looks it up while the application or the membership needs it.

    The methods that only read are for any thread, as is ``mark_unknown``. Thread: for all others, the holder of the I/O
    lease.
    """

    runs_in_background = True
    pending = True

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: NetworkClientDelegate,
        membership: Membership,
        clock: Clock,
        retry_backoff: ExponentialBackoff,
        metadata: ConsumerMetadata,
    ) -> None:
        self._config = config
        self._log = log_context.logger(__name__)
        self._client = client
        self._membership = membership
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._metadata = metadata
        self._outage_log = _OutageLog(self._log, clock.now_ms())
        self._lock = threading.Lock()  # guards: _node, _broker and _failed_lookups where they change together
        self._node: Node | None = None
        self._broker: Node | None = None
        self._is_wanted = False  # until the coordinator is found
        self._is_asking = False
        self._failed_lookups = 0
        self._lookup_not_before_ms = clock.now_ms()
        self._fatal_error: KafkaError | None = None
        #: The number of lookups that have ended without a coordinator.
        self.failures = 0
        self.last_error: Exception | None = None

    # --- known state -------------------------------------------------------------------------------------------------

    @property
    def node(self) -> Node | None:
        """The last known coordinator."""
        return self._node

    @property
    def broker(self) -> Node | None:
        """The coordinator under its broker id, whose connection is shared with fetches."""
        return self._broker

    def check_and_get(self) -> Node | None:
        """Return the coordinator, or None if it is unknown or its connection is lost."""
        node = self._node
        if node is not None and self._client.connection_failed(node) and self._client.is_unavailable(node):
            self.mark_unknown("the connection is lost", is_disconnected=True)
            return None
        if node is not None and self._outage_log.since_ms is not None:
            self._outage_log.known(self._clock.now_ms())
        return node

    @property
    def unknown(self) -> bool:
        """True if there is no coordinator with a usable or pending connection."""
        return self.check_and_get() is None

    def mark_unknown(self, cause: str, *, is_disconnected: bool = False) -> None:
        """Forget the coordinator, so that a new lookup can start, and drop its connection."""
        now_ms = self._clock.now_ms()
        with self._lock:
            # Forget before disconnecting: the failures of pending requests call this again.
            node, self._node = self._node, None
            if node is not None:
                self._failed_lookups = 0
        if node is None:
            self._outage_log.missing(cause, now_ms)
            return
        self._outage_log.lost(self._broker or node, cause, now_ms)
        if not is_disconnected:
            self._client.disconnect_async(node)

    def judged(self, request_name: str, error: BrokerError) -> BrokerError:
        """Apply an error that any request to the coordinator may get, and return the one for the application."""
        if isinstance(error, (CoordinatorNotAvailableError, NotCoordinatorError)):
            self.mark_unknown(f"{request_name}: {error}")
        elif isinstance(error, GroupAuthorizationError):
            return group_denied(self._log.principal, self._config.group_id)
        elif isinstance(error, FencedInstanceIdError):
            return fenced_error(self._config)
        return error

    # --- looking -----------------------------------------------------------------------------------------------------

    def look_up(self) -> None:
        """Look up the coordinator in the next polls, until it is found. Does nothing while it is known.

        Members of the group need not call this. Thread: any.
        """
        self._is_wanted = True

    @property
    def is_settled(self) -> bool:
        """True if the coordinator is known, or ``raise_fatal_error`` would raise."""
        return self._fatal_error is not None or not self.unknown

    def raise_fatal_error(self) -> None:
        """Raise, once, a lookup's error that is not retriable. Lookups continue. Thread: application."""
        error = self.take_fatal_error()
        if error is not None:
            raise error

    def take_fatal_error(self) -> KafkaError | None:
        """Return the error that ``raise_fatal_error`` would raise, once. Thread: application."""
        error, self._fatal_error = self._fatal_error, None
        return error

    def poll(self, now_ms: int) -> PollResult:
        """Return a lookup if one is needed and its backoff is over."""
        if self._is_asking or not (self._is_wanted or self._membership.state.sends_heartbeats):
            return NOTHING
        if self.check_and_get() is not None:
            self._is_wanted = False
            return NOTHING
        backoff_ms = self._lookup_not_before_ms - now_ms
        if backoff_ms > 0:
            return PollResult(backoff_ms)
        node = self._client.least_loaded_node()
        if node is None:
            self._failed(CoordinatorNotAvailableError("no broker can be connected to at the moment"))
            return PollResult(max(0, self._lookup_not_before_ms - now_ms))
        self._log.debug("Asking %s for the group coordinator", shown_node(node))
        request = UnsentRequest(FindCoordinatorBuilder(self._config.group_id), node)
        request.future.add_listener(self._answered, self._failed)
        self._is_asking = True
        return PollResult(requests=(request,))

    def reset(self) -> None:
        """Forget the lookup in flight."""
        self._is_asking = False

    def _answered(self, response: ClientResponse) -> None:
        body: FindCoordinatorResponse = response.response_body
        if len(body.coordinators) > 1:
            names = len(body.coordinators)
            self._failed(errors.RemoteProtocolError(f"asked for one group's coordinator, the broker named {names}"))
            return
        found = body.coordinators[0] if body.coordinators else body  # before v4
        error = errors.for_code(found.error_code, found.error_message or None)
        if isinstance(error, GroupAuthorizationError):
            self._failed(group_denied(self._log.principal, self._config.group_id))
        elif error is not None:
            self._failed(error)
        else:
            self._found(Node(found.node_id, found.host, found.port))

    def _found(self, broker: Node) -> None:
        node = Node(COORDINATOR_ID_BASE - broker.id, broker.host, broker.port)
        self._is_asking = False
        with self._lock:
            self._node, self._broker = node, broker
        self.last_error = self._fatal_error = None
        self._outage_log.found(broker, self._clock.now_ms())
        if self._client.is_unavailable(node):
            failed_lookups = self._failed_lookups
            self.mark_unknown("it cannot be connected to")
            self._back_off(failed_lookups)
        else:
            self._failed_lookups = 0
            self._is_wanted = False
        self._client.try_connect(node)
        self._membership.coordinator_found()

    def _failed(self, error: Exception) -> None:
        self._is_asking = False
        self.last_error = error
        if isinstance(error, KafkaError) and not isinstance(error, RetriableError):
            # The next call of the application that needs the coordinator raises it.
            self._fatal_error = error
        self._log.debug("No group coordinator yet: %s", error)
        self._outage_log.missing(error, self._clock.now_ms())
        self._metadata.request_update(False)
        self._back_off(self._failed_lookups)

    def _back_off(self, failed_lookups: int) -> None:
        self._lookup_not_before_ms = self._clock.now_ms() + self._retry_backoff.backoff(failed_lookups)
        self._failed_lookups = failed_lookups + 1
        self.failures += 1


T = TypeVar("T")


def handled(
    coordinator: CoordinatorRequestManager,
    response: RequestFuture[ClientResponse],
    handle: Callable[[Any, RequestFuture[T]], None],
    record_latency: Callable[[float], object] | None = None,
) -> RequestFuture[T]:
    """Return a future that ``handle(response body, future)`` completes.

    A lost connection means a lost coordinator. An error that ``handle`` raises fails the future. ``record_latency``
    gets the latency in milliseconds, unless the response as a whole is an error.
    """

    def on_success(client_response: ClientResponse, future: RequestFuture[T]) -> None:
        body = client_response.response_body
        if record_latency is not None and not getattr(body, "error_code", 0):
            record_latency(client_response.request_latency_ms)
        try:
            handle(body, future)
        except KafkaError as error:
            if future.is_done:
                raise
            future.raise_error(error)
        except BaseException:
            # An exception of a signal handler: the response is lost, so a waiter of the future would wait for ever. A
            # request that was sent in response may still complete the future.
            if not future.is_done:
                future.give_up(DisconnectError("the handling of an answer was interrupted"))
            raise

    def on_failure(error: Exception, future: RequestFuture[T]) -> None:
        if isinstance(error, DisconnectError):
            coordinator.mark_unknown(str(error), is_disconnected=True)
        future.raise_error(error)

    return response.compose(on_success, on_failure)


def unexpected(what: str, error: BrokerError) -> KafkaError:
    """Return the error for an error that the broker should not answer ``what`` with."""
    wrapped = KafkaError(f"unexpected error in {what}: {error}")
    wrapped.__cause__ = error
    return wrapped
