"""The documentation refers only to files, headings and tests that exist."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import itertools
import re
import tomllib
from pathlib import Path

import pytest

from pykclient import __version__, errors

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SEMANTICS = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes from a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_point_to_existing_pages(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target


def test_tests_named_in_the_semantics_exist() -> None:
    table = SEMANTICS.split("## The tests behind each statement")[1]
    rows = re.findall(r"^\| .* \| (`.*) \|$", table, re.MULTILINE)
    assert len(rows) > 30
    for row in rows:
        text = ""
        for item in re.findall(r"`([^`]+)`", row):
            names_a_test = "::" in item or item.startswith(("test_", "Test"))
            path, _, name = item.rpartition("::") if names_a_test else (item, "", "")
            if path:
                text = (ROOT / "tests" / path).read_text(encoding="utf-8")
            assert re.search(rf"(def|class) {name}\b" if name else "", text), item


def test_semantics_text_names_no_tests() -> None:
    assert "test_" not in SEMANTICS.split("## The tests behind each statement")[0]


def test_picture_of_the_layers_shows_them_in_their_order() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = text.split("## Layers")[1].split("```mermaid\n")[1].split("```")[0]
    groups = dict(re.findall(r"subgraph (\w+).*?\n\s+(.+)\n", picture))
    order = [groups.get(name, name) for name in re.findall(r"\w+", picture.splitlines()[-1])]
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = [found["layers"] for found in contracts if found["containers"] == ["pykclient"]]
    height = {name: number for number, layer in enumerate(layers) for name in re.findall(r"\w+", layer)}
    rows = [[height[name] for name in re.findall(r"\w+", row)] for row in order]
    assert len(rows) == 8
    assert all(max(above) < min(below) for above, below in itertools.pairwise(rows))


def test_versions_of_new_names_are_valid() -> None:
    """``New in 0.2.`` in a docstring is a line of its own, which tools/docs_docstrings.py renders."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    found = {tuple(map(int, it.split("."))) for text in texts for it in re.findall(r"\bNew in (\d+\.\d+)\b", text)}
    whole = {
        tuple(map(int, it.split("."))) for text in texts for it in re.findall(r"^ +New in (\d+\.\d+)\.$", text, re.M)
    }
    assert found == whole
    assert all((0, 1) < version <= tuple(map(int, __version__.split(".")[:2])) for version in found)


def test_docstring_markup_becomes_markdown() -> None:
    pytest.importorskip("griffe")
    spec = importlib.util.spec_from_file_location("docs_docstrings", ROOT / "tools" / "docs_docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.markdown_of("Seek::\n\n    x\n\nNew in 0.2.\n") == "Seek:\n\n    x\n\n**New in 0.2**\n"


#: Errors of other packages that docstrings name.
FOREIGN_ERRORS = {"Abort", "SSLError", "UnsupportedOperation", "UsageError"}


def test_errors_named_in_docstrings_exist() -> None:
    """Each name under ``Raises:`` is a class of the package, a name of its error modules, or a built-in error."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")}
    known = {*vars(builtins), *FOREIGN_ERRORS}
    known |= {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    unknown = [
        f"{path.name}:{node.lineno}: {name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, documented)
        for section in re.findall(r"^Raises:\n((?:[ \t]+.*\n?|\n)+)", ast.get_docstring(node) or "", re.MULTILINE)
        for names in re.findall(r"^    (\w+(?:, \w+)*):", section, re.MULTILINE)
        for name in names.split(", ")
        if name not in known and not hasattr(errors, name)
    ]
    assert not unknown
