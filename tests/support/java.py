"""Runs small Java programs against Kafka's own classes, as oracles for the tests.

output = run_java(Path(__file__).with_name("RecordsOracle.java"), "write", "gzip", stdin=b"...")
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from tests.kafka import artifacts


class JavaError(AssertionError):
    """A Java program did not compile, failed or took too long."""


def run_java(
    source: Path,
    *args: str,
    stdin: bytes | None = None,
    timeout_s: float = 60.0,
    kafka_version: str = artifacts.KAFKA_VERSION,
) -> bytes:
    """Run ``source`` and return its stdout, compiling it first if needed.

    ``source`` is one file without a package, whose main class has the file's name. Kafka's jars are on the class path.
    Raises JavaError with the program's stderr.
    """
    command = java_command(source, *args, kafka_version=kafka_version)
    try:
        done = subprocess.run(command, input=stdin or b"", capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise JavaError(f"{source.name} took more than {timeout_s} s:\n{_tail(error.stderr or b'')}") from None
    if done.returncode:
        raise JavaError(f"{source.name} ended with code {done.returncode}:\n{_tail(done.stderr)}")
    return done.stdout


def java_command(source: Path, *args: str, kafka_version: str = artifacts.KAFKA_VERSION) -> list[str]:
    """Return the command that runs ``source``, which is compiled first if needed."""
    classes = compiled_classes(source, kafka_version)
    return [
        artifacts.java_tool(),
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Dfile.encoding=UTF-8"),
        *(artifacts.class_data() if kafka_version == artifacts.KAFKA_VERSION else ()),
        *("-cp", os.pathsep.join([_classpath(kafka_version), str(classes)])),
        source.stem,
        *args,
    ]


def _classpath(kafka_version: str) -> str:
    if kafka_version == artifacts.KAFKA_VERSION:
        return artifacts.classpath()
    return artifacts.old_classpath(kafka_version)


def compiled_classes(source: Path, kafka_version: str = artifacts.KAFKA_VERSION) -> Path:
    """Return the folder with the classes of ``source``, which is compiled once per content."""
    content = source.read_bytes()
    parts = [content, artifacts.java_version().encode(), kafka_version.encode()]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    classes = artifacts.cache_folder() / "java" / f"{source.stem}-{key}"
    if classes.is_dir():
        return classes
    with artifacts.locked(f"javac-{source.stem}"):
        if classes.is_dir():
            return classes
        classes.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=classes.parent, prefix="compiling-") as folder:
            made = Path(folder, "classes")
            command = [artifacts.java_tool("javac"), "-encoding", "UTF-8", "-nowarn", "-d", str(made)]
            command += ["-cp", _classpath(kafka_version), str(source)]
            done = subprocess.run(command, capture_output=True, timeout=300, check=False)
            if done.returncode:
                raise JavaError(f"{source.name} does not compile:\n{_tail(done.stderr + done.stdout)}")
            made.rename(classes)
    return classes


def _tail(output: bytes) -> str:
    return output.decode(errors="replace")[-8000:]
