"""Java's .properties files (Java: Properties.load)."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_END_OF_KEY = re.compile(r"(?:\\.|[^\\=:\s])*")
_SEPARATOR = re.compile(r"\s*[=:]?\s*")


def parse(text: str) -> dict[str, str]:
    r"""Return the keys and values of a file.

    A line that ends with an odd number of backslashes continues on the next one. Lines that begin with ``#`` or ``!``
    are comments. ``=``, ``:`` or white space ends a key, unless it has a backslash before it. Java gives a key alone an
    empty value; here it is an error, as the line may be a password.

    Raises:
        ValueError: a line has only one word, or there are no four hexadecimal digits after ``\u``.
    """
    found: dict[str, str] = {}
    lines = enumerate(re.split(r"\r\n|\r|\n", text), 1)
    for number, raw in lines:
        line = raw.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(" \t\f")
        key = _END_OF_KEY.match(line)
        assert key is not None  # the pattern matches an empty text as well
        if key.end() == len(line.rstrip()):
            raise ValueError(f"line {number} has no value; write key=value (the line is not shown)")
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescaped(key[0])] = _unescaped(line[separator.end() :])
    return found


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        escape = found[1]
        if escape == "u":
            raise ValueError(r"there must be four hexadecimal digits after \u")
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _NAMED.get(escape, escape)

    return _ESCAPE.sub(replaced, text)
