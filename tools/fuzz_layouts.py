"""The targets of `tools.fuzz` among the layouts: manifests, chunks, custom metadata, names, a broker's own file.

Rules of the file:

- The rules of `tools.fuzz_targets` hold here too.
- Seeds that a plug-in wrote come from the golden tiers. The remaining seeds are written here.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

from fetchers.layouts.aiven import AivenLayout
from fetchers.layouts.aiven_backends import from_aiven_properties
from fetchers.layouts.aiven_manifest import decode_sizes, parse_manifest
from fetchers.layouts.plain import PlainLayout
from fetchers.layouts.url import UrlLayout
from remote_fetch.errors import CorruptSegment, SegmentNotFound, UnsupportedFormat
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.formats.properties import parse_properties
from remote_fetch.formats.tagged_fields import encode_compact_string
from remote_fetch.model import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.testing.metadata_records import encode_tagged_fields
from remote_fetch.testing.records import encode_varint

__all__ = [
    "LOCATIONS",
    "PROPERTIES",
    "SIZES",
    "TEMPLATES",
    "ChunkReader",
    "check_json",
    "custom_metadata",
    "damage_sizes",
    "list_aiven_names",
    "manifests",
    "names",
    "read_custom_metadata",
    "read_locations",
    "read_manifest",
    "read_properties",
    "read_sizes",
    "read_template",
]

SIZES = (
    b"\0\0\0\0",
    b"\0\0\0\1\0\0\0\5",
    b"\0\0\0\3\0\0\0\5\x01\0\7\0\0\0\2",
    b"\0\0\0\4\0\0\0\5\x03\0\0\7\1\0\7\0\0\0\0\0\0\2",
)
LOCATIONS = (
    b"orders-0/00000000000000000007.log",
    b"memory://tier/orders-0/7.log",
    json.dumps({"log": "a/b.log", "offset": "a/b.index", "transaction": None}).encode(),
)
TEMPLATES = (
    b"{topic}-{partition}-{topic_id}/{start_offset}-{segment_id}.{file}",
    b"tier/{md5_bits}/{topic}-{partition}/{start_offset}.{file}",
    b"{topic_uuid}_{partition}/{segment_uuid}/{file}",
)
PROPERTIES = (
    b"""# a broker
remote.log.storage.manager.class.name = x.Y
storage.backend.class=a.S3Storage
storage.s3.bucket.name: tier\\
  ed
storage.s3.region eu\\u002dwest
key.prefix=a/
! the end
""",
    b"""storage.backend.class=a.FileSystemStorage
storage.root=/tier
encryption.enabled=true
encryption.key.pairs=k1
encryption.key.pairs.k1.private.key.file=/k1.pem
""",
    b"""storage.backend.class=a.AzureBlobStorage
storage.azure.container.name=c
storage.azure.endpoint.url=https://h:8
""",
)
_READ_CHUNKS = 64
_PARTITION = TopicIdPartition(Uuid(bytes(range(16))), "topic-a", 0)
_SEGMENT = RemoteLogSegmentMetadata(RemoteLogSegmentId(_PARTITION, Uuid(bytes(range(1, 17)))), 7, 9, 100)


def manifests(goldens: Path) -> list[bytes]:
    """Manifests of the golden tiers, the largest of each set."""
    return [path.read_bytes() for path in _largest(goldens)]


def _largest(goldens: Path) -> Iterator[Path]:
    for tier in sorted(goldens.glob("aiven-*")):
        yield max(sorted(tier.rglob("*.rsm-manifest")), key=lambda path: path.with_suffix(".log").stat().st_size)


def check_json(data: bytes) -> None:
    """The outer check of JSON text."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptSegment("no JSON") from None


def read_manifest(data: bytes) -> object:
    """Parse a manifest, and compute the places of its first and last chunks."""
    manifest = parse_manifest(data)
    chunks = manifest.chunks
    count = len(chunks.starts)
    for chunk in {*range(min(count, _READ_CHUNKS)), *range(max(count - _READ_CHUNKS, 0), count)}:
        start, end = chunks.stored_range(chunk)
        assert 0 <= start <= end <= chunks.stored_bytes
        assert 0 < chunks.original_bytes(chunk) <= chunks.chunk_bytes
    return manifest


def read_sizes(data: bytes) -> object:
    """Read a list of chunk sizes, and check that it has the declared length."""
    return decode_sizes(data, int.from_bytes(data[:4], "big"))


def damage_sizes(data: bytes, chance: random.Random) -> bytes:
    """The same number of different sizes."""
    return data[:4] + bytes(byte if chance.randrange(4) else chance.randrange(256) for byte in data[4:])


