"""Loggers that name their client in each line (Java: LogContext)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pykclient.clock import SYSTEM_CLOCK

#: The number of warnings and errors that a client remembers.
_REMEMBERED: Final = 8
#: The most characters of a remembered message.
_LONGEST: Final = 300


#: A module has the same logger for ever, and a client asks for thirty.
_get_logger: Final = lru_cache(maxsize=None)(logging.getLogger)


class LoggedProblem(NamedTuple):
    """A warning or an error that a client has logged. ``wall_ms`` is in milliseconds since the epoch."""

    wall_ms: int
    level: int
    message: str


class LogContext:
    """A factory of loggers whose messages start with ``prefix``, such as ``[Producer client_id=a] ``. Thread: any.

    ``principal`` is whom the client authenticates as, if its configuration tells it, for messages about permissions.
    ``problems`` are the last warnings and errors of these loggers, for ``explain``, whatever the level of the log.
    """

    def __init__(self, prefix: str = "", principal: str | None = None) -> None:
        self.prefix = prefix
        self.principal = principal
        self.problems: deque[LoggedProblem] = deque(maxlen=_REMEMBERED)

    def logger(self, name: str) -> PrefixLogger:
        """Return a logger for the module ``name`` (pass ``__name__``)."""
        return PrefixLogger(_get_logger(name), self)


class PrefixLogger(logging.LoggerAdapter[logging.Logger]):
    """A standard logger with a prefix. Arguments of messages below WARNING stay unformatted until a handler formats
    them.
    """

    def __init__(self, logger: logging.Logger, context: LogContext) -> None:
        super().__init__(logger, {})
        self._prefix = context.prefix.replace("%", "%%")
        self._problems = context.problems
        self.principal = context.principal

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{self._prefix}{msg}", kwargs

    def debug(self, msg: object, *args: Any, **kwargs: Any) -> None:
        if self.logger.isEnabledFor(logging.DEBUG):  # first, because it is off nearly always
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # this method is not the caller to be logged
            self.log(logging.DEBUG, msg, *args, **kwargs)

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        if level >= logging.WARNING:
            # As text, because an error among the arguments would keep its frames alive.
            message = str(msg) % args if args else str(msg)
            self._problems.append(LoggedProblem(SYSTEM_CLOCK.wall_ms(), level, message[:_LONGEST]))
        if self.isEnabledFor(level):
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # this method is not the caller to be logged
            line, options = self.process(msg, kwargs)
            self.logger.log(level, line, *args, **options)
