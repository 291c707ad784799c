from __future__ import annotations

import subprocess
import sys

import crc32c as package
import pytest

from pykclient.record import record_batch


def test_checksum_is_crc_32c() -> None:
    assert record_batch.crc32c(b"123456789") == 0xE3069283
    data = bytes(range(256)) * 10
    for buffer in (data, bytearray(data), memoryview(data)):
        assert record_batch.crc32c(buffer) == package.crc32c(data)


def test_crc32c_package_is_used_if_extension_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_batch, "find_spec", lambda _name: None)
    assert record_batch._load_crc32c() is package.crc32c


def test_import_loads_no_argument_parser_or_package_metadata() -> None:
    program = "import sys, pykclient.record; print([m for m in ('argparse', 'importlib.metadata') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_crc32c_package_can_be_imported_afterwards() -> None:
    program = "import pykclient.record, crc32c; print(crc32c.crc32c(b'123456789'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == str(0xE3069283)
