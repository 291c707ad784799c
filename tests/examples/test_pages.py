"""The Python code of the guides and recipes runs as it is printed, from top to bottom of each page."""

from __future__ import annotations

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
    "producing.md",
    "consuming.md",
    "serializers.md",
    "recipes.md",
    "opentelemetry.md",
    "tutorials/order-service.md",
)
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
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


def snippets(page: str) -> list[str]:
    """Return the page's blocks of Python code. A block that is not to be run has another language, such as ``text``."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: str, cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = snippets(page)
    assert len(found) > 1
    printed: list[tuple[Any, ...]] = []
    names: dict[str, Any] = {"__name__": "page", "print": lambda *args, **_: printed.append(args)}
    try:
        for number, snippet in enumerate(found, 1):
            code = snippet.replace("localhost:9092", cluster.bootstrap_servers)
            exec(compile(code, f"{page}, block {number}", "exec"), names)
    finally:
        for value in list(names.values()):
            if isinstance(value, (KafkaProducer, KafkaConsumer)):
                value.close()
    assert printed


@pytest.mark.parametrize("page", EXCERPTS)
def test_excerpts_stand_in_the_program(page: str) -> None:
    programs = "".join((DOCS.parent / "examples" / name).read_text(encoding="utf-8") for name in EXCERPTS[page])
    found = snippets(page)
    assert found
    for snippet in found:
        assert snippet in programs


def test_the_tests_of_the_tutorial_pass(pytester: pytest.Pytester) -> None:
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
