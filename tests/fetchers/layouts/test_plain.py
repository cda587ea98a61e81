"""Names by a template and back: for the tiers that people have, for random ones, and templates that are none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.layouts import naming
from fetchers.layouts.plain import PlainLayout
from remote_fetch import read_arrow
from remote_fetch.errors import ConfigError, CorruptSegment, UnsupportedFormat
from remote_fetch.model import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
    is_topic_name,
)
from tests.fetchers.layouts.aiven_writer import Store
from tests.searches import examples

LAYOUT = "remote.storage.layout."
PARTITION = TopicIdPartition(Uuid(bytes(range(16))), "my-topic", 0)
SEGMENT = RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, Uuid(b"\x02" * 16)), 42, -1, 3)
NO_INDEXES = {f"file.{name}": "" for name in ("transaction", "producer-snapshot", "leader-epoch")}

PINTEREST = {"template": "tier/{md5_bits}/my-cluster/{topic}-{partition}/{start_offset}.{file}", **NO_INDEXES}
PINTEREST |= {"md5.bits": "3", "md5.prefix": "my-cluster-"}
CRABKA = {"template": "tier/{topic_uuid}_{partition}/{segment_uuid}/{file}"}
CRABKA |= {
    f"file.{name}": text
    for name, text in {
        "offset": "offset_index",
        "timestamp": "time_index",
        "producer-snapshot": "producer_snapshot",
        "leader-epoch": "leader_epoch",
        "transaction": "txn_index",
    }.items()
}
MINIO = {"template": "{topic}-{partition}/{start_offset}.{file}.{segment_id}", **NO_INDEXES}
LOCAL = {"template": "{topic}-{partition}-{topic_id}/{start_offset}-{segment_id}.{file}"}


def opened(options: Mapping[str, str]) -> PlainLayout:
    layout = PlainLayout()
    layout.configure({LAYOUT + name: value for name, value in options.items()})
    return layout


@pytest.mark.parametrize(
    ("options", "log", "index"),
    [
        # The bits are those that the uploader's own documentation gives for this cluster, topic and partition.
        (
            PINTEREST,
            "tier/111/my-cluster/my-topic-0/00000000000000000042.log",
            "tier/111/my-cluster/my-topic-0/00000000000000000042.index",
        ),
        (
            CRABKA,
            "tier/00010203-0405-0607-0809-0a0b0c0d0e0f_0/02020202-0202-0202-0202-020202020202/log",
            "tier/00010203-0405-0607-0809-0a0b0c0d0e0f_0/02020202-0202-0202-0202-020202020202/offset_index",
        ),
        (
            MINIO,
            f"my-topic-0/00000000000000000042.log.{SEGMENT.segment_id.id}",
            f"my-topic-0/00000000000000000042.index.{SEGMENT.segment_id.id}",
        ),
    ],
)
def test_names(options: Mapping[str, str], log: str, index: str) -> None:
    store = Store({log: b"log", index: b"idx"})
    layout = opened(options)
    assert layout.read_segment(store, SEGMENT, 1, 3) == b"og"
    assert layout.read_index(store, SEGMENT, IndexType.OFFSET) == b"idx"
    assert layout.read_index(store, SEGMENT, IndexType.TIMESTAMP) is None
    assert layout.read_index(store, SEGMENT, IndexType.PRODUCER_SNAPSHOT) is None


def test_a_tier_without_transaction_indexes_refuses_read_committed() -> None:
    layout = opened(MINIO)
    with pytest.raises(UnsupportedFormat, match="which records were aborted"):
        layout.read_index(Store({}), SEGMENT, IndexType.TRANSACTION)
    known = dataclasses.replace(SEGMENT, txn_index_empty=True)
    assert layout.read_index(Store({}), known, IndexType.TRANSACTION) is None
    assert opened(LOCAL).read_index(Store({}), SEGMENT, IndexType.TRANSACTION) is None


def test_an_index_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "MAX_INDEX_BYTES", 5)
    name = f"my-topic-0/{42:020d}.index.{SEGMENT.segment_id.id}"
    assert opened(MINIO).read_index(Store({name: bytes(5)}), SEGMENT, IndexType.OFFSET) == bytes(5)
    with pytest.raises(CorruptSegment, match="more than 5 bytes"):
        opened(MINIO).read_index(Store({name: bytes(6)}), SEGMENT, IndexType.OFFSET)


uuids = st.binary(min_size=16, max_size=16).map(Uuid)
topics = st.text(alphabet="abXY09._-", min_size=1, max_size=20).filter(is_topic_name)
templates = st.sampled_from(
    [
        LOCAL["template"],
        MINIO["template"],
        "{topic}/{partition}/{start_offset}/{segment_id}.{file}",
        "x/{md5_bits}-{partition}-{topic}_{topic_uuid}/{file}/{start_offset}.{segment_uuid}",
        "{topic}-{partition}/{topic}/{start_offset}-{start_offset}.{file}",
        "a.b[c]*/{start_offset}.{topic}.{partition}.{file}",
    ]
)


@examples(200)
@given(
    template=templates,
    partitions=st.lists(
        st.builds(TopicIdPartition, uuids, topics, st.integers(0, 2**31 - 1)), min_size=1, max_size=3, unique=True
    ),
    start_offset=st.integers(0, 2**63 - 2),
    segment_id=uuids,
    keeps=st.booleans(),
)
def test_names_are_read_back(
    template: str, partitions: list[TopicIdPartition], start_offset: int, segment_id: Uuid, keeps: bool
) -> None:
    layout = opened({"template": template, "md5.bits": "5"})
    written = {
        layout._name(segment, "log"): segment
        for one in partitions
        for segment in [RemoteLogSegmentMetadata(RemoteLogSegmentId(one, segment_id), start_offset, -1, 3)]
    }
    objects = dict.fromkeys(written, b"log")
    if keeps:
        objects |= {layout._name(segment, "transaction"): b"t" for segment in written.values()}
    store = Store({**objects, "README": b"", "a/b/c": b""})
    found = list(layout.list_segments(store, None))
    assert len(found) == len(written)
    for segment in found:
        one = written[layout._name(segment, "log")]
        place, known = segment.topic_id_partition, one.topic_id_partition
        assert (place.topic, place.partition, segment.start_offset) == (known.topic, known.partition, start_offset)
        assert place.topic_id == (known.topic_id if "{topic_" in template else Uuid(bytes(16)))
        assert (segment.segment_id.id == segment_id) or "{segment_" not in template
        assert segment.txn_index_empty is not keeps
        assert layout.read_segment(store, segment, 0, -1) == b"log"
    wanted = {one.topic for one in partitions}
    for topic in wanted:
        listed = layout.list_segments(store, topic)
        assert {segment.topic_id_partition.topic for segment in listed} == {topic}


@pytest.mark.parametrize(
    ("options", "is_narrow"),
    [
        (PINTEREST, True),
        (MINIO, True),
        (LOCAL, True),
        ({"template": "{topic}/{partition}/{start_offset}-{segment_id}.{file}"}, True),
        ({"template": "{topic}-{partition}-{start_offset}.{file}"}, False),
        ({"template": "{topic}/{partition}-{topic_id}-{start_offset}.{file}"}, False),
    ],
)
def test_one_partition_is_listed_alone(options: Mapping[str, str], is_narrow: bool) -> None:
    """Where folders tell partitions; and no folder is listed whose name is known."""
    layout = opened(options)
    places = [dataclasses.replace(PARTITION, partition=number) for number in range(20)]
    made = [dataclasses.replace(SEGMENT, segment_id=RemoteLogSegmentId(one, PARTITION.topic_id)) for one in places]
    store = Store({layout._name(one, "log"): b"log" for one in made})
    named = layout.list_partitions(store, PARTITION.topic)
    if named is not None:
        assert sorted(one.partition for one in named) == list(range(20))
        assert list(layout.list_partitions(store, "another") or ()) == []
    assert (named is not None) == is_narrow
    (first,) = (one for one in layout.list_segments(store, None) if one.topic_id_partition.partition == 3)
    store.listed.clear()
    store.opened_folders.clear()
    assert list(layout.list_partition(store, first.topic_id_partition)) == [first]
    if is_narrow:
        assert store.opened_folders == []
        assert store.listed == [layout._name(made[3], "log").rpartition("/")[0]]


def test_the_level_that_fits() -> None:
    layout = opened(PINTEREST)
    name = layout._name(SEGMENT, "log")
    for above, levels in (("", 0), ("x/", None)):
        assert layout.levels_below(Store({f"{above}{name}": b""})) == levels
    assert layout.levels_below(Store({f"x/{name}": b""}), "x") == 0
    parts = name.split("/")
    assert [layout.levels_below(Store({name: b""}), "/".join(parts[:depth])) for depth in range(5)] == [0, 1, 2, 3, 4]
    assert PlainLayout().levels_below(Store({name: b""})) is None, "without a template"


@pytest.mark.parametrize(
    "name",
    [
        f"orders-0/{7:020d}.log",
        f"orders-0-{PARTITION.topic_id}/{20 * '9'}-{PARTITION.topic_id}.log",
        f"orders-2147483648-{PARTITION.topic_id}/{7:020d}-{PARTITION.topic_id}.log",
        f"orders-0-{22 * 'z'}/{7:020d}-{PARTITION.topic_id}.log",
        f"orders-0-{PARTITION.topic_id}/{7:020d}-{22 * 'z'}.log",
        f"orders-0-{PARTITION.topic_id}/{7:020d}-{PARTITION.topic_id}.index",
        f"orders-00-{PARTITION.topic_id}/{7:020d}-{PARTITION.topic_id}.log",
        f"orders-0-{PARTITION.topic_id}/old/{7:020d}-{PARTITION.topic_id}.log",
    ],
)
def test_foreign_names_are_passed_over(name: str) -> None:
    assert list(opened(LOCAL).list_segments(Store({name: b"x"}), None)) == []


UUIDS = {"template": "{topic_uuid}/{topic}/{partition}/{segment_uuid}.{file}"}


@pytest.mark.parametrize("options", [LOCAL, UUIDS], ids=["local", "uuids"])
def test_the_segment_of_an_object(options: Mapping[str, str]) -> None:
    """An audit takes an object of no segment for a left-over, which a user may delete."""
    layout = opened(options)
    log, *others = layout.expected_objects(Store({}), SEGMENT)
    assert (log.kinds, log.size_bytes) == (("log",), 3)
    assert {kind for each in others for kind in each.kinds} == {each.value for each in IndexType}
    assert {layout.segment_of(each.name) for each in (log, *others)} == {SEGMENT.segment_id}
    wrong = [f"{log.name}x", f"{log.name}/x", f"old/{log.name}", log.name.replace("my-topic", "my topic")]
    wrong += [log.name.replace(str(each), 22 * "z") for each in (PARTITION.topic_id, SEGMENT.segment_id.id)]
    assert {layout.segment_of(name) for name in wrong if name != log.name} == {None}


@pytest.mark.parametrize("options", [PINTEREST, CRABKA, MINIO], ids=["pinterest", "crabka", "minio"])
def test_an_object_that_does_not_tell_its_topic_and_segment(options: Mapping[str, str]) -> None:
    layout = opened(options)
    assert {layout.segment_of(each.name) for each in layout.expected_objects(Store({}), SEGMENT)} == {None}


def test_a_name_that_the_template_would_write_in_another_way() -> None:
    """The bits of a name are those of its hash, and a name in braces that stands twice has one value."""
    options = {"template": "{md5_bits}/{topic}-{partition}/{topic}/{start_offset}.{file}", "md5.bits": "4"}
    assert list(opened(options).list_segments(Store({f"0101/a-0/a/{7:020d}.log": b""}), None)) == []
    (found,) = opened(options).list_segments(
        Store(
            {
                f"{opened(options)._md5_bits(PARTITION)}/my-topic-0/my-topic/{7:020d}.log": b"",
                f"1111/my-topic-0/b/{7:020d}.log": b"",
            }
        ),
        None,
    )
    assert found.topic_id_partition.topic == "my-topic"


def test_names_that_do_not_tell_enough_cannot_be_listed() -> None:
    with pytest.raises(UnsupportedFormat, match="do not tell start_offset, topic, so"):
        list(opened(CRABKA).list_segments(Store({}), None))


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{topic}-{partition}/{start_offset}", "several objects the same name"),
        ("{topic}/{start_offset}.{file}", "several objects"),
        ("{file}", "several objects"),
        ("", "several objects"),
        ("{topic", "a brace"),
        ("topic}", "a brace"),
        ("{{topic}}", "a brace"),
        ("{Topic}/{file}", r"\{Topic\} is none of \{topic\}"),
        ("{}/{file}", "is none of"),
        ("{start_offset:020d}.{file}", "is none of"),
        ("{topic}{partition}/{start_offset}.{file}", r"text is needed between \{topic\} and \{partition\}"),
        ("/{segment_id}/{file}", "a folder without a name"),
        ("a/../{segment_id}/{file}", "a folder without a name"),
        ("x" * 2000, "more than 1024"),
    ],
)
def test_templates_that_are_none(template: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        opened({"template": template})
    assert caught.value.key == f"{LAYOUT}template"


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"file.log": ""}, "file.*"),
        ({"file.offset": "log"}, "file.*"),
        ({"file.offset": "a/b"}, "file.*"),
        ({"template": "{md5_bits}/{segment_id}.{file}"}, "md5.bits"),
        ({"md5.bits": "129"}, "md5.bits"),
        ({"md5.bits": "x"}, "md5.bits"),
        ({"file.logs": "x"}, "file.logs"),
    ],
)
def test_options_that_are_wrong(more: Mapping[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        opened({**LOCAL, **more})
    assert caught.value.key == LAYOUT + key
    with pytest.raises(ConfigError, match=r"needs remote\.storage\.layout\.template"):
        opened({})


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_tier_of_a_real_broker_by_its_template(isolation: str) -> None:
    """As the layout made for it reads it."""
    remote = Path(__file__).parents[2] / "golden" / "data" / "local-4.1" / "remote"
    by_layout = {"remote.storage.url": str(remote)}
    by_template = {
        "remote.storage.url": str(remote / "kafka-tiered-storage"),
        "remote.storage.layout": "plain",
        f"{LAYOUT}template": LOCAL["template"],
    }
    for topic in ("tx", "codecs"):
        wanted, found = (
            read_arrow(topic, isolation=isolation, config=config).read_all() for config in (by_layout, by_template)
        )
        assert found.equals(wanted)
        assert found.num_rows > 50
