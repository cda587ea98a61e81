"""The targets of `tools.fuzz`: for each kind of foreign bytes its parser, and seeds that real writers made.

Rules of the file:

- A seed parses.
- A target reads to the end, as the product does, so that a lazy parser parses everything.
- `reseal` repairs the outer lengths and checksums of damaged bytes.
- `inside` damages the bytes below the outer lengths and checksums.
- `gate` makes only the outer checks, so that a run can count the inputs that got past them.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from fetchers.layouts.kafka_local import KafkaLocalLayout
from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.checkpoints import parse_leader_epoch_checkpoint, parse_producer_snapshot
from remote_fetch.formats.indexes import parse_transaction_index
from remote_fetch.formats.metadata_records import topic_id_of
from remote_fetch.locate.saved_replay import SavedReplay, dump_replay
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.model import Uuid
from remote_fetch.plan.ranges import BrokerRange, Reason, SegmentSlice
from remote_fetch.plan.saved import dump_plan
from remote_fetch.service.answers import Page, Rank, as_bytes, segment_json, segments_json
from remote_fetch.testing.records import Record, encode_batch, encode_legacy, encode_marker
from remote_fetch.testing.segments import encode_offset_index
from tools import fuzz_layouts, fuzz_parsers, fuzz_typed
from tools.fuzz_batches import damage_log, reseal_log
from tools.fuzz_codecs import damage_stream, streams
from tools.fuzz_damage import damage_entries, damage_json, damage_numbers, damage_varints, mutate
from tools.fuzz_reading import check_checksums, read_batches, read_slice
from tools.fuzz_runs import read_log, read_stream

__all__ = ["GOLDENS", "Target", "targets"]

GOLDENS = Path(__file__).resolve().parents[1] / "tests" / "golden" / "data"
MAX_SEED_BYTES = 16 << 10
_PRODUCER = Struct(">qhiqiqiq")
_TIMELINES_HEADER = Struct(">4sHIQ")
_TIMELINES_CRC_FROM = 10


def _as_it_is(data: bytes) -> bytes:
    return data


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of foreign bytes. For any input `parse` raises only errors of `remote_fetch.errors`.

    `reseal`, `inside` and `gate` are described in the rules of the file. Without `inside` only the outside is damaged.
    Without `gate` the kind has no outer checks.
    """

    name: str
    seeds: tuple[bytes, ...]
    parse: Callable[[bytes], object]
    reseal: Callable[[bytes], bytes] = _as_it_is
    inside: Callable[[bytes, random.Random], bytes] | None = None
    gate: Callable[[bytes], object] | None = None


