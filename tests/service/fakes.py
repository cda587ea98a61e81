"""A service over a small log in memory, with a signer and brokers of its own.

Rules of the file:

- The service under test is the real one, from the HTTP request to the session. The store and the brokers' answers about
  principals are fakes.
- The signer makes no signature. It gives URLs that name what was signed, so that tests can see it.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.config import Config
from remote_fetch.errors import BrokerUnavailable
from remote_fetch.locate.cluster import Topic
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.service.app import Service
from remote_fetch.service.credentials import Credentials
from remote_fetch.service.settings import ServiceSettings
from remote_fetch.session.configured_locator import Planned
from remote_fetch.session.principals import Answer, CredentialsRefused
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import TOPIC_ID, LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment
from tests.locate.timelines import timeline_of
from tests.scan.bucket import Bucket

__all__ = [
    "PASSWORD", "SETTINGS", "FakeBrokers", "SigningBucket", "basic", "bearer", "log_with_aborts", "open_service",
]  # fmt: skip

PASSWORD = "correct-horse-battery"
SETTINGS = ServiceSettings(mechanisms=("SCRAM-SHA-512", "OAUTHBEARER"), ask_timeout_s=100.0)


class SigningBucket(Bucket):
    """A bucket that signs. `name_of` gives the name of an object by its kind; `signed` has all
    names, in order, while `records`.
    """

    def __init__(self, segments: Iterable[BuiltSegment] = ()) -> None:
        super().__init__(segments)
        self.signed: list[str] = []
        self.records = True
        self.name_of: Callable[[RemoteLogSegmentMetadata, str], str] = _name

    def sign(self, metadata: RemoteLogSegmentMetadata, kinds: Collection[str], expires_s: int) -> Mapping[str, str]:
        """As `ObjectSigner.sign`."""
        names = [self.name_of(metadata, kind) for kind in kinds]
        self.signed += names if self.records else ()
        return {name: f"https://bucket.invalid/{name}?expires={expires_s}&signature=5ecre7" for name in names}


def _name(metadata: RemoteLogSegmentMetadata, kind: str) -> str:
    partition = metadata.topic_id_partition
    folder = f"{partition.topic}-{partition.partition}-{partition.topic_id}"
    return f"{folder}/{metadata.start_offset:020d}-{metadata.segment_id.id}.{kind}"


@dataclass
class FakeBrokers:
    """The answers of brokers to principals. `asked` has the questions; `away`: they do not answer. `gate` holds
    answers back, those to `held` alone if that has names.
    """

    users: dict[str, str] = field(default_factory=lambda: {"alice": PASSWORD, "bob": PASSWORD, "carol": PASSWORD})
    readers: set[str] = field(default_factory=lambda: {"alice", "carol"})
    describers: set[str] = field(default_factory=lambda: {"bob"})
    partitions: tuple[int, ...] = (0, 1)
    away: bool = False
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    held: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.gate.set()

    def ask(self, credentials: Credentials, topic: str | None) -> Answer:
        """As `ask_as`."""
        self.asked.append((credentials.name, topic))
        if not self.held or credentials.name in self.held:
            assert self.gate.wait(200)
        if self.away:
            raise BrokerUnavailable("no broker answers at bootstrap.servers=127.0.0.1:1")
        if self.users.get(credentials.name) != credentials.secret and not credentials.secret.endswith(".good"):
            raise CredentialsRefused("SASL authentication error")
        if topic is None:
            return None
        if credentials.name not in self.readers | self.describers:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        if topic != "topic":
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return Topic(topic, TOPIC_ID, self.partitions, may_read=credentials.name in self.readers)


def basic(user: str = "alice", password: str = PASSWORD) -> dict[str, str]:
    """The header of a user and password."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    """The header of a token."""
    return {"Authorization": f"Bearer {token}"}


def log_with_aborts(segments: int = 4) -> LogBuilder:
    """A log whose every segment has a plain record, an aborted transaction and a committed one."""
    log = LogBuilder()
    for _ in range(segments):
        log.append_batch([Record(0, 0, b"k", b"plain", ())])
        for end in (log.abort, log.commit):
            log.begin(7)
            log.append_batch([Record(0, 0, b"k", b"transactional", ())], producer_id=7)
            end(7)
        log.roll()
    return log


@contextmanager
def open_service(
    bucket: SigningBucket,
    brokers: FakeBrokers | None = None,
    *,
    timelines: Iterable[Timeline] | None = None,
    config: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Iterator[Service]:
    """A service over the bucket, whose metadata is as exact as a broker's."""
    if timelines is None:
        found: dict[Any, list[RemoteLogSegmentMetadata]] = {}
        for metadata in bucket.metadata:
            found.setdefault(metadata.topic_id_partition, []).append(metadata)
        timelines = [timeline_of(partition, segments) for partition, segments in found.items()]
    planned = Planned(tuple(timelines), frozenset(), {})
    with Session(Config.parse(config or {}), bucket, planned=planned) as session:
        service = Service(session, replace(SETTINGS, **settings), (brokers or FakeBrokers()).ask)
        try:
            yield service
        finally:
            service.close()
