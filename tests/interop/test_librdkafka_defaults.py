"""The documentation's defaults of librdkafka are those of the installed library, and its table is complete."""

from __future__ import annotations

import ctypes
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.config.librdkafka_settings import SETTINGS
from pykclient.config.producer_config import ProducerConfig

ROOT = Path(__file__).parents[2]
GENERATOR = runpy.run_path(str(ROOT / "tools" / "librdkafka_defaults.py"))
PAGES = [ROOT / "docs" / name for name in ("migrating.md", "from-confluent.md")]

#: Settings whose defaults depend on how the library was built, or that it shows as functions.
BUILT = {"builtin.features"}


def library() -> ctypes.CDLL:
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    paths = sorted(folder.glob("librdkafka-*"))
    if not paths:
        pytest.skip("confluent-kafka's wheel has another layout here")
    return ctypes.CDLL(str(paths[0]))


def defaults() -> Iterator[tuple[str, str]]:
    """Yield the settings of the installed library that have a default."""
    found = library()
    for kind in ("rd_kafka_topic_conf", "rd_kafka_conf"):  # the latter wins where both have a name
        new, dump = found[f"{kind}_new"], found[f"{kind}_dump"]
        new.restype, dump.restype = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
        dump.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        count = ctypes.c_size_t()
        texts = dump(new(), ctypes.byref(count))
        for index in range(0, count.value, 2):
            yield (texts[index] or b"").decode(), (texts[index + 1] or b"").decode()


def test_table_shows_the_defaults_of_the_installed_librdkafka() -> None:
    shown = dict(defaults())
    assert len(shown) > 80
    for name, default in shown.items():
        if name in SETTINGS and name not in BUILT and SETTINGS[name].values != "":
            expected = SETTINGS[name].default
            assert default in (expected, expected.split(",")[0]) or re.fullmatch(r"0x[0-9a-f]+", default), name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_table_in_the_documentation_is_generated(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert GENERATOR["page"](text) == text, "run `make docs`"


def test_table_of_properties_has_a_row_for_each() -> None:
    text = PAGES[1].read_text(encoding="utf-8")
    assert [name for name in SETTINGS if f"\n| `{name}` | " not in text] == []


@pytest.mark.parametrize(
    ("setting", "theirs", "ours"),
    [
        ("isolation.level", "`read_committed`", "`read_uncommitted`"),
        ("allow.auto.create.topics", "`false`", "`true`"),
        ("delivery.timeout.ms", "`300000`", "`120000`"),
        ("batch.size", "`1000000`", "`16384`"),
        ("check.crcs", "`false`", "`true`"),
        ("partition.assignment.strategy", "`range,roundrobin`", "`range,cooperative-sticky`"),
        ("socket.timeout.ms", "`60000`", "`request.timeout.ms` `30000`"),
        ("message.max.bytes", "`1000000`", "`max.request.size` `1048576`"),
    ],
)
def test_row_shows_both_defaults(setting: str, theirs: str, ours: str) -> None:
    (row,) = [row for row in GENERATOR["rows"]() if row.key == setting]
    assert (row.theirs, row.ours) == (theirs, ours)


def test_each_key_whose_default_differs_has_a_row() -> None:
    rows = {row.key for row in GENERATOR["rows"]()}
    for definition, scope in ((ProducerConfig.DEFINITION, "P"), (ConsumerConfig.DEFINITION, "C")):
        for name, key in definition.keys.items():
            theirs = SETTINGS.get(name)
            if theirs is None or theirs.scope not in ("*", scope) or theirs.treatment != "honoured":
                continue
            ours = ",".join(map(str, key.default)) if isinstance(key.default, tuple) else str(key.default)
            if theirs.default.lower() != ours.lower() and (theirs.default or ours not in ("None", "")):
                assert name in rows or name in GENERATOR["_SAME"], name
