"""A small Spark session on loopback for the tests of one process, with the built-in Kafka source and ours."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark import builtin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]

#: Short queries: the first compiler is enough, and one thread collects what little garbage there is.
_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def environment() -> dict[str, str]:
    """Return the environment in which Spark's processes use this interpreter and find the tests' modules."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def settings(folder: Path, *, java_options: tuple[str, ...] = _JAVA_OPTIONS) -> dict[str, str]:
    """Return the configuration of a session that writes its files to ``folder``."""
    java = [*java_options, f"-Djava.io.tmpdir={folder}", f"-Dderby.system.home={folder}"]
    found = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": tempfile.gettempdir(),  # paths of sockets are short
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if builtin.has_builtin():
        found["spark.driver.extraClassPath"] = os.pathsep.join(map(str, builtin.jars()))
    return found


def start(folder: Path) -> SparkSession:
    """Start a session in a new JVM. ``environment`` must be set until it has ended."""
    from pyspark.sql import SparkSession

    on_ctrl_c = signal.getsignal(signal.SIGINT)
    started = SparkSession.builder.config(map=dict(settings(folder))).getOrCreate()
    signal.signal(signal.SIGINT, on_ctrl_c)  # Spark's handler would stay for all later tests of this process
    return started


def stop(session: SparkSession) -> None:
    """Stop the session and its JVM, which would otherwise run until this process ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = None
        SparkContext._jvm = None
