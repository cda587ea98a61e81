"""A service on loopback that gives the answers a test has written down, as JSON, and notes what it was asked.

Rules of the file:

- The real service is in tests/service and tests/rig. This one does what the real one cannot be made to do.
- The threads end with the context.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from remote_fetch.model import RemoteLogSegmentMetadata, TopicIdPartition
from tests.answering import Quiet, serving

__all__ = ["Question", "Reply", "ScriptedService", "page", "scripted_service", "segment_json"]


class Question(str):
    """The path and query of a request. `headers` have names in lower case."""

    headers: Mapping[str, str]

    @classmethod
    def of(cls, path: str, headers: Mapping[str, str]) -> Question:
        """The question of a request."""
        question = cls(path)
        question.headers = headers
        return question


@dataclass(frozen=True)
class Reply:
    """One answer. `drip_s`: each byte comes alone, after such a pause. `cut`: only so many bytes of the body come."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    drip_s: float = 0.0
    cut: int | None = None


@dataclass
class ScriptedService:
    """`answer` gives the reply to a question. `asked` are the paths and the headers in lower case."""

    answer: Callable[[Question], Reply]
    url: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    connections: int = 0


@contextmanager
def scripted_service(answer: Callable[[Question], Reply]) -> Iterator[ScriptedService]:
    """A running service."""
    service = ScriptedService(answer)

    class Handler(Quiet):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def setup(self) -> None:
            super().setup()
            service.connections += 1

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            service.asked.append((self.path, headers))
            reply = service.answer(Question.of(self.path, headers))
            head = {"Content-Length": str(len(reply.body)), **reply.headers}
            lines = [f"HTTP/1.1 {reply.status} -", *(f"{name}: {value}" for name, value in head.items())]
            whole = "\r\n".join([*lines, "", ""]).encode() + reply.body[: reply.cut]
            self.close_connection = reply.cut is not None
            try:
                for at in range(len(whole)) if reply.drip_s else ():
                    self.wfile.write(whole[at : at + 1])
                    time.sleep(reply.drip_s)
                if not reply.drip_s:
                    self.wfile.write(whole)
            except OSError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    with serving(server) as service.url:
        yield service


def segment_json(segment: RemoteLogSegmentMetadata, **more: object) -> dict[str, object]:
    """A segment as the service writes it."""
    custom = segment.custom_metadata
    return {
        "id": str(segment.segment_id.id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "broker_id": segment.broker_id,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "event_timestamp_ms": segment.event_timestamp_ms,
        "leader_epochs": [[entry.epoch, entry.start_offset] for entry in segment.segment_leader_epochs],
        "size_bytes": segment.segment_size_in_bytes,
        "custom_metadata": None if custom is None else base64.b64encode(custom).decode(),
        "txn_index_empty": segment.txn_index_empty,
        **more,
    }


def page(partition: TopicIdPartition, segments: list[Any], next_offset: int | None = None, /, **more: object) -> bytes:
    """A page of segments, which are metadata or objects of JSON."""
    entries = [segment_json(one) if isinstance(one, RemoteLogSegmentMetadata) else one for one in segments]
    return json.dumps(
        {
            "topic": partition.topic,
            "topic_id": str(partition.topic_id),
            "partition": partition.partition,
            "next": next_offset,
            "segments": entries,
            "orphan_updates": 0,
            "malformed_records": 0,
            **more,
        }
    ).encode()
