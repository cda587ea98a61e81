"""`config check` of configurations that work and that do not: its lines, its exit code, its secrets.

Rules of the file:

- Tiers are the golden ones.
- Stores that fail are fetchers of this file, named by their class.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from remote_fetch.checks.check import State, failed, tried
from remote_fetch.checks.storage_checks import located
from remote_fetch.config import KEYS, PREFIX_KEYS
from remote_fetch.errors import (
    ErrorKind,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
    Unlocatable,
)
from remote_fetch.locate import contact
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.session import brokers, metadata_source
from tests.cases import each_of

if TYPE_CHECKING:
    from tests.cli.conftest import Outcome, Run

AIVEN = Path(__file__).parents[1] / "golden" / "aiven" / "aiven-zstd-aes"
PARTITION = TopicIdPartition(Uuid(b"\x01" * 16), "orders", 0)
SEGMENT = RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, Uuid(b"\x02" * 16)), 5, 9, 100)


class Refusing:
    """A fetcher whose listing works, and whose reads fail as the `how` option says."""

    errors: Mapping[str, type[RemoteFetchError]] = {
        "denied": StorageDenied,
        "missing": SegmentNotFound,
        "late": StorageTimeout,
        "away": StorageUnavailable,
    }

    def configure(self, configs: Mapping[str, str]) -> None:
        self.how = configs["remote.storage.options.how"]

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        if self.how == "no listing":
            raise Unlocatable("this store has no listings")
        yield SEGMENT

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int = -1) -> bytes:
        if self.how == "empty":
            return b""
        if self.how == "other":
            return (4).to_bytes(8, "big") + bytes(4096 - 8)
        raise self.errors.get(self.how, StorageDenied)("so it is")

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> None:
        return None

    def close(self) -> None:
        pass


class Reading(Refusing):
    """A fetcher that does not list."""

    list_segments = None  # type: ignore[assignment]


def states(outcome: Outcome) -> dict[str, str]:
    """The state of each check."""
    lines = outcome.lines[outcome.lines.index("") + 1 :]
    found = [line.split(maxsplit=1) for line in lines if not line.startswith(" ")]
    return {rest.partition(":")[0]: state for state, rest in found}


def refused(run: Run, how: str, *more: str, name: str = "Refusing") -> Outcome:
    fetcher = f"remote.storage.fetcher.class=tests.cli.test_config_check:{name}"
    return run("config", "check", "-X", fetcher, "-X", f"remote.storage.options.how={how}", *ONCE, *more)


ONCE = ("-X", "fetch.remote.read.timeout.ms=20000", "-X", "fetch.remote.retry.backoff.ms=60000")
"""Another attempt would begin after the deadline."""
ALL = ("fetcher", "list", "locator", "segment", "index")


def test_a_tier_of_this_machine(run: Run, bucket: str) -> None:
    outcome = run("config", "check", "--url", bucket)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert states(outcome) == dict.fromkeys(ALL, "ok")
    assert outcome.lines[0] == f"remote.storage.url  {bucket}"
    assert "fetcher: LocalFetcher with KafkaLocalLayout" in outcome.lines[2]
    assert run("config", "check", "--url", bucket, "-t", "shop").code == 0
    assert run("config", "check", "--url", bucket, "-t", f"shop:{Uuid(bytes(range(16)))}").code == 0


def test_a_log_that_compaction_left_empty(run: Run, bucket: str, tmp_path: Path) -> None:
    """A real broker uploads it (4.3.1). A log that is empty, and not by its metadata, is damaged: see `Refusing`."""
    folder = Path(shutil.copytree(bucket, tmp_path / "tier"))
    for path in folder.rglob("*.log"):
        path.write_bytes(b"")
    outcome = run("config", "check", "--url", str(folder))
    assert (outcome.code, states(outcome)) == (0, dict.fromkeys(ALL, "ok"))
    assert b"segment: an empty log, as compaction leaves one" in outcome.stdout


def test_json(run: Run, bucket: str) -> None:
    outcome = run("config", "check", "--url", bucket, "--json", "-X", "remote.storage.options.secret=s3cret")
    first, second, *_ = map(json.loads, outcome.lines)
    assert first == {"key": "remote.storage.url", "value": bucket, "from_broker_file": False}
    assert (second["key"], second["value"]) == ("remote.storage.options.secret", "***")
    outcome = run("config", "check", "--url", bucket, "-J")
    assert {one["check"]: one["state"] for one in map(json.loads, outcome.lines[1:])} == dict.fromkeys(ALL, "ok")


def test_a_brokers_own_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    keys = "".join(
        f"rsm.config.encryption.key.pairs.{name}.private.key.file={AIVEN}/keys/{name}_private.pem\n"
        for name in ("key1", "key2")
    )
    file.write_text(
        "remote.log.storage.manager.class.name=io.aiven.kafka.tieredstorage.RemoteStorageManager\n"
        "rsm.config.storage.backend.class=io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage\n"
        f"rsm.config.storage.root={AIVEN}/remote\nrsm.config.encryption.enabled=true\n"
        f"rsm.config.encryption.key.pairs=key1,key2\n{keys}rsm.config.key.prefix=some/pre-fix.\n"
        "rsm.config.proxy.password=s3cret\n"
    )
    outcome = run("config", "check", "--broker-properties", str(file), "-t", "tx")
    assert (outcome.code, states(outcome)) == (0, dict.fromkeys(ALL, "ok"))
    assert "not understood: proxy.password: has no counterpart here" in outcome.lines
    assert "remote.storage.layout.key.prefix" in outcome.stdout.decode()
    assert b"s3cret" not in outcome.stdout
    wrong = run("config", "check", "--broker-properties", str(file), "-X", "remote.storage.layout.key.prefix=other/")
    assert wrong.code == 1
    assert states(wrong)["list"] == "FAILED"
    assert "set remote.storage.layout.key.prefix=some/pre-fix." in wrong.stdout.decode()
    mine = [line for line in wrong.lines if line.startswith("remote.storage.layout.key.prefix")]
    assert mine[0].endswith("other/")


@pytest.mark.parametrize(
    ("how", "scheme", "hint"),
    [
        ("denied", "s3", "a clock more than 15 minutes off, or no s3:ListBucket"),
        ("denied", "gs", "a clock that is off"),
        ("missing", "s3", "metadata and storage do not belong together"),
        ("late", "s3", "the region, the endpoint, a proxy"),
        ("away", "s3", '{"s3": {"addressing_style": "path"}}'),
        ("away", "az", "a wrong host, port or scheme"),
        ("empty", "s3", ""),
        ("other", "s3", ""),
    ],
)
def test_stores_that_refuse(run: Run, how: str, scheme: str, hint: str) -> None:
    outcome = refused(run, how, "--url", f"{scheme}://me:s3cret@tier")
    assert outcome.code == 1
    assert states(outcome) == {**dict.fromkeys(ALL, "ok"), "segment": "FAILED"}
    (at,) = (at for at, line in enumerate(outcome.lines) if line.startswith("FAILED"))
    assert "topic orders" in outcome.lines[at] or "orders-0" in outcome.lines[at] or how in ("empty", "other")
    assert hint in outcome.lines[at + 1]
    assert outcome.lines[at + 1].startswith("        hint: ") is bool(hint)
    assert b"s3cret" not in outcome.stdout


def test_a_store_without_listings(run: Run, tmp_path: Path) -> None:
    """Without a broker nothing can be read; with one, or a snapshot, nothing has to be listed."""
    outcome = refused(run, "no listing")
    assert (outcome.code, states(outcome)) == (
        1,
        {**dict.fromkeys(ALL, "ok"), "list": "FAILED", "segment": "skipped", "index": "skipped"},
    )
    file = tmp_path / "timelines"
    timeline = Timeline(PARTITION, (SEGMENT,), (0,))
    file.write_bytes(dump_timelines([timeline], origin=SnapshotOrigin("c", Uuid(bytes(16)), 1, ())))
    snapshot = ("-X", "remote.locator=snapshot", "-X", f"remote.locator.snapshot.file={file}")
    outcome = refused(run, "missing", *snapshot, name="Reading")
    assert states(outcome) == {**dict.fromkeys(ALL, "ok"), "list": "skipped", "metadata": "ok", "segment": "FAILED"}
    outcome = refused(run, "no listing", "-b", "127.0.0.1:1", "-X", "remote.locator=snapshot", *snapshot[2:])
    assert states(outcome)["list"] == "skipped"


def test_a_broker_that_does_not_answer(run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (brokers, metadata_source):
        monkeypatch.setattr(module, "CLUSTER_TIMEOUT_MS", 200)
    monkeypatch.setattr(contact, "_SILENT_S", 0.1)
    monkeypatch.setattr(contact, "_ANSWER_S", 0.1)
    first_contact = ("-X", "socket.connection.setup.timeout.ms=1500")
    outcome = run("config", "check", "--url", bucket, "-b", "127.0.0.1:1", *first_contact)
    assert outcome.code == 1
    assert states(outcome) == {**dict.fromkeys(ALL, "ok"), "metadata": "FAILED"}
    assert outcome.lines[1].split() == ["bootstrap.servers", "127.0.0.1:1"]
    assert outcome.stderr.startswith("% waiting 1.5 s at most for a broker at 127.0.0.1:1: ")


@each_of("reason", [ErrorKind.UNLOCATABLE, None])
def test_a_locator_that_cannot_be_asked_shows_no_empty_tier(reason: ErrorKind | None) -> None:
    """For example a service that is away: each of its timelines is empty."""

    def check() -> None:
        if reason is not None:
            raise Unlocatable("the segments cannot be located: the service cannot be reached")

    empty = SimpleNamespace(partitions=lambda topic: (PARTITION,), timeline=lambda one: Timeline(one, (), ()))
    session: Any = SimpleNamespace(locator=empty, configured_locator=SimpleNamespace(check=check))
    found, segment = tried("metadata", None, lambda: located(session, None))
    assert (found.state, segment) == (State.OK if reason is None else State.FAILED, None)


@pytest.mark.parametrize(
    ("url", "is_s3"), [("S3a://tier", True), ("s3-tier", False), ("/mnt/s3", False), (None, False)]
)
def test_the_hints_of_s3_are_for_urls_of_s3(url: str | None, is_s3: bool) -> None:
    """The name of a directory may begin like them."""
    hint = failed("list", url, StorageUnavailable("broke off")).hint
    assert hint is not None
    assert ("path style" in hint) is is_s3


@pytest.mark.parametrize(
    ("argv", "state"),
    [
        (("--url", "/nothing/there"), {"fetcher": "ok", "list": "FAILED"}),
        (("--url", "nosuch://tier"), {"fetcher": "FAILED"}),
        ((), {"fetcher": "FAILED"}),
        (("--url", "/nothing", "--layout", "url"), {"fetcher": "ok", "list": "FAILED"}),
        (("--url", "/nothing", "-X", "remote.locator=metadata-topic"), {"list": "FAILED", "locator": "FAILED"}),
    ],
)
def test_configurations_that_cannot_work(run: Run, argv: tuple[str, ...], state: dict[str, str]) -> None:
    outcome = run("config", "check", *argv)
    assert outcome.code == 1
    assert state.items() <= states(outcome).items()


def test_a_topic_that_is_not_there(run: Run, bucket: str) -> None:
    outcome = run("config", "check", "--url", bucket, "-t", "nothing")
    assert outcome.code == 1
    said = f"no segment of topic 'nothing' is in the remote storage {bucket}; topics there: shop"
    assert said in outcome.stdout.decode()


def test_mistakes_are_one_line(run: Run) -> None:
    outcome = run("config", "check", "-X", "remote.storage.urll=x")
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert run("config").code == 2


def test_all_keys_are_listed(run: Run) -> None:
    lines = run("config", "keys").stdout.decode().splitlines()
    names = [line.partition("=")[0] for line in lines if not line.startswith(" ")]
    assert names == [*KEYS, *(f"{prefix}NAME" for prefix in PREFIX_KEYS)]
    assert "fetch.remote.enabled=false" in lines
    assert "remote-fetch config keys" in run("config", "check", "-X", "remote.storage.urll=x").stderr
