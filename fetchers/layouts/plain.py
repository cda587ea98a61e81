"""Plain objects under names that a template gives: for plug-ins that upload Kafka's files as they are.

    remote.storage.layout.template = {topic}-{partition}/{start_offset}.{file}

Rules of the file:

- A template is text with names in braces, and nothing else. It is checked when it is configured.
- A name is taken for a segment only if the values that are read from it give the same name again.
- A file that the plug-in does not keep is not made up. Without a transaction index read_committed is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from fetchers.layouts.naming import (
    SUFFIXES,
    checked_names,
    expected_files,
    partition_of,
    read_bounded_index,
    segment_of,
)
from fetchers.layouts.options import PREFIX, layout_options
from remote_fetch.errors import ConfigError, UnsupportedFormat
from remote_fetch.fetch.inventory import ExpectedObject
from remote_fetch.fetch.spi import ObjectInfo, ObjectStore, SizedStore
from remote_fetch.model import (
    NO_ID,
    Buffer,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)

__all__ = ["PlainLayout"]

_LOG = "log"
_FILES: Mapping[str, str] = MappingProxyType({kind: suffix[1:] for kind, suffix in SUFFIXES.items()})
"""The values of `{file}`, Kafka's own suffixes, unless `remote.storage.layout.file.<name>` gives another."""

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
        "file": r"[^/]+",
    }
)
"""Every name of the template language, and what its value looks like in the name of an object."""

_PIECE = re.compile(r"\{(?P<name>[^{}]*)\}|(?P<text>[^{}]+)|(?P<odd>[{}])")
_MAX_TEMPLATE_CHARS = 1024
_PROBED_OBJECTS = 200
"""How many names of a folder are looked at to know one of this layout."""


