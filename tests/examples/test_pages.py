"""The Python code of the pages runs as it is printed, from top to bottom of each page."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import examples
from pykclient import KafkaConsumer, KafkaProducer
from pykclient.testing import EmbeddedCluster

DOCS = Path(examples.__file__).parents[1] / "docs"
PAGES = (
    "index.md",
    "producing.md",
    "consuming.md",
    "serializers.md",
    "recipes.md",
    "opentelemetry.md",
    "transactions.md",
    "groups.md",
    "from-confluent.md",
    "protocol.md",
    "tutorials/order-service.md",
)
#: How many lines a page prints whose last loop does not end.
ENDLESS = {"index.md": 2}
#: Code before a block that is an excerpt, by page and number of the block.
BEFORE = {
    ("transactions.md", 2): """
from pykclient import KafkaConsumer

producer = KafkaProducer(bootstrap_servers="localhost:9092", transactional_id="booking-1")
producer.init_transactions()
consumer = KafkaConsumer(
    "orders",
    bootstrap_servers="localhost:9092",
    group_id="books",
    auto_offset_reset="earliest",
    enable_auto_commit=False,
)
while not (polled := consumer.poll(timeout_ms=1000)):
    pass
book = bytes.upper
""",
    ("transactions.md", 5): """
import sqlite3

with sqlite3.connect("orders.db") as database:
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, published INTEGER)")
    database.executemany("INSERT INTO orders VALUES (?, 0)", [(1,), (2,)])
""",
    ("protocol.md", 1): """
from pykclient.protocol.headers import encode_response
from pykclient.protocol.messages.metadata import MetadataResponse

frame = b"".join(encode_response(MetadataResponse(), 12, 1).buffers())[4:]
""",
}
#: Code after a block: what the block has done.
AFTER = {
    ("transactions.md", 2): """
producer.close()
assert consumer.committed(*consumer.assignment()) == 1
consumer.close()
""",
    ("transactions.md", 5): """
assert [order for (order,) in database.execute("SELECT published FROM orders")] == [1, 1]
""",
    ("protocol.md", 1): "assert isinstance(response, MetadataResponse) and correlation_id == 1",
}
#: Pages whose code is that of a program, which has tests of its own.
EXCERPTS = {
    "kubernetes.md": ["kubernetes/settings.py"],
    "faststream.md": ["faststream_orders.py"],
    "tutorials/fastapi.md": ["fastapi_orders.py"],
    "tutorials/spark-windows.md": ["spark_streaming.py", "spark_jobs.py"],
}

pytest_plugins = ["pytester"]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    allowed = {"unstable.api.versions.enable": True, "transaction.two.phase.commit.enable": True}
    with EmbeddedCluster(brokers=1, config=allowed) as cluster:
        yield cluster


def snippets(page: str) -> list[str]:
    """Return the page's blocks of Python code. A block that is not to be run has another language, such as ``text``."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


class EnoughError(Exception):
    """An endless loop has printed enough."""


@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs_from_top_to_bottom(
    page: str, cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = snippets(page)
    printed: list[tuple[Any, ...]] = []

    def print_(*args: Any, **_: Any) -> None:
        printed.append(args)
        if len(printed) == ENDLESS.get(page):
            raise EnoughError

    names: dict[str, Any] = {"__name__": "page", "print": print_}
    try:
        for number, snippet in enumerate(found, 1):
            code = BEFORE.get((page, number), "") + snippet + AFTER.get((page, number), "")
            code = code.replace("localhost:9092", cluster.bootstrap_servers)
            with contextlib.nullcontext() if number < len(found) or page not in ENDLESS else pytest.raises(EnoughError):
                exec(compile(code, f"{page}, block {number}", "exec"), names)
    finally:
        for value in list(names.values()):
            if isinstance(value, (KafkaProducer, KafkaConsumer)):
                value.close()
    assert found
    assert bool(printed) == any("print(" in snippet for snippet in found)


@pytest.mark.parametrize("page", EXCERPTS)
def test_excerpts_are_in_the_program(page: str) -> None:
    programs = "".join((DOCS.parent / "examples" / name).read_text(encoding="utf-8") for name in EXCERPTS[page])
    found = snippets(page)
    assert found
    for snippet in found:
        assert snippet in programs


def test_tests_of_the_tutorial_pass(pytester: pytest.Pytester) -> None:
    text = (DOCS / "tutorials" / "kill-a-broker.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python title=\"(\w+\.py)\"\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    files: dict[str, str] = {}
    for name, block in blocks:
        files[name] = files.get(name, "") + block
    assert set(files) == {"orders.py", "test_orders.py"}
    for name, source in files.items():
        (pytester.path / name).write_text(source, encoding="utf-8")
    done = pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist")
    done.assert_outcomes(passed=3)
