"""Random changes of inputs, for runs without a guided fuzzer."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

#: Numbers at which lengths, counts and checks change their meaning, in the encodings of Kafka's protocol.
_EXTREMES = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\xff" * 10,
)

_MOST_CHANGES = 4


def mutated(corpus: Sequence[bytes], rng: Random, max_size: int) -> bytes:
    """Return one of the inputs with some changes."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randint(1, _MOST_CHANGES)):
        _change(data, corpus, rng)
    return bytes(data[:max_size])


def _change(data: bytearray, corpus: Sequence[bytes], rng: Random) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(8):
        case 0:
            del data[at : at + rng.randint(1, 8)]
        case 1:
            del data[at:]
        case 2:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        case 3:
            data[at:at] = data[at : at + rng.randint(1, 64)]
        case 4:
            other = rng.choice(corpus)
            start = rng.randrange(len(other) + 1)
            data[at:] = other[start:]
        case 5 | 6:
            extreme = rng.choice(_EXTREMES)
            data[at : at + len(extreme)] = extreme
        case _:
            if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
