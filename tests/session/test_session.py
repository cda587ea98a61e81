"""Opening and closing: what is refused, and that nothing stays behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import BrokerUnavailable, Cancelled, ConfigError, LogTruncated, RemoteFetchError, Unlocatable
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.listing import ListingLocator
from remote_fetch.locate.locator import KnownTimelines
from remote_fetch.locate.metadata_replay import METADATA_TOPICS
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IndexType, TopicIdPartition
from remote_fetch.observe import Event, Notice, ignore
from remote_fetch.session import session as module
from remote_fetch.session.brokers import open_brokers
from remote_fetch.session.budgets import _BUDGETS
from remote_fetch.session.configured_locator import ConfiguredLocator, Planned
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import SegmentStore
from tests.scan.bucket import Bucket, MeetingBucket, plain_log, snapshot_config


def test_the_locators(tmp_path: Path) -> None:
    bucket = Bucket(plain_log().segments())
    with Session(Config.parse({}), bucket) as session:
        assert session.configured_locator.name == ListingLocator.__name__
    with Session(Config.parse(snapshot_config(bucket.metadata, tmp_path)), bucket) as session:
        assert session.configured_locator.name == KnownTimelines.__name__


def test_ends_of_listed_partitions_are_read_at_once() -> None:
    """A store that answers after 30 ms would make a topic of a hundred partitions wait for six seconds."""
    logs = [LogBuilder(partition=number) for number in range(3)]
    for log in logs:
        log.append_batch([Record(0, 0)])
        log.roll()
    bucket = MeetingBucket((each for log in logs for each in log.segments()), IndexType.OFFSET, 3)
    with Session(Config.parse({}), bucket) as session:
        found = all_at_once(session.locator.timeline, [log.topic_id_partition for log in logs])
    assert [timeline.end_offset for timeline in found] == [1, 1, 1]


def test_partitions_are_looked_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that wait for the end of the metadata topic share one reading, if all of them may wait for it."""
    partitions = [LogBuilder(partition=number).topic_id_partition for number in range(3)]
    meeting = threading.Barrier(3, timeout=60)

    class Meeting(KnownTimelines):
        def refresh(self, partition: TopicIdPartition) -> Timeline:
            meeting.wait()
            return super().refresh(partition)

    monkeypatch.setattr(ConfiguredLocator, "open", lambda *_: Meeting(()))
    with Session(Config.parse({}), Bucket(())) as session:
        found = all_at_once(session.locator.refresh, partitions)
    assert [timeline.partition for timeline in found] == partitions


def test_the_url_of_a_service_without_its_locator() -> None:
    said: list[Event] = []
    config = {"bootstrap.servers": "127.0.0.1:1", "remote.locator.url": "https://vending.example.org:8443"}
    with Session.open(config, said.append):
        pass
    (notice,) = (event.text for event in said if isinstance(event, Notice))
    assert notice.endswith("through the broker. To use remote.locator.url set remote.locator=service")


def test_a_fetcher_that_cannot_list() -> None:
    with pytest.raises(ConfigError, match=r"SegmentStore cannot list segments\. Set bootstrap\.servers") as raised:
        Session(Config.parse({}), SegmentStore())
    assert raised.value.key == "remote.locator"


def test_keys_for_tokens_are_checked_also_if_the_locator_gets_none(tmp_path: Path) -> None:
    config = {"remote.storage.url": str(tmp_path), "bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.tokn"):
        Session.open({**config, "sasl.oauthbearer.tokn.endpoint.url": "https://x"})


def test_a_snapshot_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs remote\.locator\.snapshot\.file"):
        Session(Config.parse({"remote.locator": "snapshot"}), Bucket())
    name = str(tmp_path / "none")
    with pytest.raises(ConfigError, match="No such file"):
        Session(Config.parse({"remote.locator": "snapshot", "remote.locator.snapshot.file": name}), Bucket())


def test_a_snapshot_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"anything but a snapshot")
    with pytest.raises(RemoteFetchError, match=r"object .*/file\]\. Check remote\.locator\.snapshot\.file"):
        Session(Config.parse({"remote.locator": "snapshot", "remote.locator.snapshot.file": str(file)}), Bucket())


def test_brokers_are_left_alone_where_a_listing_is_asked_for(tmp_path: Path) -> None:
    config = {"remote.storage.url": str(tmp_path), "bootstrap.servers": "localhost:1", "remote.locator": "listing"}
    with Session.open(config) as session:
        assert session.configured_locator.name == ListingLocator.__name__


