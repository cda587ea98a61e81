"""The service's answers over HTTP: who gets what, in which words, and what is never given."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import httpx2 as httpx
import pytest
from starlette.testclient import TestClient

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, StorageUnavailable
from remote_fetch.model import OBJECT_KINDS, UNKNOWN_SIZE, IndexType, RemoteLogSegmentMetadata, Uuid
from remote_fetch.service.app import Service
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import TOPIC_ID
from remote_fetch.testing.segments import SegmentOptions
from tests.cases import each_of
from tests.eventually import eventually
from tests.locate.timelines import timeline_of
from tests.scan.bucket import Bucket, plain_log
from tests.service.fakes import (
    PASSWORD,
    SETTINGS,
    FakeBrokers,
    SigningBucket,
    basic,
    bearer,
    log_with_aborts,
    open_service,
)

SEGMENTS = "/v1/topics/topic/partitions/0/segments"


@pytest.fixture
def bucket() -> SigningBucket:
    return SigningBucket(log_with_aborts().tiered())


@contextmanager
def client_of(bucket: SigningBucket, brokers: FakeBrokers | None = None, **settings: Any) -> Iterator[TestClient]:
    with open_service(bucket, brokers, **settings) as service, TestClient(service.app) as client:
        yield client


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code, after a check of the form."""
    error = answer.json()["error"]
    assert set(error) == {"code", "message"}
    assert error["message"]
    assert answer.headers["cache-control"] == "no-store"
    return answer.status_code, error["code"]


def jwt(subject: str) -> str:
    import base64

    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, {"sub": subject})]
    return ".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), "good"])


@contextmanager
def one_waiting(client: TestClient, brokers: FakeBrokers) -> Iterator[None]:
    """A request of alice that waits for the brokers, whose gate is closed. At the end the gate opens."""
    waiting = threading.Thread(target=lambda: client.get(SEGMENTS, headers=basic()))
    waiting.start()
    try:
        assert eventually(lambda: bool(brokers.asked)), "the brokers were not asked"
        yield
    finally:
        brokers.gate.set()
        waiting.join()


