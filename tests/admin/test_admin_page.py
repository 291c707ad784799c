"""The code of docs/admin.md runs as it is printed, and its table names methods that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykclient.admin import Admin, KafkaAdminClient
from pykclient.testing import EmbeddedCluster

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "admin.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as made:
        yield made


@pytest.mark.parametrize("code", SNIPPETS, ids=[f"snippet {index}" for index in range(len(SNIPPETS))])
def test_each_snippet_runs(cluster: EmbeddedCluster, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "localhost:9092" in code
    exec(compile(code.replace("localhost:9092", cluster.bootstrap_servers), "admin.md", "exec"), {})
    assert capsys.readouterr().out


def test_table_of_admin_page_names_each_call() -> None:
    table = PAGE.split("## Calls")[1].split("\n## ")[0]
    named: tuple[set[str], set[str]] = set(), set()
    for row in re.findall(r"^\| .* \| (.*) \| (.*) \|$", table, re.MULTILINE)[1:]:
        for names, cell in zip(named, row, strict=True):
            names.update(re.findall(r"`(\w+)`", cell))
    not_calls = {"close", "config", "in_environment", "metrics", "of_client", "of_components", "typed"}
    not_calls |= {"register_metric_for_subscription", "unregister_metric_from_subscription"}
    for names, kind in zip(named, (KafkaAdminClient, Admin), strict=True):
        names.discard(kind.__name__)
        assert names == {name for name in dir(kind) if not name.startswith("_")} - not_calls
