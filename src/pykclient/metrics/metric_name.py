"""The name of a metric (Java: MetricName)."""

from __future__ import annotations

from collections.abc import Mapping


class MetricName:
    """A name within a group, and tags that distinguish metrics of the same name.

    Equality ignores the description. Thread: any (immutable).
    """

    __slots__ = ("_hash", "description", "group", "name", "tags")

    def __init__(self, name: str, group: str, description: str = "", tags: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.group = group
        self.description = description
        self.tags: dict[str, str] = dict(tags or {})
        # Only the hash is kept: with thousands of partitions, keys would be a quarter of a consumer's memory.
        self._hash = hash((name, group, frozenset(self.tags.items())))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, MetricName)
            and self._hash == other._hash
            and self.name == other.name
            and self.group == other.group
            and self.tags == other.tags
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"MetricName({self.name!r}, group={self.group!r}, tags={self.tags!r})"
