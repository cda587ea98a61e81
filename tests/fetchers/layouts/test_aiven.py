"""The layout of Aiven's plug-in: which bytes are asked for, what names are tried, what is refused, what is listed."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from fetchers import _retries
from fetchers.layouts import aiven_cache
from fetchers.layouts.aiven import AivenLayout
from fetchers.layouts.aiven_names import main_of
from remote_fetch.errors import (
    ConfigError,
    CorruptSegment,
    DecompressionLimit,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageThrottled,
    StorageUnavailable,
    UnsupportedFormat,
)
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.formats.tagged_fields import encode_compact_string
from remote_fetch.model import UNKNOWN_SIZE, IndexType
from remote_fetch.testing.metadata_records import encode_tagged_fields
from remote_fetch.testing.records import encode_varint
from tests.at_once import at_once
from tests.cases import each_of
from tests.fetchers.layouts.aiven_writer import INDEXES, PARTITION, SEGMENT_ID, Store, Written
from tests.searches import examples

LAYOUT = "remote.storage.layout."
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
LOG = bytes(range(256)) * 4 + b"the end"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private key of pair `k1`."""
    path = tmp_path_factory.mktemp("keys") / "k1.pem"
    path.write_bytes(
        KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def opened(**options: str) -> AivenLayout:
    layout = AivenLayout()
    layout.configure({LAYOUT + name.replace("__", "."): value for name, value in options.items()})
    return layout


@pytest.fixture(scope="module")
def keyed(key_file: Path) -> AivenLayout:
    """The layout with the private key."""
    layout = AivenLayout()
    layout.configure({f"{LAYOUT}encryption.key.pairs.k1.private.key.file": str(key_file)})
    return layout


@examples(120)
@given(
    chunk=st.integers(1, 400),
    start=st.integers(0, len(LOG) + 3),
    size=st.integers(0, len(LOG)) | st.just(-1),
    packs=st.booleans(),
    seals=st.booleans(),
)
def test_ranges_are_those_of_the_segment(
    keyed: AivenLayout, chunk: int, start: int, size: int, packs: bool, seals: bool
) -> None:
    written = Written(LOG, chunk, packs, ("k1", KEY) if seals else None, start_offset=chunk)
    store = Store(written.objects())
    end = -1 if size < 0 else start + size
    # The manifest is the same for all ranges: without this, a random one of an earlier example would be known.
    keyed._cache = aiven_cache.ManifestCache()
    data = memoryview(keyed.read_segment(store, written.metadata, start, end))
    assert data.contiguous
    assert bytes(data) == (LOG[start:] if end < 0 else LOG[start:end])
    log_gets = [(first, last) for name, first, last in store.gets if name.endswith(".log")]
    sizes = [len(piece) for piece in written.chunks()]
    if data:
        stop = len(LOG) if end < 0 else min(end, len(LOG))
        first, last = (sum(sizes[: start // chunk]), sum(sizes[: (stop - 1) // chunk + 1]))
        wanted = (first, last) if packs or seals else (start, stop)
        # A byte more at the end, which must not be there.
        assert log_gets == [(wanted[0], wanted[1] + (wanted[1] == sum(sizes)))]
    else:
        asks = start == len(LOG) and size != 0
        assert log_gets == [(sum(sizes), sum(sizes) + 1)] * asks


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("kept", [0, 100, 1000])
def test_a_manifest_that_ends_the_object_too_soon(kept: int, packs: bool) -> None:
    """A size that is too small would be the end of the segment, and what lies behind it would not be missed."""
    whole, short = Written(LOG, 100, packs), Written(LOG[:kept], 100, packs)
    objects = whole.objects() | {f"{whole.name}.rsm-manifest": short.objects()[f"{short.name}.rsm-manifest"]}
    with pytest.raises(CorruptSegment, match="goes on behind byte"):
        opened().read_segment(Store(objects), whole.metadata, 0, -1)


class Unbounded(Store):
    """As Alibaba's OSS: a range that ends behind the object is answered with the whole object."""

    told_bytes = 0

    def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
        if start > 0 and end > len(self.objects[name]):
            raise StorageUnavailable("the store answered a range without saying which")
        return super().get(name, start, end)

    def size(self, name: str) -> int:
        return len(self.objects[name]) + self.told_bytes


def test_a_store_that_refuses_a_range_that_ends_behind_the_object() -> None:
    """Of such a store no end of a segment and no last index came."""
    written = Written(LOG, 100, True)
    store = Unbounded(written.objects())
    assert bytes(opened().read_segment(store, written.metadata, 150, -1)) == LOG[150:]
    assert bytes(opened().read_segment(store, written.metadata, len(LOG), -1)) == b""
    assert all(opened().read_index(store, written.metadata, kind) for kind in IndexType)
    store.told_bytes = 1
    with pytest.raises(StorageUnavailable):
        opened().read_segment(store, written.metadata, 150, -1)


@pytest.mark.parametrize("seals", [False, True])
def test_indexes(keyed: AivenLayout, seals: bool) -> None:
    written = Written(LOG, key_pair=("k1", KEY) if seals else None, start_offset=1000 + seals)
    written.indexes = {**written.indexes, "timestamp": b"", "transaction": None}
    store = Store(written.objects())
    found = {kind: keyed.read_index(store, written.metadata, kind) for kind in IndexType}
    assert {kind: None if data is None else bytes(data) for kind, data in found.items()} == {
        IndexType.OFFSET: b"the offset index",
        IndexType.TIMESTAMP: b"",
        IndexType.PRODUCER_SNAPSHOT: b"the producerSnapshot index",
        IndexType.LEADER_EPOCH: b"the leaderEpoch index",
        IndexType.TRANSACTION: None,
    }
    assert [name.rpartition(".")[2] for name, *_ in store.gets] == ["rsm-manifest", "indexes", "indexes", "indexes"]


# -------------------------------------------------------------------------------------------------------- what is wrong


def damaged(name: str, change: Callable[[bytes], bytes], **more: object) -> tuple[Store, Written]:
    written = Written(LOG, **{"start_offset": 5000, **more})  # type: ignore[arg-type]
    objects = written.objects()
    objects[written.name + name] = change(objects[written.name + name])
    return Store(objects), written


def flip(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def cut(data: bytes) -> bytes:
    return data[:-1]


@pytest.mark.parametrize(
    ("name", "change", "more", "said"),
    [
        (".log", cut, {}, "ends at byte 1030, before byte 1031"),
        (".log", cut, {"is_compressed": True}, "before byte"),
        (".log", flip, {"key_pair": ("k1", KEY)}, "authentication"),
        (".log", lambda data: b"\0" * len(data), {"is_compressed": True}, "cannot be decompressed"),
        (".rsm-manifest", cut, {}, "no JSON"),
        (".rsm-manifest", lambda data: data + b" " * (8 << 20), {}, "more than 8388608 bytes"),
    ],
)
def test_damaged_segments(
    key_file: Path, name: str, change: Callable[[bytes], bytes], more: dict[str, object], said: str
) -> None:
    store, written = damaged(name, change, **more)
    layout = AivenLayout()
    layout.configure({f"{LAYOUT}encryption.key.pairs.k1.private.key.file": str(key_file)})
    with pytest.raises(CorruptSegment, match=said) as caught:
        layout.read_segment(store, written.metadata, 0, -1)
    assert caught.value.object_name == written.name + name


def test_damaged_indexes(key_file: Path) -> None:
    for change, more in ((cut, {}), (flip, {"key_pair": ("k1", KEY)})):
        store, written = damaged(".indexes", change, **more)
        layout = AivenLayout()
        layout.configure({f"{LAYOUT}encryption.key.pairs.k1.private.key.file": str(key_file)})
        with pytest.raises(CorruptSegment) as caught:
            layout.read_index(store, written.metadata, IndexType.TRANSACTION)
        assert caught.value.object_name == f"{written.name}.indexes"


@pytest.mark.parametrize("prefix", ["", "old/tier-"])
def test_the_segment_of_an_object(prefix: str) -> None:
    """An audit takes an object of no segment for a left-over, which a user may delete."""
    layout = opened(**({"key__prefix": prefix} if prefix else {}))
    stem = main_of(Written(b"").metadata)
    names = [f"{prefix}{stem}{suffix}" for suffix in (".log", ".indexes", ".rsm-manifest")]
    assert {layout.segment_of(name) for name in names} == {SEGMENT_ID}
    log, ids = names[0], (PARTITION.topic_id, SEGMENT_ID.id)
    wrong = [
        f"{log}x",
        log.removesuffix(".log"),
        f"x{stem}.log",
        *(f"{prefix}{stem.split('/', 1)[0]}{end}.log" for end in ("", "/3")),
    ]
    wrong += [log.replace(str(each), 22 * "z") for each in ids] + [log.replace(f"/{PARTITION.partition}/", "/00/")]
    assert {layout.segment_of(name) for name in wrong if prefix or not name.startswith("x")} == {None}


def test_a_chunk_of_another_size_than_its_index_says() -> None:
    written = Written(LOG, is_compressed=True)
    manifest = written.manifest()
    manifest["chunkIndex"]["originalChunkSize"] = 99
    objects = written.objects() | {f"{written.name}.rsm-manifest": json.dumps(manifest).encode()}
    with pytest.raises(CorruptSegment, match="a chunk of 99 bytes is stored as a frame of 100"):
        opened().read_segment(Store(objects), written.metadata, 0, -1)


def test_a_frame_that_does_not_have_the_size_that_it_says() -> None:
    """A frame of 300 bytes has its size in the bytes 5 and 6, less 256."""
    written = Written(random.Random(7).randbytes(300), 300, is_compressed=True)
    manifest, objects = written.manifest(), written.objects()
    manifest["chunkIndex"] |= {"originalChunkSize": 301, "originalFileSize": 301}
    log = objects[f"{written.name}.log"]
    assert log[5:7] == (300 - 256).to_bytes(2, "little")
    objects[f"{written.name}.log"] = log[:5] + (301 - 256).to_bytes(2, "little") + log[7:]
    objects[f"{written.name}.rsm-manifest"] = json.dumps(manifest).encode()
    with pytest.raises(CorruptSegment, match="a chunk cannot be decompressed"):
        opened().read_segment(Store(objects), written.metadata, 0, -1)


def test_chunks_larger_than_allowed() -> None:
    written = Written(bytes(3000), 2000, is_compressed=True)
    layout = AivenLayout()
    layout.configure({"fetch.remote.max.decompressed.bytes": "1999"})
    with pytest.raises(DecompressionLimit, match="Raise fetch"):
        layout.read_segment(Store(written.objects()), written.metadata, 0, 10)
    plain = Written(bytes(3000), 2000, start_offset=8)
    assert layout.read_segment(Store(plain.objects()), plain.metadata, 0, 10) == bytes(10)


def test_keys_that_are_missing_or_wrong(key_file: Path, tmp_path: Path) -> None:
    written = Written(LOG, key_pair=("k2", KEY))
    store = Store(written.objects())
    with pytest.raises(UnsupportedFormat, match=r"key pair 'k2'.*pairs\.k2\.private\.key\.file") as caught:
        opened().read_segment(store, written.metadata, 0, -1)
    assert caught.value.object_name == f"{written.name}.rsm-manifest"
    other = tmp_path / "other.pem"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    other.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    layout = AivenLayout()
    layout.configure({f"{LAYOUT}encryption.key.pairs.k2.private.key.file": str(other)})
    with pytest.raises(StorageDenied, match="does not open the segment's data key"):
        layout.read_segment(store, written.metadata, 0, -1)
    layout = AivenLayout()
    layout.configure({f"{LAYOUT}encryption.key.pairs.k2.private.key.file": str(key_file)})
    assert bytes(layout.read_segment(store, written.metadata, 0, -1)) == LOG


def test_a_manifest_that_was_damaged_on_its_way(keyed: AivenLayout) -> None:
    """It is fetched again for the next read."""
    written, other = (Written(LOG, 100, True, ("k1", KEY), start_offset=start) for start in (7_000, 7_001))
    name = f"{written.name}.rsm-manifest"
    objects = written.objects()
    manifest = json.loads(objects[name])
    pair, _, _ = manifest["encryption"]["dataKey"].partition(":")
    manifest["encryption"]["dataKey"] = f"{pair}:{base64.b64encode(bytes(256)).decode()}"
    keyed.read_segment(Store(other.objects()), other.metadata, 0, -1)
    with pytest.raises(CorruptSegment, match="opens other data keys"):
        keyed.read_segment(Store(objects | {name: json.dumps(manifest).encode()}), written.metadata, 0, -1)
    assert keyed.read_segment(Store(objects), written.metadata, 0, -1) == LOG


def test_the_first_data_key_was_damaged_on_its_way(key_file: Path) -> None:
    """Nothing shows yet that the private key is right. A refusal would end the reads of all segments for a while."""
    written = Written(LOG, 100, True, ("k1", KEY))
    name = f"{written.name}.rsm-manifest"
    manifest = written.manifest()
    manifest["encryption"]["dataKey"] = f"k1:{base64.b64encode(bytes(256)).decode()}"
    damaged_manifest = json.dumps(manifest).encode()

    class DamagedOnce(Store):
        def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
            found = super().get(name, start, end)
            return damaged_manifest if self.gets == [(name, start, end)] else found

    layout = AivenLayout()
    layout.configure({f"{LAYOUT}encryption.key.pairs.k1.private.key.file": str(key_file)})
    store = DamagedOnce(written.objects())
    assert layout.read_segment(store, written.metadata, 0, -1) == LOG
    assert [name.rpartition(".")[2] for name, *_ in store.gets] == ["rsm-manifest", "rsm-manifest", "log"]
    layout = AivenLayout()
    layout.configure({f"{LAYOUT}encryption.key.pairs.k1.private.key.file": str(key_file)})
    always = Store(written.objects() | {name: damaged_manifest})
    with pytest.raises(StorageDenied):
        layout.read_segment(always, written.metadata, 0, -1)
    assert len(always.gets) == 2


@pytest.mark.parametrize("index", [None, IndexType.OFFSET])
def test_a_manifest_that_does_not_fit_its_objects_is_fetched_again(keyed: AivenLayout, index: IndexType | None) -> None:
    """It may have been damaged on its way, and was JSON all the same."""
    written = Written(LOG, 100, True, ("k1", KEY), start_offset=8_000 + (index is None))
    name = f"{written.name}.rsm-manifest"
    objects = written.objects()
    manifest = json.loads(objects[name])
    places = manifest["segmentIndexes"]
    places["offset"]["size"] += 1
    places["timestamp"]["position"] += 1
    places["timestamp"]["size"] -= 1
    manifest["chunkIndex"]["originalFileSize"] -= 1
    damaged_objects = objects | {name: json.dumps(manifest).encode()}

    def read(store: Store) -> bytes:
        if index is None:
            return bytes(keyed.read_segment(store, written.metadata, 0, -1))
        return bytes(keyed.read_index(store, written.metadata, index) or b"")

    with pytest.raises(CorruptSegment):
        read(Store(damaged_objects))
    assert read(Store(objects)) == (LOG if index is None else b"the offset index")


@each_of("number, by", [("position", -1), ("position", 1), ("size", -1), ("size", 1)])
def test_the_place_of_an_index_is_not_believed_alone(number: str, by: int) -> None:
    """Without encryption no checksum of the plug-in tells that these are not the bytes of the index."""
    kinds = (
        IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH,
        IndexType.TRANSACTION,
    )  # fmt: skip
    layout = opened()
    for start_offset, (key, kind) in enumerate(zip(INDEXES, kinds, strict=True), 9_000):
        written = Written(LOG, start_offset=start_offset)
        objects, manifest = written.objects(), written.manifest()
        manifest["segmentIndexes"][key][number] += by
        changed = {f"{written.name}.rsm-manifest": json.dumps(manifest).encode()}
        with pytest.raises(CorruptSegment):
            layout.read_index(Store(objects | changed), written.metadata, kind)
        assert layout.read_index(Store(objects), written.metadata, kind) == written.indexes[key]


@pytest.mark.parametrize("name", ["prefix", "key.prefx", "encryption.key.pairs.k1.private.key", "chunk.size"])
def test_unknown_options(name: str) -> None:
    with pytest.raises(ConfigError, match="has no option") as caught:
        AivenLayout().configure({LAYOUT + name: "s3cret"})
    assert caught.value.key == LAYOUT + name
    assert "s3cret" not in str(caught.value)


# -------------------------------------------------------------------------------------------------------- names


def custom(prefix: str | None = None, key: str | None = None) -> bytes:
    fields = {0: encode_varint(12)}
    if prefix is not None:
        fields[1] = encode_compact_string(prefix)
    if key is not None:
        fields[2] = encode_compact_string(key)
    return encode_tagged_fields(fields)


@pytest.mark.parametrize("prefix", ["", "tier/", "some/pre-fix.", "a/b/c-"])
def test_the_prefix_is_put_before_the_name_as_it_is(prefix: str) -> None:
    written = Written(LOG, prefix=prefix)
    layout = opened(key__prefix=prefix) if prefix else opened()
    store = Store({**written.objects(), "elsewhere/x.rsm-manifest": b"", f"{prefix}topic/x.rsm-manifest": b""})
    assert bytes(layout.read_segment(store, written.metadata, 0, -1)) == LOG
    (segment,) = layout.list_segments(store, None)
    assert (segment.segment_id, segment.start_offset, segment.end_offset) == (SEGMENT_ID, 7, 16)
    assert list(layout.list_segments(store, "order")) == []
    assert list(layout.list_segments(store, "orders")) == [segment]


def test_a_prefix_that_changed_is_in_the_custom_metadata() -> None:
    """The plug-in itself looks for the manifest under the new prefix only, and fails."""
    written = Written(LOG, prefix="old/", custom_metadata=custom("old/"))
    store = Store(written.objects())
    assert bytes(opened(key__prefix="new/").read_segment(store, written.metadata, 0, -1)) == LOG
    assert [name.partition("/")[0] for name, *_ in store.gets] == ["new", "old", "old"]
    with pytest.raises(SegmentNotFound):
        opened(key__prefix="new/").read_segment(
            store, dataclasses.replace(written.metadata, custom_metadata=None), 0, 1
        )


def test_names_in_the_custom_metadata_are_those_of_log_and_indexes() -> None:
    written = Written(LOG, custom_metadata=custom("moved/", "orders/log-7"))
    objects = written.objects()
    for suffix in (".log", ".indexes"):
        objects[f"moved/orders/log-7{suffix}"] = objects.pop(written.name + suffix)
    layout = opened()
    assert bytes(layout.read_segment(Store(objects), written.metadata, 3, 9)) == LOG[3:9]
    assert layout.read_index(Store(objects), written.metadata, IndexType.OFFSET) is not None


@pytest.mark.parametrize("metadata", [b"\xff", b"\x01", custom("../x/"), custom(None, "a/../../b")])
def test_custom_metadata_that_is_none(metadata: bytes) -> None:
    written = Written(LOG, custom_metadata=metadata)
    with pytest.raises(CorruptSegment):
        opened().read_segment(Store(written.objects()), written.metadata, 0, 1)


@pytest.mark.parametrize("prefix", ["", "tier/", "some/pre-fix."])
def test_one_partition_is_listed_alone(prefix: str) -> None:
    layout = opened(key__prefix=prefix) if prefix else opened()
    objects = Written(LOG, prefix=prefix).objects()
    folder = next(iter(objects)).rpartition("/")[0].rpartition("/")[0]
    store = Store({**objects, f"{folder}/77/x.rsm-manifest": b"", f"{folder}/78/x.rsm-manifest": b""})
    named = list(layout.list_partitions(store, "orders"))
    assert sorted(one.partition for one in named)[-2:] == [77, 78]
    assert list(layout.list_partitions(store, "order")) == []
    partition = next(one for one in named if one.partition not in (77, 78))
    (segment,) = layout.list_partition(store, partition)
    assert segment.topic_id_partition == partition
    assert store.listed == [f"{folder}/{partition.partition}"]


@pytest.mark.parametrize("prefix", ["", "tier/"])
def test_the_level_that_fits(prefix: str) -> None:
    objects = Written(LOG, prefix=prefix).objects()
    partition_folder = next(iter(objects)).rpartition("/")[0]
    topic_folder = partition_folder.rpartition("/")[0]
    layout = opened(key__prefix=prefix) if prefix else opened()
    assert layout.levels_below(Store(objects)) == 0
    assert layout.levels_below(Store({f"x/{name}": data for name, data in objects.items()})) is None
    assert layout.levels_below(Store({f"x/{name}": data for name, data in objects.items()}), "x") == 0
    assert [opened().levels_below(Store(objects), one) for one in (topic_folder, partition_folder)] == [1, 2]
    local = {f"orders-0-{SEGMENT_ID.id}/{7:020d}-{SEGMENT_ID.id}.log": b""}
    assert opened().levels_below(Store(local)) is None, "Kafka's own layout"


def test_another_prefix_is_named() -> None:
    store = Store(Written(LOG, prefix="some/pre-fix.").objects())
    for wrong in ("", "some/", "other/"):
        layout = opened(key__prefix=wrong) if wrong else opened()
        # The folder `pre-fix.orders-ID` below `some/` may be that of a topic.
        for listed in [layout.list_segments] + [layout.list_partitions] * (wrong != "some/"):
            with pytest.raises(ConfigError, match=r"set remote\.storage\.layout\.key\.prefix=some/pre-fix\.$"):
                list(listed(store, None))
    assert list(opened().list_segments(store, "orders")) == []


def test_iceberg_tables_are_told_from_a_segment_that_is_gone() -> None:
    written = Written(LOG)
    store = Store({"warehouse/ns/orders/metadata/1.puffin": b"", "warehouse/ns/orders/data/1.parquet": b""})
    for call in (
        lambda: opened().read_segment(store, written.metadata, 0, 1),
        lambda: list(opened().list_segments(store, None)),
    ):
        with pytest.raises(UnsupportedFormat, match=r"segment\.format=iceberg"):
            call()
    with pytest.raises(SegmentNotFound):
        opened().read_segment(Store({"readme.puffin": b""}), written.metadata, 0, 1)


def test_where_a_segment_was_read_nobody_looks_for_tables() -> None:
    """A listing takes long, and segments are deleted all the time."""
    written, layout = Written(LOG), opened()
    store = Store({**written.objects(), "ns/orders/metadata/1.puffin": b""})
    layout.read_segment(store, written.metadata, 0, 1)
    with pytest.raises(SegmentNotFound):
        layout.read_segment(store, dataclasses.replace(written.metadata, start_offset=8), 0, 1)


class NoListing(Store):
    """A store that lists nothing, as one behind a permission."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        raise StorageDenied("no ListBucket")


def test_what_is_there_is_not_asked_where_nothing_is_listed() -> None:
    with pytest.raises(SegmentNotFound):
        opened().read_segment(NoListing({}), Written(LOG).metadata, 0, 1)


# -------------------------------------------------------------------------------------------------------- listing


def test_what_a_listing_knows() -> None:
    written = Written(LOG)
    (segment,) = opened().list_segments(Store(written.objects()), None)
    assert segment.topic_id_partition == PARTITION
    assert segment.segment_size_in_bytes == len(LOG)
    assert segment.max_timestamp_ms == 1_700_000_000_000
    assert [entry.epoch for entry in segment.segment_leader_epochs] == [0, 2, 10]


def test_manifests_that_cannot_be_read_are_listed_by_their_names() -> None:
    store, _ = damaged(".rsm-manifest", cut)
    (segment,) = opened().list_segments(store, None)
    assert (segment.start_offset, segment.end_offset, segment.segment_size_in_bytes) == (5000, -1, UNKNOWN_SIZE)


def test_without_a_description_the_size_is_known() -> None:
    written = Written(LOG)
    manifest = written.manifest()
    del manifest["remoteLogSegmentMetadata"]
    store = Store(written.objects() | {f"{written.name}.rsm-manifest": json.dumps(manifest).encode()})
    (segment,) = opened().list_segments(store, None)
    assert (segment.end_offset, segment.segment_size_in_bytes, segment.txn_index_empty) == (-1, len(LOG), False)


@pytest.mark.parametrize(
    "lie",
    [
        {"startOffset": 8},
        {"remoteLogSegmentId": {"id": str(PARTITION.topic_id)}},
        {"remoteLogSegmentId": {"topicIdPartition": {"topicPartition": {"topic": "others"}}}},
        {"remoteLogSegmentId": {"topicIdPartition": {"topicPartition": {"partition": 0}}}},
    ],
)
def test_a_segment_whose_description_is_of_another_one_is_listed_by_its_name(lie: dict[str, Any]) -> None:
    written = Written(LOG)
    manifest = written.manifest()
    merge(manifest["remoteLogSegmentMetadata"], lie)
    store = Store(written.objects() | {f"{written.name}.rsm-manifest": json.dumps(manifest).encode()})
    (segment,) = opened().list_segments(store, "orders")
    assert segment.segment_id == written.metadata.segment_id
    assert (segment.start_offset, segment.end_offset, segment.segment_size_in_bytes) == (7, -1, len(LOG))


def merge(document: dict[str, Any], change: dict[str, Any]) -> None:
    """Change fields of a document, at every depth."""
    for name, value in change.items():
        if isinstance(value, dict):
            merge(document[name], value)
        else:
            document[name] = value


def test_another_topic_below_a_longer_prefix_is_not_listed() -> None:
    store = Store(Written(LOG, prefix="pre-").objects())
    assert list(opened().list_segments(store, "pre-orders")) == []


def test_foreign_names_are_passed_over() -> None:
    written = Written(LOG)
    topic = f"{PARTITION.topic}-{PARTITION.topic_id}"
    stem = written.name.rpartition("/")[2]
    foreign = {
        f"{topic}/03/{stem}.rsm-manifest": b"",
        f"{topic}/3/old/{stem}.rsm-manifest": b"",
        f"{topic}/3/{stem[1:]}.rsm-manifest": b"",
        f"{topic}/3/{stem}x.rsm-manifest": b"",
        f"{topic}/3/{20 * '9'}-{SEGMENT_ID.id}.rsm-manifest": b"",
        f"{topic}/3/{7:020d}-{22 * 'z'}.rsm-manifest": b"",
        f"{topic}/3/{8:020d}-{SEGMENT_ID.id}.log": b"",  # an upload under way
        f"orders-{22 * 'z'}/3/{stem}.rsm-manifest": b"",
        f"-{PARTITION.topic_id}/3/{stem}.rsm-manifest": b"",
    }
    (segment,) = opened().list_segments(Store({**written.objects(), **foreign}), None)
    assert segment.start_offset == 7


def test_an_object_that_goes_while_it_is_listed() -> None:
    class Vanishing(Store):
        def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
            raise SegmentNotFound("gone")

    assert list(opened().list_segments(Vanishing(Written(LOG).objects()), None)) == []


@pytest.mark.parametrize("times", [1, 2])
def test_an_object_that_is_replaced_while_it_is_listed(times: int) -> None:
    """Its segment is not left out, for it is there: the manifest is asked for once more."""
    written, seen = Written(LOG), list[str]()

    class Replaced(Store):
        def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
            seen.append(name)
            if len(seen) <= times:
                raise SegmentNotFound("replaced", is_absent=False)
            return super().get(name, start, end)

    (segment,) = opened().list_segments(Replaced(written.objects()), None)
    assert segment.start_offset == 7
    assert len(seen) == 2


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("error", [StorageThrottled("slow down"), StorageUnavailable("failed")], ids=repr)
def test_a_manifest_of_a_listing_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, error: RemoteFetchError, times: int
) -> None:
    """Its reader retries reads alone, and one SlowDown for one of thousands of manifests is no end of a listing."""
    monkeypatch.setattr(_retries, "_PAUSES_S", (0.001, 0.001))
    written, seen = Written(LOG), list[str]()

    class Slow(Store):
        def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
            seen.append(name)
            if len(seen) <= times:
                raise error
            return super().get(name, start, end)

    listing = opened().list_segments(Slow(written.objects()), None)
    if times == 3:
        with pytest.raises(type(error)):
            list(listing)
    else:
        assert [segment.start_offset for segment in listing] == [7]
    assert len(seen) == min(times + 1, 3)


def test_a_refusal_ends_a_listing() -> None:
    class Refusing(Store):
        def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
            raise StorageDenied("no")

    with pytest.raises(StorageDenied):
        list(opened().list_segments(Refusing(Written(LOG).objects()), None))


def test_a_manifest_is_fetched_once_by_several_threads() -> None:
    written = Written(LOG, is_compressed=True)
    store, layout = Store(written.objects()), opened()
    found = at_once([lambda: bytes(layout.read_segment(store, written.metadata, 0, -1))] * 6)
    assert found == [LOG] * 6
    assert sum(name.endswith(".rsm-manifest") for name, *_ in store.gets) == 1


@pytest.mark.parametrize("packs", [False, True])
def test_the_size_is_the_manifests(packs: bool) -> None:
    """By no byte of the log, and without the size that the metadata has."""
    written = Written(LOG, 100, packs)
    store = Store(written.objects())
    unknown = dataclasses.replace(written.metadata, segment_size_in_bytes=UNKNOWN_SIZE)
    assert opened().segment_size(store, unknown) == len(LOG)
    assert {name for name, _, _ in store.gets} == {f"{written.name}.rsm-manifest"}
    with pytest.raises(SegmentNotFound):
        opened().segment_size(Store({}), unknown)


@pytest.mark.parametrize(
    ("custom_metadata", "size_bytes"),
    [
        (encode_tagged_fields({0: encode_varint(5 << 32)}), 5 << 32),
        (encode_tagged_fields({0: encode_varint(7), 1: encode_compact_string("p/")}), 7),
        (encode_tagged_fields({1: encode_compact_string("p/")}), None),
        (encode_tagged_fields({0: encode_varint(0)}), None),
        (encode_tagged_fields({0: encode_varint(-7)}), None),
        (encode_tagged_fields({0: b""}), None),
        (encode_tagged_fields({0: b"\xff" * 11}), None),
        (b"\xff\xff", None),
        (b"", None),
        (None, None),
    ],
)
def test_the_size_in_the_store(custom_metadata: bytes | None, size_bytes: int | None) -> None:
    """The size comes from REMOTE_SIZE (KIP-917). No read depends on it, so an invalid value counts as missing."""
    assert opened().stored_size(Written(LOG, custom_metadata=custom_metadata).metadata) == size_bytes
