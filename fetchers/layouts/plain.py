"""Plain objects under names that a template gives: for plug-ins that upload Kafka's files as they are.

    remote.storage.layout.template = {topic}-{partition}/{start_offset}.{file}

Rules of the file: the template language is names in braces and text, nothing else; a template is checked when it is
configured; a name is read back by the template's inverse and taken for a segment only if writing it again gives the
same name. What a plug-in does not keep is not made up: without a transaction index read_committed is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from uuid import UUID

from fetchers.layouts.options import layout_options
from remote_fetch.errors import ConfigError, CorruptSegment, SegmentNotFound, UnsupportedFormat
from remote_fetch.fetch.spi import ObjectInfo, ObjectStore
from remote_fetch.model import (
    Buffer,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)

__all__ = ["PlainLayout"]

_OPTION = "remote.storage.layout."
_LOG = "log"
_FILES: Mapping[str, str] = MappingProxyType(
    {
        _LOG: "log",
        IndexType.OFFSET.value: "index",
        IndexType.TIMESTAMP.value: "timeindex",
        IndexType.TRANSACTION.value: "txnindex",
        IndexType.PRODUCER_SNAPSHOT.value: "snapshot",
        IndexType.LEADER_EPOCH.value: "leader_epoch_checkpoint",
    }
)
"""What `{file}` stands for, where `remote.storage.layout.file.<name>` says nothing else: Kafka's own suffixes."""

_PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "topic": r"[A-Za-z0-9._-]{1,249}",
        "topic_id": r"[A-Za-z0-9_-]{22}",
        "topic_uuid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "partition": r"(?:0|[1-9][0-9]{0,9})",
        "start_offset": r"[0-9]{20}",
        "segment_id": r"[A-Za-z0-9_-]{22}",
        "segment_uuid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "md5_bits": r"[01]{1,128}",
        "file": r".+",
    }
)
"""Every name of the template language, and what its value looks like in the name of an object."""

_PIECE = re.compile(r"\{(?P<name>[^{}]*)\}|(?P<text>[^{}]+)|(?P<odd>[{}])")
_MAX_TEMPLATE_CHARS = 1024
_MAX_OFFSET = 2**63 - 1
_MAX_INDEX_BYTES = 64 << 20
_NO_ID = Uuid(bytes(16))
"""Kafka's own id of a topic whose id is not known."""


class PlainLayout:
    """The layout `plain`. Its options are `template`, `file.<log or index>`, `md5.bits` and `md5.prefix`."""

    def __init__(self) -> None:
        self._pieces: tuple[tuple[str, bool], ...] = ()
        self._files: Mapping[str, str] = _FILES
        self._bits = 0
        self._hashed_prefix = ""

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `Layout.configure`. Raises ConfigError for a template that cannot name an object."""
        options = layout_options(configs)
        known = ["template", "md5.bits", "md5.prefix", *(f"file.{name}" for name in _FILES)]
        options.refuse_unknown(known, layout="plain")
        if "template" not in options:
            raise ConfigError(
                f"the layout 'plain' needs {_OPTION}template",
                key=f"{_OPTION}template",
                hint="Such as {topic}-{partition}/{start_offset}.{file}",
            )
        self._pieces = _parsed(options["template"])
        files = {name: options.get(f"file.{name}", usual) for name, usual in _FILES.items()}
        self._files = {name: text for name, text in files.items() if text}
        if len(set(self._files.values())) < len(self._files) or _LOG not in self._files:
            raise ConfigError(f"{_OPTION}file.*: every file needs a name of its own", key=f"{_OPTION}file.*")
        self._hashed_prefix = options.get("md5.prefix", "")
        bits = options.get("md5.bits", "0")
        self._bits = int(bits) if re.fullmatch(r"[0-9]{1,3}", bits) else -1
        if not (1 if "md5_bits" in self._names else 0) <= self._bits <= 128:
            raise ConfigError(f"{_OPTION}md5.bits={bits!r:.20}: 1 to 128 for {{md5_bits}}", key=f"{_OPTION}md5.bits")

    @property
    def _names(self) -> frozenset[str]:
        return frozenset(text for text, is_name in self._pieces if is_name)

    def read_segment(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> Buffer:
        """As `Layout.read_segment`: the object is the segment."""
        return store.get(self._name(metadata, _LOG), start, end)

    def read_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> Buffer | None:
        """As `Layout.read_index`. Raises UnsupportedFormat for transactions where no index of them is kept."""
        if index_type.value not in self._files:
            if index_type is IndexType.TRANSACTION and not metadata.txn_index_empty:
                raise UnsupportedFormat(
                    "this tier keeps no transaction indexes, so it does not tell which records were aborted",
                    hint="isolation=read_uncommitted does not need them",
                )
            return None
        name = self._name(metadata, index_type.value)
        try:
            data = store.get(name, 0, _MAX_INDEX_BYTES + 1)
        except SegmentNotFound:
            return None
        if memoryview(data).nbytes > _MAX_INDEX_BYTES:
            raise CorruptSegment(f"an index of more than {_MAX_INDEX_BYTES} bytes", object_name=name)
        return data

    def _name(self, metadata: RemoteLogSegmentMetadata, file: str) -> str:
        partition = metadata.topic_id_partition
        values = {
            "topic": partition.topic,
            "topic_id": str(partition.topic_id),
            "topic_uuid": str(UUID(bytes=partition.topic_id.raw)),
            "partition": str(partition.partition),
            "start_offset": f"{metadata.start_offset:020d}",
            "segment_id": str(metadata.segment_id.id),
            "segment_uuid": str(UUID(bytes=metadata.segment_id.id.raw)),
            "md5_bits": self._md5_bits(partition),
            "file": self._files[file],
        }
        return "".join(values[text] if is_name else text for text, is_name in self._pieces)

    def _md5_bits(self, partition: TopicIdPartition) -> str:
        """The first bits of a hash, by which some uploaders spread their names: of PREFIX<topic>-<partition>."""
        hashed = f"{self._hashed_prefix}{partition.topic}-{partition.partition}".encode()
        return f"{int.from_bytes(hashlib.md5(hashed, usedforsecurity=False).digest(), 'big'):0128b}"[: self._bits]

    # --------------------------------------------------------------------------------------------------------- listing

    def list_segments(self, store: ObjectStore, topic: str | None) -> Iterator[RemoteLogSegmentMetadata]:
        """As `Layout.list_segments`: every log whose name the template gives.

        Where names have no topic id, it is the id of no topic; where they have no segment id, it is made from the
        name. Raises UnsupportedFormat where names do not tell topic, partition and start offset.
        """
        lacking = {"topic", "partition", "start_offset"} - self._names
        if lacking:
            raise UnsupportedFormat(
                f"names after {_OPTION}template do not tell {', '.join(sorted(lacking))}, so segments cannot be listed",
                hint="Let a broker say where they are: set bootstrap.servers",
            )
        pattern = self._inverse()
        found: dict[str, ObjectInfo] = {}
        transactional = self._files.get(IndexType.TRANSACTION.value)
        for info in self._listed(store):
            match = pattern.fullmatch(info.name)
            if match is not None and match["file"] in (self._files[_LOG], transactional):
                if topic in (None, match["topic"]):
                    found[info.name] = info
        for info in found.values():
            segment = self._segment(pattern.fullmatch(info.name), info)
            if segment is not None:
                yield segment