class TestSegments:
    @pytest.mark.parametrize("first", [0, 15, 20])
    def test_the_real_ends_of_a_store_that_is_listed(self, first: int) -> None:
        """Two leaders have uploaded the same offsets. A listing guesses that a segment ends where the next begins."""
        log = plain_log()
        of_another_leader = log.segments(SegmentOptions(upload=1), cuts=[10, 20])
        bucket = SigningBucket([*log.segments(cuts=[0, 40]), *of_another_leader, log.segments()[2]])
        with Session(Config.parse({"remote.locator": "listing"}), bucket) as session:
            service = Service(session, SETTINGS, FakeBrokers().ask)
            with closing(service), TestClient(service.app) as client:
                answer = client.get(f"{SEGMENTS}?from={first}", headers=basic())
        assert answer.status_code == 200, answer.text
        found = [range(one["start_offset"], one["end_offset"] + 1) for one in answer.json()["segments"]]
        real = [(0, 39), (10, 19), (20, 39), (40, 59)]
        assert {(one.start, one.stop - 1) for one in found} <= set(real)
        assert set(range(first, 60)) <= set().union(*found)

    def test_every_field_of_the_metadata(self, bucket: SigningBucket) -> None:
        bucket.metadata[1] = replace(
            bucket.metadata[1], custom_metadata=b"\x00\xff", segment_size_in_bytes=UNKNOWN_SIZE, broker_id=3
        )
        with client_of(bucket) as client:
            answer = client.get(SEGMENTS, headers=basic())
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        found = answer.json()
        segments = found.pop("segments")
        assert found == {
            "topic": "topic", "topic_id": str(TOPIC_ID), "partition": 0, "stable_offset": None, "next": None,
            "aborted_transactions": [], "orphan_updates": 0, "malformed_records": 0,
        }  # fmt: skip
        expected = timeline_of(bucket.metadata[0].topic_id_partition, bucket.metadata)
        for given, metadata, order in zip(segments, expected.segments, expected.finish_order, strict=True):
            assert given == {
                "id": str(metadata.segment_id.id),
                "start_offset": metadata.start_offset,
                "end_offset": metadata.end_offset,
                "broker_id": metadata.broker_id,
                "max_timestamp_ms": metadata.max_timestamp_ms,
                "event_timestamp_ms": metadata.event_timestamp_ms,
                "leader_epochs": [[entry.epoch, entry.start_offset] for entry in metadata.segment_leader_epochs],
                "size_bytes": metadata.segment_size_in_bytes,
                "custom_metadata": None if metadata.custom_metadata is None else "AP8=",
                "txn_index_empty": metadata.txn_index_empty,
                "finish_order": order,
                "upload_epoch": -1,
            }
        assert bucket.signed == bucket.signed[: len(OBJECT_KINDS)]  # only those of the check at the start

    def test_bounds_take_the_segments_that_they_touch(self, bucket: SigningBucket) -> None:
        starts = [metadata.start_offset for metadata in bucket.metadata]
        with client_of(bucket) as client:

            def asked(query: str) -> list[int]:
                answer = client.get(f"{SEGMENTS}?{query}", headers=basic())
                return [segment["start_offset"] for segment in answer.json()["segments"]]

            assert asked(f"from={starts[1]}&to={starts[2]}") == [starts[1]]
            assert asked(f"from={starts[1] + 1}&to={starts[2] + 1}") == starts[1:3]
            assert asked(f"from={starts[2]}") == starts[2:]
            assert asked("to=0") == []
            assert asked("from=9223372036854775806") == []

    def test_objects_are_signed_for_the_kinds_that_were_asked_for(self, bucket: SigningBucket) -> None:
        with client_of(bucket, url_lifetime_s=77) as client:
            bucket.signed.clear()
            answer = client.get(f"{SEGMENTS}?to=1&objects=log,leader_epoch", headers=basic())
            (segment,) = answer.json()["segments"]
            assert list(segment["objects"]) == bucket.signed
            assert [name.rpartition(".")[2] for name in bucket.signed] == ["log", "leader-epoch"]
            assert all("expires=77&" in url for url in segment["objects"].values())
            bucket.signed.clear()
            everything = client.get(f"{SEGMENTS}?to=1&objects=all", headers=basic()).json()["segments"][0]["objects"]
            assert {name.rpartition(".")[2] for name in everything} == set(OBJECT_KINDS)
            assert b"remote_fetch_service_urls_signed_total 8.0" in client.get("/metrics").content

    def test_an_answer_that_has_not_changed(self, bucket: SigningBucket) -> None:
        with client_of(bucket) as client:
            first = client.get(SEGMENTS, headers=basic())
            tag = {"If-None-Match": first.headers["etag"]}
            again = client.get(SEGMENTS, headers=basic() | tag)
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag["If-None-Match"])
            assert client.get(f"{SEGMENTS}?from=5", headers=basic()).headers["etag"] == tag["If-None-Match"]
            assert refusal(client.get(SEGMENTS, headers=basic("bob") | tag))[0] == 403
            signed = client.get(f"{SEGMENTS}?objects=log", headers=basic() | tag)
            assert (signed.status_code, "etag" in signed.headers) == (200, False)
            assert signed.headers["cache-control"] == "no-store"
            no_tag = client.get(f"{SEGMENTS}?objects=log", headers=basic() | {"If-None-Match": ""})
            assert no_tag.json()["segments"] == signed.json()["segments"]

    @pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
    def test_a_partition_without_segments(self, bucket: SigningBucket, isolation: str) -> None:
        with client_of(bucket) as client:
            url = f"/v1/topics/topic/partitions/1/segments?isolation={isolation}"
            answer = client.get(url, headers=basic())
            assert (answer.status_code, answer.json()["segments"], answer.json()["next"]) == (200, [], None)

    def test_one_segment(self, bucket: SigningBucket) -> None:
        wanted = bucket.metadata[2].segment_id.id
        with client_of(bucket) as client:
            (segment,) = client.get(f"{SEGMENTS}?objects=log&segment={wanted}", headers=basic()).json()["segments"]
            assert segment["id"] == str(wanted)
            assert len(segment["objects"]) == 1
            stranger = client.get(f"{SEGMENTS}?objects=log&segment={Uuid(bytes(16))}", headers=basic())
            assert refusal(stranger) == (404, "UNKNOWN_SEGMENT")

    def test_read_committed_has_what_the_tier_decides(self) -> None:
        log = log_with_aborts()
        log.begin(9)
        log.append_batch(log_record(), producer_id=9)  # stays open: the tier does not decide it
        log.append_batch(log_record())
        log.roll()
        bucket = SigningBucket(log.tiered())
        with client_of(bucket) as client:
            found = client.get(f"{SEGMENTS}?isolation=read_committed", headers=basic()).json()
            assert found["stable_offset"] == log.last_stable_offset
            assert [(one["first_offset"], one["last_offset"]) for one in found["aborted_transactions"]] == [
                (1, 2), (6, 7), (11, 12), (16, 17)
            ]  # fmt: skip
            part = client.get(f"{SEGMENTS}?isolation=read_committed&from=5&to=10", headers=basic()).json()
            assert [one["first_offset"] for one in part["aborted_transactions"]] == [6]

    def test_an_answer_about_transactions_is_not_read_twice(self, bucket: SigningBucket) -> None:
        with client_of(bucket) as client:
            first = client.get(f"{SEGMENTS}?isolation=read_committed", headers=basic())
            bucket.indexes.clear()
            assert client.get(f"{SEGMENTS}?isolation=read_committed", headers=basic()).content == first.content

    def test_a_damaged_store_is_no_empty_answer(self, bucket: SigningBucket) -> None:
        bucket.indexes = {key: data for key, data in bucket.indexes.items() if key[1] != IndexType.PRODUCER_SNAPSHOT}
        with client_of(bucket) as client:
            answer = client.get(f"{SEGMENTS}?isolation=read_committed", headers=basic())
            assert refusal(answer) == (503, "UNLOCATABLE")
            assert int(answer.headers["retry-after"]) >= 1

    def test_pages_give_every_segment_once(self) -> None:
        bucket = SigningBucket(log_with_aborts(130).tiered())
        for isolation, most in (("read_uncommitted", 1000), ("read_committed", 100)):
            with client_of(bucket) as client:
                found: list[str] = []
                at: int | None = 0
                pages = 0
                while at is not None:
                    url = f"{SEGMENTS}?from={at}&isolation={isolation}&objects=all"
                    answer = client.get(url, headers=basic())
                    assert len(answer.content) < 600_000
                    assert len(answer.json()["segments"]) <= most
                    found += [segment["id"] for segment in answer.json()["segments"]]
                    at, pages = answer.json()["next"], pages + 1
                assert found == [str(metadata.segment_id.id) for metadata in bucket.metadata]
                assert pages == 2 if isolation == "read_committed" else pages == 1


