"""The fields that KIP-1254 (with KIP-1248) adds to Fetch: their names, and the numbers that the KIP leaves open.

    {"fetchVersion": 19, "supportedStorageFormatVersions": ["ApacheKafkaV1"],
     "request":  [{"role": "location_requested", "struct": "FetchPartition", "name": "...", "tag": 2}, ...],
     "response": [{"role": "segment_id", "struct": "PartitionData", "name": "...", "tag": 3}, ...]}

Rules of the file:

- `location_schema.json`, beside this module, has this project's numbers. `remote.locator.schema.file` names another.
- A role says what a field means, and with that its type. Required ones have to be there.
- A field with `tag` is a tagged field. A field without it stands behind the field that `after` names. Without both it
  is the last one of its struct.
- A file that breaks a rule is a ConfigError with the file's name and the place in it.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from remote_fetch.config.files import read_file
from remote_fetch.errors import ConfigError

__all__ = ["SCHEMA_KEY", "LocationSchema", "SchemaField", "load_schema"]

SCHEMA_KEY = "remote.locator.schema.file"

_MAX_BYTES = 64 << 10
_FIRST_VERSION = 13
"""The first Fetch version with topic ids (KIP-516). A name is no identity."""
_LAST_VERSION = 2**15 - 1
_MAX_TAG = 2**31 - 1


class _Role(NamedTuple):
    """The message of a role, Kafka's type and the default. None: that of the type, and null if the type allows it."""

    message: str
    type: str
    default: Any = None
    is_required: bool = True


_ROLES: Mapping[str, _Role] = MappingProxyType(
    {
        "location_requested": _Role("request", "bool", False),
        "supported_formats": _Role("request", "[]string"),
        "segment_id": _Role("response", "uuid"),
        "custom_metadata": _Role("response", "bytes"),
        "start_offset": _Role("response", "int64", -1, is_required=False),
        "end_offset": _Role("response", "int64", -1, is_required=False),
        "size_bytes": _Role("response", "int64", -1, is_required=False),
    }
)
_STRUCTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "request": frozenset({"FetchRequest", "FetchTopic", "FetchPartition"}),
        "response": frozenset({"FetchResponse", "FetchableTopicResponse", "PartitionData"}),
    }
)

Message = Literal["request", "response"]


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One field. `tag` None: an ordinary field, behind the field `after` (None: the last one of its struct)."""

    role: str
    struct: str
    name: str
    tag: int | None
    after: str | None

    def definition(self, version: int) -> dict[str, Any]:
        """The field in the notation of Kafka's message definitions, for `version` and later."""
        _, kind, default, _ = _ROLES[self.role]
        versions = f"{version}+"
        found: dict[str, Any] = {"name": self.name, "type": kind, "versions": versions, "ignorable": True}
        if default is not None:
            found["default"] = str(default).lower()
        if kind == "bytes":
            found |= {"nullableVersions": versions, "default": "null"}
        if self.tag is not None:
            found |= {"taggedVersions": versions, "tag": self.tag}
        return found


@dataclass(frozen=True, slots=True)
class LocationSchema:
    """A version of Fetch with the fields of KIP-1254.

    - `fetch_version` is the version of request and response that has these fields.
    - `storage_formats` are the formats of segments that the client reads: SupportedStorageFormatVersions.
    - `request` and `response` are the fields.
    """

    fetch_version: int
    storage_formats: tuple[str, ...]
    request: tuple[SchemaField, ...]
    response: tuple[SchemaField, ...]

    def apply(self, message: Message, definition: dict[str, Any]) -> dict[str, Any]:
        """Kafka's definition of a Fetch message with the fields of this schema. It is changed in place, and returned.

        Raises ConfigError for a struct or a field that the definition does not have, and for a tag that is taken.
        """
        last = int(str(definition["validVersions"]).rpartition("-")[2])
        definition["validVersions"] = f"0-{max(last, self.fetch_version)}"
        for field in self.request if message == "request" else self.response:
            place = _struct(definition, field.struct)
            if place is None:
                raise _wrong(f"Kafka's {definition['name']} has no struct {field.struct}")
            if field.tag is not None and any(known.get("tag") == field.tag for known in place):
                raise _wrong(f"tag {field.tag} of {field.struct} is taken already, {field.name} cannot have it")
            names = [known["name"] for known in place]
            if field.name in names:
                raise _wrong(f"{field.struct} has a field {field.name} already")
            if field.after is not None and field.after not in names:
                raise _wrong(f"{field.name} is to stand behind {field.after}, which {field.struct} does not have")
            at = len(place) if field.after is None else names.index(field.after) + 1
            place.insert(at, field.definition(self.fetch_version))
        return definition

    @classmethod
    def parse(cls, data: bytes, name: str) -> LocationSchema:
        """Parse the bytes of a schema file. Raises ConfigError, whose text names the file by `name`."""
        try:
            given = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise _wrong(f"{name} is not JSON: {error}") from error
        if not isinstance(given, dict):
            raise _wrong(f"{name} is not a JSON object")
        strange = given.keys() - {"about", "fetchVersion", "supportedStorageFormatVersions", "request", "response"}
        if strange:
            raise _wrong(f"{name}: {min(strange)!r} is not a key of a schema")
        version: Any = given.get("fetchVersion")
        if not _is_number(version, _FIRST_VERSION, _LAST_VERSION):
            raise _wrong(f"{name}: fetchVersion is {version!r}: give a number from {_FIRST_VERSION} on")
        formats = given.get("supportedStorageFormatVersions")
        if not isinstance(formats, list) or not formats or not all(isinstance(each, str) and each for each in formats):
            raise _wrong(f"{name}: supportedStorageFormatVersions is {formats!r}: give a list of names")
        request, response = _fields(given, "request", name), _fields(given, "response", name)
        return cls(version, tuple(formats), request, response)


