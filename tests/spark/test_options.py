"""Options as Spark's Kafka source takes them: names, precedence, and its words for what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.model import IsolationLevel
from remote_fetch.prepare.bounds import Edge, Timestamp
from remote_fetch.spark.options import Subscription, parse_options
from tests.cases import each_of

BASE = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}


def limits(**options: str) -> tuple[Any, Any]:
    found = parse_options({**BASE, **options})
    return found.start, found.end


def test_what_is_left_out() -> None:
    found = parse_options(BASE)
    assert found.subscription == Subscription(("t",))
    assert (found.start, found.end) == (None, None)
    assert (found.min_partitions, found.max_records_per_partition, found.task_bytes) == (1, None, 64 << 20)
    assert (found.include_headers, found.fail_on_data_loss, found.pushes_filters) == (False, True, False)
    assert found.isolation is IsolationLevel.READ_UNCOMMITTED
    assert found.config == {
        "bootstrap.servers": "broker:9092",
        "group.id": "spark-kafka-remote",
        "auto.offset.reset": "error",
        "fetch.remote.broker.timeout.ms": "120000",
    }
    for given, taken in (("60000", "60000"), ("512", "10000"), (str(2**62), "2147483647")):
        waits = parse_options({**BASE, "kafkaConsumer.pollTimeoutMs": given})
        assert waits.config["fetch.remote.broker.timeout.ms"] == taken


def test_an_empty_group_is_none() -> None:
    """As for Spark's own source. A consumer of confluent_kafka with an empty group ends the process."""
    for given, taken in (
        ({"groupIdPrefix": ""}, "spark-kafka-remote"),
        ({"kafka.group.id": ""}, "spark-kafka-remote"),
        ({"kafka.group.id": "", "groupIdPrefix": "mine"}, "mine"),
        ({"kafka.group.id": "its", "groupIdPrefix": "mine"}, "its"),
    ):
        assert parse_options({**BASE, **given}).config["group.id"] == taken


def test_names_are_taken_in_any_case() -> None:
    found = parse_options(
        {
            "KAFKA.Bootstrap.Servers": "broker:9092",
            "SubscribePattern": " t.* ",
            "minpartitions": "7",
            "MAXRECORDSPERPARTITION": "100",
            "includeheaders": "TRUE",
            "failOnDataLoss": "False",
            "groupIdPrefix": "mine",
            "kafka.isolation.level": "read_committed",
            "Fetch.Remote.Task.Bytes": "2048",
            "fetch.remote.pushdown": "One-Query",
            "remote.storage.url": "/Tier",
        }
    )
    assert found.subscription == Subscription(pattern="t.*")
    assert (found.min_partitions, found.max_records_per_partition, found.task_bytes) == (7, 100, 2048)
    assert (found.include_headers, found.fail_on_data_loss, found.pushes_filters) == (True, False, True)
    assert found.isolation is IsolationLevel.READ_COMMITTED
    assert found.config["group.id"] == "mine"
    assert found.config["auto.offset.reset"] == "earliest"
    assert found.config["remote.storage.url"] == "/Tier"
    assert "isolation.level" not in found.config


def test_a_bucket_needs_no_broker_where_it_alone_is_meant() -> None:
    """A forgotten option must not cost the rows that are not tiered."""
    tier = {"subscribe": "t", "remote.storage.url": "/tier"}
    for given in ({}, {"fetch.remote.bucket.only": "false"}, {"remote.locator": "listing"}):
        with pytest.raises(
            ConfigError, match=r"'kafka.bootstrap.servers' must be .*'fetch.remote.bucket.only' to 'true'"
        ):
            parse_options({**tier, **given})
    alone = {"fetch.remote.bucket.only": "True"}
    assert parse_options({**tier, **alone}).config == {"remote.storage.url": "/tier", **alone}
    with pytest.raises(ConfigError, match="exclude each other"):
        parse_options({**BASE, **alone})


def test_topics() -> None:
    assert parse_options({**BASE, "subscribe": " a, b,,a"}).subscription == Subscription(("a", "b"))
    assigned = {"kafka.bootstrap.servers": "b", "assign": '{"a":[0,2],"b":[1]}'}
    assert parse_options(assigned).subscription == Subscription(("a", "b"), partitions={"a": (0, 2), "b": (1,)})


def test_limits() -> None:
    assert limits(startingOffsets=" Earliest ", endingOffsets="LATEST") == (Edge.EARLIEST, Edge.LATEST)
    assert limits(startingOffsets='{"t":{"0":23,"1":-2}}', endingOffsets='{"t":{"0":40,"1":-1}}') == (
        {("t", 0): 23, ("t", 1): Edge.EARLIEST},
        {("t", 0): 40, ("t", 1): Edge.LATEST},
    )
    by_time = '{"t":{"0":5}}'
    assert limits(startingOffsetsByTimestamp=by_time, startingOffsets="{") == ({("t", 0): Timestamp(5)}, None)
    assert limits(endingOffsetsByTimestamp=by_time, endingOffsets="earliest")[1] == {("t", 0): Timestamp(5)}
    assert limits(startingTimestamp=" 9 ", startingOffsetsByTimestamp="{", startingOffsets="latest")[0] == Timestamp(9)
    assert limits(endingTimestamp="9", endingOffsetsByTimestamp="{")[1] == Timestamp(9)
    assert limits(endingTimestamp=str(2**63 - 1))[1] == Timestamp(2**63 - 1)


