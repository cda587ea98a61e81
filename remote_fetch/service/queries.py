"""The request for segments, parsed: every part is checked before anything is looked up.

Rules of the file:

- Pure. A parameter that is not known, or given twice, is refused: a misspelt bound would answer for the whole topic.
- Numbers are ASCII digits. `from` is inclusive, `to` exclusive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from remote_fetch.model import MAX_OFFSET, OBJECT_KINDS, TOPIC_NAME_RULE, IsolationLevel, Uuid, is_topic_name
from remote_fetch.service.refusals import Refusal

__all__ = ["SegmentsQuery", "parse_query", "parse_segments"]

_NUMBER = re.compile(r"[0-9]{1,19}")
_MAX_FIELDS = 16
_PARAMETERS = ("from", "to", "isolation", "objects", "segment")


@dataclass(frozen=True, slots=True)
class SegmentsQuery:
    """Segments of one partition with an offset in [first_offset, stop_offset). `stop_offset` None: to the end.

    `kinds` are the objects to sign URLs of. `segment`: only the segment of this id.
    """

    topic: str
    partition: int
    first_offset: int = 0
    stop_offset: int | None = None
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    kinds: tuple[str, ...] = ()
    segment: Uuid | None = None


def parse_query(raw: bytes) -> list[tuple[str, str]]:
    """The fields of a query string, in order. Raises Refusal (400)."""
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError:
        raise _invalid("the query is not one of URL-encoded fields") from None


def parse_segments(topic: str, partition: str, fields: Sequence[tuple[str, str]]) -> SegmentsQuery:
    """The request of a path and a query. Raises Refusal (400), for a topic's name with Kafka's own code."""
    if not is_topic_name(topic):
        raise Refusal(400, "INVALID_TOPIC_EXCEPTION", f"a topic's name has {TOPIC_NAME_RULE}")
    values: dict[str, str] = {}
    for name, value in fields:
        if name not in _PARAMETERS:
            raise _invalid(f"the query has a parameter that is none of {', '.join(_PARAMETERS)}")
        if name in values:
            raise _invalid(f"{name} is given twice")
        values[name] = value
    number = _number("the partition", partition, 2**31 - 1)
    first = _number("from", values["from"], MAX_OFFSET) if "from" in values else 0
    stop = _number("to", values["to"], MAX_OFFSET + 1) if "to" in values else None
    if stop is not None and stop < first:
        raise _invalid(f"to={stop} lies before from={first}")
    kinds = _kinds(values["objects"]) if "objects" in values else ()
    segment = _segment(values["segment"]) if "segment" in values else None
    if segment is not None and not kinds:
        raise _invalid("segment= asks for the objects of one segment: name them in objects=")
    return SegmentsQuery(topic, number, first, stop, _isolation(values.get("isolation")), kinds, segment)


def _number(name: str, text: str, most: int) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > most:
        raise _invalid(f"{name} has to be a whole number of 0 to {most}")
    return int(text)


def _isolation(text: str | None) -> IsolationLevel:
    try:
        return IsolationLevel.READ_UNCOMMITTED if text is None else IsolationLevel(text)
    except ValueError:
        raise _invalid(f"isolation has to be {' or '.join(level.value for level in IsolationLevel)}") from None


def _kinds(text: str) -> tuple[str, ...]:
    if text == "all":
        return OBJECT_KINDS
    wanted = {name.replace("_", "-") for name in text.split(",")}
    if not wanted <= set(OBJECT_KINDS):
        raise _invalid(f"objects has to be `all` or a comma list of {', '.join(OBJECT_KINDS)}")
    return tuple(kind for kind in OBJECT_KINDS if kind in wanted)


def _segment(text: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except ValueError:
        raise _invalid("segment has to be a segment's id: 22 characters of base64url") from None


def _invalid(message: str) -> Refusal:
    return Refusal(400, "INVALID_REQUEST", message)
