"""Runs the service as a process with a real broker. The broker's ACLs decide, and the service gives its metadata.

Rules of the file:

- The store makes no signatures. tests/stores shows them, with a client that reads by the URLs.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import BrokerUnavailable
from remote_fetch.prepare.decided import decided
from remote_fetch.session.principals import CredentialsRefused, ask_as, connection_properties
from remote_fetch.session.session import Session
from tests.own_processes import killed_after
from tests.rig.acls import allow, revoke_all
from tests.rig.faults import topic_id
from tests.rig.rig import Rig
from tests.rig.topics import make_tiered, produce, wait_tiered
from tests.service.fakes import basic, bearer

ROUTE = "/v1/topics/vended/partitions/0/segments"
SECRET = "reader-secret"


@pytest.fixture(scope="module")
def guarded(rig_43: Rig) -> Rig:
    """A broker with access control and a topic in its tier."""
    make_tiered(rig_43, "vended", 60, partitions=2)
    return rig_43


@pytest.fixture
def no_rules(guarded: Rig) -> Iterator[None]:
    """The principals have no permission before the test and after it."""
    yield
    for user in ("reader", "writer"):
        revoke_all(guarded, user)


def token(subject: str, age_s: int = 0) -> str:
    """A token that Kafka's development mode accepts until it is ten minutes old."""
    now = int(time.time()) - age_s
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + 600})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, ""])


