"""The manifest of Aiven's tiered-storage plug-in: what was made of a segment, and where its pieces lie.

    {"version": "1", "chunkIndex": {...}, "segmentIndexes": {...}, "compression": bool,
     "encryption": {"dataKey": ..., "aad": ...}, "remoteLogSegmentMetadata": {...}}

Rules of the file:

- Pure.
- Every number is checked against its neighbours and a limit before memory is allocated for it.
- Only version 1 is read, because no other version exists.
- The plug-in writes `remoteLogSegmentMetadata` and never reads it. Here it serves a listing. A manifest without it is
  valid.

Format: core/.../manifest of the plug-in, 1.0 to 1.1.
"""

from __future__ import annotations

import base64
import binascii
import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple

import zstandard

from fetchers.layouts.naming import MAX_INDEX_BYTES
from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.model import (
    MAX_OFFSET,
    Buffer,
    IndexType,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)

__all__ = [
    "CIPHER_OVERHEAD_BYTES",
    "ByteRange",
    "ChunkIndex",
    "Encryption",
    "Manifest",
    "decode_sizes",
    "parse_manifest",
]

CIPHER_OVERHEAD_BYTES = 12 + 16
"""AES-GCM adds these bytes to a chunk or an index: the nonce before it and the tag behind it."""

MAX_CHUNKS = 1 << 20
"""Most chunks of one segment that are believed: 2 GiB in chunks of 2 KiB. The plug-in's default is 4 MiB."""

_MAX_SEGMENT_BYTES = 1 << 48
"""Far more than the 2 GiB of today's brokers (KIP-1333), and few enough for exact arithmetic with any chunk size."""
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_INDEXES = MappingProxyType(
    {
        "offset": IndexType.OFFSET,
        "timestamp": IndexType.TIMESTAMP,
        "producerSnapshot": IndexType.PRODUCER_SNAPSHOT,
        "leaderEpoch": IndexType.LEADER_EPOCH,
        "transaction": IndexType.TRANSACTION,
    }
)


class ByteRange(NamedTuple):
    """Bytes [start, end) of an object."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Where the chunks of a segment begin in its object: chunk N holds original bytes [N * C, (N + 1) * C).

    `starts` has the first stored byte of every chunk, `stored_bytes` is the size of the object.
    """

    chunk_bytes: int
    segment_bytes: int
    starts: Sequence[int] = field(repr=False)
    stored_bytes: int

    def stored_range(self, chunk: int) -> ByteRange:
        """The stored bytes of one chunk."""
        last = chunk + 1 == len(self.starts)
        return ByteRange(self.starts[chunk], self.stored_bytes if last else self.starts[chunk + 1])

    def original_bytes(self, chunk: int) -> int:
        """How many bytes of the segment one chunk holds."""
        return min(self.chunk_bytes, self.segment_bytes - chunk * self.chunk_bytes)


