"""The names that layouts give for signing: those of the segment, and no others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from uuid import UUID

import pytest

from fetchers.layouts.aiven import AivenLayout
from fetchers.layouts.kafka_local import KafkaLocalLayout
from fetchers.layouts.naming import checked_names, read_bounded_index
from fetchers.layouts.plain import PlainLayout
from fetchers.layouts.url import UrlLayout
from remote_fetch.errors import ConfigError, CorruptSegment, SegmentNotFound, StorageDenied, UnsupportedFormat
from remote_fetch.fetch.spi import ObjectNamer
from remote_fetch.formats.object_names import belongs_to
from remote_fetch.formats.tagged_fields import encode_compact_string
from remote_fetch.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.testing.metadata_records import encode_tagged_fields
from tests.cases import each_of
from tests.fetchers.layouts.aiven_writer import Store, Written

TOPIC_ID, SEGMENT_ID = Uuid(bytes(range(16))), Uuid(b"\x02" * 16)
TOPIC_UUID, SEGMENT_UUID = UUID(bytes=TOPIC_ID.raw), UUID(bytes=SEGMENT_ID.raw)
SEGMENT = RemoteLogSegmentMetadata(
    RemoteLogSegmentId(TopicIdPartition(TOPIC_ID, "orders", 3), SEGMENT_ID), 42, 99, 1000
)
STEM = f"{42:020d}-{SEGMENT_ID}"
KINDS = {"log", *(kind.value for kind in IndexType)}
LAYOUT = "remote.storage.layout."


def custom(prefix: str | None = None, key: str | None = None) -> RemoteLogSegmentMetadata:
    """The segment with custom metadata of Aiven's plug-in."""
    fields = {tag: encode_compact_string(text) for tag, text in ((1, prefix), (2, key)) if text is not None}
    return dataclasses.replace(SEGMENT, custom_metadata=encode_tagged_fields(fields))


def test_every_layout_of_this_package_names_objects() -> None:
    for layout in (AivenLayout(), KafkaLocalLayout(), PlainLayout(), UrlLayout()):
        assert isinstance(layout, ObjectNamer)


# --------------------------------------------------------------------------------------------------- kafka_local


@each_of(
    ("url", "objects", "tree"),
    [
        ("s3://bucket/tier", ["kafka-tiered-storage/x/y"], "kafka-tiered-storage/"),
        ("s3://bucket/tier", [f"orders-3-{TOPIC_ID}/y"], ""),
        ("s3://bucket/kafka-tiered-storage", [f"orders-3-{TOPIC_ID}/y"], ""),
        ("s3://bucket/kafka-tiered-storage", ["kafka-tiered-storage/x/y"], "kafka-tiered-storage/"),
    ],
)
def test_names_of_kafka_local(url: str, objects: list[str], tree: str) -> None:
    layout = KafkaLocalLayout()
    layout.configure({"remote.storage.url": url})
    store = Store(dict.fromkeys(objects, b""))
    for _ in range(2):
        names = layout.object_names(SEGMENT, store)
        assert names.keys() == KINDS
        assert names["log"] == f"{tree}orders-3-{TOPIC_ID}/{STEM}.log"
        assert names["transaction"] == f"{tree}orders-3-{TOPIC_ID}/{STEM}.txnindex"
        assert all(belongs_to(name, SEGMENT) for name in names.values())
    assert (store.gets, store.opened_folders) == ([], [""])


def test_a_bucket_without_segments_says_nothing_about_where_names_begin() -> None:
    """A service may start before the first upload. Folders of others may be there."""
    layout = KafkaLocalLayout()
    layout.configure({"remote.storage.url": "s3://bucket/tier"})
    store = Store({"backups/x": b""})
    assert layout.object_names(SEGMENT, store)["log"].startswith("kafka-tiered-storage/orders-3-")
    store.objects = {"backups/x": b"", f"orders-3-{TOPIC_ID}/{STEM}.log": b""}
    assert layout.object_names(SEGMENT, store)["log"] == f"orders-3-{TOPIC_ID}/{STEM}.log"
    assert len(store.opened_folders) == 2


