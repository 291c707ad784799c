"""Write docs/api/errors.md, the list of all errors, from their classes.

    python tools/errors_reference.py docs/api/errors.md [--check]

``--check`` only reports whether the file is up to date.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from pykclient import errors
from pykclient.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
)

_HEAD = """# Errors

<!-- Written by `python tools/errors_reference.py docs/api/errors.md` from pykclient.errors. -->

```python
from pykclient.errors import KafkaError
```

`KafkaError` is the base class of every error on this page. All of them can be pickled. An error that a broker
reported is a `BrokerError`, whose `code` is its number in the protocol and whose `error_name` is its name there.

**Retriable** errors are transient. The clients retry them on their own: a producer until `delivery.timeout.ms` (2
minutes) is over, calls of a consumer until `default.api.timeout.ms` (1 minute), an admin client until its timeout. So
if one reaches your program, the time ran out: the message says what was tried and for how long. `error.retriable`
tells the kinds apart.

An error of a record reaches your program through its future, its callback or, in a transaction,
`commit_transaction()`. An error of a consumer is raised by the call that meets it.
[Producing](../producing.md#when-a-record-fails) and [Consuming](../consuming.md#errors) show where to catch what.
"""

#: The sections, the texts before their tables, and the classes that stand in them. The rest goes by its base class.
_SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Base classes": (
        "Catch these to handle a kind of error.",
        (
            "KafkaError",
            "RetriableError",
            "RefreshRetriableError",
            "InvalidMetadataError",
            "ApplicationRecoverableError",
            "AuthorizationError",
            "AuthenticationError",
            "InvalidOffsetError",
            "BrokerError",
        ),
    ),
    "Mistakes in the program": (
        "A retry does not help. Change the call or the configuration.",
        (
            "ConfigError",
            "IllegalArgumentError",
            "IllegalStateError",
            "ConcurrentModificationError",
            "UseAfterForkError",
            "SerializationError",
            "InterceptorError",
        ),
    ),
    "Writing": (
        "",
        (
            "BufferExhaustedError",
            "RecordTooLargeError",
            "RecordBatchTooLargeError",
            "InvalidRecordError",
            "InvalidTimestampError",
            "InvalidTopicError",
            "InvalidRequiredAcksError",
            "NotEnoughReplicasError",
            "NotEnoughReplicasAfterAppendError",
            "OutOfOrderSequenceError",
            "UnknownProducerIdError",
            "DuplicateSequenceError",
        ),
    ),
    "Transactions": (
        "[Exactly once](../transactions.md) shows how to react to them.",
        (
            "TransactionAbortableError",
            "TransactionAbortedError",
            "ProducerFencedError",
            "InvalidProducerEpochError",
            "InvalidTxnStateError",
            "InvalidTxnTimeoutError",
            "InvalidPidMappingError",
            "ConcurrentTransactionsError",
            "TransactionalIdNotFoundError",
            "TransactionCoordinatorFencedError",
        ),
    ),
    "Reading": (
        "",
        (
            "WakeupError",
            "RecordDeserializationError",
            "NoOffsetForPartitionError",
            "OffsetOutOfRangeError",
            "LogTruncationError",
            "CorruptRecordError",
            "OffsetMovedToTieredStorageError",
        ),
    ),
    "Groups": (
        "",
        (
            "CommitFailedError",
            "RetriableCommitFailedError",
            "RebalanceInProgressError",
            "IllegalGenerationError",
            "UnknownMemberIdError",
            "FencedInstanceIdError",
            "FencedMemberEpochError",
            "StaleMemberEpochError",
            "UnreleasedInstanceIdError",
            "InconsistentGroupProtocolError",
            "InvalidGroupIdError",
            "InvalidSessionTimeoutError",
            "GroupMaxSizeReachedError",
            "GroupIdNotFoundError",
            "GroupNotEmptyError",
            "GroupSubscribedToTopicError",
            "UnsupportedAssignorError",
            "InvalidRegularExpressionError",
            "UnstableOffsetCommitError",
            "InvalidRecordStateError",
        ),
    ),
}

_AUTHORIZATION = "an administrator must add the ACL; the message names the resource and the operation"
_AUTHENTICATION = "check the credentials; `pykclient doctor` shows the step that fails"

#: Advice for the errors that applications meet.
_ADVICE = {
    "AuthenticationError": _AUTHENTICATION,
    "AuthorizationError": _AUTHORIZATION,
    "BufferExhaustedError": "send less, raise `buffer.memory`, or see in `producer.explain()` why brokers are slow",
    "CommitFailedError": "other members read these records again; poll more often or raise `max.poll.interval.ms`",
    "ConcurrentModificationError": (
        "use one consumer per thread; other threads may call only `wakeup()`, `explain()` and `metrics()`"
    ),
    "ConfigError": "correct the key that the message names",
    "CorruptRecordError": "after an error of a consumer, `seek` past the batch or restore it from a replica",
    "FencedInstanceIdError": "give each running consumer its own `group.instance.id`, then create a new one",
    "IllegalArgumentError": "correct the argument that the message names",
    "IllegalStateError": "the message says which call is possible in this state",
    "InvalidProducerEpochError": "close the producer and create a new one",
    "InvalidTopicError": "choose a name of letters, digits, `.`, `_` and `-`, 249 at most",
    "InvalidTxnTimeoutError": "lower `transaction.timeout.ms`, or raise `transaction.max.timeout.ms` on the brokers",
    "KafkaTimeoutError": "the message says what was waited for; the operation may still succeed",
    "LogTruncationError": "`seek` to one of its `divergent_offsets`; records after it were lost by the brokers",
    "NoOffsetForPartitionError": "`seek`, or set `auto.offset.reset` to `earliest` or `latest`",
    "NotEnoughReplicasError": "brokers are down; wait, or lower `min.insync.replicas` of the topic",
    "OffsetOutOfRangeError": "`seek`, or set `auto.offset.reset`; with `none` the retention was shorter than the lag",
    "ProducerFencedError": "end this process: another producer uses its `transactional.id`",
    "RecordDeserializationError": "handle `error.record`, then `seek(error.topic_partition, error.offset + 1)`",
    "RecordTooLargeError": "send smaller records, or raise `max.request.size` and the topic's `max.message.bytes`",
    "SaslAuthenticationError": _AUTHENTICATION,
    "SerializationError": "the record was not sent; correct the value or the serializer (`__cause__`)",
    "SslAuthenticationError": "check certificates and host names; `pykclient doctor` shows them",
    "TransactionAbortableError": "call `abort_transaction()` and process the records again",
    "TransactionAbortedError": "nothing: the application aborted the transaction",
    "UnknownTopicOrPartitionError": "create the topic, or check its name",
    "UnreleasedInstanceIdError": "wait until the former member has left or its session has expired",
    "UnsupportedVersionError": "the brokers are too old for this call, see [Compatibility](../compatibility.md)",
    "UseAfterForkError": "create the client after `fork()`, in the child",
    "WakeupError": "expected after `wakeup()`: end the loop, or go on",
}


def _row(error: type[KafkaError]) -> str:
    summary = " ".join((inspect.getdoc(error) or "").split("\n\n")[0].split()).replace("``", "`")
    code = str(error.code) if issubclass(error, BrokerError) and error is not BrokerError else ""
    if issubclass(error, AuthorizationError):
        advice = _AUTHORIZATION
    else:
        advice = _ADVICE.get(error.__name__, "")
    retriable = "yes" if issubclass(error, RetriableError) else ""
    return f"| <a id='{error.__name__}'></a>`{error.__name__}` | {code} | {retriable} | {summary} | {advice} |"


def _section(title: str, text: str, found: list[type[KafkaError]]) -> list[str]:
    head = ["", f"## {title}", ""]
    if text:
        head += [text, ""]
    return [
        *head,
        "| error | code | retriable | meaning | what to do |",
        "| --- | --- | --- | --- | --- |",
        *map(_row, found),
    ]


def page() -> str:
    """Return the page."""
    every = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, KafkaError) and not name.startswith("_")
    }
    lines = [_HEAD.rstrip("\n")]
    for title, (text, names) in _SECTIONS.items():
        lines += _section(title, text, [every.pop(name) for name in names])
    rest = [error for name, error in every.items() if name == error.__name__]

    def those(base: type[KafkaError]) -> list[type[KafkaError]]:
        found = [error for error in rest if issubclass(error, base)]
        rest[:] = [error for error in rest if error not in found]
        return found

    lines += _section("Permissions", "The principal of the connection lacks an ACL.", those(AuthorizationError))
    lines += _section("Authentication", "The client does not retry them.", those(AuthenticationError))
    stale = "The client refreshes its metadata and retries. You see them only if the time runs out."
    lines += _section("Leaders that have moved", stale, those(InvalidMetadataError))
    lines += _section("Other retriable errors", "The client retries them.", those(RetriableError))
    lines += _section("Other errors of brokers", "Most of them concern administration.", those(BrokerError))
    lines += _section("Other errors of the client", "", rest)
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check the page; return the exit status."""
    path, check = Path(arguments[0]), "--check" in arguments
    text = page()
    if not check:
        path.write_text(text, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != text:
        print(f"{path} is out of date: run `make docs`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
