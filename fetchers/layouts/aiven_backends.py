"""From the properties of Aiven's plug-in in a broker's file to the keys of this package.

Rules of the file:

- Names on the left are the plug-in's, without the broker's prefix. Names on the right are fsspec's.
- A property that only the writer needs is passed over. A property that a reader may need and that is not mapped is
  named. A value is never shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fetchers._options import OPTIONS
from fetchers.layouts.aiven_keys import KEY_FILE_OPTION
from remote_fetch.errors import ConfigError, UnsupportedFormat
from remote_fetch.fetch.spi import BrokerStorage

__all__ = ["from_aiven_properties"]

_URL = "remote.storage.url"
_LAYOUT = "remote.storage.layout"

_WRITERS = (
    "broker.id", "cluster.id", "log.dir", "chunk.size", "compression.", "custom.metadata.fields.include",
    "encryption.enabled", "encryption.key.pair", "fetch.", "key.prefix", "metrics.", "segment.format",
    "storage.backend.class", "upload.", "storage.aws.checksum.check.enabled", "storage.azure.upload.",
    "storage.gcs.resumable.", "storage.overwrite.enabled", "storage.s3.api.call.", "storage.s3.legacy.",
    "storage.s3.multipart.", "storage.s3.storage.class",
)  # fmt: skip
"""Beginnings of names that a reader has no use for, or that are dealt with where they are set."""
_HTTPS_HOST = re.compile(r"https://(?P<host>[A-Za-z0-9.-]+(?::[0-9]{1,5})?)/?")
_COLD = ("GLACIER", "DEEP_ARCHIVE")


class _Backend:
    """One backend's properties: what is asked for counts as mapped, what is left is named."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = {name: value.strip() for name, value in properties.items()}
        self._asked: set[str] = set()
        self.configs: dict[str, str] = {}
        self.notes: list[str] = []

    def get(self, name: str) -> str | None:
        self._asked.add(name)
        return self._properties.get(name) or None

    def needed(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise ConfigError(f"the broker's file has no {name} for the storage manager", key=name)
        return value

    def is_true(self, name: str, default: bool) -> bool:
        return (self.get(name) or str(default)).lower() == "true"

    def option(self, name: str, value: str | Mapping[str, Any] | None) -> None:
        """Set an option of the filesystem; several values of one name as JSON."""
        if value:
            self.configs[OPTIONS + name] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)

    def left(self) -> list[str]:
        return sorted(name for name in self._properties if name not in self._asked and not name.startswith(_WRITERS))


def from_aiven_properties(properties: Mapping[str, str]) -> BrokerStorage:
    """The keys of this package for a broker with Aiven's plug-in. Raises ConfigError, UnsupportedFormat."""
    found = _Backend(properties)
    if (found.get("segment.format") or "kafka").lower() != "kafka":
        raise UnsupportedFormat(
            "the broker keeps its tier as Iceberg tables (segment.format), not as segments",
            hint="Read the topic's Iceberg table instead, or through the broker",
        )
    backend = found.needed("storage.backend.class")
    simple_name = backend.rpartition(".")[2]
    if simple_name not in _BACKENDS:
        raise ConfigError(
            f"storage.backend.class={backend!r:.120} is none of {', '.join(sorted(_BACKENDS))}",
            key="storage.backend.class",
            hint=f"Set {_URL}, {_LAYOUT} and {OPTIONS}* by hand",
        )
    _BACKENDS[simple_name](found)
    found.configs[_LAYOUT] = "aiven"
    _prefix_and_keys(found)
    notes = [*found.notes, *(f"{name}: has no counterpart here" for name in found.left())]
    return BrokerStorage(MappingProxyType(found.configs), tuple(notes))


def _prefix_and_keys(found: _Backend) -> None:
    prefix = found.get("key.prefix")
    if prefix is not None:
        found.configs[f"{_LAYOUT}.key.prefix"] = prefix
    if found.get("storage.key.prefix") is not None:
        found.notes.append(
            "storage.key.prefix: the plug-in does not read it (the name is key.prefix), so objects have no such prefix"
        )
    if not found.is_true("encryption.enabled", False):
        return
    for key_pair_id in (one.strip() for one in found.needed("encryption.key.pairs").split(",")):
        if key_pair_id:
            option = KEY_FILE_OPTION.format(key_pair_id)
            found.configs[f"{_LAYOUT}.{option}"] = found.needed(option)


def _s3(found: _Backend) -> None:
    found.configs[_URL] = f"s3://{found.needed('storage.s3.bucket.name')}"
    found.option("key", found.get("storage.aws.access.key.id"))
    found.option("secret", found.get("storage.aws.secret.access.key"))
    found.option("token", found.get("storage.aws.session.token"))
    found.option("endpoint_url", found.get("storage.s3.endpoint.url"))
    client: dict[str, Any] = {}
    region = found.get("storage.s3.region")
    if region is not None:
        client["region_name"] = region
    if not found.is_true("storage.aws.certificate.check.enabled", True):
        client["verify"] = False
    found.option("client_kwargs", client)
    if found.is_true("storage.s3.path.style.access.enabled", False):
        found.option("config_kwargs", {"s3": {"addressing_style": "path"}})
    if found.get("storage.aws.credentials.file") is not None:
        found.notes.append("storage.aws.credentials.file: let AWS_SHARED_CREDENTIALS_FILE or a profile say the same")
    if found.get("storage.aws.credentials.provider.class") is not None:
        found.notes.append(
            "storage.aws.credentials.provider.class: is Java; the SDK's own chain of credentials is asked"
        )
    if (found.get("storage.s3.storage.class") or "").upper() in _COLD:
        found.notes.append(
            "storage.s3.storage.class: objects of this class have to be restored before they can be read"
        )


def _gcs(found: _Backend) -> None:
    found.configs[_URL] = f"gs://{found.needed('storage.gcs.bucket.name')}"
    text, path = found.get("storage.gcs.credentials.json"), found.get("storage.gcs.credentials.path")
    uses_default = found.is_true("storage.gcs.credentials.default", False)
    found.option("token", text or path or ("google_default" if uses_default else None))
    found.option("endpoint_url", found.get("storage.gcs.endpoint.url"))


def _azure(found: _Backend) -> None:
    found.configs[_URL] = f"az://{found.needed('storage.azure.container.name')}"
    connection = found.get("storage.azure.connection.string")
    key, token = found.get("storage.azure.account.key"), found.get("storage.azure.sas.token")
    found.option("account_name", found.get("storage.azure.account.name"))
    found.option("account_key", key)
    found.option("sas_token", token)
    found.option("connection_string", connection)
    if not (connection or key or token):
        found.option("anon", "false")  # then the SDK's own chain of credentials is asked
    endpoint = found.get("storage.azure.endpoint.url")
    if endpoint is not None and connection is None:
        host = _HTTPS_HOST.fullmatch(endpoint)
        if host is not None:
            found.option("account_host", host["host"])
        else:
            found.notes.append(
                f"storage.azure.endpoint.url: give it in a connection string ({OPTIONS}connection_string)"
            )


def _filesystem(found: _Backend) -> None:
    found.configs[_URL] = found.needed("storage.root")


_BACKENDS: Mapping[str, Callable[[_Backend], None]] = MappingProxyType(
    {
        "S3Storage": _s3,
        "GcsStorage": _gcs,
        "AzureBlobStorage": _azure,
        "FileSystemStorage": _filesystem,
    }
)