def test_kafka_local_assumes_the_usual_place_where_it_cannot_look() -> None:
    class Refusing(Store):
        def folders(self, prefix: str = "") -> Iterator[str]:
            self.opened_folders.append(prefix)
            raise StorageDenied("no listing")

    layout, store = KafkaLocalLayout(), Refusing({})
    layout.configure({"remote.storage.url": "s3://bucket/tier"})
    names = [layout.object_names(SEGMENT), layout.object_names(SEGMENT, store), layout.object_names(SEGMENT, store)]
    assert {one["log"] for one in names} == {f"kafka-tiered-storage/orders-3-{TOPIC_ID}/{STEM}.log"}
    assert len(store.opened_folders) == 1


# --------------------------------------------------------------------------------------------------------- aiven


def aiven(prefix: str = "") -> AivenLayout:
    layout = AivenLayout()
    layout.configure({f"{LAYOUT}key.prefix": prefix})
    return layout


def test_names_of_aiven_are_those_that_it_reads() -> None:
    written = Written(b"x" * 100, prefix="tier/")
    layout, store = aiven("tier/"), Store(written.objects())
    names = layout.object_names(written.metadata)
    assert names.keys() == KINDS | {"manifest"}
    assert set(names.values()) == written.objects().keys()
    layout.read_segment(store, written.metadata, 0, -1)
    for kind in IndexType:
        layout.read_index(store, written.metadata, kind)
    assert {name for name, *_ in store.gets} <= set(names.values())


def test_aiven_has_two_places_for_a_manifest_whose_prefix_changed() -> None:
    main = f"orders-{TOPIC_ID}/3/{STEM}"
    assert aiven("new/").object_names(custom("old/"))["manifest"] == f"new/{main}.rsm-manifest"
    assert aiven("new/").object_names(custom("old/"))["written-manifest"] == f"old/{main}.rsm-manifest"
    assert aiven("new/").object_names(custom("old/"))["log"] == f"old/{main}.log"
    moved = aiven().object_names(custom("old/", f"moved/{main}"))
    assert moved["offset"] == f"old/moved/{main}.indexes"


@each_of(
    "key",
    [
        f"orders-{TOPIC_ID}/3/{42:020d}-{Uuid(bytes(15) + b'1')}",
        f"secrets-{Uuid(bytes(15) + b'1')}/3/{STEM}",
        "etc/passwd",
        f"orders-{TOPIC_ID}/%2e%2e/{STEM}",
        f"secrets?orders-{TOPIC_ID}/3/{STEM}",
    ],
)
def test_custom_metadata_of_aiven_names_no_object_of_another_segment(key: str) -> None:
    with pytest.raises(UnsupportedFormat, match="does not show that the object belongs"):
        aiven().object_names(custom(None, key))
    with pytest.raises(CorruptSegment, match="outside the store"):
        aiven().object_names(custom("../x/", f"orders-{TOPIC_ID}/3/{STEM}"))


# --------------------------------------------------------------------------------------------------------- plain


def plain(template: str, **options: str) -> PlainLayout:
    layout = PlainLayout()
    layout.configure({f"{LAYOUT}template": template, **{LAYOUT + name: value for name, value in options.items()}})
    return layout


@each_of(
    ("template", "log"),
    [
        ("t/{topic_uuid}_{partition}/{segment_uuid}/{file}", f"t/{TOPIC_UUID}_3/{SEGMENT_UUID}/log"),
        ("{topic}-{partition}/{start_offset}.{file}.{segment_id}", f"orders-3/{42:020d}.log.{SEGMENT_ID}"),
        ("topic={topic}/partition={partition}/{segment_id}.{file}", f"topic=orders/partition=3/{SEGMENT_ID}.log"),
        ("{topic_id}/{segment_id}.{file}", f"{TOPIC_ID}/{SEGMENT_ID}.log"),
    ],
)  # fmt: skip
def test_names_of_plain(template: str, log: str) -> None:
    layout = plain(template, **{"file.transaction": ""})
    names = layout.object_names(SEGMENT)
    assert names["log"] == log
    assert names.keys() == KINDS - {"transaction"}


