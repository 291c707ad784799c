"""The APIs that brokers serve. Each is a function; those of one subject share a module. All load on first use.

``serves`` registers the function that handles an API, with the versions that it serves. The function answers the
request, now or later; a BrokerError that it raises becomes the response.

- ``cluster_metadata``, ``configs``, ``topics``, ``security``: the cluster and its administration
- ``records``, ``transactions``: producing, fetching and transactions
- ``groups``, ``group_offsets``, ``share_groups``: groups and share groups
- ``brokers``: requests among brokers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from sys import modules
from typing import Any, Final, NamedTuple, TypeVar

from pykclient.errors import BrokerError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import Message, Response
from pykclient.testing.broker import Broker
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.inter_broker_requests import grouped
from pykclient.testing.release_profiles import ReleaseProfile
from pykclient.testing.request_channel import Request
from pykclient.testing.share.persister import Gathered

_Handle = Callable[["Broker", "Request", Any], None]
#: Makes a response that contains an error code and message wherever it can, or None if the request gets no response.
_ErrorResponse = Callable[[Any, int, "str | None"], "Response | None"]

_MODULES: Final = (
    "brokers",
    "cluster_metadata",
    "configs",
    "group_offsets",
    "groups",
    "records",
    "security",
    "share_groups",
    "topics",
    "transactions",
)


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
    everywhere: bool = False,
    **values: Any,
) -> Callable[[_Handle], _Handle]:
    """Register the function as the handler of an API.

    ``error_response`` makes its responses that contain only an error, with ``everywhere`` and ``values``; or ``refuse``
    does, if that cannot.
    """

    def register(handle: _Handle) -> _Handle:
        response_class = ApiKeys.message_class(api_key, request=False)
        error = refuse or partial(error_response, response_class, everywhere=everywhere, **values)
        _handlers[api_key] = Handler(api_key, versions, handle, error, is_broker_only, unstable_version)
        return handle

    return register


def handler(api_key: int) -> Handler | None:
    """Return the handler of the API, or None if there is none."""
    _import_all()
    return _handlers.get(api_key)


@cache
def _import_all() -> None:
    for module in _MODULES:
        import_module(f"{__name__}.{module}")


# --- answers to several items ----------------------------------------------------------------------------------------

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def answer_each(
    items: Sequence[_Item],
    start: Callable[[_Item, Callable[[_Answer], None]], None],
    respond: Callable[[list[_Answer]], None],
) -> None:
    """Start the answer to each item of a request, and respond with all, in the order of the items, when all are there.

    ``start`` gets an item, and the callback for the answer to it.
    """
    gathered: Gathered[int, _Answer] = Gathered(range(len(items)), lambda answers: respond(list(answers.values())))
    for index, item in enumerate(items):
        start(item, partial(gathered.add, index))


# --- versions ---------------------------------------------------------------------------------------------------------


class ApiVersionManager:
    """The versions that the handlers declare; for clients limited to those of the imitated release.

    ``has_unstable`` adds versions that Kafka has not declared stable to the current release. Brokers always use
    the handlers' versions among themselves. Thread: loop.
    """

    def __init__(self, profile: ReleaseProfile, has_unstable: bool = False) -> None:
        self._profile = profile
        self._has_unstable = has_unstable and profile.release == ReleaseProfile.CURRENT
        self._versions: dict[tuple[int, bool], tuple[int, int] | None] = {}

    @staticmethod
    def of(broker: BrokerContext) -> ApiVersionManager:
        """Return the versions of a broker."""
        return _version_manager(broker.profile, bool(broker.config["unstable.api.versions.enable"]))

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
        return {key: versions for key in ApiKeys.all() if (versions := self.versions(key)) is not None}


@cache
def _version_manager(profile: ReleaseProfile, has_unstable: bool) -> ApiVersionManager:
    """Return the versions that are equal for all brokers of a release, and needed for each connection."""
    return ApiVersionManager(profile, has_unstable)


# --- responses that contain only an error ----------------------------------------------------------------------------

#: What a response repeats of the request, and an element of it of the element of the request that it answers.
_REPEATED_AT_TOP: Final = ("allow_replication_factor_change", "session_id")
_REPEATED: Final = (
    *("group_id", "name", "producer_id", "topic", "topic_id", "topic_name", "resource_name", "resource_type"),
    *("index", "partition", "partition_index"),
)
_ERROR: Final = ("error_code", "error_message")
_ARRAY_OF_MESSAGES: Final = re.compile(r"Iterable\[(\w+(?:\.\w+)+)\]")


def error_response(
    response_class: Any,
    asked: Any,
    code: int,
    message: str | None = None,
    *,
    everywhere: bool = False,
    **values: object,
) -> Any:
    """Return a response with only an error, in the fields of its schema.

    The error is at the top if there is a field for it. Otherwise, or with ``everywhere``, each element of the request's
    array (topic, partition, group) is answered with it. ``values`` are those of other fields, wherever they are.
    ``asked`` is the request or, further down, an element of it.
    """
    slots = response_class.__slots__
    fields: dict[str, Any] = {"error_code": code, "error_message": message}
    if isinstance(asked, Message) and "." not in asked.__class__.__qualname__:
        fields.update({name: getattr(asked, name) for name in _REPEATED_AT_TOP if hasattr(asked, name)})
    else:
        fields.update(_repeated(response_class, asked))
    array = _array_with_error(response_class) if everywhere or "error_code" not in slots else None
    if array is not None:
        fields[array.name] = [
            error_response(array.element_class, element, code, message, everywhere=everywhere, **values)
            for element in _elements(asked)
        ]
    fields.update(values)
    return response_class(**{name: value for name, value in fields.items() if name in slots})


def answer_partitions(
    request: Request, body: Any, answer: Callable[[Any, Any], Mapping[str, object]], **values: object
) -> None:
    """Respond with an answer for each partition of each topic in a request, in the request's order.

    ``answer`` gets a topic and a partition of the request, and returns the fields of the answer, without the names. A
    BrokerError that it raises becomes the partition's error, with other fields from ``values``.
    """
    response_class: Any = ApiKeys.message_class(body.API_KEY, request=False)
    topics_array = _array_with_error(response_class)
    assert topics_array is not None
    partitions_array = _array_with_error(topics_array.element_class)
    assert partitions_array is not None
    partition_class = partitions_array.element_class
    topics = []
    for topic in body.topics:
        partitions = []
        for partition in _elements(topic):
            fields = _repeated(partition_class, partition)
            try:
                fields.update(answer(topic, partition))
            except BrokerError as error:
                fields.update(values, error_code=error.code)
                if "error_message" in partition_class.__slots__:
                    fields["error_message"] = str(error)
            partitions.append(partition_class(**fields))
        names = _repeated(topics_array.element_class, topic)
        topics.append(topics_array.element_class(**names, **{partitions_array.name: partitions}))
    request.respond(response_class(**{topics_array.name: topics}))


def by_topic(topic_class: Any, results: Iterable[tuple[Any, Any]], topic: str = "name") -> list[Any]:
    """Return the topics of a response, each with the results of its partitions. ``topic`` is the field of its name."""
    return [topic_class(**{topic: name, "partitions": found}) for name, found in grouped(results).items()]


def _repeated(element_class: type[Message], asked: Any) -> dict[str, Any]:
    """Return the names and numbers by which an element of a response answers an element of the request."""
    slots = element_class.__slots__
    if not isinstance(asked, Message):  # an array of names or numbers
        return {next(name for name in slots if name not in (*_ERROR, "throttle_time_ms")): asked}
    found: dict[str, Any] = {
        name: value for name in _REPEATED if name in slots and (value := getattr(asked, name, None)) is not None
    }
    if "partition_index" in slots and hasattr(asked, "partition"):
        found["partition_index"] = asked.partition
    return found


def _elements(asked: Any) -> list[Any]:
    """Return the first array of a request, or of an element of it; an empty list without any."""
    return next((value for name in asked.__slots__ if isinstance(value := getattr(asked, name), list)), [])


class _Array(NamedTuple):
    """A field of messages, and their class."""

    name: str
    element_class: Any


@cache
def _array_with_error(response_class: Any) -> _Array | None:
    """Return the first array whose elements, or what is in them, have a field for an error; None without any."""
    for name, annotation in response_class.__init__.__annotations__.items():
        found = _ARRAY_OF_MESSAGES.match(annotation)
        if found is None:
            continue
        element: Any = modules[response_class.__module__]
        for part in found[1].split("."):
            element = getattr(element, part)
        if "error_code" in element.__slots__ or any("Iterable" in text for text in _annotations(element)):
            return _Array(name, element)
    return None


def _annotations(message_class: type[Message]) -> list[str]:
    return list(message_class.__init__.__annotations__.values())
