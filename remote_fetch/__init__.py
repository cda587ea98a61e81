"""remote-fetch: read Kafka's tiered log segments straight from object storage, as the broker would have answered.

The public names are loaded at their first use, so that the import of the package costs next to nothing. `__version__`
is that of the installed package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remote_fetch.arrow import read_arrow as read_arrow
    from remote_fetch.consumer.aio import AIORemoteConsumer as AIORemoteConsumer
    from remote_fetch.consumer.aio_deserializing import (
        AsyncRemoteDeserializingConsumer as AsyncRemoteDeserializingConsumer,
    )
    from remote_fetch.consumer.consumer import RemoteConsumer as RemoteConsumer
    from remote_fetch.consumer.deserializing import RemoteDeserializingConsumer as RemoteDeserializingConsumer
    from remote_fetch.engines.topic_scan import scan_topic as scan_topic
    from remote_fetch.errors import ConfigError as ConfigError
    from remote_fetch.errors import CorruptSegment as CorruptSegment
    from remote_fetch.errors import OffsetOutOfRange as OffsetOutOfRange
    from remote_fetch.errors import RemoteFetchError as RemoteFetchError
    from remote_fetch.errors import StorageDenied as StorageDenied
    from remote_fetch.errors import StorageTimeout as StorageTimeout
    from remote_fetch.errors import UnknownTopic as UnknownTopic
    from remote_fetch.errors import Unlocatable as Unlocatable
    from remote_fetch.errors import UnsupportedFormat as UnsupportedFormat
    from remote_fetch.export import export_topic as export_topic
    from remote_fetch.observe import Counters as Counters
    from remote_fetch.observe import Report as Report

    __version__: str

_HOME = {
    "read_arrow": "arrow",
    "export_topic": "export",
    "scan_topic": "engines.topic_scan",
    "AIORemoteConsumer": "consumer.aio",
    "AsyncRemoteDeserializingConsumer": "consumer.aio_deserializing",
    "RemoteConsumer": "consumer.consumer",
    "RemoteDeserializingConsumer": "consumer.deserializing",
    "Counters": "observe",
    "Report": "observe",
    "ConfigError": "errors",
    "CorruptSegment": "errors",
    "OffsetOutOfRange": "errors",
    "RemoteFetchError": "errors",
    "StorageDenied": "errors",
    "StorageTimeout": "errors",
    "UnknownTopic": "errors",
    "Unlocatable": "errors",
    "UnsupportedFormat": "errors",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the one place


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _installed_version()
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _installed_version() -> str:
    """The version in the metadata of the installed package. Raises AttributeError if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to load

    try:
        return version("remote-fetch")
    except PackageNotFoundError:
        raise AttributeError(
            "remote_fetch has no __version__: the package was not installed, so that its metadata is missing"
        ) from None
