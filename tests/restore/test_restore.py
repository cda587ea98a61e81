"""A restore from a bucket into a topic in memory: every record once, also if runs die in the middle."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException

from remote_fetch import read_arrow
from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import ConfigError, OffsetOutOfRange
from remote_fetch.model import IsolationLevel, Uuid
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.restore import job, records
from remote_fetch.restore.job import Restore, Restored, RestoreRequest
from remote_fetch.restore.journal import read_maps
from remote_fetch.restore.offset_map import OffsetMap
from remote_fetch.restore.target import Target
from remote_fetch.restore.verify import Compared, Unlike, compare, first_unlike
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.restore.fake_target import FakeTarget, Written
from tests.searches import fewer

PRODUCER = 7
PARTITIONS = 3
HEAD = {"restore": 1, "topic": "t", "topic_id": "i", "isolation": "x", "target": "t", "target_id": "i"}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions: dense from 0 on; with an aborted and a committed transaction; dense from 40 on, with gaps."""
    folder = tmp_path_factory.mktemp("tier")
    topic_id = Uuid(bytes(range(16)))
    for number in range(PARTITIONS):
        log = LogBuilder("orders", topic_id, number, start_offset=40 if number == 2 else 0)
        for segment in range(4):
            if number == 1 and segment in (1, 2):
                log.begin(PRODUCER)
                log.append_batch([Record(at, at, b"k", b"in transaction") for at in range(5)], producer_id=PRODUCER)
                (log.abort if segment == 1 else log.commit)(PRODUCER)
            records = [
                Record(
                    at,
                    1000 + at,
                    b"k%d" % at if at % 3 else None,
                    b"value %d" % at if at % 4 else None,
                    (("h", b"x"), ("n", None)),
                )
                for at in range(20)
                if number < 2 or at % 6
            ]
            log.append_batch(records, last_offset_delta=19)
            log.roll()
        write_kafka_local(folder, log.segments())
    return folder


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after each batch, and no waiting for a broker."""
    monkeypatch.setattr(job, "_CHECKPOINT_BYTES", 1)
    monkeypatch.setattr(job, "_STABLE_S", 0.0)


def expected(bucket: Path, isolation: str) -> dict[int, list[Written]]:
    """The records of each partition, in order."""
    found: dict[int, list[Written]] = {number: [] for number in range(PARTITIONS)}
    with read_arrow(
        "orders", config={"remote.storage.url": str(bucket)}, isolation=isolation,
        columns=("partition", "key", "value", "headers", "timestampMs"),
    ) as reader:  # fmt: skip
        for row in reader.read_all().to_pylist():
            headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
            found[row["partition"]].append((row["key"], row["value"], headers, row["timestampMs"]))
    return found


def restore(bucket: Path, journal: Path, target: FakeTarget, isolation: str = "read_committed") -> Restored:
    """One run."""
    request = RestoreRequest("orders", journal, IsolationLevel(isolation))
    with Session.open({"remote.storage.url": str(bucket), "fetch.remote.range.bytes": 1024}) as session:
        made: Any = target
        return Restore(session, made, request).run()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_whole_topic(bucket: Path, tmp_path: Path, isolation: str) -> None:
    target = FakeTarget()
    restored = restore(bucket, tmp_path / "journal", target, isolation)
    assert target.logs == expected(bucket, isolation)
    assert restored.of_partitions == {number: len(log) for number, log in target.logs.items()}
    assert restored.records == sum(map(len, target.logs.values()))
    assert not restored.keeps_offsets
    head, maps, given_up = read_maps(tmp_path / "journal")
    assert given_up is None
    assert (head.topic, head.target, head.isolation) == ("orders", "new", isolation)
    assert maps[0].keeps_offsets
    assert not maps[2].keeps_offsets
    assert maps[2].translate(41) == 0
    assert maps[2].translate(47) == 5  # 40 and 46 are gaps


def test_a_run_that_sees_less_of_the_old_topic_does_not_give_the_job_up(tmp_path: Path) -> None:
    """The records that it does not know are not another writer's: a run before read them."""
    log, whole, behind = LogBuilder("orders", Uuid(bytes(range(16))), 0), tmp_path / "whole", tmp_path / "behind"
    for folder in (behind, whole):
        log.append_batch([Record(0), Record(1)])
        log.roll()
        write_kafka_local(folder, log.segments())

    class Killed(FakeTarget):
        def flush(self) -> None:
            super().flush()
            if self.flushes == 1:  # all are written, and no checkpoint notes them
                raise KeyboardInterrupt

    target, journal = Killed(), tmp_path / "journal"
    with pytest.raises(KeyboardInterrupt):
        restore(whole, journal, target)
    with pytest.raises(ConfigError, match="up to offset 1 now, and a run before read up to 3: 2 records"):
        restore(behind, journal, target)
    assert restore(whole, journal, target).of_partitions == {0: 4}
    assert len(target.logs[0]) == 4


