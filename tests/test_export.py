"""Exports without Spark: the rows of `read_arrow` in files, wherever an export is stopped; and the command."""

from __future__ import annotations

import errno
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from remote_fetch import export_topic, read_arrow
from remote_fetch.cli import main
from remote_fetch.errors import ConfigError, CorruptSegment, UnknownTopic, Unlocatable
from remote_fetch.model import IsolationLevel
from remote_fetch.observe import Event, RecordsRead
from remote_fetch.session.session import Session
from remote_fetch.tables import export_job
from remote_fetch.tables.commit import MANIFEST
from remote_fetch.tables.export_plan import ExportBounds, plan_export
from remote_fetch.tables.job_records import Committed
from remote_fetch.tables.parquet_files import ParquetFiles
from remote_fetch.tables.progress import Progress
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.cases import each_of
from tests.golden.conftest import SETS, Tier
from tests.prepare.other_number import OtherNumber
from tests.scan.bucket import plain_log
from tests.stores.stand_in import give_broker, sessions_without_segments

HOUR_MS = 3_600_000
FIRST_MS = 1_700_000_000_000


class Died(BaseException):
    """The process is gone."""


def config(name: str = SETS[0]) -> dict[str, str]:
    return {"remote.storage.url": Tier(name).url}


def wanted(topic: str, **more: Any) -> pa.Table:
    return read_arrow(topic, config=config(), **more).read_all().combine_chunks()


def found(to: Path) -> pa.Table:
    table = ds.dataset(to).to_table()
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def small_tier(directory: Path) -> dict[str, str]:
    """Four segments of records over some hours, with values of 1000 bytes that no codec makes smaller."""
    log, dice = LogBuilder(), random.Random(1)
    for segment in range(4):
        for _ in range(20):
            values = [dice.randbytes(1000) for _ in range(5)]
            log.append_batch(
                [Record(one, FIRST_MS + segment * HOUR_MS, b"k", value) for one, value in enumerate(values)]
            )
        log.roll()
    write_kafka_local(directory, log.segments())
    return {"remote.storage.url": str(directory)}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@each_of("topic", ["codecs", "tx", "lat"])
def test_rows_are_those_of_read_arrow(tmp_path: Path, topic: str, isolation: str) -> None:
    to = tmp_path / topic / isolation
    done = export_topic(topic, to=str(to), isolation=isolation, config=config())
    expected = wanted(topic, isolation=isolation)
    assert found(to) == expected
    assert (done.rows, done.cost.records) == (expected.num_rows, expected.num_rows)
    assert sum(one.stat().st_size for one in to.glob("*.parquet")) == done.size_bytes
    assert sorted(one.name for one in to.parent.iterdir()) == [isolation]


def test_bounds_columns_and_directories(tmp_path: Path) -> None:
    to = tmp_path / "out"
    done = export_topic(
        "codecs", to=str(to), start={0: 3}, end=9, partitions=[0], columns=["offset", "timestamp", "partition"],
        partition_by=["partition", "day"], config=config(),
    )  # fmt: skip
    assert done.ranges == {0: (3, 9)}
    table = ds.dataset(to, partitioning="hive").to_table()
    assert table.sort_by("offset").column("offset").to_pylist() == list(range(3, 9))
    assert set(table.column("partition").to_pylist()) == {0}
    assert table.schema.names[:2] == ["offset", "timestamp"]
    # Nothing is known of the other partitions, so a stream begins with their earliest offset.
    offsets = json.loads(done.starting_offsets or "")["codecs"]
    assert offsets.pop("0") == 9
    assert set(offsets.values()) == {-2}


def test_a_report_can_be_printed_whatever_the_name_of_the_target(tmp_path: Path) -> None:
    """`backfill` prints it behind the commit, where an error would hide that the job is done."""
    done = export_topic("tx", to=os.fsdecode(os.fsencode(tmp_path) + b"/\xff"), config=config())
    assert str(done).encode().splitlines()[0].endswith(b"/\\udcff")


