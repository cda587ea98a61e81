"""A configuration in a form that may be shown: all names, and the values that cannot hold a secret.

Rules of the file:

- A value is masked unless its key is known to be harmless, so that a new option leaks nothing.
- URLs lose user information and query in every text.
- Connection strings lose the parts that are keys.
"""

from __future__ import annotations

import json
import re
from typing import Any

from remote_fetch.config import KEYS
from remote_fetch.hosts import shown_url

__all__ = ["MASK", "masked", "masked_url"]

MASK = "***"

_OPTIONS = "remote.storage.options."
_LOCATOR = "remote.locator."
_LISTS = frozenset({"remote.storage.roots", "schema.registry.url"})
"""Keys with several URLs, with commas between them."""
_TYPED = ("value.", "key.")
_HARMLESS_OPTIONS = frozenset(
    {
        "account_host", "account_name", "addressing_style", "anon", "asynchronous", "block_size", "ca_certs",
        "client_kwargs", "config_kwargs", "connect_timeout", "default_block_size", "endpoint_url", "location_mode",
        "max_pool_connections", "profile", "project", "proxies", "proxy", "read_timeout", "region", "region_name",
        "requester_pays", "retries", "s3", "signature_version", "timeout", "use_ssl", "verify", "version_aware",
    }
)  # fmt: skip
_HARMLESS_PROPERTIES = frozenset(
    {"bootstrap.servers", "client.id", "isolation.level", "sasl.mechanism", "sasl.mechanisms", "security.protocol"}
)
_SECRET_PARTS = frozenset({"accountkey", "sharedaccesssignature"})
_URL = re.compile(r"(?P<place>[A-Za-z][A-Za-z0-9+.-]*://[^?#\s]*)(?P<query>\?[^\s]*)?")


def masked(name: str, value: object) -> str:
    """The value of a configuration key as it may be shown."""
    text = str(value)
    if name.startswith(_OPTIONS):
        return _option(name.removeprefix(_OPTIONS), text)
    if name.startswith(_LOCATOR) and name not in KEYS:
        return text if name.removeprefix(_LOCATOR) in _HARMLESS_PROPERTIES else MASK
    if name in _LISTS:
        return ",".join(masked_url(root) for root in text.split(","))
    if name.startswith(("remote.", "fetch.remote.", *_TYPED)):
        return masked_url(text)
    return text if name in _HARMLESS_PROPERTIES else MASK


def masked_url(text: str) -> str:
    """The text, with URLs as `shown_url` has them."""
    return _URL.sub(lambda url: f"{shown_url(url['place'])}{'?' + MASK if url['query'] else ''}", text)


def _option(name: str, text: str) -> str:
    if name == "connection_string":
        return ";".join(_part(*part.partition("=")) for part in text.split(";") if part)
    if name not in _HARMLESS_OPTIONS:
        return MASK
    if text.startswith("{"):
        try:
            return json.dumps(_object(json.loads(text)))
        except (ValueError, RecursionError):
            return MASK
    return masked_url(text)


def _part(key: str, equals: str, value: str) -> str:
    if not equals:
        return MASK
    return f"{key}={MASK if key.strip().lower() in _SECRET_PARTS else masked_url(value)}"


def _object(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _object(inner) if name in _HARMLESS_OPTIONS else MASK for name, inner in value.items()}
    return masked_url(value) if isinstance(value, str) else value
