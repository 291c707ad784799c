"""The offsets of groups: the steps of their methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pykclient import topic_names
from pykclient.admin import expect
from pykclient.admin.admin_calls import Steps, run
from pykclient.admin.api import AdminApiHandler, Answers, ApiRequest, ApiResult, item_error
from pykclient.admin.descriptions import ShareGroupOffset
from pykclient.admin.groups import coordinator
from pykclient.admin.partitions import by_partition, by_topic, list_offsets, topics_of
from pykclient.admin.values import IsolationLevel, OffsetSpec, OffsetTimestamp, Results
from pykclient.errors import IllegalArgumentError, KafkaError, RebalanceInProgressError, UnstableOffsetCommitError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from pykclient.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from pykclient.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from pykclient.protocol.messages.offset_delete import OffsetDeleteRequest
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pykclient.types import UNKNOWN_EPOCH, OffsetAndMetadata, TopicPartition

T = TypeVar("T")

#: The partitions of each group; None is for all that have offsets.
GroupSpecs = Mapping[str, Sequence[TopicPartition] | None]
Offsets = dict[TopicPartition, OffsetAndMetadata]

#: One request asks for several groups from this version on (KIP-709).
_SEVERAL_FROM = 8
#: The last version with names of topics instead of ids.
_NAMES_UNTIL = 9


class OffsetFetchHandler(AdminApiHandler[str, Offsets]):
    """Fetches the offsets of all groups of a coordinator at once, or one by one from older brokers."""

    def __init__(self, specs: GroupSpecs, require_stable: bool = False) -> None:
        #: A transaction has offsets that it has not committed yet. The answer waits for its end (``require_stable``).
        retried = (UnstableOffsetCommitError,)
        super().__init__("list_group_offsets", coordinator(), OffsetFetchRequest(), _fetched, retried)
        self._specs = specs
        self._require_stable = require_stable
        self._asks_for_several = True

    def requests(self, destination: int, keys: Sequence[str], timeout_ms: int) -> list[ApiRequest[str]]:
        if not self._asks_for_several:
            return [ApiRequest(destination, self._for_one(key), [key]) for key in keys]
        kind = OffsetFetchRequest.OffsetFetchRequestTopics
        groups = [
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id=key, topics=self._topics(key, kind)) for key in keys
        ]
        message = OffsetFetchRequest(groups=groups, require_stable=self._require_stable)
        builder = RequestBuilder(message, min_version=_SEVERAL_FROM, max_version=_NAMES_UNTIL)
        return [ApiRequest(destination, builder, keys)]

    def _for_one(self, group: str) -> RequestBuilder:
        topics = self._topics(group, OffsetFetchRequest.OffsetFetchRequestTopic)
        message = OffsetFetchRequest(group_id=group, topics=topics, require_stable=self._require_stable)
        return RequestBuilder(message, min_version=2, max_version=_SEVERAL_FROM - 1)

    def _topics(self, group: str, kind: Callable[..., T]) -> list[T] | None:
        partitions = self._specs[group]
        return None if partitions is None else topics_of(by_topic(partitions), kind)

    def handle_unsupported_version(self, keys: Sequence[str], error: KafkaError) -> ApiResult[str, Offsets]:
        if not self._asks_for_several:
            return super().handle_unsupported_version(keys, error)
        self._asks_for_several = False
        result: ApiResult[str, Offsets] = ApiResult()
        result.retry.update(dict.fromkeys(keys, error))
        return result


def _fetched(keys: Sequence[str], response: Any) -> Answers[str]:
    if response.groups:
        for group in response.groups:
            yield _offsets_of(group.group_id, group)
    else:
        for key in keys:
            yield _offsets_of(key, response)


def _offsets_of(group: str, found: Any) -> tuple[str, KafkaError | None, Offsets]:
    error = item_error(found)
    offsets: Offsets = {}
    for topic in found.topics:
        for partition in topic.partitions:
            error = error or item_error(partition)
            offsets[TopicPartition(topic.name, partition.partition_index)] = OffsetAndMetadata(
                partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
            )
    return group, error, offsets


def list_group_offsets(specs: GroupSpecs, require_stable: bool = False) -> Steps[Results[str, Offsets]]:
    """Return the offsets of groups. A requested partition without a committed offset has -1."""
    return run(OffsetFetchHandler(specs, require_stable), list(specs))


def group_specs(values: object) -> dict[str, list[TopicPartition] | None]:
    """Return partitions by group, given as such a dict, as group names, or as one name.

    Raises:
        IllegalArgumentError: an argument is wrong, or there is no group.
    """
    if isinstance(values, str):
        return {expect.text(values, "group_specs"): None}
    if not isinstance(values, Mapping):
        found: dict[str, list[TopicPartition] | None] = dict.fromkeys(expect.texts(values, "group_specs"))
    else:
        found = {
            expect.text(group, "the id of a group"): None
            if partitions is None
            else topic_names.partitions(partitions, f"the partitions of group {group!r}")
            for group, partitions in values.items()
        }
    if not found:
        raise IllegalArgumentError("group_specs is empty; name at least one group")
    return found


# --- altering ---

#: While the group rebalances, a change is retried, as by Java's client.
_RETRIED = (RebalanceInProgressError,)


def alter_group_offsets(
    group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], coordinator_id: int | None
) -> Steps[Results[TopicPartition, None]]:
    """Set offsets of a group, which must have no members."""

    def request(keys: Sequence[TopicPartition], _timeout_ms: int) -> RequestBuilder:
        def partition(tp: TopicPartition) -> OffsetCommitRequest.OffsetCommitRequestPartition:
            return OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=offsets[tp].offset,
                committed_leader_epoch=offsets[tp].leader_epoch,
                committed_metadata=offsets[tp].metadata,
            )

        partitions = by_topic((tp.topic, partition(tp)) for tp in keys)
        message = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=-1,
            topics=topics_of(partitions, OffsetCommitRequest.OffsetCommitRequestTopic, numbers="partitions"),
        )
        return RequestBuilder(message, max_version=_NAMES_UNTIL)

    where = coordinator(coordinator_id, lambda _: group)
    return run(AdminApiHandler("alter_group_offsets", where, request, by_partition("topics"), _RETRIED), list(offsets))


def new_offsets(values: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets by partition, from OffsetAndMetadata of any client, or from plain numbers.

    Raises:
        IllegalArgumentError: an argument is wrong.
    """
    found = {}
    for key, given in expect.mapping(values, "offsets", "OffsetAndMetadata by TopicPartition").items():
        tp = topic_names.partition(key, "a key of offsets")
        if isinstance(given, tuple) and len(given) == 3:
            offset, note, epoch = given
        else:
            offset, note, epoch = given, "", None
        found[tp] = OffsetAndMetadata(
            expect.number(offset, f"the offset of {tp}", 0, expect.INT64),
            expect.optional_text(note, f"the metadata of {tp}") or "",
            UNKNOWN_EPOCH if epoch is None else expect.number(epoch, f"the leader epoch of {tp}", -1),
        )
    return found


