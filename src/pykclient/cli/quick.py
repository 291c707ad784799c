"""Read plain command lines of ``produce`` and ``consume`` without click, whose import takes a third of a short command.

Whatever is not plain goes to click: help, errors, other commands, ``-abc`` for several options, values that begin with
a dash, and completion. So a command line means the same here and there, or nothing here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pykclient.cli.parameters import COMMON, TABLES, CommandTable, Parameter
from pykclient.cli.problems import UsageError
from pykclient.cli.session import Session

_COMPLETES = "_PYKCLIENT_COMPLETE"


class Plain(NamedTuple):
    """A parsed command line: the command, its field values, and the session's options."""

    name: str
    values: dict[str, Any]
    common: list[tuple[str, Any]]

    def run(self, session: Session) -> None:
        """Run the command."""
        for field, value in self.common:
            session.remember(field, value)
        module, _, name = TABLES[self.name].run.partition(":")
        command: Callable[..., None] = getattr(importlib.import_module(f"pykclient.cli.{module}"), name)
        command(session, **self.values)


def plain(words: Sequence[str]) -> Plain | None:
    """Return the parsed command line, or None if only click can parse it."""
    if os.name == "nt" or _COMPLETES in os.environ:  # click expands wildcards on Windows
        return None
    reading = _Reading()
    try:
        return reading.read(words)
    except (ValueError, LookupError, StopIteration, UsageError):
        return None


class _Reading:
    """Reads one command line. Every error means that the line is not plain."""

    def __init__(self) -> None:
        self._name = ""
        self._options = _by_name(COMMON)
        self._words: list[str] = []
        self._texts: dict[str, list[Any]] = {}
        self._common: dict[str, list[Any]] = {}

    def read(self, words: Sequence[str]) -> Plain:
        left = iter(words)
        for word in left:
            if word.startswith("-") and word != "-":
                self._option(word, left)
            elif self._name:
                self._words.append(word)
            else:
                self._options = self._options | _by_name(TABLES[word].options)
                self._name = word
        table = TABLES[self._name]
        values = {found.field: _given(found, self._texts.get(found.field, [])) for found in table.options}
        values.update(self._arguments(table))
        common = [
            (found.field, tuple(given) if found.is_repeated else given[-1])
            for found in COMMON
            if (given := self._common.get(found.field))
        ]
        return Plain(self._name, values, common)

    def _option(self, word: str, left: Any) -> None:
        name, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
        parameter, is_on = self._options[name]
        value: Any = is_on
        if parameter.is_flag:
            if equals:
                raise ValueError(word)
        else:
            if not equals:
                text = next(left)
                if text.startswith("-") and text != "-":
                    raise ValueError(text)
            value = parameter.value(text)
        chosen = self._common if parameter in COMMON else self._texts
        chosen.setdefault(parameter.field, []).append(value)

    def _arguments(self, table: CommandTable) -> dict[str, Any]:
        words = self._words
        found: dict[str, Any] = {}
        for argument in table.arguments:
            if argument.is_repeated:
                taken, words = words, []
                found[argument.field] = tuple(map(argument.value, taken))
            else:
                taken, words = words[:1], words[1:]
                found[argument.field] = argument.value(taken[0])
            if argument.is_required and not taken:
                raise ValueError(argument.field)
        return found


def _by_name(parameters: Sequence[Parameter]) -> dict[str, tuple[Parameter, bool]]:
    """Return the options by each of their names, with what a flag of this name sets."""
    return {
        name: (parameter, not is_off)
        for parameter in parameters
        for names in parameter.names
        for is_off, name in enumerate(names.split("/"))
    }


def _given(parameter: Parameter, values: Sequence[Any]) -> Any:
    """Return the value of an option that was given these values, or none."""
    if parameter.is_repeated:
        return tuple(values)
    if values:
        return values[-1]
    if parameter.is_flag:
        return None if "/" in parameter.names[0] else False
    return None if parameter.default is None else parameter.value(parameter.default)
