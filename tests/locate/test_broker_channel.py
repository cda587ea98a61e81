"""The channel to the brokers, with a scripted client in kafka-python's place, and with its own against a silent broker.

The answers of real brokers are in tests/rig.
"""

from __future__ import annotations

import gc
import logging
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import kafka
import kafka.errors
import pytest

from remote_fetch.errors import MissingExtra
from remote_fetch.locate.broker_channel import BrokerChannel
from remote_fetch.model import TopicIdPartition, Uuid
from tests.eventually import eventually

SERVERS = {"bootstrap.servers": "broker:9092"}
PREFIX = "brokers cannot be asked what they hold on their own disks: "
LONG_MS = 20_000
"""Longer than any test waits."""

Answer = int | Exception


def partition(number: int, topic: str = "t") -> TopicIdPartition:
    return TopicIdPartition(Uuid(bytes(16)), topic, number)


class Brokers:
    """The answers of the scripted client, by timestamp and partition. `hook` is called first and may raise."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], Answer] = {}
        self.hook: Callable[[], None] = lambda: None
        self.refuses: Exception | None = None
        self.log_dirs: list[dict[str, Any]] = []
        self.close_hook: Callable[[], None] = lambda: None
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.configs: list[Mapping[str, Any]] = []
        self.closed: list[str] = []

    def give(self, earliest_local: Answer, number: int = 0) -> None:
        self.answers["EARLIEST_LOCAL", number] = earliest_local

    def answer(self, spec: str, numbers: tuple[int, ...]) -> dict[int, int]:
        self.calls.append((spec, numbers))
        self.hook()
        found = {}
        for number in numbers:
            offset = self.answers[spec, number]
            if isinstance(offset, Exception):
                raise offset
            found[number] = offset
        return found


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Scripted brokers; kafka-python's admin client is one that asks them."""
    script = Brokers()

    class Network:
        def __init__(self, **configs: Any) -> None:
            self.configs = configs

        def close(self) -> None:
            script.closed.append("network")

    class Admin:
        DEFAULT_CONFIG: Mapping[str, Any] = {"kafka_client": Network}

        def __init__(self, **configs: Any) -> None:
            script.configs.append(configs)
            configs["kafka_client"](client_id="from the admin")
            if script.refuses is not None:
                raise script.refuses

        def list_partition_offsets(self, specs: Mapping[Any, Any]) -> dict[Any, Any]:
            (spec,) = set(specs.values())
            by_number = {one.partition: one for one in specs}
            found = script.answer(spec.name, tuple(by_number))
            return {by_number[number]: types.SimpleNamespace(offset=offset) for number, offset in found.items()}

        def describe_log_dirs(self, wanted: Mapping[str, list[int]]) -> list[dict[str, Any]]:
            script.hook()
            script.calls.append(("log dirs", tuple(number for numbers in wanted.values() for number in numbers)))
            return script.log_dirs

        def close(self) -> None:
            script.close_hook()
            script.closed.append("admin")

    monkeypatch.setattr(kafka, "KafkaAdminClient", Admin)
    return script


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def channel(brokers: Brokers, said: list[str]) -> Iterator[BrokerChannel]:
    made = BrokerChannel(SERVERS, timeout_ms=LONG_MS, say=said.append)
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    assert eventually(condition), "it did not happen"


def start_of(channel: BrokerChannel, number: int = 0) -> int | None:
    return channel.local_starts([partition(number)]).get(partition(number))


# -------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(("earliest_local", "expected"), [(100, 100), (0, 0), (-1, None)])
def test_the_answer_of_a_leader(
    brokers: Brokers, channel: BrokerChannel, earliest_local: int, expected: int | None
) -> None:
    brokers.give(earliest_local)
    assert start_of(channel) == expected


