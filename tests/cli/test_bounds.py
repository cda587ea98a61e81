"""kcat's `-o` and our `--end`: which offsets a command reads."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch.cli.bounds import bounds_of
from remote_fetch.errors import ConfigError
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local

if TYPE_CHECKING:
    from tests.cli.conftest import Run

FIRST_MS = 1_700_000_000_000
FIRST = datetime.fromtimestamp(FIRST_MS / 1000, UTC)
ALL = [0, 1, 2, 3, 4, 6, 7, 8]


def iso(offset: int) -> str:
    return (FIRST + timedelta(seconds=offset)).isoformat()


@pytest.mark.parametrize(
    ("argv", "offsets"),
    [
        pytest.param((), ALL, id="all"),
        pytest.param(("-o", "beginning"), ALL, id="beginning"),
        pytest.param(("-o", "earliest"), ALL, id="earliest"),
        pytest.param(("-o", "end"), [], id="end"),
        pytest.param(("-o", "4"), [4, 6, 7, 8], id="an offset"),
        pytest.param(("-o", "9"), [], id="the offset after the last"),
        pytest.param(("-o", "-2"), [7, 8], id="before the end"),
        pytest.param(("-o", "-0"), [], id="none before the end"),
        pytest.param(("-o", "-99"), ALL, id="further back than the start"),
        pytest.param(("-o", "-99", "--log-start", "2"), ALL[2:], id="no further back than the log start"),
        pytest.param(("-o", f"s@{FIRST_MS + 6000}"), [6, 7, 8], id="from milliseconds"),
        pytest.param(("-o", f"s@{FIRST_MS + 6001}"), [7, 8], id="from a millisecond later"),
        pytest.param(("-o", f"s@{iso(6)}"), [6, 7, 8], id="from an ISO time"),
        pytest.param(("-o", f"s@{FIRST_MS + 99_000}"), [], id="from after the last"),
        pytest.param(("-o", f"e@{FIRST_MS + 2000}"), [0, 1], id="to milliseconds"),
        pytest.param(("-o", f"e@{iso(2)}"), [0, 1], id="to an ISO time"),
        pytest.param(("-o", f"s@{iso(1)}", "-o", f"e@{iso(4)}"), [1, 2, 3], id="between times"),
        pytest.param(("-o", "1", "-o", f"e@{iso(4)}"), [1, 2, 3], id="from an offset to a time"),
        pytest.param(("-o", f"s@{2**63 - 1}"), [], id="from the last millisecond of Kafka"),
        pytest.param(("-o", f"e@{10**16}"), ALL, id="to after the last"),
        pytest.param(("--end", "3"), [0, 1, 2], id="to an offset"),
        pytest.param(("--end", iso(3)), [0, 1, 2], id="to an ISO time by --end"),
        pytest.param(("--end", "latest"), ALL, id="to the latest"),
        pytest.param(("-o", "2", "--end", "7"), [2, 3, 4, 6], id="between offsets"),
        pytest.param(("-o", "2", "--end", "2"), [], id="nothing"),
        pytest.param(("--log-start", "3"), ALL[3:], id="the log start"),
    ],
)
def test_offsets(run: Run, bucket: str, argv: tuple[str, ...], offsets: list[int]) -> None:
    outcome = run(
        "cat", "--url", bucket, "-t", "shop", "-p", "0", "--isolation", "read_uncommitted", "-f", "%o ", *argv
    )
    assert outcome.code == 0, outcome.stderr
    assert [int(offset) for offset in outcome.stdout.split()] == offsets


def test_times_after_the_year_9999(run: Run, tmp_path: Path) -> None:
    """Producers that give microseconds or nanoseconds write them."""
    log = LogBuilder()
    for ms in (FIRST_MS, FIRST_MS * 1000, FIRST_MS * 1000 + 1, FIRST_MS * 10**6):
        log.append_batch([Record(0)], base_timestamp_ms=ms)
    log.roll()
    write_kafka_local(tmp_path, log.tiered())

    def read(*argv: str) -> list[int]:
        outcome = run("cat", "--url", str(tmp_path), "-t", "topic", "-p", "0", "-f", "%o ", *argv)
        assert outcome.code == 0, outcome.stderr
        return [int(offset) for offset in outcome.stdout.split()]

    assert read("-o", f"s@{FIRST_MS * 1000 + 1}") == [2, 3]
    assert read("-o", f"s@{FIRST_MS}", "-o", f"e@{FIRST_MS * 1000 + 1}") == [0, 1]


@pytest.mark.parametrize(("isolation", "offsets"), [("read_committed", b"1 "), ("read_uncommitted", b"2 ")])
def test_so_many_before_the_end_of_the_isolation_level(
    run: Run, tmp_path: Path, isolation: str, offsets: bytes
) -> None:
    """The marker of the transaction is not in the tier yet, so that the tier alone does not tell its outcome."""
    log = LogBuilder()
    log.append_batch([Record(0), Record(1)])
    log.begin(7)
    log.append_batch([Record(0)], producer_id=7)
    log.roll()
    log.commit(7)
    write_kafka_local(tmp_path, log.tiered())
    words = ("-o", "-1", "-f", "%o ", "-q", "--isolation", isolation)
    assert run("cat", "--url", str(tmp_path), "-t", "topic", *words).stdout == offsets


def test_so_many_before_the_end_of_each_partition(run: Run, bucket: str) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", "-q", "-o", "-1", "-f", "%p:%o ")
    assert outcome.stdout == b"0:8 1:1 "


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(("-o", "stored"), "no committed offsets without a consumer group", id="stored"),
        pytest.param(("-o", f"s@{2**63}"), "the milliseconds do not fit Kafka's 64 bits", id="more than Kafka has"),
        pytest.param(("-o", "s@yesterday"), "-o s@yesterday: this is no place in a log. Give", id="no ISO time"),
        pytest.param(("-o", "e@tomorrow"), "-o e@tomorrow: this is no place in a log", id="no ISO time to end at"),
        pytest.param(("-o", "begining"), "-o begining: this is no place in a log. Give beginning,", id="no bound"),
        pytest.param(("-o", "-2x"), "-N (N before the end)", id="no count"),
        pytest.param(("--end", "soon"), "--end soon: this is no place in a log. Give latest,", id="no end"),
        pytest.param(("--end", "-1"), "--end -1: this is no place in a log. Give latest,", id="Kafka's latest"),
        pytest.param(("--end=-2",), "--end -2: this is no place in a log", id="Kafka's earliest"),
        pytest.param(("-o", " -2"), "-o  -2: this is no place in a log", id="a count after a blank"),
        pytest.param(("-o", "s@earliest"), "-o s@earliest: this is no place in a log. Give", id="a word as a time"),
        pytest.param(("-o", "e@latest"), "-o e@latest: this is no place in a log", id="a word as a time to end at"),
        pytest.param(("-o", "s@-1"), "-o s@-1: this is no place in a log", id="a time before 1970"),
        pytest.param(("--isolation", "commited"), "--isolation commited: choose read_uncommitted or", id="no level"),
        pytest.param(("-o", "5", "--end", "2"), "start=5 lies after end=2", id="the wrong way round"),
        pytest.param(("-o", f"s@{iso(4)}", "-o", f"e@{iso(1)}"), "lies after end=", id="times the wrong way round"),
        pytest.param(("-o", "1", "-o", "-2"), "give one start and one end", id="two starts"),
        pytest.param(("-o", "e@2024-01-01", "--end", "2"), "give one start and one end", id="two ends"),
        pytest.param(("-o", "10"), "lies outside", id="past the end"),
        pytest.param(("--end", "10"), "offsets 9 to 9 cannot be read from the bucket alone", id="end past the tier"),
    ],
)
def test_bounds_that_are_none(run: Run, bucket: str, argv: tuple[str, ...], said: str) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", "-p", "0", *argv)
    assert outcome.code == 1
    (line,) = outcome.stderr.splitlines()
    assert said in line


@pytest.mark.parametrize("ms", [8_600_000_000_001, 99_999_999_999_999, 253_402_300_799_999])
def test_a_time_of_centuries_to_come_is_exact(ms: int) -> None:
    """A record may have a timestamp in microseconds by mistake."""
    start, _ = bounds_of(argparse.Namespace(quiet=True, offsets=[f"s@{ms}"], end=None), "latest")
    assert start == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def test_the_default_end_of_an_export_may_be_named() -> None:
    for end in (None, "tier"):
        assert bounds_of(argparse.Namespace(quiet=True, offsets=["3"], end=end), "tier") == ("3", "tier")
    assert bounds_of(argparse.Namespace(quiet=True, offsets=[], end="latest"), "tier") == ("earliest", "latest")
    assert bounds_of(argparse.Namespace(quiet=True, offsets=["e@2026-01-31"], end=None), "tier") == (
        "earliest",
        "2026-01-31",
    )


@pytest.mark.parametrize(
    ("offsets", "end", "said"),
    [(["e@2026-01-31"], "tier", "give one start and one end"), ([], "soon", "Give tier, latest, an offset")],
)
def test_ends_that_an_export_does_not_take(offsets: list[str], end: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        bounds_of(argparse.Namespace(quiet=True, offsets=offsets, end=end), "tier")


def test_an_export_to_the_end_of_the_tier(run: Run, bucket: str, tmp_path: Path) -> None:
    words = ("export", "--url", bucket, "-t", "shop", "-q", "--json")
    named = run(*words, "--to", str(tmp_path / "named"), "--end", "tier")
    assert named.code == 0, named.stderr
    default = run(*words, "--to", str(tmp_path / "default"))
    assert json.loads(named.stdout)["ranges"] == json.loads(default.stdout)["ranges"]
    assert run("cat", "--url", bucket, "-t", "shop", "--end", "tier").code == 1


def test_a_time_in_seconds_is_noted(run: Run, bucket: str, tmp_path: Path) -> None:
    note = "% note: -o s@1795994624 is 1970-01-21 18:53: TIME is milliseconds, not seconds"
    for words in (("cat", "-q", "-t", "shop"), ("export", "-t", "shop", "--to", str(tmp_path / "out"))):
        assert note in run(*words, "--url", bucket, "-o", "s@1795994624").stderr.splitlines()
        assert note not in run(*words, "--url", bucket, "-o", "s@1000").stderr
    quiet = ("export", "-q", "-t", "shop", "--to", str(tmp_path / "quiet"), "--url", bucket, "-o", "s@1795994624")
    assert run(*quiet).stderr == "", "of export, -q leaves out warnings"
    twice = run("plan", "--url", bucket, "-t", "shop", "-t", "none", "-o", "s@1795994624").stderr
    assert twice.count("TIME is milliseconds") == 1
