"""The benchmark cases, and the number of records that each client processes."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import parse
from benchmarks.cases import CODECS, KINDS, SIZES, Bench, Case, plan, records_of
from benchmarks.clients import CLIENTS
from benchmarks.clients.measuring import chunks, payloads
from benchmarks.report import Place
from benchmarks.runner import share, takes_part


def test_cases_are_unique() -> None:
    benches = list(plan())
    assert len(benches) == len(set(benches))
    assert {bench.kind for bench in benches} == set(KINDS)
    for kind in ("produce", "consume"):
        assert {(b.size_bytes, b.codec) for b in benches if b.kind == kind} == {(s, c) for s in SIZES for c in CODECS}
        assert {(b.keyed, b.partitions) for b in benches if b.kind == kind} == {
            *((keyed, partitions) for keyed in (False, True) for partitions in (3, 1000))
        }
        assert [b for b in benches if b.kind == kind and b.defaults] == [Bench(kind, defaults=True)]


def test_topic_names_differ_between_cases() -> None:
    benches = list(plan(partitions=(3, 1000, 10_000)))
    assert len({bench.slug for bench in benches}) == len(benches)


@pytest.mark.parametrize("bench", list(plan()), ids=str)
def test_each_case_has_the_reference_client_and_ours(bench: Bench) -> None:
    taking_part = {client for client in CLIENTS if takes_part(client, bench)}
    assert {"pykclient", "pykclient-python", "confluent-kafka"} <= taking_part


@pytest.mark.parametrize("bench", list(plan()), ids=str)
def test_no_client_reads_more_records_than_exist(bench: Bench) -> None:
    for client in CLIENTS.values():
        assert records_of(bench, 1.0) * share(client, bench) >= 1
        if bench.reads:
            assert share(client, bench) <= 1.0


def test_values_have_the_right_size_and_repeat_late() -> None:
    for size_bytes in SIZES:
        values = payloads(size_bytes)
        assert {len(value) for value in values} == {size_bytes}
        assert len(set(values)) == len(values)
        assert len(values) * size_bytes > 4_000_000
        assert not any(b"\n" in value for value in values)  # Java's tool reads one value per line


@pytest.mark.parametrize("keyed", [False, True])
def test_chunks_add_up_to_the_number_of_records(keyed: bool) -> None:
    case = Case("produce", "", "", 3, 0, 1000, "none", keyed)
    for records in (1, 999, 1000, 1001, 10_000):
        assert sum(map(len, chunks(case, records))) == records


def test_the_page_is_only_written_for_a_whole_run() -> None:
    assert parse([]).place == Place.of_repository()
    assert parse([]).rounds == 5
    assert parse(["--rounds", "3"]).place == Place.of_repository()
    assert parse(["--settings", "defaults", "--add"]).place == Place.of_repository()
    for words in (
        ["--quick"],
        ["--kinds", "latency"],
        ["--settings", "defaults"],
        ["--scale", "0.5"],
        ["--kafka", "embedded"],
    ):
        assert parse(words).place == Place.of_folder()
