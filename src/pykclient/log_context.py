"""Loggers that name their client in each line (Java: LogContext)."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


class LogContext:
    """A factory of loggers whose messages start with ``prefix``, such as ``[Producer client_id=a] ``. Thread: any."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def logger(self, name: str) -> PrefixLogger:
        """Return a logger for the module ``name`` (pass ``__name__``)."""
        return PrefixLogger(logging.getLogger(name), self.prefix)


class PrefixLogger(logging.LoggerAdapter[logging.Logger]):
    """A standard logger with a prefix. Arguments stay unformatted until a handler formats them."""

    def __init__(self, logger: logging.Logger, prefix: str) -> None:
        super().__init__(logger, {})
        self._prefix = prefix.replace("%", "%%")

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{self._prefix}{msg}", kwargs
