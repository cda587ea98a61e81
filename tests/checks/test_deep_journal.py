"""The journal of a deep audit: what it believes, what it reads again, and which files it refuses."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from remote_fetch.checks.audit_deep import DeepAudit
from remote_fetch.checks.deep_journal import DeepJournal, place_of
from remote_fetch.checks.findings import FindingKind
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local

PRODUCER = 7
PLACE = "s3://tier/prefix"


@pytest.fixture
def segments(tmp_path: Path) -> list[RemoteLogSegmentMetadata]:
    """Three segments in a folder. A transaction begins in the first and is aborted in the second."""
    log = LogBuilder("orders")
    log.append_batch([Record(at, at, b"k", b"v") for at in range(20)])
    log.begin(PRODUCER)
    log.append_batch([Record(0, 0, b"k", b"hidden")], producer_id=PRODUCER)
    log.roll()
    log.append_batch([Record(at, at, b"k", b"v") for at in range(20)])
    log.abort(PRODUCER)
    log.roll()
    log.append_batch([Record(at, at, b"k", b"v") for at in range(20)])
    log.roll()
    built = log.segments()
    write_kafka_local(tmp_path / "tier", built)
    return [each.metadata for each in built]


class Audited:
    """Audits the folder with the journal in it. `gets` counts the GETs of logs of the last audit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gets = 0

    def __call__(self, segments: list[RemoteLogSegmentMetadata]) -> list[tuple[FindingKind, int]]:
        with (
            Session.open({"remote.storage.url": str(self.folder / "tier")}) as session,
            closing(DeepJournal(self.folder / "journal", PLACE)) as journal,
        ):
            deep = DeepAudit(session.storage, session.codecs, journal)
            found = [(each.kind, each.start_offset) for segment in segments for each in deep.findings(segment)]
            self.gets = session.counters.report().remote_gets
            return found

    def file(self, segment: RemoteLogSegmentMetadata, suffix: str) -> Path:
        (found,) = (self.folder / "tier").rglob(f"*{segment.segment_id.id}{suffix}")
        return found


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    return Audited(tmp_path)


def test_a_sound_segment_is_read_once(audited: Audited, segments: list[RemoteLogSegmentMetadata]) -> None:
    assert audited(segments[:2]) == []
    assert audited.gets == 2
    assert audited(segments) == []
    assert audited.gets == 1
    assert audited(segments) == []
    assert audited.gets == 0


def test_a_faulty_segment_is_read_until_it_is_mended(
    audited: Audited, segments: list[RemoteLogSegmentMetadata]
) -> None:
    path = audited.file(segments[1], ".log")
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    wrong = [(FindingKind.CORRUPT, segments[1].start_offset)]
    assert audited(segments) == wrong
    assert (audited(segments), audited.gets) == (wrong, 1)
    path.write_bytes(sound)
    assert (audited(segments), audited.gets) == ([], 1)
    assert (audited(segments), audited.gets) == ([], 0)


def test_a_transaction_goes_on_behind_a_segment_of_the_journal(
    audited: Audited, segments: list[RemoteLogSegmentMetadata]
) -> None:
    """Only the segment before tells that the aborted transaction has records."""
    assert audited(segments[:1]) == []
    audited.file(segments[1], ".txnindex").write_bytes(b"")
    assert audited(segments) == [(FindingKind.DAMAGED_INDEX, segments[1].start_offset)]
    assert audited.gets == 2


def test_changed_metadata_is_compared_with_the_log(audited: Audited, segments: list[RemoteLogSegmentMetadata]) -> None:
    assert audited(segments) == []
    changed = replace(segments[2], max_timestamp_ms=3)
    assert audited([changed]) == [(FindingKind.WRONG_METADATA, changed.start_offset)]


@contextmanager
def refused(text: str) -> Iterator[None]:
    with pytest.raises(ConfigError, match=text) as caught:
        yield
    assert caught.value.key == "--journal"


@contextmanager
def connected(journal: Path) -> Iterator[sqlite3.Connection]:
    """The file of a journal, open to another process."""
    with closing(sqlite3.connect(journal, isolation_level=None)) as other:
        yield other


