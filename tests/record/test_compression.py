from __future__ import annotations

import builtins
import gzip
import platform
import random
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import lz4.frame  # type: ignore[import-untyped]
import pytest
import snappy  # type: ignore[import-untyped]
import zstandard
from hypothesis import given, settings, strategies as st

from pykclient.config.consumer_config import ConsumerConfig
from pykclient.consumer.values import FetchConfig
from pykclient.errors import CorruptRecordError, IllegalArgumentError, UnsupportedCompressionTypeError
from pykclient.record import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Compression,
    CompressionType,
    compression as compression_module,
)
from tests.record.strategies import CODECS


@pytest.fixture(scope="module", params=["installed", "standard"], autouse=True)
def engines(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run each test with the packages of the extra ``codecs``, and with what every installation has."""
    before = dict(compression_module._engines)
    compression_module._engines.clear()
    if request.param == "standard":
        compression_module._engines.update(lz4=compression_module.CramjamLz4(), zstd=compression_module.StandardZstd())
    forget_compressors()
    yield
    compression_module._engines.clear()
    compression_module._engines.update(before)
    forget_compressors()


def forget_compressors() -> None:
    """Make the default codecs, which keep the compressors of an engine, look for an engine again."""
    Compression.of("lz4")._compress = None  # type: ignore[attr-defined]
    Compression.of("zstd")._idle.clear()  # type: ignore[attr-defined]


TEXT = b"the quick brown fox jumps over the lazy dog; " * 5000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(200_000)], ids=["empty", "one", "text", "zeros"])
def test_compressed_data_round_trips(codec: str, magic: int, data: bytes) -> None:
    compression = Compression.of(codec)
    compressed = compression.compress(data, magic)
    assert compression.decompress(compressed, magic) == data
    assert compression.decompress(memoryview(compressed), magic) == data
    assert compression.compress(bytearray(data), magic) == compressed
    assert compression.compress(memoryview(data), magic) == compressed
    if codec != "none" and len(data) > 1000:
        assert len(compressed) < len(data) / 4


@given(st.binary(max_size=5000), st.sampled_from(CODECS), st.integers(0, 2))
def test_random_data_round_trips(data: bytes, codec: str, magic: int) -> None:
    compression = Compression.of(codec)
    assert compression.decompress(compression.compress(data, magic), magic) == data


# --- levels (KIP-390)


@pytest.mark.parametrize(
    ("codec", "default", "good", "bad"),
    [
        ("gzip", -1, (-1, 1, 9), (0, 10, -2)),
        ("lz4", 9, (1, 2, 9, 17), (0, 18, -1)),
        ("zstd", 3, (-131072, 0, 22), (-131073, 23)),
    ],
)
def test_compression_levels_are_checked(codec: str, default: int, good: tuple[int, ...], bad: tuple[int, ...]) -> None:
    assert Compression.of(codec).level == default
    assert Compression.of(codec) == Compression.of(codec, default)
    for level in good:
        compression = Compression.of(codec, level)
        assert compression.level == level
        assert Compression.of(codec).decompress(compression.compress(TEXT)) == TEXT
    for level in bad:
        with pytest.raises(IllegalArgumentError, match=f"level {level} is outside"):
            Compression.of(codec, level)


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_codecs_without_levels_refuse_level(codec: str) -> None:
    assert Compression.of(codec).level is None
    with pytest.raises(IllegalArgumentError, match="has no levels"):
        Compression.of(codec, 1)


@pytest.mark.parametrize(("codec", "fast", "small"), [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", -50, 19)])
def test_buffers_of_every_type_are_compressed_at_every_level(codec: str, fast: int, small: int) -> None:
    for level in (fast, small):
        compression = Compression.of(codec, level)
        for buffer in (TEXT, bytearray(TEXT), memoryview(TEXT), memoryview(bytearray(TEXT))):
            assert compression.decompress(compression.compress(buffer)) == TEXT


@pytest.mark.parametrize(("codec", "fast", "small"), [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", -50, 19)])
def test_higher_level_compresses_better(codec: str, fast: int, small: int) -> None:
    data = b"".join(b"%d,%d;" % (i * i % 977, i % 31) for i in range(20_000))
    assert len(Compression.of(codec, small).compress(data)) < len(Compression.of(codec, fast).compress(data))


def test_codecs_are_found_by_name_and_id() -> None:
    assert [CompressionType.for_id(id).name for id in range(5)] == list(CODECS)
    assert CompressionType.for_name("lz4") is CompressionType.LZ4
    assert Compression.of(CompressionType.ZSTD).type is CompressionType.ZSTD
    with pytest.raises(IllegalArgumentError, match="'brotli' is not one of none, gzip, snappy, lz4, zstd"):
        Compression.of("brotli")
    with pytest.raises(CorruptRecordError, match="id 5 is not defined"):
        CompressionType.for_id(5)


# --- what others write


def test_gzip_with_several_members_is_read() -> None:
    assert Compression.of("gzip").decompress(gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_gzip_with_too_many_members_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="more than 64 members"):
        Compression.of("gzip").decompress(gzip.compress(b"") * 10_000)


def test_raw_snappy_is_read() -> None:
    assert Compression.of("snappy").decompress(snappy.compress(TEXT)) == TEXT


def test_concatenated_xerial_streams_are_read() -> None:
    stream = Compression.of("snappy").compress(b"one ")
    assert Compression.of("snappy").decompress(stream + Compression.of("snappy").compress(b"two")) == b"one two"


def test_snappy_is_written_as_xerial_frame() -> None:
    compressed = Compression.of("snappy").compress(TEXT)
    assert compressed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (size,) = struct.unpack_from(">i", compressed, 16)
    assert snappy.uncompress(compressed[20 : 20 + size]) == TEXT[:32768]


def test_lz4_frame_has_javas_options() -> None:
    compressed = Compression.of("lz4").compress(TEXT)
    info = lz4.frame.get_frame_info(compressed)
    assert info["block_size"] == 65536
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert not info["block_checksum"]
    assert info["content_size"] == 0


@pytest.mark.parametrize("store_size", [False, True])
def test_lz4_in_format_0_ignores_header_checksum(store_size: bool) -> None:
    frame = bytearray(lz4.frame.compress(TEXT, store_size=store_size))
    end = 14 if store_size else 6
    frame[end] ^= 0xFF
    assert Compression.of("lz4").decompress(frame, 0) == TEXT
    with pytest.raises(CorruptRecordError, match="unreadable lz4 data"):
        Compression.of("lz4").decompress(frame, 1)


def test_zstd_frames_without_content_size_are_read() -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    stream = compressor.compress(TEXT) + compressor.flush()
    assert zstandard.frame_content_size(stream) == -1
    assert Compression.of("zstd").decompress(stream + zstandard.compress(b"more")) == TEXT + b"more"


# --- hostile


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decompression_bomb_stops_at_limit(codec: str) -> None:
    compression = Compression.of(codec)
    bomb = compression.compress(bytes(3_000_000))
    with pytest.raises(CorruptRecordError, match=f"{len(bomb)} bytes of {codec} decompress to more than 100000 bytes"):
        compression.decompress(bomb, 2, 100_000)
    with pytest.raises(CorruptRecordError, match=r"raise max\.decompressed\.batch\.bytes"):
        compression.decompress(bomb, 2, 2_999_999)
    assert len(compression.decompress(bomb, 2, 3_000_000)) == 3_000_000


def test_decompression_limit_equals_consumers_default() -> None:
    config = ConsumerConfig({"bootstrap.servers": "localhost:9092"})
    assert config["max.decompressed.batch.bytes"] == DEFAULT_MAX_DECOMPRESSED_BYTES
    assert FetchConfig.from_config(config).max_decompressed_bytes == DEFAULT_MAX_DECOMPRESSED_BYTES


def test_snappy_with_impossible_size_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="cannot hold"):
        Compression.of("snappy").decompress(b"\x80\x80\x80\x40" + bytes(10))
    with pytest.raises(CorruptRecordError, match="more than 5 bytes"):
        Compression.of("snappy").decompress(b"\xff" * 20)


def test_snappy_with_best_ratio_is_read() -> None:
    """The size check accepts the best ratio of snappy: copies of 64 bytes in three bytes each."""
    block = snappy.compress(bytes(32768))
    assert 32768 / len(block) > 20
    assert Compression.of("snappy").decompress(block) == bytes(32768)


@pytest.mark.parametrize("codec", CODECS[1:])
@settings(max_examples=60)
@given(data=st.data())
def test_damaged_data_is_read_or_refused(codec: str, data: st.DataObject) -> None:
    compression = Compression.of(codec)
    compressed = bytearray(compression.compress(TEXT[: data.draw(st.integers(1, 70_000), "size")]))
    if data.draw(st.booleans(), "cut"):
        del compressed[data.draw(st.integers(0, len(compressed) - 1), "at") :]
    else:
        compressed[data.draw(st.integers(0, len(compressed) - 1), "at")] = data.draw(st.integers(0, 255), "byte")
    with suppress(CorruptRecordError):
        assert len(compression.decompress(compressed, data.draw(st.integers(0, 2), "magic"), 1 << 20)) <= 1 << 20


@pytest.mark.parametrize("codec", CODECS[1:])
@given(data=st.binary(max_size=200))
def test_garbage_is_read_or_refused(codec: str, data: bytes) -> None:
    with suppress(CorruptRecordError):
        Compression.of(codec).decompress(data, 2, 1 << 20)


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_every_truncation_is_detected(codec: str) -> None:
    compression = Compression.of(codec)
    compressed = compression.compress(TEXT[:500])
    for end in range(len(compressed)):
        with pytest.raises(CorruptRecordError):
            compression.decompress(compressed[:end])


def test_zlib_errors_are_chained() -> None:
    with pytest.raises(CorruptRecordError) as info:
        Compression.of("gzip").decompress(b"not gzip at all, but long enough")
    assert isinstance(info.value.__cause__, zlib.error)


# --- libraries


@pytest.mark.parametrize(
    ("codec", "modules", "package"),
    [
        ("snappy", {"snappy"}, "python-snappy"),
        ("lz4", {"lz4", "cramjam"}, "cramjam"),
        ("zstd", {"zstandard", "backports", "compression"}, r"(backports\.zstd|zstandard)"),
    ],
)
def test_error_names_package_of_missing_codec(
    codec: str, modules: set[str], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, *args, **kwargs)

    compressed = Compression.of(codec).compress(b"data")
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(compression_module, "_engines", {})
    compression = Compression.of(codec, None if codec == "snappy" else 5)  # not the default, which keeps compressors
    with pytest.raises(UnsupportedCompressionTypeError, match=f"pip install {package}"):
        compression.compress(b"data")
    with pytest.raises(UnsupportedCompressionTypeError, match=f"pip install {package}"):
        compression.decompress(compressed)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_cramjam_reads_every_kind_of_lz4_frame(linked: bool, checks: bool, block_size: int) -> None:
    engine = compression_module.CramjamLz4()
    for data in (b"", b"x", TEXT, bytes(range(256)) * 700):
        frame = lz4.frame.compress(
            data,
            block_size=block_size,
            block_linked=linked,
            content_checksum=checks,
            block_checksum=checks,
            store_size=checks,
        )
        assert engine.decompress(frame, len(data)) == data
        assert engine.decompress(frame + b"more", len(data)) == data
        if data:
            with pytest.raises(CorruptRecordError, match="decompress to more than"):
                engine.decompress(frame, len(data) - 1)


@given(st.binary(max_size=300) | st.integers(0, 300_000).map(lambda size: TEXT[:size]), st.sampled_from((None, 3, 12)))
def test_engines_of_lz4_read_each_other(data: bytes, level: int | None) -> None:
    package, cramjam = compression_module.Lz4Package(), compression_module.CramjamLz4()
    assert package.decompress(cramjam.compressor(level)(data), len(data)) == data
    assert cramjam.decompress(package.compressor(level)(data), len(data)) == data


@given(st.binary(max_size=300) | st.integers(0, 300_000).map(lambda size: TEXT[:size]), st.sampled_from((-5, 3, 19)))
def test_engines_of_zstd_read_each_other(data: bytes, level: int) -> None:
    package, standard = compression_module.ZstandardPackage(), compression_module.StandardZstd()
    assert package.decompress(standard.compressor(level)(data), len(data)) == data
    assert standard.decompress(package.compressor(level)(data), len(data)) == data


@pytest.mark.parametrize("engine", [compression_module.ZstandardPackage, compression_module.StandardZstd])
def test_a_large_batch_of_zstd_compresses_as_well_as_its_halves(engine: type[Any]) -> None:
    source = random.Random(1)
    rows = (b'{"id":%d,"trace":"%030x"}' % (source.getrandbits(24), source.getrandbits(120)) for _ in range(4000))
    data = b"".join(rows)[:200_000]
    compress = engine().compressor(3)
    assert len(data) == 200_000
    halves = len(compress(data[:100_000])) + len(compress(data[100_000:]))
    assert len(compress(data)) < 1.02 * halves


def test_incompressible_lz4_blocks_are_stored_uncompressed() -> None:
    data = random.Random(1).randbytes(200_000)
    frame = compression_module.CramjamLz4().compressor(None)(data)
    assert len(frame) == 7 + 4 * 4 + len(data) + 4
    assert Compression.of("lz4").decompress(frame) == data


def test_zstd_with_too_many_frames_is_refused() -> None:
    frames = zstandard.compress(b"") * 10_000
    with pytest.raises(CorruptRecordError, match="more than 64 members or frames"):
        compression_module.StandardZstd().decompress(frames, 100)


def test_codec_packages_are_imported_on_first_use() -> None:
    import subprocess

    program = (
        "import sys, pykclient.record as r\n"
        "r.MemoryRecordsBuilder(compression=r.Compression.of('zstd'))\n"
        "print([m for m in ('snappy', 'lz4', 'cramjam', 'zstandard', 'backports') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_compression_is_thread_safe() -> None:
    compression = Compression.of("zstd")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            data = b"%d " % number * 2000
            for _ in range(50):
                assert compression.decompress(compression.compress(data)) == data
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="how glibc keeps memory")
def test_decompressed_batches_reuse_memory() -> None:
    program = """
import resource
from pykclient.record import Compression, MemoryRecords, MemoryRecordsBuilder
builder = MemoryRecordsBuilder(compression=Compression.of("lz4"))
for number in range(9000):
    builder.try_append(number, None, bytes(100))
builder.close()
[batch] = MemoryRecords(bytes(builder.build())).batches()
for _ in range(3):
    batch.record_data()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    batch.record_data()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000  # 53,700 if the memory is returned to the kernel each time
