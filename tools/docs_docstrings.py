"""An extension of mkdocstrings: reads the ``::`` that introduces an indented block in docstrings as a colon."""

from __future__ import annotations

import re
from typing import Any

import griffe


class LiteralBlocks(griffe.Extension):
    """Makes reStructuredText's literal blocks Markdown's indented ones."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace ``::`` at the end of a line."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"::$", ":", obj.docstring.value, flags=re.MULTILINE)
