"""`grep`: records of a small bucket by key, value and header; what is printed, and the exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from remote_fetch.scan.scan import Scan

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (("-k", "k0"), [0]),
        (("--key-regex", "^k"), [0, 6, 7, 8]),
        (("--value", "v0"), [0]),
        (("--value-regex", "^v[0-9]$"), [0, 6, 7, 8]),
        (("--value", "aborted", "--isolation", "read_uncommitted"), [3, 4]),
        (("--header", "h"), [0, 1]),
        (("--header", "h=1"), [0]),
        (("-k", "k0", "--value", "v1"), []),
        (("--value", "aborted"), []),
        (("--key-regex", ".", "-c", "2"), [0, 2]),
        (("--key-regex", "^..$"), [0, 2, 6, 7, 8]),
        (("-k", "k0", "-o", "1"), []),
    ],
)
def test_conditions(run: Run, bucket: str, words: tuple[str, ...], offsets: list[int]) -> None:
    outcome = run("grep", "-t", "shop", "-p", "0", "--url", bucket, "-f", r"%o\n", "-q", *words)
    assert [int(line) for line in outcome.lines] == offsets
    assert (outcome.code, outcome.stderr) == (0 if offsets else 3, "")


def test_a_condition_is_given_once(run: Run, bucket: str) -> None:
    outcome = run("grep", "-t", "shop", "--url", bucket, "-k", "a", "-k", "b")
    assert (outcome.code, outcome.stdout) == (2, b"")
    assert "given twice" in outcome.stderr


def test_what_is_printed_is_what_cat_prints(run: Run, bucket: str) -> None:
    for form in (("-J",), ("-K", ":"), ("-f", r"%t %p %o %k %s %h\n")):
        found = run("grep", "-t", "shop", "--url", bucket, "-k", "k0", "-q", *form)
        assert found.code == 0
        everything = run("cat", "-t", "shop", "--url", bucket, "-e", "-q", *form)
        assert found.stdout in everything.stdout
        assert found.lines
    report = run("grep", "-t", "shop", "--url", bucket, "-k", "k0").stderr
    assert "% 1 record matches" in report


def test_a_search_that_is_interrupted_has_matches_so_far(
    run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Scan) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Scan, "batches", interrupt)
    outcome = run("grep", "-t", "shop", "--url", bucket, "-k", "k0")
    assert outcome.code == 130
    assert "% 0 records match so far" in outcome.stderr.splitlines()


def test_one_partition_of_a_key(run: Run, bucket: str) -> None:
    words = ("grep", "-t", "shop", "--url", bucket, "-k", "k0", "-J", "--partition-count", "2")
    for partitioner in ("murmur2", "consistent"):
        outcome = run(*words, "--partitioner", partitioner)
        number = int(outcome.stderr.splitlines()[0].split()[2])
        assert outcome.stderr.startswith(f"% partition {number} by {partitioner}")
        assert {json.loads(line)["partition"] for line in outcome.lines} <= {number}


def test_every_partition_may_have_an_empty_key(run: Run, bucket: str) -> None:
    """`consistent_random` of librdkafka sends it anywhere. CRC-32 would read partition 0."""
    words = ("grep", "-t", "shop", "--url", bucket, "-k", "", "-f", r"%p:%o\n", "--partition-count", "2")
    outcome = run(*words, "--partitioner", "consistent")
    assert (outcome.code, outcome.lines) == (0, ["1:1"])
    assert outcome.stderr.startswith("% every partition may have an empty key by consistent")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "grep needs a condition"),
        (("--key-regex", "["), "--key-regex: "),
        (("--partitioner", "murmur2", "--value", "x"), "give it with -k"),
        (("--partitioner", "murmur2", "-k", "x", "-p", "0"), "exclude each other"),
        (("--partitioner", "murmur2", "-k", "x"), "--partition-count N"),
        (("--partitioner", "murmur2", "-k", "x", "--partition-count", "0"), "count 0: give a number above 0"),
        (("-k", "x", "-c", "-1"), "give a number of records"),
        (("-k", "x", "-p", "9"), "no partition 9 was found"),
    ],
)
def test_what_is_wrong(run: Run, bucket: str, words: tuple[str, ...], says: str) -> None:
    outcome = run("grep", "-t", "shop", "--url", bucket, *words)
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert says in outcome.stderr
    assert "match" not in outcome.stderr  # no count of a search that did not take place


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (("--where", "offset in [0, 7]"), [0, 7]),
        (("--where", "offset >= 6 and value == 'v8'"), [8]),
        (("--where", "key is None"), [1]),
        (("--where", 'timestamp >= "2023-11-14 22:13:26" and key is not None'), [6, 7, 8]),
        (("--where", "leaderEpoch < 0 or timestampMs == 1700000001000"), [1]),
        (("--where", 'key != "k0"'), [1, 2, 6, 7, 8]),
        (("--where", "offset > 0", "--key-regex", "^k", "-c", "1"), [6]),
        (("--where", "offset > 100"), []),
    ],
)
def test_a_condition_on_columns(run: Run, bucket: str, words: tuple[str, ...], offsets: list[int]) -> None:
    outcome = run("grep", "-t", "shop", "-p", "0", "--url", bucket, "-f", r"%o\n", "-q", *words)
    assert [int(line) for line in outcome.lines] == offsets
    assert (outcome.code, outcome.stderr) == (0 if offsets else 3, "")


def test_a_condition_that_does_not_fit(run: Run, bucket: str) -> None:
    outcome = run("grep", "-t", "shop", "--url", bucket, "-q", "--where", "size > 5")
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert "--where: a record has no 'size'" in outcome.stderr
    loud = run("grep", "-t", "shop", "--url", bucket, "--where", "size > 5")
    assert loud.stderr == outcome.stderr, "nothing is read, and there is no report"
