"""A stopping broker's request to the controller to move its leaders (Java: KafkaServer.controlledShutdown)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker


class ControlledShutdown:
    """Repeats the request until the broker leads nothing, up to a limit; then the broker stops anyway. Thread: loop."""

    __slots__ = ("_broker", "_done", "_log", "_on_done", "_retries_left")

    def __init__(self, broker: Broker, on_done: Callable[[], None]) -> None:
        self._broker = broker
        self._on_done = on_done
        self._done = False
        self._retries_left: int = broker.config["controlled.shutdown.max.retries"]
        self._log = broker.log_context.logger(__name__)

    def start(self) -> None:
        """Send the request.

        Without any controller, as for the last broker, ``controller.socket.timeout.ms`` ends it.
        """
        broker = self._broker
        request = ControlledShutdownRequest(broker_id=broker.id, broker_epoch=broker.epoch)
        broker.node_to_controller.send_request(RequestBuilder(request), self._on_response, self._finish)

    def _on_response(self, response: ClientResponse) -> None:
        body = response.response_body
        if isinstance(body, ControlledShutdownResponse) and not body.error_code and not body.remaining_partitions:
            self._finish()
        elif self._retries_left:
            self._retries_left -= 1
            self._broker.call_later(self._broker.config["controlled.shutdown.retry.backoff.ms"], self.start)
        else:
            self._log.warning("Stopping although the controller could not move all leaders")
            self._finish()

    def _finish(self) -> None:
        if not self._done:
            self._done = True
            self._on_done()
