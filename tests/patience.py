"""How long tests wait for a store: limits that a busy machine does not reach.

Rules of the file:

- A test of a limit sets it. Every other test has these in place of the defaults, which are for users: a machine with
  more processes than cores may stand still for some seconds.
- A test of the defaults themselves asks for `shipped_limits` of conftest.py.
- Child processes have the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from remote_fetch.config.keys import KEYS

__all__ = ["SHIPPED", "UNHURRIED", "set_limits"]

UNHURRIED: Mapping[str, int] = MappingProxyType(
    {"fetch.remote.connect.timeout.ms": 30_000, "fetch.remote.read.timeout.ms": 60_000}
)
SHIPPED = MappingProxyType({name: KEYS[name].default for name in UNHURRIED})


def set_limits(limits: Mapping[str, object]) -> None:
    """Make these the defaults of this process."""
    for name, limit_ms in limits.items():
        object.__setattr__(KEYS[name], "default", limit_ms)  # the keys are frozen, and the product never changes one
