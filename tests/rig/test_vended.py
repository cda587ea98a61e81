"""Vended access, end to end. The client has no key to the bucket, and no READ on the metadata topic.

Rules of the file:

- The broker is the oracle. A read gives its records, also if the service fails or lies.
- The service, the broker and the S3 server are real processes. A relay edits the answers of a service that lies.
- If something happens in the middle of a read, the test takes one batch at a time, and little is fetched ahead.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
from confluent_kafka import KafkaError, KafkaException

import remote_fetch
from remote_fetch.errors import ConfigError
from remote_fetch.locate import service_locator
from remote_fetch.locate.cluster import Cluster
from remote_fetch.observe import Report
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.reader import read_task
from remote_fetch.spark.stream_driver import StreamDriver
from remote_fetch.spark.stream_limits import parse_trigger_limits
from tests.cases import each_of, of_a_change
from tests.rig import topics
from tests.rig.acls import allow, revoke_all
from tests.rig.consumer_faults import Delivered
from tests.rig.metrics import topic_metrics
from tests.rig.rig import VERSIONS
from tests.rig.test_read import ISOLATION_OF_A_CHANGE, ISOLATIONS, from_store, mixed_topic
from tests.rig.test_spark import rows, shown
from tests.rig.topics import OracleRecord
from tests.rig.vended import BELIEVED_S, Edit, Vended, halted, vended
from tests.spark.buckets import COLUMNS, rows_of
from tests.spark.test_source import plain
from tests.stores.artifacts import MissingTool
from tests.stores.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, OTHER = "orders", "payments"
MIDDLE = 120
URL_LIFE_S = 5
NO_GROUP = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
"""librdkafka reports that the consumer may not use its group. No consumer needs its group here."""


@dataclass
class Scene:
    """The running parts, and the broker's records of TOPIC by isolation level."""

    vended: Vended
    expected: dict[str, list[OracleRecord]] = field(default_factory=dict)

    def config(self, user: str = "reader", mechanism: str = "SCRAM-SHA-256", **more: Any) -> dict[str, Any]:
        return self.vended.config(user, mechanism, **more)