def log_record() -> list[Any]:
    from remote_fetch.testing.records import Record

    return [Record(0, 0, b"k", b"v", ())]


class TestWhoMayRead:
    def test_refusals_are_the_brokers(self, bucket: SigningBucket) -> None:
        cases = {
            ("alice", "absent", 0): (404, "UNKNOWN_TOPIC_OR_PART"),
            ("alice", "topic", 2): (404, "UNKNOWN_TOPIC_OR_PART"),
            ("bob", "topic", 0): (403, "TOPIC_AUTHORIZATION_FAILED"),  # may describe it
        }
        with client_of(bucket) as client:
            bucket.signed.clear()
            for (user, topic, partition), expected in cases.items():
                url = f"/v1/topics/{topic}/partitions/{partition}/segments?objects=all"
                assert refusal(client.get(url, headers=basic(user))) == expected, (user, topic)
            assert bucket.signed == []

    def test_who_may_not_describe_does_not_learn_what_exists(self, bucket: SigningBucket) -> None:
        brokers = FakeBrokers(users={"dave": PASSWORD})
        with client_of(bucket, brokers) as client:
            answers = [
                client.get(f"/v1/topics/{topic}/partitions/0/segments", headers=basic("dave"))
                for topic in ("topic", "absent")
            ]
        assert [refusal(answer) for answer in answers] == [(403, "TOPIC_AUTHORIZATION_FAILED")] * 2
        assert answers[0].content == answers[1].content

    def test_wrong_credentials(self, bucket: SigningBucket) -> None:
        with client_of(bucket) as client:
            answer = client.get(SEGMENTS, headers=basic(password="wrong"))
            assert refusal(answer) == (401, "SASL_AUTHENTICATION_FAILED")
            assert answer.headers["www-authenticate"].startswith("Basic realm=")

    def test_brokers_that_are_away(self, bucket: SigningBucket) -> None:
        brokers = FakeBrokers(away=True)
        with client_of(bucket, brokers) as client:
            answer = client.get(SEGMENTS, headers=basic())
            assert refusal(answer) == (503, "BROKERS_UNAVAILABLE")
            assert answer.headers["retry-after"]
            brokers.away = False
            assert client.get(SEGMENTS, headers=basic()).status_code == 200  # no answer is not kept

    def test_a_token_is_shown_to_the_brokers(self, bucket: SigningBucket) -> None:
        with client_of(bucket) as client:
            assert client.get(SEGMENTS, headers=bearer(jwt("alice"))).status_code == 200
            assert refusal(client.get(SEGMENTS, headers=bearer(jwt("bob"))))[0] == 403
            assert refusal(client.get(SEGMENTS, headers=bearer("abc"))) == (401, "SASL_AUTHENTICATION_FAILED")

    def test_the_layout_is_told_to_those_who_authenticate(self, bucket: SigningBucket) -> None:
        config = {
            "remote.storage.layout": "plain",
            "remote.storage.layout.template": "{topic_id}/{segment_id}.{file}",
            "remote.storage.layout.key.prefix": "tier/",
            "remote.storage.layout.encryption.key.pairs.a.private.key.file": "/keys/a",
            "remote.storage.layout.access.token": "t",
        }
        with client_of(bucket, config=config) as client:
            assert refusal(client.get("/v1/storage"))[0] == 401
            assert refusal(client.get("/v1/storage", headers=basic(password="wrong")))[0] == 401
            assert client.get("/v1/storage", headers=basic("bob")).json() == {
                "layout": "plain",
                "layout_options": {"key.prefix": "tier/", "template": "{topic_id}/{segment_id}.{file}"},
            }
        with client_of(bucket) as client:
            assert client.get("/v1/storage", headers=basic()).json() == {
                "layout": "kafka_local",
                "layout_options": {},
            }


