"""Vended access, end to end: a client that has neither a key to the bucket nor READ on the metadata topic.

Rules of the file:

- The broker is the oracle. A read gives its records, whatever becomes of the service.
- The service, the broker and the S3 server are real processes. A relay edits answers where the service is to lie.
- A read in whose middle something happens is drawn batch by batch, and little is fetched ahead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
from confluent_kafka import KafkaError, KafkaException

import remote_fetch
from remote_fetch.locate import service_locator
from remote_fetch.locate.cluster import Cluster
from remote_fetch.observe import Report
from tests.rig import topics
from tests.rig.acls import allow, revoke_all
from tests.rig.consumer_faults import Delivered
from tests.rig.metrics import topic_metrics
from tests.rig.rig import VERSIONS
from tests.rig.test_read import ISOLATIONS, from_store, mixed_topic
from tests.rig.test_spark import rows, shown
from tests.rig.topics import OracleRecord
from tests.rig.vended import BELIEVED_S, Vended, halted, vended
from tests.spark.test_source import plain
from tests.stores.artifacts import MissingTool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, OTHER = "orders", "payments"
MIDDLE = 120
NO_GROUP = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
"""No consumer needs its group here, and librdkafka tells that it may not use it."""


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
    """TOPIC and OTHER, both wholly in the tier."""
    try:
        with vended(tmp_path_factory.mktemp("vended"), request.param) as running:
            for topic in (TOPIC, OTHER):
                mixed_topic(running.rig, topic)
                topics.wait_tiered(running.rig, topic)
            found = Scene(running)
            for isolation in ISOLATIONS:
                found.expected[isolation] = topics.broker_records(running.rig, TOPIC, 0, isolation)
            yield found
    except MissingTool as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def grants(scene: Scene) -> Iterator[None]:
    """The reader may READ the topic, and nothing else. The stranger may nothing."""
    allow(scene.vended.rig, "reader", "READ", TOPIC)
    yield
    revoke_all(scene.vended.rig, "reader")
    revoke_all(scene.vended.rig, "stranger")


def assert_all_from_the_store(report: Report) -> None:
    assert (report.broker_records, report.fallbacks) == (0, {})
    assert report.remote_gets > 0


def test_the_client_has_no_other_way(scene: Scene) -> None:
    """Else the other tests would prove nothing."""
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


@pytest.mark.parametrize("isolation", ISOLATIONS)
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


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_tasks_of_spark(scene: Scene, isolation: str) -> None:
    """Each task opens a session of its own, with the plan of the driver."""
    found, report = rows(spark_options(scene, isolation))
    assert found == shown(scene.expected[isolation])
    assert_all_from_the_store(report)


@pytest.mark.scheduled
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_job_of_spark(scene: Scene, spark: SparkSession, isolation: str) -> None:
    found = plain(spark.read.format("kafka_remote").options(**spark_options(scene, isolation)).load().collect())
    own = [(*row[2:6], row[0], topics.shortened(row[1]), row[7]) for row in found]
    assert own == shown(scene.expected[isolation])


@pytest.mark.parametrize("operation", [None, "DESCRIBE"])
def test_a_principal_without_read(scene: Scene, operation: str | None) -> None:
    """It gets the broker's refusal from every face, and no URL from the service itself."""
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
    """Who may not even describe the topic waits, as with a plain consumer; so the principal may describe it."""
    allow(scene.vended.rig, "stranger", "DESCRIBE", TOPIC)
    with Delivered.by(scene.config("stranger"), TOPIC, 0, tolerated=NO_GROUP) as delivered:
        with pytest.raises(KafkaException) as raised:
            delivered.until(lambda: len(delivered.records) > 0)
        metrics = delivered.consumer.remote_metrics()
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert set(metrics["remote-fetch-fallbacks-by-reason"]) == {"unauthorized"}
    assert (metrics["remote-fetch-requests-total"], metrics["broker-records-total"]) == (0, 0)


