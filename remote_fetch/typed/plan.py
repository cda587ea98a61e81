"""The plan of typed columns: their formats, the readers' schemas, and those schemas of writers that are known.

Rules of the file:

- A plan is made once, before the first record, from the configuration and the registry.
- It pickles, and holds no secret: the registry's settings come with the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from remote_fetch.config import Config
from remote_fetch.config.files import read_file
from remote_fetch.errors import ConfigError, UnknownSchema
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.typed.registry import Registry, context_of
from remote_fetch.typed.schema_text import SchemaRef, SchemaText

__all__ = ["ColumnPlan", "TypedPlan", "plan_typed"]

_KINDS = {
    "json": "JSON", "avro": "AVRO", "avro-confluent": "AVRO", "json-confluent": "JSON",
    "protobuf-confluent": "PROTOBUF",
}  # fmt: skip
_CONFLUENT = "-confluent"
_MOST_VERSIONS = 100
"""How many versions of a subject a driver asks for, so that its tasks need not."""
_MOST_SCHEMA_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How the column `name`, `key` or `value`, is decoded. `schema` is the reader's, None for strings.

    `others` are the subject's versions, newest first, if the reader's schema is the latest one. `subject` is the
    registry's, if it names a context: the ids of values are of that one.
    """

    name: str
    format: str
    on_error: str
    schema: SchemaText | None
    message: str | None
    others: tuple[SchemaText, ...] = ()
    subject: str | None = None

    @property
    def is_framed(self) -> bool:
        """Whether each value names the schema that wrote it."""
        return self.format.endswith(_CONFLUENT)


@dataclass(frozen=True, slots=True)
class TypedPlan:
    """The columns that are typed, and the schemas of writers that are known."""

    columns: tuple[ColumnPlan, ...]
    known: tuple[tuple[SchemaRef, SchemaText], ...] = ()

    @property
    def identity(self) -> str:
        """Text that differs if other values may come out. The schemas of writers are left out: a schema id has one."""
        columns = []
        for each in self.columns:
            texts = [] if each.schema is None else list(each.schema.in_order())
            context = context_of(each.subject)
            columns.append(
                [each.name, each.format, each.on_error, each.message, texts, *([context] if context else [])]
            )
        return json.dumps(columns)


def plan_typed(config: Config, topics: Sequence[str] | None, *, learns: bool = False) -> TypedPlan | None:
    """The plan that a configuration asks for, None if keys and values stay bytes.

    `topics` are the topics of the read, None if they are not known. `learns`: ask for all versions of a subject, so
    that the tasks that get the plan need not ask the registry for them.

    Raises ConfigError, UnknownSchema, RegistryDenied and RegistryUnavailable.
    """
    names = [name for name in ("key", "value") if config.values[f"{name}.format"] != "raw"]
    _refuse_lone(config, names)
    if not names:
        return None
    registry: Registry | None = None
    if any(str(config.values[f"{name}.format"]).endswith(_CONFLUENT) for name in names):
        registry = Registry(config.registry, config.settings.broker_timeout_ms / 1000)
    try:
        columns = tuple(_column(config, name, topics, registry, learns) for name in names)
    finally:
        if registry is not None:
            registry.close()
    return TypedPlan(columns, () if registry is None else tuple(registry.known.items()))


def _refuse_lone(config: Config, typed: Sequence[str]) -> None:
    """Raise ConfigError for a setting of a column whose bytes stay as they are: a forgotten format."""
    for name in ("key", "value"):
        lone = [key for key in sorted(config.given) if key.startswith(f"{name}.") and key != f"{name}.format"]
        if lone and name not in typed:
            raise ConfigError(f"{lone[0]} is set, and {name}.format is not", key=f"{name}.format")


def _column(
    config: Config, name: str, topics: Sequence[str] | None, registry: Registry | None, learns: bool
) -> ColumnPlan:
    def text(key: str) -> str | None:
        value = config.values[f"{name}.{key}"]
        return None if value is None else str(value)

    kind, on_error, file = text("format") or "raw", text("on.error") or "fail", text("schema.file")
    message = text("protobuf.message")
    if message is not None and kind != "protobuf-confluent":
        raise ConfigError(
            f"{name}.protobuf.message is set, and {name}.format is {kind}", key=f"{name}.protobuf.message"
        )
    if kind == "string":
        return ColumnPlan(name, kind, on_error, None, None)
    if file is None and not kind.endswith(_CONFLUENT):
        raise ConfigError(f"{name}.format={kind} needs the schema: set {name}.schema.file", key=f"{name}.schema.file")
    framed = registry if kind.endswith(_CONFLUENT) else None
    subject = _subject(name, text("schema.subject"), topics, needed=file is None) if framed else None
    schema = _from_file(file, f"{name}.schema.file", _KINDS[kind]) if file is not None else None
    version = text("schema.version") or "latest"
    is_latest = schema is None and version == "latest"
    others: tuple[SchemaText, ...] = ()
    if framed is not None and subject is not None:
        if schema is None:
            schema = framed.version(subject, _version(name, version))
        if learns:
            others = _learned(framed, subject)
    assert schema is not None
    if schema.kind != _KINDS[kind]:
        raise ConfigError(
            f"{name}.format={kind}, and the registry's subject {subject} has a schema of {schema.kind}",
            key=f"{name}.format",
        )
    return ColumnPlan(
        name, kind, on_error, schema, message, others if is_latest else (), subject if context_of(subject) else None
    )


def _learned(registry: Registry, subject: str) -> tuple[SchemaText, ...]:
    try:
        return tuple(registry.learn(subject, _MOST_VERSIONS))
    except UnknownSchema:
        return ()  # the reader's schema is a file, and the writers' lie elsewhere


def _subject(name: str, given: str | None, topics: Sequence[str] | None, *, needed: bool) -> str | None:
    if given is not None:
        return given
    if topics is not None and len(topics) == 1:
        return f"{topics[0]}-{name}"
    if needed:
        raise ConfigError(
            f"{name}s of several topics are read by one schema, and none is named",
            key=f"{name}.schema.subject",
            hint=f"Set {name}.schema.subject or {name}.schema.file, or read one topic",
        )
    return None


def _version(name: str, text: str) -> str:
    if text != "latest" and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"{name}.schema.version={text!r}: give a number or latest", key=f"{name}.schema.version")
    return text


def _from_file(path: str, key: str, kind: str) -> SchemaText:
    data = read_file(path, key=key, max_bytes=_MOST_SCHEMA_BYTES)
    try:
        return SchemaText(kind, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{key}={path}: {file_fault(error)}", key=key) from error