def targets(goldens: Path = GOLDENS, *, seeds_per_kind: int = 6) -> tuple[Target, ...]:
    """Every target, with at most `seeds_per_kind` golden seeds of each kind. Each run has the same seeds."""

    def files(suffix: str) -> tuple[bytes, ...]:
        found = (path.read_bytes() for path in sorted(goldens.rglob(f"*{suffix}")))
        return _chosen((data for data in found if 0 < len(data) <= MAX_SEED_BYTES), seeds_per_kind)

    batches, logs = tuple(_batches()), files(".log")
    offset_indexes = (*files(".index"), *_large_offset_indexes())
    names = "\n".join(_names(goldens)).encode()
    return (
        Target("log", logs, read_batches, reseal_log, damage_log, check_checksums),
        Target("batch", batches, read_batches, reseal_log, damage_log, check_checksums),
        Target("slice", (logs[0], _ordered_log()), read_slice, reseal_log, damage_log, check_checksums),
        Target("run", (*logs, _ordered_log(), *batches), read_log, reseal_log, damage_log, check_checksums),
        Target("stream in a run", tuple(_modern_streams()), read_stream, inside=damage_stream),
        Target("codec", tuple(streams(_records() * 40)), fuzz_parsers.inflate, inside=damage_stream),
        Target(
            "offset index", offset_indexes, fuzz_parsers.read_offset_index,
            inside=_damage_offset_index, gate=_whole_entries(8, 12),
        ),
        Target(
            "time index", files(".timeindex"), fuzz_parsers.read_time_index,
            inside=_in_entries(Struct(">qi")), gate=_whole_entries(12),
        ),
        Target(
            "transaction index", files(".txnindex"), parse_transaction_index,
            inside=_in_entries(Struct(">hqqqq")), gate=_whole_entries(34),
        ),
        Target(
            "leader epochs", files(".leader_epoch_checkpoint"), parse_leader_epoch_checkpoint, inside=damage_numbers
        ),
        Target(
            "producers", files(".snapshot"), parse_producer_snapshot,
            _reseal_producers, _damage_producers, _check_producers,
        ),
        *_metadata_targets(goldens, seeds_per_kind),
        Target("saved plan", (_plan(),), fuzz_parsers.read_plan, inside=damage_json, gate=fuzz_layouts.check_json),
        Target(
            "service answer", _answers(), fuzz_parsers.read_answer, inside=damage_json, gate=fuzz_layouts.check_json
        ),
        Target("object names", (names,), partial(fuzz_parsers.list_names, KafkaLocalLayout), inside=damage_numbers),
        *_layout_targets(goldens.with_name("aiven")),
        *(Target(kind.name, kind.seeds, kind.read, inside=kind.damage) for kind in fuzz_typed.typed_kinds()),
        Target("framing", (b"\0\0\0\0\1value", b"\1" + bytes(16) + b"\4\2\0value"), fuzz_typed.read_framings),
    )  # fmt: skip


def _layout_targets(goldens: Path) -> tuple[Target, ...]:
    read_chunks = fuzz_layouts.ChunkReader(goldens)
    return (
        Target(
            "aiven manifest", tuple(fuzz_layouts.manifests(goldens)), fuzz_layouts.read_manifest,
            inside=damage_json, gate=fuzz_layouts.check_json,
        ),
        Target("aiven chunk sizes", fuzz_layouts.SIZES, fuzz_layouts.read_sizes, inside=fuzz_layouts.damage_sizes),
        Target("aiven chunks", (read_chunks.seed,), read_chunks),
        Target(
            "aiven custom metadata", (fuzz_layouts.custom_metadata(),), fuzz_layouts.read_custom_metadata,
            inside=damage_varints,
        ),
        Target(
            "aiven object names", (fuzz_layouts.names(goldens),), fuzz_layouts.list_aiven_names, inside=damage_numbers
        ),
        Target("locations", fuzz_layouts.LOCATIONS, fuzz_layouts.read_locations, inside=damage_numbers),
        Target("name template", fuzz_layouts.TEMPLATES, fuzz_layouts.read_template),
        Target("broker properties", fuzz_layouts.PROPERTIES, fuzz_layouts.read_properties),
    )  # fmt: skip


def _metadata_targets(goldens: Path, count: int) -> tuple[Target, ...]:
    values = tuple(_metadata_values(goldens))
    chosen = _chosen(values, count)
    saved, replay = _timeline_snapshot(values), _saved_replay(values)
    return (
        Target("metadata record", chosen, partial(fuzz_parsers.read_metadata, chosen), gate=_check_metadata),
        Target("metadata short cut", chosen, fuzz_parsers.ShortCut(chosen), gate=_check_metadata),
        Target(
            "timeline snapshot", (saved,), fuzz_parsers.read_timelines,
            _reseal_timelines, _damage_timelines, _check_timelines,
        ),
        Target(
            "saved replay", (replay,), fuzz_parsers.read_replay, _reseal_timelines, _damage_timelines, _check_timelines
        ),
    )  # fmt: skip


