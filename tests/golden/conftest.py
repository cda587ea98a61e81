"""The files that real brokers wrote and their own reading of them, for the tests of this folder.

Rules of the file:

- Recordings are loaded here and compared in the tests.
- Our rows are converted to the form of the recordings, so that a comparison is plain equality of every field.
- A test with the fixture `tier` runs once for each set. With a change it runs for the newest broker's alone, unless it
  is marked `each_version`: a read of all records, and the files themselves. A test with `aiven_tier` runs once for each
  set of Aiven's plug-in.
- Partitions and isolation levels of a set are cases of one test: `each_place` of places.py.
- data/README.md describes the files.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import pyarrow as pa
import pytest
from Crypto.PublicKey import RSA

from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.model import TopicIdPartition, Uuid
from tests.cases import of_a_change
from tests.golden.places import ISOLATION_LEVELS

DATA = Path(__file__).with_name("data")
SETS = ("local-4.1", "local-3.9")
AIVEN_SETS = ("aiven-plain", "aiven-zstd", "aiven-zstd-aes")
INLINE_VALUE_BYTES = 64

Line: TypeAlias = dict[str, Any]

_DUMP_FIELD = re.compile(r"(\w+): (\S+)")


class DumpedBatch(NamedTuple):
    """A record batch as Kafka's own DumpLogSegments prints it."""

    file: str
    fields: dict[str, str]


@dataclass(frozen=True)
class Tier:
    """One set: a tier that a broker wrote, and everything that was recorded beside it."""

    name: str
    data: ClassVar[Path] = DATA

    @property
    def url(self) -> str:
        """The value of `remote.storage.url`."""
        return str(self.data / self.name / "remote")

    @property
    def config(self) -> dict[str, str]:
        """The configuration of a read from the bucket alone."""
        return {"remote.storage.url": self.url}

    def lines(self, name: str) -> list[Line]:
        """The objects of a `.jsonl.gz` file."""
        return [json.loads(line) for line in self.text(f"{name}.jsonl.gz").splitlines()]

    def text(self, file: str) -> str:
        """A compressed text file."""
        with gzip.open(self.data / self.name / file, "rt", encoding="utf-8") as opened:
            return opened.read()

    @cached_property
    def facts(self) -> Line:
        """`set.json`."""
        facts: Line = json.loads((self.data / self.name / "set.json").read_text(encoding="utf-8"))
        return facts

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The partitions that have tiered segments."""
        return tuple(
            Place(self, line["topic"], line["partition"], line["earliest"], line["latest_tiered"] + 1)
            for line in self.facts["offsets"]
            if line["latest_tiered"] >= 0
        )

    @cached_property
    def recorded(self) -> dict[tuple[str, str, int], list[Line]]:
        """The records that the broker gave a consumer, tiered or not, by isolation level and partition."""
        found = defaultdict(list)
        for isolation in ISOLATION_LEVELS:
            for line in self.lines(f"records.{isolation}"):
                found[isolation, line["topic"], line["partition"]].append(line)
        return dict(found)

    @cached_property
    def timelines(self) -> dict[TopicIdPartition, Timeline]:
        """The timelines of the broker's metadata records, by partition. Deleted topics are included."""
        builder = TimelineBuilder()
        for line in self.lines("metadata"):
            value, key = (None if line[name] is None else base64.b64decode(line[name]) for name in ("value", "key"))
            builder.apply(value, key=key, offset=line["offset"])
        return {partition: builder.build(partition) for partition in builder.partitions()}

    @cached_property
    def dumped(self) -> dict[tuple[str, int], list[DumpedBatch]]:
        """The record batches that DumpLogSegments printed, by partition."""
        found: dict[tuple[str, int], list[DumpedBatch]] = defaultdict(list)
        place, file = ("", -1), ""
        for line in self.text("dump.txt.gz").splitlines():
            if line.startswith("#####"):
                topic, _, number = line.split()[1].rpartition("-")
                place = topic, int(number)
            elif line.startswith("Dumping"):
                file = line.split()[1]
            elif line.startswith("baseOffset"):
                found[place].append(DumpedBatch(file, dict(_DUMP_FIELD.findall(line))))
        return dict(found)


@dataclass(frozen=True)
class AivenTier(Tier):
    """One set that Aiven's plug-in wrote, with what the broker's properties said about it."""

    data: ClassVar[Path] = DATA.with_name("aiven")

    @property
    def config(self) -> dict[str, str]:
        """URL, key prefix and keys."""
        properties, option = self.facts["broker_properties"], "remote.storage.layout."
        config = {"remote.storage.url": self.url, "remote.storage.layout": "aiven"}
        prefix = properties.get("rsm.config.key.prefix")
        if prefix is not None:
            config[f"{option}key.prefix"] = prefix
        for name, value in properties.items():
            if name.endswith(".private.key.file"):
                config[option + name.removeprefix("rsm.config.")] = str(self.data / self.name / value)
        return config


