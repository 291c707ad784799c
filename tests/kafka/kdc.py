"""MIT Kerberos for tests: a key distribution center with its own realm, on a port of the loopback address."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final, Self

from tests.kafka.ports import PortReservations
from tests.support.wait import eventually

REALM: Final = "PYKCLIENT.TEST"

#: Debian installs the servers' programs where only root looks for them.
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")


def missing() -> str | None:
    """Return what is missing on this machine to run one; None if nothing is."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"{', '.join(absent)}: install krb5-kdc and krb5-admin-server" if absent else None


class Kdc:
    """A KDC that lives for a ``with`` block, with its files in ``folder``. Thread: any, one call at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = PortReservations()
        self._port = self._ports.take()
        #: The configuration for clients, such as Java's ``java.security.krb5.conf``.
        self.krb5_conf = folder / "krb5.conf"
        self._kdc_conf = folder / "kdc.conf"

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which programs use this realm."""
        return {"KRB5_CONFIG": str(self.krb5_conf), "KRB5CCNAME": f"FILE:{self._folder / 'tickets'}"}

    def __enter__(self) -> Self:
        self.krb5_conf.write_text(
            f"[libdefaults]\n  default_realm = {REALM}\n  dns_lookup_kdc = false\n  dns_lookup_realm = false\n"
            "  dns_canonicalize_hostname = false\n  rdns = false\n  udp_preference_limit = 1\n"
            f"[realms]\n  {REALM} = {{\n    kdc = 127.0.0.1:{self._port}\n  }}\n"
        )
        self._kdc_conf.write_text(
            f"[kdcdefaults]\n  kdc_listen = 127.0.0.1:{self._port}\n  kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n  {REALM} = {{\n    database_name = {self._folder / 'principal'}\n"
            f"    key_stash_file = {self._folder / 'stash'}\n  }}\n"
            f"[logging]\n  kdc = FILE:{self._folder / 'kdc.log'}\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master of the realm")
        self._process = subprocess.Popen(
            [self._program("krb5kdc"), "-n"], env=self._environment, start_new_session=True
        )
        eventually(self._answers, 30, "the KDC accepts connections")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
        self._ports.close()

    def add(self, principal: str) -> Path:
        """Create a principal with a random key; return its keytab."""
        keytab = self._folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(keytab), principal)
        return keytab

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self._kdc_conf)}

    @staticmethod
    def _program(name: str) -> str:
        found = shutil.which(name, path=_PATH)
        assert found is not None, missing()
        return found

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._program(program), *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")