class TestSigning:
    def test_a_name_of_another_segment_gets_no_url(
        self, bucket: SigningBucket, caplog: pytest.LogCaptureFixture
    ) -> None:
        with client_of(bucket) as client:
            bucket.name_of = lambda metadata, kind: f"other/{kind}"
            caplog.set_level(logging.DEBUG)
            answers = [client.get(f"{SEGMENTS}?objects=log", headers=basic()) for _ in range(2)]
            for answer in answers:
                assert [segment["objects"] for segment in answer.json()["segments"]] == [{}] * 4
            assert b"remote_fetch_service_segments_unsigned_total 8.0" in client.get("/metrics").content
        said = [line for line in caplog.messages if "does not show that it belongs" in line]
        assert len(said) == 1  # said once

    def test_what_cannot_be_signed_safely_does_not_start(self, bucket: SigningBucket) -> None:
        bucket.name_of = lambda metadata, kind: f"{metadata.start_offset}.{kind}"
        with pytest.raises(ConfigError, match="no access can be vended"), open_service(bucket):
            pass

    def test_a_locator_that_does_not_know_all_does_not_start(self, bucket: SigningBucket) -> None:
        with open_service(bucket) as service:
            session = service.timelines._session
            session.config = replace(session.config, settings=replace(session.config.settings, locator="service"))
            with pytest.raises(ConfigError, match=r"remote\.locator=service: the service needs all segments"):
                Service(session, SETTINGS, FakeBrokers().ask)

    def test_a_store_that_cannot_sign_does_not_start(self) -> None:
        plain: Any = Bucket(log_with_aborts().tiered())
        with pytest.raises(ConfigError, match="cannot sign"), open_service(plain):
            pass

    def test_a_store_that_is_away_is_a_503(self, bucket: SigningBucket) -> None:
        def away(metadata: RemoteLogSegmentMetadata, kind: str) -> str:
            raise StorageUnavailable("no credentials")

        with client_of(bucket) as client:
            bucket.name_of = away
            answer = client.get(f"{SEGMENTS}?objects=log", headers=basic())
            assert refusal(answer) == (503, "UNAVAILABLE")