@dataclass(frozen=True, slots=True)
class Encryption:
    """The data key of a segment under the RSA key `key_pair_id`, and what is authenticated beside each ciphertext."""

    key_pair_id: str
    wrapped_key: bytes = field(repr=False)
    aad: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One segment's manifest. `indexes` has the bytes of each in the `.indexes` object, None for one that is not there.

    `described` is what the plug-in was told of the segment, None if that is missing or makes no sense.
    """

    chunks: ChunkIndex
    indexes: Mapping[IndexType, ByteRange | None]
    is_compressed: bool
    encryption: Encryption | None
    described: RemoteLogSegmentMetadata | None

    @property
    def indexes_bytes(self) -> int:
        """The size of the `.indexes` object."""
        return max(place.end for place in self.indexes.values() if place is not None)

    @property
    def is_plain(self) -> bool:
        """Whether the object is the segment, byte for byte."""
        return not self.is_compressed and self.encryption is None


def parse_manifest(data: Buffer) -> Manifest:
    """The manifest in the bytes of a `.rsm-manifest` object. Raises CorruptSegment, UnsupportedFormat."""
    try:
        document = json.loads(bytes(data))
    except (ValueError, RecursionError):
        raise CorruptSegment("the manifest is no JSON") from None
    if not isinstance(document, dict):
        raise CorruptSegment("the manifest is no JSON object")
    version = document.get("version")
    if version != "1":
        raise UnsupportedFormat(f"a manifest of version {version!r:.20}; this release reads version '1'")
    is_compressed = document.get("compression")
    if not isinstance(is_compressed, bool):
        raise CorruptSegment("the manifest does not say whether the segment is compressed")
    encryption = _encryption(document.get("encryption"))
    chunks = _chunk_index(_object(document, "chunkIndex"), is_compressed, encryption is not None)
    indexes = _segment_indexes(_object(document, "segmentIndexes"))
    described = _described(document.get("remoteLogSegmentMetadata"), chunks, indexes)
    return Manifest(chunks, indexes, is_compressed, encryption, described)


def _object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    if not isinstance(value, dict):
        raise CorruptSegment(f"the manifest has no {name}")
    return value


def _number(parent: Mapping[str, Any], name: str, *, least: int = 0, most: int = _MAX_INT32) -> int:
    value = parent.get(name)
    if type(value) is not int or not least <= value <= most:
        raise CorruptSegment(f"the manifest's {name} is no number between {least} and {most}")
    return value


def _chunk_index(found: Mapping[str, Any], is_compressed: bool, is_encrypted: bool) -> ChunkIndex:
    chunk_bytes = _number(found, "originalChunkSize", least=1)
    segment_bytes = _number(found, "originalFileSize", most=_MAX_SEGMENT_BYTES)
    count = -(-segment_bytes // chunk_bytes)
    kind, wanted = found.get("type"), "variable" if is_compressed else "fixed"
    if kind not in ("fixed", "variable"):
        raise UnsupportedFormat(f"a chunk index of type {kind!r:.20}")
    if kind != wanted:
        raise CorruptSegment(f"a {kind} chunk index, where the segment is {'' if is_compressed else 'not '}compressed")
    if is_compressed:
        return _variable(found.get("transformedChunks"), chunk_bytes, segment_bytes, count)
    overhead_bytes = CIPHER_OVERHEAD_BYTES if is_encrypted else 0
    size_bytes, last_bytes = _number(found, "transformedChunkSize"), _number(found, "finalTransformedChunkSize")
    wanted_bytes = [chunk_bytes + overhead_bytes] * (count > 1)
    wanted_bytes += [segment_bytes - (count - 1) * chunk_bytes + overhead_bytes] * (count > 0)
    if wanted_bytes and [size_bytes, last_bytes][-len(wanted_bytes) :] != wanted_bytes:
        raise CorruptSegment(f"chunks of {size_bytes} and {last_bytes} bytes make no segment of {segment_bytes}")
    step_bytes = chunk_bytes + overhead_bytes
    stored_bytes = segment_bytes + count * overhead_bytes
    return ChunkIndex(chunk_bytes, segment_bytes, range(0, count * step_bytes, step_bytes), stored_bytes)


def _variable(text: object, chunk_bytes: int, segment_bytes: int, count: int) -> ChunkIndex:
    if count > MAX_CHUNKS:
        raise UnsupportedFormat(f"a segment in {count} chunks; this release reads up to {MAX_CHUNKS}")
    sizes = decode_sizes(_inflated_sizes(text, count), count)
    most_bytes = chunk_bytes + (chunk_bytes >> 8) + 1024  # what does not compress becomes a little longer
    if sizes and (min(sizes) < 1 or max(sizes) > most_bytes):
        raise CorruptSegment(f"a chunk of {min(sizes)} or of {max(sizes)} bytes, made of {chunk_bytes}")
    starts = array("q", accumulate(sizes, initial=0))
    stored_bytes = starts.pop()
    return ChunkIndex(chunk_bytes, segment_bytes, starts, stored_bytes)


def _inflated_sizes(text: object, count: int) -> bytes:
    """The list of sizes out of base64 and zstd. It cannot be longer than four bytes a chunk and three fields."""
    raw = _base64(text, "transformedChunks")
    most_bytes = 13 + 4 * count
    try:
        size_bytes = zstandard.get_frame_parameters(raw).content_size
        if size_bytes > most_bytes:  # an unknown size is the largest number
            raise CorruptSegment(f"the sizes of {count} chunks take {most_bytes} bytes at most, not {size_bytes}")
        return zstandard.ZstdDecompressor().decompress(raw, max_output_size=most_bytes) if size_bytes else b""
    except zstandard.ZstdError:
        raise CorruptSegment("the sizes of the chunks cannot be decompressed") from None


def decode_sizes(data: bytes, count: int) -> Sequence[int]:
    """The stored sizes of `count` chunks: all but the last as differences to the smallest. Raises CorruptSegment.

    count int32; for one chunk its size int32; for more base int32, width int8, count - 1 numbers, last size int32.
    """
    said = int.from_bytes(data[:4], "big", signed=True)
    width = data[8] if len(data) > 8 and count > 1 else 0
    wanted_bytes = {0: 4, 1: 8}.get(count, 13 + width * (count - 1))
    if said != count or len(data) != wanted_bytes or (count > 1 and not 1 <= width <= 4):
        raise CorruptSegment(f"{len(data)} bytes are no list of {count} chunk sizes")
    if count == 0:
        return array("q")
    last = int.from_bytes(data[-4:], "big", signed=True)
    if count == 1:
        return array("q", (last,))
    base = int.from_bytes(data[4:8], "big", signed=True)
    differences: Iterable[int] = data[9:-4]
    if width > 1:
        differences = (int.from_bytes(data[at : at + width], "big") for at in range(9, len(data) - 4, width))
    sizes = array("q", (base + difference for difference in differences))
    sizes.append(last)
    return sizes


def _segment_indexes(found: Mapping[str, Any]) -> Mapping[IndexType, ByteRange | None]:
    indexes: dict[IndexType, ByteRange | None] = {}
    unknown = next((name for name in found if name not in _INDEXES), None)
    if unknown is not None:  # it may be the damaged name of the transaction index, which would count as missing
        raise UnsupportedFormat(f"a manifest with an index {unknown!r:.40}, which this release does not know")
    for name, index_type in _INDEXES.items():
        if index_type is IndexType.TRANSACTION and found.get(name) is None:
            indexes[index_type] = None
            continue
        place = _object(found, name)
        start = _number(place, "position")
        indexes[index_type] = ByteRange(start, start + _number(place, "size", most=MAX_INDEX_BYTES))
    end = 0
    for at in sorted(at for at in indexes.values() if at is not None):
        if at.start != end:  # the plug-in writes one behind the other
            raise CorruptSegment(f"an index ends at byte {end}, and the next one begins at {at.start}")
        end = at.end
    return MappingProxyType(indexes)


def _encryption(found: object) -> Encryption | None:
    if found is None:
        return None
    key = found.get("dataKey") if isinstance(found, dict) else None
    key_pair_id, colon, wrapped = key.partition(":") if isinstance(key, str) else ("", "", "")
    if not colon or not key_pair_id or not isinstance(found, dict):
        raise CorruptSegment("the manifest's dataKey is no KEY-PAIR:KEY")
    return Encryption(key_pair_id, _base64(wrapped, "dataKey"), _base64(found.get("aad"), "aad"))


def _base64(text: object, name: str) -> bytes:
    if not isinstance(text, str):
        raise CorruptSegment(f"the manifest has no {name}")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise CorruptSegment(f"the manifest's {name} is not base64") from None


def _described(
    found: object, chunks: ChunkIndex, indexes: Mapping[IndexType, ByteRange | None]
) -> RemoteLogSegmentMetadata | None:
    if not isinstance(found, dict):
        return None
    try:
        segment_id = _object(found, "remoteLogSegmentId")
        place = _object(segment_id, "topicIdPartition")
        named = _object(place, "topicPartition")
        partition = TopicIdPartition.parsed(
            Uuid.parse(_text(place, "topicId")), _text(named, "topic"), _number(named, "partition")
        )
        start_offset = _number(found, "startOffset", most=_MAX_INT64)
        epochs = _object(found, "segmentLeaderEpochs")
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(partition, Uuid.parse(_text(segment_id, "id"))),
            start_offset=start_offset,
            end_offset=_number(found, "endOffset", least=start_offset, most=MAX_OFFSET),
            segment_size_in_bytes=chunks.segment_bytes,
            max_timestamp_ms=_number(found, "maxTimestampMs", least=-1, most=_MAX_INT64),
            event_timestamp_ms=_number(found, "eventTimestampMs", least=-1, most=_MAX_INT64),
            broker_id=_number(found, "brokerId"),
            segment_leader_epochs=tuple(
                sorted(LeaderEpoch(_epoch(name), _number(epochs, name, most=_MAX_INT64)) for name in epochs)
            ),
            txn_index_empty=indexes[IndexType.TRANSACTION] is None,
        )
    except (CorruptSegment, ValueError):
        return None


def _text(parent: Mapping[str, Any], name: str) -> str:
    value = parent.get(name)
    if not isinstance(value, str):
        raise CorruptSegment(f"the manifest's {name} is no text")
    return value


def _epoch(name: str) -> int:
    if not (name.isascii() and name.isdecimal() and len(name) <= 10):
        raise CorruptSegment("a leader epoch that is no number")
    return int(name)