def asked(scene: Scene, user: str, path: str) -> tuple[int, bytes]:
    """The answer of the service to a bare request of a principal."""
    client = scene.vended.rig.secured_client(user)
    headers = urllib3.make_headers(basic_auth=f"{user}:{client['sasl.password']}")
    with urllib3.PoolManager(ca_certs=str(scene.vended.certificates.authority)) as pool:
        answer = pool.request("GET", scene.vended.url + path, headers=headers, timeout=30)
        return answer.status, answer.data


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_permission_withdrawn_in_the_middle(scene: Scene, isolation: str) -> None:
    """What URLs that were given before lead to may come. Then the broker's refusal comes."""

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
    """The URLs of one segment live for a second, and the first question for new ones is answered with the old ones."""
    asks: list[Any] = []
    client, middle = scene.vended.s3.client(), first_after(scene, MIDDLE)

    def edit(path: str, answer: Any) -> Any:
        first = answer["segments"][0] if "objects=" in path else {}
        if first.get("start_offset") != middle:
            return answer
        if not asks:
            for name in first["objects"]:
                place = {"Bucket": "tier", "Key": name}
                first["objects"][name] = client.generate_presigned_url("get_object", Params=place, ExpiresIn=1)
        asks.append(answer if len(asks) != 1 else asks[0])
        return asks[-1]

    def wait() -> None:
        assert len(asks) == 1
        time.sleep(2.1)

    with scene.vended.edited(edit) as relay, halted(MIDDLE, wait) as store:
        config = scene.config(remote_locator_url=relay.url) | store
        found, report = from_store(config, TOPIC, "read_uncommitted")
    assert found == scene.expected["read_uncommitted"]
    assert len(asks) == 3
    assert_all_from_the_store(report)


def first_after(scene: Scene, offset: int) -> int:
    """The start offset of the first segment from an offset on."""
    folder = scene.vended.rig.remote / "kafka-tiered-storage"
    return min(start for path in folder.glob(f"{TOPIC}-0-*/*.log") if (start := int(path.name[:20])) >= offset)


def test_a_service_that_is_restarted_in_the_middle(scene: Scene) -> None:
    """The client waits for it: all comes from the store."""
    service, is_killed = scene.vended.service, threading.Event()

    def kill() -> None:
        service.kill()
        is_killed.set()

    with halted(MIDDLE, kill) as store, ThreadPoolExecutor(1) as reading:
        read = reading.submit(from_store, scene.config() | store, TOPIC, "read_uncommitted")
        assert is_killed.wait(30)
        service.start()  # in this thread: a process dies with the thread that started it
        found, report = read.result(60)
    assert found == scene.expected["read_uncommitted"]
    assert_all_from_the_store(report)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_service_that_is_killed_in_the_middle(scene: Scene, isolation: str) -> None:
    """Without it the broker goes on."""
    with halted(MIDDLE, scene.vended.service.kill) as store:
        patience = {"fetch.remote.read.timeout.ms": 2000}
        found, report = from_store(scene.config() | store | patience, TOPIC, isolation)
    scene.vended.service.start()
    assert found == scene.expected[isolation]
    assert report.remote_gets > 0
    assert (report.broker_records > 0) == (report.fallbacks != {})


def test_a_service_that_is_absent_at_first(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker serves, and one notice says why. When the service is there, the store serves."""
    monkeypatch.setattr(service_locator, "_REST_S", 0.2)
    expected = scene.expected["read_committed"]
    scene.vended.service.kill()
    config = scene.config(fetch_remote_read_timeout_ms=500)
    try:
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
    finally:
        if not scene.vended.service.is_running:
            scene.vended.service.start()


def swap_names(path: str, answer: Any) -> Any:
    """Objects of one segment under the id of the next."""
    segments = answer["segments"]
    objects = [segment.pop("objects", None) for segment in segments]
    for segment, other in zip(segments, objects[1:] + objects[:1], strict=True):
        if other is not None:
            segment["objects"] = other
    return answer
