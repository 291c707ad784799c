"""The APIs of the protocol: keys, names and versions, and the classes of their messages."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.api_table import API_TABLE, BROKER_APIS, NEVER_FLEXIBLE, ApiConstants

if TYPE_CHECKING:
    from pykclient.protocol.message import Request, Response

__all__ = ["NEVER_FLEXIBLE", "ApiKeys"]

_classes: dict[tuple[int, bool], Any] = {}


def _upper_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


class ApiKeys(ApiConstants):
    """The keys of the APIs (Java: ApiKeys).

    ``ApiKeys.PRODUCE`` and the others are plain ints; the methods take any int. A message's module is imported when its
    class is first requested.
    """

    @staticmethod
    def all() -> list[int]:
        """Return the keys of all APIs for which this package has messages."""
        return list(API_TABLE)

    @staticmethod
    def client_apis() -> list[int]:
        """Return the keys of the APIs that clients use."""
        return [key for key in API_TABLE if key not in BROKER_APIS]

    @staticmethod
    def is_broker_only(key: int) -> bool:
        """Return whether only brokers and controllers use the API. ApiVersions responses do not list it."""
        return key in BROKER_APIS

    @staticmethod
    def is_known(key: int) -> bool:
        return key in API_TABLE

    @staticmethod
    def name_of(key: int) -> str:
        """Return Kafka's name in capitals, such as ``INIT_PRODUCER_ID``.

        An API without messages is ``UNKNOWN(99)``.
        """
        row = API_TABLE.get(key)
        return _upper_snake(row[0]) if row else f"UNKNOWN({key})"

    @staticmethod
    def oldest_version(key: int) -> int:
        """Return the oldest version that clients use."""
        return _row(key)[1]

    @staticmethod
    def oldest_served_version(key: int) -> int:
        """Return the oldest version with messages, which brokers can serve to old clients."""
        return _row(key)[5]

    @staticmethod
    def latest_version(key: int, enable_unstable: bool = False) -> int:
        """Return the newest version.

        A version that Kafka has not declared stable counts only with ``enable_unstable``.
        """
        return _row(key)[2] if enable_unstable else _row(key)[3]

    @staticmethod
    def versions(key: int) -> tuple[int, int]:
        """Return the oldest and the newest stable version that clients use."""
        try:
            row = API_TABLE[key]
        except KeyError:
            raise _unknown(key) from None
        return row[1], row[3]

    @staticmethod
    def is_flexible(key: int, version: int) -> bool:
        """Return whether this version of the API has tagged fields, in its messages and their headers (KIP-482)."""
        try:
            return version >= API_TABLE[key][4]
        except KeyError:
            raise _unknown(key) from None

    @overload
    @staticmethod
    def message_class(key: int, request: Literal[True] = True) -> type[Request]: ...

    @overload
    @staticmethod
    def message_class(key: int, request: Literal[False]) -> type[Response]: ...

    @staticmethod
    def message_class(key: int, request: bool = True) -> type[Request] | type[Response]:
        """Return the class of the API's request or response."""
        found = _classes.get((key, request))
        if found is None:
            name = _row(key)[0]
            module = import_module(f"pykclient.protocol.messages.{_upper_snake(name).lower()}")
            found = _classes[key, request] = getattr(module, f"{name}{'Request' if request else 'Response'}")
        return found  # type: ignore[no-any-return]


def _row(key: int) -> tuple[str, int, int, int, int, int]:
    try:
        return API_TABLE[key]
    except KeyError:
        raise _unknown(key) from None


def _unknown(key: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(f"there are no messages for the API with key {key}")
