"""The owners of partitions before a sticky assignment, according to the members themselves."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pykclient.types import TopicPartition

_log = logging.getLogger(__name__)

#: The generation of a member that does not know its own.
DEFAULT_GENERATION = -1


class MemberData(NamedTuple):
    """The partitions that a member says it owns, and the generation that assigned them (-1: unknown)."""

    partitions: Sequence[TopicPartition]
    generation_id: int = DEFAULT_GENERATION


class OwnedPartitions:
    """The owners of partitions, resolved from the claims of all members.

    A partition belongs to the member that got it in the latest generation. If several members claim it in that
    generation, it is ``contested`` and belongs to none of them. Claims of partitions that do not exist are ignored.
    Thread: application.
    """

    __slots__ = ("_member_data", "contested", "owners")

    def __init__(self, partitions: Sequence[TopicPartition], member_data: Mapping[str, MemberData]) -> None:
        existing = frozenset(partitions)
        claims: dict[TopicPartition, tuple[int, str]] = {}
        self.contested: set[TopicPartition] = set()
        for member_id, data in sorted(member_data.items()):
            for tp in dict.fromkeys(data.partitions):
                if tp not in existing:
                    continue
                claim = claims.get(tp)
                if claim is None or data.generation_id > claim[0]:
                    claims[tp] = data.generation_id, member_id
                    self.contested.discard(tp)
                elif data.generation_id == claim[0]:
                    self.contested.add(tp)
        if self.contested:
            _log.warning(
                "Several members claim to own %s in the same generation; assigning them as if nobody did",
                ", ".join(map(str, sorted(self.contested))),
            )
        self.owners = {tp: member_id for tp, (_, member_id) in claims.items() if tp not in self.contested}
        self._member_data = member_data

    def by_member(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions that each member owns. Members are in ascending order."""
        owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in sorted(self._member_data)}
        for tp, member_id in self.owners.items():
            owned[member_id].append(tp)
        return owned

    def previous_owners(self, topics: Mapping[str, frozenset[str]]) -> dict[TopicPartition, str]:
        """Return the members that claim a partition in an older generation than the group's latest, the latest first.

        ``topics`` are each member's topics; claims of others are left out.
        """
        latest = max((data.generation_id for data in self._member_data.values()), default=DEFAULT_GENERATION)
        previous: dict[TopicPartition, tuple[int, str]] = {}
        for member_id, data in sorted(self._member_data.items()):
            if data.generation_id == latest:
                continue
            for tp in data.partitions:
                if tp.topic in topics[member_id] and (tp not in previous or data.generation_id > previous[tp][0]):
                    previous[tp] = data.generation_id, member_id
        return {tp: member_id for tp, (_, member_id) in previous.items()}

    def moves(self, member_id: str, tp: TopicPartition) -> bool:
        """Return True if the partition must be revoked from another member before this one may own it."""
        return tp in self.contested or self.owners.get(tp, member_id) != member_id