def test_what_a_broker_says_to_a_principal(guarded: Rig, no_rules: None) -> None:
    allow(guarded, "reader", "READ", "vended")
    allow(guarded, "writer", "DESCRIBE", "vended")
    connection = connection_properties(guarded.sasl_client("writer"))

    def ask(user: str, topic: str | None, password: str | None = None) -> Any:
        shown = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password or f"{user}-secret"}
        return ask_as(connection, shown, topic, timeout_ms=5_000)

    described = ask("reader", "vended")
    assert (str(described.topic_id), described.partitions) == (topic_id(guarded, "vended"), (0, 1))
    assert described.may_read
    assert not ask("writer", "vended").may_read
    assert ask("reader", None) is None
    for topic in ("absent", "__remote_log_metadata"):  # the answer must not tell whether a topic exists
        with pytest.raises(KafkaException) as caught:
            ask("reader", topic)
        assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    for refused in ("vended", None):
        with pytest.raises(CredentialsRefused):
            ask("reader", refused, "wrong")
    away = {**connection, "bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(BrokerUnavailable) as unanswered:
        ask_as(away, {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}, None, timeout_ms=1_000)
    assert not isinstance(unanswered.value, CredentialsRefused)


def test_no_refusal_leaves_a_client_behind(guarded: Rig, no_rules: None) -> None:
    """Clients are closed without Python's garbage collector. If not, many wrong passwords could use up all sockets."""
    connection = connection_properties(guarded.sasl_client("reader"))
    gc.collect()
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        for password in ("wrong", SECRET):
            with pytest.raises((CredentialsRefused, KafkaException)):
                ask_as(
                    connection,
                    {"sasl.mechanism": "PLAIN", "sasl.username": "reader", "sasl.password": password},
                    "vended",
                    timeout_ms=5_000,
                )
        guarded.until("the sockets to be closed", lambda: len(os.listdir("/proc/self/fd")) <= before, 10)
    finally:
        gc.enable()


@contextmanager
def serving(rig: Rig, log: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`remote-fetch serve` as the principal `writer`, which may read the metadata and nothing else."""
    allow(rig, "writer", "READ", "__remote_log_metadata")
    properties = rig.sasl_client("writer") | {
        "remote.storage.fetcher.class": "tests.rig.signing:SigningLocalFetcher",
        "remote.storage.url": str(rig.remote),
    }
    words = [word for name, value in properties.items() for word in ("-X", f"{name}={value}")]
    command = [sys.executable, "-m", "remote_fetch", "serve", *words, "--listen", "127.0.0.1:0", *options]
    with (
        log.open("a") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        killed_after(90, process),
    ):
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, log.read_text()
        yield process, url


def get(url: str, headers: dict[str, str]) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]["code"]


@pytest.mark.slow
@pytest.mark.scheduled
def test_a_service_with_the_brokers_acls(guarded: Rig, no_rules: None, tmp_path: Path) -> None:
    options = ("--mechanisms", "PLAIN,OAUTHBEARER", "--allowed-for", "1", "--refused-for", "0", "--log-level", "debug")
    reader, as_token = basic("reader", SECRET), bearer(token("reader"))
    log = tmp_path / "log"
    with serving(guarded, log, *options) as (process, url):
        assert get(f"{url}/readyz", {})[0] == 200
        assert get(url + ROUTE, reader) == (403, "TOPIC_AUTHORIZATION_FAILED")
        assert get(url + ROUTE.replace("vended", "absent"), reader) == (403, "TOPIC_AUTHORIZATION_FAILED")
        allow(guarded, "reader", "READ", "vended")
        status, found = get(f"{url}{ROUTE}?isolation=read_committed&objects=all", reader)
        assert status == 200
        _check_as_the_session(guarded, found)
        assert get(url + ROUTE, as_token) == get(url + ROUTE, reader)
        assert get(url + ROUTE, basic("reader", "wr0ng")) == (401, "SASL_AUTHENTICATION_FAILED")
        assert get(url + ROUTE, bearer(token("reader", age_s=3_600))) == (401, "SASL_AUTHENTICATION_FAILED")
        assert get(url + ROUTE.replace("/0/", "/7/"), reader) == (404, "UNKNOWN_TOPIC_OR_PART")
        assert get(f"{url}/v1/storage", reader) == (200, {"layout": "kafka_local", "layout_options": {}})

        before = len(found["segments"])
        produce(guarded, "vended", 60)
        wait_tiered(guarded, "vended")
        guarded.until("the new segments", lambda: len(get(url + ROUTE, reader)[1]["segments"]) > before, 20)

        revoke_all(guarded, "reader")
        guarded.until("the refusal", lambda: get(url + ROUTE, reader) == (403, "TOPIC_AUTHORIZATION_FAILED"), 20)
        process.kill()
    allow(guarded, "reader", "READ", "vended")
    with serving(guarded, log, *options) as (process, url):  # killed and started again: nothing was lost
        status, again = get(url + ROUTE, reader)
        assert (status, len(again["segments"]) > before) == (200, True)
        process.terminate()
        assert process.wait(30) == 0
    said = log.read_text()
    assert f"127.0.0.1 reader GET {ROUTE} 200 " in said
    for secret in (SECRET, "writer-secret", "wr0ng", as_token["Authorization"][7:], reader["Authorization"][6:]):
        assert secret not in said


def _check_as_the_session(rig: Rig, found: dict[str, Any]) -> None:
    """Compare an answer under read_committed with what a session of the administrator finds."""
    config = {"bootstrap.servers": rig.bootstrap, "remote.storage.url": str(rig.remote)}
    with Session.open(config) as session:
        (partition, _) = session.locator.partitions("vended")
        timeline = session.locator.timeline(partition)
        expected = decided(session, timeline, 0, timeline.end_offset or 0)
    assert [one["id"] for one in found["segments"]] == [str(one.segment_id.id) for one in timeline.segments]
    assert [one["finish_order"] for one in found["segments"]] == list(timeline.finish_order)
    assert [one["leader_epochs"] for one in found["segments"]] == [
        [[entry.epoch, entry.start_offset] for entry in one.segment_leader_epochs] for one in timeline.segments
    ]
    assert found["stable_offset"] == expected.stable_offset == timeline.end_offset
    assert (found["topic_id"], found["next"]) == (str(partition.topic_id), None)
    for segment in found["segments"]:
        assert len(segment["objects"]) == 6
        assert all(segment["id"] in name for name in segment["objects"])
