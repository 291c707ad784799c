"""Reads a client's configuration from the files that Kubernetes mounts.

Each key of a ConfigMap or Secret is a file. Settings are read once, at the start. Files that settings name, such as
``ssl.truststore.location``, are read again for each new connection, so certificates rotate without a restart.
"""

from __future__ import annotations

import os
from pathlib import Path


def mounted_settings(folder: Path) -> dict[str, str]:
    """Return the settings of a mounted ConfigMap, and the password and the authorities beside it.

    ``folder`` has ``settings/``, with one file per key, ``secrets/password`` and ``tls/ca.pem``. Each pod becomes a
    static member of its group under its own name, which is in the environment variable ``INSTANCE``.
    """
    files = [path for path in (folder / "settings").iterdir() if path.is_file() and not path.name.startswith("..")]
    config = {path.name: path.read_text(encoding="utf-8").strip() for path in files}
    config["sasl.password"] = (folder / "secrets" / "password").read_text(encoding="utf-8")
    config["ssl.truststore.location"] = str(folder / "tls" / "ca.pem")
    if instance := os.environ.get("INSTANCE"):
        config["group.instance.id"] = instance
    return config
