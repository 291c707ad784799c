"""The prepared state of a transaction, for an external store (Java: PreparedTxnState; KIP-939)."""

from __future__ import annotations

import re
from typing import Final, NoReturn, Self, final

from pykclient.errors import IllegalArgumentError
from pykclient.record.record_batch import MAX_INT64, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_TEXT: Final = re.compile("([0-9]{1,19}):([0-9]{1,5})")
_MAX_EPOCH: Final = (1 << 15) - 1


@final
class PreparedTxnState:
    """Identifies a prepared transaction: the producer id and epoch that its records were written with.

    ``str(state)`` is a text for your database, such as "4711:3"; ``PreparedTxnState(text)`` is that state again.
    Without a text, or with an empty one, it identifies no transaction. Immutable. Thread: any.

    Raises:
        IllegalArgumentError: the text is not that of a prepared state.
    """

    __slots__ = ("epoch", "producer_id")

    producer_id: int
    epoch: int

    def __init__(self, text: str | None = None) -> None:
        producer_id, epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if text:
            match = _TEXT.fullmatch(text) if type(text) is str else None
            if match is not None:
                producer_id, epoch = int(match[1]), int(match[2])
            if match is None or producer_id > MAX_INT64 or epoch > _MAX_EPOCH:
                raise IllegalArgumentError(
                    f"{text!r} is not a prepared state: that is the text of a PreparedTxnState, a producer id and an "
                    'epoch such as "4711:3"'
                )
        object.__setattr__(self, "producer_id", producer_id)
        object.__setattr__(self, "epoch", epoch)

    @classmethod
    def of(cls, producer_id: int, epoch: int) -> Self:
        """Return the state with this producer id and epoch; a negative id means no transaction."""
        return cls(f"{producer_id}:{epoch}" if producer_id >= 0 else None)

    def has_transaction(self) -> bool:
        """Return True unless this state is empty."""
        return self.producer_id != NO_PRODUCER_ID

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}" if self.has_transaction() else ""

    def __repr__(self) -> str:
        return f"PreparedTxnState({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PreparedTxnState):
            return NotImplemented
        return (self.producer_id, self.epoch) == (other.producer_id, other.epoch)

    def __hash__(self) -> int:
        return hash((self.producer_id, self.epoch))

    def __reduce__(self) -> tuple[type[PreparedTxnState], tuple[str]]:
        return PreparedTxnState, (str(self),)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a PreparedTxnState cannot be changed: {name} = {value!r}")
