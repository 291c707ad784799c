"""The source keeps what docs/architecture.md promises: layers, sizes, and where sockets and clocks may be used."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "pykclient"
GENERATED = SOURCE / "protocol" / "messages"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if GENERATED not in path.parents)
PACKAGES = sorted(path.parent for path in MODULES if path.name == "__init__.py")
NAMES = [path.relative_to(SOURCE).as_posix() for path in MODULES]

#: Lines of a module besides its docstrings, which may be as long as users need them to be.
LONGEST_MODULE = 1200
LONGEST_FUNCTION = 90

#: Only these modules use the operating system's network; the layers above decide on bytes and a given time.
SOCKET_MODULES = {
    "cli/doctor.py",
    "cli/writing.py",  # waits for a pipe or a terminal
    "network/channel_builders.py",
    "network/host_resolver.py",
    "network/kafka_channel.py",
    "network/selector.py",
    "network/transport_layer.py",
    "network/tls/ssl_transport_layer.py",
    "testing/server/listener_channel_builder.py",
    "testing/server/socket_server.py",
}
#: Packages without any I/O: no socket, no thread, no clock.
PURE_PACKAGES = ("config/", "protocol/", "record/")
#: Modules that decide what to send, and leave all waiting to a driver.
DECIDERS = {
    "admin/access.py",
    "admin/admin_calls.py",
    "admin/api.py",
    "admin/cluster.py",
    "admin/configs.py",
    "admin/group_offsets.py",
    "admin/groups.py",
    "admin/partitions.py",
    "admin/topics.py",
    "admin/transactions.py",
    "consumer/consumer_delegate.py",
    "consumer/coordinator/classic_rebalance.py",
    "consumer/coordinator/commit_request_manager.py",
    "consumer/coordinator/consumer_membership.py",
    "consumer/coordinator/consumer_rebalance.py",
    "consumer/coordinator/coordinator_request_manager.py",
    "consumer/coordinator/classic_membership.py",
    "consumer/fetch_request_manager.py",
    "consumer/offsets_request_manager.py",
    "consumer/share/acknowledgements.py",
    "consumer/share/share_consume_request_manager.py",
    "consumer/share/share_consumer.py",
    "consumer/share/share_coordinator.py",
    "consumer/consumer_metadata.py",
    "producer/batch_register.py",
    "producer/produce_requests.py",
    "producer/sender.py",
    "producer/transactions/producer_id_manager.py",
    "producer/transactions/transaction_state.py",
}
#: Calls that only look like waits.
DECIDING = {
    "call.poll",
    "commit.poll",
    "manager.poll",
    "self.heartbeat.poll",
    "self._coordinator.poll",
    "self._sole_reader.poll",
}
#: Calls that wait, whatever they are called on.
WAITING = {
    "acquire",
    "await_",
    "await_metadata_update",
    "ensure_coordinator_ready",
    "join",
    "poll",
    "poll_background",
    "recv",
    "result",
    "run_until",
    "select",
    "sleep",
    "sleep_ms",
    "step",
    "wait",
    "wait_for_signal",
}
#: The waits of KafkaConsumer's thread, which a consumer on an event loop must not use.
THREAD_WAITS = {"poll_background", "result", "run_until", "transmit"}
#: Calls of ``poll`` in the clients for asyncio: one does the I/O that is due, the others decide what to send.
LOOP_POLLS = {"selector.poll", "self._client.managers.poll", "consumer.consumer.poll"}
#: The only state that all producers of a process share.
MAY_LOCK = {"record/compression.py"}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(module: ast.Module) -> Iterator[str]:
    """Yield the top-level names of all modules that a module imports, anywhere in it."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def docstring_lines(module: ast.Module) -> int:
    """Return how many lines the docstrings of a module take."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(module) if isinstance(node, documented) and ast.get_docstring(node) is not None]
    return sum((node.body[0].end_lineno or 0) - node.body[0].lineno + 1 for node in nodes)


def test_imports_point_only_downwards() -> None:
    pytest.importorskip("importlinter")
    # In a process of its own, because import-linter disables the loggers of its process.
    code = "import sys; from importlinter import cli; sys.exit(cli.lint_imports(cache_dir=None))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_module_follows_the_house_rules(path: Path) -> None:
    name = path.relative_to(SOURCE).as_posix()
    text, module = path.read_text(encoding="utf-8"), tree(path)
    assert ast.get_docstring(module), "a module says what it is"
    if path.name != "__init__.py":
        assert "from __future__ import annotations" in text
    lines = text.count("\n") - docstring_lines(module)
    assert lines <= LONGEST_MODULE, f"{lines} lines besides docstrings"
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= LONGEST_FUNCTION, f"{node.name} has {lines} lines"
    imports = set(imported(module))
    if name not in SOCKET_MODULES:
        assert not imports & {"select", "selectors", "socket"}
    if name not in {"clock.py", "system_time.py"}:
        assert "time" not in imports, "take a Clock"
    if name.startswith(PURE_PACKAGES) and name not in MAY_LOCK:
        assert not imports & {"threading", "queue", "asyncio", "multiprocessing"}
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text)


@pytest.mark.parametrize("path", PACKAGES, ids=[path.relative_to(SOURCE).as_posix() for path in PACKAGES])
def test_package_docstring_lists_modules_that_exist(path: Path) -> None:
    listed = re.findall(r"^- (?:.|\n  )*", ast.get_docstring(tree(path / "__init__.py")) or "", re.MULTILINE)
    named = {name for line in listed for name in re.findall(r"``(\w+)``", line)}
    assert named, "the docstring says what is where"
    assert {name for name in named if not (path / f"{name}.py").exists() and not (path / name).is_dir()} == set()


@pytest.mark.parametrize("name", sorted(DECIDERS))
def test_nonblocking_modules_call_nothing_that_waits(name: str) -> None:
    module = tree(SOURCE / name)
    called = {
        node.func.attr
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and not isinstance(node.func.value, ast.Constant)  # ``", ".join(...)``
        and ast.unparse(node.func) not in DECIDING
    }
    assert not called & WAITING
    assert not set(imported(module)) & {"asyncio", "queue", "select", "selectors", "socket", "time"}


@pytest.mark.parametrize("path", sorted((SOURCE / "aio").glob("*.py")), ids=lambda path: path.name)
def test_asyncio_clients_never_block_the_loop(path: Path) -> None:
    module = tree(path)
    assert not set(imported(module)) & {"concurrent", "multiprocessing", "queue", "threading"}
    awaited = {node.value for node in ast.walk(module) if isinstance(node, ast.Await)}
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            assert name not in {"run_in_executor", "sleep", "sleep_ms", "to_thread"}, f"{name} in line {node.lineno}"
            if name in {"acquire", "await_", "wait"}:
                assert node in awaited, f"{name} in line {node.lineno} blocks"
            assert name not in THREAD_WAITS, f"{name} in line {node.lineno} blocks"
            assert name != "poll" or ast.unparse(node.func) in LOOP_POLLS, f"poll in line {node.lineno}"
    names = {alias.name for node in ast.walk(module) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert not names & {"ApplicationDriver", "HeartbeatThread"}


def module_name(path: Path) -> str:
    """Return the name that ``path`` is imported by."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, modules: set[str]) -> Iterator[str]:
    """Yield those of ``modules`` that a module imports, or imports names from, anywhere in it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield from (module if module in modules else node.module for module in inner.values())


def test_modules_have_no_import_cycles() -> None:
    """Imports for type checkers count: a circle of modules can only be read as one."""
    paths = {module_name(path): path for path in SOURCE.rglob("*.py")}
    graph = {name: set(imports_of(path, set(paths))) - {name} for name, path in paths.items()}
    graphlib.TopologicalSorter(graph).prepare()  # or CycleError


def test_importing_the_package_loads_almost_nothing() -> None:
    heavy = "{'asyncio', 'dataclasses', 'logging', 'pyarrow', 'socket', 'ssl', 'typing_extensions', 'zstandard'}"
    program = f"import sys; before = set(sys.modules); import pykclient; print(({heavy} & set(sys.modules)) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
