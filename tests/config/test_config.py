"""The configuration: type and bounds of every key, misspellings, what is handed on, and that no secret shows."""

from __future__ import annotations

import dataclasses
import json
import re
from types import MappingProxyType
from typing import Any

import pytest

from remote_fetch.config import KEYS, PREFIX_KEYS, Config
from remote_fetch.config.key import Key, Type
from remote_fetch.config.settings import Settings
from remote_fetch.config.typed import TYPED_KEYS
from remote_fetch.errors import ConfigError
from tests.cases import each_of

STRINGS = [key for key in KEYS.values() if key.type.value == "string" and not key.choices]
CHOICES = [key for key in KEYS.values() if key.choices]
BOOLEANS = [key for key in KEYS.values() if key.type.value == "boolean"]
INTEGERS = [key for key in KEYS.values() if key.type.value == "integer"]
OPTIONS = "remote.storage.options."

LIBRDKAFKA = [
    "acks", "api.version.request", "auto.commit.interval.ms", "auto.offset.reset", "bootstrap.servers",
    "broker.address.ttl", "check.crcs", "client.dns.lookup", "client.id", "client.rack", "connections.max.idle.ms",
    "debug", "enable.auto.commit", "enable.partition.eof", "error_cb", "fetch.error.backoff.ms", "fetch.max.bytes",
    "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms",
    "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms",
    "isolation.level", "log_level", "max.partition.fetch.bytes", "max.poll.interval.ms", "message.max.bytes",
    "metadata.max.age.ms", "partition.assignment.strategy", "queued.max.messages.kbytes", "receive.message.max.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.mechanism",
    "sasl.oauthbearer.client.secret", "sasl.password", "sasl.username", "security.protocol", "session.timeout.ms",
    "socket.connection.setup.timeout.ms", "socket.timeout.ms", "ssl.ca.location", "ssl.key.password", "stats_cb",
    "statistics.interval.ms", "topic.metadata.refresh.interval.ms", "max.in.flight.requests.per.connection",
]  # fmt: skip


def test_keys_are_listed_under_their_names_with_a_sentence() -> None:
    assert len(STRINGS) + len(CHOICES) + len(BOOLEANS) + len(INTEGERS) == len(KEYS)
    for name, key in KEYS.items():
        assert key.name == name
        assert name == name.lower()
        assert key.doc.endswith(".")
        if key.default is not None:
            assert key.parse(key.default) == key.default


@pytest.mark.usefixtures("shipped_limits")
def test_defaults_of_kip_1254() -> None:
    config = Config.parse({})
    assert config.settings.enabled is False
    assert config.settings.connect_timeout_ms == 1000
    assert config.settings.read_timeout_ms == 5000
    assert config.settings.fetcher_class is None
    assert config.settings.fetcher_class_path is None
    assert config.given == frozenset()
    assert set(config.values) == set(KEYS)
    assert not config.options
    assert not config.librdkafka


@pytest.mark.parametrize("key", STRINGS, ids=lambda key: key.name)
def test_strings(key: Key) -> None:
    config = Config.parse({key.name: "  some text "})
    assert config.values[key.name] == "some text"
    assert config.given == {key.name}


@pytest.mark.parametrize("key", CHOICES, ids=lambda key: key.name)
def test_choices(key: Key) -> None:
    for choice in key.choices:
        for value in (choice, f" {choice.title()} "):
            assert Config.parse({key.name: value}).values[key.name] == choice
    with pytest.raises(ConfigError, match=f"choose one of {', '.join(key.choices)}") as caught:
        Config.parse({key.name: "nothing-of-them"})
    assert caught.value.key == key.name


@pytest.mark.parametrize("key", BOOLEANS, ids=lambda key: key.name)
@pytest.mark.parametrize(
    ("value", "parsed"), [("true", True), (" False ", False), (True, True), (False, False), ("TRUE", True)]
)
def test_booleans(key: Key, value: object, parsed: bool) -> None:
    assert Config.parse({key.name: value}).values[key.name] is parsed


@pytest.mark.parametrize("key", BOOLEANS, ids=lambda key: key.name)
@pytest.mark.parametrize("value", ["", "yes", "1", 1, 0])
def test_no_booleans(key: Key, value: object) -> None:
    with pytest.raises(ConfigError, match="give true or false") as caught:
        Config.parse({key.name: value})
    assert caught.value.key == key.name


