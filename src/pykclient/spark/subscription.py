"""The partitions that a query reads: of named topics, of topics that match a pattern, or named ones.

Spark: ConsumerStrategy.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykclient.errors import ConfigError
from pykclient.spark.java_regex import compile_java_regex
from pykclient.types import TopicPartition


class Topics:
    """Base of ``Subscribe``, ``SubscribePattern`` and ``Assign``. Thread: any (immutable)."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    @property
    def description(self) -> str:
        """The topics or partitions, as error messages name them."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(getattr(self, name)) for name in self.__slots__)})"


class Subscribe(Topics):
    """All partitions of the topics with these names."""

    __slots__ = ("names",)

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))

    @property
    def description(self) -> str:
        return f"topic{'s' if len(self.names) > 1 else ''} {', '.join(self.names)}"


class SubscribePattern(Topics):
    """All partitions of topics with a name in which ``pattern``, a Java regular expression, is found anywhere.

    Raises:
        ConfigError: It is not a regular expression, or one that Python cannot express.
    """

    __slots__ = ("_regex", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        try:
            self._regex = compile_java_regex(pattern)
        except ValueError as error:
            raise ConfigError(
                f"option subscribePattern must be a regular expression of both Java and Python; in {pattern!r} {error}",
                key="subscribePattern",
            ) from None

    def matches(self, topic: str) -> bool:
        """Return True if a topic with this name is read."""
        return self._regex.search(topic) is not None

    def __repr__(self) -> str:
        return f"SubscribePattern({self.pattern!r})"

    @property
    def description(self) -> str:
        return f"topics that match {self.pattern!r}"


class Assign(Topics):
    """The given partitions, as far as they exist."""

    __slots__ = ("topic_partitions",)

    def __init__(self, topic_partitions: Iterable[TopicPartition]) -> None:
        self.topic_partitions = tuple(sorted(topic_partitions))

    @property
    def names(self) -> tuple[str, ...]:
        """The topics of the partitions."""
        return tuple(dict.fromkeys(partition.topic for partition in self.topic_partitions))

    @property
    def description(self) -> str:
        return f"partition{'s' if len(self.topic_partitions) > 1 else ''} {', '.join(map(str, self.topic_partitions))}"
