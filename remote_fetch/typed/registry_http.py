"""A bound on the answers of a schema registry, in time and in bytes.

Rules of the file:

- The HTTP library of Confluent's client has a timeout for each piece of an answer, and takes an answer of any length.
- The client has no setting for it, so its session gets a hook. A client without such a session stays as it is.
- An answer is asked for as it is, and taken as it comes: a few compressed bytes can become any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from remote_fetch.deadline import Deadline

__all__ = ["bound_answers"]

_MOST_BYTES = 64 << 20
"""The longest answer that is read. A schema file may have a quarter of it, and JSON in JSON is longer."""


def bound_answers(client: Any, most_s: Callable[[], float]) -> None:
    """Let the body of an answer take as long as `most_s` says when it begins, and end with a ReadTimeout else."""
    session = getattr(getattr(client, "_rest_client", None), "session", None)
    if session is None or not hasattr(session, "event_hooks"):
        return
    own = type(session).__mro__[-2]  # a tracer may have put a class of its own in the place of the library's
    library: Any = import_module(own.__module__.partition(".")[0])

    class Bounded(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream, self._until = stream, Deadline.after(most_s())

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for piece in self._stream:
                size += len(piece)
                if size > _MOST_BYTES:
                    raise ValueError(f"an answer of more than {_MOST_BYTES} bytes")
                if self._until.is_over:
                    raise library.ReadTimeout("the answer takes too long")
                yield piece

        def close(self) -> None:
            self._stream.close()

    def bound(response: Any) -> None:
        response.stream = Bounded(response.stream)
        response.headers.pop("Content-Encoding", None)

    session.headers["Accept-Encoding"] = "identity"
    session.event_hooks = {**session.event_hooks, "response": [*session.event_hooks["response"], bound]}