@pytest.fixture(scope="module", params=VERSIONS[:1])
def scene(
    request: pytest.FixtureRequest, needs_broker: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """All parts, with TOPIC and OTHER, both completely in the tier."""
    try:
        with vended(tmp_path_factory.mktemp("vended"), request.param) as running:
            for topic in (TOPIC, OTHER):
                mixed_topic(running.rig, topic)
            found = Scene(running)
            for isolation in ISOLATIONS:
                found.expected[isolation] = topics.broker_records(running.rig, TOPIC, 0, isolation)
            yield found
    except MissingTool as error:
        pytest.skip(str(error))


def let_run(service: Server) -> None:
    """Start the service if a test has killed it. Raises AssertionError if it has ended in another way."""
    assert not service.has_ended, f"the service has ended, and no test has killed it; its log:\n{service.log_tail()}"
    if not service.is_running:
        service.start()


@pytest.fixture(autouse=True)
def grants(scene: Scene) -> Iterator[None]:
    """The reader has only READ on the topic. The stranger has no permission.

    A question of the test before may have brought the service a refusal that it still keeps. A test may have killed
    the service. It must not end in another way.
    """
    service = scene.vended.service

    def is_allowed() -> bool:
        let_run(service)
        try:
            return asked(scene, "reader", f"/v1/topics/{TOPIC}/partitions/0/segments")[0] == 200
        except urllib3.exceptions.HTTPError:
            return False

    allow(scene.vended.rig, "reader", "READ", TOPIC)
    try:
        scene.vended.rig.until("the service allows it", is_allowed)
    except Exception as error:
        error.add_note(f"the end of {service.log_file}:\n{service.log_tail()}")
        raise
    yield
    revoke_all(scene.vended.rig, "reader")
    revoke_all(scene.vended.rig, "stranger")


def assert_all_from_the_store(report: Report) -> None:
    assert (report.broker_records, report.fallbacks) == (0, {})
    assert report.remote_gets > 0


def test_the_client_has_no_other_way(scene: Scene) -> None:
    """The client cannot read the bucket or the metadata topic. If it could, the other tests would prove nothing."""
    cluster = Cluster(scene.vended.rig.secured_client("reader"), timeout_ms=10_000)
    with pytest.raises(KafkaException) as raised:
        cluster.describe("__remote_log_metadata")
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    cluster.close()
    folder = scene.vended.rig.remote / "kafka-tiered-storage"
    name = next(folder.rglob("*.log")).relative_to(scene.vended.rig.remote)
    with urllib3.PoolManager(ca_certs=str(scene.vended.certificates.authority)) as pool:
        assert pool.request("GET", f"{scene.vended.s3.endpoint}/tier/{name}").status == 403


def test_read_arrow(scene: Scene) -> None:
    before = topic_metrics(scene.vended.rig, TOPIC)
    for isolation in ISOLATIONS:
        found, report = from_store(scene.config(), TOPIC, isolation)
        assert found == scene.expected[isolation]
        assert_all_from_the_store(report)
    used = topic_metrics(scene.vended.rig, TOPIC) - before
    assert (used.bytes_out, used.remote_fetch_bytes, used.remote_fetch_requests) == (0, 0, 0)


def test_a_token(scene: Scene) -> None:
    found, report = from_store(scene.config(mechanism="OAUTHBEARER"), TOPIC, "read_committed")
    assert found == scene.expected["read_committed"]
    assert_all_from_the_store(report)


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_a_consumer(scene: Scene, isolation: str) -> None:
    config = scene.config(isolation_level=isolation)
    with Delivered.by(config, TOPIC, 0, tolerated=NO_GROUP) as delivered:
        delivered.until(lambda: len(delivered.records) == len(scene.expected[isolation]))
        metrics = delivered.consumer.remote_metrics()
    assert delivered.records == scene.expected[isolation]
    assert not any(delivered.through_broker)
    assert (metrics["broker-records-total"], metrics["remote-fetch-fallbacks-by-reason"]) == (0, {})


def spark_options(scene: Scene, isolation: str) -> dict[str, str]:
    own = {name: str(value) for name, value in scene.config(isolation_level=isolation).items()}
    keys = {name if name.startswith(("remote.", "fetch.")) else f"kafka.{name}": value for name, value in own.items()}
    return {"subscribe": TOPIC, "includeHeaders": "true", "minPartitions": "5", **keys}


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_tasks_of_spark(scene: Scene, isolation: str) -> None:
    """Each task opens its own session, with the plan of the driver."""
    found, report = rows(spark_options(scene, isolation))
    assert found == shown(scene.expected[isolation])
    assert_all_from_the_store(report)


@pytest.mark.scheduled
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_job_of_spark(scene: Scene, spark: SparkSession, isolation: str) -> None:
    found = plain(spark.read.format("kafka_remote").options(**spark_options(scene, isolation)).load().collect())
    own = [(*row[2:6], row[0], topics.shortened(row[1]), row[7]) for row in found]
    assert own == shown(scene.expected[isolation])


@pytest.mark.parametrize("operation", of_a_change([None, "DESCRIBE"]))
def test_a_principal_without_read(scene: Scene, operation: str | None) -> None:
    """A principal without READ gets the broker's refusal from every face, and no URL from the service."""
    if operation is not None:
        allow(scene.vended.rig, "stranger", operation, TOPIC)
    config = scene.config("stranger")
    counters = remote_fetch.Counters()
    with pytest.raises(KafkaException) as raised:
        remote_fetch.read_arrow(TOPIC, config=config, observer=counters)
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    report = counters.report()
    assert (report.remote_gets, report.index_gets, report.broker_records) == (0, 0, 0)
    status, body = asked(scene, "stranger", f"/v1/topics/{TOPIC}/partitions/0/segments?objects=all")
    assert status == 403
    assert b"TOPIC_AUTHORIZATION_FAILED" in body
    assert b"://" not in body


def test_a_consumer_without_read(scene: Scene) -> None:
    """The principal may DESCRIBE the topic. Without DESCRIBE a consumer would wait, as a plain consumer does."""
    allow(scene.vended.rig, "stranger", "DESCRIBE", TOPIC)
    with Delivered.by(scene.config("stranger"), TOPIC, 0, tolerated=NO_GROUP) as delivered:
        with pytest.raises(KafkaException) as raised:
            delivered.until(lambda: len(delivered.records) > 0)
        metrics = delivered.consumer.remote_metrics()
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert set(metrics["remote-fetch-fallbacks-by-reason"]) == {"unauthorized"}
    assert (metrics["remote-fetch-requests-total"], metrics["broker-records-total"]) == (0, 0)


def asked(scene: Scene, user: str, path: str) -> tuple[int, bytes]:
    """The answer of the service to a plain HTTP request of a principal."""
    client = scene.vended.rig.secured_client(user)
    headers = urllib3.make_headers(basic_auth=f"{user}:{client['sasl.password']}")
    with urllib3.PoolManager(ca_certs=str(scene.vended.certificates.authority)) as pool:
        answer = pool.request("GET", scene.vended.url + path, headers=headers, timeout=150)
        return answer.status, answer.data


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_permission_withdrawn_in_the_middle(scene: Scene, isolation: str) -> None:
    """The reader may still use URLs that it has got before. Then the broker's refusal comes."""

    def withdraw() -> None:
        revoke_all(scene.vended.rig, "reader")
        time.sleep(2 * BELIEVED_S)

    counters = remote_fetch.Counters()
    with halted(MIDDLE, withdraw) as store, pytest.raises(KafkaException) as raised:
        remote_fetch.read_arrow(TOPIC, isolation=isolation, config=scene.config() | store, observer=counters).read_all()
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert counters.report().broker_records == 0
    assert 0 < counters.report().records < len(scene.expected[isolation])


def test_a_url_that_expires_in_the_middle_of_a_segment(scene: Scene) -> None:
    """The URLs of one segment expire after some seconds. The first request for new URLs gets the old ones.

    If the machine stands still before the begin of the segment is read, the next URLs expire as soon.
    """
    expiring: list[Any] = []
    later: list[Any] = []
    have_expired = threading.Event()
    client, middle = scene.vended.s3.client(), first_after(scene, MIDDLE)

    def edit(path: str, answer: Any) -> Any:
        first = answer["segments"][0] if "objects=" in path else {}
        if first.get("start_offset") != middle:
            return answer
        if have_expired.is_set():
            later.append(answer if later else expiring[-1])
            return later[-1]
        for name in first["objects"]:
            place = {"Bucket": "tier", "Key": name}
            first["objects"][name] = client.generate_presigned_url("get_object", Params=place, ExpiresIn=URL_LIFE_S)
        expiring.append(answer)
        return answer

    def wait() -> None:
        time.sleep(URL_LIFE_S + 1.1)
        have_expired.set()

    with scene.vended.edited(edit) as relay, halted(MIDDLE, wait) as store:
        config = scene.config(remote_locator_url=relay.url) | store
        found, report = from_store(config, TOPIC, "read_uncommitted")
    assert found == scene.expected["read_uncommitted"]
    assert expiring
    assert len(later) == 2
    assert_all_from_the_store(report)


def first_after(scene: Scene, offset: int) -> int:
    """The start offset of the first segment that begins at an offset or after it."""
    folder = scene.vended.rig.remote / "kafka-tiered-storage"
    return min(start for path in folder.glob(f"{TOPIC}-0-*/*.log") if (start := int(path.name[:20])) >= offset)


def test_a_service_that_is_restarted_in_the_middle(scene: Scene) -> None:
    """The client waits for the service, so that all records come from the store."""
    service, is_killed = scene.vended.service, threading.Event()

    def kill() -> None:
        service.kill()
        is_killed.set()

    with halted(MIDDLE, kill) as store, ThreadPoolExecutor(1) as reading:
        read = reading.submit(from_store, scene.config() | store, TOPIC, "read_uncommitted")
        assert is_killed.wait(150)
        service.start()  # in this thread: a process dies with the thread that started it
        found, report = read.result(60)
    assert found == scene.expected["read_uncommitted"]
    assert_all_from_the_store(report)


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_a_service_that_is_killed_in_the_middle(scene: Scene, isolation: str) -> None:
    """Without the service, the broker gives the remaining records."""
    with halted(MIDDLE, scene.vended.service.kill) as store:
        patience = {"fetch.remote.read.timeout.ms": 1000}
        found, report = from_store(scene.config() | store | patience, TOPIC, isolation)
    assert found == scene.expected[isolation]
    assert report.remote_gets > 0
    assert (report.broker_records > 0) == (report.fallbacks != {})


def test_a_service_that_is_absent_at_first(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker gives the records, and one notice tells why. After the service has started, the store gives them."""
    monkeypatch.setattr(service_locator, "_REST_S", 0.2)
    expected = scene.expected["read_committed"]
    scene.vended.service.kill()
    config = scene.config(fetch_remote_read_timeout_ms=2000)
    found, report = from_store(config, TOPIC, "read_committed")
    assert found == expected
    assert (report.remote_gets, set(report.fallbacks)) == (0, {"unlocatable"})
    assert len([text for text in report.notices if "the service cannot be reached" in text]) == 1
    with Delivered.by(config, TOPIC, 0, tolerated=NO_GROUP) as delivered:
        delivered.until(lambda: len(delivered.records) > 5)
        assert all(delivered.through_broker)
        scene.vended.service.start()
        delivered.seek(TOPIC, 0)
        delivered.until(lambda: len(delivered.records) == len(expected))
        assert delivered.records == expected
        assert not all(delivered.through_broker)


Lie = Callable[[Any], Any]
"""Changes a value of an answer. Returns another value, or None if it has changed the value in place."""


def shifted(name: str, by: int, at: int = 2) -> Lie:
    """Make a bound of one segment wrong."""

    def lie(segments: list[Any]) -> None:
        segments[at][name] += by

    return lie


def every(**fields: Any) -> Lie:
    """Set fields of all segments."""

    def lie(segments: list[Any]) -> None:
        for segment in segments:
            segment.update(fields)

    return lie


def exchange(segments: list[Any]) -> None:
    segments[1]["id"], segments[2]["id"] = segments[2]["id"], segments[1]["id"]


ABOUT_SEGMENTS: dict[str, Lie] = {
    "start low": shifted("start_offset", -5),
    "start high": shifted("start_offset", 5),
    "end low": shifted("end_offset", -5),
    "end high": shifted("end_offset", 5),
    "last end low": shifted("end_offset", -1, -1),
    "last end high": shifted("end_offset", 500, -1),
    "size low": every(size_bytes=100),
    "size high": every(size_bytes=1 << 40),
    "another leader": every(leader_epochs=[[7, 0]]),
    "no leader": every(leader_epochs=[]),
    "custom metadata": every(custom_metadata="AAAA"),
    "ids exchanged": exchange,
    "a segment less": lambda segments: segments[:2] + segments[3:],
    "twice": lambda segments: segments * 2,
    "none": lambda segments: [],
    "no order": lambda segments: segments[::-1],
}
ABOUT_ANSWERS: dict[str, Lie] = {
    "another topic id": lambda answer: {**answer, "topic_id": "AAAAAAAAAAAAAAAAAAAAAA"},
    "another topic": lambda answer: {**answer, "topic": OTHER},
    "another partition": lambda answer: {**answer, "partition": 1},
    "no end": lambda answer: {**answer, "next": 5},
    "a count below 0": lambda answer: {**answer, "orphan_updates": -1},
    "cut off": lambda answer: json.dumps(answer).encode()[:-20],
    "empty": lambda answer: b"",
}
ABOUT_OBJECTS: dict[str, Lie] = {
    "no objects": lambda objects: {},
    "no scheme": lambda objects: {name: url.partition("://")[2] for name, url in objects.items()},
    "a file": lambda objects: {name: f"file:///{name}" for name in objects},
    "no signature": lambda objects: {name: url.partition("?")[0] for name, url in objects.items()},
    "another bucket": lambda objects: {name: url.replace("/tier/", "/other/") for name, url in objects.items()},
    "one URL for all": lambda objects: dict.fromkeys(objects, next(iter(objects.values()))),
    "too many": lambda objects: {**objects, **{str(number): "" for number in range(100)}},
    "no URLs": list,
}
WITH_EVERY_CHANGE = ("start high", "end high", "last end high", "ids exchanged", "cut off", "one URL for all")
LIES = sorted((*ABOUT_SEGMENTS, *ABOUT_ANSWERS, *ABOUT_OBJECTS))


def told(what: str, path: str, answer: Any) -> Any:
    """Put one of LIES into an answer."""
    if "/segments" not in path:
        return answer
    if "objects=" in path:
        if what in ABOUT_OBJECTS:
            for segment in answer["segments"]:
                segment["objects"] = ABOUT_OBJECTS[what](segment["objects"])
    elif what in ABOUT_SEGMENTS:
        changed = ABOUT_SEGMENTS[what](answer["segments"])
        answer["segments"] = answer["segments"] if changed is None else changed
    elif what in ABOUT_ANSWERS:
        return ABOUT_ANSWERS[what](answer)
    return answer


def through(scene: Scene, isolation: str, edit: Edit) -> Report:
    """Read through edited answers, check that the records equal the broker's, and return the report."""
    edited: list[bool] = []

    def noted(path: str, answer: Any) -> Any:
        before = json.dumps(answer)
        after = edit(path, answer)
        edited.append(isinstance(after, bytes) or json.dumps(after) != before)
        return after

    with scene.vended.edited(noted) as relay:
        found, report = from_store(scene.config(remote_locator_url=relay.url), TOPIC, isolation)
    assert any(edited), "no lie was told"
    assert found == scene.expected[isolation]
    return report


@each_of("what", WITH_EVERY_CHANGE)
def test_a_service_that_lies(scene: Scene, what: str) -> None:
    through(scene, "read_committed", partial(told, what))


@pytest.mark.parametrize("limit", of_a_change([{"maxOffsetsPerTrigger": "110"}, {"maxBytesPerTrigger": "20000"}]))
def test_a_limited_stream_of_spark_with_a_service_that_lies(scene: Scene, limit: dict[str, str]) -> None:
    with scene.vended.edited(partial(told, "another topic")) as relay:
        given = {**spark_options(scene, "read_committed"), "remote.locator.url": relay.url, **limit}
        options = parse_options({**given, "startingOffsets": "earliest"})
        with closing(StreamDriver(options, parse_trigger_limits(limit))) as stream:
            at, found, batches = stream.initial(), [], 0
            while (end := stream.next_stop(at, is_limited=True)) != at:
                for task in stream.tasks(at, end):
                    found += [row[2] for row in rows_of(read_task(task, options.config, COLUMNS))]
                at, batches = end, batches + 1
    assert found == [one.offset for one in scene.expected["read_committed"]]
    assert batches > 1


@pytest.mark.scheduled
@pytest.mark.parametrize("isolation", ISOLATIONS)
@each_of("what", LIES)
def test_a_service_that_lies_in_every_way(scene: Scene, isolation: str, what: str) -> None:
    report = through(scene, isolation, partial(told, what))
    if what in ABOUT_ANSWERS:
        assert (report.remote_gets, set(report.fallbacks)) == (0, {"corrupt"})
    if what in ABOUT_OBJECTS:
        assert report.remote_gets == 0
        assert report.fallbacks


@pytest.fixture(scope="module")
def of_other(scene: Scene) -> list[Any]:
    """The segments of the other topic, with URLs. It is made before `grants`, so the service may not run."""
    let_run(scene.vended.service)
    allow(scene.vended.rig, "reader", "READ", OTHER)
    status, body = asked(scene, "reader", f"/v1/topics/{OTHER}/partitions/0/segments?objects=all")
    assert status == 200
    found: list[Any] = json.loads(body)["segments"]
    return found


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
@each_of("what", ["segments", "names", "URLs"])
def test_a_service_that_gives_another_topic(scene: Scene, of_other: list[Any], isolation: str, what: str) -> None:
    """The other topic has valid records at the same offsets. Only the object names show the difference."""

    def edit(path: str, answer: Any) -> Any:
        if what == "segments" and "segments" in answer:
            wanted = path.partition("segment=")[2]
            answer["segments"] = [one for one in of_other if wanted in ("", one["id"])]
        elif "objects=" in path:
            for segment in answer["segments"]:
                other = next(one for one in of_other if one["start_offset"] >= segment["start_offset"])["objects"]
                own = segment["objects"]
                segment["objects"] = other if what == "names" else dict(zip(own, other.values(), strict=True))
        return answer

    assert through(scene, isolation, edit).remote_gets == 0


def test_a_service_that_hides_aborted_transactions(scene: Scene) -> None:
    """The reader believes the service, as a broker believes its metadata, until a marker contradicts it."""
    expected, everything = (scene.expected[isolation] for isolation in ISOLATIONS)

    def edit(path: str, answer: Any) -> Any:
        if "objects=" not in path and "segments" in answer:
            every(txn_index_empty=True)(answer["segments"])
        return answer

    with scene.vended.edited(edit) as relay:
        found, report = from_store(scene.config(remote_locator_url=relay.url), TOPIC, "read_committed")
    assert set(report.fallbacks) == {"corrupt"}
    assert {record.offset for record in expected} <= {record.offset for record in found}
    assert [record for record in everything if record in found] == found


@each_of("layout", ["plain", "aiven", "no-such-layout"])
def test_a_service_that_is_wrong_about_the_layout(scene: Scene, layout: str) -> None:
    """The service's configuration is wrong. The read raises an error that names it, or falls back to the broker."""

    def edit(path: str, answer: Any) -> Any:
        return {"layout": layout} if path.endswith("/storage") else answer

    if layout == "aiven":  # it can be opened, and its objects are not there
        assert through(scene, "read_committed", edit).remote_gets == 0
        return
    with scene.vended.edited(edit) as relay, pytest.raises(ConfigError, match=f"names the layout '{layout}'"):
        from_store(scene.config(remote_locator_url=relay.url), TOPIC, "read_committed")
