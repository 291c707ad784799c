"""All messages of the package, for tests that go through every one."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from random import Random
from typing import Any
from uuid import UUID

from pykclient.errors import LocalProtocolError, UnsupportedVersionError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import ZERO_UUID, DataMessage, Message, Request, Response
from pykclient.protocol.wire import Writer

AnyMessage = type[Request] | type[Response] | type[DataMessage]

DATA_MESSAGES = [
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "ControlRecordTypeSchema",
    "EndTxnMarker",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "TransactionLogKey",
    "TransactionLogValue",
]


def snake(name: str) -> str:
    """Return ``topic_data`` for ``topicData`` or ``TopicData``."""
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def all_messages() -> dict[str, AnyMessage]:
    """Return the classes by name: requests, responses and data messages."""
    classes: list[AnyMessage] = []
    for key in ApiKeys.all():
        classes += [ApiKeys.message_class(key), ApiKeys.message_class(key, request=False)]
    for name in DATA_MESSAGES:
        classes.append(getattr(import_module(f"pykclient.protocol.messages.{snake(name)}"), name))
    return {cls.__name__: cls for cls in classes}


def all_versions() -> list[tuple[AnyMessage, int]]:
    """Return every message in every version that can be written, including dropped and unstable ones."""
    found: list[tuple[AnyMessage, int]] = []
    for cls in all_messages().values():
        oldest, latest = cls.VERSIONS
        api_key = getattr(cls, "API_KEY", None)
        if api_key is not None:
            oldest = ApiKeys.oldest_served_version(api_key)
            latest = ApiKeys.latest_version(api_key, enable_unstable=True)
        found += [(cls, version) for version in range(oldest, latest + 1)]
    return found


TEXTS = ["", "a", "topic-1", "größe", "日本語", "😀 and 𝄞", "tab\tnul\0", "x" * 200]
PLAIN: dict[str, list[Any]] = {
    "bool": [False, True],
    "int": [0, 1, -1, 77, 127],
    "float": [0.0, -1.5],
    "str": TEXTS,
    "bytes": [b"", b"\0", b"b" * 300],
    "BytesLike": [b"", b"r" * 100, b"s" * 5000, bytearray(b"t" * 2000)],
    "UUID": [ZERO_UUID, UUID(int=7 << 100)],
}


class FieldType:
    """The type of a field, taken from the annotation of its parameter."""

    def __init__(self, annotation: str, top: type[Message]) -> None:
        self.optional = annotation.endswith(" | None")
        kind = annotation.removesuffix(" | None")
        self.is_array = kind.startswith("Iterable[")
        kind = kind.removeprefix("Iterable[").removesuffix("]")
        self.plain = PLAIN.get(kind)
        self.struct: type[Message] | None = None if self.plain else getattr(top, kind.split(".")[1])


_field_types: dict[type[Message], dict[str, FieldType]] = {}


def field_types(cls: type[Message], top: type[Message]) -> dict[str, FieldType]:
    """Return the fields of ``cls``, which is the message ``top`` or a struct in it."""
    if cls not in _field_types:
        parameters = inspect.signature(cls).parameters.values()
        _field_types[cls] = {parameter.name: FieldType(parameter.annotation, top) for parameter in parameters}
    return _field_types[cls]


def random_message(cls: type[Message], top: type[Message], version: int, random: Random) -> Message:
    """Return a message, or a struct in the message ``top``, with random content that ``version`` supports."""
    message = cls()
    for name, kind in field_types(cls, top).items():
        default = getattr(message, name)
        setattr(message, name, _random_value(kind, default, top, version, random))
        if not _can_be_written(message, version):
            setattr(message, name, default)
    return message


def _random_value(kind: FieldType, default: Any, top: type[Message], version: int, random: Random) -> Any:
    if random.random() < 0.2:
        return None if kind.optional and kind.struct is None else default

    def element() -> Any:
        if kind.struct is not None:
            return random_message(kind.struct, top, version, random)
        return random.choice(kind.plain or [])

    return [element() for _ in range(random.randrange(3))] if kind.is_array else element()


def _can_be_written(message: Message, version: int) -> bool:
    try:
        message.write(Writer(), version)
    except (LocalProtocolError, UnsupportedVersionError):
        return False
    return True


def written(message: Message, version: int) -> bytes:
    writer = Writer()
    message.write(writer, version)
    assert writer.size == len(writer.getvalue()) == sum(map(len, writer.buffers()))
    return writer.getvalue()
