"""A hook of mkdocs: links to files outside of docs/ lead to the repository, and the search prefers guides."""

from __future__ import annotations

import re
from typing import Any

_REPOSITORY = "https://github.com/pykclient/pykclient/blob/main/"

#: Pages that are looked up, not read: long tables whose words would outweigh the guides' in the search.
_LOOKED_UP = ("api/", "architecture", "changelog", "configuration", "kips", "metrics", "performance/", "protocol")
_LOOKED_UP += ("semantics", "verification")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with its links to ``../`` made absolute; tell the search how much the page weighs."""
    page.meta.setdefault("search", {"boost": 1 if page.file.src_uri.startswith(_LOOKED_UP) else 3})
    return re.sub(r"\]\((?:\.\./)+(?!docs/)([^)\s]+)\)", rf"]({_REPOSITORY}\1)", markdown)