def test_a_journal_that_another_audit_writes(tmp_path: Path, segments: list[RemoteLogSegmentMetadata]) -> None:
    journal = tmp_path / "journal"
    with closing(DeepJournal(journal, PLACE)) as opened, connected(journal) as other:
        opened.note(segments[0], [PRODUCER])
        other.execute("BEGIN EXCLUSIVE")
        with refused("locked"):
            opened.open_producers_after(segments[0])
        with refused("locked"):
            opened.note(segments[1], [])
        other.execute("ROLLBACK")
        assert opened.open_producers_after(segments[0]) == frozenset({PRODUCER})


@pytest.mark.parametrize(
    "text", ["x", "", "7", "null", '["7"]', "[7.5]", "[true]", "[" * 10_000, f"[{'9' * 5_000}]", None, b"[7]"]
)
def test_open_producers_that_no_audit_writes(
    tmp_path: Path, segments: list[RemoteLogSegmentMetadata], text: str | bytes | None
) -> None:
    journal = tmp_path / "journal"
    with closing(DeepJournal(journal, PLACE)) as opened, connected(journal) as other:
        opened.note(segments[0], [PRODUCER])
        other.execute("UPDATE sound SET open_producers = ?", (text,))
        with refused("no list of numbers"):
            opened.open_producers_after(segments[0])


def test_a_journal_whose_pages_are_damaged(tmp_path: Path, segments: list[RemoteLogSegmentMetadata]) -> None:
    journal = tmp_path / "journal"
    with closing(DeepJournal(journal, PLACE)) as opened:
        for segment in segments:
            opened.note(segment, range(1_000))
    data = journal.read_bytes()
    journal.write_bytes(data[:8192] + b"\xff" * (len(data) - 8192))
    with closing(DeepJournal(journal, PLACE)) as opened, refused("malformed"):
        opened.open_producers_after(segments[0])


def test_files_that_are_refused(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    DeepJournal(journal, PLACE).close()
    with connected(journal) as other:
        other.execute("BEGIN EXCLUSIVE")  # as another audit that writes
        with refused("locked"):
            DeepJournal(journal, PLACE)
    with refused("belongs to s3://tier/prefix, and the storage is s3://other"):
        DeepJournal(journal, "s3://other")
    with connected(journal) as other:
        other.execute("PRAGMA user_version = 2")
    with refused("it has version 2; 1 is known"):
        DeepJournal(journal, PLACE)
    (tmp_path / "text").write_text("no database " * 100)
    with refused("not a database"):
        DeepJournal(tmp_path / "text", PLACE)
    assert (tmp_path / "text").read_text() == "no database " * 100
    with closing(sqlite3.connect(tmp_path / "other")) as database:
        database.execute("CREATE TABLE other (name TEXT)")
    with refused("it is no journal of an audit"):
        DeepJournal(tmp_path / "other", PLACE)
    with refused("unable to open"):
        DeepJournal(tmp_path / "no" / "folder", PLACE)
    with refused("a name has no NUL"):
        DeepJournal(tmp_path / "a\0b", PLACE)
    DeepJournal(tmp_path / "placeless", PLACE).close()
    with connected(tmp_path / "placeless") as other:
        other.execute("DELETE FROM place")
    with refused("does not say which storage it belongs to"):
        DeepJournal(tmp_path / "placeless", PLACE)


@pytest.fixture(autouse=True)
def no_store_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_STORAGE_", "STORAGE_EMULATOR_"))]:
        monkeypatch.delenv(name)


def place(url: str, **options: str) -> str:
    """The place of a configuration. `options` have `__` for a dot."""
    named = {f"remote.storage.{name.replace('__', '.')}": value for name, value in options.items()}
    return place_of(Config.parse({"remote.storage.url": url, **named}))


def test_a_directory_is_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name / "tier").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "tier")
    monkeypatch.chdir(tmp_path / "a")
    mine = place("tier")
    assert mine == f"{tmp_path}/a/tier"
    assert place("./tier/") == place(f"file://{tmp_path}/a/tier") == place(str(tmp_path / "link")) == mine
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place(f"file:{tmp_path}/a/tier") == place("~/a/tier") == mine, "as the storage takes them"
    monkeypatch.chdir(tmp_path / "b")
    assert place("tier") == f"{tmp_path}/b/tier"
    assert place("tier?1") == f"{tmp_path}/b/tier?1"


