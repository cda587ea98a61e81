"""One metadata partition as far as a reader has read it, as bytes: a later reader goes on from there.

Rules of the file:

- Pure.
- A builder that was restored from a saved replay ends with the timelines of one that read the topic from its beginning.
- A saved replay is foreign bytes: it is checked, bounded before memory is taken, and refused with an error of this
  package. The file says which topic and place it belongs to; the caller compares.

Layout: a frame of `packed.py`. The body has a whole snapshot of timelines (`snapshot.py`), then what a builder knows
beside them: orphaned updates, ids of deleted segments, keys for tombstones, counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.metadata_usual import SegmentChange
from remote_fetch.locate.packed import UUID_BYTES, Frame, PackedReader, column, numbers
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines, load_timelines, state_of
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.uploads import LooseUpload, Rest
from remote_fetch.model import Buffer, Uuid

__all__ = ["MAX_BODY_BYTES", "SavedReplay", "dump_replay", "load_replay"]

MAX_BODY_BYTES = 1 << 28
"""The largest body that is inflated, enough for some two million segments of one metadata partition."""

_NAME = "saved replay"
_FRAME = Frame(b"RFRP", (1,), _NAME)


@dataclass(frozen=True, slots=True)
class SavedReplay:
    """The records of one metadata partition, applied.

    - `origin` has exactly one pair in `next_offsets`: the metadata partition and its first unread offset.
    - `topic_id` is the topic whose records were kept, None if those of all topics were.
    - `leader_epoch` is that of the last record, -1 if it is unknown.
    - `malformed_records` could not be read.
    - `rests` has the facts beside each of `timelines`.
    """

    origin: SnapshotOrigin
    topic_id: Uuid | None
    leader_epoch: int
    malformed_records: int
    timelines: tuple[Timeline, ...]
    rests: tuple[Rest, ...]

    @property
    def number(self) -> int:
        """The metadata partition."""
        return self.origin.next_offsets[0][0]

    @property
    def next_offset(self) -> int:
        """The first unread offset of the metadata partition."""
        return self.origin.next_offsets[0][1]


def dump_replay(saved: SavedReplay) -> bytes:
    """The replay as bytes for `load_replay`.

    Raises ValueError for a segment whose topic has another name than that of its timeline.
    """
    snapshot = dump_timelines(saved.timelines, origin=saved.origin)
    parts = [
        numbers(len(snapshot), saved.leader_epoch, saved.malformed_records, saved.topic_id is not None),
        bytes(UUID_BYTES) if saved.topic_id is None else saved.topic_id.raw,
        snapshot,
    ]
    for rest in saved.rests:
        _dump_rest(rest, parts)
    return _FRAME.wrap(b"".join(parts))


def _dump_rest(rest: Rest, parts: list[bytes]) -> None:
    changes = [loose.change for loose in rest.loose]
    customs = [None if change is None else change[3] for change in changes]
    parts += (
        numbers(len(rest.loose), len(rest.gone), len(rest.keys), len(rest.epochs)),
        b"".join(loose.segment_id for loose in rest.loose),
        column(loose.state for loose in rest.loose),
        column(loose.finished_at for loose in rest.loose),
        column(loose.leader_epoch for loose in rest.loose),
        column(-1 if change is None else change[0] for change in changes),
        column(0 if change is None else change[1] for change in changes),
        column(0 if change is None else change[2] for change in changes),
        column(-1 if custom is None else len(custom) for custom in customs),
        b"".join(custom or b"" for custom in customs),
        b"".join(rest.gone),
        column(len(key) for key, _ in rest.keys),
        b"".join(key for key, _ in rest.keys),
        b"".join(segment_id for _, segment_id in rest.keys),
        b"".join(segment_id for segment_id, _ in rest.epochs),
        column(epoch for _, epoch in rest.epochs),
    )


def load_replay(data: Buffer, *, max_body_bytes: int = MAX_BODY_BYTES) -> SavedReplay:
    """The replay of a file.

    Raises UnsupportedFormat for other bytes and other versions, CorruptSegment for a damaged file, for a body larger
    than `max_body_bytes`, and for contents that contradict each other.
    """
    _, inflated = _FRAME.unwrap(data, max_body_bytes)
    body = _Body(inflated, _NAME)
    snapshot_bytes, leader_epoch, malformed_records, has_topic_id = body.numbers(4)
    topic_id = body.uuid()
    origin, timelines = load_timelines(body.take(snapshot_bytes), max_body_bytes=max_body_bytes)
    rests = tuple(body.rest() for _ in timelines)
    body.finish()
    saved = SavedReplay(origin, topic_id if has_topic_id else None, leader_epoch, malformed_records, timelines, rests)
    _check(saved)
    return saved


def _check(saved: SavedReplay) -> None:
    if len(saved.origin.next_offsets) != 1 or saved.next_offset < 0 or saved.malformed_records < 0:
        raise CorruptSegment(
            f"{_NAME}: it has to name one metadata partition, an offset and a count that are not below 0"
        )
    partitions = {timeline.partition for timeline in saved.timelines}
    if len(partitions) != len(saved.timelines):
        raise CorruptSegment(f"{_NAME}: a partition has two timelines")
    if saved.topic_id is not None and any(partition.topic_id != saved.topic_id for partition in partitions):
        raise CorruptSegment(f"{_NAME}: a timeline belongs to another topic than {saved.topic_id}")


class _Body(PackedReader):
    """Reads a saved replay's body."""

    def rest(self) -> Rest:
        """The facts beside one timeline."""
        loose_count, gone_count, key_count, epoch_count = self.numbers(4)
        loose = self._loose(loose_count)
        gone = tuple(self.uuids(gone_count))
        keys = [key or b"" for key in self.blobs(self.column(key_count))]
        key_ids = self.uuids(key_count)
        epochs = zip(self.uuids(epoch_count), self.column(epoch_count), strict=True)
        return Rest(loose, gone, tuple(zip(keys, key_ids, strict=True)), tuple(epochs))

    def _loose(self, count: int) -> tuple[LooseUpload, ...]:
        ids = self.uuids(count)
        states, finished, epochs = self.column(count), self.column(count), self.column(count)
        change_states, brokers, timestamps = self.column(count), self.column(count), self.column(count)
        customs = self.blobs(self.column(count))
        changes: list[SegmentChange | None] = [
            None
            if change_states[at] == -1
            else (state_of(change_states[at], _NAME), brokers[at], timestamps[at], customs[at])
            for at in range(count)
        ]
        return tuple(
            LooseUpload(ids[at], state_of(states[at], _NAME), finished[at], epochs[at], changes[at])
            for at in range(count)
        )
