"""The base classes of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pykclient.errors import LocalProtocolError, UnsupportedVersionError
from pykclient.protocol.api_table import NEVER_FLEXIBLE as NEVER_FLEXIBLE
from pykclient.protocol.wire import ZERO_UUID as ZERO_UUID, Reader, Tags, Writer

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")

_MAX_SHOWN_ELEMENTS = 10


class Message:  # noqa: PLW1641  # no __hash__: messages can be changed
    """A message of the protocol, or a struct inside one. Messages are equal if their classes and all fields are.

    ``unknown_tags`` are tagged fields from a newer peer that this side does not know; they are written back.

    Thread: owner
    """

    __slots__ = ("unknown_tags",)

    SECRETS: ClassVar[tuple[str, ...]] = ()
    """Fields that ``repr`` must not show."""

    unknown_tags: Tags | None

    def write(self, w: Writer, version: int) -> None:
        """Append this message in ``version``.

        Raises:
            UnsupportedVersionError: a field is set that the version lacks and the receiver must not miss.
            LocalProtocolError: a value does not fit its field.
        """
        raise NotImplementedError

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        """Read a message of ``version``. Fields that the version lacks get their defaults.

        Raises:
            RemoteProtocolError: the bytes are not such a message.
            UnsupportedVersionError: there is no such version.
        """
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        for name in self.__slots__:
            if getattr(self, name) != getattr(other, name):
                return False
        return self.unknown_tags == other.unknown_tags

    def __getitem__(self, place: int) -> Any:
        """Return a field by its place in the schema, as messages of kafka-python do.

        Raises:
            IndexError: there are not so many fields.
        """
        return getattr(self, self.__slots__[place])

    def __repr__(self) -> str:
        """Return all fields in a form that is safe to log: bytes are counted, secrets hidden, long arrays cut."""
        fields = [
            f"{name}=<hidden>" if name in self.SECRETS else f"{name}={_shown(getattr(self, name))}"
            for name in self.__slots__
        ]
        if self.unknown_tags:
            fields.append(f"unknown_tags={sorted(self.unknown_tags)}")
        return f"{type(self).__name__}({', '.join(fields)})"


class DataMessage(Message):
    """A message inside the bytes of another message, or in a record."""

    __slots__ = ()

    VERSIONS: ClassVar[tuple[int, int]]


class Request(Message):
    """The base class of requests."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int]


class Response(Message):
    """The base class of responses."""

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
    """Return ``value``, for a version in which the field must not be null.

    Raises:
        LocalProtocolError: it is null.
    """
    if value is None:
        raise LocalProtocolError(f"{field} may not be null in this version")
    return value


def unsupported_field(message: Message, field: str, version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{type(message).__qualname__}.{field} is set, and version {version} does not have it"
    )


def unsupported_version(message: type[Message], version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(f"{message.__qualname__} has no version {version}")
