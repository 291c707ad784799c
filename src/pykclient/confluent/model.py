"""Plain values of confluent-kafka's interface: nodes, enumerations, collections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple, overload

from pykclient.confluent import constants
from pykclient.confluent.message import Message
from pykclient.confluent.topic_partition import TopicPartition
from pykclient.types import OffsetAndMetadata


class Node:
    """A broker: its id, address and rack."""

    def __init__(self, id: int, host: str, port: int, rack: str | None = None) -> None:
        self.id = id
        self.id_string = str(id)
        self.host = host
        self.port = port
        self.rack = rack

    def __str__(self) -> str:
        rack = f"(Rack - {self.rack})" if self.rack else ""
        return f"({self.id}) {self.host}:{self.port} {rack}"


class ConsumerGroupTopicPartitions:
    """A group's id, and partitions with offsets of it."""

    def __init__(self, group_id: str, topic_partitions: list[TopicPartition] | None = None) -> None:
        self.group_id = group_id
        self.topic_partitions = topic_partitions


class OrderedEnum(Enum):
    """An enumeration that is ordered by its values."""

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return bool(self.value < other.value)


class ConsumerGroupState(OrderedEnum):
    """The state of a group."""

    UNKNOWN = constants.CONSUMER_GROUP_STATE_UNKNOWN
    UNKOWN = UNKNOWN  # confluent-kafka's misspelling, which programs use
    PREPARING_REBALANCING = constants.CONSUMER_GROUP_STATE_PREPARING_REBALANCE
    COMPLETING_REBALANCING = constants.CONSUMER_GROUP_STATE_COMPLETING_REBALANCE
    STABLE = constants.CONSUMER_GROUP_STATE_STABLE
    DEAD = constants.CONSUMER_GROUP_STATE_DEAD
    EMPTY = constants.CONSUMER_GROUP_STATE_EMPTY


class ConsumerGroupType(OrderedEnum):
    """The type of a group."""

    UNKNOWN = constants.CONSUMER_GROUP_TYPE_UNKNOWN
    CONSUMER = constants.CONSUMER_GROUP_TYPE_CONSUMER
    CLASSIC = constants.CONSUMER_GROUP_TYPE_CLASSIC


class TopicCollection:
    """Topics by name."""

    def __init__(self, topic_names: list[str]) -> None:
        self.topic_names = topic_names


@dataclass(eq=False, repr=False)
class TopicPartitionInfo:
    """A partition: its leader, its replicas and its in-sync replicas."""

    id: int
    leader: Node
    replicas: list[Node]
    isr: list[Node]


class IsolationLevel(OrderedEnum):
    """The records that count: all, or those of no open or aborted transaction."""

    READ_UNCOMMITTED = constants.ISOLATION_LEVEL_READ_UNCOMMITTED
    READ_COMMITTED = constants.ISOLATION_LEVEL_READ_COMMITTED


class ElectionType(OrderedEnum):
    """The kind of a leader's election."""

    PREFERRED = constants.ELECTION_TYPE_PREFERRED
    UNCLEAN = constants.ELECTION_TYPE_UNCLEAN


class AcknowledgeType(IntEnum):
    """The decision about a message of a share group: done, again, or never."""

    ACCEPT = constants.SHARE_ACKNOWLEDGE_TYPE_ACCEPT
    RELEASE = constants.SHARE_ACKNOWLEDGE_TYPE_RELEASE
    REJECT = constants.SHARE_ACKNOWLEDGE_TYPE_REJECT


class Messages:
    """The messages of one ``ShareConsumer.poll``: a sequence that cannot be changed."""

    def __init__(self, messages: Iterable[Message[Any, Any]] = ()) -> None:
        self._records = list(messages)

    @classmethod
    def _from_list(cls, records: list[Message[Any, Any]]) -> Messages:
        """Return the messages of a list, which is not copied."""
        made = cls.__new__(cls)
        made._records = records
        return made

    def records(self) -> list[Message[Any, Any]]:
        """Return the messages as a new list."""
        return list(self._records)

    def count(self) -> int:
        """Return the number of messages."""
        return len(self._records)

    def is_empty(self) -> bool:
        """Return True if there are none."""
        return not self._records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Message[Any, Any]]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> Message[Any, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Messages: ...

    def __getitem__(self, index: int | slice) -> Message[Any, Any] | Messages:
        if isinstance(index, slice):
            return self._from_list(self._records[index])
        return self._records[index]

    def __repr__(self) -> str:
        return f"Messages({self._records!r})"


@dataclass(eq=False, repr=False)
class ThrottleEvent:
    """A request that a broker delayed: the broker's name and id, and the time in seconds."""

    broker_name: str
    broker_id: int
    throttle_time: float

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.broker_id} throttled for {int(self.throttle_time * 1000)} ms"


class Progress(NamedTuple):
    """A consumer's progress in a partition; OFFSET_INVALID means an unknown offset."""

    topic: str
    partition: int
    at_hand: int
    position: int
    stored: OffsetAndMetadata
    committed: OffsetAndMetadata
    low: int
    high: int
