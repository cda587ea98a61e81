"""Signed URLs in errors: the query of a URL may be a signature, and no error shows it."""

from __future__ import annotations

from remote_fetch.errors import RemoteFetchError

__all__ = ["hidden", "shown"]


def hidden(error: RemoteFetchError, location: str) -> RemoteFetchError:
    """The error without what is signed: what others raised, and the name they gave the object, may have the query."""
    query = location.partition("?")[2]
    if query:
        error.message = error.message.replace(query, "...")
        error.args = (error.message,)
    error.object_name = shown(location)
    error.__context__ = None
    return error


def shown(location: str) -> str:
    """A location as messages may have it: without query and user information."""
    path = location.partition("?")[0]
    scheme, colon, rest = path.partition("://")
    host, slash, name = rest.partition("/")
    return f"{scheme}{colon}{host.rpartition('@')[2]}{slash}{name}" if colon else path
