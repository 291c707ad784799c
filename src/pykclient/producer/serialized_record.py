"""Serializing a record's key and value, and checking their size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient.caused_errors import caused_by, innermost
from pykclient.errors import RecordTooLargeError, SerializationError
from pykclient.record.record_batch import CURRENT_MAGIC_VALUE, estimate_size_in_bytes_upper_bound
from pykclient.serialization import BYTES, CallableSerializer, Serde, Serializer, definition_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.record import Compression
    from pykclient.types import Headers


def serialize(
    serializer: Serializer[Any], what: str, topic: str, headers: Headers | None, data: object
) -> bytes | None:
    """Return the bytes of a record's key or value; ``what`` is "key" or "value".

    Raises:
        SerializationError: the serializer failed, or did not return bytes. If it failed, the error is also of the class
            that it raised.
    """
    try:
        serialized = call_serializer(serializer, topic, headers, data)
    except Exception as error:
        failure = serialization_failed(serializer, what, topic, data, error)
        if failure is error:
            raise
        raise failure from error
    return checked_serialized(serializer, what, topic, serialized)


def call_serializer(serializer: Serializer[Any], topic: str, headers: Headers | None, data: object) -> Any:
    """Return what the serializer returns, unchecked."""
    if type(serializer) is CallableSerializer:
        return serializer.function(data)
    return serializer.serialize(topic, headers or (), data)


def serialization_failed(
    serializer: Serializer[Any], what: str, topic: str, data: object, error: Exception
) -> SerializationError:
    """Return the error to raise after ``error`` of a serializer; it is also of the class of ``error``."""
    if isinstance(error, SerializationError) and not isinstance(serializer, Serde):
        return error  # already an error of the application
    if serializer is BYTES:
        text = f"is {_with_article(type(data).__name__)}, and there is no {what}_serializer; {_advice(data)}"
    else:
        said = str(error) if isinstance(error, SerializationError) else f"{type(error).__name__}: {error}"
        text = f"cannot be serialized by {definition_of(serializer.serialize)}: {said}"
    failure = SerializationError(f"the {what} of a record for topic {topic!r} {text}")
    return caused_by(failure, innermost(error))


def checked_serialized(serializer: Serializer[Any], what: str, topic: str, serialized: Any) -> bytes | None:
    """Return a serializer's result as bytes or None.

    Raises:
        SerializationError: it is neither bytes-like nor None.
    """
    if serialized is None or type(serialized) is bytes:
        return serialized
    if isinstance(serialized, (bytes, bytearray, memoryview)):
        return bytes(serialized)
    raise SerializationError(
        f"the {what}_serializer {definition_of(serializer.serialize)} returned {type(serialized).__name__} instead of "
        f"bytes for a record for topic {topic!r}"
    )


def _with_article(name: str) -> str:
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


def _advice(data: object) -> str:
    """Return what to do about a key or value that is not bytes."""
    if isinstance(data, (dict, list, tuple, float)):
        return "set it, for instance to 'pykclient.serialization.JsonSerializer'"
    if isinstance(data, str):
        return "set it to 'pykclient.serialization.StringSerializer', or encode() the text"
    return "set it to a function that returns bytes"


def ensure_valid_record_size(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    compression: Compression,
    config: Mapping[str, Any],
) -> None:
    """Check that a record fits into a request and into the buffer.

    Raises:
        RecordTooLargeError: it does not fit, even alone in its batch.
    """
    size = estimate_size_in_bytes_upper_bound(CURRENT_MAGIC_VALUE, compression, key, value, headers)
    for name in ("max.request.size", "buffer.memory"):
        if size > config[name]:
            raise RecordTooLargeError(
                f"a record for topic {topic!r} takes {size} bytes when serialized, more than {name} = {config[name]} "
                "allows"
            )
