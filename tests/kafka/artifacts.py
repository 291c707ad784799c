"""Kafka's jars: fetched by Maven on first use and kept in the checkout's ``.cache`` folder.

``PYKCLIENT_TEST_CACHE`` names another cache folder, for instance one that several checkouts share.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

KAFKA_VERSION = "4.3.1"
JAVA_OLDEST = 17

HOW_TO_GET = (
    "install a JDK 17 or newer and Maven (Debian, Ubuntu: `apt install openjdk-17-jdk-headless maven`; "
    "macOS: `brew install openjdk maven`)"
)

_POM = Path(__file__).with_name("pom.xml")
_OLD_POM = Path(__file__).with_name("old-release-pom.xml")
_ROOT = Path(__file__).resolve().parents[2]


class MissingToolError(RuntimeError):
    """Java or Maven is missing or too old."""


def cache_folder() -> Path:
    """Return the folder of fetched and compiled files."""
    return Path(os.environ.get("PYKCLIENT_TEST_CACHE") or _ROOT / ".cache")


def java_tool(name: str = "java") -> str:
    """Return the path of ``java``, ``javac`` or another tool, from JAVA_HOME if set, else from PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=str(Path(home, "bin"))) if home else None
    found = found or shutil.which(name)
    if found is None:
        raise MissingToolError(f"{name} is not on PATH: {HOW_TO_GET}")
    return found


@functools.cache
def java_version() -> str:
    """Return the version that ``java -version`` prints, such as ``17.0.15``."""
    done = subprocess.run([java_tool(), "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'version "([^"]+)"', done.stderr)
    if found is None:
        raise MissingToolError(f"`java -version` failed: {done.stderr.strip() or done.returncode}; {HOW_TO_GET}")
    return found[1]


def missing() -> str | None:
    """Return why Kafka cannot run here, or None if it can."""
    try:
        java_tool("javac")
        if int(re.split(r"\D", java_version(), maxsplit=1)[0]) < JAVA_OLDEST:
            return f"Java {JAVA_OLDEST} or newer is needed, this is {java_version()}: {HOW_TO_GET}"
        if not _lib().is_dir():
            java_tool("mvn")
    except MissingToolError as error:
        return str(error)
    return None


def java_available() -> bool:
    """Return whether Java is available, and Maven or the jars that it fetched before."""
    return missing() is None


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep other processes from making the same cache entry at the same time."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with Path(folder, f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kafka_folder() -> Path:
    """Return the cache entry for this version of Kafka and this pom."""
    key = hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]
    return cache_folder() / "kafka" / f"{KAFKA_VERSION}-{key}"


def _lib() -> Path:
    return kafka_folder() / "lib"


def lib_folder() -> Path:
    """Return the folder with Kafka's jars, after fetching them if needed (54 MB, a few seconds).

    Raises MissingToolError without Maven, and RuntimeError with Maven's output if it fails.
    """
    return _fetched(_lib(), _POM, KAFKA_VERSION)


def _fetched(lib: Path, pom: Path, version: str) -> Path:
    """Return ``lib``, filled with the dependencies of ``pom`` for this version of Kafka if it did not exist."""
    if lib.is_dir():
        return lib
    with locked(f"kafka-{version}"):
        if lib.is_dir():
            return lib
        lib.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=lib.parent, prefix="fetching-") as folder:
            fetched = Path(folder, "lib")
            command = [java_tool("mvn"), "-q", "-B", "-f", str(pom), f"-Dkafka.version={version}"]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode or not list(fetched.glob("kafka-clients-*.jar")):
                raise RuntimeError(f"Maven could not fetch Kafka {version}:\n{done.stdout}{done.stderr}"[-4000:])
            fetched.rename(lib)
    return lib


@functools.cache
def classpath() -> str:
    """Return all jars in a fixed order: a class data archive is valid only for its own class path."""
    return os.pathsep.join(str(jar) for jar in sorted(lib_folder().glob("*.jar")))


def class_archive() -> Path:
    """Return the path of the archive of Kafka's parsed classes, which the first broker makes."""
    return kafka_folder() / f"classes-{java_version()}.jsa"


def class_data() -> list[str]:
    """Return the JVM options for the archive if it exists, which halves the start time.

    The class path begins with Kafka's.
    """
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if archive.exists() else []


def old_lib_folder(version: str) -> Path:
    """Return the folder with the jars of an old release of Kafka and of ZooKeeper, fetched if needed (25 to 50 MB)."""
    key = hashlib.sha256(_OLD_POM.read_bytes()).hexdigest()[:8]
    return _fetched(cache_folder() / "kafka" / f"{version}-{key}" / "lib", _OLD_POM, version)


@functools.cache
def old_classpath(version: str) -> str:
    """Return all jars of an old release of Kafka and of ZooKeeper."""
    return os.pathsep.join(str(jar) for jar in sorted(old_lib_folder(version).glob("*.jar")))
