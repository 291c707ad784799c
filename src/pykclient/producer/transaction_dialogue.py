"""The dialogue of a transactional producer with its coordinators: one request at a time, retried with backoff."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykclient.errors import ConcurrentTransactionsError, KafkaError
from pykclient.network.connection_failures import shown_node
from pykclient.producer.transaction_steps import (
    DONE,
    FATAL,
    FIND_COORDINATOR,
    RETRY,
    CoordinatorKey,
    FindCoordinatorStep,
    Outcome,
    TxnStep,
)

if TYPE_CHECKING:
    from pykclient.log_context import PrefixLogger
    from pykclient.network.client_request import ClientResponse
    from pykclient.network.exponential_backoff import ExponentialBackoff
    from pykclient.types import Node

#: The first backoff while the markers of the previous transaction are still being written, which takes milliseconds.
_CONCURRENT_BACKOFF_MS = 20
#: After so many attempts a retry is logged as a warning: a failover takes a few.
_QUIET_ATTEMPTS = 10


class TransactionDialogue:
    """Knows the coordinators, the request in flight and its response, and when the next request may be sent.

    A response is kept until its step has been handled. So if an exception of a signal handler ends the handling, it is
    repeated. Thread: io.
    """

    __slots__ = (
        "_attempts",
        "_backoff",
        "_coordinators",
        "_log",
        "_lost_at_ms",
        "in_flight",
        "last_error",
        "not_before_ms",
        "unhandled",
    )

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
        """Note that ``step`` is about to be sent. Without a response by ``lost_at_ms`` it is sent again."""
        self.unhandled = None
        self._lost_at_ms = lost_at_ms
        self.in_flight = step

    def answered(self, step: TxnStep, response: ClientResponse) -> None:
        """Keep the response to ``step`` until it is handled."""
        if step is self.in_flight:
            self.unhandled = response

    def outcome(self, step: TxnStep, response: ClientResponse) -> Outcome:
        """Return what the response leads to."""
        if response.authentication_error is not None:
            return Outcome(FATAL, response.authentication_error)
        if response.disconnected:
            error = KafkaError(f"the connection to broker {response.destination} was lost")
            return Outcome(RETRY if step.coordinator is None else FIND_COORDINATOR, error)
        if response.build_error is not None:
            return Outcome(FATAL, response.build_error)
        return step.outcome(response.response_body)

    def handled(self, step: TxnStep, outcome: Outcome, now_ms: int) -> None:
        """Note that the response is handled: the next request may be sent, after a backoff if this one failed."""
        if outcome.action == DONE:
            self._attempts = 0
            self.last_error = None
        elif outcome.action in {RETRY, FIND_COORDINATOR}:
            if outcome.action == FIND_COORDINATOR:
                self.forget(step)
            self.back_off(step, outcome.error, now_ms)
        self.unhandled = self.in_flight = None

    def forget(self, step: TxnStep) -> None:
        """Look for the coordinator of ``step`` again before the next request to it."""
        if step.coordinator is not None:
            self._coordinators.pop(step.coordinator, None)

    def back_off(self, step: TxnStep, error: Exception | None, now_ms: int) -> None:
        """Send nothing for the time of the backoff, because ``step`` has failed."""
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
