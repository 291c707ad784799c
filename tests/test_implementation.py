"""The choice of the implementation and how it is reported. Each test uses its own process: the choice is made once."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pykclient import implementation

ROOT = Path(__file__).resolve().parents[1]
COMPILED = sorted((ROOT / "src" / "pykclient").rglob("_*.pyx"))
IS_BUILT = find_spec("pykclient._consumer_record") is not None

#: Pure Python, as after an installation without a compiler.
NOT_BUILT = """
import sys
class NotBuilt:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("pykclient.") and name.rpartition(".")[2].startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NotBuilt())
"""
NAME = "from pykclient import implementation; print(implementation.NAME)"
NAMES_OF_WHAT_RUNS = """
from pykclient import implementation
from pykclient.record import default_record
chosen = default_record.summarize_records, default_record.decode_batches
print(implementation.NAME, *(implementation.python_form(each) is not each for each in chosen))
"""


def run(code: str, wanted: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYKCLIENT_IMPL"}
    if wanted is not None:
        environment["PYKCLIENT_IMPL"] = wanted
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_compiled_implementation_is_built_where_tests_run() -> None:
    assert IS_BUILT, "make test builds it; without make: pip install --editable ."


@pytest.mark.parametrize(
    ("wanted", "runs"),
    [
        (None, "c True True"),
        ("", "c True True"),
        ("c", "c True True"),
        ("python", "python False False"),
    ],
)
def test_environment_selects_the_implementation(wanted: str | None, runs: str) -> None:
    done = run(NAMES_OF_WHAT_RUNS, wanted)
    assert (done.stdout.strip(), done.stderr) == (runs, "")


@pytest.mark.parametrize("wanted", [None, "python"])
def test_python_runs_without_a_build(wanted: str | None) -> None:
    done = run(NOT_BUILT + NAMES_OF_WHAT_RUNS, wanted)
    assert (done.stdout.strip(), done.stderr) == ("python False False", "")


def test_forced_implementation_that_was_not_built_says_how_to_build() -> None:
    done = run(NOT_BUILT + NAME, "c")
    assert done.returncode
    error = done.stderr.strip().splitlines()[-1]
    assert error.startswith("ImportError: PYKCLIENT_IMPL=c, but the compiled modules cannot be imported (No module")
    assert "pip install" in error


def test_unknown_implementation_is_refused() -> None:
    done = run(NAME, "nonsense")
    assert done.returncode
    assert done.stderr.strip().endswith(
        "ImportError: PYKCLIENT_IMPL='nonsense' is unknown; set it to 'python' or 'c', or leave it unset"
    )


def test_each_compiled_module_is_optional() -> None:
    """Each compiled module is optional by itself."""
    missing = (
        "import pykclient.clock; from pykclient.implementation import use_compiled; use_compiled('pykclient.clock')"
    )
    assert not run(missing, None).returncode
    assert "No module named 'pykclient._clock'" in run(missing, "c").stderr


@pytest.mark.parametrize("wanted", ["c", "python"])
def test_version_command_shows_the_implementation(wanted: str) -> None:
    code = "import sys; from pykclient.cli.main import main; main(['--version'])"
    assert run(code, wanted).stdout.rstrip().endswith(f"({wanted})")


@pytest.mark.parametrize(
    ("before", "wanted", "line"),
    [
        ("", None, "Running the implementation in C: it was built"),
        ("", "python", "Running the implementation in Python: PYKCLIENT_IMPL says so"),
        (
            NOT_BUILT,
            None,
            "Running in pure Python, which is several times slower than the compiled core: the comp",
        ),
        (NOT_BUILT, "python", "Running the implementation in Python: PYKCLIENT_IMPL says so"),
    ],
    ids=["c", "python", "not built", "not built and not wanted"],
)
def test_clients_log_the_implementation_once(before: str, wanted: str | None, line: str) -> None:
    clients = """
import logging
logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(message)s")
from pykclient import KafkaConsumer, KafkaProducer
with KafkaProducer(bootstrap_servers="127.0.0.1:1"), KafkaConsumer(bootstrap_servers="127.0.0.1:1"):
    pass
