"""URLs in errors: a URL may hold a password, and its query may be a signature. No error shows them."""

from __future__ import annotations

import re
import traceback

from remote_fetch.errors import RemoteFetchError
from remote_fetch.failures.store_errors import RefusedError, answered_status
from remote_fetch.hosts import shown_url

__all__ = ["as_cause", "hidden"]

_URL = re.compile(r"://|\burl: /")
"""A URL in the text of an error, also as requests and urllib3 show it: without its host."""


def as_cause(error: BaseException | None) -> BaseException | None:
    """The error. If it or an error behind it shows a URL, one with its status, number (errno) or class's name."""
    if error is None or _URL.search("".join([repr(error), *traceback.format_exception(error, limit=0)])) is None:
        return error
    status, number, name = answered_status(error), getattr(error, "errno", None), type(error).__name__
    if status is not None:
        return RefusedError(status)
    return ConnectionError(name) if number is None else ConnectionError(number, name)


def hidden(error: RemoteFetchError, location: str) -> RemoteFetchError:
    """The error without what is signed: what others raised, and the name they gave the object, may have the query."""
    query = location.partition("?")[2]
    if query:
        error.message = error.message.replace(query, "...")
        error.args = (error.message,)
    error.object_name = shown_url(location)
    error.__context__ = None
    return error
