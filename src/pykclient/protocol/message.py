"""What all messages have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from pykclient.errors import LocalProtocolError, UnsupportedVersionError
from pykclient.protocol.api_table import NEVER_FLEXIBLE
from pykclient.protocol.wire import ZERO_UUID, Reader, Tags, Writer

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "NEVER_FLEXIBLE",
    "ZERO_UUID",
    "DataMessage",
    "Message",
    "Request",
    "Response",
    "not_null",
    "unsupported_field",
    "unsupported_version",
]

T = TypeVar("T")

_MAX_SHOWN_ELEMENTS = 10


class Message:  # noqa: PLW1641  # no __hash__: messages can be changed
    """A message of the protocol, or a struct inside of one. Equal if the class and all fields are.

    ``unknown_tags`` are the tagged fields that a newer peer sent and this side does not know; they are written back.

    Thread: owner
    """

    __slots__ = ("unknown_tags",)

    SECRETS: ClassVar[tuple[str, ...]] = ()
    """Fields that ``repr`` must not show."""

    unknown_tags: Tags | None

    def write(self, w: Writer, version: int) -> None:
        """Append this message as ``version`` has it.

        Raises UnsupportedVersionError if a field is set that the version lacks and that the receiver may not miss,
        LocalProtocolError if a value does not fit its field.
        """
        raise NotImplementedError

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        """Take a message of ``version``; fields that the version lacks get their defaults.

        Raises RemoteProtocolError, or UnsupportedVersionError if there is no such version.
        """
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        for name in self.__slots__:
            if getattr(self, name) != getattr(other, name):
                return False
        return self.unknown_tags == other.unknown_tags

    def __repr__(self) -> str:
        """All fields, except that bytes are only counted, secrets hidden and long arrays cut: fit for a log."""
        fields = [
            f"{name}=<hidden>" if name in self.SECRETS else f"{name}={_shown(getattr(self, name))}"
            for name in self.__slots__
        ]
        if self.unknown_tags:
            fields.append(f"unknown_tags={sorted(self.unknown_tags)}")
        return f"{type(self).__name__}({', '.join(fields)})"


class DataMessage(Message):
    """What is not sent by itself but inside the bytes of another message, or in a record."""

    __slots__ = ()

    VERSIONS: ClassVar[tuple[int, int]]


class Request(Message):
    """What a client sends: the base of all requests."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int]


class Response(Message):
    """What a broker answers: the base of all responses."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int]


def _shown(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if isinstance(value, list):
        shown = [_shown(element) for element in value[:_MAX_SHOWN_ELEMENTS]]
        if len(value) > _MAX_SHOWN_ELEMENTS:
            shown.append(f"... {len(value)} in all")
        return f"[{', '.join(shown)}]"
    return repr(value)


def not_null(value: T | None, field: str) -> T:
    """``value``, for a version in which the field may not be null. Raises LocalProtocolError if it is."""
    if value is None:
        raise LocalProtocolError(f"{field} may not be null in this version")
    return value


def unsupported_field(message: Message, field: str, version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{type(message).__qualname__}.{field} is set, and version {version} does not have it"
    )


def unsupported_version(message: type[Message], version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(f"{message.__qualname__} has no version {version}")
