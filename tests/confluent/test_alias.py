"""Programs for other clients run on this package by ``pykclient.alias``, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from pykclient import alias

_PROGRAM = """
import sys
import confluent_kafka, aiokafka, kafka
from confluent_kafka import Producer, KafkaError
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.serialization import StringSerializer
from confluent_kafka.serializing_producer import SerializingProducer
from confluent_kafka.error import ConsumeError
import confluent_kafka.cimpl
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.client import NewTopic as AioNewTopic
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaConnectionError
from aiokafka.helpers import create_ssl_context
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.producer import _missing
from aiokafka.structs import TopicPartition
from kafka.errors import NoBrokersAvailable
from kafka.admin import KafkaAdminClient
from kafka.sasl.oauth import AbstractTokenProvider
found = [Producer, AdminClient, SerializingProducer, ClusterMetadata, aiokafka.AIOKafkaProducer, AIOKafkaAdminClient,
         AbstractPartitionAssignor, AbstractTokenProvider, kafka.KafkaProducer, KafkaAdminClient, DefaultPartitioner]
assert all(each.__module__.startswith("pykclient.") for each in found), found
assert confluent_kafka.admin.AdminClient is AdminClient
assert aiokafka.__version__.split(".") > ["0", "1"]
try:
    import confluent_kafka.nothing_of_this_name
except ModuleNotFoundError as error:
    assert error.name == "confluent_kafka.nothing_of_this_name"
else:
    raise AssertionError("found")
print(__name__, sys.argv[1:])
"""


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "pykclient.alias", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


#: Starts Pythons in the ways in which frameworks start their workers.
_PARENT = """
import multiprocessing, subprocess, sys

def tell():
    import aiokafka
    print(aiokafka.AIOKafkaProducer.__module__.partition(".")[0], flush=True)

if __name__ == "__main__":
    tell()
    process = multiprocessing.get_context("spawn").Process(target=tell)
    process.start()
    process.join(60)
    subprocess.run([sys.executable, "-c", "import program; program.tell()"], check=True)
"""


def _start(*arguments: str, folder: Path, python: str = sys.executable, **environment: str) -> str:
    """Run Python; return what it printed."""
    done = subprocess.run(
        [python, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(_PROGRAM)
    return path


def test_program_runs_unchanged_with_its_arguments(program: Path) -> None:
    done = _run("confluent_kafka", "aiokafka", "kafka", "--", str(program), "--port", "80")
    assert (done.returncode, done.stdout) == (0, "__main__ ['--port', '80']\n"), done.stderr


def test_names_come_from_the_environment_variable(program: Path) -> None:
    done = _run("--", str(program), PYKCLIENT_ALIAS="confluent_kafka, aiokafka,kafka")
    assert done.returncode == 0, done.stderr


def test_module_runs_unchanged() -> None:
    done = _run("aiokafka", "--", "-m", "json.tool", "--help")
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout


@pytest.mark.parametrize(
    "arguments", [(), ("aiokafka",), ("--", "x.py"), ("aiokafka", "--"), ("nothing", "--", "x.py")]
)
def test_wrong_command_line_prints_the_usage(arguments: tuple[str, ...]) -> None:
    done = _run(*arguments, PYKCLIENT_ALIAS="")
    assert done.returncode == 2
    assert "usage: python -m pykclient.alias" in done.stderr


def test_alias_of_an_unknown_or_imported_package_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no alias for 'nothing'"):
        alias.install("nothing")
    import confluent_kafka  # noqa: F401 - the point is that it is loaded

    with pytest.raises(ImportError, match="imported already"):
        alias.install("confluent_kafka")


def test_every_module_of_the_table_exists() -> None:
    missing = [name for name in alias._MODULES if alias.target_of(name) is None]
    assert set(missing) <= {"confluent_kafka.schema_registry"}


def test_alias_holds_for_processes_that_the_program_starts(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PARENT)
    output = _start("-m", "pykclient.alias", "aiokafka", "--", "program.py", folder=tmp_path)
    assert output == "pykclient\n" * 3


def test_variables_alone_install_the_alias(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PARENT)
    output = _start("program.py", folder=tmp_path, PYKCLIENT_ALIAS="aiokafka", PYTHONPATH=alias.STARTUP_FOLDER)
    assert output == "pykclient\n" * 3
    pytest.importorskip("aiokafka")
    assert _start("program.py", folder=tmp_path, PYKCLIENT_ALIAS="aiokafka") == "aiokafka\n" * 3


def test_startup_folder_leaves_no_trace_without_the_variable(tmp_path: Path) -> None:
    code = "import sys; print(any(each.startswith('pykclient') for each in sys.modules), sys.path[0])"
    (tmp_path / "program.py").write_text(code)
    output = _start("program.py", folder=tmp_path, PYKCLIENT_ALIAS="", PYTHONPATH=alias.STARTUP_FOLDER)
    assert output == f"False {tmp_path}\n"


def test_sitecustomize_of_the_program_runs_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import aiokafka; print(__name__, aiokafka.__name__)")
    (tmp_path / "program.py").write_text("import sys; print(sys.modules['sitecustomize'].__file__)")
    output = _start(
        "program.py",
        folder=tmp_path,
        PYKCLIENT_ALIAS="aiokafka",
        PYTHONPATH=os.pathsep.join((alias.STARTUP_FOLDER, str(tmp_path))),
    )
    assert output == f"sitecustomize pykclient.aio\n{tmp_path / 'sitecustomize.py'}\n"


def test_python_without_pykclient_starts_as_before(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    output = _start(
        "-c",
        "import sys; print('pykclient' in sys.modules)",
        folder=tmp_path,
        python=str(tmp_path / "env" / "bin" / "python"),
        PYKCLIENT_ALIAS="aiokafka",
        PYTHONPATH=alias.STARTUP_FOLDER,
    )
    assert output == "False\n"


def test_command_keeps_the_path_that_was_set(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os; print(os.environ['PYTHONPATH'], os.environ['PYKCLIENT_ALIAS'])")
    path = os.pathsep.join((alias.STARTUP_FOLDER, str(tmp_path)))
    for given in (str(tmp_path), path):
        output = _start(
            "-m", "pykclient.alias", "aiokafka", "kafka", "--", "program.py", folder=tmp_path, PYTHONPATH=given
        )
        assert output == f"{path} aiokafka,kafka\n"


def test_protobuf_file_of_confluent_is_that_of_the_real_package() -> None:
    pytest.importorskip("google.protobuf")
    code = """
from pykclient.schema_registry import confluent_pb2
from google.protobuf.descriptor_pb2 import FieldOptions
options = FieldOptions()
options.Extensions[confluent_pb2.field_meta].tags.append("PII")
import confluent_kafka.schema_registry.confluent.meta_pb2 as theirs
assert options.Extensions[theirs.field_meta].tags == ["PII"] and confluent_pb2.Decimal(scale=1).scale == 1
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)
