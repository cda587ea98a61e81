"""How a consumer's configuration is split."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from remote_fetch import RemoteConsumer
from remote_fetch.consumer.settings import ENABLED, ConsumerSettings, ResetPolicy
from remote_fetch.errors import ConfigError
from remote_fetch.model import IsolationLevel

GIVEN: dict[str, Any] = {"bootstrap.servers": "b:9092", "group.id": "g", "client.id": "c"}
ON: dict[str, Any] = {**GIVEN, "fetch.remote.enabled": "true", "remote.storage.url": "/tier"}


@pytest.mark.parametrize("off", [{}, {"fetch.remote.enabled": "false"}, {"fetch.remote.enabled": False}])
def test_switched_off_librdkafka_gets_all_keys_but_those_of_remote_fetch(off: dict[str, Any]) -> None:
    theirs = {**GIVEN, "auto.offset.reset": "none at all", "default.topic.config": {"auto.offset.reset": "earliest"}}
    settings = ConsumerSettings.parse(
        {**theirs, "remote.storage.url": "/tier", "remote.storage.options.key": "k", **off}
    )
    assert not settings.is_enabled
    assert settings.librdkafka == theirs


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
@pytest.mark.parametrize("brokers", ["one:9092,two:99999", "one:port", ","])
def test_only_librdkafka_judges_the_brokers_if_it_is_off(name: str, brokers: str) -> None:
    given = {"group.id": "g", name: brokers}
    assert ConsumerSettings.parse(given).librdkafka == given
    with pytest.raises(ConfigError, match="bootstrap"):
        ConsumerSettings.parse({**ON, "bootstrap.servers": brokers})


def test_switched_on_librdkafka_neither_stores_nor_resets_offsets() -> None:
    settings = ConsumerSettings.parse({**ON, "auto.offset.reset": "smallest", "enable.auto.commit": False})
    assert settings.librdkafka == {
        **GIVEN,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }
    assert settings.reset is ResetPolicy.EARLIEST
    assert settings.stores_offsets


@pytest.mark.usefixtures("shipped_limits")
def test_the_defaults_are_librdkafkas() -> None:
    settings = ConsumerSettings.parse(ON)
    assert settings.isolation is IsolationLevel.READ_COMMITTED
    assert settings.reset is ResetPolicy.LATEST
    assert not settings.is_cooperative
    assert (settings.watchdog_s, settings.patience_s) == (1.5, 6.0)


def test_a_side_client_gets_connection_keys_and_no_group_keys() -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.username": "u", "sasl.password": "p", "ssl.ca.location": "/ca"}
    group = {"group.instance.id": "i", "session.timeout.ms": 6000, "auto.commit.interval.ms": 1, "stats_cb": print}
    settings = ConsumerSettings.parse({**ON, **login, **group, "remote.locator.bootstrap.servers": "other:1"})
    assert settings.remote.librdkafka == {"bootstrap.servers": "b:9092", "client.id": "c", "log_level": 2, **login}
    assert settings.remote.locator == {"bootstrap.servers": "other:1"}
    assert settings.remote.settings.storage_url == "/tier"


def test_oauth_cb_is_the_only_callback_of_a_side_client() -> None:
    theirs = dict.fromkeys(("oauth_cb", "error_cb", "stats_cb", "throttle_cb", "on_commit"), print)
    settings = ConsumerSettings.parse({**ON, **theirs, "logger": logging.getLogger("of the application")})
    known = {"bootstrap.servers": "b:9092", "client.id": "c", "oauth_cb": print}
    assert settings.remote.librdkafka == {**known, "log_level": 2}
    assert theirs.items() <= settings.librdkafka.items()


@pytest.mark.parametrize(
    ("more", "idle_store_s"),
    [
        ({}, 1.0),
        ({"auto.commit.interval.ms": "300"}, 0.15),
        ({"auto.commit.interval.ms": 1}, 0.1),
        ({"auto.commit.interval.ms": 0}, None),
        ({"enable.auto.commit": False}, None),
        ({"enable.auto.offset.store": "false"}, None),
    ],
)
def test_how_often_positions_are_stored_while_no_call_is_made(more: dict[str, Any], idle_store_s: float | None) -> None:
    assert ConsumerSettings.parse({**ON, **more}).idle_store_s == idle_store_s


def test_whether_librdkafka_commits() -> None:
    given = [{}, {"enable.auto.commit": "true"}, {"enable.auto.commit": "false"}]
    assert [ConsumerSettings.parse({**ON, **more}).commits for more in given] == [True, True, False]


@pytest.mark.parametrize(("given", "level"), [("0", 0), (7, 2), ("loud", 2)])
def test_side_clients_log_no_failed_connections(given: object, level: int) -> None:
    assert ConsumerSettings.parse({**ON, "log_level": given}).remote.librdkafka["log_level"] == level


@pytest.mark.parametrize(
    ("more", "is_cooperative"),
    [
        ({"partition.assignment.strategy": "range,roundrobin"}, False),
        ({"partition.assignment.strategy": "cooperative-sticky"}, True),
        ({"group.protocol": "consumer"}, True),
        ({"group.protocol": "classic"}, False),
    ],
)
def test_whether_rebalances_are_cooperative(more: dict[str, Any], is_cooperative: bool) -> None:
    assert ConsumerSettings.parse({**ON, **more}).is_cooperative is is_cooperative


def test_default_topic_config_is_flattened_and_wins() -> None:
    settings = ConsumerSettings.parse(
        {**ON, "auto.offset.reset": "earliest", "default.topic.config": {"auto.offset.reset": "end"}}
    )
    assert settings.reset is ResetPolicy.LATEST
    assert "default.topic.config" not in settings.librdkafka


@pytest.mark.usefixtures("shipped_limits")
def test_values_of_the_application_replace_the_defaults() -> None:
    settings = ConsumerSettings.parse(
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
    assert (settings.watchdog_s, settings.queued_bytes, settings.patience_s) == (1.1, 2_048, 1.3)
    assert settings.retry_pause_s == 1.0


def test_the_first_pause_after_a_failure_is_ten_backoffs() -> None:
    assert ConsumerSettings.parse({**ON, "fetch.remote.retry.backoff.ms": 20}).retry_pause_s == 0.2


def test_wrong_values_reach_librdkafka() -> None:
    settings = ConsumerSettings.parse({**ON, "isolation.level": "none", "fetch.wait.max.ms": "soon"})
    assert settings.librdkafka["isolation.level"] == "none"
    assert settings.librdkafka["fetch.wait.max.ms"] == "soon"


@pytest.mark.parametrize(("key", "value"), [("auto.offset.reset", "none"), ("enable.auto.offset.store", "perhaps")])
def test_wrong_values_of_replaced_keys_reach_librdkafka(key: str, value: str) -> None:
    assert ConsumerSettings.parse({**ON, key: value}).librdkafka[key] == value


def test_words_are_read_in_any_case() -> None:
    settings = ConsumerSettings.parse(
        {**ON, "auto.offset.reset": "EARLIEST", "isolation.level": "READ_uncommitted", "enable.auto.offset.store": "F"}
    )
    assert settings.reset is ResetPolicy.EARLIEST
    assert settings.isolation is IsolationLevel.READ_UNCOMMITTED
    assert not settings.stores_offsets


@pytest.mark.parametrize("key", ["value.format", "schema.registry.url"])
def test_typed_columns_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} makes typed columns"):
        ConsumerSettings.parse({"group.id": "g", key: "string"})


def test_the_repr_has_no_secret() -> None:
    settings = ConsumerSettings.parse({"sasl.password": "s3cret", "group.id": "g", "fetch.remote.enabled": True})
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(("given", "level"), [({}, "WARNING"), ({"fetch.remote.enabled": False}, "INFO")])
def test_keys_without_effect_are_logged_once(
    given: dict[str, object], level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "remote_fetch")
    keys = {"remote.storage.url": "/x", "fetch.remote.max.bytes": 1 << 24, "remote.storage.options.key": "s3cret"}
    consumer = RemoteConsumer({"group.id": "g", **keys, **given})
    metrics = consumer.remote_metrics()
    consumer.close()
    names = ", ".join(sorted(keys))
    text = f"{ENABLED} is not true: all records come from the brokers, and nothing is done with {names}"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, text)]
    assert metrics["remote-fetch-requests-total"] == 0
    assert metrics["partitions"] == {}


def test_a_consumer_without_keys_of_remote_fetch_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "remote_fetch")
    RemoteConsumer({"group.id": "g"}).close()
    assert caplog.records == []