def delete_group_offsets(
    group: str, partitions: Sequence[TopicPartition], coordinator_id: int | None
) -> Steps[Results[TopicPartition, None]]:
    """Delete committed offsets of a group. No member may subscribe to their topics."""

    def request(keys: Sequence[TopicPartition], _timeout_ms: int) -> OffsetDeleteRequest:
        kind = OffsetDeleteRequest.OffsetDeleteRequestPartition
        wanted = by_topic((tp.topic, kind(partition_index=tp.partition)) for tp in keys)
        topics = topics_of(wanted, OffsetDeleteRequest.OffsetDeleteRequestTopic, numbers="partitions")
        return OffsetDeleteRequest(group_id=group, topics=topics)

    where = coordinator(coordinator_id, lambda _: group)
    return run(AdminApiHandler("delete_group_offsets", where, request, by_partition("topics")), partitions)


# --- resetting ---


def reset_targets(values: object) -> dict[TopicPartition, int | OffsetSpec | OffsetTimestamp]:
    """Return the target of each partition: an OffsetSpec, an OffsetTimestamp, or a plain offset.

    Raises:
        IllegalArgumentError: an argument is wrong.
    """
    found: dict[TopicPartition, int | OffsetSpec | OffsetTimestamp] = {}
    for key, given in expect.mapping(values, "offset_specs", "places by TopicPartition").items():
        tp = topic_names.partition(key, "a key of offset_specs")
        if isinstance(given, (OffsetSpec, OffsetTimestamp)):
            found[tp] = given
        else:
            found[tp] = expect.number(given, f"the place in {tp}", 0, expect.INT64)
    return found


