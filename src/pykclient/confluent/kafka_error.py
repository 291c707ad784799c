"""The errors of confluent-kafka's interface, and the translation of this package's errors into them."""

from __future__ import annotations

from functools import total_ordering
from typing import Any

from pykclient import errors
from pykclient.confluent.error_codes import ERRORS, NAMES, TEXTS
from pykclient.serde import KafkaException as KafkaException

#: The error codes as class attributes. They are too many, and too regular, to be written out.
_Codes: Any = type("_Codes", (), {name: code for code, name, _ in ERRORS})


@total_ordering
class KafkaError(_Codes):  # type: ignore[misc]
    """An error or event: a code of librdkafka with a text.

    It equals, and is ordered as, its code: ``error == KafkaError._TIMED_OUT``. It is not an exception; KafkaException
    carries it. It can be pickled.
    """

    __slots__ = ("_code", "_fatal", "_retriable", "_text", "_txn_requires_abort")

    def __init__(
        self,
        error: int,
        reason: str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        if not isinstance(error, int):
            raise TypeError(f"{type(error).__name__!r} object cannot be interpreted as an integer")
        self._code = int(error)
        self._text = TEXTS.get(self._code, f"Err-{self._code}?") if reason is None else reason
        self._fatal = bool(fatal)
        self._retriable = bool(retriable)
        self._txn_requires_abort = bool(txn_requires_abort)

    def code(self) -> int:
        """Return the number of the error, such as ``KafkaError._TIMED_OUT``."""
        return self._code

    def name(self) -> str:
        """Return the name of the error, such as "_TIMED_OUT"."""
        return NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> str:
        """Return the description of the error."""
        return self._text

    def fatal(self) -> bool:
        """Return True if the client cannot be used any more."""
        return self._fatal

    def retriable(self) -> bool:
        """Return True if the operation may be tried again."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Return True if the transaction must be aborted before the next one begins."""
        return self._txn_requires_abort

    def __repr__(self) -> Any:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self._text}"}}'

    __str__ = __repr__

    def __hash__(self) -> int:
        return self._code

    def __eq__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code == code

    def __lt__(self, other: object) -> bool:
        code = _code_of(other)
        return NotImplemented if code is None else self._code < code

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaError, (self._code, self._text, self._fatal, self._retriable, self._txn_requires_abort)


class IllegalStateException(RuntimeError):  # noqa: N818 - confluent-kafka's name
    """A call that the state of the share consumer forbids."""


class ConcurrentModificationException(RuntimeError):  # noqa: N818 - confluent-kafka's name
    """A second thread called a consumer while another one used it."""


def _code_of(other: object) -> int | None:
    if isinstance(other, KafkaError):
        return other.code()
    return other if isinstance(other, int) else None


#: The codes of errors by class; the first that matches counts. None: the code that a broker has reported.
_CODES: tuple[tuple[type[BaseException], int | None], ...] = (
    (errors.RecordTooLargeError, KafkaError.MSG_SIZE_TOO_LARGE),
    (errors.BufferExhaustedError, KafkaError._QUEUE_FULL),
    (errors.SaslAuthenticationError, KafkaError._AUTHENTICATION),
    (errors.SslAuthenticationError, KafkaError._SSL),
    (errors.AuthenticationError, KafkaError._AUTHENTICATION),
    (errors.NoOffsetForPartitionError, KafkaError._AUTO_OFFSET_RESET),
    (errors.LogTruncationError, KafkaError._LOG_TRUNCATION),
    (errors.CommitFailedError, KafkaError.ILLEGAL_GENERATION),
    (errors.TransactionAbortedError, KafkaError._PURGE_QUEUE),
    (errors.BrokerError, None),
    (errors.KafkaTimeoutError, KafkaError._TIMED_OUT),
    (errors.DisconnectError, KafkaError._TRANSPORT),
    (errors.ConfigError, KafkaError._INVALID_ARG),
    (errors.IllegalArgumentError, KafkaError._INVALID_ARG),
    (errors.IllegalStateError, KafkaError._STATE),
    (errors.SerializationError, KafkaError._BAD_MSG),
    (errors.WakeupError, KafkaError._INTR),
)

_FATAL = (errors.ProducerFencedError, errors.FencedInstanceIdError)


def code_of(error: BaseException) -> int:
    """Return librdkafka's code for an error of this package."""
    code: Any = next((code for cls, code in _CODES if isinstance(error, cls)), KafkaError._FAIL)
    found: Any = error
    return int(found.code if code is None else code)


def error_of(error: BaseException, code: int | None = None, prefix: str = "") -> KafkaError:
    """Return the KafkaError for an error of this package.

    ``code`` replaces the code that the class of ``error`` stands for. ``prefix`` precedes the text.
    """
    number = code_of(error) if code is None else code
    text = str(error) or TEXTS.get(number, "")
    return KafkaError(
        number,
        f"{prefix}{text}",
        fatal=isinstance(error, _FATAL),
        retriable=isinstance(error, errors.RetriableError),
        txn_requires_abort=False,
    )


def exception_of(error: BaseException, prefix: str = "") -> KafkaException:
    """Return the KafkaException for an error of this package."""
    return KafkaException(error_of(error, prefix=prefix))


def polled_too_late(interval_ms: int, late_ms: int) -> KafkaError:
    """Return the error of a consumer that was polled ``late_ms`` after ``max.poll.interval.ms``."""
    text = f"Application maximum poll interval ({interval_ms}ms) exceeded by {late_ms}ms"
    return KafkaError(KafkaError._MAX_POLL_EXCEEDED, text)


def failure(code: int, text: str | None = None, **flags: bool) -> KafkaException:
    """Return a KafkaException for a code."""
    return KafkaException(KafkaError(code, text, **flags))
