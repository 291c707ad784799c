"""Lookup of the group's coordinator, and detection of its loss.

Java: the coordinator, lookup and markCoordinatorUnknown parts of AbstractCoordinator.
"""

from __future__ import annotations

import logging
import threading

from pykclient import errors
from pykclient.clock import Clock, Timer
from pykclient.consumer.consumer_network_client import ConsumerNetworkClient
from pykclient.consumer.coordinator.group_membership import GroupMembership
from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
from pykclient.consumer.coordinator.group_requests import FindCoordinatorBuilder, coordinators_of
from pykclient.consumer.request_future import RequestFuture
from pykclient.errors import CoordinatorNotAvailableError, GroupAuthorizationError, KafkaError, RetriableError
from pykclient.log_context import LogContext, PrefixLogger
from pykclient.network.client_request import ClientResponse
from pykclient.network.connection_failures import COORDINATOR_ID_BASE, REMINDER_INTERVAL_MS, shown_node
from pykclient.network.exponential_backoff import ExponentialBackoff
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
        self._since_ms: int | None = None  # the coordinator was lost then
        self._told_ms = now_ms

    @property
    def is_over(self) -> bool:
        return self._since_ms is None

    def found(self, broker: Node, now_ms: int) -> None:
        """Note that a broker was named as the coordinator."""
        self._found_ms = now_ms
        is_news = broker != self._broker
        self._broker = broker
        level = logging.INFO if is_news else logging.DEBUG
        self._log.log(level, "Found the group coordinator: %s", shown_node(broker))

    def lost(self, broker: Node, cause: str, now_ms: int) -> None:
        """Note that the coordinator cannot be used."""
        if self._since_ms is not None and now_ms - self._found_ms < _STABLE_MS:
            self.missing(cause, now_ms)
            return
        self._since_ms = self._told_ms = now_ms
        self._log.info("The group coordinator, %s, is not available: %s", shown_node(broker), cause)

    def missing(self, cause: object, now_ms: int) -> None:
        """Note that there is still no coordinator."""
        if self._since_ms is None:
            self._since_ms = self._told_ms = now_ms
        elif now_ms - self._told_ms >= REMINDER_INTERVAL_MS:
            self._told_ms = now_ms
            self._log.warning("Without a group coordinator for %d s: %s", (now_ms - self._since_ms) // 1000, cause)

    def known(self, now_ms: int) -> None:
        """Note that the coordinator is known and can be used."""
        if self._since_ms is not None and self._broker is not None and now_ms - self._found_ms >= _STABLE_MS:
            lasted_s = (now_ms - self._since_ms) // 1000
            self._since_ms = None
            self._log.info("The group coordinator is %s, after %d s without one", shown_node(self._broker), lasted_s)


class CoordinatorFinder:
    """Knows or finds the coordinator. Thread: any; for blocking calls: application."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: ConsumerNetworkClient,
        membership: GroupMembership,
        clock: Clock,
        retry_backoff: ExponentialBackoff,
    ) -> None:
        self._config = config
        self._log = log_context.logger(__name__)
        self._client = client
        self._membership = membership
        self._clock = clock
        self._retry_backoff = retry_backoff
        self._outage_log = _OutageLog(self._log, clock.now_ms())
        self._lock = threading.Lock()  # guards: the fields below where they are replaced by what depends on them
        self._node: Node | None = None
        self._broker: Node | None = None
        self._lookup: RequestFuture[None] | None = None
        # Kept between calls, so that a sequence of short calls backs off as one long call does.
        self._failed_lookups = 0
        self._lookup_not_before_ms = clock.now_ms()
        self._fatal_error: KafkaError | None = None
        self.last_error: Exception | None = None

    # --- what is known -----------------------------------------------------------------------------------------------

    @property
    def node(self) -> Node | None:
        """The last known coordinator."""
        return self._node

    @property
    def broker(self) -> Node | None:
        """The same broker under its own id: another connection, shared with fetches."""
        return self._broker

    def check_and_get(self) -> Node | None:
        """Return the coordinator, or None if it is unknown or its connection is lost."""
        node = self._node
        if node is not None and self._client.is_unavailable(node):
            self.mark_unknown("the connection is lost", is_disconnected=True)
            return None
        if node is not None and not self._outage_log.is_over:
            self._outage_log.known(self._clock.now_ms())
        return node

    @property
    def unknown(self) -> bool:
        return self.check_and_get() is None

    def mark_unknown(self, cause: str, *, is_disconnected: bool = False) -> None:
        """Forget the coordinator, so that it is looked for. Unless the connection is lost anyway, drop it."""
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

    # --- looking -----------------------------------------------------------------------------------------------------

    def lookup(self, *, background: bool = False) -> RequestFuture[None]:
        """Return the lookup request in flight, or send one to any node."""
        with self._lock:
            if self._lookup is not None:
                return self._lookup
        node = self._client.least_loaded_node(background=background)
        if node is None:
            self._log.debug("No broker to ask for the group coordinator")
            return RequestFuture.failure(CoordinatorNotAvailableError("no broker can be connected to at the moment"))
        self._log.debug("Asking %s for the group coordinator", shown_node(node))
        response = self._client.send(node, FindCoordinatorBuilder(self._config.group_id), background=background)
        lookup: RequestFuture[None] = response.compose(self._handle, self._fail)
        with self._lock:
            self._lookup = lookup
        return lookup

    @property
    def lookup_pending(self) -> bool:
        return self._lookup is not None

    def clear_lookup(self) -> None:
        """Let the next ``lookup`` send a new request."""
        with self._lock:
            self._lookup = None

    def lookup_backoff_ms(self, now_ms: int) -> int:
        """Return the milliseconds until the backoff allows another lookup; 0 if it does now."""
        return max(0, self._lookup_not_before_ms - now_ms)

    def _back_off(self, failed_lookups: int) -> None:
        self._lookup_not_before_ms = self._clock.now_ms() + self._retry_backoff.backoff(failed_lookups)
        self._failed_lookups = failed_lookups + 1

    def ensure_ready(self, timer: Timer, disable_wakeup: bool = False) -> bool:
        """Find the coordinator if it is unknown; return False if the timer expires first.

        With a timer of 0 this never waits: it sends a lookup if the backoff allows one, and processes the response once
        it has arrived. Raises errors that are not retriable.

        Thread: application.
        """
        while self.unknown:
            self._raise_fatal_error()
            timer.update()
            backoff_ms = 0 if self.lookup_pending else self.lookup_backoff_ms(timer.now_ms)
            if backoff_ms:
                if timer.expired:
                    return False
                timer.sleep_ms(backoff_ms)
                continue
            lookup = self.lookup()
            if not self._client.poll_future(lookup, timer, disable_wakeup):
                return False
            self.clear_lookup()
            if lookup.failed:
                self.last_error = lookup.exception
                if not lookup.is_retriable:
                    self._fatal_error = None  # raised here, once
                    raise lookup.exception
                self._log.debug("No group coordinator yet: %s", lookup.exception)
                self._outage_log.missing(lookup.exception, self._clock.now_ms())
                self._back_off(self._failed_lookups)
                self._client.await_metadata_update(timer)
            elif self._node is not None and self._client.is_unavailable(self._node):
                failed_lookups = self._failed_lookups
                self.mark_unknown("it cannot be connected to")
                self._back_off(failed_lookups)
            else:
                self._failed_lookups = 0
            if timer.expired:
                break
        return not self.unknown

    def _raise_fatal_error(self) -> None:
        error, self._fatal_error = self._fatal_error, None
        if error is not None:
            raise error

    def _handle(self, response: ClientResponse, future: RequestFuture[None]) -> None:
        coordinators = coordinators_of(response.response_body)
        if len(coordinators) != 1:
            future.raise_error(
                errors.RemoteProtocolError(f"asked for one group's coordinator, the broker named {len(coordinators)}")
            )
            return
        found = coordinators[0]
        error = errors.for_code(found.error_code, found.error_message)
        if error is None:
            node = Node(COORDINATOR_ID_BASE - found.node_id, found.host, found.port)
            with self._lock:
                self._node = node
                self._broker = Node(found.node_id, found.host, found.port)
            self.last_error = None
            self._outage_log.found(Node(found.node_id, found.host, found.port), self._clock.now_ms())
            self._client.try_connect(node)
            self._membership.coordinator_found()
            future.complete(None)
        elif isinstance(error, GroupAuthorizationError):
            future.raise_error(group_authorization_error(self._config.group_id))
        else:
            future.raise_error(error)

    def _fail(self, error: Exception, future: RequestFuture[None]) -> None:
        self.last_error = error
        if isinstance(error, KafkaError) and not isinstance(error, RetriableError):
            # The caller may be gone (the heartbeat thread is), but the application must learn of the error.
            self._fatal_error = error
        future.raise_error(error)


def group_authorization_error(group_id: str) -> GroupAuthorizationError:
    return GroupAuthorizationError(f"not authorized for group {group_id!r}: the principal needs READ on the group")