def test_a_copy_elsewhere_is_another_place() -> None:
    """A copy has the same segments, so that only the place tells that its bytes were not read."""
    url = "https://user:SECRET@host/tier"
    azure = "AccountName={};AccountKey={};BlobEndpoint={}"
    places = [
        place(url),
        place(url + "?bucket=SECRET"),
        place(url + "?bucket=SECRET2"),
        place(url, options__endpoint_url="http://u:SECRET@one:9000/?SECRET"),
        place(url, options__endpoint_url="http://two:9000"),
        place(url, options__client_kwargs='{"endpoint_url": "http://u:SECRET@one", "password": "SECRET"}'),
        place(url, options__client_kwargs='{"endpoint_url": "http://two"}'),
        place(url, options__connection_string=azure.format("a", "SECRET", "http://one/a")),
        place(url, options__connection_string=azure.format("b", "SECRET", "http://one/a")),
        place(url, options__connection_string=azure.format("a", "SECRET", "http://two/a")),
        place(url, options__connection_string="accountname=a;accountkey=SECRET"),
        place(url, options__connection_string="accountname=b;accountkey=SECRET"),
        place(url, options__profile="SECRET"),
        place(url, options__profile="other"),
        place(url, fetcher__class="p:F", options__bucket="SECRET"),
        place(url, fetcher__class="p:F", options__bucket="b"),
        place(url, fetcher__class="p:G", options__bucket="b"),
        place(url, options__more='[{"bucket": "SECRET"}]'),
        place(url, options__more='[{"bucket": "b"}]'),
        place(url, options__more="[" * 300 + '"SECRET"' + "]" * 300),
        place(url, options__more="[" * 300 + '"b"' + "]" * 300),
        place(url, options__more="1"),
        place("s3://tier/a#SECRET"),
        place("s3://tier/a#b"),
        place("https://u:SE/CRET@one/tier"),
        place("https://u:SE/CRET@two/tier"),
        place("github://one:tier@main/p"),
        place("github://two:tier@main/p"),
        place(url, options__account_name="a"),
        place(url, layout="aiven"),
        place(url, layout="aiven", layout__key__prefix="SECRET/"),
        place(url, layout="aiven", layout__key__prefix="a?/"),
        place(url, roots="s3://other/tier,s3://third"),
        place_of(Config.parse({})),
    ]
    assert len(set(places)) == len(places)
    assert "SECRET" not in "".join(places)
    assert re.fullmatch(r"https://host/tier \(\w{16}\)", places[0])
    assert re.fullmatch(r"https://host/tier \(\w{16}\), endpoint_url=http://one:9000/ \(\w{16}\)", places[3])
    assert place("s3://tier/p", options__endpoint_url="http://one") == "s3://tier/p, endpoint_url=http://one"


@pytest.mark.parametrize(
    "name",
    ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "STORAGE_EMULATOR_HOST", "AZURE_STORAGE_ACCOUNT_NAME"],
)
def test_a_store_that_the_environment_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    found, folder = {place("s3://tier")}, place(str(tmp_path))
    for value in ("http://u:SECRET@one", "http://two"):
        monkeypatch.setenv(name, value)
        found.add(place("s3://tier"))
    assert len(found) == 3
    assert "SECRET" not in "".join(found)
    assert place(str(tmp_path)) == folder
    assert place(str(tmp_path), fetcher__class="p:F") != folder


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    url = str(tmp_path / os.fsdecode(b"x\xff"))
    places = [
        place(url),
        place(url.encode("utf-8", "backslashreplace").decode()),
        place("x", layout__file__log="\udc80"),
    ]
    assert len(set(places)) == 3
    for number, each in enumerate(places):
        DeepJournal(tmp_path / f"journal-{number}", each).close()
        DeepJournal(tmp_path / f"journal-{number}", each).close()
    with refused(r"belongs to .*x\\udcff, \w{16}, and"):
        DeepJournal(tmp_path / "journal-0", PLACE)


def test_a_key_that_is_renewed_is_no_other_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_key(key: str) -> str:
        text = f"AccountName=a;AccountKey={key}=="
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"accountname=a;accountkey={key}==")
        kwargs = f'{{"endpoint_url": "http://one", "more": [{{"password": "{key}"}}], "Token": "{key}"}}'
        more = {f"layout__encryption__key__pairs__{key}__private__key__file": key}
        return place(
            f"s3://u:{key}@b/p",
            options__secret=key,
            options__headers=f'{{"Authorization": "{key}"}}',
            options__endpoint_url=f"http://u:{key}@one",
            options__connection_string=text,
            options__client_kwargs=kwargs,
            **more,
        )

    assert of_key("old") == of_key("new")
