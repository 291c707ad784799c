"""Every small fault that a module could have, found in its syntax tree."""

from __future__ import annotations

import ast
import bisect
import io
import random
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parents[2] / "src" / "pykclient"

#: Packages that decide what a client does.
AREAS = ("consumer", "network", "producer", "record")

#: Modules without decisions: names and values of metrics.
_WITHOUT_DECISIONS = ("__init__", "metrics")

#: Functions whose results only people read.
_DESCRIPTIONS = frozenset(("__repr__", "__str__", "describe"))

_SHIFTED: dict[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_WRITTEN: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}

_OPERATORS = frozenset(("and", "or", *_WRITTEN.values()))

_SIMPLE_STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)

NEGATED = "condition negated"
DELETED = "statement deleted"
SHIFTED = "bound shifted"
FLIPPED = "boolean flipped"
SWAPPED = "and/or swapped"
DROPPED = "return value dropped"


class Mutation(NamedTuple):
    """One fault: the bytes from ``start`` to ``end`` of a module are replaced."""

    module: str  # under src/pykclient, without .py
    function: str  # its qualified name
    line: int
    kind: str
    start: int
    end: int
    replacement: str
    #: The faulty code, or the deleted statement, on one line: names the fault even when the lines around it change.
    code: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.kind, self.code

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement.encode() + source[self.end :]

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.kind}: {self.code}"


def modules(areas: Sequence[str] = AREAS) -> list[str]:
    """Return the modules that decide, in alphabetical order."""
    found = (path for area in areas for path in (SOURCES / area).rglob("*.py"))
    names = (str(path.relative_to(SOURCES).with_suffix("")) for path in found)
    return sorted(name for name in names if not name.rsplit("/", 1)[-1].endswith(_WITHOUT_DECISIONS))


def draw(seed: int, count: int, areas: Sequence[str] = AREAS) -> list[Mutation]:
    """Return ``count`` mutations of the deciding modules; the same seed and sources give the same ones."""
    every = [mutation for module in modules(areas) for mutation in mutations_of(module)]
    return random.Random(seed).sample(every, min(count, len(every)))


def mutations_of(module: str) -> list[Mutation]:
    """Return all mutations of a module under src/pykclient."""
    return list(_Finder(module, (SOURCES / f"{module}.py").read_bytes()).find())


class _Finder:
    """Walks over the functions of one module. Thread: owner."""

    def __init__(self, module: str, source: bytes) -> None:
        self._module = module
        self._source = source
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        #: Where operators are: comments between operands may have the same words.
        self._operators: dict[str, list[int]] = {}
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.string in _OPERATORS and token.type in (tokenize.OP, tokenize.NAME):
                column = len(token.line[: token.start[1]].encode())
                self._operators.setdefault(token.string, []).append(self._offset(token.start[0], column))

    def find(self) -> Iterator[Mutation]:
        yield from self._in_scope(ast.parse(self._source), "")

    def _in_scope(self, scope: ast.AST, prefix: str) -> Iterator[Mutation]:
        """Look for functions; what a module or a class does when it is loaded shows at once."""
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, ast.ClassDef):
                yield from self._in_scope(node, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef) and node.name not in _DESCRIPTIONS:
                for statement in node.body:
                    yield from self._in(statement, f"{prefix}{node.name}")

    def _in(self, node: ast.AST, function: str) -> Iterator[Mutation]:
        if isinstance(node, ast.ClassDef | ast.AnnAssign | ast.Assert | ast.Import | ast.ImportFrom):
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from self._in(node.value, function)
            return
        if _is_for_people(node):
            return
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
            body = node.body if isinstance(node.body, list) else [node.body]
            for statement in body:
                yield from self._in(statement, f"{function}.{name}")
            return
        yield from self._at(node, function)
        if isinstance(node, ast.Raise):
            return  # what it says is for people
        for child in ast.iter_child_nodes(node):
            yield from self._in(child, function)

    def _at(self, node: ast.AST, function: str) -> Iterator[Mutation]:
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield self._replace(NEGATED, node.test, f"not ({self._text(node.test)})", function)
        if isinstance(node, _SIMPLE_STATEMENTS) and _can_be_missing(node):
            yield self._replace(DELETED, node, "pass", function)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SHIFTED:
            yield self._operator(SHIFTED, node.left, node.comparators[0], node.ops[0], function)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool):
                yield self._replace(FLIPPED, node, str(not node.value), function)
            elif isinstance(node.value, int):
                yield self._replace(SHIFTED, node, f"({self._text(node)} + 1)", function)
        if isinstance(node, ast.BoolOp):
            yield self._swapped(node, function)
        if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield self._replace(DROPPED, node, "return None", function)

    # --- source text -------------------------------------------------------------------------------------------------

    def _offset(self, line: int, column: int) -> int:
        return self._line_starts[line - 1] + column

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _replace(self, kind: str, node: ast.expr | ast.stmt, replacement: str, function: str) -> Mutation:
        start, end = self._span(node)
        return self._mutation(kind, node.lineno, start, end, replacement, function)

    def _mutation(self, kind: str, line: int, start: int, end: int, replacement: str, function: str) -> Mutation:
        if kind in (DELETED, DROPPED):
            code = self._source[start:end].decode()
        else:
            first, last = self._line_starts[line - 1], self._source.find(b"\n", end)
            code = self._source[first:start].decode() + replacement + self._source[end:last].decode()
        return Mutation(self._module, function, line, kind, start, end, replacement, " ".join(code.split()))

    def _operator(self, kind: str, left: ast.expr, right: ast.expr, op: ast.cmpop, function: str) -> Mutation:
        written = _WRITTEN[type(op)]
        at = self._operator_between(written, left, right)
        return self._mutation(kind, left.lineno, at, at + len(written), _SHIFTED[type(op)], function)

    def _operator_between(self, operator: str, left: ast.expr, right: ast.expr) -> int:
        offsets = self._operators[operator]
        at = offsets[bisect.bisect_left(offsets, self._span(left)[1])]
        assert at < self._span(right)[0]
        return at

    def _swapped(self, node: ast.BoolOp, function: str) -> Mutation:
        """One operator for the other, between all operands."""
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        start, end = self._span(node)
        parts: list[bytes] = []
        at = start
        for left, right in zip(node.values, node.values[1:], strict=False):
            operator = self._operator_between(before, left, right)
            parts += [self._source[at:operator], after.encode()]
            at = operator + len(before)
        replacement = b"".join([b"(", *parts, self._source[at:end], b")"])
        return self._mutation(SWAPPED, node.lineno, start, end, replacement.decode(), function)


def _is_for_people(node: ast.AST) -> bool:
    """True for docstrings, logging and formatted text, of whose parts Python 3.11 does not know the places."""
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.If):
        return "isEnabledFor" in ast.dump(node.test)
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return True
    call = node.value
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name | ast.Attribute)
        and ast.unparse(call.func.value).rsplit(".", 1)[-1].lstrip("_") in ("log", "logger", "warnings")
    )


def _can_be_missing(node: ast.stmt) -> bool:
    """False for what a function cannot run without: the first value of a local name."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return True


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
