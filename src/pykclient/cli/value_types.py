"""Types of command-line values for click."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from pykclient.cli import values

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # which is generic from click 8.4 on


class Parsed(_ParamType):
    """A type whose values are parsed by a function, which raises ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = Parsed("duration", values.duration_ms)
TIME: Final = Parsed("time", values.time_ms)
SIZE: Final = Parsed("size", values.size_bytes)
TOPIC_OPTION: Final = Parsed("topic", values.topic)
SETTING: Final = Parsed("setting", values.setting)
POSITION: Final = Parsed("position", values.position)
PORT: Final = Parsed("port", values.port)
