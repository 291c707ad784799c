"""Build the source distribution and a wheel in dist/.

The same commit makes the same source distribution, byte for byte.

    python tools/dist.py [DIRECTORY]

The times in the archives are those of the last commit, or SOURCE_DATE_EPOCH. Needs the package ``build``.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


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


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT / "dist"
    time_s = commit_time_s()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}
    command = [sys.executable, "-m", "build", "--outdir", str(directory), str(_ROOT)]
    subprocess.run(command, env=environment, check=True)
    for archive in directory.glob("*.tar.gz"):
        normalize(archive, time_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
