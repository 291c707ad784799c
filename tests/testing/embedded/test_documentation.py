"""The Python in docs/testing.md and README.md consists of tests, which run here as a reader would run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "docs/testing.md")

#: The imports of a page's first snippet, which the others share.
IMPORTS = """
import pytest
from pykclient import KafkaConsumer, KafkaProducer, TopicPartition
from pykclient.errors import KafkaError, KafkaTimeoutError, UnsupportedVersionError
"""


def snippets(page: str) -> dict[str, str]:
    """Return the page's Python blocks that contain a pytest test, by the test's name."""
    blocks: list[str] = re.findall(r"(?ms)^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"))
    named = [(re.search(r"(?m)^def (test_\w+)", block), block) for block in blocks]
    return {found[1]: block for found, block in named if found is not None}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_snippets_of_a_page_pass(pytester: pytest.Pytester, page: str) -> None:
    files = {f"{name}.py": IMPORTS + block for name, block in snippets(page).items()}
    assert files
    for name, source in files.items():
        (pytester.path / name).write_text(source, encoding="utf-8")
    done = pytester.runpytest_subprocess("--strict-markers", "-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist")
    done.assert_outcomes(passed=len(files))
