"""The settings of the service, typed and with units, apart from those of the session that it opens.

Rules of the file:

- Values only. `cli/serve.py` makes them of its options.
- Every limit has a number that a reader of this page can find.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "MAX_ANSWER_BYTES",
    "MAX_COMMITTED_SEGMENTS",
    "MAX_HEADER_BYTES",
    "MAX_QUERY_BYTES",
    "MAX_SEGMENTS",
    "ServiceSettings",
    "TlsFiles",
]

MAX_HEADER_BYTES = 24 << 10
"""Longest request line with all headers. Tokens of identity providers have up to a few KB."""
MAX_QUERY_BYTES = 1024
MAX_SEGMENTS = 1_000
"""Most segments in one answer. The client asks for the rest with `from=next`."""
MAX_COMMITTED_SEGMENTS = 100
"""The same under read_committed: each of them may cost the service a GET of a transaction index."""
MAX_ANSWER_BYTES = 512 << 10
"""An answer ends with the segment that passes this size. A slow reader makes the service keep one answer."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a server's certificate chain and of its private key."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How one service behaves. docs/reference/cli.md has the options.

    - `mechanisms` are the SASL mechanisms by which clients' credentials go to the brokers.
    - `proxies`: addresses and networks whose `X-Forwarded-For` is believed, with commas. None: no proxy is believed.
    - `url_lifetime_s`: how long a signed URL is good.
    - `refresh_ms`: the metadata topic is read on at most this often, and only if a request needs it.
    - `allowed_s` and `refused_s`: how long a broker's yes and no are believed.
    - `rate` and `at_once` hold for each principal: requests a second, and requests under way.
    - `max_requests` under way and `max_connections` open hold for all. The usual limit of a process is 1,024 files.
    - `threads` run what waits for brokers and stores; `asks` of brokers about principals may run at once beside them.
    - `headers_timeout_s`: a request has to arrive in this time, and so has a TLS handshake before it.
    - `drain_timeout_s`: an answer has to leave in this time.
    """

    mechanisms: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8090
    tls: TlsFiles | None = None
    proxies: str | None = None
    url_lifetime_s: int = 300
    refresh_ms: int = 1_000
    allowed_s: float = 30.0
    refused_s: float = 5.0
    ask_timeout_s: float = 10.0
    rate: float = 50.0
    at_once: int = 16
    max_requests: int = 512
    max_connections: int = 900
    threads: int = 16
    asks: int = 16
    request_timeout_s: float = 20.0
    headers_timeout_s: float = 15.0
    keep_alive_s: int = 10
    drain_timeout_s: float = 20.0
    shutdown_timeout_s: int = 20