def test_a_stream_goes_on_where_the_export_ends(tmp_path: Path) -> None:
    to = tmp_path / "out"
    done = export_topic("tx", to=str(to), config=config())
    ends = {int(number): end for number, end in json.loads(done.starting_offsets or "")["tx"].items()}
    begins = wanted("tx", isolation="read_uncommitted", start=ends)
    both = pa.concat_tables([found(to), begins])
    assert both.num_rows >= wanted("tx").num_rows
    for number, end in ends.items():
        of_export = found(to).filter(pc.field("partition") == number)
        assert all(offset < end for offset in of_export.column("offset").to_pylist())
    manifest = Committed.load((to / MANIFEST).read_text())
    assert manifest.reads == Progress("tx", manifest.reads.topic_id if manifest.reads else "", done.ranges)


def test_an_end_of_the_tier_that_no_locator_tells(tmp_path: Path) -> None:
    """Beside brokers the tier would look empty."""
    given = (None, IsolationLevel.READ_COMMITTED, None, False, 1 << 20)
    log, config = plain_log(), {"remote.storage.url": str(tmp_path), "fetch.remote.when": "always"}
    with sessions_without_segments(log):
        with pytest.raises(Unlocatable, match="does not know"):
            plan_export(ExportBounds("topic", "earliest", "tier", *given, config), None)
        job = plan_export(ExportBounds("topic", "earliest", "latest", *given, config), None)
    assert job.reads.ranges == {0: (log.start_offset, log.next_offset)}
    assert job.fallbacks == {"unlocatable": 1}


def test_a_partition_that_cannot_be_opened_has_no_empty_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, open_session, tier = plain_log(), Session.open, tmp_path / "tier"
    write_kafka_local(tier, log.segments())

    def opened(*given: Any, **more: Any) -> Session:
        session = open_session(*given, **more)
        give_broker(session, log)
        return session

    monkeypatch.setattr(Session, "open", opened)
    whole = {path: path.read_bytes() for path in tier.rglob("*.leader_epoch_checkpoint")}
    for path in whole:
        path.write_bytes(b"damaged")
    config = {"remote.storage.url": str(tier), "fetch.remote.when": "always"}
    given: dict[str, Any] = {"to": str(tmp_path / "out"), "config": config}
    with pytest.raises(CorruptSegment, match="leader-epoch checkpoint"):
        export_topic("topic", **given)
    for path, data in whole.items():
        path.write_bytes(data)
    assert export_topic("topic", **given).ranges == {0: (log.start_offset, log.next_offset)}


def test_files_have_a_size_and_are_in_order(tmp_path: Path) -> None:
    tier, to = tmp_path / "tier", tmp_path / "out"
    tier.mkdir()
    done = export_topic(
        "topic", to=str(to), config=small_tier(tier), file_bytes=60_000, row_group_bytes=20_000, compression="none"
    )
    files = sorted(to.glob("*.parquet"))
    assert 5 < done.files == len(files) < 9
    assert max(one.stat().st_size for one in files) < 100_000
    offsets = [pq.read_table(one).column("offset").to_pylist() for one in files]
    assert [offset for each in offsets for offset in each] == list(range(400))


def dies_after(records: int) -> Callable[[Event], None]:
    """An observer in which the process ends, when so many records were read."""
    left = [records]

    def hear(event: Event) -> None:
        if isinstance(event, RecordsRead):
            left[0] -= event.records
            if left[0] < 0:
                raise Died

    return hear


def test_a_killed_export_goes_on(tmp_path: Path) -> None:
    tier, to = tmp_path / "tier", tmp_path / "lake" / "out"
    tier.mkdir()
    where = small_tier(tier)
    how: dict[str, Any] = {"to": str(to), "config": where, "file_bytes": 20_000, "row_group_bytes": 10_000}
    with pytest.raises(Died):
        export_topic("topic", **how, observer=dies_after(250))
    assert not to.exists()
    done = export_topic("topic", **how)
    assert 0 < done.tasks_run < done.tasks
    assert found(to).column("offset").to_pylist() == list(range(400))
    assert [one.name for one in to.parent.iterdir()] == ["out"]
    again = export_topic("topic", **how)
    assert (again.tasks_run, again.rows, again.starting_offsets) == (0, 400, done.starting_offsets)


