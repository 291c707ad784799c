"""A hook of mkdocs: links from the pages to files outside of docs/ lead to the repository."""

from __future__ import annotations

import re
from typing import Any

_REPOSITORY = "https://github.com/pykclient/pykclient/blob/main/"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the text of a page with its links to ``../`` made absolute."""
    return re.sub(r"\]\((?:\.\./)+(?!docs/)([^)\s]+)\)", rf"]({_REPOSITORY}\1)", markdown)
