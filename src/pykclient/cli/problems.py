"""Errors of commands: which of them are bad input, and their texts with the next step."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from pykclient.errors import (
    ConfigError,
    GroupIdNotFoundError,
    IllegalArgumentError,
    InvalidTopicError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)


class Interrupted(Exception):  # noqa: N818 - no error: the user has pressed Ctrl-C
    """Ctrl-C or a terminating signal ended the command."""


class ReaderGoneError(Exception):
    """The reader of stdout closed its end of the pipe."""


class UsageError(Exception):
    """The options contradict each other, or one of them has a wrong value."""


class CommandError(KafkaError):
    """A command failed; its text says what to do."""


class BadInputError(CommandError):
    """The command's input, a file or stdin, is wrong."""


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise Interrupted for Ctrl-C or end of input at a prompt, and ReaderGoneError for a closed pipe."""
    try:
        yield
    except (KeyboardInterrupt, EOFError) as error:
        raise Interrupted from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise ReaderGoneError from error
        raise


_BAD_INPUT = (ConfigError, IllegalArgumentError, InvalidTopicError, BadInputError)


def is_bad_input(error: BaseException) -> bool:
    """Return True if the error is in the command or its input, not in the cluster."""
    cause = error.__cause__ if isinstance(error, CommandError) else None
    return isinstance(error, _BAD_INPUT) or isinstance(cause, _BAD_INPUT)


def explained(error: BaseException) -> str:
    """Return the text of an error, with the next step if the text has none."""
    text = (str(error) or type(error).__name__).replace("with timeout_ms", "with --timeout")
    step = next_step(error)
    return f"{text}\n{step}" if step else text


def next_step(error: BaseException) -> str:
    """Return advice about an error, or an empty string if its text already has some."""
    if isinstance(error, UnknownTopicOrPartitionError):
        return "Next step: `pykclient topics list` shows the topics, `pykclient topics create` makes one."
    if isinstance(error, GroupIdNotFoundError):
        return "Next step: `pykclient groups list` shows the groups."
    if isinstance(error, TopicAuthorizationFailedError):
        return "Next step: ask for an ACL; `pykclient acls list` shows them to those who may see them."
    return ""
