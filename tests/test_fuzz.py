"""Damaged bytes raise our own errors or nothing: a short run of what `make fuzz` does at length.

Rules of the file:

- Each seed is shown to parse, and the fuzzer is shown to find a parser that breaks its promise.
"""

from __future__ import annotations

import base64
import contextlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from remote_fetch.decode import run_reference
from remote_fetch.errors import CorruptSegment, RemoteFetchError
from remote_fetch.testing.records import Record, encode_batch
from tools import fuzz, fuzz_damage, fuzz_reading
from tools.fuzz_memory import reset_peak
from tools.fuzz_targets import Target, targets

TARGETS = targets(seeds_per_kind=4)
MUTATIONS = 120


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_parse(target: Target) -> None:
    assert target.seeds
    for seed in target.seeds:
        target.parse(seed)
        target.parse(target.reseal(seed))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_bytes_raise_our_errors_only(target: Target) -> None:
    tally = fuzz.Tally()
    assert [str(finding) for finding in fuzz.fuzz(target, MUTATIONS, random.Random(405), tally=tally)] == []
    assert tally.inputs == MUTATIONS
    assert tally.deep >= MUTATIONS // 4
    assert 0 < tally.accepted <= tally.deep


@pytest.mark.parametrize("target", [target for target in TARGETS if target.inside], ids=lambda target: target.name)
def test_damage_inside_gets_past_the_outer_checks(target: Target) -> None:
    """After damage inside, lengths and checksums are nearly always valid again."""
    assert target.inside is not None
    chance = random.Random(406)
    whole = [target.inside(seed, chance) for seed in target.seeds * (1 + 40 // len(target.seeds))]
    assert sum(data not in target.seeds for data in whole) > len(whole) // 2
    passed = 0
    for data in whole if target.gate else ():
        with contextlib.suppress(RemoteFetchError):
            assert target.gate is not None
            target.gate(data)
            passed += 1
    assert target.gate is None or passed > 0.7 * len(whole)


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
    first = [fuzz_damage.mutate(seed, random.Random(7)) for _ in range(2)]
    assert first[0] == first[1]
    chance = random.Random(8)
    damaged = [fuzz_damage.mutate(seed, chance) for _ in range(300)]
    assert sum(data != seed for data in damaged) > 250
    assert {len(data) < 64 for data in damaged} == {True, False}
    assert fuzz_damage.mutate(b"", random.Random(1)) is not None


def test_a_parser_that_takes_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SLOW_MS", 10**9)  # on a busy machine so much memory takes its time

    def greedy(data: bytes) -> object:
        return bytearray(b"x") * (fuzz.MAX_GROWTH_BYTES * 2) if data[0] else None

    reset_peak()  # of the tests before this one
    findings = list(fuzz.fuzz(Target("greedy", (bytes(16),), greedy), 60, random.Random(1)))
    assert findings
    assert "bytes of memory" in findings[0].what or "IndexError" in findings[0].what
    assert any("bytes of memory" in finding.what for finding in findings)


def test_a_parser_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(data: bytes) -> object:
        while True:
            with contextlib.suppress(Exception):  # no parser may catch the end
                sum(data)

    monkeypatch.setattr(fuzz, "HANG_MS", 50)
    findings = list(fuzz.fuzz(Target("endless", (bytes(16),), endless), 2, random.Random(1)))
    assert [finding.what for finding in findings] == ["no end within 50 ms"] * 2


def test_variants_that_differ_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second reader that gives the same, and then one that finds a batch damaged which is not."""
    batch = encode_batch(0, [Record(0, 0, b"k", b"v")])
    monkeypatch.setattr(fuzz_reading, "engines", lambda: (run_reference, run_reference))
    assert sum(rows.num_rows for rows in fuzz_reading.read_batches(batch)) == 1
    outcomes: Iterator[object] = iter(2 * [([], None), ([], CorruptSegment("damaged"))])
    monkeypatch.setattr(fuzz_reading, "_check_all_messages", lambda _: None)
    monkeypatch.setattr(fuzz_reading, "_appended", lambda *_: next(outcomes))
    with pytest.raises(AssertionError, match="plain: None, native: CorruptSegment"):
        fuzz_reading.read_batches(batch)


def test_main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert fuzz.main(["--jobs", "0", "--mutations", "2", "--target", "time index"]) == 0
    assert capsys.readouterr().out.startswith("time index: ")
    monkeypatch.setattr(fuzz, "targets", lambda: (Target("careless", (b"\xff" * 9,), careless),))
    assert fuzz.main(["--jobs", "0", "--mutations", "40"]) == 1
    assert "IndexError" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        fuzz.main(["--target", "nonsense"])


def test_a_target_runs_in_a_process_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--mutations", "20", "--target", "time index"]) == 0
    assert "20 inputs" in capsys.readouterr().out


def test_the_input_of_a_crash_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process of a target ends as by a signal. The finding has the last input from its file."""

    def dies(command: list[str], **_: object) -> SimpleNamespace:
        file = next(Path(one.partition("=")[2]) for one in command if one.startswith("--last-input="))
        file.write_bytes((3).to_bytes(8, "big") + b"badleft over from before")
        return SimpleNamespace(returncode=-11, stdout="")

    monkeypatch.setattr(subprocess, "run", dies)
    kept, told = fuzz._run_apart(TARGETS[0], 1, 0)
    assert not kept
    assert "ended with -11" in told
    assert base64.b64encode(b"bad").decode() in told
