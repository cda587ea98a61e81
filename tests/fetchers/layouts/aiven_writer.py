"""Writes segments as Aiven's plug-in does, in plain Python: chunks, index, keys, manifest.

Rules of the file:

- The writer uses no code of `fetchers`.
- It wraps the key by OAEP as in RFC 8017, with `hashlib`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import zstandard
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from remote_fetch.errors import SegmentNotFound
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid

PARTITION = TopicIdPartition(Uuid(b"\x01" * 16), "orders", 3)
SEGMENT_ID = RemoteLogSegmentId(PARTITION, Uuid(b"\x02" * 16))
INDEXES = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")


class Store:
    """Objects by name, which counts what is asked of it."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.objects = dict(objects)
        self.gets: list[tuple[str, int, int]] = []
        self.listed: list[str] = []
        self.opened_folders: list[str] = []

    def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
        self.gets.append((name, start, end))
        if name not in self.objects:
            raise SegmentNotFound("no such object", object_name=name)
        return self.objects[name][start:] if end < 0 else self.objects[name][start:end]

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.listed.append(prefix)
        for name, data in sorted(self.objects.items()):
            if name.startswith(f"{prefix}/" if prefix else ""):
                yield ObjectInfo(name, len(data))

    def folders(self, prefix: str = "") -> Iterator[str]:
        self.opened_folders.append(prefix)
        at = f"{prefix}/" if prefix else ""
        below = [name.removeprefix(at) for name in self.objects if name.startswith(at)]
        yield from dict.fromkeys(name.partition("/")[0] for name in below if "/" in name)


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """The chunk sizes of a variable index."""
    encoded = len(sizes).to_bytes(4, "big")
    if len(sizes) <= 1:
        return encoded + b"".join(size.to_bytes(4, "big") for size in sizes)
    base = min(sizes[:-1])
    width = max(1, -(-max(size - base for size in sizes[:-1]).bit_length() // 8))
    differences = b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    return encoded + base.to_bytes(4, "big") + bytes([width]) + differences + sizes[-1].to_bytes(4, "big")


def wrap_key(key: RSAPrivateKey, data_key: bytes) -> bytes:
    """RSA-OAEP with SHA3-512 for the hash and for MGF1, and no label (RFC 8017, 7.1.1)."""

    def mgf1(seed: bytes, length: int) -> bytes:
        blocks = (hashlib.sha3_512(seed + at.to_bytes(4, "big")).digest() for at in range(-(-length // 64)))
        return b"".join(blocks)[:length]

    numbers = key.public_key().public_numbers()
    size = key.key_size // 8
    block = hashlib.sha3_512(b"").digest().ljust(size - len(data_key) - 66, b"\0") + b"\x01" + data_key
    block = block.ljust(size - 65, b"\0")
    seed = os.urandom(64)
    masked = bytes(a ^ b for a, b in zip(block, mgf1(seed, len(block)), strict=True))
    masked_seed = bytes(a ^ b for a, b in zip(seed, mgf1(masked, 64), strict=True))
    encoded = int.from_bytes(b"\0" + masked_seed + masked, "big")
    return pow(encoded, numbers.e, numbers.n).to_bytes(size, "big")


@dataclass
class Written:
    """A segment as the plug-in writes it. `key_pair` encrypts it; `custom_metadata` is what Kafka keeps."""

    log: bytes
    chunk_bytes: int = 100
    is_compressed: bool = False
    key_pair: tuple[str, RSAPrivateKey] | None = None
    indexes: Mapping[str, bytes | None] = field(
        default_factory=lambda: {name: f"the {name} index".encode() for name in INDEXES}
    )
    prefix: str = ""
    start_offset: int = 7
    custom_metadata: bytes | None = None
    data_key: bytes = b"\x07" * 32
    aad: bytes = b"\x08" * 32

    @property
    def metadata(self) -> RemoteLogSegmentMetadata:
        return RemoteLogSegmentMetadata(
            SEGMENT_ID, self.start_offset, self.start_offset + 9, len(self.log), custom_metadata=self.custom_metadata
        )

    @property
    def name(self) -> str:
        """The part that the names of its objects share."""
        folder = f"{PARTITION.topic}-{PARTITION.topic_id}/{PARTITION.partition}"
        return f"{self.prefix}{folder}/{self.start_offset:020d}-{SEGMENT_ID.id}"

    def _sealed(self, data: bytes) -> bytes:
        if self.key_pair is None:
            return data
        nonce = os.urandom(12)
        return nonce + AESGCM(self.data_key).encrypt(nonce, data, self.aad)

    def chunks(self) -> list[bytes]:
        cut = [self.log[at : at + self.chunk_bytes] for at in range(0, len(self.log), self.chunk_bytes)]
        if self.is_compressed:
            cut = [zstandard.ZstdCompressor().compress(chunk) for chunk in cut]
        return [self._sealed(chunk) for chunk in cut]

    def _chunk_index(self, sizes: Sequence[int]) -> dict[str, Any]:
        index: dict[str, Any] = {"originalChunkSize": self.chunk_bytes, "originalFileSize": len(self.log)}
        if self.is_compressed:
            packed = zstandard.ZstdCompressor().compress(encode_sizes(sizes))
            return {"type": "variable", **index, "transformedChunks": base64.b64encode(packed).decode()}
        overhead = 0 if self.key_pair is None else 28
        size, last = self.chunk_bytes + overhead, sizes[-1] if sizes else 0
        return {"type": "fixed", **index, "transformedChunkSize": size, "finalTransformedChunkSize": last}

    def manifest(self) -> dict[str, Any]:
        places: dict[str, Any] = {}
        at = 0
        for name in INDEXES:
            data = self.indexes[name]
            places[name] = None if data is None else {"position": at, "size": len(self._sealed(data)) if data else 0}
            at += 0 if places[name] is None else places[name]["size"]
        document: dict[str, Any] = {
            "version": "1",
            "chunkIndex": self._chunk_index([len(chunk) for chunk in self.chunks()]),
            "segmentIndexes": places,
            "compression": self.is_compressed,
            "remoteLogSegmentMetadata": self._described(),
        }
        if self.key_pair is not None:
            key_pair_id, key = self.key_pair
            wrapped = base64.b64encode(wrap_key(key, self.data_key)).decode()
            document["encryption"] = {
                "dataKey": f"{key_pair_id}:{wrapped}",
                "aad": base64.b64encode(self.aad).decode(),
            }
        return document

    def _described(self) -> dict[str, Any]:
        topic = {"topic": PARTITION.topic, "partition": PARTITION.partition}
        place = {"topicId": str(PARTITION.topic_id), "topicPartition": topic}
        return {
            "remoteLogSegmentId": {"topicIdPartition": place, "id": str(SEGMENT_ID.id)},
            "startOffset": self.start_offset,
            "endOffset": self.start_offset + 9,
            "maxTimestampMs": 1_700_000_000_000,
            "brokerId": 1,
            "eventTimestampMs": 1_700_000_000_001,
            "segmentLeaderEpochs": {"0": self.start_offset, "10": self.start_offset + 3, "2": self.start_offset + 1},
        }

    def objects(self) -> dict[str, bytes]:
        """The three objects, by name."""
        return {
            f"{self.name}.log": b"".join(self.chunks()),
            f"{self.name}.indexes": b"".join(self._sealed(data) for data in self.indexes.values() if data),
            f"{self.name}.rsm-manifest": json.dumps(self.manifest()).encode(),
        }