def test_brokers_tell_the_partitions_for_the_rest_of_a_plan_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket has nothing of the topic any more, and a read that notices it can fall back."""
    partition = LogBuilder().topic_id_partition
    described = Topic(partition.topic, partition.topic_id, (partition.partition,), may_read=True)
    monkeypatch.setattr(Cluster, "describe", lambda self, name, **_: described)
    config = Config.parse({"bootstrap.servers": "127.0.0.1:1", "remote.locator": "listing", "log_level": 0})
    with Session(config, Bucket(), planned=Planned((), frozenset(), {})) as session:
        assert session.locator.refresh(partition).segments == ()
    with Session(config, Bucket(), planned=Planned((), frozenset(), {}, may_be_cut=False)) as session:
        assert session.brokers is not None
        with pytest.raises(LogTruncated):
            session.brokers.guard.cut_short(partition, 7, 9, 7)


@pytest.mark.parametrize(
    ("policy", "skips"), [("EARLIEST", True), ("beginning", True), ("Smallest", True), ("latest", False), (None, False)]
)
def test_deleted_records_are_skipped_as_librdkafka_reads_the_policy(policy: str | None, skips: bool) -> None:
    properties = {"bootstrap.servers": "127.0.0.1:9"} | ({} if policy is None else {"auto.offset.reset": policy})
    brokers = open_brokers(
        properties, Config.parse({}).settings, ignore, shared=True, log_starts=None, may_be_cut=False
    )
    assert brokers is not None
    assert brokers.guard._skips is skips
    brokers.cluster.close()


def test_events_go_to_the_counters_and_to_the_observer() -> None:
    heard: list[Event] = []
    with Session(Config.parse({}), Bucket(), heard.append) as session:
        session.observe(Notice("a word"))
        assert "a word" in session.counters.report().notices
    assert Notice("a word") in heard


def test_the_last_answer_is_that_of_the_store_or_of_a_broker() -> None:
    with Session(Config.parse({}), Bucket(plain_log().segments())) as session:
        assert session.answered_s == 0
        session.locator.partitions("topic")
        (partition,) = session.locator.partitions("topic")
        session.locator.timeline(partition)
        assert session.answered_s == session.reader.answered_s > 0
    with Session.open({"bootstrap.servers": "127.0.0.1:1"}, shared=True) as session:
        assert session.brokers is not None
        session.brokers.cluster.answered()
        assert session.answered_s == session.brokers.cluster.answered_s > 0


def test_closing(tmp_path: Path) -> None:
    before = threading.active_count()
    bucket = Bucket(plain_log().segments())
    session = Session(Config.parse({}), bucket)
    session.locator.timeline(session.locator.partitions("topic")[0])
    assert threading.active_count() > before
    session.close()
    session.close()
    assert bucket.closed
    assert threading.active_count() == before


class Stubborn(Bucket):
    """A fetcher whose `close` raises."""

    def close(self) -> None:
        raise OSError("a connection that was closed before")


def test_a_fetcher_that_cannot_be_closed_keeps_nothing_else_open() -> None:
    before = threading.active_count()
    config = {"bootstrap.servers": "127.0.0.1:1", "fetch.remote.max.gets.per.second": "7"}
    session = Session(Config.parse(config), Stubborn(), shared=True)
    assert (len(_BUDGETS), len(METADATA_TOPICS)) == (1, 1)
    with pytest.raises(OSError, match="closed before"):
        session.close()
    assert (len(_BUDGETS), len(METADATA_TOPICS)) == (0, 0)
    assert session.brokers is not None
    with pytest.raises(Cancelled):
        session.brokers.cluster.describe("t")
    assert threading.active_count() == before
    session.close()


def test_what_was_opened_is_closed_if_the_brokers_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ImportError("librdkafka")

    monkeypatch.setattr(module, "open_brokers", refuse)
    bucket = Bucket()
    with pytest.raises(ImportError, match="librdkafka"):
        Session(Config.parse({"fetch.remote.max.gets.per.second": "7"}), bucket)
    assert bucket.closed
    assert len(_BUDGETS) == 0


def test_what_was_opened_is_closed_if_the_observer_fails() -> None:
    """An error of an observer ends a read. It gets the first events while the session opens."""

    def fail(event: Event) -> None:
        raise ValueError("a dashboard is down")

    with pytest.raises(ValueError, match="a dashboard is down"):
        Session.open({"bootstrap.servers": "127.0.0.1:1", "fetch.remote.max.gets.per.second": "7"}, fail, shared=True)
    assert len(_BUDGETS) == 0


def test_a_session_of_a_checked_configuration(tmp_path: Path) -> None:
    Session.open(Config.parse({"remote.storage.url": str(tmp_path)})).close()


def shared(tmp_path: Path, **more: str) -> Session:
    keys = {name if "." in name else name.replace("_", "."): value for name, value in more.items()}
    return Session.open({"remote.storage.url": str(tmp_path), "bootstrap.servers": "localhost:1", **keys}, shared=True)


def test_consumers_of_a_process_read_the_metadata_topic_together(tmp_path: Path) -> None:
    first, second, other = shared(tmp_path), shared(tmp_path), shared(tmp_path, client_id="other")
    assert len(METADATA_TOPICS) == 2
    other.close()
    first.close()
    first.close()
    assert len(METADATA_TOPICS) == 1
    second.close()
    assert len(METADATA_TOPICS) == 0


def test_other_credentials_are_never_shared(tmp_path: Path) -> None:
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "me"}
    with shared(tmp_path, **sasl, sasl_password="old") as one, shared(tmp_path, **sasl, sasl_password="old") as two:
        assert len(METADATA_TOPICS) == 1
        one.set_sasl_credentials("me", "new")
        assert len(METADATA_TOPICS) == 2
        two.set_sasl_credentials("me", "new")
        assert len(METADATA_TOPICS) == 1
    assert len(METADATA_TOPICS) == 0


@pytest.mark.parametrize("is_shared", [False, True])
def test_brokers_of_the_metadata_topic_that_are_away_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], is_shared: bool
) -> None:
    """librdkafka's own lines would be hundreds, and no error would name the address.

    The name has an empty label. So no server of names is asked, which may take seconds.
    """
    partition = LogBuilder().topic_id_partition
    away = {"bootstrap.servers": "nowhere..invalid:1", "socket.connection.setup.timeout.ms": "1000"}
    own = {f"remote.locator.{name}": value for name, value in away.items()}
    config = {"remote.storage.url": str(tmp_path), "bootstrap.servers": "127.0.0.1:1", "log_level": "0", **own}
    heard: list[Event] = []
    with Session.open(config, heard.append, shared=is_shared) as session:
        assert session.locator.refresh(partition).segments == ()
        with pytest.raises(Unlocatable, match=r"metadata cannot be read: no broker answers at .*invalid:1: "):
            session.locator.partitions(None)
    (said,) = (event.text for event in heard if isinstance(event, Notice) and "__remote_log_metadata" in event.text)
    assert "no broker answers at remote.locator.bootstrap.servers=nowhere..invalid:1: " in said
    assert "Failed to resolve 'nowhere..invalid:1'" in said
    assert capfd.readouterr() == ("", "")


def test_brokers_that_are_away_are_an_error_of_their_own(tmp_path: Path) -> None:
    """They keep the metadata topic too, but it is not what is wrong."""
    away = {"bootstrap.servers": "127.0.0.1:1", "socket.connection.setup.timeout.ms": "1000"}
    with Session.open({"remote.storage.url": str(tmp_path), **away}) as session, pytest.raises(BrokerUnavailable):
        session.locator.partitions(None)


def test_readers_share_only_one_metadata_topic_and_one_place_to_save_it(tmp_path: Path) -> None:
    cache = {"remote_locator_cache": str(tmp_path / "cache")}
    with shared(tmp_path), shared(tmp_path, **cache), shared(tmp_path, **cache):
        assert len(METADATA_TOPICS) == 2
        with shared(tmp_path, remote_locator_topic="another", **cache):
            assert len(METADATA_TOPICS) == 3
        with shared(tmp_path, **{"remote.storage.options.auto_mkdir": "true"}, **cache):
            assert len(METADATA_TOPICS) == 3
    assert len(METADATA_TOPICS) == 0


def test_a_wrong_name_or_cache_leaves_nothing_behind(tmp_path: Path) -> None:
    threads = threading.active_count()
    for is_shared in (False, True):
        config = {"remote.storage.url": str(tmp_path), "bootstrap.servers": "localhost:1"}
        with pytest.raises(ConfigError, match=r"remote\.locator\.cache=nowhere://"):
            Session.open({**config, "remote.locator.cache": "nowhere://x"}, shared=is_shared)
        with pytest.raises(ConfigError, match=r"remote\.locator\.topic='a b': 1 to 249"):
            Session.open({**config, "remote.locator.topic": "a b"}, shared=is_shared)
    assert len(METADATA_TOPICS) == 0
    assert threading.active_count() == threads


def test_a_read_shares_nothing(tmp_path: Path) -> None:
    with Session.open({"remote.storage.url": str(tmp_path), "bootstrap.servers": "localhost:1"}):
        assert len(METADATA_TOPICS) == 0