def test_all_partitions_in_one_question(brokers: Brokers, channel: BrokerChannel, said: list[str]) -> None:
    for number in range(3):
        brokers.give(100 + number, number)
    wanted = [partition(2), partition(0), partition(1)]
    assert channel.local_starts(wanted) == {one: 100 + one.partition for one in wanted}
    assert brokers.calls == [("EARLIEST_LOCAL", (0, 1, 2))]
    assert said == []


def test_one_client_for_all_calls_with_the_deadline_in_its_waits(brokers: Brokers, channel: BrokerChannel) -> None:
    brokers.give(1)
    assert start_of(channel) == start_of(channel)
    (config,) = brokers.configs
    assert config["bootstrap_servers"] == ["broker:9092"]
    assert config["bootstrap_timeout_ms"] == config["request_timeout_ms"] == LONG_MS


def replicas(topic: str, sizes: Mapping[int, int], *, is_future: bool = False) -> dict[str, Any]:
    partitions = [
        {"partition_index": number, "partition_size": size, "offset_lag": 0, "is_future_key": is_future}
        for number, size in sizes.items()
    ]
    return {"log_dir": "/data", "topics": [{"name": topic, "partitions": partitions}]}


def test_the_largest_replica_tells_the_size(brokers: Brokers, channel: BrokerChannel, said: list[str]) -> None:
    topic = partition(0).topic
    brokers.log_dirs = [
        {"broker": 1, "log_dirs": [replicas(topic, {0: 70, 1: 5}), replicas(topic, {0: 900}, is_future=True)]},
        {"broker": 2, "log_dirs": [replicas(topic, {0: 80}), replicas("other", {0: 1_000})]},
        {"broker": 3, "log_dirs": []},
    ]
    wanted = [partition(0), partition(1), partition(2)]
    assert channel.local_sizes(wanted) == {partition(0): 80, partition(1): 5}
    assert brokers.calls == [("log dirs", (0, 1, 2))]
    assert (channel.local_sizes([]), said) == ({}, [])


def test_sizes_that_nobody_tells(brokers: Brokers, channel: BrokerChannel, said: list[str]) -> None:
    def refuse() -> None:
        raise RuntimeError("not now")

    brokers.hook = refuse
    assert channel.local_sizes([partition(0)]) == {}
    assert said == [f"{PREFIX}not now"]
    assert start_of(channel) is None
    assert len(brokers.configs) == 1


def test_nothing_wanted_nothing_opened(brokers: Brokers, channel: BrokerChannel) -> None:
    assert channel.local_starts([]) == {}
    assert brokers.configs == []


# ------------------------------------------------------------------------------------------ what a broker does not tell


@pytest.mark.parametrize(
    "error", [kafka.errors.TopicAuthorizationFailedError("denied"), kafka.errors.UnknownBrokerIdError(-1)]
)
def test_one_partition_that_fails_takes_no_other_along(
    brokers: Brokers, channel: BrokerChannel, said: list[str], error: Exception
) -> None:
    for number in range(5):
        brokers.give(10, number)
    brokers.give(error, 3)
    wanted = [partition(number) for number in range(5)]
    assert channel.local_starts(wanted) == {one: 10 for one in wanted if one.partition != 3}
    assert said == [f"{PREFIX}{error} [t-3]"]
    assert len(brokers.configs) == 1


@pytest.mark.parametrize("error", [kafka.errors.UnsupportedVersionError, kafka.errors.IncompatibleBrokerVersion])
def test_brokers_that_are_too_old(
    brokers: Brokers, channel: BrokerChannel, said: list[str], error: type[Exception]
) -> None:
    for number in range(4):
        brokers.give(error("version"), number)
    wanted = [partition(number) for number in range(4)]
    assert channel.local_starts(wanted) == {}
    assert len(brokers.calls) == 1  # not sought partition by partition
    assert said == [f"{PREFIX}they are too old for EARLIEST_LOCAL"]


# -------------------------------------------------------------------------------------------------- when nobody answers