def reset_offsets(group: str, targets: Mapping[TopicPartition, Any]) -> Steps[dict[TopicPartition, OffsetAndMetadata]]:
    """Return the offset of each target, clamped to the partition's range.

    A time after all records stands for the end.
    """
    level = IsolationLevel.READ_UNCOMMITTED
    partitions = list(targets)
    earliest = (yield from list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST.value), level)).all()
    latest = (yield from list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST.value), level)).all()
    places = {tp: int(target) for tp, target in targets.items() if isinstance(target, (OffsetSpec, OffsetTimestamp))}
    found = (yield from list_offsets(places, level)).all()
    known = (yield from list_group_offsets({group: partitions})).all()[group]
    offsets = {}
    for tp, target in targets.items():
        offset = found[tp].offset if tp in found else int(target)
        first, end = earliest[tp].offset, latest[tp].offset
        within = end if offset < 0 or offset > end else max(first, offset)
        note = known[tp].metadata if tp in known else ""
        offsets[tp] = OffsetAndMetadata(within, note)
    return offsets


# --- share groups ---


def describe_share_group_offsets(specs: GroupSpecs) -> Steps[Results[str, dict[TopicPartition, ShareGroupOffset]]]:
    """Return where share groups begin to read (KIP-932)."""

    def topics(partitions: Sequence[TopicPartition] | None) -> list[Any] | None:
        kind = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic
        return None if partitions is None else topics_of(by_topic(partitions), kind, "topic_name", "partitions")

    def request(keys: Sequence[str], _timeout_ms: int) -> DescribeShareGroupOffsetsRequest:
        kind = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        return DescribeShareGroupOffsetsRequest(groups=[kind(group_id=key, topics=topics(specs[key])) for key in keys])

    def answers(_keys: Sequence[str], response: Any) -> Answers[str]:
        for group in response.groups:
            error = item_error(group)
            offsets = {}
            for topic in group.topics:
                for partition in topic.partitions:
                    error = error or item_error(partition)
                    tp = TopicPartition(topic.topic_name, partition.partition_index)
                    offsets[tp] = (
                        ShareGroupOffset(None, None, None)
                        if partition.start_offset < 0
                        else ShareGroupOffset(
                            partition.start_offset,
                            partition.leader_epoch if partition.leader_epoch >= 0 else None,
                            partition.lag if partition.lag >= 0 else None,
                        )
                    )
            yield group.group_id, error, offsets

    return run(AdminApiHandler("describe_share_group_offsets", coordinator(), request, answers), list(specs))


def alter_share_group_offsets(
    group: str, offsets: Mapping[TopicPartition, int]
) -> Steps[Results[TopicPartition, None]]:
    """Set the start offsets of a share group. The group must have no members."""

    def request(keys: Sequence[TopicPartition], _timeout_ms: int) -> AlterShareGroupOffsetsRequest:
        kind = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition
        partitions = by_topic((tp.topic, kind(partition_index=tp.partition, start_offset=offsets[tp])) for tp in keys)
        topic_kind = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        topics = topics_of(partitions, topic_kind, "topic_name", "partitions")
        return AlterShareGroupOffsetsRequest(group_id=group, topics=topics)

    where = coordinator(None, lambda _: group)
    return run(
        AdminApiHandler("alter_share_group_offsets", where, request, by_partition("responses"), _RETRIED), list(offsets)
    )


def delete_share_group_offsets(group: str, topics: Sequence[str]) -> Steps[Results[str, None]]:
    """Delete the start offsets of a share group in topics. The group must have no members."""

    def request(keys: Sequence[str], _timeout_ms: int) -> DeleteShareGroupOffsetsRequest:
        kind = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        return DeleteShareGroupOffsetsRequest(group_id=group, topics=[kind(topic_name=topic) for topic in keys])

    def answers(_keys: Sequence[str], response: Any) -> Answers[str]:
        for topic in response.responses:
            yield topic.topic_name, item_error(topic), None

    where = coordinator(None, lambda _: group)
    return run(AdminApiHandler("delete_share_group_offsets", where, request, answers, _RETRIED), topics)