def test_what_becomes_of_a_time_that_no_record_reaches() -> None:
    assert not parse_options(BASE).latest_if_unmatched
    assert parse_options({**BASE, "startingOffsetsByTimestampStrategy": "Latest"}).latest_if_unmatched


@each_of(
    ("options", "message"),
    [
        ({"subscribe": None}, "One of the following options must be specified for Kafka source: subscribe, subscribep"),
        ({"assign": "{}"}, "Only one of the following options can be specified for Kafka source: subscribe, subscri"),
        ({"subscribe": " ,"}, "No topics to subscribe to as specified value for option 'subscribe' is ' ,'"),
        ({"subscribe": None, "subscribePattern": " "}, "Pattern to subscribe is empty as specified value for option"),
        ({"subscribe": None, "assign": "t"}, "No topicpartitions to assign as specified value for option 'assign' is"),
        ({"subscribe": None, "assign": '{"t":1}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"t":1}'),
        ({"subscribe": None, "assign": '{"t":[-1]}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got'),
        ({"kafka.bootstrap.servers": None}, "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka"),
        ({"kafka.bootstrap.servers": " "}, "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"minPartitions": "few"}, "minPartitions must be a number, not 'few'"),
        ({"minPartitions": "1_0"}, "minPartitions must be a number, not '1_0'"),
        ({"minPartitions": str(2**31)}, "minPartitions must be at most 2147483647"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({"includeHeaders": "yes"}, "includeHeaders must be true or false, not 'yes'"),
        ({"failOnDataLoss": "1"}, "failOnDataLoss must be true or false, not '1'"),
        ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported. Instead set"),
        ({"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported as keys are deserialized"),
        ({"kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported as values are"),
        ({"kafka.enable.auto.commit": "x"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
        ({"kafka.metadata.broker.list": "other:9092"}, "Kafka option 'metadata.broker.list' is not supported"),
        (
            {"kafka.isolation.level": "x"},
            "Invalid value x for configuration isolation.level: String must be one of",
        ),
        ({"endingTimestamp": "-1"}, "endingTimestamp has the negative timestamp -1"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":-2}}'}, "endingOffsetsByTimestamp has the negative timestamp -2"),
        ({"startingTimestamp": "now"}, "Expected a single long value, got now"),
        ({"startingTimestamp": "1_7"}, "Expected a single long value, got 1_7"),
        ({"startingTimestamp": str(2**63)}, f"Expected a single long value, got {2**63}"),
        ({"endingTimestamp": "9" * 20}, f"Expected a single long value, got {'9' * 20}"),
        ({"startingOffsets": "first"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got first'),
        ({"endingOffsets": '{"t":{"0":-3}}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got'),
        ({"endingOffsets": '{"t":{"1_0":3}}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got'),
        ({"endingOffsets": '{"t":{" 0":3}}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got'),
        ({"endingOffsets": '{"t":{"x":3}}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got'),
        ({"endingOffsets": '{"t":[3]}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got'),
        ({"startingOffsetsByTimestamp": '{"t":{"0":"a"}}'}, 'Expected e.g. {"topicA": {"0": 123456789'),
        ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy must be 'error' or 'latest'"),
        ({"startingOffset": "latest"}, "unknown option 'startingoffset'; the nearest one is 'startingoffsets'"),
        ({"remote.storage.ulr": "x"}, "unknown configuration key 'remote.storage.ulr'; the nearest one is 'remote.sto"),
        ({"fetch.remote.task.bytes": "1"}, "fetch.remote.task.bytes=1: the smallest value is 1024"),
    ],
)
def test_what_is_wrong(options: dict[str, str | None], message: str) -> None:
    given = {name: value for name, value in {**BASE, **options}.items() if value is not None}
    with pytest.raises(ConfigError) as caught:
        parse_options(given)
    assert str(caught.value).startswith(message)


def test_what_nobody_knows_is_nobodys_concern() -> None:
    """As in Spark, an unknown option is ignored, because tables have their own options."""
    parse_options({**BASE, "path": "/x", "owner": "me", "maxOffsetsPerTrigger": "1", "provider": "kafka_remote"})


def test_no_value_is_shown() -> None:
    found = parse_options({**BASE, "kafka.sasl.password": "secret", "remote.storage.options.secret": "secret"})
    assert found.config["sasl.password"] == found.config["remote.storage.options.secret"] == "secret"
    assert "secret" not in repr(found).replace("remote.storage.options.secret", "")
