"""A sample of the fuzzing: the corpus, and some random changes of it. ``python -m tests.fuzz`` runs more."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest

from tests.fuzz import guard
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Input, Target, number, pieces
from tests.fuzz.targets import MAX_SIZE, TARGETS, corpus

#: The changed inputs per target: what takes about half a second.
_SAMPLES = {
    "frames": 700,
    "messages": 8_000,
    "requests": 8_000,
    "responses": 10_000,
    "batches": 700,
    "payloads": 700,
    "codecs": 12_000,
    "sasl-client": 3_000,
    "sasl-server": 3_000,
    "tls": 150,
    "tls-garbage": 5_000,
    "stores": 500,
    "tokens": 8_000,
    "groups": 3_000,
    "coordinator-records": 4_000,
    "broker": 80,
    "clients": 40,
}
_MEASURED_EVERY = 50


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Broken input is logged, thousands of times."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_sampled_inputs_raise_no_unexpected_errors(name: str) -> None:
    target, rng = TARGETS[name], Random(len(name))
    begin = corpus(target, rng)
    for data in begin:
        guard.run(target, data)
    for index in range(_SAMPLES[name]):
        data = mutated(begin, rng, MAX_SIZE)
        try:
            guard.run(target, data, measured=index % _MEASURED_EVERY == 0)
        except BaseException as error:
            error.add_note(f"the input is {data!r}")
            raise


def test_guard_limits_memory() -> None:
    hungry = Target("hungry", lambda data: bytearray(guard.CONSTANT_BYTES + 11 * len(data)), lambda _: [])
    guard.run(hungry, b"x" * 1000)
    with pytest.raises(guard.TooMuchMemoryError, match="an input of 1000"):
        guard.run(hungry, b"x" * 1000, measured=True)


def test_corpus_inputs_decode_as_encoded() -> None:
    given = Input(number(7) + number(300, 2) + pieces(b"one", b"", b"two") + b"\xff\xffrest")
    assert (given.byte(), given.number(2)) == (7, 300)
    assert given.pieces() == [b"one", b"", b"two", b"rest"]
    assert (given.byte(), given.rest()) == (0, b"")


def test_mutations_depend_only_on_the_seed() -> None:
    begin = [b"some bytes", b"other bytes"]
    runs = [[mutated(begin, Random(seed), 100) for _ in range(20)] for seed in (1, 1)]
    assert runs[0] == runs[1]
    many = {mutated(begin, rng, 8) for rng in [Random(2)] for _ in range(200)}
    assert len(many) > 100
    assert max(map(len, many)) == 8