@dataclass(frozen=True)
class Place:
    """One partition of a set: the offsets [log_start, stop) are in the tier and not deleted."""

    tier: Tier
    topic: str
    partition: int
    log_start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.tier.name}/{self.topic}-{self.partition}"

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """With the topic id of the set."""
        topic_id = Uuid.parse(self.tier.facts["topics"][self.topic]["topic_id"])
        return TopicIdPartition(topic_id, self.topic, self.partition)

    @property
    def config(self) -> dict[str, str]:
        """The configuration of a read from the bucket alone."""
        return self.tier.config

    @property
    def folder(self) -> Path:
        """Where the partition's objects are."""
        topic_id = self.topic_id_partition.topic_id
        return Path(self.tier.url) / "kafka-tiered-storage" / f"{self.topic}-{self.partition}-{topic_id}"

    def recorded(self, isolation: str) -> list[Line]:
        """The records that the broker gave a consumer, as far as they lie in the tier."""
        lines = self.tier.recorded[isolation, self.topic, self.partition]
        return [line for line in lines if self.log_start <= line["offset"] < self.stop]


_TIERS = tuple(Tier(name) for name in SETS)
_AIVEN_TIERS = tuple(AivenTier(name) for name in AIVEN_SETS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each set, and each isolation level."""
    if "tier" in metafunc.fixturenames:
        is_each = metafunc.definition.get_closest_marker("each_version") is not None
        metafunc.parametrize("tier", _TIERS if is_each else of_a_change(_TIERS), ids=lambda tier: tier.name)
    if "aiven_tier" in metafunc.fixturenames:
        metafunc.parametrize("aiven_tier", _AIVEN_TIERS, ids=lambda tier: tier.name)
    if "isolation" in metafunc.fixturenames:
        metafunc.parametrize("isolation", ISOLATION_LEVELS)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _line(row: dict[str, Any]) -> Line:
    """A row of ours in the form of the recordings."""
    value = row["value"]
    if value is None or len(value) <= INLINE_VALUE_BYTES:
        shown: Line = {"value": _base64(value)}
    else:
        shown = {"value_len": len(value), "value_sha256": hashlib.sha256(value).hexdigest()}
    millis, rest = divmod(row["timestamp"], 1000)
    assert rest == 0
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": millis,
        "timestamp_type": {0: "CreateTime", 1: "LogAppendTime"}[row["timestampType"]],
        "key": _base64(row["key"]),
        **shown,
        "headers": [[header["key"], _base64(header["value"])] for header in row["headers"]],
    }


def _lines_of(batches: Iterable[pa.RecordBatch]) -> list[Line]:
    found = []
    for batch in batches:
        at = batch.schema.get_field_index("timestamp")
        plain = batch.set_column(at, "timestamp", batch.column(at).cast("int64"))
        found += [_line(row) for row in plain.to_pylist()]
    return found


@pytest.fixture(scope="module", autouse=True)
def keys_read_once() -> Iterator[None]:
    """A session of an encrypted tier imports two keys. Each time PyCryptodome looks whether their factors are prime."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RSA, "import_key", lru_cache(RSA.import_key))
        yield


@pytest.fixture(scope="session")
def encrypted_tier() -> AivenTier:
    """The set whose segments are all encrypted, under two keys."""
    return _AIVEN_TIERS[-1]


@pytest.fixture(scope="session")
def lines_of() -> Callable[[Iterable[pa.RecordBatch]], list[Line]]:
    """Turns Arrow batches of ours into the form of the recordings."""
    return _lines_of


@pytest.fixture(scope="session")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each set the file that a broker's metadata records come to, for `remote.locator=snapshot`."""
    folder = tmp_path_factory.mktemp("snapshots")
    files = {}
    for tier in _TIERS:
        files[tier.name] = folder / f"{tier.name}.timelines"
        origin = SnapshotOrigin("recorded", Uuid(bytes(16)), 5, ())
        files[tier.name].write_bytes(dump_timelines(tuple(tier.timelines.values()), origin=origin))
    return files


@pytest.fixture(params=["installed", "plain"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder that is installed, and then the one in plain Python, as if the library had not been built."""
    # Imported here and not above: a session may choose its variant after this file was read.
    from remote_fetch.decode import resources, run_decoder, run_reference

    if request.param == "plain":
        monkeypatch.setattr(run_decoder, "_ENGINE", run_reference)
        monkeypatch.setattr(resources, "_ENGINE", run_reference)
