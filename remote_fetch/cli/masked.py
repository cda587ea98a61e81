"""A configuration in a form that may be shown: all names, and the values that cannot hold a secret.

Rules of the file:

- A value is masked unless its key is known to be harmless, so that a new option leaks nothing.
- URLs lose user information, query and fragment in every text.
- Connection strings keep the parts that are known to be harmless.
"""

from __future__ import annotations

import json
import re
from typing import Any

from remote_fetch.config import KEYS
from remote_fetch.config.settings import is_public_layout_option
from remote_fetch.hosts import shown_url

__all__ = ["MASK", "masked", "masked_url"]

MASK = "***"

_OPTIONS = "remote.storage.options."
_LAYOUT = "remote.storage.layout."
_LOCATOR = "remote.locator."
_LISTS = frozenset({"remote.storage.roots", "schema.registry.url"})
"""Keys with several URLs, with commas between them."""
_NEXT_URL = re.compile(r",(?=\s*[A-Za-z][A-Za-z0-9+.-]*://)")
"""The comma between two URLs of a list. A secret may have commas too."""
_NESTED_OPTIONS = frozenset({"client_kwargs", "config_kwargs", "proxies", "retries", "s3"})
"""Options that are objects. Each name in them counts as the name of an option."""
_HARMLESS_OPTIONS = frozenset(
    {
        "account_host", "account_name", "addressing_style", "anon", "asynchronous", "block_size", "ca_certs",
        "connect_timeout", "default_block_size", "endpoint_url", "location_mode", "max_pool_connections", "profile",
        "project", "proxy", "read_timeout", "region", "region_name", "requester_pays", "signature_version", "timeout",
        "use_ssl", "verify", "version_aware",
    }
)  # fmt: skip
_KEY_FILE = re.compile(r"encryption\.key\.pairs\..*\.private\.key\.file")
_HARMLESS_PROPERTIES = frozenset(
    {"bootstrap.servers", "client.id", "isolation.level", "sasl.mechanism", "sasl.mechanisms", "security.protocol"}
)
_HARMLESS_PARTS = frozenset(
    {
        "accountname", "blobendpoint", "blobsecondaryendpoint", "defaultendpointsprotocol", "dfsendpoint",
        "endpointsuffix", "fileendpoint", "queueendpoint", "tableendpoint", "usedevelopmentstorage",
    }
)  # fmt: skip
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_COLON = re.compile(r":(?!//)")


def masked(name: str, value: object) -> str:
    """The value of a configuration key as it may be shown."""
    text = str(value)
    if name.startswith(_OPTIONS):
        return _option(name.removeprefix(_OPTIONS), text)
    if name.startswith(_LAYOUT):
        option = name.removeprefix(_LAYOUT)
        is_harmless = is_public_layout_option(option) or _KEY_FILE.fullmatch(option) is not None
    elif name in _LISTS:
        return ",".join(masked_url(url) for url in _NEXT_URL.split(text))
    else:
        is_harmless = name in KEYS or name.removeprefix(_LOCATOR) in _HARMLESS_PROPERTIES
    return masked_url(text) if is_harmless else MASK


def masked_url(text: str) -> str:
    """The text, with URLs as `shown_url` has them. All of it is masked if `user:password@host` is left."""
    shown = _URL.sub(lambda url: _shown(url[0]), text)
    return MASK if _COLON.search(shown.rpartition("@")[0]) else shown


def _shown(url: str) -> str:
    has_query = "?" in url or "#" in url
    return f"{shown_url(url)}?{MASK}" if has_query else shown_url(url)


def _option(name: str, text: str) -> str:
    if name == "connection_string":
        return ";".join(_part(*part.partition("=")) for part in text.split(";") if part)
    if name not in _NESTED_OPTIONS:
        return str(_value(name, text))
    try:
        shown = _value(name, json.loads(text))
        return MASK if shown == MASK else json.dumps(shown)
    except (ValueError, RecursionError):
        return MASK


def _value(name: str, value: Any) -> Any:
    """The value of an option. A list names nothing of what it holds, and only options that are known hold objects."""
    if name in _NESTED_OPTIONS:
        return {inner: _value(inner, one) for inner, one in value.items()} if isinstance(value, dict) else MASK
    if name not in _HARMLESS_OPTIONS or isinstance(value, dict | list):
        return MASK
    if isinstance(value, str):
        return MASK if value.lstrip().startswith(("{", "[")) else masked_url(value)
    return value


def _part(key: str, equals: str, value: str) -> str:
    if not equals:
        return MASK
    return f"{key}={masked_url(value) if key.strip().lower() in _HARMLESS_PARTS else MASK}"