@pytest.mark.parametrize("error", [kafka.errors.KafkaConnectionError("gone"), RuntimeError("gone"), OSError()])
def test_a_call_that_fails_as_a_whole_is_the_last_one(
    brokers: Brokers, channel: BrokerChannel, said: list[str], error: Exception
) -> None:
    brokers.give(error)
    assert not channel.has_failed
    assert start_of(channel) is None
    assert channel.has_failed
    assert said == [PREFIX + (str(error) or "OSError")]
    until(lambda: brokers.closed == ["admin"])
    brokers.give(10)
    assert start_of(channel) is None
    assert len(brokers.configs) == 1
    assert len(said) == 1


def test_a_client_that_does_not_open_leaves_nothing_open(
    brokers: Brokers, channel: BrokerChannel, said: list[str]
) -> None:
    brokers.refuses = kafka.errors.KafkaTimeoutError("no bootstrap")
    assert start_of(channel) is None
    assert said == [f"{PREFIX}KafkaTimeoutError: no bootstrap"]
    assert brokers.closed == ["network"]


def test_a_client_that_hangs_is_left_to_its_thread(brokers: Brokers, said: list[str]) -> None:
    released = threading.Event()
    brokers.hook = lambda: None if released.wait(60) else pytest.fail("never released")
    for number in range(2):
        brokers.give(kafka.errors.UnknownBrokerIdError(-1), number)
    channel = BrokerChannel(SERVERS, timeout_ms=500, say=said.append)
    assert channel.local_starts([partition(0), partition(1)]) == {}
    assert said == [f"{PREFIX}no answer within 500 ms; the log of kafka-python may say more"]
    until(lambda: brokers.closed == ["network"])  # which breaks off what the client is waiting for
    released.set()
    until(lambda: "admin" in brokers.closed)
    assert len(brokers.calls) == 1  # neither half is asked once it is too late
    channel.close()


def test_reasons_are_reported_in_the_callers_thread(brokers: Brokers) -> None:
    speakers: list[threading.Thread] = []
    channel = BrokerChannel(SERVERS, timeout_ms=LONG_MS, say=lambda reason: speakers.append(threading.current_thread()))
    brokers.give(kafka.errors.UnsupportedVersionError())
    start_of(channel)
    channel.close()
    assert speakers == [threading.current_thread()]


# -------------------------------------------------------------------------------------------------------------- closing


def test_closing(brokers: Brokers, channel: BrokerChannel, said: list[str]) -> None:
    brokers.give(10)
    start_of(channel)
    channel.close()
    channel.close()
    assert brokers.closed == ["admin"]
    assert start_of(channel) is None
    assert len(brokers.configs) == 1
    assert said == []


def test_a_client_that_does_not_close_is_left_behind(brokers: Brokers, said: list[str]) -> None:
    released = threading.Event()
    brokers.close_hook = lambda: None if released.wait(60) else pytest.fail("never released")
    brokers.give(10)
    channel = BrokerChannel(SERVERS, timeout_ms=LONG_MS, say=said.append)
    start_of(channel)
    channel._timeout_ms = 100
    channel.close()
    assert said == [f"{PREFIX}its connection did not close within 100 ms and is left behind"]
    released.set()
    until(lambda: brokers.closed == ["admin"])


@pytest.mark.parametrize("name", ["kafka.net.connection", "kafka.protocol.parser"])
def test_requests_stay_out_of_the_debug_log_while_open(
    brokers: Brokers, channel: BrokerChannel, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG, name)
    logger = logging.getLogger(name)
    brokers.give(10)
    start_of(channel)
    logger.debug("Send: secret")
    logger.warning("broken off")
    channel.close()
    logger.debug("closed")
    assert [record.getMessage() for record in caplog.records] == ["broken off", "closed"]


