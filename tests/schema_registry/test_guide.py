"""The code of docs/schemas.md runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pykclient.testing import EmbeddedCluster
from pykclient.testing.schema_registry import EmbeddedSchemaRegistry

GUIDE = Path(__file__).parents[2] / "docs" / "schemas.md"


def test_guide_to_schemas_runs(pykclient_cluster: EmbeddedCluster, registry: EmbeddedSchemaRegistry) -> None:
    printed: list[tuple[Any, ...]] = []
    snippets = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) == 9
    for number, snippet in enumerate(snippets):
        code = snippet.replace("localhost:9092", pykclient_cluster.bootstrap_servers)
        code = code.replace("http://localhost:8081", registry.url)
        module: dict[str, Any] = {"__name__": f"guide{number}", "print": lambda *args: printed.append(args)}
        import sys
        import types

        made = types.ModuleType(module["__name__"])
        made.__dict__.update(module)
        sys.modules[made.__name__] = made  # dataclasses and type hints look it up
        try:
            exec(code, made.__dict__)
        finally:
            del sys.modules[made.__name__]
    assert str(printed[0][0]) == "Order(id=7, city='Ulm', note=None)"
    assert printed[1] == ([7, 8], 1)
    assert printed[2] == (["Ulm", "Bonn", None],)
    assert printed[3] == ([{"id": 7, "tags": ["new"]}],)
    assert printed[4] == ({"id": 1, "name": "Ada"},)
    assert printed[5] == ([503, 503, 200],)
