"""`remote-fetch audit` on the command line, over a tier that a real broker wrote, with its metadata records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch.checks.audit_sources import AuditSources
from remote_fetch.checks.deep_journal import DeepJournal
from remote_fetch.session.session import Session
from tests.checks.audited import AuditedTier
from tests.checks.test_audit import PLANTED, SOME, TOPIC
from tests.golden.conftest import SETS, Tier

if TYPE_CHECKING:
    from tests.cli.conftest import Run

OPTIONS = ("-b", "127.0.0.1:1", "-X", "log_level=0")


@pytest.fixture
def tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditedTier:
    """A tier that the command audits in place of what the brokers say."""
    made = AuditedTier.of(Tier(SETS[0]), tmp_path / "tier", *SOME)

    @contextmanager
    def sources(session: Session, journal: DeepJournal | None) -> Iterator[AuditSources]:
        yield made.sources(session, journal)

    monkeypatch.setattr("remote_fetch.cli.audit.audit_sources", sources)
    return made


def test_a_sound_tier(run: Run, tier: AuditedTier) -> None:
    done = run("audit", *OPTIONS, "--url", str(tier.folder), "--deep", "-t", TOPIC)
    assert done.code == 0
    heading, row = done.lines
    assert heading.split() == [
        "TOPIC",
        "PARTITIONS",
        "SEGMENTS",
        "LOG",
        "BYTES",
        "OBJECTS",
        "OBJECT",
        "BYTES",
        "OLDEST",
        "NEWEST",
    ]
    segments = [
        one for partition, timeline in tier.timelines.items() if partition.topic == TOPIC for one in timeline.segments
    ]
    assert row.split()[:3] == [TOPIC, "2", str(len(segments))]
    assert "nothing is wrong" in done.stderr


def test_what_is_wrong_in_lines(run: Run, tier: AuditedTier) -> None:
    segment = PLANTED["log lost"].plant(tier)
    PLANTED["file of a person"].plant(tier)
    assert segment is not None
    done = run("audit", *OPTIONS, "--url", str(tier.folder))
    assert done.code == 3
    name = f"{segment.start_offset:020d}-{segment.segment_id.id}"
    wrong = [line for line in done.lines if line.startswith("error")]
    folder = f"kafka-tiered-storage/{TOPIC}-0-{segment.topic_id_partition.topic_id}"
    assert wrong == [f"error  missing          {TOPIC}-0 {name}  the log is not in the storage: {folder}/{name}.log"]
    assert [line.split()[:2] for line in done.lines if line.startswith("note")] == [["note", "unknown-object"]]
    assert "% error: missing 1" in done.stderr
    assert "% note: unknown-object 1" in done.stderr


def test_notes_alone_are_not_wrong(run: Run, tier: AuditedTier) -> None:
    PLANTED["file of a person"].plant(tier)
    assert run("audit", *OPTIONS, "--url", str(tier.folder), "-q").code == 0


def test_json_lines(run: Run, tier: AuditedTier) -> None:
    segment = PLANTED["log cut off"].plant(tier)
    assert segment is not None
    done = run("audit", *OPTIONS, "--url", str(tier.folder), "-J", "-q", "-t", TOPIC)
    finding, totals = map(json.loads, done.lines)
    assert finding["text"].startswith("the log has ")
    expected = {
        "finding": "short", "severity": "error", "topic": TOPIC, "partition": 0, "segment": str(segment.segment_id.id),
        "topic_id": str(segment.topic_id_partition.topic_id), "start_offset": segment.start_offset,
        "end_offset": segment.end_offset, "object_bytes": segment.segment_size_in_bytes - 100, "may_delete": False,
    }  # fmt: skip
    assert {name: finding[name] for name in expected} == expected
    assert (totals["topic"], totals["partitions"]) == (TOPIC, 2)
    assert done.stderr == ""


def test_the_delete_list_names_what_no_broker_needs(run: Run, tier: AuditedTier, tmp_path: Path) -> None:
    for name in ("objects of no segment", "objects of another cluster", "log lost"):
        PLANTED[name].plant(tier)
    file = tmp_path / "delete.txt"
    arguments = ("audit", *OPTIONS, "--url", str(tier.folder), "-q", "--delete-list", str(file))
    assert run(*arguments).code == 3
    (name,) = file.read_text(encoding="utf-8").splitlines()
    assert (tier.folder / name).read_bytes() == b"left over"
    again = run(*arguments)
    assert again.code == 1
    assert "Name a new file" in again.stderr


def test_a_finding_is_one_line_and_a_line_of_the_list_one_object(run: Run, tier: AuditedTier, tmp_path: Path) -> None:
    segment = PLANTED["objects of no segment"].plant(tier)
    assert segment is not None
    stray = tier.file(segment, ".log")
    folder = tier.folder / f"x\n{stray.relative_to(tier.folder)}\ny" / stray.parent.name
    folder.mkdir(parents=True)
    (folder / stray.name).write_bytes(b"")
    file = tmp_path / "delete.txt"
    done = run("audit", *OPTIONS, "--url", str(tier.folder), "-q", "-t", TOPIC, "--delete-list", str(file))
    assert file.read_text(encoding="utf-8") == f"{stray.relative_to(tier.folder)}\n"
    assert len(done.lines) == 2 + 2, "two findings, the heading and the topic"
    assert f"x\\n{stray.relative_to(tier.folder)}\\ny" in done.stdout.decode("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--url", "/nowhere"), "set bootstrap.servers (-b)"),
        (("-b", "127.0.0.1:1", "--stale-after", "soon"), "30m, 1h or 2d"),
    ],
)
def test_arguments_that_cannot_be_used(run: Run, arguments: tuple[str, ...], said: str) -> None:
    done = run("audit", *arguments)
    assert done.code in (1, 2)
    assert said in done.stderr


def test_a_store_that_has_nothing(run: Run, tier: AuditedTier) -> None:
    """It says so in one line beside the findings: then the URL is wrong, more likely than that all is lost."""
    for path in [path for path in tier.folder.rglob("*") if path.is_file()]:
        path.unlink()
    done = run("audit", *OPTIONS, "--url", str(tier.folder), "-t", TOPIC, "-q")
    assert done.code == 3
    assert "the store has no object of " in done.stderr
    assert "Check remote.storage.url" in done.stderr


def test_a_journal_of_the_same_name_in_another_directory(
    run: Run, tier: AuditedTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copy").mkdir()
    deep = ("audit", *OPTIONS, "--url", "tier", "--deep", "-t", TOPIC, "--journal", str(tmp_path / "journal"))
    for _ in range(2):
        monkeypatch.chdir(tmp_path)
        assert run(*deep).code == 0
        monkeypatch.chdir(tmp_path / "copy")
        refused = run(*deep)
        assert refused.code == 1
        assert f"it belongs to {tmp_path}/tier, and the storage is {tmp_path}/copy/tier" in refused.stderr
