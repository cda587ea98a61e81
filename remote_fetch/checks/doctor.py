"""Finds out why a set-up does not work, from nothing but brokers and a URL, and how much a reader of a topic gains.

Rules of the file:

- The order is: brokers, topic, fetcher, list, metadata, segment, index, offsets, advice, sample. A check that needs
  what an earlier one did not find is left out, or skipped with the reason.
- A better value that a check finds is used by the later checks. If the user had set the key, the check fails.
- A store that refuses to list and lets read is no failure if brokers tell the segments. If they do not, and the
  store lists, its listing is used.
- Nothing is written, and no group is joined.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from confluent_kafka import KafkaException

from remote_fetch.checks.advice import advice
from remote_fetch.checks.broker_checks import Found, brokers_check, grant, layout_of_brokers, topic_checks
from remote_fetch.checks.check import Check, State, failed, tried
from remote_fetch.checks.gain import Gain, Tier, gain_of, open_tier, shape_of
from remote_fetch.checks.holes import holes_check
from remote_fetch.checks.storage_checks import (
    SEGMENT,
    Listed,
    listed,
    located,
    needs_no_listing,
    open_fetcher,
    segment_checks,
)
from remote_fetch.config import Config
from remote_fetch.errors import RemoteFetchError, StorageDenied
from remote_fetch.failures.broker_errors import BrokerStalled, broker_says
from remote_fetch.fetch.broker_file import complete
from remote_fetch.hosts import shown_url
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.listing import ListingLocator
from remote_fetch.locate.unreadable import Denied
from remote_fetch.model import IsolationLevel, RemoteLogSegmentMetadata
from remote_fetch.observe import Event, Notice
from remote_fetch.session.brokers import make_cluster
from remote_fetch.session.session import Session

__all__ = ["Doctor"]

_LAYOUT = "remote.storage.layout"
_SERVERS = "bootstrap.servers"
_LOCATOR, _LISTING, _SERVICE = "remote.locator", "listing", "service"
_BROKER_TIMEOUT, _LONGEST_WAIT_MS = "fetch.remote.broker.timeout.ms", 20_000
_SETUP_TIMEOUT, _LONGEST_SETUP_MS = "socket.connection.setup.timeout.ms", 10_000
_MOST_CORRECTIONS = 3
_NOT_COPIED = (
    "A broker copies a segment after it has closed it and all its records are committed: see segment.ms, segment.bytes "
    "and the last stable offset"
)
_NO_LISTING = (
    "a reader with brokers needs no listing. `ls`, `audit` and reads without brokers do: grant s3:ListBucket, or what "
    "the store calls it"
)
_OF_BROKERS = (
    "the store gives a reader what the brokers do not give: their logs tell what they lack. If the URL is that of a "
    "copy, `remote-fetch audit` with the URL of the brokers names the objects that they have lost"
)
_ASK_THE_SERVICE = "Check remote.locator.url, and /readyz and the log of `remote-fetch serve` there"


class Doctor:
    """One examination of `configs`, as users write them. Thread-confined.

    After `checks` has ended, `configs` has the better values that were found, and `topic` the topic that was chosen.
    `can_read`: the head of a segment was read. `tier` and `gain` are None if the examination did not come so far.
    """

    def __init__(
        self,
        configs: Mapping[str, Any],
        topic: str | None,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        sample_bytes: int,
        dice: random.Random,
    ) -> None:
        self.configs = dict(configs)
        self.topic = topic
        self.can_read = False
        self.tier: Tier | None = None
        self.gain: Gain | None = None
        self._isolation, self._sample_bytes, self._dice = isolation, sample_bytes, dice
        self._given = frozenset(configs)
        self._cluster: Cluster | None = None
        self._found: Found | None = None
        self._notices: list[str] = []

    def checks(self) -> Iterator[Check]:
        """All checks, in order. Raises ConfigError for a configuration that cannot be understood."""
        properties = self._config().librdkafka
        if _SERVERS not in properties:
            yield Check("brokers", State.SKIPPED, "none are configured", "Name the brokers: -b HOST:PORT")
            yield from self._examine_storage()
            return
        # librdkafka's default of 30 s is for services whose brokers may still be starting.
        properties = {_SETUP_TIMEOUT: _LONGEST_SETUP_MS, **properties}
        with closing(make_cluster(properties, checks=True)) as cluster:
            check, is_reached = brokers_check(cluster)
            yield check
            if is_reached:
                self._cluster = cluster
                if self.topic is not None:
                    yield from self._examine_topic(cluster, self.topic)
                yield from self._compare_layout(cluster)
            yield from self._examine_storage()

    # ------------------------------------------------------------------------------------------------------- brokers

    def _examine_topic(self, cluster: Cluster, topic: str) -> Iterator[Check]:
        self._found = yield from topic_checks(cluster, topic, self._config().librdkafka)

    def _compare_layout(self, cluster: Cluster) -> Iterator[Check]:
        """Take the layout from the brokers' storage plug-in, if they show it and it is known."""
        manager, layout = layout_of_brokers(cluster)
        if manager is None or self._config().settings.fetcher_class is not None:
            return
        if layout is None:
            hint = "Write one (docs: write-a-fetcher), or set remote.storage.fetcher.class to one that is installed"
            yield Check("plug-in", State.ADVICE, f"the brokers write with {manager}, which no layout knows", hint)
            return
        text = f"the brokers write with {manager}, whose layout is {layout!r}"
        yield self._corrected("plug-in", text, _LAYOUT, layout)

    # ------------------------------------------------------------------------------------------------------- storage

    def _examine_storage(self) -> Iterator[Check]:
        for _ in range(_MOST_CORRECTIONS):
            config = self._config()
            check, fetcher = tried("fetcher", config.settings.storage_url, partial(open_fetcher, config))
            if fetcher is None:
                yield check
                return
            with closing(fetcher):
                found = listed(config, fetcher, self._readable_topic, has_broker=self._cluster is not None)
            if found.better is None or self.configs.get(found.better[0]) == found.better[1]:
                break
            yield self._corrected("list", found.check.text, *found.better)
        yield check
        yield from self._examine_reading(found)

    def _corrected(self, name: str, text: str, key: str, value: str) -> Check:
        """Use a better value from now on. The check fails if the user had set another one."""
        is_wrong = key in self._given and self.configs[key] != value
        self.configs[key] = value
        shown = shown_url(value) if "://" in value else value
        return Check(name, State.FAILED if is_wrong else State.OK, text, f"Set {key}={shown}" if is_wrong else None)

    @property
    def _readable_topic(self) -> str | None:
        """The topic, None if it was not given or cannot be read: then any topic shows whether the store can be."""
        return None if self._found is not None and not self._found.is_readable else self.topic

    def _examine_reading(self, found: Listed) -> Iterator[Check]:
        check, session = tried("locator", None, self._open_session)
        if session is None:
            yield check
            return
        with session:
            if session.brokers is None or self.configs.get(_LOCATOR) == _LISTING:
                yield found.check
                segment = found.segment
                if session.brokers is None and needs_no_listing(session.config, has_broker=False):
                    check, segment = self._metadata(session)
                    yield check
            else:
                segment = yield from self._examine_metadata(session, found)
                if self.configs.get(_LOCATOR) == _LISTING:
                    yield from self._examine_reading(found)
                    return
                if segment is None:
                    return
            for check in segment_checks(session, segment):
                self.can_read = self.can_read or (check.name == SEGMENT and check.state is State.OK)
                yield check
            if session.brokers is not None and found.error is not None:
                yield self._refused_listing(found)
            if self.can_read and segment is not None:
                yield from self._examine_gain(session, segment)

    def _examine_metadata(
        self, session: Session, found: Listed
    ) -> Generator[Check, None, RemoteLogSegmentMetadata | None]:
        """The checks of listing and metadata, which may know different segments. Returns a segment to read.

        If the metadata topic may not be read and the bucket may be listed, the next session lists.
        """
        check, segment = self._metadata(session)
        if _is_lost(session) and found.segment is not None:
            self.configs[_LOCATOR] = _LISTING
            yield check
            return None
        is_empty = check.state is State.OK and segment is None
        if found.error is None and not (is_empty and found.segment is None):
            yield found.check
        if is_empty:
            text = f"the brokers have copied no segment of {self._readable_topic or 'any topic'} to the tier yet"
            yield Check("metadata", State.ADVICE, text, _NOT_COPIED)
            return None
        yield check
        return segment or found.segment

    def _open_session(self) -> tuple[str, Session]:
        """A session that reads all that is in the tier, local or not. Without brokers if none could be reached."""
        # By default a read waits for a broker without end: an examination has to.
        config = {_BROKER_TIMEOUT: _LONGEST_WAIT_MS, **self.configs, "fetch.remote.when": "always"}
        if self._cluster is None:
            config = {name: value for name, value in config.items() if name != _SERVERS}
        session = Session.open(config, self._observe)
        return session.configured_locator.name, session

    def _observe(self, event: Event) -> None:
        if isinstance(event, Notice) and event.is_warning:
            self._notices.append(event.text)

    def _metadata(self, session: Session) -> tuple[Check, RemoteLogSegmentMetadata | None]:
        check, segment = tried("metadata", None, lambda: located(session, self._readable_topic))
        if _is_lost(session):
            config = self._config()
            text, topic = "; ".join(self._notices) or check.text, config.settings.locator_topic
            hint = f"list the bucket instead: {_LOCATOR}={_LISTING}"
            if config.settings.locator == _SERVICE:
                hint = _ASK_THE_SERVICE
            elif session.configured_locator.failure is Denied:
                hint = f"{grant(config.for_locator(), topic, 'Describe', 'Read')}; or {hint}"
            elif check.hint is not None:
                hint = f"{check.hint}; or {hint}"
            return Check("metadata", State.FAILED, text, hint), None
        return check, segment

    def _refused_listing(self, found: Listed) -> Check:
        if self.can_read and self._cluster is not None and isinstance(found.error, StorageDenied):
            return Check("list", State.ADVICE, found.check.text, _NO_LISTING)
        return found.check

    # ---------------------------------------------------------------------------------------------------------- gain

    def _examine_gain(self, session: Session, segment: RemoteLogSegmentMetadata) -> Iterator[Check]:
        if self._found is not None and not self._found.is_readable:
            return
        if self.topic is None:
            topic = segment.topic_id_partition.topic
            if self._cluster is not None and topic not in self._cluster.names():
                text = f"{topic} is deleted, or another cluster's, or this principal may not describe it"
                yield Check("topic", State.SKIPPED, text, "Name a topic: -t TOPIC")
                return
            self.topic = topic
            if self._cluster is not None:
                yield from self._examine_topic(self._cluster, self.topic)
                if self._found is not None and not self._found.is_readable:
                    return
        try:
            before = len(self._notices)
            self.tier = open_tier(session, self.topic, self._isolation)
            yield from self._lost_logs(session, before)
            check = holes_check(self.tier, has_broker=session.brokers is not None)
            if check is not None:
                yield check
            chunk_bytes = session.chunk_size(segment)
            settings = (self._found.settings if self._found is not None else None) or {}
            yield from advice(settings, shape_of(session, self.tier, chunk_bytes))
            if self._cluster is not None:
                yield self._sample(session, self.tier)
        except RemoteFetchError as error:
            yield failed("sample", self._config().settings.storage_url, error)
        except KafkaException as error:
            yield _unanswered(error)

    def _lost_logs(self, session: Session, before: int) -> Iterator[Check]:
        """The warnings of a listing that came behind the first `before` ones."""
        if session.configured_locator.name == ListingLocator.__name__:
            for text in dict.fromkeys(self._notices[before:]):
                yield Check("offsets", State.ADVICE, text)

    def _sample(self, session: Session, tier: Tier) -> Check:
        if not tier.offsets:
            session.configured_locator.check()  # no segment may be known because the metadata topic cannot be read
            text = "no offsets are in the tier that this reader may read"
            return Check("sample", State.SKIPPED, text, "Wait until the brokers have copied a segment")
        gain = self.gain = gain_of(session, tier, self._sample_bytes, self._dice)
        finding = gain.finding
        if finding is None:
            text = f"{gain.store.records} records of {gain.offsets} offsets are alike both ways ({self._isolation})"
            without_headers = next((one.text for verdict in gain.verdicts for one in verdict.without_headers), None)
            text += "" if without_headers is None else f", some of them without headers: {without_headers}"
            return Check("sample", State.OK, text)
        if finding.is_aborted_shown:
            text = "the brokers show records of aborted transactions, which the store's reader leaves out (KAFKA-17801)"
            return Check("sample", State.FAILED, text, "Upgrade the brokers to Kafka 3.9.1 or later")
        if finding.is_of_broker:
            return _silent(finding.text)
        difference = finding.difference
        what = finding.text if difference is None else f"offset {difference.offset}: {difference.text}"
        text = f"store and brokers differ in {finding.step.partition.topic_partition}, {what}"
        return Check("sample", State.FAILED, text, f"See all with: remote-fetch verify -t {self.topic}")

    def _config(self) -> Config:
        return complete(Config.parse(self.configs)).config


def _is_lost(session: Session) -> bool:
    """Whether segments cannot be located. A session that is asked for all topics raises the failure, and goes on."""
    return session.configured_locator.unlocated is not None or session.configured_locator.failure is not None


def _unanswered(error: KafkaException) -> Check:
    """The check of a sample that the brokers refuse, or of which they give no records within the longest wait."""
    if isinstance(error, BrokerStalled):
        return _silent(error.args[0].str())
    return Check("sample", State.FAILED, broker_says(error))


def _silent(text: str) -> Check:
    return Check("sample", State.FAILED, text, _OF_BROKERS)
