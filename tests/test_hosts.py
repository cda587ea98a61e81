"""Hosts that credentials may be sent to without TLS."""

from __future__ import annotations

from remote_fetch.hosts import is_loopback
from tests.cases import each_of

CASES = {
    "127.0.0.1": True,
    "127.9.9.9": True,
    "::1": True,
    "localhost": True,
    "0.0.0.0": False,
    "::": False,
    "10.0.0.1": False,
    "localhost.example": False,
    "127.0.0.1.example": False,
    "": False,
}


@each_of("host", CASES, ids=str)
def test_only_this_machine_is_loopback(host: str) -> None:
    assert is_loopback(host) is CASES[host]
