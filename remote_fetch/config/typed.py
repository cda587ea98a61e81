"""The configuration keys of typed columns: how keys and values of records are encoded, and their schemas.

Rules of the file:

- `value.` and `key.` have the same keys. Names are those of Flink's Kafka connector and of Confluent's clients, if
  one of them has the setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remote_fetch.config.key import Key, Type

__all__ = ["FORMATS", "REGISTRY_DOC", "TYPED_KEYS", "TYPED_PREFIXES", "with_formats"]

FORMATS = ("raw", "string", "json", "avro", "avro-confluent", "protobuf-confluent", "json-confluent")
"""The choices of `value.format` and `key.format`."""


def _keys(name: str) -> tuple[Key, ...]:
    return (
        Key(
            f"{name}.format",
            Type.STRING,
            "raw",
            f"How {name}s are encoded. `raw` leaves bytes, any other makes a typed column "
            "(docs/howto/typed-values.md).",
            choices=FORMATS,
        ),
        Key(
            f"{name}.schema.file",
            Type.STRING,
            None,
            f"A file with the schema of {name}s: Avro's for `avro`, JSON Schema for `json`. With a registry: the "
            "reader's schema, in place of one of its versions.",
        ),
        Key(
            f"{name}.schema.version",
            Type.STRING,
            "latest",
            f"Which version in the registry is the reader's schema of {name}s: a number, or `latest`.",
        ),
        Key(
            f"{name}.schema.subject",
            Type.STRING,
            None,
            f"The registry's subject of {name}s. Unset: the topic's name and `-{name}`.",
        ),
        Key(
            f"{name}.protobuf.message",
            Type.STRING,
            None,
            "The full name of the Protobuf message. Unset: the first message of the schema.",
        ),
        Key(
            f"{name}.on.error",
            Type.STRING,
            "fail",
            f"What happens to a {name} that does not decode: `fail` ends the read with its topic, partition and "
            f"offset, `null` makes it null, `quarantine` also keeps its bytes in `{name}_raw` and the reason in "
            f"`{name}_error`.",
            choices=("fail", "null", "quarantine"),
        ),
    )


TYPED_KEYS: tuple[Key, ...] = (*_keys("value"), *_keys("key"))
"""The keys with fixed names."""

TYPED_PREFIXES = ("value.", "key.", "schema.registry.")
"""Prefixes of all keys of typed columns."""

REGISTRY_DOC = (
    "Handed to confluent_kafka's client of the schema registry under the rest of the name: `schema.registry.url`, "
    "`schema.registry.basic.auth.user.info`, `schema.registry.ssl.ca.location` and the others."
)
"""The meaning of `schema.registry.*`."""


def with_formats(config: Mapping[str, Any], value_format: str | None, key_format: str | None) -> Mapping[str, Any]:
    """The configuration, with `value.format` and `key.format` as the arguments of a read name them."""
    formats = {"value.format": value_format, "key.format": key_format}
    given = {name: text for name, text in formats.items() if text is not None}
    return {**config, **given} if given else config