@each_of(
    "template",
    [
        "{topic}-{partition}/{start_offset}.{file}",
        "{topic_id}/{partition}/{start_offset}.{file}",
        "{segment_id}.{file}",
        "{topic}/{segment_id}.{file}",
        "{partition}/{segment_id}.{file}",
        "100%/{topic}-{partition}/{segment_id}.{file}",
        "all-{topic}-{partition}/{segment_id}.{file}",
    ],
)
def test_templates_whose_names_do_not_tell_the_segment(template: str) -> None:
    with pytest.raises(ConfigError, match="no URL of it is signed") as caught:
        plain(template).object_names(SEGMENT)
    assert template in str(caught.value)
    assert caught.value.key == f"{LAYOUT}template"


# ----------------------------------------------------------------------------------------------------------- url

ROOT = "https://bucket.example/tier"
OWN = f"orders-3-{TOPIC_ID}/{STEM}"


def located(**locations: str | None) -> RemoteLogSegmentMetadata:
    return dataclasses.replace(SEGMENT, custom_metadata=json.dumps(locations).encode())


def by_url() -> UrlLayout:
    layout = UrlLayout()
    layout.configure({"remote.storage.url": ROOT})
    return layout


def test_names_of_url_are_its_locations_below_the_root() -> None:
    segment = located(log=f"{OWN}.log", offset=f"{ROOT}/{OWN}.index", transaction=None)
    assert by_url().object_names(segment) == {"log": f"{OWN}.log", "offset": f"{OWN}.index"}


@each_of(
    ("location", "said"),
    [
        ("secrets/passwords.log", "does not show that the object belongs"),
        (f"https://elsewhere.example/{OWN}.log", "does not lie below remote.storage.url"),
        (f"/{OWN}.log", "does not lie below remote.storage.url"),
        (f"x/../{OWN}.log", "does not lie below remote.storage.url"),
        (f"{ROOT}/{OWN}.log?X-Amz-Signature=s3cret", "signed already"),
        (f"{OWN}%2elog", "does not show that the object belongs"),
    ],
)
def test_locations_of_url_that_are_not_signed(location: str, said: str) -> None:
    with pytest.raises(UnsupportedFormat, match=said) as caught:
        by_url().object_names(located(log=f"{OWN}.log", offset=location))
    assert "s3cret" not in str(caught.value)


def test_the_error_names_object_and_kind() -> None:
    with pytest.raises(UnsupportedFormat, match=r"'offset' object .* \[object elsewhere\]"):
        checked_names({"log": f"{OWN}.log", "offset": "elsewhere"}, SEGMENT)


# ------------------------------------------------------------------------------------------------------- indexes


@each_of(
    ("answers", "outcome"),
    [
        ([b"index"], b"index"),
        ([True], None),
        ([False, b"index"], b"index"),  # one request reads no two objects
        ([False, False], SegmentNotFound),
    ],
)
def test_only_an_absent_object_is_an_absent_index(answers: list[bytes | bool], outcome: object) -> None:
    """An answer is the index, or whether the object that is not found is absent."""
    left = iter(answers)

    def get(start: int, end: int) -> bytes:
        answer = next(left)
        if isinstance(answer, bool):
            raise SegmentNotFound("not there", is_absent=answer)
        return answer

    try:
        found: object = read_bounded_index(get, "x.txnindex")
    except SegmentNotFound as error:
        found = type(error)
    assert found == outcome
    assert list(left) == []
