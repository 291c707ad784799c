"""The partitions that a query reads: of named topics, of topics that match a pattern, or named ones.

Spark: ConsumerStrategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pykclient.errors import ConfigError
from pykclient.spark.java_regex import compile_java_regex
from pykclient.types import TopicPartition


class Topics:
    """Base of ``Subscribe``, ``SubscribePattern`` and ``Assign``. Thread: any (immutable)."""

    @property
    def description(self) -> str:
        """The topics or partitions, as error messages name them."""
        raise NotImplementedError


@dataclass
class Subscribe(Topics):
    """All partitions of the topics with these names."""

    names: Sequence[str]

    def __post_init__(self) -> None:
        self.names = tuple(dict.fromkeys(self.names))

    @property
    def description(self) -> str:
        return f"topic{'s' if len(self.names) > 1 else ''} {', '.join(self.names)}"


@dataclass
class SubscribePattern(Topics):
    """All partitions of topics with a name in which ``pattern``, a Java regular expression, is found anywhere.

    Raises:
        ConfigError: It is not a regular expression, or one that Python cannot express.
    """

    pattern: str

    def __post_init__(self) -> None:
        try:
            self._regex = compile_java_regex(self.pattern)
        except ValueError as error:
            raise ConfigError(
                "option subscribePattern must be a regular expression of both Java and Python; in "
                f"{self.pattern!r} {error}",
                key="subscribePattern",
            ) from None

    def matches(self, topic: str) -> bool:
        """Return True if a topic with this name is read."""
        return self._regex.search(topic) is not None

    @property
    def description(self) -> str:
        return f"topics that match {self.pattern!r}"


@dataclass
class Assign(Topics):
    """The given partitions, as far as they exist."""

    topic_partitions: Sequence[TopicPartition]

    def __post_init__(self) -> None:
        self.topic_partitions = tuple(sorted(self.topic_partitions))

    @property
    def names(self) -> tuple[str, ...]:
        """The topics of the partitions."""
        return tuple(dict.fromkeys(partition.topic for partition in self.topic_partitions))

    @property
    def description(self) -> str:
        return f"partition{'s' if len(self.topic_partitions) > 1 else ''} {', '.join(map(str, self.topic_partitions))}"
