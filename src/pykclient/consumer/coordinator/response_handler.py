"""The common part of handling the coordinator's responses (Java: CoordinatorResponseHandler)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pykclient.consumer.coordinator.coordinator_request_manager import CoordinatorRequestManager
from pykclient.consumer.request_future import RequestFuture
from pykclient.errors import DisconnectError, KafkaError
from pykclient.network.client_request import ClientResponse

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