def _answers() -> tuple[bytes, ...]:
    """The answers of `remote-fetch serve`, without and with URLs, and about its storage."""
    segment = fuzz_parsers.full_segment()
    timeline = Timeline(segment.topic_id_partition, (segment,), (5,), orphan_updates=1, upload_epochs=(3,))
    urls = {f"topic-3/{segment.segment_id.id}.log": "https://store/bucket/object?signature=abc"}
    pages = [
        Page((as_bytes(segment_json(segment, Rank(*rank), objects)),), 900)
        for objects in (None, urls)
        for _, *rank in timeline.found()
    ]
    storage = as_bytes({"layout": "aiven", "layout_options": {"key.prefix": "tiered/"}})
    return (*(segments_json(timeline, page, None, ()) for page in pages), storage)


def _chosen(seeds: Iterable[bytes], count: int) -> tuple[bytes, ...]:
    """`count` of the distinct seeds, spread over their sizes."""
    ordered = sorted(set(seeds), key=lambda data: (len(data), data))
    return tuple(ordered[:: max(1, len(ordered) // count)][:count])


# ------------------------------------------------------------------------------------------------------- record batches


def _records() -> list[Record]:
    return [
        Record(0, 0, b"key", b"value" * 9, (("header", b"1"), ("empty", None))),
        Record(1, -5, None, b"", ()),
        Record(7, 12, b"", None, (("", b""),)),
    ]


def _spread(records: Sequence[Record], times: int) -> list[Record]:
    """The records `times` times, with the offsets of one batch."""
    return [replace(record, offset_delta=at) for at, record in enumerate([*records] * times)]


def _modern_streams() -> Iterator[bytes]:
    """Streams that batches of today hold: no lz4 of message format 0."""
    return (stream for stream in streams(_spread(_records(), 40)) if stream[0] < 8)


def _batches() -> Iterator[bytes]:
    """One batch, or one legacy message or wrapper, in each format and codec."""
    for codec in range(5):
        yield encode_batch(40, _records(), codec=codec, base_timestamp_ms=1_700_000_000_000)
    yield encode_batch(40, _records(), codec=2, snappy_framing="xerial", log_append_time_ms=1)
    yield encode_marker(48, 1, commit=False)
    messages = [Record(at, 0, record.key, record.value, ()) for at, record in enumerate(_records())]
    for magic in (0, 1):
        yield encode_legacy(40, messages[:1], magic=magic)
        for codec in (1, 2, 3):
            yield encode_legacy(40, messages, magic=magic, codec=codec)


def _ordered_log() -> bytes:
    """Transactions committed and plain batches in every format, with offsets that ascend."""
    parts = [encode_legacy(0, [Record(0, 0, None, b"v"), Record(1, 0, b"k", None)], magic=1, codec=1)]
    parts += (encode_batch(10 * codec + 10, _records(), codec=codec) for codec in range(5))
    parts += (encode_batch(100, _records(), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),)
    return b"".join([*parts, encode_marker(108, 5, commit=True), encode_batch(109, [], last_offset_delta=3)])


# --------------------------------------------------------------------------------------------------- indexes and states


def _large_offset_indexes() -> Iterator[bytes]:
    yield encode_offset_index([(9, 4200), (19, 1 << 31), (29, 5 << 30)], 12)
    yield encode_offset_index([(1, 2), (3, 4)], 12)


def _in_entries(entry: Struct) -> Callable[[bytes, random.Random], bytes]:
    def damage(data: bytes, chance: random.Random) -> bytes:
        return damage_entries(data, entry, chance)

    return damage


def _damage_offset_index(data: bytes, chance: random.Random) -> bytes:
    return damage_entries(data, Struct(">ii") if len(data) % 12 or chance.randrange(2) else Struct(">iq"), chance)


def _whole_entries(*sizes: int) -> Callable[[bytes], object]:
    def check(data: bytes) -> None:
        if all(len(data) % size_bytes for size_bytes in sizes):
            raise CorruptSegment("no whole entries")

    return check


def _reseal_producers(data: bytes) -> bytes:
    """A producer snapshot: version (2 bytes), CRC-32C of the rest (4), the number of entries, the entries."""
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


def _damage_producers(data: bytes, chance: random.Random) -> bytes:
    entries = damage_entries(data[10:], _PRODUCER, chance)
    return _reseal_producers(data[:6] + (len(entries) // _PRODUCER.size).to_bytes(4, "big") + entries)


def _check_producers(data: bytes) -> None:
    if len(data) < 10 or data[2:6] != crc32c(data[6:]).to_bytes(4, "big"):
        raise CorruptSegment("checksum")


# ------------------------------------------------------------------------------------------------------------- metadata


def _metadata_values(goldens: Path) -> Iterator[bytes]:
    for path in sorted(goldens.rglob("metadata.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                value = json.loads(line)["value"]
                if value:
                    yield base64.b64decode(value)


def _check_metadata(data: bytes) -> None:
    if topic_id_of(data) is None:
        raise CorruptSegment("not a record with a topic id")


def _builder_of(values: Iterable[bytes]) -> TimelineBuilder:
    builder = TimelineBuilder()
    for offset, value in enumerate(values):
        builder.apply(value, offset=offset)
    return builder


def _timeline_snapshot(values: Iterable[bytes]) -> bytes:
    builder = _builder_of(values)
    origin = SnapshotOrigin("cluster", Uuid(bytes(range(16))), 5, ((0, 12), (3, 7)))
    return dump_timelines([builder.build(partition) for partition in list(builder.partitions())[:3]], origin=origin)


def _saved_replay(values: Iterable[bytes]) -> bytes:
    """A saved replay with updates that lack their base, deleted segments and keys."""
    builder = TimelineBuilder()
    for offset, value in enumerate(values):
        if offset % 5:
            builder.apply(value, key=b"key-%d" % (offset // 2), offset=offset)
    partitions = builder.partitions()[:3]
    rests = builder.rest(partitions)
    origin = SnapshotOrigin("cluster", Uuid(bytes(range(16))), 5, ((3, 7),))
    timelines = tuple(builder.build(partition) for partition in partitions)
    return dump_replay(SavedReplay(origin, None, 4, 1, timelines, tuple(rests[each] for each in partitions)))


def _reseal_timelines(data: bytes) -> bytes:
    """A snapshot of timelines or a saved replay: magic, version, CRC-32 of the rest, body size, body under zlib."""
    covered = data[_TIMELINES_CRC_FROM:]
    return data[: _TIMELINES_CRC_FROM - 4] + zlib.crc32(covered).to_bytes(4, "big") + covered


def _damage_timelines(data: bytes, chance: random.Random) -> bytes:
    body = mutate(zlib.decompress(data[_TIMELINES_HEADER.size :]), chance)
    return _reseal_timelines(data[:_TIMELINES_CRC_FROM] + len(body).to_bytes(8, "big") + zlib.compress(body, 1))


def _check_timelines(data: bytes) -> None:
    if len(data) < _TIMELINES_HEADER.size or data != _reseal_timelines(data):
        raise CorruptSegment("checksum")


# ------------------------------------------------------------------------------------------------------ plans and names


def _plan() -> bytes:
    """A saved plan with every kind of step, and a segment with every field filled."""
    segment = fuzz_parsers.full_segment()
    steps = (
        SegmentSlice(segment, 5, 900, 120, 4000, 7, 880, is_cut=True),
        BrokerRange(segment.topic_id_partition, 901, 950, Reason.HOLE),
        SegmentSlice(segment, 951, 999),
    )
    return dump_plan(steps).encode()


def _names(goldens: Path) -> Iterator[str]:
    """Names of objects as a broker's tier has them, of a few partitions."""
    for root in sorted(goldens.glob("*/remote")):
        for folder in sorted((root / "kafka-tiered-storage").iterdir())[:3]:
            for path in sorted(folder.iterdir())[:12]:
                yield path.relative_to(root).as_posix()