def test_a_transform_makes_the_columns(tmp_path: Path) -> None:
    def sizes(batch: pa.RecordBatch) -> pa.RecordBatch:
        values: Any = batch.column("value")
        return pa.record_batch({"offset": batch.column("offset"), "size": pc.binary_length(values)})

    export_topic("codecs", to=str(tmp_path / "out"), partitions=[1], transform=sizes, config=config())
    table = ds.dataset(tmp_path / "out").to_table().sort_by("offset")
    values = wanted("codecs", partitions=[1]).column("value").to_pylist()
    assert table.column("size").to_pylist() == [None if one is None else len(one) for one in values]


@each_of(
    ("more", "said"),
    [
        ({"format": "orc"}, "choose 'parquet', 'iceberg' or 'delta'"),
        ({"file_bytes": 0}, "file_bytes=0: give a number of bytes"),
        ({"file_bytes": "1"}, "file_bytes='1': give a number of bytes"),
        ({"file_bytes": None}, "file_bytes=None"),
        ({"row_group_bytes": -1}, "row_group_bytes=-1"),
        ({"row_group_bytes": 1.5}, "row_group_bytes=1.5"),
        ({"compression": "lzo"}, "compression='lzo': an export writes Parquet with zstd"),
        ({"compression": None}, "compression=None"),
        ({"transform": "upper"}, "transform='upper': give a function"),
        ({"partitions": 1}, "partitions=1: give partition numbers"),
        ({"to_options": ["secret"]}, "^to_options is a dict of names and values, not a list$"),
        ({"to_options": "secret", "format": "delta"}, "^to_options is a dict of names and values, not a str$"),
        ({"columns": ["offset", "nothing"]}, "unknown column 'nothing'"),
        ({"partition_by": ["nothing"]}, "partition_by names 'nothing'"),
        ({"partition_by": ["\udcff"]}, r"partition_by names '\\udcff'"),
        ({"columns": 3}, "columns=3: give a list of names"),
        ({"partition_by": None}, "partition_by=None: give a list of names"),
        ({"partition_by": "day"}, r"partition_by='day': give a list of names, such as \['day'\]"),
        ({"isolation": "none"}, "isolation='none'"),
        ({"end": "teir"}, "end='teir'"),
        ({"to": "s3://bucket"}, "name a directory in it"),
        ({"to": None}, "to=None: name a directory"),
        ({"to": ""}, "to='': name a directory"),
        ({"to": b"lake"}, "to=b'lake': name a directory"),
        ({"to": Path("s3://bucket/out")}, "a Path holds no URL"),
        ({"to": "user:secret@host/out"}, "^to has a user and a password, but no scheme"),
        ({"to": "user:secret@host/out", "format": "delta"}, "^to has a user and a password, but no scheme"),
    ],
)
def test_wrong_arguments_leave_nothing_behind(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    before = set(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=said):
        export_topic("codecs", **{"to": str(tmp_path / "out"), "config": config(), **more})
    assert set(tmp_path.iterdir()) == before


@each_of("below", ["", "orders", "lake/orders"])
def test_a_file_as_the_target(tmp_path: Path, below: str) -> None:
    (tmp_path / "a-file").write_text("")
    with pytest.raises(ConfigError, match=rf"{tmp_path / 'a-file' / below}: there is a file of this name"):
        export_topic("codecs", to=tmp_path / "a-file" / below, config=config())
    assert [one.name for one in tmp_path.iterdir()] == ["a-file"]


@each_of("format_name", ["parquet", "delta"])
def test_a_path_as_the_target(tmp_path: Path, format_name: str) -> None:
    done = export_topic("codecs", to=tmp_path / "out", format=format_name, config=config())
    assert export_topic("codecs", to=str(tmp_path / "out"), format=format_name, config=config()).tasks_run == 0
    assert done.rows == wanted("codecs").num_rows


def test_other_arguments_for_a_target_that_is_taken(tmp_path: Path) -> None:
    to = str(tmp_path / "out")
    export_topic("codecs", to=to, config=config())
    with pytest.raises(ConfigError, match="A target belongs to one job") as caught:
        export_topic("codecs", to=to, config=config(), columns=["offset"])
    assert not re.search("job_id|backfill", str(caught.value))
    with pytest.raises(UnknownTopic, match="codcs"):
        export_topic("codcs", to=str(tmp_path / "other"), config=config())


def test_the_same_bounds_in_other_words(tmp_path: Path) -> None:
    """They name the same job, in whatever order their partitions are, and with numbers of another library."""
    how: dict[str, Any] = {"to": str(tmp_path / "out"), "partitions": [0, 1], "config": config()}
    done = export_topic("codecs", start={0: 3, 1: 2}, end={0: 9, 1: "latest"}, log_start={0: 0, 1: 0}, **how)
    same: dict[str, Any] = {
        "start": {1: OtherNumber(2), 0: OtherNumber(3)},
        "end": {1: "latest", 0: OtherNumber(9)},
        "log_start": {1: 0, 0: OtherNumber(0)},
    }
    again = export_topic("codecs", **same, **how)
    assert (again.tasks_run, again.ranges) == (0, done.ranges)
    with pytest.raises(ConfigError, match="A target belongs to one job"):
        export_topic("codecs", **{**same, "start": {**same["start"], "0": 3}}, **how)
    number: Any = OtherNumber(3)
    how["to"] = str(tmp_path / "other")
    export_topic("codecs", start=3, **how)
    assert export_topic("codecs", start=number, **how).tasks_run == 0


@each_of("bound", [{None: 3}, {"0": 3, 0: 3}, {OtherNumber(0): 3, 0: 4}, {7: 3}])
def test_bounds_of_what_is_no_partition(tmp_path: Path, bound: Any) -> None:
    with pytest.raises(ConfigError, match="start names partitions that are not read"):
        export_topic("codecs", to=str(tmp_path / "out"), start=bound, config=config())


def test_a_fingerprint_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that an earlier release began are resumed by it."""
    named: list[str] = []
    monkeypatch.setattr(export_job, "run_directory_job", lambda _target, _name, spec: named.append(spec.fingerprint))
    export_topic(
        "orders", to=str(tmp_path / "out"), start={0: 5, 1: "latest"}, partitions=[0, 1], log_start={0: 1, 1: 2},
        columns=["offset", "timestamp"], partition_by=("day",), config={"remote.storage.url": "s3://tier/prefix"},
    )  # fmt: skip
    assert named == ["a02ab264f4b71cc1"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_symbolic_link_as_the_target(tmp_path: Path, is_there: bool) -> None:
    """Its directory is empty, or not there yet. Files are staged beside that."""
    real, link = tmp_path / "disk" / "out", tmp_path / "lake"
    real.parent.mkdir()
    if is_there:
        real.mkdir()
    link.symlink_to(real)
    for run in (True, False):
        done = export_topic("codecs", to=str(link), config=config())
        assert (done.tasks_run > 0) is run
    assert found(real).num_rows == done.rows > 0
    assert [one.name for one in real.parent.iterdir()] == ["out"]
    assert link.is_symlink()


def test_a_target_in_a_directory_that_takes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The staging directory has a name that the user never typed."""

    def mkdir(name: str, *_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    monkeypatch.setattr("os.mkdir", mkdir)
    to = str(tmp_path / "out")
    with pytest.raises(ConfigError, match=f"^{to}: no files can be staged beside it: Permission denied"):
        export_topic("codecs", to=to, config=config())


def test_a_mount_point_as_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is empty, and no rename replaces it. A job that is done may have become one since."""
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == tmp_path / "out")
    to = str(tmp_path / "out")
    with pytest.raises(ConfigError, match=f"{to} is a mount point.* Name a directory in it, as {to}/orders"):
        export_topic("codecs", to=to, config=config())
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patched:
        patched.setattr("os.path.ismount", lambda path: False)
        export_topic("codecs", to=to, config=config())
    assert export_topic("codecs", to=to, config=config()).tasks_run == 0


def test_records_of_another_release(tmp_path: Path) -> None:
    """A newer one has another counter, and an older one lacks some. The same call again does nothing with both."""
    how: dict[str, Any] = {"to": str(tmp_path / "out"), "config": config()}
    done = export_topic("codecs", **how)
    manifest = tmp_path / "out" / MANIFEST
    saved = json.loads(manifest.read_text())
    for record in saved["records"]:
        record["cost"]["newer"] = 3
        del record["cost"]["notices"], record["cost"]["sizes"]
    manifest.write_text(json.dumps(saved))
    again = export_topic("codecs", **how)
    assert (again.tasks_run, again.cost.records) == (0, done.cost.records)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "out"
    words = ["export", "--url", Tier(SETS[0]).url, "-t", "codecs", "--to", str(to), "--columns", "partition, offset"]
    assert main([*words, "--json", "-p", "0,1", "--file-size", "1M"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == wanted("codecs", partitions=[0, 1]).num_rows == found(to).num_rows
    assert told["starting_offsets"].startswith('{"codecs": {"0": ')
    assert main(["export", "--url", Tier(SETS[0]).url, "-t", "codecs", "--to", str(tmp_path / "b"), "-q"]) == 0
    assert "a stream goes on with startingOffsets" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (
            ("-o", "s@2099-01-01"),
            "% note: the tier has no record of 'codecs' from start=2099-01-01 on",
        ),
        (
            ("-o", "s@2099-01-01", "--end", "latest"),
            "% note: start=2099-01-01 is later than every record of 'codecs': the read begins at the end",
        ),
        (("-o", "end"), "% note: the tier has no record of 'codecs' from start=end on"),
        (
            ("-o", "s@2001-01-01", "-o", "e@2001-01-02"),
            "% note: start=2001-01-01 and end=2001-01-02 leave no record of 'codecs' to read",
        ),
        (("-o", "s@2001-01-01", "-p", "0", "--end", "1"), None),
        (("-p", "0"), None),
    ],
)
def test_the_command_says_why_there_are_no_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bounds: tuple[str, ...], said: str | None
) -> None:
    assert main(["export", "--url", Tier(SETS[0]).url, "-t", "codecs", "--to", str(tmp_path / "out"), *bounds]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("0 rows") is (said is not None)
    notes = [line for line in told.err.splitlines() if "start=" in line]
    assert notes == ([said] if said else [])


def test_a_disk_that_is_full_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    words = ["export", "--url", Tier(SETS[0]).url, "-t", "codecs", "--to", str(tmp_path / "out"), "-q"]
    with monkeypatch.context() as patch:
        patch.setattr(ParquetFiles, "write", full)
        assert main(words) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"remote-fetch: --to {tmp_path / 'out'}: No space left on device. The same command again ")
    assert main(words) == 0
    assert found(tmp_path / "out").num_rows == wanted("codecs").num_rows


def test_an_interrupted_export_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    words = ["export", "--url", Tier(SETS[0]).url, "-t", "codecs", "--to", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(ParquetFiles, "write", interrupt)
        assert main(words) == 130
        assert "% interrupted: the same command again goes on" in capsys.readouterr().err
        assert main([*words, "-q"]) == 130
    assert "interrupted" not in capsys.readouterr().err
    assert main(words) == 0
    assert found(tmp_path / "out").num_rows == wanted("codecs").num_rows


@each_of(
    ("more", "said"),
    [
        (["--file-size", "much"], "--file-size much: give a number of bytes"),
        (["--file-size", "0"], "--file-size 0: give a number of bytes"),
        (["--file-size", "9" * 5000], "9: give a number of bytes"),  # more digits than Python converts
        (["-o", "-5"], "-o -N: an export begins at an offset or a time"),
        (["--to-option", "word"], "--to-option, number 1: KEY=VALUE expected"),
    ],
)
def test_what_the_command_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert main(["export", "--url", Tier(SETS[0]).url, "-t", "codecs", "--to", str(tmp_path / "out"), *more]) == 1
    assert said in capsys.readouterr().err