class ChunkReader:
    """Reads a damaged log with the sound manifest of a golden tier that is compressed."""

    def __init__(self, goldens: Path) -> None:
        path = list(_largest(goldens))[1]
        self._manifest = path.read_bytes()
        self.seed = path.with_suffix(".log").read_bytes()

    def __call__(self, data: bytes) -> object:
        """Read the segment from its hundredth byte on."""
        layout = AivenLayout()
        layout.configure({})
        store = _Objects({".log": data, ".rsm-manifest": self._manifest})
        return layout.read_segment(store, _SEGMENT, 100, -1)


def custom_metadata() -> bytes:
    """Custom metadata with every field."""
    fields = {0: encode_varint(4711), 1: encode_compact_string("tiered/"), 2: encode_compact_string("topic/0/7")}
    return encode_tagged_fields(fields)


def read_custom_metadata(data: bytes) -> object:
    """Build the object names of a segment from its custom metadata, and read these objects."""
    layout = AivenLayout()
    layout.configure({})
    segment = RemoteLogSegmentMetadata(_SEGMENT.segment_id, 7, 9, 100, custom_metadata=data)
    store = _Objects({".indexes": bytes(32), ".rsm-manifest": _PLAIN_MANIFEST})
    return layout.read_index(store, segment, IndexType.OFFSET)


def read_locations(data: bytes) -> object:
    """Parse the locations of a log and of an index, and read both objects."""
    layout = UrlLayout()
    layout.configure({"remote.storage.url": "memory://tier"})
    segment = RemoteLogSegmentMetadata(_SEGMENT.segment_id, 7, 9, 100, custom_metadata=data)
    store = _Objects({"": bytes(64)})
    return [layout.read_segment(store, segment, 0, 9), layout.read_index(store, segment, IndexType.TRANSACTION)]


def read_template(data: bytes) -> object:
    """Parse a template, build an object name with it, and parse the names of a bucket with it."""
    layout = PlainLayout()
    options = {"template": data.decode("utf-8", "replace"), "md5.bits": "3"}
    layout.configure({f"remote.storage.layout.{name}": value for name, value in options.items()})
    layout.read_segment(_Objects({"": b"log"}), _SEGMENT, 0, 1)
    with contextlib.suppress(UnsupportedFormat):  # its names lack a part that a listing needs
        return list(layout.list_segments(_Objects(dict.fromkeys(_NAMES, b"")), None))
    return None


def read_properties(data: bytes) -> object:
    """Parse a broker's file, and convert the properties of its storage manager into keys of this package."""
    return from_aiven_properties(parse_properties(data))


def names(goldens: Path) -> bytes:
    """The object names of one golden tier of the plug-in."""
    root = goldens / "aiven-plain" / "remote"
    found = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.rsm-manifest"))
    return "\n".join(found[:20]).encode()


def list_aiven_names(data: bytes) -> object:
    """List every segment that the layout finds among the names. All have the same manifest."""
    layout = AivenLayout()
    layout.configure({})
    found = dict.fromkeys(data.decode("utf-8", "replace").splitlines(), b"")
    return list(layout.list_segments(_Objects({".rsm-manifest": _PLAIN_MANIFEST, **found}), None))


_NAMES = (
    "topic-a-0-AAECAwQFBgcICQoLDA0ODw/00000000000000000007-AQIDBAUGBwgJCgsMDQ4PEA.log",
    "tier/010/topic-a-0/00000000000000000007.log",
    "a/b/c",
)
_PLAIN_MANIFEST = json.dumps(
    {
        "version": "1",
        "compression": False,
        "chunkIndex": {
            "type": "fixed", "originalChunkSize": 100, "originalFileSize": 100,
            "transformedChunkSize": 100, "finalTransformedChunkSize": 100,
        },
        "segmentIndexes": {
            name: {"position": 8 * number, "size": 8}
            for number, name in enumerate(("offset", "timestamp", "producerSnapshot", "leaderEpoch"))
        },
    }
).encode()  # fmt: skip


class _Objects:
    """A store that chooses an object by the suffix of its name, and lists the objects with whole names."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self._objects = objects

    def get(self, name: str, start: int = 0, end: int = -1) -> bytes:
        for suffix, data in self._objects.items():
            if name.endswith(suffix):
                return data[start:] if end < 0 else data[start:end]
        raise SegmentNotFound("no such object", object_name=name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for name, data in self._objects.items():
            if not name.startswith(".") and name.startswith(f"{prefix}/" if prefix else ""):
                yield ObjectInfo(name, len(data))

    def folders(self, prefix: str = "") -> Iterator[str]:
        at = f"{prefix}/" if prefix else ""
        below = [name.removeprefix(at) for name in self._objects if name.startswith(at)]
        yield from dict.fromkeys(name.partition("/")[0] for name in below if "/" in name)