@pytest.mark.parametrize("key", INTEGERS, ids=lambda key: key.name)
def test_integers_and_their_bounds(key: Key) -> None:
    assert key.minimum is not None
    for value in (key.minimum, str(key.minimum), key.maximum, f" {key.maximum} "):
        assert Config.parse({key.name: value}).values[key.name] == int(value)
    with pytest.raises(ConfigError, match=f"the smallest value is {key.minimum}$") as caught:
        Config.parse({key.name: key.minimum - 1})
    assert caught.value.key == key.name
    with pytest.raises(ConfigError, match=f"the largest value is {key.maximum}$"):
        Config.parse({key.name: key.maximum + 1})


@each_of("key", INTEGERS, ids=lambda key: key.name)
@each_of("value", ["", "many", "1.5", 2048.0, "5s", True])
def test_no_integers(key: Key, value: object) -> None:
    with pytest.raises(ConfigError, match="give a whole number"):
        Config.parse({key.name: value})


def test_times_stay_within_what_a_clock_can_wait_for() -> None:
    times = [key for key in INTEGERS if key.name.endswith(".ms")]
    assert len(times) == 4
    assert {key.maximum for key in times} == {2**31 - 1}


def test_an_integer_without_a_smallest_value() -> None:
    key = dataclasses.replace(INTEGERS[0], minimum=None)
    assert key.parse("-5") == -5


@each_of("name", sorted(KEYS))
def test_none_is_as_if_it_were_not_there(name: str) -> None:
    config = Config.parse({name: None})
    assert config.values[name] == KEYS[name].default
    assert config.given == frozenset()


def test_an_option_of_none_is_not_there_either() -> None:
    assert dict(Config.parse({f"{OPTIONS}token": None, f"{OPTIONS}anon": False}).options) == {"anon": "False"}


def test_options_keep_the_rest_of_their_name() -> None:
    config = Config.parse({f"{OPTIONS}client.secret_key": 5, "group.id": "g"})
    assert dict(config.options) == {"client.secret_key": "5"}
    assert dict(config.librdkafka) == {"group.id": "g"}


def test_objects_and_arrays_become_json() -> None:
    """A user of Python writes a dict where the command line has JSON."""
    kwargs = {"region_name": "eu-west-1", "verify": True, "hosts": ["a"]}
    for given in (kwargs, MappingProxyType(kwargs)):
        options = Config.parse(
            {"remote.storage.options.client_kwargs": given, "remote.storage.options.a": ("b",)}
        ).options
        assert json.loads(options["client_kwargs"]) == kwargs
        assert json.loads(options["a"]) == ["b"]
    with pytest.raises(ConfigError, match="client_kwargs: a value in it cannot be JSON") as caught:
        Config.parse({"remote.storage.options.client_kwargs": {"password": b"hunter2"}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("remote.storage.urls", "remote.storage.url"),
        ("remote.storage.fetcher", "remote.storage.fetcher.class"),
        ("fetch.remote.read.timeout", "fetch.remote.read.timeout.ms"),
        ("fetch.remote.rangebytes", "fetch.remote.range.bytes"),
        ("remote.locater", "remote.locator"),
        ("fetch.remot.enabled", "fetch.remote.enabled"),
        ("Remote.Storage.Url", "remote.storage.url"),
        ("remote.storage.option.key", "remote.storage.options."),
    ],
)
def test_misspellings_are_errors_that_name_the_nearest_key(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"unknown configuration key {name!r}; the nearest")) as caught:
        Config.parse({name: "s3cret"})
    assert repr(nearest) in str(caught.value)
    assert caught.value.key == name
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("prefix", [*PREFIX_KEYS, "Remote.Storage.Options."])
def test_a_prefix_alone_is_no_key(prefix: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^'{re.escape(prefix)}' is the beginning of a key: a name follows it"
    ) as caught:
        Config.parse({prefix: "s3cret"})
    assert caught.value.key == prefix