class TestRequests:
    @each_of(
        "method, url, headers, expected",
        [
            ("GET", SEGMENTS, {}, (401, "UNAUTHENTICATED")),
            ("GET", SEGMENTS, {"Authorization": "Negotiate YII="}, (401, "UNAUTHENTICATED")),
            ("GET", SEGMENTS, {"Authorization": "Digest a=b"}, (401, "UNAUTHENTICATED")),
            ("GET", f"{SEGMENTS}?from=-1", basic(), (400, "INVALID_REQUEST")),
            ("GET", f"{SEGMENTS}?objects=log&objects=log", basic(), (400, "INVALID_REQUEST")),
            ("GET", "/v1/topics/a%20b/partitions/0/segments", basic(), (400, "INVALID_TOPIC_EXCEPTION")),
            ("GET", "/v1/topics/topic/partitions/x/segments", basic(), (400, "INVALID_REQUEST")),
            ("GET", f"{SEGMENTS}?from={'0' * 2000}", basic(), (414, "QUERY_TOO_LONG")),
            ("GET", "/v2", basic(), (404, "NOT_FOUND")),
            ("GET", f"{SEGMENTS}/", basic(), (404, "NOT_FOUND")),  # no redirect to where the Host header says
            ("POST", SEGMENTS, basic(), (405, "METHOD_NOT_ALLOWED")),
            ("DELETE", SEGMENTS, basic(), (405, "METHOD_NOT_ALLOWED")),
        ],
    )
    def test_refused(
        self, bucket: SigningBucket, method: str, url: str, headers: dict[str, str], expected: tuple[int, str]
    ) -> None:
        with client_of(bucket) as client:
            bucket.signed.clear()
            assert refusal(client.request(method, url, headers=headers)) == expected
            assert bucket.signed == []

    def test_a_body_is_refused_and_the_connection_ends(self, bucket: SigningBucket) -> None:
        with client_of(bucket) as client:
            answer = client.request("GET", SEGMENTS, headers=basic(), content=b"x")
            assert refusal(answer) == (413, "BODY_REFUSED")
            assert answer.headers["connection"] == "close"

    def test_a_reason_in_words_for_certificates_and_kerberos(self, bucket: SigningBucket) -> None:
        with client_of(bucket) as client:
            for headers in ({}, {"Authorization": "Negotiate YII="}):
                message = client.get(SEGMENTS, headers=headers).json()["error"]["message"]
                assert "client certificate (mTLS)" in message
                assert "GSSAPI" in message

    def test_an_unexpected_error_shows_nothing(self, bucket: SigningBucket, caplog: pytest.LogCaptureFixture) -> None:
        def fails(metadata: RemoteLogSegmentMetadata, kind: str) -> str:
            raise RuntimeError("inner workings")

        with client_of(bucket) as client:
            bucket.name_of = fails
            answer = client.get(f"{SEGMENTS}?objects=log", headers=basic())
        assert refusal(answer) == (500, "INTERNAL_ERROR")
        assert "inner" not in answer.text
        assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR] == [True]


class TestLimits:
    def test_a_rate_for_each_principal(self, bucket: SigningBucket) -> None:
        with client_of(bucket, rate=0.5) as client:
            assert client.get(SEGMENTS, headers=basic()).status_code == 200
            answer = client.get(SEGMENTS, headers=basic())
            assert refusal(answer) == (429, "RATE_LIMITED")
            assert answer.headers["retry-after"] == "2"
            assert client.get(SEGMENTS, headers=basic("carol")).status_code == 200

    def test_tokens_of_one_principal_share_its_rate(self, bucket: SigningBucket) -> None:
        with client_of(bucket, rate=0.5) as client:
            tokens = [jwt("alice"), "x" + jwt("alice")]
            assert client.get(SEGMENTS, headers=bearer(tokens[0])).status_code == 200
            assert refusal(client.get(SEGMENTS, headers=bearer(tokens[1]))) == (429, "RATE_LIMITED")

    def test_who_shares_no_rate(self, bucket: SigningBucket) -> None:
        """Tokens without a name, and a user and a token of one name: they may be two principals."""
        with client_of(bucket, rate=0.5) as client:
            shown = [bearer("one.good"), bearer("two.good"), basic(), bearer(jwt("alice"))]
            assert [client.get("/v1/storage", headers=headers).status_code for headers in shown] == [200] * 4

    def test_a_full_service_still_tells_its_health(self, bucket: SigningBucket) -> None:
        brokers = FakeBrokers()
        brokers.gate.clear()
        with client_of(bucket, brokers, max_requests=1) as client, one_waiting(client, brokers):
            assert refusal(client.get(SEGMENTS, headers=basic("carol"))) == (503, "OVERLOADED")
            assert client.get("/healthz").json() == {"alive": True}
            assert b"remote_fetch_service_requests_under_way 1.0" in client.get("/metrics").content

    def test_requests_of_one_principal_at_once(self, bucket: SigningBucket) -> None:
        brokers = FakeBrokers()
        brokers.gate.clear()
        with client_of(bucket, brokers, at_once=1) as client:
            with one_waiting(client, brokers):
                assert refusal(client.get(SEGMENTS, headers=basic())) == (429, "TOO_MANY_AT_ONCE")
            assert client.get(SEGMENTS, headers=basic("carol")).status_code == 200

    def test_a_deadline_for_each_request(self, bucket: SigningBucket) -> None:
        brokers = FakeBrokers()
        brokers.gate.clear()
        with client_of(bucket, brokers, request_timeout_s=0.1) as client:
            try:
                assert refusal(client.get(SEGMENTS, headers=basic())) == (503, "TIMED_OUT")
            finally:
                brokers.gate.set()


