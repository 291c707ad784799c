"""The code of docs/share-groups.md runs as it is printed, in order."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.consumer.share.share_groups import set_group
from tests.support.embedded_kafka import EmbeddedKafka

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "share-groups.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_snippets_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedKafka(1, {"group.share.heartbeat.interval.ms": 200}) as cluster:
        set_group(cluster, "reporting")
        for code in SNIPPETS:
            assert "localhost:9092" in code
            code = code.replace("localhost:9092", cluster.bootstrap_servers)  # noqa: PLW2901
            defined: dict[str, Any] = {}
            exec(compile(code, "share-groups.md", "exec"), defined)
            if "async def work" in code:
                set_group(cluster, "shipping")
                asyncio.run(asyncio.wait_for(defined["work"](10), 60))
    printed = capsys.readouterr().out
    assert "processing b'9'" in printed
    assert printed.count("handling") == 10
    assert "10 rows" in printed
    assert "mails-0 [0, 1, 2] acknowledged" in printed
    assert "mails-0 [1] acknowledged" in printed