def test_runs_that_die_anywhere_leave_each_record_once(bucket: Path, tmp_path: Path) -> None:
    wanted = expected(bucket, "read_committed")
    for seed in range(fewer(30)):
        dice, target, journal = random.Random(seed), FakeTarget(), tmp_path / f"journal-{seed}"
        for _ in range(10):
            target.fails_after = dice.randrange(40)
            try:
                restore(bucket, journal, target)
            except KafkaException:
                if dice.random() < 0.3 and journal.exists():
                    tear(journal, dice)
        target.fails_after = None
        restore(bucket, journal, target)
        assert target.logs == wanted, seed


def test_a_run_reads_only_what_the_runs_before_have_not(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a broker a step has a whole log that is not tiered, not a segment."""
    target = FakeTarget()
    for fails_after in (30, 10):
        target.fails_after = fails_after
        with pytest.raises(KafkaException):
            restore(bucket, tmp_path / "journal", target)
    known = read_maps(tmp_path / "journal")[1][0].source_next
    assert known == 30
    firsts: list[int] = []

    class Seen(Scan):
        def __init__(self, session: Session, plans: Sequence[PartitionPlan], columns: Sequence[str]) -> None:
            firsts.extend(step.first_offset for plan in plans[:1] for step in plan.steps[:1])
            super().__init__(session, plans, columns)

    monkeypatch.setattr(records, "Scan", Seen)
    target.fails_after = None
    restore(bucket, tmp_path / "journal", target)
    assert min(firsts[:2]) >= known  # partition 0: what the target has and the journal has not, and what is left
    assert target.logs == expected(bucket, "read_committed")


def test_a_run_that_was_killed_at_once_left_no_whole_line(bucket: Path, tmp_path: Path) -> None:
    journal, wanted = tmp_path / "journal", expected(bucket, "read_committed")
    restore(bucket, journal, FakeTarget())
    head = journal.read_bytes().splitlines()[0]
    for cut in (0, 1, 5, 20, len(head)):
        journal.write_bytes(head[:cut])
        target = FakeTarget()
        restore(bucket, journal, target)
        assert target.logs == wanted, cut


def tear(journal: Path, dice: random.Random) -> None:
    """The machine stops while a line is written: what follows the first line may be cut anywhere."""
    data = journal.read_bytes()
    head = data.index(b"\n") + 1
    journal.write_bytes(data[: dice.randrange(head, len(data) + 1)])


def test_a_run_after_the_end_writes_nothing(bucket: Path, tmp_path: Path) -> None:
    target = FakeTarget()
    first = restore(bucket, tmp_path / "journal", target)
    again = restore(bucket, tmp_path / "journal", target)
    assert again.records == 0
    assert again.of_partitions == first.of_partitions
    assert target.logs == expected(bucket, "read_committed")


def test_the_journal_is_on_disk_before_the_next_records_are_sent(bucket: Path, tmp_path: Path) -> None:
    """Else a run that is killed leaves more records in doubt, and does not say how far it has read."""
    journal = tmp_path / "journal"

    class Looking(FakeTarget):
        def flush(self) -> None:
            lines = journal.read_bytes()
            assert lines.endswith(b"\n")
            assert b'"reads"' in lines
            noted = {number: sum(run.records for run in each.runs()) for number, each in read_maps(journal)[1].items()}
            assert noted == {number: len(log) for number, log in self.logs.items()}
            super().flush()

    target = Looking()
    restore(bucket, journal, target)
    assert target.flushes > 1


class TestRetentionBetweenRuns:
    """The old log loses its first records after a run has died. A batch has ten records."""

    @pytest.fixture(autouse=True)
    def small_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = Restore._batches

        def cut(of: Restore, *args: Any) -> Iterator[Any]:
            for batch in whole(of, *args):
                for at in range(0, batch.num_rows, 10):
                    yield batch.slice(at, 10)

        monkeypatch.setattr(Restore, "_batches", cut)

    def dies(self, bucket: Path, journal: Path, target: FakeTarget, records: int) -> None:
        """A run that dies after so many records more."""
        target.fails_after = records
        with pytest.raises(KafkaException):
            restore(bucket, journal, target)
        target.fails_after = None

    def delete_segments(self, bucket: Path, count: int) -> None:
        """Delete the first segments of partition 0."""
        for path in sorted(bucket.glob("*/orders-0-*/*.log"))[:count]:
            for file in path.parent.glob(f"{path.stem}.*"):
                file.unlink()

    def test_records_that_the_journal_lacks_are_not_counted_by_a_shorter_plan(
        self, bucket: Path, tmp_path: Path
    ) -> None:
        old, journal, target = Path(shutil.copytree(bucket, tmp_path / "old")), tmp_path / "journal", FakeTarget()
        self.dies(old, journal, target, 7)
        self.delete_segments(old, 1)
        with pytest.raises(ConfigError, match=r"partition 0 of the old topic begins with offset 20 now.*7 records"):
            restore(old, journal, target)
        assert len(target.logs[0]) == 7

    def test_records_that_the_journal_has_may_go(self, bucket: Path, tmp_path: Path) -> None:
        old, journal, target = Path(shutil.copytree(bucket, tmp_path / "old")), tmp_path / "journal", FakeTarget()
        self.dies(old, journal, target, 27)  # 20 are in the journal
        self.delete_segments(old, 1)
        restore(old, journal, target)
        assert target.logs == expected(bucket, "read_committed")

    def test_a_run_after_that_soon_knows_where_it_began(
        self, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its first checkpoint comes after the first records, so that another run can go on."""
        old, journal, target = Path(shutil.copytree(bucket, tmp_path / "old")), tmp_path / "journal", FakeTarget()
        self.dies(old, journal, target, 0)
        self.delete_segments(old, 1)
        monkeypatch.setattr(job, "_CHECKPOINT_BYTES", 1 << 20)
        self.dies(old, journal, target, 25)
        assert list(read_maps(journal)[1][0].runs()) == [(20, 0, 10)]
        restore(old, journal, target)
        assert target.logs[0] == expected(bucket, "read_committed")[0][20:]

    def test_a_journal_of_an_older_release_does_not_tell_where_its_runs_began(
        self, bucket: Path, tmp_path: Path
    ) -> None:
        journal, target = tmp_path / "journal", FakeTarget()
        self.dies(bucket, journal, target, 7)
        head, _, rest = journal.read_bytes().partition(b"\n")
        older = {name: value for name, value in json.loads(head).items() if name != "source_starts"}
        journal.write_bytes(json.dumps(older).encode() + b"\n" + rest)
        restore(bucket, journal, target)
        assert target.logs == expected(bucket, "read_committed")


class TestWrongTargets:
    def test_a_topic_with_records(self, bucket: Path, tmp_path: Path) -> None:
        target = FakeTarget(logs={0: [], 1: [(None, b"x", [], 1)], 2: []})
        with pytest.raises(ConfigError, match=r"has records, in partition 1.*Name an empty topic"):
            restore(bucket, tmp_path / "journal", target)
        assert not (tmp_path / "journal").exists()

    def test_an_empty_topic_whose_offsets_begin_late(self, bucket: Path, tmp_path: Path) -> None:
        """All its records were deleted. New ones have later offsets."""
        target = FakeTarget(first_offsets={0: 500})
        restored = restore(bucket, tmp_path / "journal", target)
        assert not restored.keeps_offsets
        assert read_maps(tmp_path / "journal")[1][0].translate(7) == 507

    @pytest.mark.parametrize(("flush", "noted"), [(1, []), (2, [(0, 0, 80)])])
    def test_another_writer(self, bucket: Path, tmp_path: Path, flush: int, noted: list[tuple[int, ...]]) -> None:
        """At the first checkpoint it is open whose the records of partition 0 are. The second is of partition 1."""

        class Shared(FakeTarget):
            def flush(self) -> None:
                super().flush()
                if self.flushes == flush:
                    self.logs[0].append((None, b"of another", [], 1))

        target = Shared()
        with pytest.raises(ConfigError, match="Another writer"):
            restore(bucket, tmp_path / "journal", target)
        for _ in range(2):  # a later run would take the record for the next one of the old topic
            with pytest.raises(ConfigError, match="partition 0 of the target has records that are not of this restore"):
                restore(bucket, tmp_path / "journal", target)
        _, maps, given_up = read_maps(tmp_path / "journal")
        assert given_up == 0
        assert list(maps[0].runs()) == noted

    def test_an_end_that_a_new_leader_says_too_low(self, bucket: Path, tmp_path: Path) -> None:
        class Late(FakeTarget):
            def ends(self, numbers: Collection[int]) -> dict[int, int]:
                late = 1 if self.flushes == 2 else 0
                return {number: end - late for number, end in super().ends(numbers).items()}

        target = Late()
        with pytest.raises(ConfigError, match="A leader that was just replaced"):
            restore(bucket, tmp_path / "journal", target)
        target.flushes = 10
        restore(bucket, tmp_path / "journal", target)
        assert target.logs == expected(bucket, "read_committed")

    def test_an_end_that_is_too_low_beside_another_writer(self, bucket: Path, tmp_path: Path) -> None:
        """The late leader of one partition does not keep the records of others in another one out of the journal."""

        class Both(FakeTarget):
            def ends(self, numbers: Collection[int]) -> dict[int, int]:
                wrong = {0: -1, 1: 1} if self.flushes and len(numbers) == PARTITIONS else {}
                return {number: end + wrong.get(number, 0) for number, end in super().ends(numbers).items()}

        with pytest.raises(ConfigError, match="partition 1 of the target ends with offset"):
            restore(bucket, tmp_path / "journal", Both())
        assert read_maps(tmp_path / "journal")[2] == 1

    def test_a_writer_that_does_not_stop(self, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Growing(FakeTarget):
            def ends(self, numbers: Collection[int]) -> dict[int, int]:
                if len(self.logs[1]) < 1000:
                    self.logs[1].append((None, b"of another writer", [], 0))
                return super().ends(numbers)

        target = FakeTarget()
        restore(bucket, tmp_path / "journal", target)
        monkeypatch.setattr(job, "_STABLE_S", 1.0)
        monkeypatch.setattr(job, "_LOOK_AGAIN_S", 0.0)
        monkeypatch.setattr(job, "_SETTLE_S", 0.0)
        with pytest.raises(ConfigError, match="partition 1 of the target still grows"):
            restore(bucket, tmp_path / "journal", Growing(logs=target.logs))

    def test_a_record_of_the_run_before_that_arrives_now(
        self, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The run has looked once at the ends. With these ends it would write the record again."""
        target, whole = FakeTarget(fails_after=25), expected(bucket, "read_committed")
        with pytest.raises(KafkaException):
            restore(bucket, tmp_path / "journal", target)

        class Late(FakeTarget):
            looks = 0

            def ends(self, partitions: Collection[int]) -> dict[int, int]:
                self.looks += 1
                if self.looks == 2:
                    self.logs[0].append(whole[0][len(self.logs[0])])
                return super().ends(partitions)

        class TwoLooks:
            """A deadline that is over after two looks."""

            def __init__(self) -> None:
                self.looks = iter([False, False])

            @property
            def is_over(self) -> bool:
                return next(self.looks, True)

        monkeypatch.setattr(job, "_LOOK_AGAIN_S", 0.0)
        monkeypatch.setattr(job, "Deadline", SimpleNamespace(after=lambda _: TwoLooks()))
        late = Late(logs=target.logs)
        restore(bucket, tmp_path / "journal", late)
        assert late.logs == whole

    def test_a_writer_after_the_end(self, bucket: Path, tmp_path: Path) -> None:
        target = FakeTarget()
        restore(bucket, tmp_path / "journal", target)
        target.logs[2].append((None, b"of another", [], 1))
        with pytest.raises(ConfigError, match="partition 2 of the target has 1 records more"):
            restore(bucket, tmp_path / "journal", target)
        with pytest.raises(ConfigError, match="partition 2 of the target has records that are not of this restore"):
            restore(bucket, tmp_path / "journal", target)  # the tier may have one record more by now
        _, maps, given_up = read_maps(tmp_path / "journal")
        assert given_up == 2
        assert maps[2].translate(47) == 5

    def test_a_writer_after_the_end_while_the_tier_grows(self, bucket: Path, tmp_path: Path) -> None:
        """The records that the tier has got are counted for those of the writer, and none of these counts is kept."""
        grown, target = tmp_path / "grown", FakeTarget()
        topic_id = Uuid(bytes(range(16)))
        log = LogBuilder("orders", topic_id, 0)

        def grow() -> None:
            log.append_batch([Record(0), Record(1)])
            log.roll()
            write_kafka_local(grown, log.segments())

        grow()
        restore(grown, tmp_path / "journal", target)
        target.logs[0] += [(None, b"of another", [], 1)] * 3
        grow()
        with pytest.raises(ConfigError, match="partition 0 of the target has 1 records more"):
            restore(grown, tmp_path / "journal", target)
        _, maps, _ = read_maps(tmp_path / "journal")
        assert list(maps[0].runs()) == [(0, 0, 2)]

    def test_a_target_that_lost_records(self, bucket: Path, tmp_path: Path) -> None:
        target = FakeTarget()
        restore(bucket, tmp_path / "journal", target)
        del target.logs[1][-2:]
        with pytest.raises(ConfigError, match="has lost records"):
            restore(bucket, tmp_path / "journal", target)

    def test_the_journal_of_another_job(self, bucket: Path, tmp_path: Path) -> None:
        target = FakeTarget()
        restore(bucket, tmp_path / "journal", target)
        with pytest.raises(ConfigError, match="belongs to another job"):
            restore(bucket, tmp_path / "journal", target, "read_uncommitted")
        target.topic = "renamed"
        with pytest.raises(ConfigError, match=r"to new:.*to renamed:"):
            restore(bucket, tmp_path / "journal", target)

    def test_a_second_run_at_once(self, bucket: Path, tmp_path: Path) -> None:
        """It would write the same records, and the lines of both would lie over each other."""
        refused = []

        class Slow(FakeTarget):
            def flush(self) -> None:
                super().flush()
                with pytest.raises(ConfigError, match="another run has it open") as caught:
                    restore(bucket, tmp_path / "journal", FakeTarget(logs=self.logs))
                refused.append(caught.value)

        target = Slow()
        restore(bucket, tmp_path / "journal", target)
        assert refused
        assert target.logs == expected(bucket, "read_committed")
        restore(bucket, tmp_path / "journal", target)

    def test_a_topic_that_has_more_partitions_now(self, bucket: Path, tmp_path: Path) -> None:
        target, grown = FakeTarget(), tmp_path / "grown"
        restore(bucket, tmp_path / "journal", target)
        shutil.copytree(bucket, grown)
        log = LogBuilder("orders", Uuid(bytes(range(16))), PARTITIONS)
        log.append_batch([Record(0)])
        log.roll()
        write_kafka_local(grown, log.segments())
        with pytest.raises(ConfigError, match=r"has the partitions \[0, 1, 2, 3\] now, and had \[0, 1, 2\]"):
            restore(grown, tmp_path / "journal", target)


@pytest.mark.parametrize(
    "line",
    [
        b"{}\n", b"{}", b"bytes without a line", b"not json\n", b'{"restore": 2}\n', b"[1]\n", b"[" * 200_000 + b"\n",
        json.dumps({**HEAD, "starts": {"0": -1}}).encode() + b"\n",
        json.dumps({**HEAD, "starts": [0]}).encode() + b"\n",
    ],
)  # fmt: skip
def test_a_file_that_is_no_journal(bucket: Path, tmp_path: Path, line: bytes) -> None:
    (tmp_path / "journal").write_bytes(line)
    with pytest.raises(ConfigError, match="is no journal of a restore"):
        restore(bucket, tmp_path / "journal", FakeTarget())


def test_no_room_for_the_journal(bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are in the new topic. A later run finds them."""
    target, path = FakeTarget(), tmp_path / "journal"

    def fail(number: int) -> None:
        if target.flushes == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(ConfigError, match=r"--journal \S+/journal: No space left on device"):
            restore(bucket, path, target)
    restore(bucket, path, target)
    assert target.logs == expected(bucket, "read_committed")


def test_no_room_for_a_new_journal(bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that failed leaves no lock, also while its error is kept."""
    target, path = FakeTarget(), tmp_path / "journal"

    def fail(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(ConfigError, match="No space left on device") as caught:
            restore(bucket, path, target)
    restore(bucket, path, target)
    assert target.logs == expected(bucket, "read_committed")
    assert caught.value.key == "--journal"


def test_a_share_whose_locks_keep_all_others_out(bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SMB (Linux 5.5 and later): the file can be read and written by the descriptor that has the lock alone."""
    fcntl = pytest.importorskip("fcntl")
    target, path = FakeTarget(), tmp_path / "journal"
    restore(bucket, path, target)
    locked: list[BinaryIO] = []

    def opened(name: Path, mode: str) -> Any:
        if any(not file.closed for file in locked):
            raise PermissionError(errno.EACCES, "Permission denied")
        return open(name, mode)

    monkeypatch.setattr(fcntl, "flock", lambda file, how: locked.append(file))
    monkeypatch.setattr("remote_fetch.restore.journal.open", opened, raising=False)
    restore(bucket, path, target)
    assert len(locked) == 1
    assert target.logs == expected(bucket, "read_committed")


@pytest.mark.parametrize("lines", [[{"given_up": 9}], [{"given_up": "0"}], [{"given_up": 0}, {"given_up": 0}]])
def test_a_journal_that_no_run_has_given_up_so(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    journal = tmp_path / "journal"
    journal.write_text("".join(json.dumps(line) + "\n" for line in [{**HEAD, "starts": {"0": 0}}, *lines]))
    with pytest.raises(ConfigError, match="is no journal of a restore, at byte"):
        read_maps(journal)


@pytest.mark.parametrize(
    "wrong", [{"source": 3}, {"partition": 9}, {"target": 7}, {"records": 0}, {"source": 2**63}, {"source": "99"}]
)
def test_a_journal_with_a_line_that_cannot_be(bucket: Path, tmp_path: Path, wrong: dict[str, Any]) -> None:
    journal = tmp_path / "journal"
    restore(bucket, journal, FakeTarget())
    right = {"partition": 0, "source": 99, "target": 20, "records": 1}
    lines = [{**right, "source": 0, "target": 0, "records": 20}, right | wrong]
    head = journal.read_bytes().splitlines(keepends=True)[0]
    journal.write_bytes(head + b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    with pytest.raises(ConfigError, match="is no journal of a restore, at byte"):
        read_maps(journal)


class TestComparing:
    def batches(
        self, bucket: Path, cut: int, change: Callable[[dict[str, Any]], None] = lambda row: None
    ) -> Iterator[Any]:
        """The records of partition 0, in batches of `cut`."""
        columns, config = ("offset", "key", "value", "headers", "timestampMs"), {"remote.storage.url": str(bucket)}
        with read_arrow("orders", config=config, columns=columns, partitions=[0]) as reader:
            table = reader.read_all()
        rows = table.to_pylist()
        for row in rows:
            change(row)
        return iter(pa.Table.from_pylist(rows, schema=table.schema).to_batches(max_chunksize=cut))

    def test_alike(self, bucket: Path) -> None:
        def moved(row: dict[str, Any]) -> None:
            row["offset"] += 7

        assert first_unlike(self.batches(bucket, 7), self.batches(bucket, 11, moved)) == (80, None)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("key", b"other"),
            ("value", None),
            ("headers", []),
            ("headers", [{"key": "h", "value": b"y"}]),
            ("timestampMs", 5),
        ],
    )
    def test_one_field_of_one_record(self, bucket: Path, name: str, value: object) -> None:
        def changed(row: dict[str, Any]) -> None:
            if row["offset"] == 53:
                row[name] = value

        found = first_unlike(self.batches(bucket, 7), self.batches(bucket, 11, changed))
        assert found == (53, Unlike(53, 53))

    def test_a_timestamp_that_no_producer_can_send(self, bucket: Path) -> None:
        def timed(at: int) -> Callable[[dict[str, Any]], None]:
            def change(row: dict[str, Any]) -> None:
                row["timestampMs"] = at

            return change

        assert first_unlike(self.batches(bucket, 9, timed(0)), self.batches(bucket, 9, timed(99)))[1] is None

    def test_one_side_ends(self, bucket: Path) -> None:
        assert first_unlike(self.batches(bucket, 7), iter(())) == (0, Unlike(0, None))
        assert first_unlike(iter(()), self.batches(bucket, 7)) == (0, Unlike(None, 0))


class TestComparingAfterRetention:
    """Old records are deleted before the comparison or while it runs. A batch has ten records, 80 in all."""

    def test_records_that_were_deleted_before(self) -> None:
        assert OldAndNew(first=20).compared() == Compared(None, 20)

    def test_the_old_log_never_had_earlier_records(self) -> None:
        assert OldAndNew(first=20, known=[(20, 60)]).compared() == Compared(None)

    def test_nothing_is_left(self) -> None:
        assert OldAndNew(first=80).compared() == Compared(None, 80)
        assert OldAndNew(first=81).compared() == Compared(None, 81)

    @pytest.mark.parametrize("skips", [False, True])
    def test_records_that_are_deleted_during_it(self, skips: bool) -> None:
        """`skips`: with auto.offset.reset=earliest the old side goes on without an error."""
        assert OldAndNew(moves={30: 45}, skips=skips).compared() == Compared(None, 45)
        assert OldAndNew(moves={10: 25, 50: 70}, skips=skips).compared() == Compared(None, 70)
        assert OldAndNew(moves={30: 80}, skips=skips).compared() == Compared(None, 80)
        assert OldAndNew(moves={30: 45}, skips=skips, known=[(0, 30), (40, 40)]).compared() == Compared(None, 45)

    @pytest.mark.parametrize("skips", [False, True])
    def test_a_difference_behind_them(self, skips: bool) -> None:
        found = OldAndNew(moves={30: 45}, skips=skips, changed={61}).compared()
        assert found == Compared(Unlike(61, 61), 45)

    def test_a_difference_in_front_of_them(self) -> None:
        assert OldAndNew(moves={30: 45}, changed={21}).compared() == Compared(Unlike(21, 21))
        assert OldAndNew(log_start=45, changed={21}).compared() == Compared(Unlike(21, 21))

    def test_a_record_that_the_old_side_leaves_out_while_other_ones_are_deleted(self) -> None:
        """The log start is before the record, so that the record is there."""
        assert OldAndNew(moves={0: 5}, skips=True, left_out={61}).compared() == Compared(Unlike(62, 61), 5)
        assert OldAndNew(moves={60: 45}, left_out={61}).compared() == Compared(Unlike(62, 61))
        assert OldAndNew(left_out={61}).compared() == Compared(Unlike(62, 61))

    def test_the_new_side_ends_too_soon(self) -> None:
        """No deletion of old records explains that."""
        assert OldAndNew(moves={30: 45}, skips=True, ends=60).compared() == Compared(Unlike(60, None), 45)
        assert OldAndNew(log_start=70, ends=60).compared() == Compared(Unlike(60, None))

    def test_a_record_that_the_old_side_leaves_out_without_a_broker(self) -> None:
        """Nothing tells the log start."""
        sides = OldAndNew(left_out={61})
        assert sides.compared(log_start=lambda: None) == Compared(Unlike(62, 61))

    def test_records_that_are_gone_although_the_log_begins_before_them(self) -> None:
        with pytest.raises(OffsetOutOfRange):
            OldAndNew(moves={30: 45}, log_start=7).compared()


class OldAndNew:
    """Two sides of 80 records. The old one loses records: `moves` has log starts by the offset that is read then."""

    def __init__(
        self,
        *,
        first: int = 0,
        known: Sequence[tuple[int, int]] = ((0, 80),),
        moves: Mapping[int, int] | None = None,
        skips: bool = False,
        changed: Collection[int] = (),
        left_out: Collection[int] = (),
        log_start: int | None = None,
        ends: int = 80,
    ) -> None:
        self.first, self.moves, self.skips, self.left_out = first, dict(moves or {}), skips, left_out
        self.log_start, self.told, self.known = first, log_start, OffsetMap()
        for source, count in known:
            self.known.add(source, count)
        sources = [source + at for source, count in known for at in range(count)]
        self.target = [(target, b"changed" if target in changed else b"%d" % at) for target, at in enumerate(sources)][
            :ends
        ]

    def compared(self, log_start: Callable[[], int | None] | None = None) -> Compared:
        opened = SimpleNamespace(first_offset=self.first)
        plan: Any = SimpleNamespace(steps=(), opened=opened)
        return compare(plan, self.known, self.old, self.new, log_start or (lambda: self.told or self.log_start))

    def old(self, first: int) -> Generator[Any, None, None]:
        at = first
        while at < 80:
            self.log_start = max(self.log_start, self.moves.pop(at - at % 10, 0))
            if at < self.log_start:
                if not self.skips:
                    raise OffsetOutOfRange("gone")
                at = self.log_start
                continue
            stop = at - at % 10 + 10
            found = {source for run in self.known.runs() for source in range(run.source, run.source + run.records)}
            if rows := [(each, b"%d" % each) for each in range(at, stop) if each in found.difference(self.left_out)]:
                yield self.batch(rows)
            at = stop

    def new(self, first: int) -> Generator[Any, None, None]:
        if rows := self.target[first:]:
            yield self.batch(rows)

    def batch(self, rows: Sequence[tuple[int, bytes]]) -> Any:
        fields: list[dict[str, Any]] = [
            {"offset": at, "key": key, "value": None, "headers": [], "timestampMs": 1} for at, key in rows
        ]
        return pa.RecordBatch.from_pylist(fields, schema=schema_for(records.RESTORED_COLUMNS))


def test_a_target_has_the_methods_of_the_fake() -> None:
    """The tests above stand for the real one. `tests/rig/test_restore.py` has a real one."""
    for name in (name for name in vars(FakeTarget) if not name.startswith("_") and callable(getattr(FakeTarget, name))):
        assert callable(getattr(Target, name))
