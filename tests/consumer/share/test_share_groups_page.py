"""The code of docs/share-groups.md runs as it is printed, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.embedded_kafka import EmbeddedKafka

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "share-groups.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_snippets_run(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedKafka(1, {"group.share.heartbeat.interval.ms": 200}) as cluster:
        for code in SNIPPETS:
            assert "localhost:9092" in code
            code = code.replace("localhost:9092", cluster.bootstrap_servers)  # noqa: PLW2901
            exec(compile(code, "share-groups.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "processing b'9'" in printed
    assert "mails-0 [0, 1, 2] acknowledged" in printed
    assert "mails-0 [1] acknowledged" in printed
