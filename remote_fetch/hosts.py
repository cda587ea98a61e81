"""Hosts and URLs: whether one is of this machine, and how a URL is shown without its secrets.

Rules of the file: no name is looked up. `check_password` alone asks the disk.
"""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import urlsplit

from remote_fetch.errors import ConfigError

__all__ = ["check_password", "is_http_url", "is_loopback", "is_path", "shown_url"]

_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes whose URLs have a container where others have the user: `abfs://container@account.dfs.core.windows.net`."""
_HOST_ENDS = re.compile("[/?#]")
_QUERY = re.compile("[?#]")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine (127.0.0.0/8, ::1, localhost). It is an address, or a name in lower case.

    Credentials and signed URLs may go to this machine without TLS.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_path(url: str) -> bool:
    """Whether a URL is a path, `/folder`, `file:///folder` or a relative one. A question mark in it begins no query."""
    return url.startswith(("/", "file:///")) or "://" not in url


def is_http_url(text: str) -> bool:
    """Whether a text is an HTTP URL with a host, and with a valid port if it names one.

    Libraries show a URL with a wrong port in their errors, with its password.
    """
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def shown_url(url: str) -> str:
    """A URL as messages may have it: without user information, query and fragment, with port and container.

    `/`, `?` and `#` end the host of a URL. A password that has one of them leaves its rest, and an `@`, behind the end.
    If a URL looks so, all but the scheme becomes `***`.
    """
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url.partition("?")[0]
    authority = _HOST_ENDS.split(rest, maxsplit=1)[0]
    before = rest.rpartition("@")[0]
    if len(before) > len(authority) and ":" in before:
        return f"{scheme}://***"
    user, at, host = authority.rpartition("@")
    container = user + at if scheme.lower() in _CONTAINERS and ":" not in user else ""
    return f"{scheme}://{container}{host}{_QUERY.split(rest[len(authority) :], maxsplit=1)[0]}"


def check_password(url: str, key: str) -> None:
    """Raise ConfigError for `user:password@host/folder`, which would be a directory, with its password in messages.

    `key` is the argument or setting that it comes from. A path that exists is taken, and one of Windows, such as
    `C:\\Users\\me@host`.
    """
    before, at, _ = url.replace("\\", "/").partition("/")[0].rpartition("@")
    if at and ":" in before and not os.path.lexists(url):
        raise ConfigError(
            f"{key} has a user and a password, but no scheme such as https://",
            key=key,
            hint="A path of that name is ./NAME",
        )
