"""The application's interceptors (Java: ConsumerInterceptors)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pykclient.network.signal_errors import raise_if_of_signal_handler

if TYPE_CHECKING:
    from pykclient.log_context import LogContext
    from pykclient.types import OffsetAndMetadata, TopicPartition


class ConsumerInterceptor:
    """Base class of interceptors (KIP-42). Override the methods you need.

    Exceptions that an interceptor raises are logged, once per method, and otherwise ignored. Thread: application.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Receive the consumer's configuration, by dotted keys. Called once if the class was configured."""

    def on_consume(self, records: Any) -> Any:
        """Return the records for ``poll`` to return instead of ``records``."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Handle a successful commit of ``offsets``."""

    def close(self) -> None:
        """Handle the consumer's ``close``."""


class ConsumerInterceptors:
    """Calls the interceptors in order. One that fails is logged and skipped. Thread: application."""

    def __init__(self, interceptors: Iterable[Any], log_context: LogContext) -> None:
        self._interceptors = list(interceptors)
        self._log = log_context.logger(__name__)
        self._logged: set[tuple[int, str]] = set()

    @property
    def is_empty(self) -> bool:
        return not self._interceptors

    def on_consume(self, records: Any) -> Any:
        """Return the records as the last interceptor returned them."""
        for interceptor in self._interceptors:
            on_consume = getattr(interceptor, "on_consume", None)
            if on_consume is not None:
                try:
                    records = on_consume(records)
                except Exception as error:  # noqa: BLE001 - the application's code, which must not stop the consumer
                    self._log_once(interceptor, "on_consume", error)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._call("on_commit", offsets)

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, *args: Any) -> None:
        for interceptor in self._interceptors:
            function = getattr(interceptor, method, None)
            if function is not None:
                try:
                    function(*args)
                except Exception as error:  # noqa: BLE001 - as above
                    self._log_once(interceptor, method, error)

    def _log_once(self, interceptor: Any, method: str, error: Exception) -> None:
        raise_if_of_signal_handler(error)
        # Log the traceback only once: an interceptor that fails in each poll must not fill the log.
        if (id(interceptor), method) not in self._logged:
            self._logged.add((id(interceptor), method))
            name = f"{type(interceptor).__name__}.{method}"
            self._log.warning("%s failed and was skipped; its next failures are not logged", name, exc_info=error)
