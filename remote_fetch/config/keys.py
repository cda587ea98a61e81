"""The table of all configuration keys: name, type, default and meaning of each.

Rules of the file:

- Names are those of KIP-1254 if it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from remote_fetch.config.key import Key, Type
from remote_fetch.config.typed import REGISTRY_DOC, TYPED_KEYS

__all__ = ["KEYS", "PREFIX_KEYS"]

_MAX_MS = 2**31 - 1
"""The largest of Kafka's times in milliseconds, which are 32-bit numbers. No clock can wait for much larger ones."""

KEYS: Mapping[str, Key] = MappingProxyType(
    {
        key.name: key
        for key in (
            Key(
                "fetch.remote.enabled",
                Type.BOOLEAN,
                False,
                "Whether a RemoteConsumer reads tiered data from the store (KIP-1254). Bounded reads always do.",
            ),
            Key(
                "remote.storage.url",
                Type.STRING,
                None,
                "Where the broker's tier is, as the plug-in wrote it: a directory, `s3://bucket/prefix`, "
                "`https://host/tier` or another URL, whose scheme chooses the fetcher.",
            ),
            Key(
                "remote.storage.roots",
                Type.STRING,
                None,
                "Further URLs, with commas, below which segments may lie too: the allow-list for a plug-in that picks "
                "a bucket for each segment and puts the location into the custom metadata (KIP-917, layout `url`). "
                "`remote.storage.options.*` go to the roots of the same kind of store as `remote.storage.url`.",
            ),
            Key(
                "remote.storage.layout",
                Type.STRING,
                None,
                "How objects are named and stored under the URL: `kafka_local`, `aiven`, `plain`, `url` or another "
                "that is installed. By default the fetcher's own, `kafka_local` for the built-in ones.",
            ),
            Key(
                "remote.storage.broker.properties",
                Type.STRING,
                None,
                "A broker's `server.properties`: what it says of its tier becomes URL, layout and options, as far as "
                "an installed layout knows the broker's storage plug-in. What is set beside it wins over the file.",
            ),
            Key(
                "remote.storage.prices",
                Type.STRING,
                None,
                "A TOML file with prices of GETs and bytes, for the cost that `plan` and reports tell. Unset: list "
                "prices of S3, Cloud Storage and Azure (`remote_fetch/plan/prices.toml`).",
            ),
            Key(
                "remote.storage.fetcher.class",
                Type.STRING,
                None,
                "A fetcher by its short name or as `package.module:Class` (KIP-1254). Unset: the scheme of "
                "`remote.storage.url` chooses.",
            ),
            Key(
                "remote.storage.fetcher.class.path",
                Type.STRING,
                None,
                "A directory, zip or wheel that is added to the import path to find the fetcher's class (KIP-1254).",
            ),
            Key(
                "remote.locator",
                Type.STRING,
                None,
                "Where segment locations come from. `metadata-topic`, the default where `bootstrap.servers` is set: "
                "the brokers' own `__remote_log_metadata`. `listing`, the default without: the bucket itself, no "
                "Kafka needed. `snapshot`: timelines that were saved before. `service`: a `remote-fetch serve` that "
                "answers where segments are, and signs a URL for each object that is read. `broker`: the partition's "
                "leader tells it for each offset, and which transactions were aborted (KIP-1254; no released broker "
                "speaks it; extra `broker-api`).",
                choices=("metadata-topic", "listing", "snapshot", "service", "broker"),
            ),
            Key(
                "remote.locator.url",
                Type.STRING,
                None,
                "Where the service of `remote.locator=service` answers, `https://host:port`. The credentials are those "
                "for the brokers (`sasl.*`, `oauth_cb`), and so is the authority of its certificate "
                "(`ssl.ca.location`). `http://` is accepted on loopback only.",
            ),
            Key(
                "remote.locator.schema.file",
                Type.STRING,
                None,
                "For `remote.locator=broker`: a JSON file with the version of Fetch, the names and the tags that the "
                "brokers give KIP-1254's fields. Unset: `remote_fetch/locate/location_schema.json`.",
            ),
            Key(
                "remote.locator.snapshot.file",
                Type.STRING,
                None,
                "The file of `remote.locator=snapshot`: `remote-fetch ls --save FILE` writes it.",
            ),
            Key(
                "remote.locator.topic",
                Type.STRING,
                "__remote_log_metadata",
                "The topic in which brokers describe remote segments, for `remote.locator=metadata-topic`. It may be "
                "compacted and have keys (KIP-1266).",
            ),
            Key(
                "remote.locator.cache",
                Type.STRING,
                None,
                "A directory, or a URL that fsspec knows, where readers of the metadata topic save their timelines. "
                "The next reader goes on from there. Custom metadata is saved too and may hold signed URLs: keep the "
                "place as private as the bucket. A URL that the fetcher of `remote.storage.url` would read takes "
                "`remote.storage.options.*`.",
            ),
            Key(
                "fetch.remote.bucket.only",
                Type.BOOLEAN,
                False,
                "`true`: the bucket alone is meant, without the records that only a broker has. Where it is not set, "
                "the Spark source refuses to read without `kafka.bootstrap.servers`. Beside `bootstrap.servers` it is "
                "an error. `read_arrow` and the command line need no such key to read a bucket alone.",
            ),
            Key(
                "fetch.remote.when",
                Type.STRING,
                "not-local",
                "`not-local`: what a broker still has on its own disk comes through the broker, as far as the client "
                "can ask (extra `broker-api`). `always`: everything that is in the tier is read from the tier.",
                choices=("not-local", "always"),
            ),
            Key(
                "fetch.remote.connect.timeout.ms",
                Type.INTEGER,
                1000,
                "Longest wait for a connection to the store, in milliseconds (KIP-1254).",
                minimum=1,
                maximum=_MAX_MS,
            ),
            Key(
                "fetch.remote.read.timeout.ms",
                Type.INTEGER,
                5000,
                "Longest wait for one range of bytes, in milliseconds, retries included (KIP-1254).",
                minimum=1,
                maximum=_MAX_MS,
            ),
            Key(
                "fetch.remote.retry.backoff.ms",
                Type.INTEGER,
                100,
                "First pause before a failed GET is tried again, in milliseconds; it doubles, with jitter, inside the "
                "read timeout. A RemoteConsumer leaves a storage that failed alone for ten times as long at first.",
                minimum=1,
                maximum=_MAX_MS,
            ),
            Key(
                "fetch.remote.range.bytes",
                Type.INTEGER,
                8 << 20,
                "Largest range of bytes asked for in one GET.",
                minimum=1024,
            ),
            Key(
                "fetch.remote.max.bytes",
                Type.INTEGER,
                64 << 20,
                "Most bytes held or under way at once, over all partitions of one reader.",
                minimum=1024,
            ),
            Key(
                "fetch.remote.max.bytes.per.second",
                Type.INTEGER,
                None,
                "Most bytes a second that this process reads from the store: a budget that all readers share which are "
                "open at the same time with the same limits. Waiting for it counts against no timeout.",
                minimum=1024,
            ),
            Key(
                "fetch.remote.max.gets.per.second",
                Type.INTEGER,
                None,
                "Most GETs a second of this process, of ranges and of indexes; as the bytes.",
                minimum=1,
            ),
            Key(
                "fetch.remote.budget.processes",
                Type.INTEGER,
                1,
                "How many processes share both budgets. Each takes its part. Spark's readers set it to the tasks that "
                "run at once.",
                minimum=1,
                maximum=1_000_000,
            ),
            Key(
                "fetch.remote.task.bytes",
                Type.INTEGER,
                64 << 20,
                "Bytes of segments, as stored, that one Spark task reads. Without it, a backfill's grow to 256 MiB.",
                minimum=1024,
            ),
            Key(
                "fetch.remote.broker.timeout.ms",
                Type.INTEGER,
                0,
                "How long the broker may give nothing of what it is to give before a read fails, in milliseconds; 0: "
                "for ever. In Spark `kafkaConsumer.pollTimeoutMs`, two minutes by default. In `verify` a minute by "
                "default.",
                minimum=0,
                maximum=_MAX_MS,
            ),
            Key(
                "fetch.remote.pushdown",
                Type.STRING,
                "false",
                "`one-query`: the Spark source takes over filters on `partition`, `offset` and `timestamp`. That needs "
                "`spark.sql.python.filterPushdown.enabled=true`. Spark keeps one plan for each `load()`, a defect that "
                "a toy source has too: use each load once, in one query, for a second use gets wrong rows. `true` "
                "pushes nothing any more, and warns. Without it `startingOffsets`, `endingTimestamp` and `assign` "
                "bound a read.",
                choices=("false", "one-query", "true"),
            ),
            Key(
                "fetch.remote.max.batch.bytes",
                Type.INTEGER,
                128 << 20,
                "Largest record batch that is believed, as stored.",
                minimum=1024,
            ),
            Key(
                "fetch.remote.max.decompressed.bytes",
                Type.INTEGER,
                256 << 20,
                "Most bytes one compressed record batch may inflate to, and one chunk where a layout keeps segments in "
                "chunks.",
                minimum=1024,
            ),
            *TYPED_KEYS,
        )
    }
)
"""Every key of this package with a fixed name."""

PREFIX_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "remote.storage.options.": "Handed to the filesystem (fsspec) under the rest of the name. Numbers, "
        "`true`, `false` and JSON become what they are, but for names that speak of identities and secrets.",
        "remote.storage.layout.": "Handed to the layout under the rest of the name: `docs/reference/layouts.md` lists "
        "what each takes.",
        "remote.locator.": "Handed to the client that reads the metadata topic, or asks the service, under the "
        "rest of the name, over the other client properties: `remote.locator.bootstrap.servers` where that topic lives "
        "on another cluster, `remote.locator.ssl.ca.location` for the service's certificate.",
        "schema.registry.": REGISTRY_DOC,
    }
)
"""Prefixes of keys of this package whose last part is free."""