@pytest.mark.parametrize("name", ["kafka.net.manager", "kafka.net.connection"])
def test_the_client_s_info_is_for_those_who_debug_it(
    brokers: Brokers, channel: BrokerChannel, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.INFO, name)
    logger = logging.getLogger(name)
    brokers.give(10)
    start_of(channel)
    logger.info("Bootstrap complete")
    logger.setLevel(logging.DEBUG)
    logger.info("Connected")
    logger.setLevel(logging.INFO)
    channel.close()
    logger.info("of the application's own client")
    assert [record.getMessage() for record in caplog.records] == ["Connected", "of the application's own client"]


# ----------------------------------------------------------------------------------------------------------- no channel


@pytest.mark.parametrize("module", [None, types.ModuleType("kafka")])
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, module: types.ModuleType | None) -> None:
    monkeypatch.setitem(sys.modules, "kafka", module)
    with pytest.raises(MissingExtra, match=r'pip install "remote-fetch\[broker-api\]"') as raised:
        BrokerChannel(SERVERS, timeout_ms=1, say=pytest.fail)
    assert raised.value.extra == "broker-api"


def test_a_kafka_python_without_the_timestamps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(kafka, "OffsetSpec")
    with pytest.raises(MissingExtra, match="kafka-python 3"):
        BrokerChannel(SERVERS, timeout_ms=1, say=pytest.fail)


def test_without_servers(said: list[str]) -> None:
    BrokerChannel({}, timeout_ms=1, say=said.append).close()
    assert said == [f"{PREFIX}a channel to the brokers needs bootstrap.servers"]


def test_settings_without_counterpart_are_named_and_no_broker_is_asked(brokers: Brokers, said: list[str]) -> None:
    properties = {**SERVERS, "security.protocol": "SSL", "ssl.keystore.location": "a", "ssl.keystore.password": "b"}
    channel = BrokerChannel(properties, timeout_ms=LONG_MS, say=said.append)
    assert said == [
        f"{PREFIX}kafka-python has no counterpart of what is configured: ssl.keystore.location, ssl.keystore.password"
    ]
    assert start_of(channel) is None
    channel.close()
    assert brokers.configs == []
    assert len(said) == 1


@pytest.mark.parametrize("properties", [{"ssl.ca.location": "/no/such/file"}, {"ssl.ca.pem": "not a certificate"}])
def test_tls_settings_that_cannot_be_used(brokers: Brokers, said: list[str], properties: dict[str, str]) -> None:
    channel = BrokerChannel({**SERVERS, "security.protocol": "SSL", **properties}, timeout_ms=LONG_MS, say=said.append)
    assert len(said) == 1
    assert said[0].startswith(f"{PREFIX}the TLS settings cannot be used: ")
    assert start_of(channel) is None
    assert brokers.configs == []


# -------------------------------------------------------------------------------------------------- kafka-python itself


def threads() -> list[str]:
    names = ("kafka-io-silent", "remote-fetch-broker-channel")
    return [one.name for one in threading.enumerate() if one.name.startswith(names)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket that the client forgets
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_broker_that_accepts_and_says_nothing(said: list[str], protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        properties = {
            "bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}",
            "client.id": "silent",
            "security.protocol": protocol,
        }
        channel = BrokerChannel(properties, timeout_ms=300, say=said.append)
        started_s = time.monotonic()
        assert start_of(channel) is None
        channel.close()
        assert time.monotonic() - started_s < 20  # kafka-python itself waits for longer
        assert len(said) == 1
        until(lambda: threads() == [])  # while the broker goes on saying nothing
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket that the client forgets
def test_a_slow_step_of_the_client_is_no_warning(
    said: list[str], slow_names: None, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's loop waits for names and for `oauth_cb`. An application cannot do anything about that."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        properties = {"bootstrap.servers": f"localhost:{silent.getsockname()[1]}", "client.id": "silent"}
        channel = BrokerChannel(properties, timeout_ms=1000, say=said.append)
        assert start_of(channel) is None
        channel.close()
        until(lambda: threads() == [])
    assert [record for record in caplog.records if record.name == "kafka.net.selector"] == []
    gc.collect()
