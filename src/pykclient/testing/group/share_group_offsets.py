"""The administration of share groups' offsets, which are in share coordinators (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors import UnknownTopicOrPartitionError
from pykclient.testing.group import share_group_records as records_of
from pykclient.testing.group.share_group import SharedTopic, ShareGroup
from pykclient.testing.share.share_types import UNINITIALIZED_START_OFFSET, SharePartitionKey, ShareState
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.group.group_metadata_manager import GroupMetadataManager

_NO_LAG = -1


class SharePartitionOffset(NamedTuple):
    """The start offset of a share group in a partition, and its lag, which is -1 if it is not known."""

    start_offset: int = UNINITIALIZED_START_OFFSET
    leader_epoch: int = 0
    lag: int = _NO_LAG
    error_code: int = 0


#: The offset of each partition.
OffsetsCallback = Callable[[Mapping[TopicPartition, SharePartitionOffset]], None]
#: Called with an error code or 0 for each partition.
AlteredCallback = Callable[[Mapping[TopicPartition, int]], None]
#: Called with an error code or 0 for each topic.
DeletedCallback = Callable[[Mapping[str, int]], None]


class ShareGroupOffsets:
    """Describes, resets and deletes the offsets of share groups. Thread: loop."""

    __slots__ = ("_broker", "_manager")

    def __init__(self, broker: Broker, manager: GroupMetadataManager) -> None:
        self._broker = broker
        self._manager = manager

    def _topic_id(self, topic: str) -> UUID | None:
        cache = self._broker.metadata_cache
        return cache.topic_id(topic) if cache.contains(topic) else None

    # --- describing

    def describe(self, group_id: str, partitions: Iterable[TopicPartition] | None, respond: OffsetsCallback) -> None:
        """Look up offsets; ``partitions`` None means all that the group has begun to read."""
        if partitions is None:
            group = self._manager.groups.get(group_id)
            initialized = group.initialized if isinstance(group, ShareGroup) else {}
            partitions = [
                TopicPartition(topic.name, number)
                for topic_id, topic in initialized.items()
                if self._topic_id(topic.name) == topic_id
                for number in sorted(topic.partitions)
            ]
        found: dict[TopicPartition, SharePartitionOffset] = dict.fromkeys(partitions, SharePartitionOffset())
        states: dict[TopicPartition, ShareState] = {}
        keys = {
            tp: SharePartitionKey(group_id, topic_id, tp.partition)
            for tp in found
            if (topic_id := self._topic_id(tp.topic)) is not None
        }
        waiting = set(keys)

        def with_state(tp: TopicPartition, state: ShareState | None) -> None:
            if state is not None:
                states[tp] = state
                found[tp] = SharePartitionOffset(state.start_offset, state.leader_epoch)
            waiting.discard(tp)
            if not waiting:
                self._add_lags(found, states, respond)

        if not keys:
            respond(found)
        for tp, key in keys.items():
            self._broker.share_persister.read_state_summary(
                key,
                lambda _code, _message, state, tp=tp: with_state(tp, state),  # type: ignore[misc]
            )

    def _add_lags(
        self,
        found: dict[TopicPartition, SharePartitionOffset],
        states: Mapping[TopicPartition, ShareState],
        respond: OffsetsCallback,
    ) -> None:
        begun = [tp for tp, state in states.items() if state.start_offset >= 0 and state.delivery_complete_count >= 0]

        def answered(ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
            for tp in begun:
                error_code, end = ends[tp]
                if error_code:
                    found[tp] = SharePartitionOffset(0, 0, _NO_LAG, error_code)
                else:
                    lag = end - states[tp].start_offset - states[tp].delivery_complete_count
                    found[tp] = found[tp]._replace(lag=lag)
            respond(found)

        if begun:
            self._broker.partition_metadata_client.list_latest_offsets(begun, answered)
        else:
            respond(found)

    # --- altering

    def alter(self, group_id: str, offsets: Mapping[TopicPartition, int], respond: AlteredCallback) -> None:
        """Let an empty group go on from these offsets. A group that does not exist is created.

        Raises:
            GroupNotEmptyError: the group has members.
            GroupIdNotFoundError: the group is of another protocol.
        """
        group = self._manager.share_group(group_id, may_create=True)
        group.validate_delete()
        cache = self._broker.metadata_cache
        codes: dict[TopicPartition, int] = {}
        topics: dict[UUID, SharedTopic] = {}
        for tp in offsets:
            topic_id = self._topic_id(tp.topic)
            if topic_id is None or not 0 <= tp.partition < (cache.num_partitions(tp.topic) or 0):
                codes[tp] = UnknownTopicOrPartitionError.code
                continue
            known = topics[topic_id].partitions if topic_id in topics else frozenset()
            topics[topic_id] = SharedTopic(tp.topic, known | {tp.partition})
        if not topics:
            respond(codes)
            return
        group.begin_initialization(topics)
        waiting = {
            TopicPartition(topic.name, number): SharePartitionKey(group_id, topic_id, number)
            for topic_id, topic in topics.items()
            for number in topic.partitions
        }

        def initialized(tp: TopicPartition, code: int) -> None:
            codes[tp] = code
            del waiting[tp]
            if not waiting:
                group.end_initialization(topics, succeeded=not any(codes[each] for each in keys))
                self._write(group, lambda code: respond(dict.fromkeys(codes, code) if code else codes))

        def begin(code: int) -> None:
            if code:
                respond(dict.fromkeys(offsets, code))
                return
            for tp, key in keys.items():
                self._broker.share_persister.initialize_state(
                    key,
                    group.group_epoch,
                    offsets[tp],
                    lambda code, _, tp=tp: initialized(tp, code),  # type: ignore[misc]
                )

        keys = dict(waiting)
        self._write(group, begin)

    # --- deleting

    def delete(self, group_id: str, topics: Sequence[str], respond: DeletedCallback) -> None:
        """Delete the offsets of topics of an empty group.

        Raises:
            GroupNotEmptyError: the group has members.
            GroupIdNotFoundError: there is no such share group.
        """
        group = self._manager.share_group(group_id, may_create=False)
        group.validate_delete()
        codes: dict[str, int] = {}
        deleted: dict[str, UUID] = {}
        for name in topics:
            topic_id = self._topic_id(name)
            if topic_id is None or not (topic_id in group.initialized or topic_id in group.deleting):
                codes[name] = UnknownTopicOrPartitionError.code
            else:
                deleted[name] = topic_id
        self._delete(group, deleted, lambda results: respond({**results, **codes}))

    def delete_all(self, group: ShareGroup, then: Callable[[int], None]) -> None:
        """Delete all state of a group that is about to be deleted; ``then`` gets the first error code, or 0."""
        topics = {topic.name: topic_id for topic_id, topic in (*group.initialized.items(), *group.initializing.items())}
        topics |= {name: topic_id for topic_id, name in group.deleting.items()}
        # The share coordinators delete the state of deleted topics themselves.
        existing = {name: topic_id for name, topic_id in topics.items() if self._topic_id(name) == topic_id}
        self._delete(group, existing, lambda codes: then(next((code for code in codes.values() if code), 0)))

    def _delete(self, group: ShareGroup, topics: Mapping[str, UUID], then: DeletedCallback) -> None:
        codes = dict.fromkeys(topics, 0)
        keys: list[tuple[str, SharePartitionKey]] = []
        for name, topic_id in topics.items():
            known = [each[topic_id].partitions for each in (group.initialized, group.initializing) if topic_id in each]
            partitions = frozenset[int]().union(*known) or range(self._broker.metadata_cache.num_partitions(name) or 0)
            keys += [(name, SharePartitionKey(group.group_id, topic_id, number)) for number in sorted(partitions)]
            group.initialized.pop(topic_id, None)
            group.initializing.pop(topic_id, None)
            group.deleting[topic_id] = name
        left = len(keys)

        def deleted(name: str, code: int) -> None:
            nonlocal left
            left -= 1
            codes[name] = codes[name] or code
            if left:
                return
            for each, topic_id in topics.items():
                if not codes[each]:
                    group.deleting.pop(topic_id, None)
            self._write(group, lambda code: then(dict.fromkeys(codes, code) if code else codes))

        def begin(code: int) -> None:
            if code:
                then(dict.fromkeys(codes, code))
                return
            for name, key in keys:
                self._broker.share_persister.delete_state(key, lambda code, _, name=name: deleted(name, code))  # type: ignore[misc]

        if keys:
            self._write(group, begin)
        else:
            then(codes)

    def _write(self, group: ShareGroup, then: Callable[[int], None]) -> None:
        wall_ms = self._broker.loop.wall_ms
        record = records_of.state_record(group)
        group.write(self._manager.store_records, [record], lambda: records_of.all_records(group, wall_ms), then)
