"""The acknowledgement of records, for the handlers of ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pykclient.errors import (
    BrokerError,
    InvalidRequestError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.testing import acls
from pykclient.testing.share.share_partition import ACKNOWLEDGE_TYPES, AcknowledgementBatch
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request
    from pykclient.types import Node

_RENEW: Final = 4
#: The length of a UUID in text.
_MAX_MEMBER_ID_LENGTH: Final = 36

Endpoint_co = TypeVar("Endpoint_co", covariant=True)
_Key = tuple["UUID", int]


class GivenBatch(Protocol):
    """The acknowledgements of a range of offsets in a request of either kind. Thread: loop."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class EndpointClass(Protocol[Endpoint_co]):
    """The class of a broker's address in a response of either kind."""

    def __call__(self, *, node_id: int, host: str, port: int, rack: str | None) -> Endpoint_co: ...


def check_enabled(broker: Broker) -> None:
    """Check that the cluster has share groups.

    Raises:
        UnsupportedVersionError: it has not.
    """
    if not broker.cluster.features.share_version:
        raise UnsupportedVersionError("the feature share.version is at level 0, which has no share groups")


def check_member(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Return the group and the member of a request.

    Raises:
        InvalidRequestError: one of them is missing or not valid.
    """
    if group_id is None:
        raise InvalidRequestError("Invalid group id in the request.")
    if not member_id or len(member_id) > _MAX_MEMBER_ID_LENGTH:
        raise InvalidRequestError("Invalid member id in the request.")
    return group_id, member_id


def acknowledge(
    broker: Broker,
    request: Request,
    group_id: str,
    member_id: str,
    acknowledgements: Mapping[_Key, Sequence[GivenBatch]],
    then: Callable[[dict[_Key, BrokerError | None]], None],
    *,
    may_renew: bool,
) -> None:
    """Check and apply the acknowledgements of a request; ``then`` gets the error of each partition, or None."""
    results: dict[_Key, BrokerError | None] = {}
    valid: dict[_Key, list[AcknowledgementBatch]] = {}
    for (topic_id, index), batches in acknowledgements.items():
        try:
            readable_partition(broker, request, topic_id, index)
            checked = _checked(batches, may_renew=may_renew)
        except BrokerError as error:
            results[topic_id, index] = error
            continue
        if checked:
            valid[topic_id, index] = checked
        else:
            results[topic_id, index] = None

    def acknowledged(errors: dict[_Key, BrokerError | None]) -> None:
        then({**errors, **results})

    if valid:
        broker.share_partition_manager.acknowledge(group_id, member_id, valid, acknowledged)
    else:
        then(results)


def readable_partition(broker: Broker, request: Request, topic_id: UUID, index: int) -> TopicPartition:
    """Return a partition of a request.

    Raises:
        UnknownTopicIdError, UnknownTopicOrPartitionError: it does not exist.
        TopicAuthorizationError: the requester may not read the topic.
    """
    name = broker.replica_manager.topic_name(topic_id)
    if name is None:
        raise UnknownTopicIdError("This server does not host this topic ID.")
    broker.auth.check_topic(request, acls.READ, name)
    topic_partition = TopicPartition(name, index)
    if broker.metadata_cache.partition_info(topic_partition) is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    return topic_partition


def _checked(batches: Sequence[GivenBatch], *, may_renew: bool) -> list[AcknowledgementBatch]:
    """Return the batches, which are valid and in order.

    Raises:
        InvalidRequestError: they are not.
    """
    checked = []
    end = -1
    for batch in batches:
        types = batch.acknowledge_types
        count = batch.last_offset - batch.first_offset + 1
        if count <= 0 or batch.first_offset < end or len(types) not in (1, count):
            raise InvalidRequestError("The request is malformed: acknowledgements overlap, or lack types or offsets.")
        if not ACKNOWLEDGE_TYPES.issuperset(types) or (_RENEW in types and not may_renew):
            raise InvalidRequestError("The request is malformed: it has an acknowledge type that is not allowed.")
        end = batch.last_offset
        checked.append(AcknowledgementBatch(batch.first_offset, batch.last_offset, types))
    return checked


def leader_of(broker: Broker, topic_id: UUID, index: int, nodes: dict[int, Node]) -> tuple[int, int]:
    """Return the leader and the leader epoch of a partition, and add the leader's address to ``nodes``."""
    name = broker.replica_manager.topic_name(topic_id) or ""
    leader_id, leader_epoch = broker.replica_manager.current_leader(TopicPartition(name, index))
    node = broker.metadata_cache.alive_broker(leader_id)
    if node is not None:
        nodes[leader_id] = node
    return leader_id, leader_epoch


def node_endpoints(
    request: Request, nodes: Mapping[int, Node], endpoint: EndpointClass[Endpoint_co]
) -> list[Endpoint_co]:
    """Return the addresses of brokers for the requester."""
    return [
        endpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in map(request.advertised, nodes.values())
    ]
