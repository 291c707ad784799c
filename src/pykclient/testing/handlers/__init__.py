"""The APIs that brokers serve. Each is a function; those of one subject share a module, which is loaded on first use.

``serves`` registers the function that handles an API, with the versions that it serves. The function answers the
request, now or later; a BrokerError that it raises becomes the response.

- ``cluster_metadata``, ``configs``, ``topics``, ``security``: the cluster and its administration
- ``records``, ``transactions``: producing, fetching and transactions
- ``groups``, ``group_offsets``, ``share_groups``: groups and share groups
- ``brokers``: requests among brokers
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import Message
from pykclient.testing.release_profiles import ReleaseProfile

if TYPE_CHECKING:
    from pykclient.protocol.message import Response
    from pykclient.testing.broker import Broker
    from pykclient.testing.broker_context import BrokerContext
    from pykclient.testing.request_channel import Request

_Handle = Callable[["Broker", "Request"], None]
#: Makes a response that contains an error code and message wherever it can, or None if the request gets no response.
_ErrorResponse = Callable[[Any, int, "str | None"], "Response | None"]

_HOMES: Final = {
    "records": (
        ApiKeys.PRODUCE,
        ApiKeys.FETCH,
        ApiKeys.LIST_OFFSETS,
        ApiKeys.OFFSET_FOR_LEADER_EPOCH,
        ApiKeys.DELETE_RECORDS,
        ApiKeys.DESCRIBE_PRODUCERS,
    ),
    "cluster_metadata": (
        ApiKeys.API_VERSIONS,
        ApiKeys.METADATA,
        ApiKeys.DESCRIBE_TOPIC_PARTITIONS,
        ApiKeys.DESCRIBE_CLUSTER,
        ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKeys.PUSH_TELEMETRY,
    ),
    "topics": (
        ApiKeys.CREATE_TOPICS,
        ApiKeys.DELETE_TOPICS,
        ApiKeys.CREATE_PARTITIONS,
        ApiKeys.ALTER_PARTITION_REASSIGNMENTS,
        ApiKeys.LIST_PARTITION_REASSIGNMENTS,
        ApiKeys.ELECT_LEADERS,
        ApiKeys.DESCRIBE_LOG_DIRS,
    ),
    "configs": (
        ApiKeys.DESCRIBE_CONFIGS,
        ApiKeys.ALTER_CONFIGS,
        ApiKeys.INCREMENTAL_ALTER_CONFIGS,
        ApiKeys.LIST_CONFIG_RESOURCES,
        ApiKeys.DESCRIBE_CLIENT_QUOTAS,
        ApiKeys.ALTER_CLIENT_QUOTAS,
    ),
    "security": (
        ApiKeys.SASL_HANDSHAKE,
        ApiKeys.SASL_AUTHENTICATE,
        ApiKeys.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKeys.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKeys.CREATE_DELEGATION_TOKEN,
        ApiKeys.RENEW_DELEGATION_TOKEN,
        ApiKeys.EXPIRE_DELEGATION_TOKEN,
        ApiKeys.DESCRIBE_DELEGATION_TOKEN,
        ApiKeys.DESCRIBE_ACLS,
        ApiKeys.CREATE_ACLS,
        ApiKeys.DELETE_ACLS,
    ),
    "groups": (
        ApiKeys.FIND_COORDINATOR,
        ApiKeys.JOIN_GROUP,
        ApiKeys.SYNC_GROUP,
        ApiKeys.HEARTBEAT,
        ApiKeys.LEAVE_GROUP,
        ApiKeys.CONSUMER_GROUP_HEARTBEAT,
        ApiKeys.DESCRIBE_GROUPS,
        ApiKeys.CONSUMER_GROUP_DESCRIBE,
        ApiKeys.LIST_GROUPS,
        ApiKeys.DELETE_GROUPS,
    ),
    "group_offsets": (ApiKeys.OFFSET_COMMIT, ApiKeys.TXN_OFFSET_COMMIT, ApiKeys.OFFSET_FETCH, ApiKeys.OFFSET_DELETE),
    "share_groups": (
        ApiKeys.SHARE_GROUP_HEARTBEAT,
        ApiKeys.SHARE_GROUP_DESCRIBE,
        ApiKeys.SHARE_FETCH,
        ApiKeys.SHARE_ACKNOWLEDGE,
        ApiKeys.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKeys.ALTER_SHARE_GROUP_OFFSETS,
        ApiKeys.DELETE_SHARE_GROUP_OFFSETS,
    ),
    "transactions": (
        ApiKeys.INIT_PRODUCER_ID,
        ApiKeys.ADD_PARTITIONS_TO_TXN,
        ApiKeys.ADD_OFFSETS_TO_TXN,
        ApiKeys.END_TXN,
        ApiKeys.WRITE_TXN_MARKERS,
        ApiKeys.DESCRIBE_TRANSACTIONS,
        ApiKeys.LIST_TRANSACTIONS,
    ),
    "brokers": (
        ApiKeys.LEADER_AND_ISR,
        ApiKeys.STOP_REPLICA,
        ApiKeys.UPDATE_METADATA,
        ApiKeys.ALTER_PARTITION,
        ApiKeys.CONTROLLED_SHUTDOWN,
        ApiKeys.ALLOCATE_PRODUCER_IDS,
        ApiKeys.INITIALIZE_SHARE_GROUP_STATE,
        ApiKeys.READ_SHARE_GROUP_STATE,
        ApiKeys.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKeys.WRITE_SHARE_GROUP_STATE,
        ApiKeys.DELETE_SHARE_GROUP_STATE,
    ),
}
_HOME_OF: Final = {api_key: home for home, api_keys in _HOMES.items() for api_key in api_keys}


class Handler(NamedTuple):
    """The function that serves an API, and its versions. Thread: loop."""

    api_key: int
    #: The oldest and the newest.
    versions: tuple[int, int]
    handle: _Handle
    error_response: _ErrorResponse
    #: True if the API is only for brokers.
    is_broker_only: bool
    #: A version that clients can use with ``unstable.api.versions.enable``, or None.
    unstable_version: int | None


_handlers: dict[int, Handler] = {}


def serves(
    api_key: int,
    versions: tuple[int, int],
    *,
    is_broker_only: bool = False,
    unstable_version: int | None = None,
    refuse: _ErrorResponse | None = None,
) -> Callable[[_Handle], _Handle]:
    """Register the function as the handler of an API.

    ``refuse`` makes responses that contain only an error, if ``error_response`` cannot.
    """

    def register(handle: _Handle) -> _Handle:
        error = refuse or partial(error_response, ApiKeys.message_class(api_key, request=False))
        _handlers[api_key] = Handler(api_key, versions, handle, error, is_broker_only, unstable_version)
        return handle

    return register


def handler(api_key: int) -> Handler | None:
    """Return the handler of the API, or None if there is none."""
    found = _handlers.get(api_key)
    if found is None and api_key in _HOME_OF:
        import_module(f"{__name__}.{_HOME_OF[api_key]}")
        found = _handlers[api_key]
    return found


# --- versions ---------------------------------------------------------------------------------------------------------

#: Ranges that are equal for all brokers of a release, and needed for each connection.
_all_versions: dict[tuple[str, bool], dict[int, tuple[int, int]]] = {}


class ApiVersionManager:
    """The versions that the handlers declare; for clients limited to those of the imitated release.

    ``has_unstable`` adds versions that Kafka has not declared stable to the current release. Brokers always use
    the handlers' versions among themselves. Thread: loop.
    """

    __slots__ = ("_has_unstable", "_profile", "_versions")

    def __init__(self, profile: ReleaseProfile, has_unstable: bool = False) -> None:
        self._profile = profile
        self._has_unstable = has_unstable and profile.release == ReleaseProfile.CURRENT
        self._versions: dict[tuple[int, bool], tuple[int, int] | None] = {}

    @classmethod
    def of(cls, broker: BrokerContext) -> ApiVersionManager:
        """Return the versions of a broker."""
        return cls(broker.profile, bool(broker.config["unstable.api.versions.enable"]))

    def versions(self, api_key: int, is_broker: bool = False) -> tuple[int, int] | None:
        """Return the oldest and newest supported version of an API, or None."""
        try:
            return self._versions[api_key, is_broker]
        except KeyError:
            found = self._versions[api_key, is_broker] = self._find(api_key, is_broker)
            return found

    def _find(self, api_key: int, is_broker: bool) -> tuple[int, int] | None:
        api_handler = handler(api_key)
        if api_handler is None or (api_handler.is_broker_only and not is_broker):
            return None
        if is_broker:
            return api_handler.versions
        versions = self._profile.cut(api_key, api_handler.versions)
        unstable = api_handler.unstable_version
        if versions is None or unstable is None or not self._has_unstable:
            return versions
        return versions[0], unstable

    def is_api_enabled(self, api_key: int, version: int, is_broker: bool = False) -> bool:
        """Return whether this version is supported."""
        versions = self.versions(api_key, is_broker)
        return versions is not None and versions[0] <= version <= versions[1]

    def all_versions(self) -> dict[int, tuple[int, int]]:
        """Return the versions of all APIs that clients can use."""
        found = _all_versions.get((self._profile.release, self._has_unstable))
        if found is None:
            found = {key: versions for key in ApiKeys.all() if (versions := self.versions(key)) is not None}
            _all_versions[self._profile.release, self._has_unstable] = found
        return dict(found)


# --- responses that contain only an error ----------------------------------------------------------------------------

#: What an element of a response repeats of the element of the request that it answers.
_REPEATED: Final = frozenset(
    {
        *("group_id", "name", "topic", "topic_id", "topic_name", "resource_name", "resource_type"),
        *("index", "partition", "partition_index"),
    }
)
_ERROR: Final = ("error_code", "error_message")
_ARRAY_OF_MESSAGES: Final = re.compile(r"Iterable\[(\w+(?:\.\w+)+)\]")


def error_response(response_class: type[Message], asked: Any, code: int, message: str | None = None) -> Any:
    """Return a response with only an error, in the fields of its schema.

    The error is at the top if there is a field for it. Otherwise each element of the request's array (topic, partition,
    group) is answered with it. ``asked`` is the request or, further down, an element of it.
    """
    slots, fields = response_class.__slots__, dict[str, Any]()
    if "error_code" in slots:
        fields.update((name, value) for name, value in zip(_ERROR, (code, message), strict=True) if name in slots)
    if not isinstance(asked, Message):  # an array of names or numbers
        fields[next(name for name in slots if name not in (*_ERROR, "throttle_time_ms"))] = asked
    elif asked.__class__.__qualname__.count("."):
        fields.update((name, getattr(asked, name)) for name in _REPEATED.intersection(slots, asked.__slots__))
    if "error_code" not in slots:
        name, element_class = _array_with_error(response_class)
        arrays = (value for name in asked.__slots__ if isinstance(value := getattr(asked, name), list))
        fields[name] = [error_response(element_class, element, code, message) for element in next(arrays, ())]
    return response_class(**fields)


def _array_with_error(response_class: type[Message]) -> tuple[str, type[Message]]:
    """Return the first array whose elements, or what is in them, have a field for an error."""
    for name, annotation in response_class.__init__.__annotations__.items():
        found = _ARRAY_OF_MESSAGES.match(annotation)
        if found is None:
            continue
        element: Any = modules[response_class.__module__]
        for part in found[1].split("."):
            element = getattr(element, part)
        if "error_code" in element.__slots__ or any("Iterable" in text for text in _annotations(element)):
            return name, element
    raise TypeError(f"{response_class.__qualname__} has no field for an error")


def _annotations(message_class: type[Message]) -> list[str]:
    return list(message_class.__init__.__annotations__.values())
