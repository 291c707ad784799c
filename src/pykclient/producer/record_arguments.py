"""The arguments of ``send``: checked, and serialized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient.argument_values import check_callable, shown, whole_number
from pykclient.caused_errors import caused_by, innermost
from pykclient.errors import IllegalArgumentError, RecordTooLargeError, SerializationError
from pykclient.record.record_batch import CURRENT_MAGIC_VALUE, MAX_INT32, MAX_INT64, estimate_size_in_bytes_upper_bound
from pykclient.serialization import BYTES, CallableSerializer, Serde, Serializer, definition_of
from pykclient.types import Header, Headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.record import Compression
    from pykclient.types import Headers


def checked_topic(topic: object) -> str:
    """Return a topic's name as a plain ``str``, even if it is an instance of a subclass such as an enum.

    Raises:
        IllegalArgumentError: it is not a ``str``.
    """
    if not isinstance(topic, str):
        raise IllegalArgumentError(f"topic is {shown(topic)}; a topic is a str, its name")
    return str.__str__(topic)


def checked_partition(partition: object) -> int:
    """Return a partition number.

    Raises:
        IllegalArgumentError: it is not an integer, is negative, or does not fit 32 bits.
    """
    try:
        number = whole_number(partition)
    except TypeError:
        raise IllegalArgumentError(
            f"partition is {shown(partition)}; it must be a whole number, or None for the partitioner to choose"
        ) from None
    if not 0 <= number <= MAX_INT32:
        raise IllegalArgumentError(
            f"partition = {shown(number)}: a partition must not be negative, nor over {MAX_INT32}"
        )
    return number


def checked_choice(chosen: object, partitioner: object, topic: str, count: int) -> int:
    """Return the partition number that a partitioner of the application chose.

    Raises:
        IllegalArgumentError: it is not one of the topic's ``count`` partitions.
    """
    try:
        number = whole_number(chosen)
    except TypeError:
        raise IllegalArgumentError(
            f"{type(partitioner).__name__} chose {shown(chosen)} for topic {topic!r}; "
            "a partitioner returns the number of a partition, or None for the built-in choice"
        ) from None
    if not 0 <= number < count:
        raise IllegalArgumentError(
            f"{type(partitioner).__name__} chose partition {shown(number)} of topic {topic!r}, which has {count}"
        )
    return number


def checked_timestamp(timestamp_ms: object, name: str = "timestamp_ms") -> int:
    """Return a timestamp in milliseconds since the epoch.

    Raises:
        IllegalArgumentError: it is not an integer, is negative, or does not fit 64 bits.
    """
    try:
        number = whole_number(timestamp_ms)
    except TypeError:
        raise IllegalArgumentError(
            f"{name} is {shown(timestamp_ms)}; it must be a whole number of milliseconds since 1970, or None for now"
        ) from None
    if not 0 <= number <= MAX_INT64:
        raise IllegalArgumentError(f"{name} = {shown(number)}: a timestamp must not be negative, nor have over 64 bits")
    return number


def checked_headers(headers: object) -> list[Header]:
    """Return a record's headers as a new list, which is empty for None.

    Raises:
        IllegalArgumentError: they are not pairs of a name and bytes or None, or a name cannot be encoded in UTF-8.
    """
    if headers is None:
        return []
    if isinstance(headers, (str, bytes, bytearray, memoryview)):
        raise IllegalArgumentError(f"headers is {shown(headers)}; it must be a list of pairs of a name and bytes")
    try:
        pairs = [(name, value) for name, value in headers]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise IllegalArgumentError("headers must be a list of pairs of a name and bytes or None") from None
    checked: list[Header] = []
    for name, value in pairs:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise IllegalArgumentError(
                f"a header must be a str and bytes or None, but is {type(name).__name__} and {type(value).__name__}"
            )
        plain = str.__str__(name)
        try:
            plain.encode()
        except UnicodeEncodeError:
            raise IllegalArgumentError(f"the name of a header cannot be encoded in UTF-8: {plain!r}") from None
        checked.append((plain, value))
    return checked


def checked_fields(
    topic: object, headers: object, partition: object, timestamp_ms: object, on_delivery: object
) -> tuple[str, Headers, int | None, int | None]:
    """Return a record's topic, headers, partition and timestamp, after checking these and ``on_delivery``.

    Raises:
        IllegalArgumentError: one of them has the wrong type or value.
    """
    if on_delivery is not None:
        check_callable(on_delivery, "on_delivery")
    return (
        checked_topic(topic),
        checked_headers(headers),
        None if partition is None else checked_partition(partition),
        None if timestamp_ms is None else checked_timestamp(timestamp_ms),
    )


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
    return serializer.serialize(topic, () if headers is None else headers, data)


def serialization_failed(
    serializer: Serializer[Any], what: str, topic: str, data: object, error: Exception
) -> SerializationError:
    """Return the error to raise after a serializer's ``error``; it is an instance of that class, too."""
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
