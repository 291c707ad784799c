"""Translation of Java's regular expressions to Python's, as far as possible.

Patterns are searched in topic names, which consist of ASCII letters, digits, dots, dashes and underscores. Differences
between the two languages beyond ASCII, or for several lines, do not matter here.
"""

from __future__ import annotations

import re

#: Escapes that mean the same in both.
_SAME_ESCAPES = frozenset("dDwWsStnrfa")
_CLASS_ESCAPES = frozenset("dDwWsS")

_GROUP = re.compile(r"\(\?(?:[:=!>]|<[=!]|(?P<scoped>[ims]*(?:-[ims]+)?:)|<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>)")
_FLAGS = re.compile(r"\(\?[ims]+\)")
_REPETITION = re.compile(r"\{\d+(?:,\d*)?\}")
_CODE_POINT = re.compile(r"\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}")
_NAMED_REFERENCE = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_NUMBERED_REFERENCE = re.compile(r"\\[1-9](?![0-9])")


def compile_java_regex(pattern: str) -> re.Pattern[str]:
    """Compile ``pattern`` with the meaning that it has in Java.

    Raises:
        ValueError: It is not a pattern, or Python has no equivalent: classes such as ``\\p{Alpha}``, nested classes,
            flags in the middle, and rare escapes. The text says which.
    """
    translated = _Translation(pattern).run()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError) as error:
        raise ValueError(f"Python does not take it: {error}") from None


class _Translation:
    """Translates Java's notation to Python's, from left to right. Thread: owner."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []

    def run(self) -> str:
        """Return the translated pattern. Raises ValueError if there is no translation."""
        if flags := _FLAGS.match(self._pattern):
            self._copy(flags)
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            if char == "\\":
                self._escape()
            elif char == "[":
                self._class()
            elif char == "{":
                self._repetition()
            elif self._pattern.startswith("(?", self._at):
                self._group()
            else:
                self._out.append(char)
                self._at += 1
        return "".join(self._out)

    def _copy(self, match: re.Match[str]) -> None:
        self._out.append(match[0])
        self._at = match.end()

    def _refused(self, what: str) -> ValueError:
        return ValueError(f"{what} at position {self._at} is not supported")

    def _escape(self) -> None:
        following = self._pattern[self._at + 1 : self._at + 2]
        if not following:
            raise ValueError("it ends with a backslash")
        if following == "Q":
            end = self._pattern.find("\\E", self._at + 2)
            end = len(self._pattern) if end < 0 else end
            self._out.append(re.escape(self._pattern[self._at + 2 : end]))
            self._at = end + 2
        elif following in "zZ":  # the same in a single line
            self._out.append(r"\Z")
            self._at += 2
        elif following in "bBA" or not (following.isascii() and following.isalnum()):
            self._literal_or_same()
        elif match := _NUMBERED_REFERENCE.match(self._pattern, self._at):
            self._copy(match)
        elif match := _NAMED_REFERENCE.match(self._pattern, self._at):
            self._out.append(f"(?P={match[1]})")
            self._at = match.end()
        else:
            self._common_escape(following)

    def _literal_or_same(self) -> None:
        self._out.append(self._pattern[self._at : self._at + 2])
        self._at += 2

    def _common_escape(self, following: str) -> None:
        """Translate an escape that is also allowed in a class."""
        if following in _SAME_ESCAPES:
            self._literal_or_same()
        elif match := _CODE_POINT.match(self._pattern, self._at):
            self._copy(match)
        else:
            raise self._refused(f"the escape \\{following}")

    def _repetition(self) -> None:
        match = _REPETITION.match(self._pattern, self._at)
        if match is None:
            raise ValueError(
                f"the brace at position {self._at} is no repetition such as {{2}} or {{1,3}}; write \\{{ for a brace"
            )
        self._copy(match)

    def _group(self) -> None:
        match = _GROUP.match(self._pattern, self._at)
        if match is None:
            raise self._refused("a group, or a flag that is not at the beginning, or is none of i, m and s,")
        if name := match["name"]:
            self._out.append(f"(?P<{name}>")
            self._at = match.end()
        else:
            self._copy(match)

    def _class(self) -> None:
        """Translate ``[...]``. Notations that Python reserves for later versions are escaped or refused."""
        self._out.append("[")
        self._at += 1
        if self._pattern.startswith("^", self._at):
            self._out.append("^")
            self._at += 1
        first = True
        after_class_escape = False
        while not self._pattern.startswith("]", self._at) or first:
            char = self._pattern[self._at : self._at + 1]
            if not char:
                raise ValueError("a class in brackets has no end")
            if char == "[" or self._pattern.startswith("&&", self._at):
                raise self._refused("a class in a class, or an intersection of classes,")
            if char == "\\":
                after_class_escape = self._escape_in_class()
            else:
                # A dash after \w is literal in Java; Python takes it for an invalid range.
                literal = char in "]&~|" or (char == "-" and (after_class_escape or self._is_dash()))
                self._out.append("\\" + char if literal else char)
                self._at += 1
                after_class_escape = False
            first = False
        self._out.append("]")
        self._at += 1

    def _is_dash(self) -> bool:
        """Return True if the dash at this place of a class is literal: it is the first or the last."""
        return self._out[-1] in {"[", "^"} or self._pattern.startswith("]", self._at + 1)

    def _escape_in_class(self) -> bool:
        """Translate an escape in a class. Return True if it stands for several characters."""
        following = self._pattern[self._at + 1 : self._at + 2]
        if not following:
            raise ValueError("it ends with a backslash")
        if following.isascii() and following.isalnum():
            self._common_escape(following)
        else:
            self._literal_or_same()
        return following in _CLASS_ESCAPES
