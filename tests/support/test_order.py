"""The order in which processes run files, and the files that one process runs together."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support import order
from tests.support.order import longest_first, unit_of

ROOT = Path(__file__).parents[2]


def item(file: str) -> Any:
    return SimpleNamespace(nodeid=f"{file}::test", get_closest_marker=lambda name: None)


def test_files_that_share_real_brokers_follow_each_other() -> None:
    files = ["tests/admin/test_admin_on_kafka.py", "tests/aio/test_x.py", "tests/consumer/test_groups_kafka.py"]
    ordered: list[Any] = [
        item(file) for file in [*files, "tests/testing/log/test_as_kafka.py", "tests/chaos/test_cuts.py"]
    ]
    longest_first(ordered, is_contracts=True)
    units = [unit_of(each.nodeid.split("::", 1)[0], is_contracts=True) for each in ordered]
    assert units == ["real brokers"] * 3 + ["tests/chaos/test_cuts.py", "tests/aio/test_x.py"]


def test_spark_files_share_a_process_and_others_have_their_own() -> None:
    assert {
        unit_of(file, is_contracts=False) for file in ("tests/spark/test_a.py", "tests/examples/test_spark_b.py")
    } == {"spark"}
    assert unit_of("tests/admin/test_admin_on_kafka.py", is_contracts=False) == "tests/admin/test_admin_on_kafka.py"


def test_files_without_spark_are_run_by_another_process() -> None:
    assert all((ROOT / file).exists() for file in order._WITHOUT_SPARK)
    used = {file for file in order._WITHOUT_SPARK if re.search(r"\bspark: |mark\.spark", (ROOT / file).read_text())}
    assert used == set()
    assert {unit_of(file, is_contracts=True) for file in order._WITHOUT_SPARK} == {"spark's parts"}
