"""API calls: keys that are looked up, grouped by broker, asked for, and asked for again.

A call has *keys*: topics, groups, partitions, brokers. A lookup strategy finds the broker for each key. A handler makes
the requests for the keys of one broker, and says what each response means for each key: its result, an error, or
another attempt. Neither of them waits, and neither knows of time, connections or retries: ``AdminCall`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from pykclient import errors
from pykclient.errors import KafkaError, RetriableError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
    from pykclient.protocol.messages.metadata import MetadataResponse

K = TypeVar("K")
V = TypeVar("V")
#: Destinations besides the ids of brokers.
ANY_BROKER: Final = -1
CONTROLLER: Final = -2
ErrorTypes = tuple[type[KafkaError], ...]
#: The broker did not do it, or cannot tell, and may do it if it is asked again.
_BUSY: Final[ErrorTypes] = (errors.RequestTimedOutError, errors.ThrottlingQuotaExceededError)
#: Another broker is responsible.
_MOVED: Final[ErrorTypes] = (errors.NotControllerError,)


class ApiRequest(NamedTuple, Generic[K]):
    """A request to one destination about some keys."""

    destination: int
    builder: RequestBuilder
    keys: Sequence[K]


class ApiResult(Generic[K, V]):
    """The meaning of a response for the keys of its request.

    ``completed`` and ``failed`` are final. Keys in ``retry`` are sent to the same broker again; for those in
    ``unmapped``, the broker is looked up first. ``error_of_all`` is the error of the request as a whole, if that is why
    its keys have failed.
    """

    def __init__(self) -> None:
        self.completed: dict[K, V] = {}
        self.failed: dict[K, KafkaError] = {}
        self.retry: dict[K, KafkaError] = {}
        self.unmapped: dict[K, KafkaError] = {}
        self.error_of_all: KafkaError | None = None

    @classmethod
    def all_failed(cls, keys: Iterable[K], error: KafkaError) -> ApiResult[K, V]:
        result: ApiResult[K, V] = cls()
        result.failed.update(dict.fromkeys(keys, error))
        result.error_of_all = error
        return result


class LookupStrategy(Generic[K]):
    """Finds the destination of each key. This class is for keys whose destination is known without a request."""

    #: True if the active controller serves the request for a client that is connected to controllers (KIP-919).
    SERVED_BY_CONTROLLERS: ClassVar[bool] = False
    #: Errors of a fulfilment request after which the same destination is asked again.
    RETRIED: ClassVar[ErrorTypes] = _BUSY
    #: Errors of a fulfilment request after which the destination is looked up again.
    UNMAPPING: ClassVar[ErrorTypes] = _MOVED

    def __init__(self, destination_of: Callable[[K], int]) -> None:
        self._destination_of = destination_of

    def destination_of(self, key: K) -> int | None:
        """Return the destination of ``key``, or None if a request must find it."""
        return self._destination_of(key)

    def requests(self, keys: Sequence[K]) -> list[ApiRequest[K]]:
        """Return the requests that find the destinations of ``keys``."""
        raise NotImplementedError

    def handle_response(self, keys: Sequence[K], response: Any) -> ApiResult[K, int]:
        """Return each key's destination, its error, or that it must be retried."""
        raise NotImplementedError

    def handle_unsupported_version(self) -> bool:
        """Return True if the lookup has a fallback, which the next requests then use."""
        return False


class QuorumStrategy(LookupStrategy[K]):
    """Finds the destination of keys whose requests controllers serve as well as brokers."""

    SERVED_BY_CONTROLLERS = True
    #: A controller that is not the active one says either.
    UNMAPPING: ClassVar[ErrorTypes] = (errors.NotControllerError, errors.NotLeaderOrFollowerError)


def to_any_broker(*, or_controller: bool = False) -> LookupStrategy[Any]:
    """Return the strategy for requests that every broker serves; with ``or_controller``, the active controller too."""
    return (QuorumStrategy if or_controller else LookupStrategy)(lambda _: ANY_BROKER)


def to_controller(*, or_quorum: bool = False) -> LookupStrategy[Any]:
    """Return the strategy for requests that only the controller serves.

    With ``or_quorum``, the active controller serves them also for a client that is connected to controllers.
    """
    return (QuorumStrategy if or_quorum else LookupStrategy)(lambda _: CONTROLLER)


def to_node(node_id: int) -> LookupStrategy[Any]:
    """Return the strategy for requests to a broker or controller that the application has chosen."""
    return QuorumStrategy(lambda _: node_id)


def to_broker(broker_id: int) -> LookupStrategy[Any]:
    """Return the strategy for requests to a broker that the application has chosen."""
    return LookupStrategy(lambda _: broker_id)


#: What a response means for each key: ``(key, error, value)``. The value is valid if there is no error.
Answers = Iterable[tuple[K, KafkaError | None, Any]]


