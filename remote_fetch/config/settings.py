"""The values of the configuration keys with fixed names, typed and with units.

Rules of the file:

- `remote_fetch.config` makes them once, from checked values.
- A field is named after its key, by `_field_of`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from remote_fetch.model import OBJECT_KINDS

__all__ = ["Settings", "is_public_layout_option", "typed_option"]

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_WORDS = {"true": True, "false": False, "null": None}
_TEXTS = frozenset(
    {
        "account", "credential", "credentials", "id", "key", "name", "passphrase", "passwd", "password", "profile",
        "project", "region", "sas", "secret", "string", "tenant", "token", "user", "username",
    }
)  # fmt: skip
"""Parts of names whose values are text whatever they look like: a password may be all digits."""
_PUBLIC_LAYOUT_OPTION = re.compile(rf"key\.prefix|template|md5\.bits|md5\.prefix|file\.({'|'.join(OBJECT_KINDS)})")


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """One field for each key: docs/reference/configuration.md says what it means. None: unset.

    - `broker_timeout_ms` 0: no limit.
    - `reads_local` is `fetch.remote.when=always`: also what a broker has on its own disk is read from the tier.
    - It has no representation, because a URL may hold a secret.
    """

    enabled: bool
    storage_url: str | None
    storage_roots: str | None
    storage_layout: str | None
    storage_broker_properties: str | None
    storage_prices: str | None
    fetcher_class: str | None
    fetcher_class_path: str | None
    locator: str | None
    locator_url: str | None
    locator_snapshot_file: str | None
    locator_topic: str
    locator_cache: str | None
    locator_schema_file: str | None
    bucket_only: bool
    reads_local: bool
    connect_timeout_ms: int
    read_timeout_ms: int
    retry_backoff_ms: int
    range_bytes: int
    max_bytes: int
    max_bytes_per_second: int | None
    max_gets_per_second: int | None
    budget_processes: int
    task_bytes: int
    broker_timeout_ms: int
    pushdown: str
    max_batch_bytes: int
    max_decompressed_bytes: int

    @classmethod
    def of(cls, values: Mapping[str, str | int | bool | None]) -> Settings:
        """The settings of checked values, which have every key."""
        known: dict[str, Any] = {_field_of(name): value for name, value in values.items()}
        known["reads_local"] = values["fetch.remote.when"] == "always"
        return cls(**{field.name: known[field.name] for field in fields(cls)})


def _field_of(key: str) -> str:
    """The name of a key's field: `max_bytes` of fetch.remote.max.bytes, `storage_url` of remote.storage.url."""
    return key.removeprefix("fetch.").removeprefix("remote.").replace("storage.fetcher.", "fetcher.").replace(".", "_")


def typed_option(name: str, text: str) -> Any:
    """The value of an option of a filesystem: text stays text unless it can only be a number, a truth value or JSON.

    Names that speak of identities and secrets keep words and numbers as text.
    """
    if text[:1] in ("{", "[", '"'):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if _TEXTS & set(re.split(r"[^a-z0-9]+", name.lower())):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text


def is_public_layout_option(name: str) -> bool:
    """Whether an option of a layout is known to hold no secret. Those of a plug-in are not known."""
    return _PUBLIC_LAYOUT_OPTION.fullmatch(name) is not None
