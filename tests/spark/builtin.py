"""Spark's own Kafka source, format ``kafka``: its jars, fetched by Maven on first use and kept with Kafka's."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

import pyspark

from tests.kafka import artifacts

_POM = Path(__file__).with_name("built-in-pom.xml")

#: Releases of Spark whose Kafka source is newer than what Maven can be asked for: there is nothing to compare with.
WITHOUT_BUILTIN = ("4.3.",)


def has_builtin(version: str = pyspark.__version__) -> bool:
    """Return True if Spark's own source is available for this version."""
    return not version.startswith(WITHOUT_BUILTIN)


def jars(version: str = pyspark.__version__) -> list[Path]:
    """Return the jars of the built-in source for a version of Spark. Fetches them on first use (10 MB, seconds).

    Raises MissingToolError without Maven, RuntimeError with Maven's words where it fails.
    """
    key = hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]
    lib = artifacts.cache_folder() / "spark" / f"{version}-{key}"
    if not lib.is_dir():
        with artifacts.locked(f"spark-{version}"):
            if not lib.is_dir():
                _fetch(lib, version)
    return sorted(lib.glob("*.jar"))


def _fetch(lib: Path, version: str) -> None:
    lib.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=lib.parent, prefix="fetching-") as folder:
        fetched = Path(folder, "lib")
        command = [artifacts.java_tool("mvn"), "-q", "-B", "-f", str(_POM), f"-Dspark.version={version}"]
        command += ["dependency:copy", f"-DoutputDirectory={fetched}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode or not list(fetched.glob("spark-sql-kafka-*.jar")):
            raise RuntimeError(
                f"Maven could not fetch the Kafka source of Spark {version}:\n{done.stdout}{done.stderr}"
            )
        fetched.rename(lib)
