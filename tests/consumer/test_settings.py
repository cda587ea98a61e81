"""What becomes of a consumer's configuration."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from remote_fetch import RemoteConsumer
from remote_fetch.consumer.settings import ENABLED, ConsumerSettings, ResetPolicy
from remote_fetch.model import IsolationLevel

GIVEN: dict[str, Any] = {"bootstrap.servers": "b:9092", "group.id": "g", "client.id": "c"}
ON: dict[str, Any] = {**GIVEN, "fetch.remote.enabled": "true", "remote.storage.url": "/tier"}


@pytest.mark.parametrize("off", [{}, {"fetch.remote.enabled": "false"}, {"fetch.remote.enabled": False}])
def test_switched_off_librdkafka_gets_everything_but_our_keys(off: dict[str, Any]) -> None:
    theirs = {**GIVEN, "auto.offset.reset": "none at all", "default.topic.config": {"auto.offset.reset": "earliest"}}
    settings = ConsumerSettings.of({**theirs, "remote.storage.url": "/tier", "remote.storage.options.key": "k", **off})
    assert not settings.is_enabled
    assert settings.librdkafka == theirs


def test_switched_on_storing_and_resetting_offsets_become_ours() -> None:
    settings = ConsumerSettings.of({**ON, "auto.offset.reset": "smallest", "enable.auto.commit": False})
    assert settings.librdkafka == {
        **GIVEN,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }
    assert settings.reset is ResetPolicy.EARLIEST
    assert settings.stores_offsets


def test_librdkafkas_defaults_hold() -> None:
    settings = ConsumerSettings.of(ON)
    assert settings.isolation is IsolationLevel.READ_COMMITTED
    assert settings.reset is ResetPolicy.LATEST
    assert not settings.is_cooperative
    assert (settings.watchdog_ms, settings.patience_ms) == (1_500, 6_000)


def test_a_side_client_knows_the_cluster_and_not_the_group() -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.username": "u", "sasl.password": "p", "ssl.ca.location": "/ca"}
    group = {"group.instance.id": "i", "session.timeout.ms": 6000, "auto.commit.interval.ms": 1, "stats_cb": print}
    settings = ConsumerSettings.of({**ON, **login, **group, "remote.locator.bootstrap.servers": "other:1"})
    assert settings.remote.librdkafka == {"bootstrap.servers": "b:9092", "client.id": "c", **login}
    assert settings.remote.locator == {"bootstrap.servers": "other:1"}
    assert settings.remote.text("remote.storage.url") == "/tier"


def test_of_the_callbacks_a_side_client_gets_the_one_that_gives_tokens() -> None:
    theirs = dict.fromkeys(("oauth_cb", "error_cb", "stats_cb", "throttle_cb", "on_commit"), print)
    settings = ConsumerSettings.of({**ON, **theirs, "logger": logging.getLogger("of the application")})
    assert settings.remote.librdkafka == {"bootstrap.servers": "b:9092", "client.id": "c", "oauth_cb": print}
    assert theirs.items() <= settings.librdkafka.items()


@pytest.mark.parametrize(
    ("more", "is_cooperative"),
    [
        ({"partition.assignment.strategy": "range,roundrobin"}, False),
        ({"partition.assignment.strategy": "cooperative-sticky"}, True),
        ({"group.protocol": "consumer"}, True),
        ({"group.protocol": "classic"}, False),
    ],
)
def test_how_rebalances_are_made(more: dict[str, Any], is_cooperative: bool) -> None:
    assert ConsumerSettings.of({**ON, **more}).is_cooperative is is_cooperative


def test_the_topic_configuration_of_old_is_flattened_and_wins() -> None:
    settings = ConsumerSettings.of(
        {**ON, "auto.offset.reset": "earliest", "default.topic.config": {"auto.offset.reset": "end"}}
    )
    assert settings.reset is ResetPolicy.LATEST
    assert "default.topic.config" not in settings.librdkafka


def test_the_applications_choices_are_kept() -> None:
    settings = ConsumerSettings.of(
        {
            **ON,
            "enable.auto.offset.store": "false",
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": "100",
            "queued.max.messages.kbytes": 2,
            "fetch.remote.read.timeout.ms": 300,
        }
    )
    assert not settings.stores_offsets
    assert settings.isolation is IsolationLevel.READ_UNCOMMITTED
    assert (settings.watchdog_ms, settings.queued_bytes, settings.patience_ms) == (1_100, 2_048, 1_300)
    assert settings.retry_pause_ms == 1_000


def test_what_failed_is_left_alone_for_ten_times_the_backoff() -> None:
    assert ConsumerSettings.of({**ON, "fetch.remote.retry.backoff.ms": 20}).retry_pause_ms == 200


def test_what_librdkafka_will_refuse_is_left_to_it() -> None:
    settings = ConsumerSettings.of({**ON, "isolation.level": "none", "fetch.wait.max.ms": "soon"})
    assert settings.librdkafka["isolation.level"] == "none"
    assert settings.librdkafka["fetch.wait.max.ms"] == "soon"


@pytest.mark.parametrize(("key", "value"), [("auto.offset.reset", "none"), ("enable.auto.offset.store", "perhaps")])
def test_a_wrong_value_of_what_we_do_is_left_to_librdkafka_to_refuse(key: str, value: str) -> None:
    assert ConsumerSettings.of({**ON, key: value}).librdkafka[key] == value


def test_the_case_of_a_word_does_not_matter() -> None:
    settings = ConsumerSettings.of(
        {**ON, "auto.offset.reset": "EARLIEST", "isolation.level": "READ_uncommitted", "enable.auto.offset.store": "F"}
    )
    assert settings.reset is ResetPolicy.EARLIEST
    assert settings.isolation is IsolationLevel.READ_UNCOMMITTED
    assert not settings.stores_offsets


def test_no_secret_in_the_repr() -> None:
    settings = ConsumerSettings.of({"sasl.password": "s3cret", "group.id": "g", "fetch.remote.enabled": True})
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(("given", "level"), [({}, "WARNING"), ({"fetch.remote.enabled": False}, "INFO")])
def test_keys_that_do_nothing_are_named_once(
    given: dict[str, object], level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "remote_fetch")
    keys = {"remote.storage.url": "/x", "fetch.remote.max.bytes": 1 << 24, "remote.storage.options.key": "s3cret"}
    consumer = RemoteConsumer({"group.id": "g", **keys, **given})
    metrics = consumer.remote_metrics()
    consumer.close()
    names = ", ".join(sorted(keys))
    said = f"{ENABLED} is not true: all records come from the brokers, and nothing is done with {names}"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, said)]
    assert metrics["remote-fetch-requests-total"] == 0
    assert metrics["partitions"] == {}


def test_a_plain_consumer_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "remote_fetch")
    RemoteConsumer({"group.id": "g"}).close()
    assert caplog.records == []