"""
    said = [each for each in run(before + clients, wanted).stderr.splitlines() if "Running " in each]
    assert len(said) == 1
    assert said[0].startswith("WARNING " if "slower" in line else "DEBUG ")
    assert line in said[0]


def test_process_runs_the_implementation_of_the_environment() -> None:
    assert (os.environ.get("PYKCLIENT_IMPL") or "c") == implementation.NAME


def test_stubs_match_the_compiled_modules() -> None:
    """stubtest imports the compiled modules, and compares them with their stubs: with their Python forms."""
    pytest.importorskip("mypy")
    modules = sorted(map(module_name, (ROOT / "src").rglob("*.pyi")))
    command = [sys.executable, "-m", "mypy.stubtest", "--mypy-config-file", "pyproject.toml", "--concise"]
    # Cython's own names have no stub, and whether another class may be a second base matters to nobody.
    command += ["--ignore-missing-stub", "--ignore-disjoint-bases", *modules]
    # Compiled modules are incomplete without their Python modules, which must not replace anything here.
    environment = {**os.environ, "PYKCLIENT_IMPL": "python"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


@pytest.mark.parametrize("path", COMPILED, ids=module_name)
def test_python_module_uses_its_compiled_form(path: Path) -> None:
    """Its stub names what the compiled form replaces, and takes the signatures from the Python form."""
    python = path.with_name(f"{path.stem[1:]}.py")
    _, found, after = python.read_text(encoding="utf-8").partition("\n\n\nuse_compiled(__name__)\n")
    assert found
    heirs = ast.parse(after).body  # anything else would not be complete when the compiled form is imported
    assert all(isinstance(node, ast.ClassDef) and node.bases for node in heirs)
    module = import_module(module_name(python))
    stub = path.with_suffix(".pyi")
    imports = ast.parse(stub.read_text(encoding="utf-8")).body if stub.exists() else []
    assert all(isinstance(node, ast.ImportFrom) and node.module == module.__name__ for node in imports)
    if implementation.NAME == "c":
        compiled = vars(import_module(module_name(path)))
        replaced = {name for name, each in vars(module).items() if each is compiled.get(name) and is_replaced(each)}
        assert replaced == {name.name for node in imports if isinstance(node, ast.ImportFrom) for name in node.names}
        classes = [each for name, each in vars(module).items() if name in compiled and isinstance(each, type)]
        assert replaced or any(is_replaced(method) for each in classes for method in vars(each).values())


def is_replaced(each: Any) -> bool:
    return any(each is chosen for chosen in implementation._python_forms)


def test_compiled_module_cannot_be_imported_first() -> None:
    done = run("import pykclient.record._lines; import pykclient.record.lines", "c")
    error = (
        "ImportError: import pykclient.record.lines before pykclient.record._lines, which is not complete without it"
    )
    assert done.stderr.strip().splitlines()[-1] == error


@pytest.mark.skipif(not IS_BUILT, reason="there is nothing compiled")
def test_interrupted_import_can_be_repeated() -> None:
    """A handler may raise right after the compiled form was imported, and then the module itself was not."""
    done = run(
        """
import sys
from pykclient import implementation

def interrupted(name):
    found = import_module(name)
    if name == "pykclient.record._default_record":
        raise KeyboardInterrupt
    return found

import_module, implementation.import_module = implementation.import_module, interrupted
try:
    import pykclient.record.default_record
except KeyboardInterrupt:
    print("pykclient.record.default_record" in sys.modules)
implementation.import_module = import_module
from pykclient.record.default_record import decode_batches
print(decode_batches.__class__.__name__)
""",
        "c",
    )
    assert done.stdout.split() == ["False", "cython_function_or_method"], done.stderr


def test_compiled_and_python_forms_share_names_and_parameters() -> None:
    for path in COMPILED:
        import_module(module_name(path.with_name(path.stem[1:])))
    twins = implementation._python_forms
    assert bool(twins) == (implementation.NAME == "c")
    for chosen, python in twins.items():
        assert implementation.python_form(chosen) is python
        assert chosen.__name__ == python.__name__
        if inspect.isfunction(python):
            assert list(inspect.signature(chosen).parameters) == list(inspect.signature(python).parameters)
