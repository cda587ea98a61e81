"""The options of `format("kafka_remote")`: those of Spark's Kafka source, under their names, with their meaning.

Rules of the file:

- Pure. Names are taken in upper or lower case, as Spark does.
- Errors have the words of Spark's source, if it reports the same mistake.
- Among options for one bound Spark's order decides: a timestamp for all, timestamps by partition, offsets.
- No value of a `kafka.` or storage option is part of a message or a repr.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from remote_fetch.config import Config
from remote_fetch.config.typed import TYPED_PREFIXES
from remote_fetch.errors import ConfigError
from remote_fetch.model import IsolationLevel
from remote_fetch.prepare.bounds import Edge, Timestamp
from remote_fetch.spark.java_client import librdkafka_properties

__all__ = ["ByPartition", "Limit", "SourceOptions", "Subscription", "number_of", "parse_options"]

T = TypeVar("T")

ByPartition: TypeAlias = "Mapping[tuple[str, int], int | Edge | Timestamp]"
"""A limit for each (topic, partition)."""
Limit: TypeAlias = "Edge | Timestamp | ByPartition"
"""Where a read begins or ends."""

_STRATEGIES = ("subscribe", "subscribepattern", "assign")
_OURS = ("fetch.remote.", "remote.", *TYPED_PREFIXES)
_BUCKET_ONLY = "fetch.remote.bucket.only"
_KNOWN = (
    *_STRATEGIES,
    *("startingoffsets", "endingoffsets", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp"),
    *("startingtimestamp", "endingtimestamp", "startingoffsetsbytimestampstrategy"),
    *("minpartitions", "maxrecordsperpartition", "includeheaders", "failondataloss", "groupidprefix"),
    *("maxoffsetspertrigger", "minoffsetspertrigger", "maxbytespertrigger", "maxtriggerdelay"),
    *("fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms"),
)
_POLL_TIMEOUT_MS = 120_000
"""Spark's own default, by its `spark.network.timeout`."""
_LEAST_POLL_TIMEOUT_MS = 10_000
"""Our timeout also covers connecting and the requests before the first record."""
_MOST_INT = 2**31 - 1
_SHOWN = 200
_MISSPELT = 0.9
"""The least similarity (difflib's ratio) at which a name counts as a misspelling of a known one."""
_AUTO_OFFSET_RESET = (
    "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingoffsets' to 'earliest' "
    "or 'latest' to specify where to start"
)
_NO_PUSHDOWN = (
    "fetch.remote.pushdown=true pushes no filters: Spark keeps one plan for each load(), with the filters of one "
    "query, and reads other queries on the same DataFrame or view by it, which then have wrong rows. Write "
    "fetch.remote.pushdown=one-query if each load() stands once, in one query. startingOffsets, endingTimestamp and "
    "assign bound a read without it"
)
_NOT_SUPPORTED = {
    "auto.offset.reset": _AUTO_OFFSET_RESET,
    "key.deserializer": "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays. "
    "Use DataFrame operations to explicitly deserialize the keys.",
    "value.deserializer": "Kafka option 'value.deserializer' is not supported as values are deserialized as byte "
    "arrays. Use DataFrame operations to explicitly deserialize the values.",
    "enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
    # librdkafka would prefer it to bootstrap.servers. The Java client does not know it, and ignores it.
    "metadata.broker.list": "Kafka option 'metadata.broker.list' is not supported. Spark's own source reads from "
    "'kafka.bootstrap.servers' alone. Leave it out",
}
_PARTITIONS = '{"topicA":[0,1],"topicB":[0,1]}'
_OFFSETS = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMESTAMPS = '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which topics are read: by name, by a regular expression that is found in it, or partitions of each topic."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked options. `start` and `end` None: not given; batches and streams have different defaults.

    `config` is the configuration of the reading session (docs/reference/configuration.md). `latest_if_unmatched`: if no
    record is as late as a starting timestamp, nothing is read; otherwise it is an error.
    """

    subscription: Subscription
    start: Limit | None
    end: Limit | None
    latest_if_unmatched: bool
    min_partitions: int
    max_records_per_partition: int | None
    include_headers: bool
    fail_on_data_loss: bool
    isolation: IsolationLevel
    config: Mapping[str, str] = field(repr=False)
    given: frozenset[str] = field(repr=False)

    @property
    def task_bytes(self) -> int:
        """How many bytes of segments a task reads."""
        return Config.parse(self.config).settings.task_bytes

    @property
    def pushes_filters(self) -> bool:
        """Whether the source applies Spark's filters."""
        return Config.parse(self.config).settings.pushdown == "one-query"

    @property
    def pushdown_hint(self) -> str | None:
        """The warning about a value that pushed filters before, and pushes none any more; None: no such value."""
        return _NO_PUSHDOWN if Config.parse(self.config).settings.pushdown == "true" else None


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """The options that batches and streams share. Raises ConfigError for the first wrong one."""
    given = {name.lower(): str(value) for name, value in options.items()}
    _refuse_misspelling(given)
    subscription = _subscription(given)
    min_partitions = number_of(given, "minPartitions", most=_MOST_INT)
    max_records = number_of(given, "maxRecordsPerPartition")
    java = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    for name, message in _NOT_SUPPORTED.items():
        if name in java:
            raise ConfigError(message, key=f"kafka.{name}")
    ours = {name: value for name, value in given.items() if name.startswith(_OURS)}
    if not java.get("bootstrap.servers", "").strip() and ours.get(_BUCKET_ONLY, "").strip().lower() != "true":
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer",
            key="kafka.bootstrap.servers",
            hint=f"To read what the bucket alone holds, without the records that are not tiered, set '{_BUCKET_ONLY}' "
            "to 'true'",
        )
    isolation = _isolation(java.pop("isolation.level", IsolationLevel.READ_UNCOMMITTED.value))
    fail_on_data_loss = _boolean(given, "failOnDataLoss", True)
    properties = librdkafka_properties(java)
    if properties:
        # The Java client takes an empty group. confluent_kafka ends the process for it.
        properties["group.id"] = properties.get("group.id") or given.get("groupidprefix") or "spark-kafka-remote"
        properties["auto.offset.reset"] = "error" if fail_on_data_loss else "earliest"
    poll_timeout_ms = number_of(given, "kafkaConsumer.pollTimeoutMs") or _POLL_TIMEOUT_MS
    if properties:
        properties["fetch.remote.broker.timeout.ms"] = str(min(max(poll_timeout_ms, _LEAST_POLL_TIMEOUT_MS), _MOST_INT))
    config = {**properties, **ours}
    Config.parse(config)
    return SourceOptions(
        subscription,
        _limit(given, "starting"),
        _limit(given, "ending"),
        _latest_if_unmatched(given),
        min_partitions or 1,
        max_records,
        _boolean(given, "includeHeaders", False),
        fail_on_data_loss,
        isolation,
        config,
        frozenset(given),
    )


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in _STRATEGIES if name in given]
    if len(chosen) != 1:
        which = "One" if not chosen else "Only one"
        raise ConfigError(
            f"{which} of the following options {'must' if not chosen else 'can'} be specified for Kafka source: "
            f"{', '.join(_STRATEGIES)}. See the docs for more details."
        )
    (name,) = chosen
    value = given[name]
    if name == "assign":
        if not value.strip().startswith("{"):
            raise ConfigError(
                f"No topicpartitions to assign as specified value for option 'assign' is '{value}'", key=name
            )
        wanted = _from_json(value, _PARTITIONS, "assign", lambda numbers: tuple(map(_whole, _list(numbers))))
        return Subscription(tuple(wanted), partitions=wanted)
    if name == "subscribepattern":
        if not value.strip():
            raise ConfigError(
                f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{value}'", key=name
            )
        return Subscription(pattern=value.strip())
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise ConfigError(f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'", key=name)
    return Subscription(topics)


def _limit(given: Mapping[str, str], which: str) -> Limit | None:
    """Where the read begins ("starting") or ends ("ending"), by Spark's order of precedence."""
    text = given.get(f"{which}timestamp")
    if text is not None:
        key = f"{which}Timestamp"
        try:
            ms = _number(_decimal(text.strip()))
        except (TypeError, ValueError):
            raise ConfigError(f"Expected a single long value, got {text.strip()}", key=key) from None
        return _timestamp(ms, key)
    text = given.get(f"{which}offsetsbytimestamp")
    if text is not None:
        key = f"{which}OffsetsByTimestamp"
        times = _from_json(text, _TIMESTAMPS, key, _numbers)
        return {(topic, at): _timestamp(ms, key) for topic, by in times.items() for at, ms in by.items()}
    text = given.get(f"{which}offsets")
    if text is None:
        return None
    edge = {"earliest": Edge.EARLIEST, "latest": Edge.LATEST}.get(text.strip().lower())
    if edge is not None:
        return edge
    offsets = _from_json(text, _OFFSETS, f"{which}Offsets", _numbers)
    return {
        (topic, at): Edge(offset) if offset in (-1, -2) else _whole(offset, text)
        for topic, by in offsets.items()
        for at, offset in by.items()
    }


def _timestamp(ms: int, key: str) -> Timestamp:
    """A time. ListOffsets takes some negative ones for an end of the log, and so does Spark's source."""
    if ms < 0:
        raise ConfigError(
            f"{key} has the negative timestamp {ms}",
            key=key,
            hint="To begin or end at the earliest or latest offset, use startingOffsets and endingOffsets",
        )
    return Timestamp(ms)


def _isolation(value: str) -> IsolationLevel:
    try:
        return IsolationLevel(value.strip().lower())
    except ValueError:
        raise ConfigError(
            f"Invalid value {value} for configuration isolation.level: String must be one of: "
            f"{', '.join(sorted(level.value for level in IsolationLevel))}",
            key="kafka.isolation.level",
        ) from None


def _latest_if_unmatched(given: Mapping[str, str]) -> bool:
    key = "startingOffsetsByTimestampStrategy"
    value = given.get(key.lower(), "error").strip().lower()
    if value not in ("error", "latest"):
        raise ConfigError(f"{key} must be 'error' or 'latest', not '{value}'", key=key)
    return value == "latest"


def _from_json(text: str, example: str, key: str, parse: Callable[[Any], T]) -> dict[str, T]:
    """A JSON object by topic; `parse` is applied to each of its values."""
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            return {topic: parse(value) for topic, value in found.items()}
    except (ValueError, TypeError, RecursionError):
        pass
    raise ConfigError(f"Expected e.g. {example}, got {text}", key=key)


def _numbers(value: Any) -> dict[int, int]:
    if not isinstance(value, dict):
        raise TypeError
    return {_whole(_decimal(partition)): _number(number) for partition, number in value.items()}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _decimal(text: str) -> int:
    """The number that a text is. Raises ValueError, also for `1_0` and ` 1`, which Python takes and Spark does not."""
    if "_" in text or text != text.strip():
        raise ValueError
    return int(text)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        raise TypeError
    return value


def _whole(value: Any, text: str | None = None) -> int:
    if _number(value) < 0:
        if text is not None:
            raise ConfigError(f"Expected e.g. {_OFFSETS}, got {text}", key="offsets")
        raise ValueError
    return int(value)


def number_of(given: Mapping[str, str], name: str, *, least: int = 1, most: int = 2**63 - 1) -> int | None:
    """The whole number of an option, None if it is not given. Raises ConfigError for another text and another range."""
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        number = _decimal(text.strip())
    except ValueError:
        raise ConfigError(f"{name} must be a number, not '{text[:_SHOWN]}'", key=name) from None
    if number < least:
        raise ConfigError(f"{name} must be {'positive' if least == 1 else f'at least {least}'}", key=name)
    if number > most:
        raise ConfigError(f"{name} must be at most {most}", key=name)
    return number


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, not '{text}'", key=name)
    return text == "true"


def _refuse_misspelling(given: Mapping[str, str]) -> None:
    """Spark's source ignores an unknown option. This source refuses one whose name is nearly a known one."""
    for name in given:
        if name in _KNOWN or name.startswith(("kafka.", *_OURS)):
            continue
        near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=_MISSPELT)
        if near:
            raise ConfigError(f"unknown option '{name}'; the nearest one is '{near[0]}'", key=name)
