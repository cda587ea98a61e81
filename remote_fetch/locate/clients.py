"""The consumer class of the clients that this package opens for itself.

Rules of the file: it is the class of confluent_kafka's C module, not `confluent_kafka.Consumer`. Tracers
(OpenTelemetry, ddtrace) and site-wide patches replace that name. A replaced class would trace the reading of
`__remote_log_metadata`, or would make a RemoteConsumer inside of a RemoteConsumer, for ever.
"""

from __future__ import annotations

from confluent_kafka.cimpl import Consumer

__all__ = ["Consumer"]
