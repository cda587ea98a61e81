"""The consumer class of the clients that this package opens for itself.

Rules of the file:

- It is the class of confluent_kafka's C module, not `confluent_kafka.Consumer`: tracers (OpenTelemetry, ddtrace) and
  patches of a site replace that name. A replaced class would trace the reading of `__remote_log_metadata`, or would
  make a RemoteConsumer inside of a RemoteConsumer, for ever. Ruff refuses the other name in this package.
- `confluent_kafka.admin.AdminClient` is taken from its own module, for the C module has only its base; tracers leave it
  alone.
"""

from __future__ import annotations

from confluent_kafka.cimpl import Consumer

__all__ = ["Consumer"]
