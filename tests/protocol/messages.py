"""Every message of the package, for tests that go through all of them."""

from __future__ import annotations

import re
from importlib import import_module

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.message import DataMessage, Request, Response

AnyMessage = type[Request] | type[Response] | type[DataMessage]

DATA_MESSAGES = [
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "ControlRecordTypeSchema",
    "EndTxnMarker",
]


def snake(name: str) -> str:
    """``topicData`` or ``TopicData`` becomes ``topic_data``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def all_messages() -> dict[str, AnyMessage]:
    """The classes by name: requests, responses and data messages."""
    classes: list[AnyMessage] = []
    for key in ApiKeys.all():
        classes += [ApiKeys.message_class(key), ApiKeys.message_class(key, request=False)]
    for name in DATA_MESSAGES:
        classes.append(getattr(import_module(f"pykclient.protocol.messages.{snake(name)}"), name))
    return {cls.__name__: cls for cls in classes}


def all_versions() -> list[tuple[AnyMessage, int]]:
    """Every message in every version that it can be written in, unstable ones included."""
    found: list[tuple[AnyMessage, int]] = []
    for cls in all_messages().values():
        oldest, latest = cls.VERSIONS
        api_key = getattr(cls, "API_KEY", None)
        if api_key is not None:
            latest = ApiKeys.latest_version(api_key, enable_unstable=True)
        found += [(cls, version) for version in range(oldest, latest + 1)]
    return found
