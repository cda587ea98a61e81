"""URLs in errors: a URL may hold a password, and its query may be a signature. No error shows them."""

from __future__ import annotations

from remote_fetch.errors import RemoteFetchError
from remote_fetch.hosts import shown_url

__all__ = ["hidden"]


def hidden(error: RemoteFetchError, location: str) -> RemoteFetchError:
    """The error without what is signed: what others raised, and the name they gave the object, may have the query."""
    query = location.partition("?")[2]
    if query:
        error.message = error.message.replace(query, "...")
        error.args = (error.message,)
    error.object_name = shown_url(location)
    error.__context__ = None
    return error
