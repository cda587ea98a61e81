"""The sources of an audit: what the brokers do not tell."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.checks.audit_of_session import audit_sources
from remote_fetch.errors import ConfigError, Unlocatable
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.session.session import Session

PARTITION = TopicIdPartition(Uuid(b"0123456789abcdef"), "orders", 0)


class Refusing:
    """A cluster that gives an error for each question about a log."""

    def __init__(self, code: int) -> None:
        self._code = code

    def log_bounds(self, *_: object) -> object:
        raise KafkaException(KafkaError(self._code))

    def describe(self, *_: object) -> object:
        raise KafkaException(KafkaError(self._code))

    def close(self) -> None: ...


def log_start(folder: Path, code: int) -> int | None:
    with Session.open({"remote.storage.url": str(folder)}) as session:
        brokers: Any = SimpleNamespace(cluster=Refusing(code))
        session.brokers = brokers
        with audit_sources(session) as sources:
            return sources.log_start(PARTITION)


def test_a_log_start_that_brokers_do_not_tell(tmp_path: Path) -> None:
    """The topic may not be described, or was deleted during the audit. That must not end the audit of the others."""
    for code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    ):
        assert log_start(tmp_path, code) is None


def test_a_metadata_topic_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    def new_replay(_: object) -> Any:
        raise AssertionError("no record is read")

    for code, said in (
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "there is no topic metadata: tiered storage is off"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "this principal may not read metadata"),
    ):
        settings = {"remote.storage.url": str(tmp_path), "remote.locator.topic": "metadata"}
        with Session.open(settings) as session:
            brokers: Any = SimpleNamespace(cluster=Refusing(code))
            session.brokers = brokers
            with audit_sources(session) as sources, pytest.raises(Unlocatable, match=said):
                sources.open_records(new_replay)()


def test_any_other_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(KafkaException):
        log_start(tmp_path, KafkaError._TRANSPORT)


SERVICE = {
    "remote.locator": "service",
    "remote.locator.url": "http://127.0.0.1:9/",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "p",
}


@pytest.mark.parametrize("located_by", [{}, SERVICE], ids=["brokers", "service"])
def test_brokers_without_a_storage(located_by: dict[str, str]) -> None:
    with (
        Session.open({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **located_by}) as session,
        pytest.raises(
            ConfigError, match=r"no remote storage is configured\. Set remote\.storage\.url \(--url"
        ) as caught,
        audit_sources(session),
    ):
        pass
    assert caught.value.key == "remote.storage.url"
