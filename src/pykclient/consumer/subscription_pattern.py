"""A regular expression that the brokers match (Java: SubscriptionPattern; KIP-848)."""

from __future__ import annotations

import re

from pykclient.argument_values import shown
from pykclient.errors import IllegalArgumentError

#: What Python's expressions have and RE2/J, which the brokers use, does not.
_NOT_IN_RE2 = (
    (re.compile(r"\(\?<?[=!]"), "a lookahead or lookbehind"),
    (re.compile(r"\\[1-9]|\(\?P="), "a backreference"),
    (re.compile(r"\(\?\("), "a condition"),
    (re.compile(r"\(\?>"), "an atomic group"),
    (re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\+"), "a possessive quantifier"),
    (re.compile(r"\(\?#"), "a comment"),
    (re.compile(r"\(\?[imsU-]*[aLux]"), "a flag of Python"),
    (re.compile(r"\\Z"), r"\Z, which is \z there"),
)
_ESCAPED_OR_CLASS = re.compile(r"\\\\|\[\^?\]?(?:\\.|[^\]\\])*\]")


class SubscriptionPattern:
    """A regular expression in the syntax of RE2/J, for ``KafkaConsumer.subscribe`` with ``group.protocol=consumer``.

    The brokers match it with the whole names of all topics that the consumer may describe, again for new topics. The
    client then needs metadata of assigned topics only. A pattern of Python's ``re`` is matched by the client instead.
    Thread: any.
    """

    __slots__ = ("pattern",)

    def __init__(self, pattern: str) -> None:
        """Create a pattern.

        Raises:
            IllegalArgumentError: it is empty, has half of a surrogate pair, or has what Python's expressions have and
                RE2/J does not: lookaheads, lookbehinds, backreferences, conditions, atomic groups, possessive
                quantifiers, comments, and the flags a, L, u and x.
        """
        if not isinstance(pattern, str) or not pattern:
            raise IllegalArgumentError(f"a SubscriptionPattern needs a regular expression, not {shown(pattern)}")
        try:
            pattern.encode()
        except UnicodeEncodeError as error:
            raise IllegalArgumentError(f"the pattern {pattern!r} cannot be sent to the brokers: {error}") from error
        bare = _ESCAPED_OR_CLASS.sub("_", pattern)
        for part, what in _NOT_IN_RE2:
            if part.search(bare):
                raise IllegalArgumentError(
                    f"the brokers cannot match {pattern!r}: it has {what}, which RE2/J does not know. Write it "
                    "differently, or pass re.compile(...) to subscribe(), which the client matches"
                )
        self.pattern = pattern

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubscriptionPattern) and self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __repr__(self) -> str:
        return f"SubscriptionPattern({self.pattern!r})"