@pytest.mark.parametrize("prefix", ["fetch.remote.", "remote.storage.", "remote.locator"])
def test_everything_under_our_prefixes_is_ours(prefix: str) -> None:
    with pytest.raises(ConfigError, match="unknown configuration key"):
        Config.parse({f"{prefix}zzzzzzzzzzzzzzzzzzzzzzzz": "x"})


@each_of("name", LIBRDKAFKA)
def test_keys_of_librdkafka_pass_untouched(name: str) -> None:
    value: Any = object()
    assert Config.parse({name: value}).librdkafka[name] is value


NO_UTF8 = {
    "client.\udcff": "s3cret",
    "client.id": "s3cret\udcff",
    "remote.locator.\udcff": "s3cret",
    "remote.locator.client.id": "s3cret\udcff",
    "schema.registry.url": "s3cret\udcff",
    f"{OPTIONS}\udcff": "s3cret",
    "default.topic.config": {"acks": "s3cret\udcff"},
}
"""confluent_kafka ends the process for some of these."""


@each_of("name", NO_UTF8, ids=ascii)
def test_text_that_is_not_utf8_never_comes_to_librdkafka(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^[ -~]+: the (name|value) is not UTF-8") as caught:
        Config.parse({name: NO_UTF8[name]})
    assert "s3cret" not in str(caught.value)


def test_a_value_with_a_nul() -> None:
    for name in ("remote.storage.url", "remote.storage.fetcher.class", "remote.locator.snapshot.file"):
        with pytest.raises(ConfigError, match=rf"^{name}: a NUL is in the value$"):
            Config.parse({name: "s3cret\0"})


def test_a_file_may_have_any_name() -> None:
    config = Config.parse({"remote.storage.url": "/\udcff", f"{OPTIONS}ca_certs": "/\udcff"})
    assert config.values["remote.storage.url"] == config.options["ca_certs"] == "/\udcff"


def test_brokers_and_fixed_properties_have_one_name() -> None:
    """librdkafka has other names for them. A read that does not see the brokers reads the bucket alone."""
    parsed = Config.parse({"metadata.broker.list": "b:1", "default.topic.config": {"auto.offset.reset": "latest"}})
    assert parsed.librdkafka == {"bootstrap.servers": "b:1", "auto.offset.reset": "latest"}
    inner = {"metadata.broker.list": "b:2"}
    assert Config.parse({"default.topic.config": inner, "bootstrap.servers": "b:1"}).librdkafka == {
        "bootstrap.servers": "b:2"
    }
    assert Config.parse({"bootstrap.servers": "b:1", "metadata.broker.list": "b:2"}).librdkafka == {
        "bootstrap.servers": "b:2"
    }
    assert Config.parse({"bootstrap.servers": None}).librdkafka == {}
    with pytest.raises(ConfigError, match="exclude each other"):
        Config.parse({"fetch.remote.bucket.only": True, "metadata.broker.list": "b:1"})


def test_the_client_of_the_metadata_topic_has_the_same_names() -> None:
    """A key below `default.topic.config` would go over the properties that its reader fixes."""
    inner = {"auto.offset.reset": "latest"}
    parsed = Config.parse({"remote.locator.metadata.broker.list": "b:1", "remote.locator.default.topic.config": inner})
    assert parsed.locator == {"bootstrap.servers": "b:1", "auto.offset.reset": "latest"}


def test_keys_are_strings() -> None:
    with pytest.raises(ConfigError, match="keys are strings, not 5"):
        Config.parse({5: "x"})  # type: ignore[dict-item]


def test_no_value_is_in_the_representation() -> None:
    config = Config.parse(
        {f"{OPTIONS}secret": "s3cret", "sasl.password": "s3cret", "remote.storage.url": "s3://me:s3cret@bucket"}
    )
    assert "s3cret" not in repr(config)
    assert "s3cret" not in str(config)


def test_a_callback_for_the_client_of_the_metadata_topic_stays_one() -> None:
    def give_token(config: str) -> tuple[str, float]:
        return config, 0.0

    config = Config.parse({"remote.locator.oauth_cb": give_token, "remote.locator.sasl.username": None})
    assert dict(config.locator) == {"oauth_cb": give_token}
    assert config.under({"remote.locator.oauth_cb": "theirs"}).locator == config.locator


def test_a_client_of_the_locator_gets_no_callback_for_tokens_that_it_does_not_take() -> None:
    """With it confluent_kafka would wait ten seconds for a token, and make no client."""

    def give_token(config: str) -> tuple[str, float]:
        return config, 0.0

    tokens = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "oauthbearer", "oauth_cb": give_token}
    theirs = {**tokens, "sasl.oauthbearer.method": "oidc"}
    other = {"remote.locator.bootstrap.servers": "other:9092"}
    assert Config.parse({**theirs, **other}).for_locator() == {**theirs, "bootstrap.servers": "other:9092"}
    for kept in (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        {"security.protocol": "SSL", "sasl.mechanisms": "oauthbearer"},
    ):
        ((name, value),) = kept.items() - theirs.items()
        assert Config.parse({**theirs, f"remote.locator.{name}": value}).for_locator() == kept
    own: dict[str, Any] = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": give_token}
    password = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.password": "p"}
    config = Config.parse({**password, **{f"remote.locator.{name}": value for name, value in own.items()}})
    assert config.for_locator() == {**password, **own}


