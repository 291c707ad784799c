"""An extension of mkdocstrings: what docstrings say in a form of their own, in Markdown.

- ``::`` at the end of a line introduces an indented block: it becomes a colon.
- The line ``New in 0.2.`` names the version that a public name came with: it becomes a note in bold type.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class DocstringForms(griffe.Extension):
    """Makes the forms of docstrings Markdown's."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace the forms in the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = markdown_of(obj.docstring.value)


def markdown_of(docstring: str) -> str:
    """Return a docstring with its forms replaced."""
    text = re.sub(r"::$", ":", docstring, flags=re.MULTILINE)
    return re.sub(r"^New in (\d+\.\d+)\.$", r"**New in \1**", text, flags=re.MULTILINE)
