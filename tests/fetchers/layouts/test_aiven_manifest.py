"""Manifests of Aiven's plug-in: the chunk index against plain arithmetic, and what a manifest may not say."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fetchers.layouts import aiven_manifest
from fetchers.layouts.aiven_manifest import ByteRange, decode_sizes, parse_manifest
from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.model import IndexType, LeaderEpoch
from tests.fetchers.layouts.aiven_writer import Written, encode_sizes
from tests.searches import examples

PLAIN = Written(bytes(250)).manifest()
PACKED = Written(bytes(250), is_compressed=True).manifest()


def parsed(document: Any) -> aiven_manifest.Manifest:
    return parse_manifest(json.dumps(document).encode())


sizes_lists = st.lists(st.integers(0, 2**31 - 1), max_size=40) | st.lists(st.integers(70_000, 70_300), max_size=40)


@given(sizes=sizes_lists)
def test_sizes_go_through_the_codec(sizes: list[int]) -> None:
    assert list(decode_sizes(encode_sizes(sizes), len(sizes))) == sizes


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_differences_of_every_width(width: int) -> None:
    sizes = [5, 5 + (1 << 8 * width - 1), 6, 3]
    data = encode_sizes(sizes)
    assert data[8] == width
    assert list(decode_sizes(data, 4)) == sizes


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (b"\0\0\0\0", 1),
        (b"\0\0\0\1\0\0\0\5", 2),
        (b"\0\0\0\1", 1),
        (b"\0\0\0\1\0\0\0\5\0", 1),
        (encode_sizes([1, 2, 3])[:-1], 3),
        (encode_sizes([1, 2, 3]) + b"\0", 3),
        (b"\0\0\0\2\0\0\0\5\0\0\0\0\5", 2),  # width 0
        (b"\0\0\0\2\0\0\0\5\x05\0\0\0\0\0\0\0\0\5", 2),  # width 5
        (b"\xff\xff\xff\xff", -1),
    ],
)
def test_what_is_no_list_of_sizes(data: bytes, count: int) -> None:
    with pytest.raises(CorruptSegment, match="no list of"):
        decode_sizes(data, count)


@examples(60)
@given(size=st.integers(1, 2_000), chunk=st.integers(1, 300), packs=st.booleans())
def test_chunks_follow_each_other(size: int, chunk: int, packs: bool) -> None:
    written = Written(bytes(range(256)) * 8, chunk, packs)
    written.log = written.log[:size]
    found = parsed(written.manifest()).chunks
    stored = [len(piece) for piece in written.chunks()]
    assert found.stored_bytes == sum(stored)
    assert [found.stored_range(at) for at in range(len(stored))] == [
        ByteRange(sum(stored[:at]), sum(stored[: at + 1])) for at in range(len(stored))
    ]
    assert [found.original_bytes(at) for at in range(len(stored))] == [
        min(chunk, size - at * chunk) for at in range(len(stored))
    ]


def test_a_segment_of_many_chunks_takes_no_memory_for_them() -> None:
    document = copy.deepcopy(PLAIN)
    document["chunkIndex"] |= {"originalChunkSize": 1, "originalFileSize": 2**31 - 1}
    document["chunkIndex"] |= {"transformedChunkSize": 1, "finalTransformedChunkSize": 1}
    assert parsed(document).chunks.stored_range(2**31 - 2) == ByteRange(2**31 - 2, 2**31 - 1)


def test_a_segment_beyond_4_gib() -> None:
    """The size is that of the file, although the field of Kafka's metadata is clamped (KIP-1333)."""
    document = copy.deepcopy(PLAIN)
    chunk, size = 4 << 20, (5 << 30) + 100
    document["chunkIndex"] |= {"originalChunkSize": chunk, "originalFileSize": size}
    document["chunkIndex"] |= {"transformedChunkSize": chunk, "finalTransformedChunkSize": 100}
    found = parsed(document)
    assert found.chunks.stored_range(1280) == ByteRange(5 << 30, size)
    assert found.described is not None
    assert found.described.segment_size_in_bytes == size


def test_an_empty_segment() -> None:
    for packs in (False, True):
        found = parsed(Written(b"", is_compressed=packs).manifest()).chunks
        assert (len(found.starts), found.stored_bytes) == (0, 0)


def test_what_is_described() -> None:
    written = Written(bytes(250))
    described = parsed(written.manifest()).described
    assert described is not None
    assert (described.segment_id, described.start_offset) == (written.metadata.segment_id, 7)
    assert (described.end_offset, described.segment_size_in_bytes) == (16, 250)
    assert described.segment_leader_epochs == (LeaderEpoch(0, 7), LeaderEpoch(2, 8), LeaderEpoch(10, 10))
    assert not described.txn_index_empty
    written.indexes = {**written.indexes, "transaction": None}
    found = parsed(written.manifest())
    assert found.described is not None
    assert found.described.txn_index_empty
    assert found.indexes[IndexType.TRANSACTION] is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startOffset", -1),
        ("endOffset", 6),
        ("endOffset", True),
        ("brokerId", "1"),
        ("segmentLeaderEpochs", {"-1": 0}),
        ("segmentLeaderEpochs", {"\u0661": 0}),
        ("segmentLeaderEpochs", [1]),
        ("remoteLogSegmentId", {"id": "short"}),
        ("remoteLogSegmentId", None),
    ],
)
def test_a_description_that_makes_no_sense_is_none(name: str, value: object) -> None:
    document = copy.deepcopy(PLAIN)
    document["remoteLogSegmentMetadata"][name] = value
    assert parsed(document).described is None
    del document["remoteLogSegmentMetadata"]
    assert parsed(document).described is None


