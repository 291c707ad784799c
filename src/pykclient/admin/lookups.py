"""Strategies that ask a broker where a key belongs (Java: CoordinatorStrategy, PartitionLeaderStrategy)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from pykclient import errors
from pykclient.admin.api import ANY_BROKER, ApiRequest, ApiResult, ErrorTypes, LookupStrategy, error_of
from pykclient.errors import KafkaError, RetriableError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
    from pykclient.protocol.messages.metadata import MetadataResponse

K = TypeVar("K")

#: The types of coordinators in a FindCoordinator request.
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

_FIRST_BATCHED_VERSION: Final = 4  # KIP-699


class CoordinatorStrategy(LookupStrategy[K]):
    """Finds the coordinators of groups or of transactional ids.

    One request asks for all keys, or for one of them where the brokers are older than Kafka 3.0.
    """

    RETRIED: ClassVar[ErrorTypes] = (
        errors.RequestTimedOutError,
        errors.CoordinatorLoadInProgressError,
        errors.ConcurrentTransactionsError,
    )
    UNMAPPING: ClassVar[ErrorTypes] = (errors.NotCoordinatorError, errors.CoordinatorNotAvailableError)

    def __init__(self, key_type: int, name_of: Callable[[K], str] = str) -> None:
        self._key_type = key_type
        self._name_of = name_of
        self._is_batched = True

    def destination_of(self, key: K) -> int | None:
        return None

    def requests(self, keys: Sequence[K]) -> list[ApiRequest[K]]:
        if self._is_batched:
            names = list(dict.fromkeys(self._name_of(key) for key in keys))
            request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=names)
            return [ApiRequest(ANY_BROKER, RequestBuilder(request, min_version=_FIRST_BATCHED_VERSION), keys)]
        return [
            ApiRequest(
                ANY_BROKER,
                RequestBuilder(
                    FindCoordinatorRequest(key_type=self._key_type, key=self._name_of(key)),
                    max_version=_FIRST_BATCHED_VERSION - 1,
                ),
                [key],
            )
            for key in keys
        ]

    def handle_response(self, keys: Sequence[K], response: FindCoordinatorResponse) -> ApiResult[K, int]:
        result: ApiResult[K, int] = ApiResult()
        if not self._is_batched:
            for key in keys:
                _add(result, key, error_of(response.error_code, response.error_message), response.node_id)
            return result
        found = {coordinator.key: coordinator for coordinator in response.coordinators}
        for key in keys:
            coordinator = found.get(self._name_of(key))
            if coordinator is not None:
                error = error_of(coordinator.error_code, coordinator.error_message)
                _add(result, key, error, coordinator.node_id)
        return result

    def handle_unsupported_version(self) -> bool:
        was_batched, self._is_batched = self._is_batched, False
        return was_batched


class PartitionLeaderStrategy(LookupStrategy[TopicPartition]):
    """Finds the leaders of partitions."""

    RETRIED: ClassVar[ErrorTypes] = (errors.RequestTimedOutError, errors.KafkaStorageError)
    UNMAPPING: ClassVar[ErrorTypes] = (
        errors.FencedLeaderEpochError,
        errors.LeaderNotAvailableError,
        errors.NotLeaderOrFollowerError,
        errors.OffsetNotAvailableError,
        errors.ReplicaNotAvailableError,
        errors.UnknownLeaderEpochError,
        errors.UnknownTopicOrPartitionError,
    )

    def __init__(self) -> None:
        """Create the strategy; it keeps nothing."""

    def destination_of(self, key: TopicPartition) -> int | None:
        return None

    def requests(self, keys: Sequence[TopicPartition]) -> list[ApiRequest[TopicPartition]]:
        from pykclient.network.metadata import MetadataRequestBuilder

        topics = dict.fromkeys(tp.topic for tp in keys)
        return [ApiRequest(ANY_BROKER, MetadataRequestBuilder.for_topic_names(topics, False), keys)]

    def handle_response(
        self, keys: Sequence[TopicPartition], response: MetadataResponse
    ) -> ApiResult[TopicPartition, int]:
        result: ApiResult[TopicPartition, int] = ApiResult()
        topics = {topic.name: topic for topic in response.topics}
        for tp in keys:
            topic = topics.get(tp.topic)
            if topic is None:
                continue
            error = error_of(topic.error_code)
            leader = -1
            if error is None:
                error = errors.UnknownTopicOrPartitionError(f"topic {tp.topic!r} has no partition {tp.partition}")
                for partition in topic.partitions:
                    if partition.partition_index == tp.partition:
                        leader, error = partition.leader_id, error_of(partition.error_code)
                        if leader < 0 and error is None:
                            error = errors.LeaderNotAvailableError()
                        # A partition with an offline replica has an error and still a leader.
                        if isinstance(error, errors.ReplicaNotAvailableError) and leader >= 0:
                            error = None
            _add(result, tp, error, leader)
        return result


def _add(result: ApiResult[Any, int], key: Any, error: KafkaError | None, destination: int) -> None:
    if error is None:
        result.completed[key] = destination
    elif isinstance(error, RetriableError):
        result.retry[key] = error
    else:
        result.failed[key] = error
