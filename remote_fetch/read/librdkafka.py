"""Whatever is not a key of ours belongs to librdkafka, and librdkafka is asked whether it knows it.

Rules of the file: no connection is made here, only names and values are checked; confluent_kafka is imported only if
there is anything to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import ConfigError

__all__ = ["check_properties"]

_LEFT_OUT = ("bootstrap.servers", "metadata.broker.list", "debug")
"""Left out of the check: with them a client would begin to connect, or to talk."""


def check_properties(properties: Mapping[str, Any]) -> None:
    """Raise ConfigError for a property that librdkafka does not know or whose value it refuses."""
    if not properties:
        return
    import confluent_kafka  # noqa: PLC0415 - only where there is something to check

    checked = {name: value for name, value in properties.items() if name not in _LEFT_OUT}
    try:
        confluent_kafka.Consumer({"group.id": "remote-fetch-check", **checked}).close()
    except confluent_kafka.KafkaException as error:
        raise ConfigError(
            f"librdkafka refuses the configuration: {error.args[0].str()}",
            hint="Keys that are not remote-fetch's own (docs/reference/configuration.md) are handed to librdkafka",
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"librdkafka refuses the configuration: {error}") from error
