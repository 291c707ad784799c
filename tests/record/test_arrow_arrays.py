"""The compiled arrays of columns equal those that the Python version makes, and hold their memory only while used."""

from __future__ import annotations

import random
import threading
from typing import Any

import pyarrow as pa
import pytest

from pykclient.record import arrow
from pykclient.record.columns import COLUMN_NAMES, ColumnMemory, Columns
from tests.support.twins import both_forms

FORMS = both_forms("pykclient.record.arrow", "arrays")
NAMES = (*((name,) for name in COLUMN_NAMES), COLUMN_NAMES, ("value", "topic", "headers"))


def filled(rng: random.Random, names: tuple[str, ...], views: bool, most: int, memory: ColumnMemory) -> Columns:
    """Return rows of a few batches, with every kind of value that a column can have."""
    columns = Columns(names, views=views, memory=memory)
    is_usual = rng.random() < 0.7
    for _ in range(rng.randrange(4)):
        rows = rng.randrange(most)
        data = rng.randbytes(80)
        columns.extend(
            data,
            data,
            [rng.getrandbits(60) for _ in range(rows)],
            [rng.randrange(0 if is_usual else -1, 5) for _ in range(rows)],
            [rng.choice((None, (0, 0), (3, 9))) for _ in range(rows)],
            [(5, rng.randrange(5, 80)) if is_usual else rng.choice((None, (1, 60))) for _ in range(rows)],
            [rng.choice(((), (("a", b"x"),), (("ü", None), ("", b""), ("c", b"yy")))) for _ in range(rows)],
            90 * rows,
        )
        if rows:
            epoch = rng.choice((0, 7)) if is_usual else -1
            columns.add_run((rng.choice(("t", "", "täg")), rng.randrange(3), epoch, rng.randrange(2)), rows)
    return columns


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("names", NAMES)
def test_c_arrays_equal_python_arrays(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], views: bool) -> None:
    memories = ColumnMemory(), ColumnMemory()
    for seed in range(40):
        made = []
        for form, memory in zip(FORMS, memories, strict=True):
            rng = random.Random(seed)
            monkeypatch.setattr(arrow, "arrays", form)
            batch = arrow.record_batch(filled(rng, names, views, rng.choice((1, 8, 3000)), memory))
            batch.validate(full=True)
            made.append(batch)
        assert made[0].equals(made[1])
        assert made[0].schema.equals(arrow.schema(names, views))


def one_batch(memory: ColumnMemory, rows: int = 5000) -> Any:
    columns = Columns(memory=memory)
    spans = [(0, 10)] * rows
    columns.extend(bytes(10), bytes(10), range(rows), range(rows), spans, spans, [()] * rows, 30 * rows)
    columns.add_run(("t", 0, 1, 0), rows)
    return arrow.record_batch(columns)


def address(batch: Any, name: str) -> int:
    found: int = batch.column(name).buffers()[-1].address
    return found


def test_memory_is_reused_once_column_is_released() -> None:
    memory = ColumnMemory()
    batch = one_batch(memory)
    offsets, values = batch.column("offset"), address(batch, "value")
    del batch
    again = one_batch(memory)
    assert address(again, "value") == values  # a column that is kept does not keep the others
    assert offsets.to_pylist() == list(range(5000))
    assert address(again, "offset") != offsets.buffers()[-1].address


def test_native_thread_may_release_arrays() -> None:
    """Arrow's own threads drop the last reference to a buffer, for example of a scan."""
    memory = ColumnMemory()
    table = pa.Table.from_batches([one_batch(memory) for _ in range(20)])
    holder = [table.sort_by([("offset", "descending")]), table]
    del table
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    assert one_batch(memory).num_rows == 5000


def test_an_array_that_arrow_refuses_is_released() -> None:
    memory = ColumnMemory()
    columns = filled(random.Random(3), ("offset", "value"), False, 3000, memory)

    def refuse(address: int, type: Any) -> Any:
        raise pa.ArrowInvalid("refused")

    with pytest.raises(pa.ArrowInvalid, match="refused"):
        FORMS[1](columns, (pa.int64(), pa.binary()), refuse)
    assert columns.offsets is not None
    columns.offsets.append(0)  # raises BufferError while anything refers to it
