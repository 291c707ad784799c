"""A hook of mkdocs: links lead to pages or to the repository, and the search prefers guides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.utils import get_relative_url

_ROOT = Path(__file__).resolve().parents[1]
_REPOSITORY = "https://github.com/pykclient/pykclient/blob/main/"

#: Pages that are looked up, not read: long tables whose words would outweigh the guides' in the search.
_LOOKED_UP = (
    "api/",
    "architecture",
    "changelog",
    "configuration",
    "kips",
    "metrics",
    "performance/",
    "protocol",
    "semantics",
    "verification",
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with links that lead somewhere; tell the search how much the page weighs.

    A page that is only a file of the repository becomes its text, with its links as seen from ``docs/``.
    """
    page.meta.setdefault("search", {"boost": 1 if page.file.src_uri.startswith(_LOOKED_UP) else 3})
    if file := re.fullmatch(r'--8<-- "(\w+\.md)"\s*', markdown):
        text = (_ROOT / file[1]).read_text(encoding="utf-8")
        markdown = re.sub(r"\]\((?!https?:|#)(?:docs/)?([^)\s]+)\)", _as_seen_from_docs, text)
    return re.sub(r"\]\((?:\.\./)+(?!docs/)([^)\s]+)\)", rf"]({_REPOSITORY}\1)", markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Return the HTML of a page, in which names of errors lead to the page of errors."""
    errors = get_relative_url("api/errors/", page.url)
    return re.sub(
        r'<autoref[^>]* identifier="pykclient\.errors\.(\w+)"[^>]*>(.*?)</autoref>',
        rf'<a href="{errors}#\1">\2</a>',
        html,
    )


def _as_seen_from_docs(link: re.Match[str]) -> str:
    """Return the link of a file in the repository's root: to a page of the site, or else to a file beside ``docs/``."""
    target = "changelog.md" if link[1] == "CHANGELOG.md" else link[1]
    return f"]({target})" if (_ROOT / "docs" / target.partition("#")[0]).exists() else f"](../{target})"
