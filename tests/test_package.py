"""The package's description on an index such as PyPI, and the needs of a fresh clone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DECLARED: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()
REPOSITORY = "https://github.com/pykclient/pykclient"


def test_first_block_of_the_readme_installs() -> None:
    first_block = README.split("```")[1]
    assert first_block.split("\n")[1] == "pip install 'pykclient[cli]'"  # with the command for those without a broker


def test_links_work_outside_the_repository() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 5
    for link in links:
        assert link.startswith("https://"), link
        if match := re.fullmatch(rf"{REPOSITORY}/(?:blob|tree)/main/([^#]+)(#.*)?", link):
            assert (ROOT / match[1]).exists(), link


def test_urls_point_to_the_site_and_repository_files() -> None:
    urls = dict(DECLARED["project"]["urls"])
    assert {"Homepage", "Documentation", "Changelog", "Issues", "Source"} == urls.keys()
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [urls.pop("Documentation")] == re.findall(r"^site_url: (\S+)$", settings, re.MULTILINE)
    for url in urls.values():
        assert url.startswith(REPOSITORY)
        if match := re.fullmatch(rf"{REPOSITORY}/(?:blob|tree)/main/(.+)", url):
            assert (ROOT / match[1]).exists(), url


def test_changelog_has_this_version() -> None:
    assert f"## {DECLARED['project']['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_development_tools_are_not_an_extra() -> None:
    groups = DECLARED["dependency-groups"]
    assert {"include-group": "quick"} in groups["dev"]
    assert "pytest" in " ".join(groups["quick"])
    assert "dev" not in DECLARED["project"]["optional-dependencies"]
