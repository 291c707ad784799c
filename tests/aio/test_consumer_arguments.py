"""Arguments of a started AIOKafkaConsumer's methods."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pykclient.aio import consumer_arguments
from pykclient.aio.errors import ArgumentTypeError
from pykclient.errors import IllegalArgumentError
from pykclient.types import OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 0)


def test_what_is_accepted() -> None:
    assert consumer_arguments.offsets({TP: 5}) == {TP: OffsetAndMetadata(5, "")}
    assert consumer_arguments.offsets({TP: (5, "note")}) == {TP: OffsetAndMetadata(5, "note")}
    assert consumer_arguments.offsets({("t", 0): OffsetAndMetadata(5, "", 3)}) == {TP: OffsetAndMetadata(5, "", 3)}
    assert consumer_arguments.partitions((TP, ("t", 0))) == [TP]
    assert consumer_arguments.offset(0) == 0
    assert consumer_arguments.max_records(None) is None
    assert consumer_arguments.timestamps({TP: 5.7}) == {TP: 5}


def test_a_pattern() -> None:
    _, pattern = consumer_arguments.topics_or_pattern((), "a.c")
    assert pattern is not None
    assert pattern.pattern == "a.c"
    assert pattern.fullmatch("abcd")
    assert not pattern.fullmatch("xabc")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: consumer_arguments.offsets({}), IllegalArgumentError, "offsets to commit are a dict"),
        (lambda: consumer_arguments.offsets([1]), IllegalArgumentError, "offsets to commit are a dict"),
        (lambda: consumer_arguments.offsets({"t": 1}), ArgumentTypeError, "Key should be TopicPartition instance"),
        (lambda: consumer_arguments.offsets({TP: (1, 2, 3)}), IllegalArgumentError, "a pair of a number and text"),
        (lambda: consumer_arguments.offsets({TP: (1, 2)}), ArgumentTypeError, "Metadata should be a string"),
        (lambda: consumer_arguments.offsets({TP: -1}), IllegalArgumentError, "negative"),
        (lambda: consumer_arguments.offsets({TP: "5"}), IllegalArgumentError, "an offset is an integer"),
        (lambda: consumer_arguments.partitions(["t"]), ArgumentTypeError, "partitions must be TopicPartition inst"),
        (lambda: consumer_arguments.offset(-1), IllegalArgumentError, "Offset must be a positive integer"),
        (lambda: consumer_arguments.offset("1"), IllegalArgumentError, "Offset must be a positive integer"),
        (lambda: consumer_arguments.max_records(0), IllegalArgumentError, "`max_records` must be a positive Integer"),
        (lambda: consumer_arguments.timestamps({TP: -5}), IllegalArgumentError, "The target time cannot be negative."),
        (lambda: consumer_arguments.timestamps([TP]), IllegalArgumentError, "times are a dict"),
    ],
)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()