def test_a_mechanism_of_the_locators_own_wins_over_both_names_of_the_other() -> None:
    """Of two names the last one counts, and `{**shared, **own}` leaves a name where the shared one stands."""
    both = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.mechanisms": "OAUTHBEARER"}
    for name in ("sasl.mechanism", "sasl.mechanisms"):
        config = Config.parse({**both, f"remote.locator.{name}": "SCRAM-SHA-256"})
        assert config.for_locator() == {"security.protocol": "SASL_SSL", name: "SCRAM-SHA-256"}


@pytest.mark.parametrize("value", ["", " ", ",", " , "])
def test_brokers_without_an_address(value: str) -> None:
    """librdkafka would wait for one that is added later."""
    for name in ("bootstrap.servers", "metadata.broker.list", "remote.locator.bootstrap.servers"):
        with pytest.raises(ConfigError, match=r"bootstrap\.servers names no address: give HOST:PORT") as raised:
            Config.parse({name: value})
        assert str(raised.value).startswith("remote.locator.") == name.startswith("remote.locator.")
    assert "bootstrap.servers" not in Config.parse({"bootstrap.servers": None}).librdkafka


@pytest.mark.parametrize(
    "brokers",
    [
        "localhost:99999",
        "a:9092, b:65536",
        "localhost:0",
        "localhost:000000",
        "localhost: 99999",
        "localhost:",
        "localhost:-1",
        "localhost:9092x",
        "SASL_SSL://localhost:70000",
        "[::1]:70000/path",
        "user:secret@host",
    ],
)
def test_a_port_that_librdkafka_takes_for_another_one(brokers: str) -> None:
    for name in ("bootstrap.servers", "remote.locator.bootstrap.servers"):
        with pytest.raises(ConfigError, match=rf"^{name}: a port is a number from 1 to 65535$"):
            Config.parse({name: brokers})


@pytest.mark.parametrize(
    "brokers",
    [
        "localhost",
        "a:1,b:65535",
        "PLAINTEXT://a:9092",
        "plaintext://a",
        "::1",
        "fe80::1:99999",
        "[::1]",
        "[::1]:9",
        "a:9/p:q",
        "a: 9092, SSL://b: 9092",
        "a:9092;",
        "a:+0009092",
    ],
)
def test_addresses_that_librdkafka_takes(brokers: str) -> None:
    assert Config.parse({"bootstrap.servers": brokers}).librdkafka["bootstrap.servers"] == brokers


