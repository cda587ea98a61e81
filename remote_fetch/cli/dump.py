"""`remote-fetch dump`: print what is in segments, indexes and metadata records, as Kafka's kafka-dump-log does.

Rules of the file:

- An object is read through the fetcher of its URL: with the credentials, deadlines and repetitions of every read.
- A topic, a partition and an offset may name a segment. Its layout reads it, and undoes a plug-in's chunks, compression
  and encryption.
- Damage is reported on stderr, and the exit code is 1. All that is whole is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from remote_fetch.cli.dump_files import dump_file
from remote_fetch.cli.dump_lines import Lines
from remote_fetch.cli.dump_log import LogDump, say
from remote_fetch.cli.options import add_common_options, add_json_option, config_from
from remote_fetch.errors import ConfigError, CorruptSegment, FallsBackError, RemoteFetchError, UnknownTopic
from remote_fetch.hosts import check_password, shown_url
from remote_fetch.model import (
    MAX_OFFSET,
    OBJECT_KINDS,
    IndexType,
    IsolationLevel,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from remote_fetch.prepare.job import find_partitions
from remote_fetch.prepare.segment_bytes import object_segment, segment_bytes
from remote_fetch.session.session import Session

__all__ = ["add_options", "run"]

_LOG = OBJECT_KINDS[0]
_SUFFIXES: Mapping[str, str] = {
    ".log": _LOG,
    ".index": IndexType.OFFSET,
    ".timeindex": IndexType.TIMESTAMP,
    ".txnindex": IndexType.TRANSACTION,
    ".snapshot": IndexType.PRODUCER_SNAPSHOT,
    "leader_epoch_checkpoint": IndexType.LEADER_EPOCH,
    "leader-epoch-checkpoint": IndexType.LEADER_EPOCH,
}
"""The ends of the names of Kafka's files and of the objects that plug-ins make of them."""
_OWN_SUFFIXES = {kind: suffix if suffix.startswith(".") else f".{suffix}" for suffix, kind in _SUFFIXES.items()}
_NAMED_OFFSET = re.compile(r"[0-9]{20}(?![0-9])")
_MAX_FILE_BYTES = 64 << 20
"""The most that a file beside a segment may have, as in the layouts."""
_KEPT_KEYS = ("fetch.", "remote.storage.options.", "remote.storage.fetcher.")
"""The keys for reading an object: budgets, deadlines, credentials, the fetcher. The layout is that of one object."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("objects", metavar="OBJECT", nargs="*", help="a file, or the URL of an object")
    named = parser.add_argument_group("segments by offset, instead of objects")
    named.add_argument("-t", dest="topic", metavar="TOPIC", help="the topic; NAME:ID for one id")
    named.add_argument("-p", dest="partition", type=int, metavar="PARTITION", help="the partition")
    named.add_argument(
        "-o", dest="offsets", metavar="OFFSET", type=int, action="append", default=[],
        help="the segments that hold this offset; may be repeated",
    )  # fmt: skip
    add_common_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--kind", dest="kinds", metavar="KIND", action="append", choices=OBJECT_KINDS,
        help=f"only this file of a segment, or what an object is if its name does not tell: {', '.join(OBJECT_KINDS)}",
    )  # fmt: skip
    output.add_argument(
        "--base-offset", type=int, metavar="OFFSET", help="the segment's first offset, if an object's name has none"
    )
    output.add_argument("--shallow", action="store_true", help="batches without their records")
    output.add_argument("--no-data", dest="has_data", action="store_false", help="records without keys and payloads")
    output.add_argument(
        "--remote-log-metadata-decoder", dest="is_metadata", action="store_true",
        help="payloads are records of __remote_log_metadata",
    )  # fmt: skip
    add_json_option(output, "a line")
    output.add_argument(
        "--binary", choices=("text", "base64"), default="text",
        help="with -J: keys, payloads and header values as text (default) or base64",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    if bool(arguments.objects) == (arguments.topic is not None):
        raise ConfigError("dump: give objects, or -t TOPIC -p PARTITION -o OFFSET", key="dump")
    if not 0 <= (arguments.base_offset or 0) <= MAX_OFFSET:
        raise ConfigError(
            f"--base-offset {arguments.base_offset}: no offset is below 0 or above 2^63 - 2", key="--base-offset"
        )
    lines = Lines(sys.stdout.buffer, as_json=arguments.json, binary=arguments.binary)
    if arguments.topic is not None:
        return 0 if _dump_named(arguments, lines) else 1
    if arguments.url is not None:
        raise ConfigError("--url goes with -t; an object is given by its whole path or URL", key="--url")
    config, is_sound = config_from(arguments), True
    for location in arguments.objects:
        try:
            is_sound &= _dump_object(arguments, lines, config, location)
        except RemoteFetchError as error:
            error.topic = error.partition = None  # an object alone belongs to no partition that is known
            if not error.falls_back:
                raise  # the caller has to change something
            say(_shown(location), error)
            is_sound = False
    return 0 if is_sound else 1


def _log_dump(arguments: argparse.Namespace, lines: Lines, session: Session) -> LogDump:
    return LogDump(
        lines,
        session.codecs,
        session.config.settings.max_batch_bytes,
        is_shallow=arguments.shallow,
        has_data=arguments.has_data,
        is_metadata=arguments.is_metadata,
    )


# ------------------------------------------------------------------------------------------------------------- objects


def _dump_object(arguments: argparse.Namespace, lines: Lines, config: Mapping[str, Any], location: str) -> bool:
    root, name, read_name = _divided(location)
    shown = _shown(location)
    kind = _kind_of(arguments, name, shown)
    base_offset = _base_offset(arguments, name, shown, kind)
    own = {key: value for key, value in config.items() if key.startswith(_KEPT_KEYS)}
    own |= {"remote.storage.url": root, "remote.storage.layout": "url"}
    with Session.open(own) as session:
        segment = object_segment(read_name)
        ranges = segment_bytes(session.storage, segment)
        if kind == _LOG:
            first = next(ranges)  # an object that is not there is an error before the first line
            lines.begin(shown)
            return _log_dump(arguments, lines, session).dump(shown, base_offset, chain((first,), ranges))
        data = _whole(ranges, shown)
        lines.begin(shown)
        return dump_file(lines, shown, IndexType(kind), base_offset or 0, data)


def _shown(location: str) -> str:
    return shown_url(location) if "://" in location else location


def _divided(location: str) -> tuple[str, str, str]:
    """The folder of an object as `remote.storage.url`, its name in it, and the name to read it by.

    Only a URL has a query. With a query the name to read it by is the whole URL. Raises ConfigError for a file whose
    name cannot be printed, and for a URL with a password that lacks its scheme.
    """
    if "://" not in location:
        check_password(location, "OBJECT")
        folder, name = os.path.split(os.path.abspath(location))
        if not name.isprintable():  # the layout `url` would say so of custom metadata
            raise ConfigError(
                f"{ascii(location)[1:-1]}: the name of the file has a character that cannot be printed",
                key="OBJECT",
                hint="Give a link to it, with another name",
            )
        return folder, name, name
    path, question_mark, _ = location.partition("?")
    root, _, name = path.rpartition("/")
    return root, name, location if question_mark else name


def _kind_of(arguments: argparse.Namespace, name: str, shown: str) -> str:
    if arguments.kinds:
        if len(arguments.kinds) > 1:
            raise ConfigError("--kind: an object is of one kind", key="--kind")
        kind: str = arguments.kinds[0]
        return kind
    for suffix, kind in _SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    raise ConfigError(
        f"{shown}: the name does not tell what this object is",
        key="OBJECT",
        hint=f"Give --kind, which is one of {', '.join(OBJECT_KINDS)}",
    )


def _base_offset(arguments: argparse.Namespace, name: str, shown: str, kind: str) -> int | None:
    if arguments.base_offset is not None:
        given: int = arguments.base_offset
        return given
    found = _NAMED_OFFSET.match(name)
    named = int(found[0]) if found is not None and int(found[0]) <= MAX_OFFSET else None
    if named is None and kind in (IndexType.OFFSET, IndexType.TIMESTAMP):
        raise ConfigError(
            f"{shown}: an index counts from its segment's first offset, which the name does not tell",
            key="OBJECT",
            hint="Give --base-offset",
        )
    return named


def _whole(ranges: Iterable[memoryview], name: str) -> memoryview:
    data = bytearray()
    for part in ranges:
        data += part
        if len(data) > _MAX_FILE_BYTES:
            raise CorruptSegment(f"a file beside a segment with more than {_MAX_FILE_BYTES} bytes", object_name=name)
    return memoryview(data).toreadonly()


# ------------------------------------------------------------------------------------------------- segments by offset


def _dump_named(arguments: argparse.Namespace, lines: Lines) -> bool:
    if arguments.partition is None or not arguments.offsets:
        raise ConfigError("dump -t: give -p PARTITION and -o OFFSET too", key="-t")
    is_sound = True
    with Session.open(config_from(arguments)) as session:
        log_dump = _log_dump(arguments, lines, session)
        for segment in _segments(session, arguments.topic, arguments.partition, arguments.offsets):
            for kind in arguments.kinds or OBJECT_KINDS:
                file = f"{segment.object_stem}{_OWN_SUFFIXES[kind]}"
                try:
                    is_sound &= _dump_file(session, log_dump, kind, file, segment)
                except RemoteFetchError as error:
                    raise error.at(object_name=file) from error.__cause__
    return is_sound


def _dump_file(session: Session, log_dump: LogDump, kind: str, file: str, segment: RemoteLogSegmentMetadata) -> bool:
    if kind == _LOG:
        return _dump_segment(session, log_dump, file, segment)
    data = session.reader.read_index(segment, IndexType(kind))
    if data is None:
        return True
    log_dump.lines.begin(file)
    return dump_file(log_dump.lines, file, IndexType(kind), segment.start_offset, data)


def _dump_segment(session: Session, log_dump: LogDump, file: str, segment: RemoteLogSegmentMetadata) -> bool:
    size_bytes = 0

    def counted() -> Iterator[memoryview]:
        nonlocal size_bytes
        for data in segment_bytes(session.storage, segment):
            size_bytes += len(data)
            yield data

    log_dump.lines.begin(file)
    is_sound = log_dump.dump(file, segment.start_offset, counted())
    known_bytes = segment.known_size_bytes
    if is_sound and known_bytes is not None and size_bytes < known_bytes:
        say(file, CorruptSegment(f"it ends before byte {known_bytes} that its metadata names", position=size_bytes))
        return False
    return is_sound


def _segments(session: Session, topic: str, number: int, offsets: Sequence[int]) -> Iterator[RemoteLogSegmentMetadata]:
    """The segments that hold the offsets, each once. After an election several may hold the same offset."""
    chosen = find_partitions(session, topic, [number])
    found: dict[RemoteLogSegmentMetadata, None] = {}
    for offset in offsets:
        holding = [segment for partition in chosen for segment in _holding(session, partition, offset)]
        if not holding:
            raise UnknownTopic("no segment holds this offset", topic=topic, partition=number, offset=offset)
        found.update(dict.fromkeys(holding))
    yield from found


def _holding(session: Session, partition: TopicIdPartition, offset: int) -> list[RemoteLogSegmentMetadata]:
    isolation = IsolationLevel.READ_UNCOMMITTED
    if session.stepwise is None:
        timeline = session.locator.timeline(partition)
    else:
        timeline = session.newest_timeline(partition, offset, offset + 1, isolation=isolation, most=1)
    session.configured_locator.check()
    guessed = [*filter(session.locator.end_is_inferred, _with_offset(timeline.segments, offset))]
    if guessed:
        with contextlib.suppress(FallsBackError):  # a damaged segment does not tell its end, and is printed
            timeline = session.locator.measure(partition, guessed)
    return _with_offset(timeline.segments, offset)


def _with_offset(segments: Iterable[RemoteLogSegmentMetadata], offset: int) -> list[RemoteLogSegmentMetadata]:
    return [segment for segment in segments if segment.start_offset <= offset <= segment.end_offset]
