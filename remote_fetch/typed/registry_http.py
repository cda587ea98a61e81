"""A bound on the answers of a schema registry, in time and in bytes.

Rules of the file:

- The HTTP library of Confluent's client has a timeout for each piece of an answer, and takes an answer of any length.
- The client has no setting for it, so its session gets hooks. A client without such a session stays as it is.
- The library hands each new connection to the `trace` of a request, and reads all answers by the `read` of that stream.
- An answer is asked for as it is, and taken as it comes: a few compressed bytes can become any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from remote_fetch.deadline import Deadline

__all__ = ["bound_answers"]

_MOST_BYTES = 64 << 20
"""The longest answer that is read. A schema file may have a quarter of it, and JSON in JSON is longer."""


def bound_answers(client: Any, most_s: Callable[[], float]) -> None:
    """Let an answer, with its head, take as long as `most_s` says for its request, and end with a ReadTimeout else.

    The library's timeout of a piece is the least time.
    """
    session = getattr(getattr(client, "_rest_client", None), "session", None)
    if session is None or not hasattr(session, "event_hooks"):
        return
    own = type(session).__mro__[-2]  # a tracer may have put a class of its own in the place of the library's
    library: Any = import_module(own.__module__.partition(".")[0])

    class Bounded(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for piece in self._stream:
                size += len(piece)
                if size > _MOST_BYTES:
                    raise ValueError(f"an answer of more than {_MOST_BYTES} bytes")
                yield piece

        def close(self) -> None:
            self._stream.close()

    def bound(response: Any) -> None:
        response.stream = Bounded(response.stream)
        response.headers.pop("Content-Encoding", None)

    hooks, begin = session.event_hooks, _clock(library, most_s)
    session.headers["Accept-Encoding"] = "identity"
    session.event_hooks = {"request": [*hooks["request"], begin], "response": [*hooks["response"], bound]}


def _clock(library: Any, most_s: Callable[[], float]) -> Callable[[Any], None]:
    """A hook of requests. It begins the time of an answer, and bounds the reading of each new connection."""
    until = Deadline.after(0)

    def begin(request: Any) -> None:
        nonlocal until
        until = Deadline.after(max(most_s(), request.extensions["timeout"]["read"] or 0.0))
        request.extensions["trace"] = bound_stream

    def bound_stream(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            stream = info["return_value"]
            stream.read = partial(read, stream.read)

    def read(read_piece: Callable[..., bytes], most_bytes: int, timeout: float | None = None) -> bytes:
        left_s = until.left_s
        if not left_s:
            raise library.ReadTimeout("the answer takes too long")
        return read_piece(most_bytes, timeout=left_s if timeout is None else min(left_s, timeout))

    return begin