class PlainLayout:
    """The layout `plain`. Its options are `template`, `file.<log or index>`, `md5.bits` and `md5.prefix`."""

    def __init__(self) -> None:
        self._pieces: tuple[tuple[str, bool], ...] = ()
        self._files: Mapping[str, str] = _FILES
        self._any_levels: list[_Level] = []
        self._bits = 0
        self._hashed_prefix = ""

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `Layout.configure`. Raises ConfigError for a template that cannot name an object."""
        options = layout_options(configs)
        known = ["template", "md5.bits", "md5.prefix", *(f"file.{name}" for name in _FILES)]
        options.refuse_unknown(known, layout="plain")
        if "template" not in options:
            raise ConfigError(
                f"the layout 'plain' needs {PREFIX}template",
                key=f"{PREFIX}template",
                hint="Such as {topic}-{partition}/{start_offset}.{file}",
            )
        self._pieces = _parsed(options["template"])
        files = {name: options.get(f"file.{name}", usual) for name, usual in _FILES.items()}
        self._files = {name: text for name, text in files.items() if text}
        are_apart = len(set(self._files.values())) == len(self._files) and "/" not in "".join(self._files.values())
        if not are_apart or _LOG not in self._files:
            raise ConfigError(f"{PREFIX}file.*: every file needs a name of its own, without /", key=f"{PREFIX}file.*")
        self._any_levels = self._levels({})
        self._hashed_prefix = options.get("md5.prefix", "")
        bits = options.get("md5.bits", "0")
        self._bits = int(bits) if re.fullmatch(r"[0-9]{1,3}", bits) else -1
        if not (1 if "md5_bits" in self._names else 0) <= self._bits <= 128:
            raise ConfigError(f"{PREFIX}md5.bits={bits!r:.20}: 1 to 128 for {{md5_bits}}", key=f"{PREFIX}md5.bits")

    @property
    def _names(self) -> frozenset[str]:
        return frozenset(text for text, is_name in self._pieces if is_name)

    def read_segment(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> Buffer:
        """As `Layout.read_segment`: the object is the segment."""
        return store.get(self._name(metadata, _LOG), start, end)

    def read_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> Buffer | None:
        """As `Layout.read_index`. Raises UnsupportedFormat for transactions if no index of them is kept."""
        if index_type.value not in self._files:
            if index_type is IndexType.TRANSACTION and not metadata.txn_index_empty:
                raise UnsupportedFormat(
                    "this tier keeps no transaction indexes, so it does not tell which records were aborted",
                    hint="Name them in remote.storage.layout.file.transaction if it does, else only a broker can tell",
                )
            return None
        name = self._name(metadata, index_type.value)
        return read_bounded_index(lambda start, end: store.get(name, start, end), name)

    def segment_size(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `SizedLayout.segment_size`: the object is the segment."""
        return store.size(self._name(metadata, _LOG)) if isinstance(store, SizedStore) else None

    def object_names(self, metadata: RemoteLogSegmentMetadata, store: ObjectStore | None = None) -> Mapping[str, str]:
        """As `ObjectNamer.object_names`. Raises ConfigError for a template whose names do not tell the segment."""
        names = self._names
        has_topic = bool(names & {"topic_id", "topic_uuid"}) or {"topic", "partition"} <= names
        if not (names & {"segment_id", "segment_uuid"} and has_topic):
            raise self._unsignable()
        try:
            return checked_names({file: self._name(metadata, file) for file in self._files}, metadata)
        except UnsupportedFormat as error:
            raise self._unsignable() from error

    def expected_objects(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> Sequence[ExpectedObject]:
        """As `InventoryLayout.expected_objects`. A transaction index may be missing."""
        return expected_files({file: self._name(metadata, file) for file in self._files}, metadata)

    def segment_of(self, name: str) -> RemoteLogSegmentId | None:
        """As `InventoryLayout.segment_of`. None for all names if the template has no ids of topics and segments."""
        parts, levels = name.split("/"), self._any_levels
        if len(parts) != len(levels):
            return None
        values: dict[str, str] = {}
        for part, level in zip(parts, levels, strict=True):
            if (match := level.pattern.fullmatch(part)) is None:
                return None
            values |= match.groupdict()
        has_ids = bool({"topic_id", "topic_uuid"} & values.keys()) and {"topic", "partition"} <= values.keys()
        partition = _partition_of(values) if has_ids and values["file"] in self._files.values() else None
        try:
            segment_id = _id_of(values.get("segment_id"), values.get("segment_uuid"))
        except ValueError:
            return None
        return None if partition is None or segment_id is None else RemoteLogSegmentId(partition, segment_id)

    def _unsignable(self) -> ConfigError:
        key = f"{PREFIX}template"
        template = "".join(f"{{{text}}}" if is_name else text for text, is_name in self._pieces)
        return ConfigError(
            f"{key}={template!r}: its names do not show which segment an object belongs to, so no URL of it is signed",
            key=key,
            hint="A name that may be signed has {segment_id} or {segment_uuid}, and {topic_id}, {topic_uuid} or "
            "folders such as {topic}-{partition}, and none of '%', '?', '#' and '\\'",
        )

    def _name(self, metadata: RemoteLogSegmentMetadata, file: str) -> str:
        values = {
            **self._values(metadata.topic_id_partition),
            "start_offset": f"{metadata.start_offset:020d}",
            "segment_id": str(metadata.segment_id.id),
            "segment_uuid": str(UUID(bytes=metadata.segment_id.id.raw)),
            "file": self._files[file],
        }
        return "".join(values[text] if is_name else text for text, is_name in self._pieces)

    def _values(self, partition: TopicIdPartition) -> dict[str, str]:
        """The values of those names in braces that depend on the partition."""
        return {
            "topic": partition.topic,
            "topic_id": str(partition.topic_id),
            "topic_uuid": str(UUID(bytes=partition.topic_id.raw)),
            "partition": str(partition.partition),
            "md5_bits": self._md5_bits(partition),
        }

    def _md5_bits(self, partition: TopicIdPartition) -> str:
        """The first bits of a hash, by which some uploaders spread their names: of PREFIX<topic>-<partition>."""
        hashed = f"{self._hashed_prefix}{partition.topic}-{partition.partition}".encode()
        return f"{int.from_bytes(hashlib.md5(hashed, usedforsecurity=False).digest(), 'big'):0128b}"[: self._bits]

    # --------------------------------------------------------------------------------------------------------- listing

    def list_segments(self, store: ObjectStore, topic: str | None) -> Iterator[RemoteLogSegmentMetadata]:
        """As `Layout.list_segments`: every log whose name the template gives.

        If names have no topic id, it is the id of no topic. If they have no segment id, it is made from the name.
        Raises UnsupportedFormat if names do not tell topic, partition and start offset.
        """
        lacking = {"topic", "partition", "start_offset"} - self._names
        if lacking:
            raise UnsupportedFormat(
                f"names after {PREFIX}template do not tell {', '.join(sorted(lacking))}, so segments cannot be listed",
                hint="Let a broker say where they are: set bootstrap.servers",
            )
        yield from self._listed(store, {} if topic is None else {"topic": topic})

    def list_partitions(self, store: ObjectStore, topic: str | None) -> Iterable[TopicIdPartition] | None:
        """As `PartitionLayout.list_partitions`, if the template's folders tell topic, partition and topic id."""
        wanted = {"topic", "partition"} | ({"topic_id", "topic_uuid"} & self._names)
        levels = self._levels({} if topic is None else {"topic": topic})[:-1]
        told: set[str] = set()
        for depth, level in enumerate(levels, 1):
            told |= level.pattern.groupindex.keys()
            if wanted <= told and "start_offset" in self._names:
                return _partitions(_folders(store, "", levels[:depth], {}))
        return None

    def list_partition(self, store: ObjectStore, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """As `PartitionLayout.list_partition`. A folder whose name is known is not searched for in a listing."""
        return self._listed(store, self._values(partition))

    def levels_below(self, store: ObjectStore, folder: str = "") -> int | None:
        """As `LevelFinder.levels_below`. Finds the level from which on the rest of the template fits an object."""
        levels = self._levels({}) if self._pieces else []
        for depth in range(len(levels)):
            if next(_found(store, folder, levels[depth:], {}, _PROBED_OBJECTS), None) is not None:
                return depth
        return None

    def _listed(self, store: ObjectStore, known: Mapping[str, str]) -> Iterator[RemoteLogSegmentMetadata]:
        """The segments whose object names have these values for the names in braces."""
        segments: list[tuple[str, RemoteLogSegmentMetadata]] = []
        transactional: set[str] = set()
        for info, values in _found(store, "", self._levels(known), {}):
            if values["file"] == self._files.get(IndexType.TRANSACTION.value):
                transactional.add(info.name)
            elif values["file"] == self._files[_LOG] and (segment := _segment_of(info, values)) is not None:
                segments.append((info.name, segment))
        keeps_transactions = IndexType.TRANSACTION.value in self._files
        for name, segment in segments:
            if self._name(segment, _LOG) == name:
                is_empty = keeps_transactions and self._name(segment, IndexType.TRANSACTION.value) not in transactional
                yield replace(segment, txn_index_empty=is_empty)

    def _levels(self, known: Mapping[str, str]) -> list[_Level]:
        """A pattern for each folder level of the template.

        If the value of a name in braces is known, the pattern matches only that value.
        """
        levels, seen = [""], set[str]()
        only: list[str | None] = [""]
        for text, is_name in self._pieces:
            if not is_name:
                first, *more = (re.escape(part) for part in text.split("/"))
                levels[-1] += first
                levels.extend(more)
                seen = seen if not more else set()
            elif text in seen:
                levels[-1] += f"(?P={text})"
            else:
                levels[-1] += f"(?P<{text}>{re.escape(known[text]) if text in known else _PATTERNS[text]})"
                seen.add(text)
            for number, part in enumerate([known.get(text)] if is_name else text.split("/")):
                before = "" if number else only.pop()
                only.append(None if before is None or part is None else before + part)
        return [_Level(re.compile(level), name) for level, name in zip(levels, only, strict=True)]


class _Level(NamedTuple):
    """The names of folders or objects of one level, which fit `pattern`. `name` if the level can have but one name."""

    pattern: re.Pattern[str]
    name: str | None


def _found(
    store: ObjectStore, folder: str, levels: list[_Level], above: Mapping[str, str], most: int | None = None
) -> Iterator[tuple[ObjectInfo, Mapping[str, str]]]:
    """Objects whose names fit, with the values of the names in braces. Looks at `most` names of a folder."""
    *upper, level = levels
    for path, values in _folders(store, folder, upper, above, most):
        start = f"{path}/" if path else ""
        for info in islice(store.list(path), most):
            if (match := level.pattern.fullmatch(info.name.removeprefix(start))) is not None:
                yield info, {**values, **match.groupdict()}


def _folders(
    store: ObjectStore, folder: str, levels: list[_Level], above: Mapping[str, str], most: int | None = None
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Folders whose names fit, as many levels down as there are, with the values of the names in braces."""
    if not levels:
        yield folder, above
        return
    level, *below = levels
    for name in islice(store.folders(folder) if level.name is None else (level.name,), most):
        if (match := level.pattern.fullmatch(name)) is not None:
            path = f"{folder}/{name}" if folder else name
            yield from _folders(store, path, below, {**above, **match.groupdict()}, most)


def _partitions(folders: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[TopicIdPartition]:
    """The partitions that folders name, each once."""
    seen: set[TopicIdPartition] = set()
    for _, values in folders:
        partition = _partition_of(values)
        if partition is not None and partition not in seen:
            seen.add(partition)
            yield partition


def _parsed(template: str) -> tuple[tuple[str, bool], ...]:
    """The template as (text, whether it is a name in braces). Raises ConfigError."""
    key = f"{PREFIX}template"
    if len(template) > _MAX_TEMPLATE_CHARS:
        raise ConfigError(f"{key} has more than {_MAX_TEMPLATE_CHARS} characters", key=key)
    pieces: list[tuple[str, bool]] = []
    for match in _PIECE.finditer(template):
        if match["odd"] is not None:
            raise ConfigError(f"{key}={template!r}: a brace that opens or closes nothing", key=key)
        name = match["name"]
        if name is not None and name not in _PATTERNS:
            offered = ", ".join(f"{{{one}}}" for one in _PATTERNS)
            raise ConfigError(f"{key}={template!r}: {{{name}}} is none of {offered}", key=key)
        if name is not None and pieces and pieces[-1][1]:
            raise ConfigError(f"{key}={template!r}: text is needed between {{{pieces[-1][0]}}} and {{{name}}}", key=key)
        pieces.append((match["text"], False) if name is None else (name, True))
    names = {text for text, is_name in pieces if is_name}
    by_offset = names & {"topic", "topic_id", "topic_uuid"} and {"partition", "start_offset"} <= names
    if "file" not in names or not (by_offset or names & {"segment_id", "segment_uuid"}):
        raise ConfigError(
            f"{key}={template!r} gives several objects the same name",
            key=key,
            hint="It needs {file}, and {segment_id} or {topic}, {partition} and {start_offset}",
        )
    if {"", ".", ".."} & set(template.split("/")):
        raise ConfigError(f"{key}={template!r}: a folder without a name, or . or ..", key=key)
    return tuple(pieces)


def _segment_of(info: ObjectInfo, values: Mapping[str, str]) -> RemoteLogSegmentMetadata | None:
    """The segment of a log. None if a value cannot be one, such as an offset of more than 63 bits."""
    partition = _partition_of(values)
    try:
        made_up = Uuid(hashlib.sha256(info.name.encode()).digest()[:16])
        segment_id = _id_of(values.get("segment_id"), values.get("segment_uuid")) or made_up
    except ValueError:
        return None
    return None if partition is None else segment_of(partition, segment_id, values["start_offset"], info.size_bytes)


def _partition_of(values: Mapping[str, str]) -> TopicIdPartition | None:
    try:
        topic_id = _id_of(values.get("topic_id"), values.get("topic_uuid")) or NO_ID
    except ValueError:
        return None
    return partition_of(topic_id, values["topic"], values["partition"])


def _id_of(text: str | None, hyphenated: str | None) -> Uuid | None:
    if text is not None:
        return Uuid.parse(text)
    return None if hyphenated is None else Uuid(UUID(hyphenated).bytes)
