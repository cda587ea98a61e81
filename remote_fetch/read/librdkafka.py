"""Whatever is not a key of ours belongs to librdkafka, and librdkafka is asked whether it knows it.

Rules of the file:

- No connection is made here, only names and values are checked.
- No callback of the application is handed to the check: a client would call it, an `oauth_cb` for a token at once.
- confluent_kafka is imported only if there is anything to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import ConfigError

__all__ = ["check_properties"]

_LEFT_OUT = ("bootstrap.servers", "metadata.broker.list", "debug")
"""Left out of the check: with them a client would begin to connect, or to talk."""
_MECHANISM = ("sasl.mechanism", "sasl.mechanisms", "security.protocol")


def check_properties(properties: Mapping[str, Any]) -> None:
    """Raise ConfigError for a property that librdkafka does not know or whose value it refuses."""
    if not properties:
        return
    from confluent_kafka import KafkaException  # noqa: PLC0415 - only if there is something to check

    from remote_fetch.locate.clients import Consumer  # noqa: PLC0415 - as above

    checked = {name: value for name, value in properties.items() if name not in _LEFT_OUT and not callable(value)}
    if callable(properties.get("oauth_cb")):
        # Without its callback a client of this mechanism waits for a token that never comes.
        checked = {name: value for name, value in checked.items() if name not in _MECHANISM}
    try:
        Consumer({"group.id": "remote-fetch-check", **checked}).close()
    except KafkaException as error:
        raise ConfigError(
            f"librdkafka refuses the configuration: {error.args[0].str()}",
            hint="Keys that are not remote-fetch's own (docs/reference/configuration.md) are handed to librdkafka",
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"librdkafka refuses the configuration: {error}") from error
