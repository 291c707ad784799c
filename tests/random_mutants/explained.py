"""Mutations that change nothing an application, a broker or a reader of metrics can see, each with the reason."""

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    module: str
    function: str
    kind: str
    code: str
    why: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.kind, self.code


EXPLAINED: tuple[Explained, ...] = (
    Explained(
        "consumer/consumer_delegate",
        "ConsumerDelegate._to_commit",
        "bound shifted",
        "if offset.leader_epoch > 0:",
        "epoch 0 is never newer than a known one",
    ),
    Explained(
        "consumer/consumer_arguments",
        "milliseconds",
        "bound shifted",
        "return FOREVER_MS if number > FOREVER_MS else int(number)",
        "at the bound both are the same number",
    ),
    Explained(
        "producer/sender_thread",
        "SenderDriver.step_for_send",
        "return value dropped",
        "return False",
        "its only caller asks whether it is true, and None is not",
    ),
    Explained(
        "network/selector",
        "Selector._handle",
        "bound shifted",
        "self._handle_channel(self._channels[id], (0 + 1), now_ms)",
        "the channel has buffered bytes, so it is read whatever its events are",
    ),
    Explained(
        "network/selector",
        "Selector._handle",
        "bound shifted",
        "if self._low_memory_bytes and self._memory_pool.available_memory <= self._low_memory_bytes:",
        "where memory begins to be scarce is a choice; one byte more or less makes no difference",
    ),
    Explained(
        "producer/columns",
        "ColumnSender.__init__",
        "statement deleted",
        'self._numbers = memoryview(b"")',
        "send() sets it for each part before anything reads it",
    ),
    Explained(
        "producer/partitioner/partitioners",
        "Murmur3Partitioner.hash",
        "boolean flipped",
        "return self._hash(key, 0, True) & POSITIVE",
        "the sign that the flag is about is cleared",
    ),
)