def put(*path_and_value: Any) -> Callable[[dict[str, Any]], None]:
    *path, last, value = path_and_value

    def change(document: dict[str, Any]) -> None:
        for name in path:
            document = document[name]
        document[last] = value

    return change


def packed_sizes(data: bytes, *, content_size: bool = True) -> str:
    return base64.b64encode(zstandard.ZstdCompressor(write_content_size=content_size).compress(data)).decode()


def test_an_index_of_an_unknown_name() -> None:
    """One damaged letter of `transaction` would hide the aborted transactions, and their records would be given."""
    document = copy.deepcopy(PLAIN)
    document["segmentIndexes"]["transactioo"] = document["segmentIndexes"].pop("transaction")
    with pytest.raises(UnsupportedFormat, match="an index 'transactioo'"):
        parsed(document)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (put("version", "2"), UnsupportedFormat, "version '2'"),
        (put("version", 1), UnsupportedFormat, "version 1"),
        (put("compression", "yes"), CorruptSegment, "whether the segment is compressed"),
        (put("compression", True), CorruptSegment, "fixed chunk index"),
        (put("chunkIndex", None), CorruptSegment, "no chunkIndex"),
        (put("chunkIndex", "type", "other"), UnsupportedFormat, "type 'other'"),
        (put("chunkIndex", "originalChunkSize", 0), CorruptSegment, "originalChunkSize"),
        (put("chunkIndex", "originalChunkSize", 1.5), CorruptSegment, "originalChunkSize"),
        (put("chunkIndex", "originalFileSize", 2**48 + 1), CorruptSegment, "originalFileSize"),
        (put("chunkIndex", "originalFileSize", 251), CorruptSegment, "make no segment of 251"),
        (put("chunkIndex", "transformedChunkSize", 101), CorruptSegment, "make no segment"),
        (put("segmentIndexes", "offset", None), CorruptSegment, "no offset"),
        (put("segmentIndexes", "offset", "size", 2**30), CorruptSegment, "size"),
        (put("segmentIndexes", "offset", "position", 1), CorruptSegment, "byte 0, and the next one begins at 1"),
        (put("segmentIndexes", "timestamp", "size", 1), CorruptSegment, "the next one begins at"),
        (put("segmentIndexes", "transaction", "position", 0), CorruptSegment, "the next one begins at"),
        (put("segmentIndexes", "transaction", []), CorruptSegment, "no transaction"),
        (put("encryption", {}), CorruptSegment, "dataKey"),
        (put("encryption", {"dataKey": "nocolon", "aad": ""}), CorruptSegment, "dataKey"),
        (put("encryption", {"dataKey": ":AAAA", "aad": ""}), CorruptSegment, "dataKey"),
        (put("encryption", {"dataKey": "a:b:c", "aad": ""}), CorruptSegment, "not base64"),
        (put("encryption", {"dataKey": "a:AAAA"}), CorruptSegment, "no aad"),
    ],
)
def test_manifests_that_are_none(change: Any, error: type[Exception], said: str) -> None:
    document = copy.deepcopy(PLAIN)
    change(document)
    with pytest.raises(error, match=said):
        parsed(document)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"[" * 100_000, b"\xff", b'{"version": ' + b"9" * 5000])
def test_bytes_that_are_no_manifest(data: bytes) -> None:
    with pytest.raises(CorruptSegment):
        parse_manifest(data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no transformedChunks"),
        ("%%%", "not base64"),
        ("AAAA", "cannot be decompressed"),
        (packed_sizes(bytes(100_000)), "take 25 bytes at most, not 100000"),
        (packed_sizes(encode_sizes([9, 9, 9]), content_size=False), "take 25 bytes at most"),
        (packed_sizes(encode_sizes([9, 9])), "no list of 3"),
        (packed_sizes(encode_sizes([9, 0, 9])), "a chunk of 0"),
        (packed_sizes(encode_sizes([9, 5000, 9])), "a chunk of 9 or of 5000"),
        (packed_sizes(b""), "no list of 3"),
    ],
)
def test_sizes_that_are_none(text: object, said: str) -> None:
    document = copy.deepcopy(PACKED)
    document["chunkIndex"]["transformedChunks"] = text
    with pytest.raises(CorruptSegment, match=said):
        parsed(document)


def test_too_many_chunks() -> None:
    document = copy.deepcopy(PACKED)
    document["chunkIndex"] |= {"originalChunkSize": 1, "originalFileSize": 2**31 - 1}
    with pytest.raises(UnsupportedFormat, match="2147483647 chunks"):
        parsed(document)


def test_no_key_material_is_shown() -> None:
    document = copy.deepcopy(PLAIN)
    document["chunkIndex"] |= {"transformedChunkSize": 128, "finalTransformedChunkSize": 78}
    document["encryption"] = {"dataKey": "k1:c2VjcmV0", "aad": "YWFk"}
    found = parsed(document)
    assert found.encryption is not None
    assert (found.encryption.wrapped_key, found.encryption.aad) == (b"secret", b"aad")
    assert "secret" not in repr(found)
