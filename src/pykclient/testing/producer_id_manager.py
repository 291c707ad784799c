"""Producer ids, unique in the cluster (Java: RPCProducerIdManager; KIP-730)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pykclient.errors import CoordinatorLoadInProgressError
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.event_loop import TimerHandle

_RETRY_BACKOFF_MS: Final = 50

#: The maximum time that a request for an id is held. After that its client might consider the connection dead.
_MAX_WAIT_MS: Final = 5_000

#: Called with an error code and, if that is 0, the id.
ProducerIdCallback = Callable[[int, int], None]


class ProducerIdManager:
    """Allocates ids from the block that the controller gave to this broker, and requests the next block in time.

    Requests without an available id wait for the next block. The unused ids of a block are lost when the broker ends,
    which does no harm.

    Thread: loop
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log = broker.log_context.logger(__name__)
        self._next_id = 0
        self._end = 0
        self._asking = False
        #: The waiting requests in the order of arrival, each with its timeout.
        self._waiting: dict[ProducerIdCallback, TimerHandle] = {}

    def generate_producer_id(self, respond: ProducerIdCallback) -> None:
        """Call ``respond`` with an id, or with COORDINATOR_LOAD_IN_PROGRESS if there is none within five seconds."""
        if self._next_id < self._end:
            self._next_id += 1
            respond(0, self._next_id - 1)
        else:
            self._waiting[respond] = self._broker.call_later(_MAX_WAIT_MS, self._give_up, respond)
            self._ask()

    def _give_up(self, respond: ProducerIdCallback) -> None:
        if self._waiting.pop(respond, None) is not None:
            respond(CoordinatorLoadInProgressError.code, -1)

    def _ask(self) -> None:
        if self._asking:
            return
        self._asking = True
        request = AllocateProducerIdsRequest(broker_id=self._broker.id, broker_epoch=self._broker.epoch)
        self._broker.node_to_controller.send_request(RequestBuilder(request), self._on_response, self._on_failure)

    def _on_response(self, response: ClientResponse) -> None:
        body = response.response_body
        if not isinstance(body, AllocateProducerIdsResponse) or body.error_code:
            self._log.info("The controller gave no block of producer ids: %r", body)
            self._on_failure()
            return
        self._asking = False
        self._next_id = body.producer_id_start
        self._end = body.producer_id_start + body.producer_id_len
        waiting, self._waiting = self._waiting, {}
        for respond, timer in waiting.items():
            timer.cancel()
            self.generate_producer_id(respond)

    def _on_failure(self) -> None:
        """Try again, as long as requests wait."""
        self._broker.call_later(_RETRY_BACKOFF_MS, self._retry)

    def _retry(self) -> None:
        self._asking = False
        if self._waiting:
            self._ask()
