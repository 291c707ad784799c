"""Arguments of a started AIOKafkaConsumer's methods."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pykclient.aio import aiokafka_arguments
from pykclient.aio.errors import ArgumentTypeError
from pykclient.errors import IllegalArgumentError
from pykclient.types import OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 0)


def test_aiokafka_forms_of_arguments_are_accepted() -> None:
    assert aiokafka_arguments.offsets({TP: 5}) == {TP: OffsetAndMetadata(5, "")}
    assert aiokafka_arguments.offsets({TP: (5, "note")}) == {TP: OffsetAndMetadata(5, "note")}
    assert aiokafka_arguments.offsets({("t", 0): OffsetAndMetadata(5, "", 3)}) == {TP: OffsetAndMetadata(5, "", 3)}
    assert aiokafka_arguments.partitions((TP, ("t", 0))) == [TP]
    assert aiokafka_arguments.offset(0) == 0
    assert aiokafka_arguments.max_records(None) is None
    assert aiokafka_arguments.timestamps({TP: 5.7}) == {TP: 5}


def test_pattern_matches_the_beginning_of_names() -> None:
    _, pattern = aiokafka_arguments.topics_or_pattern((), "a.c")
    assert pattern is not None
    assert pattern.pattern == "a.c"
    assert pattern.fullmatch("abcd")
    assert not pattern.fullmatch("xabc")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: aiokafka_arguments.offsets({}), IllegalArgumentError, "offsets to commit are a dict"),
        (lambda: aiokafka_arguments.offsets([1]), IllegalArgumentError, "offsets to commit are a dict"),
        (
            lambda: aiokafka_arguments.offsets({"t": 1}),
            ArgumentTypeError,
            "a key of offsets is 't'; it must be",
        ),
        (lambda: aiokafka_arguments.offsets({TP: (1, 2, 3)}), IllegalArgumentError, "a pair of a number and text"),
        (lambda: aiokafka_arguments.offsets({TP: (1, 2)}), ArgumentTypeError, "Metadata should be a string"),
        (lambda: aiokafka_arguments.offsets({TP: -1}), IllegalArgumentError, "negative"),
        (lambda: aiokafka_arguments.offsets({TP: "5"}), IllegalArgumentError, "an offset is an integer"),
        (
            lambda: aiokafka_arguments.partitions(["t"]),
            ArgumentTypeError,
            "partition is 't'; it must be a Topic",
        ),
        (lambda: aiokafka_arguments.offset(-1), IllegalArgumentError, "Offset must be a positive integer"),
        (lambda: aiokafka_arguments.offset("1"), IllegalArgumentError, "Offset must be a positive integer"),
        (lambda: aiokafka_arguments.max_records(0), IllegalArgumentError, "`max_records` must be a positive Integer"),
        (lambda: aiokafka_arguments.timestamps({TP: -5}), IllegalArgumentError, "The target time cannot be negative."),
        (lambda: aiokafka_arguments.timestamps([TP]), IllegalArgumentError, "times are a dict"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()