def test_an_address_with_another_protocol_than_the_clients() -> None:
    """librdkafka would drop all addresses and wait."""
    brokers, locators = "bootstrap.servers", "remote.locator.bootstrap.servers"
    for config, hint in (
        ({brokers: "http://a:9092"}, "Give HOST:PORT alone"),
        ({brokers: " , user:secret://a,b:9092"}, "Give HOST:PORT alone"),
        ({brokers: "SASL_SSL://a:9093,b:9093"}, "Set security.protocol=sasl_ssl"),
        ({locators: "SSL://a:9093"}, "Set remote.locator.security.protocol=ssl"),
    ):
        with pytest.raises(ConfigError, match=r"another protocol than security.protocol=plaintext") as raised:
            Config.parse(config)
        assert (raised.value.hint, "secret" in str(raised.value)) == (hint, False)
    Config.parse({brokers: "SSL://a:9093", locators: "SSL://b:9093", "security.protocol": "ssl"})
    Config.parse({brokers: "a:9092,http://b:9092"})  # librdkafka takes the first one


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"group.id": ""}, "group.id"),
        ({"group.id": None}, "group.id"),
        ({"default.topic.config": {"group.id": ""}}, "group.id"),
        ({"remote.locator.group.id": ""}, "remote.locator.group.id"),
    ],
)
def test_an_empty_group(config: dict[str, Any], key: str) -> None:
    """confluent_kafka's consumer would end the process."""
    with pytest.raises(ConfigError, match=rf"^{re.escape(key)} is empty$"):
        Config.parse(config)


@pytest.mark.parametrize("key", ["default.topic.config", "remote.locator.default.topic.config"])
def test_topic_properties_that_are_a_text(key: str) -> None:
    """As an option of Spark or of the command line, which have no other values."""
    with pytest.raises(ConfigError, match=rf"^{re.escape(key)} is a dict in Python, and cannot be a text\. "):
        Config.parse({key: "acks=1"})


def test_the_parts_cannot_be_changed() -> None:
    config = Config.parse({f"{OPTIONS}a": "b", "group.id": "g"})
    for part in (config.values, config.options, config.layout, config.librdkafka, KEYS, PREFIX_KEYS):
        with pytest.raises(TypeError):
            part["x"] = "y"  # type: ignore[index]


def test_a_brokers_file_stands_under_what_was_set() -> None:
    layout = "remote.storage.layout."
    own = {
        "remote.storage.url": "/mine",
        f"{OPTIONS}a": "1",
        f"{layout}b": "2",
        "remote.locator.c": "3",
        "group.id": "g",
    }
    config = Config.parse(own)
    assert config.ours() == {name: value for name, value in own.items() if name != "group.id"}
    broker = {"remote.storage.url": "/theirs", f"{OPTIONS}a": "9", f"{OPTIONS}z": "9", f"{layout}b": "9"}
    under = config.under({**broker, "remote.storage.layout": "aiven"})
    assert under.ours() == {**config.ours(), f"{OPTIONS}z": "9", "remote.storage.layout": "aiven"}
    assert dict(under.librdkafka) == {"group.id": "g"}
    assert under.for_fetcher()[f"{layout}b"] == "2"


def another_value(key: Key) -> str | int | bool:
    if isinstance(key.default, bool):
        return not key.default
    if isinstance(key.default, int):
        return key.default + 1024
    if key.type is Type.INTEGER:
        return (key.minimum or 0) + 1024
    return next((choice for choice in key.choices if choice != key.default), "another")


def test_each_key_has_a_setting() -> None:
    """A key sets one field, and no other key sets it. The keys of typed columns are read from `values`."""
    defaults = Config.parse({}).settings
    changed = []
    for key in KEYS.values():
        if key in TYPED_KEYS:
            continue
        value = another_value(key)
        settings = Config.parse({key.name: value}).settings
        names = [name for name in Settings.__slots__ if getattr(settings, name) != getattr(defaults, name)]
        assert len(names) == 1, key.name
        assert key.choices or getattr(settings, names[0]) == value
        changed += names
    assert sorted(changed) == sorted(Settings.__slots__)


@pytest.mark.usefixtures("shipped_limits")
def test_what_a_fetcher_receives() -> None:
    config = Config.parse(
        {f"{OPTIONS}key": "k", "remote.storage.url": "/tier", "group.id": "g", "fetch.remote.enabled": True}
    )
    received = config.for_fetcher()
    assert received["remote.storage.url"] == "/tier"
    assert received["remote.storage.options.key"] == "k"
    assert received["fetch.remote.enabled"] == "true"
    assert received["fetch.remote.connect.timeout.ms"] == "1000"
    assert received["fetch.remote.read.timeout.ms"] == "5000"
    assert "remote.storage.layout" not in received
    assert "group.id" not in received
    assert all(isinstance(value, str) for value in received.values())
