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
    """``ApiKeys.PRODUCE`` and its like are plain ints; the methods take any int (Java: ApiKeys).

    A message's module is imported when its class is first asked for.
    """

    @staticmethod
    def all() -> list[int]:
        """The keys of all APIs that this package has messages for."""
        return list(API_TABLE)

    @staticmethod
    def client_apis() -> list[int]:
        """The keys of the APIs that clients use."""
        return [key for key in API_TABLE if key not in BROKER_APIS]

    @staticmethod
    def is_broker_only(key: int) -> bool:
        """Whether only brokers and their controller send it. No answer to ApiVersions lists it."""
        return key in BROKER_APIS

    @staticmethod
    def is_known(key: int) -> bool:
        return key in API_TABLE

    @staticmethod
    def name_of(key: int) -> str:
        """Kafka's name in capitals, such as ``INIT_PRODUCER_ID``; ``UNKNOWN(99)`` if there are no messages for it."""
        row = API_TABLE.get(key)
        return _upper_snake(row[0]) if row else f"UNKNOWN({key})"

    @staticmethod
    def oldest_version(key: int) -> int:
        """The oldest version that a client speaks."""
        return _row(key)[1]

    @staticmethod
    def oldest_served_version(key: int) -> int:
        """The oldest version that there are messages for, so that a broker can serve old clients."""
        return _row(key)[5]

    @staticmethod
    def latest_version(key: int, enable_unstable: bool = False) -> int:
        """The newest version. A last version that Kafka has not declared stable counts only if it is asked for."""
        return _row(key)[2] if enable_unstable else _row(key)[3]

    @staticmethod
    def is_version_supported(key: int, version: int) -> bool:
        """Whether a client can speak it."""
        row = API_TABLE.get(key)
        return row is not None and row[1] <= version <= row[2]

    @staticmethod
    def is_flexible(key: int, version: int) -> bool:
        """Whether this version of the API has tagged fields, in its messages and in their headers (KIP-482)."""
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
        """The class of the API's request, or of its response."""
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
