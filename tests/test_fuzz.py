"""Damaged bytes raise our own errors or nothing: a short run of what `make fuzz` does at length.

Rules of the file: each seed is shown to parse, and the fuzzer is shown to find a parser that breaks its promise.
"""

from __future__ import annotations

import random

import pytest

from remote_fetch.errors import CorruptSegment
from tools import fuzz
from tools.fuzz_targets import Target, targets

TARGETS = targets(seeds_per_kind=4)
MUTATIONS = 60


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_parse(target: Target) -> None:
    assert target.seeds
    for seed in target.seeds:
        target.parse(seed)
        target.parse(target.reseal(seed))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_bytes_raise_our_errors_only(target: Target) -> None:
    assert [str(finding) for finding in fuzz.fuzz(target, MUTATIONS, random.Random(405))] == []


def careless(data: bytes) -> object:
    if len(data) < 8:
        raise CorruptSegment("too short")
    return data[data[0]]


def test_a_careless_parser_is_found() -> None:
    findings = list(fuzz.fuzz(Target("careless", (bytes(16),), careless), 200, random.Random(1)))
    assert findings
    assert all(finding.data[0] >= len(finding.data) for finding in findings)
    assert "IndexError" in str(findings[0])
    assert "test_fuzz.py" in str(findings[0])


def test_a_slow_parser_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SLOW_MS", -1)
    findings = list(fuzz.fuzz(Target("slow", (bytes(16),), bytes), 3, random.Random(1)))
    assert ["took" in finding.what for finding in findings] == [True] * 3


def test_a_run_is_repeatable_and_damages() -> None:
    seed = bytes(range(64))
    first = [fuzz.mutate(seed, random.Random(7)) for _ in range(2)]
    assert first[0] == first[1]
    chance = random.Random(8)
    damaged = [fuzz.mutate(seed, chance) for _ in range(300)]
    assert sum(data != seed for data in damaged) > 250
    assert {len(data) < 64 for data in damaged} == {True, False}
    assert fuzz.mutate(b"", random.Random(1)) is not None


def test_main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert fuzz.main(["--mutations", "2", "--target", "time index"]) == 0
    assert capsys.readouterr().out.startswith("time index: ")
    monkeypatch.setattr(fuzz, "targets", lambda: (Target("careless", (b"\xff" * 9,), careless),))
    assert fuzz.main(["--mutations", "40"]) == 1
    assert "IndexError" in capsys.readouterr().out
