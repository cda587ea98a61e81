"""Whether a host is this machine: credentials and signed URLs may go to it without TLS.

Rules of the file: pure. No name is looked up.
"""

from __future__ import annotations

import ipaddress

__all__ = ["is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether a host, an address or a name in lower case, is this machine (127.0.0.0/8, ::1, localhost)."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