def load_schema(file: str | None) -> LocationSchema:
    """The schema of `file`, or that of this package. Raises ConfigError if it cannot be read or breaks a rule."""
    if file is None:
        name = "location_schema.json"
        return LocationSchema.parse(importlib.resources.files(__package__).joinpath(name).read_bytes(), name)
    return LocationSchema.parse(read_file(file, key=SCHEMA_KEY, max_bytes=_MAX_BYTES), file)


def _fields(given: Mapping[str, Any], message: Message, name: str) -> tuple[SchemaField, ...]:
    entries = given.get(message)
    if not isinstance(entries, list):
        raise _wrong(f"{name}: {message} has to be a list of fields")
    found = tuple(_field(entry, message, f"{name}: {message}[{number}]") for number, entry in enumerate(entries))
    roles = [field.role for field in found]
    missing = {role for role, known in _ROLES.items() if known.message == message and known.is_required} - set(roles)
    if missing:
        raise _wrong(f"{name}: {message} has no field of the role {min(missing)}")
    if len(set(roles)) < len(roles):
        raise _wrong(f"{name}: {message} has two fields of one role")
    return found


def _field(entry: object, message: Message, where: str) -> SchemaField:
    if not isinstance(entry, dict) or not {"role", "struct", "name"} <= entry.keys():
        raise _wrong(f"{where}: a field has role, struct and name")
    strange = entry.keys() - {"role", "struct", "name", "tag", "after"}
    if strange:
        raise _wrong(f"{where}: {min(strange)!r} is not a key of a field")
    role, struct, name = entry["role"], entry["struct"], entry["name"]
    tag, after = entry.get("tag"), entry.get("after")
    roles = sorted(known for known, its in _ROLES.items() if its.message == message)
    if role not in roles:
        raise _wrong(f"{where}: role {role!r}: choose one of {', '.join(roles)}")
    if not isinstance(struct, str) or struct not in _STRUCTS[message]:
        raise _wrong(f"{where}: struct {struct!r}: choose one of {', '.join(sorted(_STRUCTS[message]))}")
    if not isinstance(name, str) or not name.isidentifier():
        raise _wrong(f"{where}: name {name!r} is not a field's name")
    if tag is not None and not _is_number(tag, 0, _MAX_TAG):
        raise _wrong(f"{where}: tag {tag!r} is not a number from 0 on")
    if after is not None and not (isinstance(after, str) and tag is None):
        raise _wrong(f"{where}: after {after!r}: give the name of a field, for a field without tag")
    return SchemaField(role, struct, name, tag, after)


def _struct(definition: Mapping[str, Any], name: str) -> list[dict[str, Any]] | None:
    """The fields of a struct in Kafka's definition of a message. None: there is no such struct."""
    fields: list[dict[str, Any]] = definition["fields"]
    if definition.get("name") == name or str(definition.get("type", "")).removeprefix("[]") == name:
        return fields
    inner = (_struct(field, name) for field in fields if "fields" in field)
    return next((found for found in inner if found is not None), None)


def _is_number(value: object, smallest: int, largest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and smallest <= value <= largest


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"{SCHEMA_KEY}: {what}", key=SCHEMA_KEY)
