"""The layout of LocalTieredStorage: names from the right, foreign files, where the tree begins, what sizes tell.

Rules of the file:

- The store is a dictionary.
- The contract of the fetchers shows that real trees are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.layouts import naming
from fetchers.layouts.kafka_local import KafkaLocalLayout
from remote_fetch.errors import ConfigError, CorruptSegment, SegmentNotFound, StorageDenied, Unlocatable
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.model import (
    UNKNOWN_SIZE,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    is_topic_name,
)
from tests.cases import each_of
from tests.searches import examples

ID = Uuid(b"\x01" * 16)
PARTITION = TopicIdPartition(ID, "orders", 0)
SEGMENT_ID = RemoteLogSegmentId(PARTITION, Uuid(b"\x02" * 16))
SEGMENT = RemoteLogSegmentMetadata(SEGMENT_ID, 7, -1, 3, txn_index_empty=True)
FOLDER = f"orders-0-{ID}"
STEM = f"{7:020d}-{SEGMENT_ID.id}"
LOG = f"{FOLDER}/{STEM}.log"
TREE = "kafka-tiered-storage"


class Store:
    """Objects by name; `sizes` says another size of some than they have. Counts what is asked."""

    def __init__(self, objects: Mapping[str, bytes], sizes: Mapping[str, int] | None = None) -> None:
        self.objects, self.sizes = dict(objects), dict(sizes or {})
        self.asked: list[tuple[object, ...]] = []

    def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
        self.asked.append(("get", name, start, end))
        if name not in self.objects:
            raise SegmentNotFound("no such object", object_name=name)
        return self.objects[name][start:] if end < 0 else self.objects[name][start:end]

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.asked.append(("list", prefix))
        for name, data in self.objects.items():
            if name.startswith(f"{prefix}/" if prefix else ""):
                yield ObjectInfo(name, self.sizes.get(name, len(data)))

    def folders(self, prefix: str = "") -> Iterator[str]:
        self.asked.append(("folders", prefix))
        at = f"{prefix}/" if prefix else ""
        below = [name.removeprefix(at) for name in self.objects if name.startswith(at)]
        yield from dict.fromkeys(name.partition("/")[0] for name in below if "/" in name)


def listed(
    names: Mapping[str, bytes], topic: str | None = None, sizes: Mapping[str, int] | None = None
) -> list[RemoteLogSegmentMetadata]:
    return list(opened().list_segments(Store(names, sizes), topic))


def opened() -> KafkaLocalLayout:
    layout = KafkaLocalLayout()
    layout.configure({})
    return layout


uuids = st.binary(min_size=16, max_size=16).map(Uuid)
odd_topics = st.sampled_from(["a-0-AAAAAAAAAAAAAAAAAAAAAA", "-", "--0--", "...", "a.b-c_d-12", "0-0-0"])
topics = st.text(alphabet="abcXYZ019._-", min_size=1, max_size=30).filter(is_topic_name) | odd_topics


@examples(150)
@given(
    partitions=st.lists(
        st.builds(TopicIdPartition, uuids, topics, st.integers(0, 2**31 - 1)), min_size=1, max_size=4, unique=True
    ),
    start_offset=st.integers(0, 2**63 - 2),
    segment_id=uuids,
    tree=st.sampled_from(["", f"{TREE}/"]),
)
def test_names_are_read_from_the_right(
    partitions: list[TopicIdPartition], start_offset: int, segment_id: Uuid, tree: str
) -> None:
    written = {
        f"{tree}{place.topic}-{place.partition}-{place.topic_id}/{start_offset:020d}-{segment_id}.log": place
        for place in partitions
    }
    store = Store(dict.fromkeys(written, b"log"))
    layout = opened()
    found = list(layout.list_segments(store, None))
    assert [segment.topic_id_partition for segment in found] == list(written.values())
    for name, segment in zip(written, found, strict=True):
        assert (segment.start_offset, segment.segment_id.id) == (start_offset, segment_id)
        assert layout.read_segment(store, segment, 1, 3) == b"og"
        assert store.asked[-1] == ("get", name, 1, 3)
    topic = partitions[0].topic
    assert {segment.topic_id_partition.topic for segment in layout.list_segments(store, topic)} == {topic}


@pytest.mark.parametrize("text", ["-" + 20 * "_" + "w", "__________________8-_w", "--------------------_w"])
def test_ids_of_dashes_and_underscores(text: str) -> None:
    (segment,) = listed({f"a-b-12-{text}/{0:020d}-{text}.log": b""})
    assert segment.topic_id_partition == TopicIdPartition(Uuid.parse(text), "a-b", 12)
    assert str(segment.segment_id.id) == text


@each_of(
    "name",
    [
        f"{STEM}.log",  # in no folder
        f"orders-0/{STEM}.log",
        f"orders-{ID}/{STEM}.log",
        f"-0-{ID}/{STEM}.log",
        f"orders-x-{ID}/{STEM}.log",
        f"orders-01-{ID}/{STEM}.log",
        f"orders-\u0663-{ID}/{STEM}.log",
        f"orders-99999999999-{ID}/{STEM}.log",
        f"orders-0-{ID}A/{STEM}.log",
        f"orders-0-{str(ID)[:-1]}/{STEM}.log",
        f"orders-0-{22 * 'z'}/{STEM}.log",  # more than 16 bytes
        f"{FOLDER}/{STEM}.log.tmp",
        f"{FOLDER}/{STEM}.LOG",
        f"{FOLDER}/{STEM}",
        f"{FOLDER}/{STEM}.index",  # without its log
        f"{FOLDER}/{7:019d}-{SEGMENT_ID.id}.log",
        f"{FOLDER}/{20 * '9'}-{SEGMENT_ID.id}.log",  # no offset
        f"{FOLDER}/{20 * chr(0x0661)}-{SEGMENT_ID.id}.log",
        f"{FOLDER}/{7:020d}-{22 * 'z'}.log",
        f"{FOLDER}/{7:020d}-{SEGMENT_ID.id}A.log",
        f"{FOLDER}/old/{STEM}.log",  # a copy in a folder of its own
        f"{FOLDER}/.DS_Store",
        "README.md",
        "backup/orders/readme.txt",
        f"{TREE}/lost+found/x.log",
    ],
)
def test_foreign_files_are_passed_over(name: str) -> None:
    tree = f"{TREE}/" if name.startswith(TREE) else ""
    mine = f"{tree}payments-1-{ID}/{STEM}.log"
    (segment,) = listed({name: b"xyz", mine: b"log"})
    assert segment.topic_id_partition.topic == "payments"


@pytest.mark.parametrize("tree", ["", f"{TREE}/"], ids=["a bare copy, or the folder itself", "the tier's directory"])
def test_where_the_tree_begins(tree: str) -> None:
    store = Store({f"{tree}{LOG}": b"log", f"{tree}{FOLDER}/{STEM}.index": b"index"})
    layout = opened()
    assert list(layout.list_segments(store, None)) == [SEGMENT]
    assert layout.read_segment(store, SEGMENT, 0, -1) == b"log"
    assert layout.read_index(store, SEGMENT, IndexType.OFFSET) == b"index"


def test_the_tree_is_looked_for_once() -> None:
    store = Store({f"{TREE}/{LOG}": b"log"})
    layout = opened()
    for _ in range(3):
        layout.read_segment(store, SEGMENT, 0, -1)
    assert [asked for asked in store.asked if asked[0] == "folders"] == [("folders", "")]


def test_only_the_folders_of_a_topic_are_listed() -> None:
    objects = {f"a-{number}-{ID}/{STEM}.log": b"log" for number in range(3)} | {f"a-b-0-{ID}/{STEM}.log": b"log"}
    found = listed(objects, "a")
    assert [segment.topic_id_partition.partition for segment in found] == [0, 1, 2]
    assert listed(objects, "a-0") == []
    assert listed(objects, "A") == []


@pytest.mark.parametrize("tree", ["", f"{TREE}/"])
def test_one_partition_is_listed_alone(tree: str) -> None:
    store = Store({f"{tree}a-{number}-{ID}/{STEM}.log": b"log" for number in range(100)})
    layout = opened()
    named = list(layout.list_partitions(store, "a"))
    assert [one.partition for one in named] == list(range(100))
    assert list(layout.list_partitions(store, "b")) == []
    (segment,) = layout.list_partition(store, named[3])
    assert segment.topic_id_partition.partition == 3
    assert [asked for asked in store.asked if asked[0] == "list"] == [("list", f"{tree}a-3-{ID}")]


@pytest.mark.parametrize(
    ("above", "folder", "levels"),
    [("", "", 0), (f"{TREE}/", "", 0), ("x/", "", None), ("x/", "x", 0), ("", FOLDER, 1), (f"{TREE}/", FOLDER, None)],
)
def test_the_level_that_fits(above: str, folder: str, levels: int | None) -> None:
    assert opened().levels_below(Store({f"{above}{LOG}": b""}), folder) == levels


@pytest.mark.parametrize("size_bytes", [0, 2**31 - 2, 2**31, 5 << 30])
def test_sizes_are_those_of_the_listing(size_bytes: int) -> None:
    (segment,) = listed({LOG: b""}, sizes={LOG: size_bytes})
    assert segment == dataclasses.replace(SEGMENT, segment_size_in_bytes=size_bytes)
    assert segment.size_known == (size_bytes > 0)


def test_a_transaction_index_may_be_there() -> None:
    assert listed({LOG: b"log"})[0].txn_index_empty is True
    with_index = {LOG: b"log", f"{FOLDER}/{STEM}.txnindex": b""}
    assert listed(with_index)[0].txn_index_empty is False
    assert listed(dict(reversed(with_index.items())))[0].txn_index_empty is False


def test_among_finished_uploads_one_without_its_state_is_not_finished() -> None:
    """A copy tool may have begun with the log and its index. If no upload has its state, the tree is a bare copy."""
    begun = {LOG: b"log", f"{FOLDER}/{STEM}.index": b"index"}
    finished = f"{FOLDER}/{20:020d}-{Uuid(bytes([3]) * 16)}"
    for state in (".snapshot", ".leader_epoch_checkpoint"):
        found = listed({**begun, f"{finished}.log": b"log", f"{finished}{state}": b""})
        assert [segment.start_offset for segment in found] == [20]
    assert len(listed({**begun, f"{finished}.log": b"log"})) == 2


@pytest.mark.parametrize("state", [".snapshot", ".leader_epoch_checkpoint"])
def test_a_finished_upload_without_its_log_is_listed_as_one_that_is_deleted(state: str) -> None:
    """Its log was uploaded first. An index alone is no finished upload."""
    (segment,) = listed({f"{FOLDER}/{STEM}.index": b"", f"{FOLDER}/{STEM}{state}": b""})
    state_of_it = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
    assert segment == RemoteLogSegmentMetadata(SEGMENT_ID, 7, -1, UNKNOWN_SIZE, state=state_of_it)


def test_two_uploads_of_one_segment_are_two_segments() -> None:
    again = Uuid(b"\x03" * 16)
    found = listed(
        {LOG: b"log", f"{FOLDER}/{7:020d}-{again}.log": b"longer", f"{FOLDER}/{7:020d}-{again}.txnindex": b""}
    )
    assert [(segment.segment_id.id, segment.segment_size_in_bytes, segment.txn_index_empty) for segment in found] == [
        (SEGMENT_ID.id, 3, True),
        (again, 6, False),
    ]


@pytest.mark.parametrize(
    ("index_type", "suffix"),
    [
        (IndexType.OFFSET, ".index"),
        (IndexType.TIMESTAMP, ".timeindex"),
        (IndexType.PRODUCER_SNAPSHOT, ".snapshot"),
        (IndexType.TRANSACTION, ".txnindex"),
        (IndexType.LEADER_EPOCH, ".leader_epoch_checkpoint"),
    ],
)
def test_indexes(index_type: IndexType, suffix: str) -> None:
    store = Store({LOG: b"log", f"{FOLDER}/{STEM}{suffix}": b"index"})
    layout = opened()
    assert layout.read_index(store, SEGMENT, index_type) == b"index"
    others = set(IndexType) - {index_type}
    assert {layout.read_index(store, SEGMENT, other) for other in others} == {None}


def test_a_refusal_is_not_an_absent_index() -> None:
    class Guarded(Store):
        def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
            raise StorageDenied("no")

    with pytest.raises(StorageDenied):
        opened().read_index(Guarded({LOG: b""}), SEGMENT, IndexType.TRANSACTION)


def test_an_index_of_any_size_is_not_taken_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "MAX_INDEX_BYTES", 5)
    name = f"{FOLDER}/{STEM}.index"
    store = Store({LOG: b"log", name: b"index"})
    layout = opened()
    assert layout.read_index(store, SEGMENT, IndexType.OFFSET) == b"index"
    store.objects[name] = b"index and more"
    with pytest.raises(CorruptSegment, match="more than 5 bytes") as caught:
        layout.read_index(store, SEGMENT, IndexType.OFFSET)
    assert caught.value.object_name == name
    assert store.asked[-1] == ("get", name, 0, 6)


def test_a_segment_that_is_gone() -> None:
    with pytest.raises(SegmentNotFound):
        opened().read_segment(Store({}), SEGMENT, 0, -1)


class Unlisted(Store):
    """May be read, but not listed."""

    error: Exception = StorageDenied("no listing")

    def folders(self, prefix: str = "") -> Iterator[str]:
        self.asked.append(("folders", prefix))
        raise self.error


@pytest.mark.parametrize("error", [StorageDenied("no listing"), Unlocatable("HTTP has none")])
@pytest.mark.parametrize(
    ("url", "tree", "listings"),
    [("s3://bucket/tier", f"{TREE}/", 1), (f"s3://bucket/{TREE}", "", 0), (f"https://host/a/{TREE}/?sig=x", "", 0)],
)
def test_without_a_listing_the_tree_is_where_brokers_put_it(
    url: str, tree: str, listings: int, error: Exception
) -> None:
    store = Unlisted({f"{tree}{LOG}": b"log", f"{tree}{FOLDER}/{STEM}.index": b"index"})
    store.error = error
    layout = KafkaLocalLayout()
    layout.configure({"remote.storage.url": url})
    assert layout.read_index(store, SEGMENT, IndexType.OFFSET) == b"index"
    assert layout.read_segment(store, SEGMENT, 0, -1) == b"log"
    assert layout.read_index(store, SEGMENT, IndexType.TRANSACTION) is None
    assert [asked for asked in store.asked if asked[0] == "folders"] == [("folders", "")] * listings


def test_a_directory_that_is_called_as_the_tree_is_told_apart_by_its_listing() -> None:
    objects = {f"{TREE}/{LOG}": b"log", f"{TREE}/{FOLDER}/{STEM}.index": b"index"}
    for read in (
        lambda layout, store: layout.read_segment(store, SEGMENT, 0, -1) == b"log",
        lambda layout, store: layout.read_index(store, SEGMENT, IndexType.OFFSET) == b"index",
        lambda layout, store: layout.read_index(store, SEGMENT, IndexType.TRANSACTION) is None,
        lambda layout, store: list(layout.list_segments(store, None)) == [SEGMENT],
    ):
        layout = KafkaLocalLayout()
        layout.configure({"remote.storage.url": f"/data/{TREE}"})
        assert read(layout, Store(objects))


def test_an_index_is_absent_only_beside_a_segment_that_is_there() -> None:
    """Looked for at a wrong place, everything is missing: that proves nothing."""
    with pytest.raises(SegmentNotFound):
        opened().read_index(Unlisted({LOG: b"log"}), SEGMENT, IndexType.TRANSACTION)
    assert opened().read_index(Unlisted({f"{TREE}/{LOG}": b"log"}), SEGMENT, IndexType.TRANSACTION) is None


def test_a_listing_that_is_allowed_later_is_believed() -> None:
    store = Unlisted({LOG: b"log"})
    layout = opened()
    with pytest.raises(SegmentNotFound):
        layout.read_segment(store, SEGMENT, 0, 3)
    allowed = Store({LOG: b"log"})
    assert layout.read_segment(allowed, SEGMENT, 0, 3) == b"log"


def test_options_of_another_layout_are_refused() -> None:
    """A configuration with these keys lacks the name of that layout."""
    with pytest.raises(ConfigError, match=r"'kafka_local' has no option remote\.storage\.layout\.key\.prefix"):
        KafkaLocalLayout().configure({"remote.storage.layout.key.prefix": "tiered/"})


def test_another_thread_finds_the_tree_during_a_request() -> None:
    """A transaction index that is there would count as absent, and the records of its transactions would be given."""
    layout = KafkaLocalLayout()
    layout.configure({"remote.storage.url": f"s3://bucket/{TREE}"})  # a broker's directory, called as the tree in it

    class Meanwhile(Store):
        def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
            if name == LOG.replace(".log", ".txnindex"):
                assert layout.read_segment(self, SEGMENT, 0, 3) == b"log"
            return super().get(name, start, end)

    store = Meanwhile({f"{TREE}/{LOG}": b"log", f"{TREE}/{LOG.replace('.log', '.txnindex')}": b"aborted"})
    assert layout.read_index(store, SEGMENT, IndexType.TRANSACTION) == b"aborted"


@each_of(
    ("name", "is_it"),
    [
        (LOG, True),
        (f"{TREE}/{LOG}", True),
        (f"{LOG}x", False),
        (f"{STEM}.log", False),
        (f"{FOLDER}/notes.txt", False),
        (f"orders-0-{22 * 'z'}/{STEM}.log", False),
        (f"{FOLDER}/{7:020d}-{22 * 'z'}.log", False),
    ],
)
def test_the_segment_of_an_object(name: str, is_it: bool) -> None:
    """An audit takes an object of no segment for a left-over, which a user may delete."""
    assert KafkaLocalLayout().segment_of(name) == (SEGMENT_ID if is_it else None)