class AdminApiHandler(Generic[K, V]):
    """One call of an API: its requests, and the meaning of their responses.

    ``name`` is the name of the call in errors. ``request`` is the request for keys of one destination, or a function of
    these keys and the broker's time limit in ms that returns it. ``answers`` reads a response that has no error of its
    own; it may raise the error of all keys. ``retried`` are errors to retry beside those of the lookup strategy.

    ``uncertain`` has the keys of requests that were lost after they were sent, so that the broker may have done what
    they asked for. ``destination`` and ``latency_ms``, the time from the request to the response, are those of the
    response that is handled. Thread: that of the call.
    """

    def __init__(
        self,
        name: str,
        lookup: LookupStrategy[K],
        request: Request | RequestBuilder | Callable[[Sequence[K], int], Request | RequestBuilder],
        answers: Callable[[Sequence[K], Any], Answers[K]],
        retried: ErrorTypes = (),
    ) -> None:
        self.name = name
        self.lookup = lookup
        self._request = request
        self._answers = answers
        self._retried = retried
        self.uncertain: set[K] = set()
        self.destination = ANY_BROKER
        self.latency_ms = 0
        #: The attempts for a topic that brokers do not know. A new topic is known to all of them by then.
        self.max_unknown_topic_attempts = 5

    def requests(self, destination: int, keys: Sequence[K], timeout_ms: int) -> list[ApiRequest[K]]:
        """Return the requests for keys of one destination, by default a single one."""
        request = self._request(keys, timeout_ms) if callable(self._request) else self._request
        builder = request if isinstance(request, RequestBuilder) else RequestBuilder(request)
        return [ApiRequest(destination, builder, keys)]

    def handle_response(self, destination: int, keys: Sequence[K], response: Any) -> ApiResult[K, V]:
        """Return the results for the keys of a request from its response."""
        self.destination = destination
        result: ApiResult[K, V] = ApiResult()
        asked = set(keys)
        try:
            if hasattr(response, "error_code"):
                checked(response)
            for key, error, value in self._answers(keys, response):
                if key in asked:  # a broker may add what it was not asked for
                    self.add(result, key, error, value)
        except KafkaError as error:
            for key in keys:
                self.add(result, key, error, None)
            if result.failed:
                result.error_of_all = error
        return result

    def add(self, result: ApiResult[K, V], key: K, error: KafkaError | None, value: Any) -> None:
        """Add the answer for one key to ``result``."""
        lookup = self.lookup
        if error is None:
            result.completed[key] = value
        elif isinstance(error, lookup.UNMAPPING):
            result.unmapped[key] = error
        elif isinstance(error, (*lookup.RETRIED, *self._retried)):
            if isinstance(error, errors.RequestTimedOutError):
                self.uncertain.add(key)
            result.retry[key] = error
        else:
            result.failed[key] = self._about(key, error)

    def _about(self, key: K, error: KafkaError) -> KafkaError:
        """Return the error of a key. Where the broker gave only a code, the text names the call and the key."""
        kind = type(error)
        if key is None or not isinstance(error, errors.BrokerError) or str(error) != str(kind()):
            return error
        if isinstance(error, errors.AuthorizationError):
            return error  # the call explains these
        shown = repr(key) if isinstance(key, str) else str(key)
        return kind(f"{self.name} of {shown}: {error}")

    def handle_unsupported_version(self, keys: Sequence[K], error: KafkaError) -> ApiResult[K, V]:
        """Return the results for a broker without a version that can carry the request: by default, all keys fail."""
        return ApiResult.all_failed(keys, error)


class VersionedBuilder(RequestBuilder):
    """Builds a request by a function of the version that client and broker support.

    The function raises UnsupportedVersionError where the broker would misunderstand the request.
    """

    def __init__(self, message: Request, of_version: Callable[[int], Request], min_version: int | None = None) -> None:
        super().__init__(message, min_version)
        self._of_version = of_version

    def build(self, version: int) -> Request:
        return self._of_version(version)


def item_error(item: Any) -> KafkaError | None:
    """Return the error of an item in a response with its message, if it has one; None if it succeeded."""
    return errors.for_code(item.error_code, getattr(item, "error_message", None) or None)


def checked(item: Any) -> None:
    """Raise the error of an item in a response, if it has failed.

    Raises:
        KafkaError: its error.
    """
    if (error := item_error(item)) is not None:
        raise error


def whole(response: Any) -> Any:
    """Return a response as it is."""
    return response


def nothing(_response: Any) -> None:
    """Return the result of a call that only succeeds or fails."""


def for_all(read: Callable[[Any], V]) -> Callable[[Sequence[K], Any], Answers[K]]:
    """Return the answers of a response that says the same about all of its keys: what ``read`` makes of it."""

    def answers(keys: Sequence[K], response: Any) -> Answers[K]:
        value = read(response)
        return [(key, None, value) for key in keys]

    return answers


#: A coordinator is being elected, or loads what it coordinates.
LOADING: Final[ErrorTypes] = (errors.CoordinatorLoadInProgressError, errors.CoordinatorNotAvailableError)
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
                _add(result, key, item_error(response), response.node_id)
            return result
        found = {coordinator.key: coordinator for coordinator in response.coordinators}
        for key in keys:
            coordinator = found.get(self._name_of(key))
            if coordinator is not None:
                _add(result, key, item_error(coordinator), coordinator.node_id)
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
            error = item_error(topic)
            leader = -1
            if error is None:
                error = errors.UnknownTopicOrPartitionError(f"topic {tp.topic!r} has no partition {tp.partition}")
                for partition in topic.partitions:
                    if partition.partition_index == tp.partition:
                        leader, error = partition.leader_id, item_error(partition)
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