class TestHealth:
    def test_ready_once_the_metadata_is_read(self, bucket: SigningBucket) -> None:
        with client_of(bucket) as client:
            found = client.get("/readyz").json()
            assert found["ready"] is True
            assert found["metadata_age_ms"] >= 0

    def test_not_ready_without_metadata(self, bucket: SigningBucket, monkeypatch: pytest.MonkeyPatch) -> None:
        with open_service(bucket) as service:

            def unreadable(topic: str | None) -> None:
                raise StorageUnavailable("the metadata is away")

            session = service.timelines._session
            monkeypatch.setattr(session.locator, "partitions", unreadable)
            with TestClient(service.app) as client:
                assert refusal(client.get("/readyz")) == (503, "METADATA_UNAVAILABLE")
                assert refusal(client.get(SEGMENTS, headers=basic())) == (503, "METADATA_UNAVAILABLE")
                assert client.get("/healthz").status_code == 200

    def test_metrics_name_no_topic_and_no_principal(self, bucket: SigningBucket) -> None:
        with client_of(bucket) as client:
            client.get(SEGMENTS, headers=basic())
            client.get("/nowhere/topic-name")
            answer = client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'remote_fetch_service_requests_total{route="segments",status="200"} 1.0' in answer.text
        assert 'remote_fetch_service_asks_total{outcome="allowed"} 1.0' in answer.text
        assert 'remote_fetch_service_asks_total{outcome="wrong-credentials"} 0.0' in answer.text
        assert "alice" not in answer.text
        assert "topic-name" not in answer.text


class TestLog:
    def test_one_line_for_a_request_without_query_and_secrets(
        self, bucket: SigningBucket, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        token = jwt("alice")
        with client_of(bucket) as client:
            client.get(f"{SEGMENTS}?from=1&objects=all", headers=basic())
            client.get(SEGMENTS, headers=basic(password="wr0ng-pass"))
            client.get(SEGMENTS, headers=bearer(token))
            client.get("/v1/%0Aforged%20line", headers=basic())
        lines = [record.getMessage() for record in caplog.records if record.name == "remote_fetch.service.access"]
        assert [line.split()[:5] for line in lines] == [
            ["testclient", "alice", "GET", SEGMENTS, "200"],
            ["testclient", "-", "GET", SEGMENTS, "401"],
            ["testclient", "alice", "GET", SEGMENTS, "200"],
            ["testclient", "-", "GET", r"/v1/\nforged%20line", "404"],
        ]
        everything = "\n".join(
            f"{record.getMessage()} {record.exc_text}" for record in caplog.records if "httpx" not in record.name
        )
        for secret in (PASSWORD, "wr0ng-pass", token, "signature=", "5ecre7", basic()["Authorization"][6:], "from=1"):
            assert secret not in everything


def test_nothing_of_the_service_keeps_a_credential(bucket: SigningBucket) -> None:
    with open_service(bucket) as service, TestClient(service.app) as client:
        client.get(SEGMENTS, headers=basic())
        kept = {name: value for name, value in vars(service.access).items() if name != "_ask"}
        assert kept["_kept"]
        assert PASSWORD not in repr(kept)
        assert all(len(key) == 32 for key in kept["_kept"])
    assert isinstance(service, Service)
