"""The facts of an audit, on disk: the objects of the storage, the records of the metadata topic, the segments.

Rules of the file:

- An SQLite database in a file without a name. SQLite removes it, and keeps at most `_CACHE_KIB` of it in memory.
- Sorting and joining is SQLite's, so that memory does not grow with the number of segments.
- Rows come out one after the other. A caller may write other tables between them.
- Names of objects are bytes: the name of a local file may have bytes that are not UTF-8.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from types import TracebackType
from typing import Any, Self

from remote_fetch.checks.audit_rows import Damaged, History, Sized, TopicTotals
from remote_fetch.checks.audit_segment import SegmentLife, key_of
from remote_fetch.errors import ConfigError, CorruptSegment, RemoteFetchError
from remote_fetch.fetch.inventory import ExpectedObject
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.formats.metadata_records import (
    MetadataRecord,
    PartitionDeleteRecord,
    RemotePartitionDeleteState,
    SegmentSnapshotRecord,
    parse_metadata_record,
)
from remote_fetch.locate.uploads import key_of_segment, said_by
from remote_fetch.model import TopicIdPartition, Uuid

__all__ = ["AuditBook"]

_CACHE_KIB = 4_096
_ROWS_AT_ONCE = 5_000
_MAX_BYTES = 2**63 - 1
_KNOWN_VERSION = 0
"""The version of records that is known. A newer one is read as if it began as this one does."""
_ENDED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED

_TABLES = """
CREATE TABLE object (name BLOB PRIMARY KEY, size_bytes INTEGER, segment BLOB) WITHOUT ROWID;
CREATE TABLE record (segment BLOB, source INTEGER, at INTEGER, key BLOB, value BLOB);
CREATE TABLE last_of_key (key BLOB PRIMARY KEY, segment BLOB, gone INTEGER) WITHOUT ROWID;
CREATE TABLE damaged (source INTEGER, at INTEGER, text TEXT);
CREATE TABLE touched (segment BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE gone_partition (partition BLOB, source INTEGER, at INTEGER);
CREATE INDEX gone_partition_key ON gone_partition (partition, source, at);
CREATE TABLE segment (
    number INTEGER PRIMARY KEY, segment BLOB, partition BLOB, state INTEGER, start INTEGER,
    stop INTEGER, life BLOB, stored_bytes INTEGER, topic TEXT, size_bytes INTEGER, max_ms INTEGER
);
CREATE TABLE gone_segment (segment BLOB PRIMARY KEY, is_sure INTEGER) WITHOUT ROWID;
CREATE TABLE expected (
    name BLOB, number INTEGER, kinds TEXT, size_bytes INTEGER, is_required INTEGER, PRIMARY KEY (name, number)
) WITHOUT ROWID;
"""
_PRAGMAS = ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE_KIB}", "temp_store=FILE")


_KIND_OF_UNCLAIMED = """
CASE WHEN o.segment IN (SELECT segment FROM segment) THEN 'live'
WHEN o.segment IN (SELECT segment FROM gone_segment WHERE is_sure) THEN 'gone'
WHEN o.segment IN (SELECT segment FROM gone_segment) THEN 'doubtful'
WHEN substr(o.segment, 1, 16) IN (SELECT id FROM topic_id) THEN 'none' ELSE 'unknown' END
"""


class AuditBook:
    """The book of one audit. For one thread. Use it as a context manager, which raises ConfigError for a full disk.

    `is_all_known`: this release knows the form of each record. If not, a record may be about any segment.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        for pragma in _PRAGMAS:
            self._db.execute(f"PRAGMA {pragma}")
        self._db.executescript(_TABLES)
        self._objects: list[tuple[bytes, int, bytes | None]] = []
        self._records: list[tuple[bytes, int, int, bytes | None, bytes]] = []
        self._expected: list[tuple[bytes, int, str, int | None, bool]] = []
        self._segments: list[tuple[Any, ...]] = []
        self._gone: list[tuple[bytes, bool]] = []
        self._segment_count = 0
        self._is_second = False
        self.is_all_known = True

    def close(self) -> None:
        """Remove the database. May be called twice."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(error, sqlite3.OperationalError):
            hint = "Name another directory in SQLITE_TMPDIR or TMPDIR, with 2.2 KB of room for each segment"
            raise ConfigError(f"the temporary database of the audit: {error}", key="TMPDIR", hint=hint) from None

    # --------------------------------------------------------------------------------------------------------- writing

    def add_object(self, info: ObjectInfo, segment: bytes | None) -> None:
        """Note an object of the storage. `segment` is the segment's key if its name tells it.

        Raises CorruptSegment for a size that no object has.
        """
        if info.size_bytes > _MAX_BYTES:
            raise CorruptSegment(f"the store lists an object of {info.size_bytes} bytes", object_name=info.name)
        self._objects.append((_packed(info.name), info.size_bytes, segment))
        if len(self._objects) >= _ROWS_AT_ONCE:
            self._flush()

    def add_record(
        self,
        value: bytes | None,
        key: bytes | None,
        offset: int,
        source: int,
        is_wanted: Callable[[TopicIdPartition], bool],
    ) -> None:
        """Note a record of the metadata topic, at `offset` of its partition `source`, if its partition is wanted.

        After `second_reading`, only the segment is noted, as one that has changed.
        """
        if value is None:
            if key is not None:
                self._flush()
                self._db.execute("UPDATE last_of_key SET gone = 1 WHERE key = ?", (key_of_segment(key),))
            return
        record = self._parsed(value, offset, source)
        if record is None or isinstance(record, SegmentSnapshotRecord):  # a snapshot names no partition
            return
        if isinstance(record, PartitionDeleteRecord):
            self._note_end(record, offset, source)
            return
        segment_id = said_by(record)[0]
        if not is_wanted(segment_id.topic_id_partition):
            return
        segment = key_of(segment_id)
        if self._is_second:
            self._db.execute("INSERT OR IGNORE INTO touched VALUES (?)", (segment,))
            return
        self._records.append((segment, source, offset, None if key is None else key_of_segment(key), bytes(value)))
        if len(self._records) >= _ROWS_AT_ONCE:
            self._flush()

    def _note_end(self, record: PartitionDeleteRecord, offset: int, source: int) -> None:
        """Note that the deletion of a partition has ended. Until then brokers serve its segments."""
        if record.state is _ENDED:
            raw = record.topic_id_partition.identity
            self._db.execute("INSERT INTO gone_partition VALUES (?, ?, ?)", (raw, source, offset))

    def _parsed(self, value: bytes, offset: int, source: int) -> MetadataRecord | None:
        try:
            record = parse_metadata_record(value)
        except RemoteFetchError as error:
            self.is_all_known = False
            if not self._is_second:
                self._db.execute("INSERT INTO damaged VALUES (?, ?, ?)", (source, offset, str(error)))
            return None
        if record.version != _KNOWN_VERSION or isinstance(record, SegmentSnapshotRecord):
            self.is_all_known = False
        return record

    def forget_records(self) -> None:
        """Forget the records, because the metadata topic is read from its beginning again."""
        self._records.clear()
        self.is_all_known = True
        for table in ("record", "last_of_key", "damaged", "gone_partition"):
            self._db.execute(f"DELETE FROM {table}")

    def second_reading(self) -> None:
        """From now on records are those that were written during the audit."""
        self._is_second = True

    def add_segment(self, life: SegmentLife, values: Iterable[bytes], stored_bytes: int | None) -> int:
        """Note a segment that was not deleted. Returns its number."""
        metadata = life.metadata
        key = key_of(life.segment_id)
        packed = b"".join(len(value).to_bytes(4, "big") + value for value in values)
        size_bytes, max_ms = (
            (0, -1) if metadata is None else (metadata.known_size_bytes or 0, metadata.max_timestamp_ms)
        )
        row = (
            key, key[:20], int(life.state), *life.bounds, packed, stored_bytes,
            life.segment_id.topic_id_partition.topic, size_bytes, max_ms,
        )  # fmt: skip
        self._segment_count += 1
        self._segments.append((self._segment_count, *row))
        return self._segment_count

    def bury(self, life: SegmentLife, *, is_sure: bool) -> None:
        """Note a segment that was deleted or replaced. `is_sure`: brokers do not know it any more."""
        self._gone.append((key_of(life.segment_id), is_sure))
        if len(self._gone) >= _ROWS_AT_ONCE:
            self._flush()

    def expect(self, number: int, objects: Iterable[ExpectedObject], *, is_finished: bool) -> None:
        """Note the objects that a segment may have. Those of a finished upload have to be there."""
        for each in objects:
            kinds = ",".join(each.kinds)
            size_bytes = each.size_bytes if is_finished else None
            self._expected.append((_packed(each.name), number, kinds, size_bytes, each.is_required and is_finished))
        if len(self._expected) >= _ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR REPLACE INTO object VALUES (?, ?, ?)", self._objects)
        self._db.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?)", self._records)
        self._db.executemany(
            "INSERT OR REPLACE INTO last_of_key VALUES (?, ?, 0)",
            [(key, segment) for segment, _, _, key, _ in self._records if key is not None],
        )
        self._db.executemany("INSERT OR IGNORE INTO expected VALUES (?, ?, ?, ?, ?)", self._expected)
        self._db.executemany("INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._segments)
        self._db.executemany("INSERT OR IGNORE INTO gone_segment VALUES (?, ?)", self._gone)
        self._db.execute("COMMIT")
        for rows in (self._objects, self._records, self._expected, self._segments, self._gone):
            rows.clear()

    # --------------------------------------------------------------------------------------------------------- reading

    def histories(self) -> Iterator[History]:
        """The history of each segment, sorted by topic id and partition."""
        self._flush()
        rows = self._db.execute(
            "SELECT r.segment, r.value, k.gone, k.segment != r.segment, r.source, "
            "EXISTS (SELECT 1 FROM gone_partition p WHERE p.partition = substr(r.segment, 1, 20) "
            "AND p.source = r.source AND p.at > r.at) FROM record r "
            "LEFT JOIN last_of_key k ON k.key = r.key ORDER BY r.segment, r.at"
        )
        for _, group in groupby(rows, itemgetter(0)):
            _, values, buried, replaced, sources, ended = zip(*group, strict=True)
            yield History(values, any(buried), any(replaced), all(ended), len(set(sources)) == 1)

    def damaged(self) -> Iterator[Damaged]:
        """The records that cannot be read."""
        return (Damaged(*row) for row in self._db.execute("SELECT source, at, text FROM damaged ORDER BY source, at"))

    def segments(self) -> Iterator[tuple[bytes, ...]]:
        """The values of each segment that was not deleted, by partition and offsets."""
        self._flush()
        rows = self._db.execute("SELECT life FROM segment ORDER BY partition, start, stop, segment")
        return (_unpacked(life) for (life,) in rows)

    def wrong_objects(self) -> Iterator[Sized]:
        """Objects of finished segments that are missing, or that have another size than the metadata says."""
        self._flush()
        return self._sized(
            "WHERE (o.name IS NULL AND e.is_required) OR o.size_bytes != e.size_bytes "
            "ORDER BY s.partition, s.start, e.name"
        )

    def shared_objects(self) -> Iterator[tuple[tuple[bytes, ...], str]]:
        """The finished segments with an object that another one has too, and the name of the first such object."""
        rows = self._db.execute(
            "SELECT s.life, min(e.name) FROM expected e JOIN segment s ON s.number = e.number WHERE e.is_required "
            "AND e.name IN (SELECT name FROM expected WHERE is_required GROUP BY name HAVING count(*) > 1) "
            "GROUP BY s.number ORDER BY s.partition, s.start"
        )
        return ((_unpacked(life), _name(name)) for life, name in rows)

    def index_objects(self, kind: str, entry_bytes: int) -> Iterator[Sized]:
        """Objects that hold indexes of one kind, and whose size is no multiple of an entry's."""
        return self._sized(
            "WHERE e.kinds = ? AND s.state = 1 AND o.size_bytes % ? != 0 ORDER BY e.name", kind, entry_bytes
        )

    def _sized(self, condition: str, *values: str | int | bytes) -> Iterator[Sized]:
        """The expected objects that meet a condition on the tables `expected` e, `segment` s and `object` o."""
        rows = self._db.execute(
            "SELECT s.life, e.name, e.kinds, e.size_bytes, o.size_bytes FROM expected e "
            f"JOIN segment s ON s.number = e.number LEFT JOIN object o ON o.name = e.name {condition}",
            values,
        )
        for life, name, kinds, expected, found in rows:
            yield Sized(_unpacked(life), _name(name), tuple(kinds.split(",")), expected, found)

    def wrong_sums(self) -> Iterator[tuple[tuple[bytes, ...], int, int]]:
        """Finished segments whose objects together have another size than the plug-in wrote down: the latter, theirs.

        Segments with a missing object are left out.
        """
        rows = self._db.execute(
            "SELECT s.life, s.stored_bytes, CAST(total(o.size_bytes) AS INTEGER) AS found FROM expected e "
            "JOIN segment s ON s.number = e.number LEFT JOIN object o ON o.name = e.name "
            "WHERE s.stored_bytes IS NOT NULL AND s.state = 1 GROUP BY s.number "
            "HAVING found != s.stored_bytes AND sum(o.name IS NULL) = 0"
        )
        for life, stored, found in rows:
            yield _unpacked(life), stored, found

    def unclaimed(self) -> Iterator[tuple[ObjectInfo, bytes | None, str]]:
        """Objects of no segment: each with the key of the segment that its name tells, and what is known of that one.

        It is `live`, `gone` (surely) or `doubtful` (see `bury`), `none` if only the topic is known, or `unknown`.
        """
        self._flush()
        self._db.execute("CREATE TEMP TABLE topic_id AS SELECT DISTINCT substr(segment, 1, 16) AS id FROM record")
        self._db.execute("CREATE INDEX segment_key ON segment (segment)")
        rows = self._db.execute(
            f"SELECT o.name, o.size_bytes, o.segment, {_KIND_OF_UNCLAIMED} FROM object o "
            "LEFT JOIN expected e ON e.name = o.name WHERE e.name IS NULL ORDER BY o.segment, o.name"
        )
        return ((ObjectInfo(_name(name), size), segment, kind) for name, size, segment, kind in rows)

    def objects_named(self, names: Iterable[str]) -> Iterator[ObjectInfo]:
        """Those of the names that are in the storage."""
        for name in names:
            row = self._db.execute("SELECT name, size_bytes FROM object WHERE name = ?", (_packed(name),)).fetchone()
            if row is not None:
                yield ObjectInfo(name, row[1])

    def totals(self) -> Iterator[TopicTotals]:
        """The sizes of each topic, by name. An object of two segments counts once."""
        self._flush()
        rows = self._db.execute(
            "SELECT substr(partition, 1, 16) AS id, min(topic), count(DISTINCT partition), sum(state = 1), "
            "sum(size_bytes * (state = 1)), coalesce(objects, 0), coalesce(object_bytes, 0), "
            "min(CASE WHEN state = 1 THEN max_ms END), max(CASE WHEN state = 1 THEN max_ms END) FROM segment "
            "LEFT JOIN ("
            "SELECT substr(s.partition, 1, 16) AS of_id, count(*) AS objects, "
            "CAST(total(o.size_bytes) AS INTEGER) AS object_bytes FROM expected e "
            "JOIN segment s ON s.number = e.number JOIN object o ON o.name = e.name "
            "WHERE NOT EXISTS (SELECT 1 FROM expected f WHERE f.name = e.name AND f.number < e.number) GROUP BY 1"
            ") ON of_id = id GROUP BY 1 ORDER BY 2, 1"
        )
        for raw, topic, partitions, segments, size, objects, object_bytes, oldest, newest in rows:
            oldest_ms, newest_ms = (-1 if ms is None else ms for ms in (oldest, newest))
            yield TopicTotals(topic, Uuid(raw), partitions, segments, size, objects, object_bytes, oldest_ms, newest_ms)

    def is_empty(self) -> bool:
        """Whether neither an object nor a record was noted."""
        self._flush()
        query = "SELECT EXISTS (SELECT 1 FROM object) OR EXISTS (SELECT 1 FROM record)"
        return not self._db.execute(query).fetchone()[0]

    def lacking(self, segment: bytes) -> frozenset[str]:
        """The kinds of files whose objects the listing lacks, as in `wrong_objects`. After `unclaimed`."""
        self._db.execute("CREATE INDEX IF NOT EXISTS expected_number ON expected (number)")
        lost = self._sized("WHERE s.segment = ? AND e.is_required AND o.name IS NULL", segment)
        return frozenset(kind for each in lost for kind in each.kinds)

    def is_touched(self, segment: bytes) -> bool:
        """Whether the second reading has found a record of the segment."""
        found = self._db.execute("SELECT 1 FROM touched WHERE segment = ?", (segment,)).fetchone()
        return found is not None


def _unpacked(life: bytes) -> tuple[bytes, ...]:
    values, at = [], 0
    while at < len(life):
        size_bytes = int.from_bytes(life[at : at + 4], "big")
        values.append(life[at + 4 : at + 4 + size_bytes])
        at += 4 + size_bytes
    return tuple(values)


def _packed(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _name(packed: bytes) -> str:
    return packed.decode("utf-8", "surrogatepass")
