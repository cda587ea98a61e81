"""Opens fsspec's filesystems for places that are written to: the target of a backfill, the cache of timelines.

Rules of the file:

- No listing is kept: other processes write too.
- A redirect of an endpoint of S3, GCS or Azure is not followed: any host could get what is written.
- The filesystem's class and options are fsspec's. No SDK is loaded before a URL names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from remote_fetch.errors import ConfigError, MissingExtra
from remote_fetch.failures.causes import as_cause
from remote_fetch.failures.store_errors import failure_of
from remote_fetch.fetch.plugins import scheme_of
from remote_fetch.sdks.ssh import close_ssh_with

__all__ = ["direct", "folder_of", "is_object_store", "open_filesystem", "protocols_of"]

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}
"""The extra of remote-fetch that installs the SDK of a scheme."""
_OBJECT_STORES = frozenset(_EXTRAS)
"""The fsspec protocols of stores without directories."""


def folder_of(url: str) -> str | None:
    """The directory of a path or a `file:` URL, as a local storage takes it. None for the URL of another store."""
    from fsspec.core import strip_protocol  # noqa: PLC0415 - only where something is written

    scheme = scheme_of(url)
    return str(strip_protocol(scheme + url[len(scheme) :])) if scheme in ("", "file") else None


def open_filesystem(url: str, options: Mapping[str, Any], *, key: str) -> tuple[Any, str]:
    """The filesystem of a URL and the path in it. `key` names the URL in messages.

    Raises ConfigError for an unknown scheme and for options that the filesystem does not take, MissingExtra if its SDK
    is not installed, and the errors of a store if it is asked at once.
    """
    from fsspec.core import strip_protocol  # noqa: PLC0415 - only where something is written

    scheme = scheme_of(url)
    url = scheme + url[len(scheme) :]  # fsspec knows schemes in lower case
    # A cached listing would hide files that other processes write.
    options = {"use_listings_cache": False, **options}
    try:
        if scheme in ("gs", "gcs"):
            # Before each operation fsspec's own choice of class asks by gRPC for the kind of the bucket. If only the
            # JSON API is served, each of these calls takes a minute.
            plain = import_module("gcsfs.core").GCSFileSystem
            return plain(**_of_gcs(options)), strip_protocol(url)
        if _is_of(scheme, "azure", "adlfs."):
            from remote_fetch.sdks.azure import DirectFileSystem, not_anonymous  # noqa: PLC0415 - as above

            of_url = DirectFileSystem._get_kwargs_from_urls(url)
            others = {name: value for name, value in of_url.items() if options.get(name) != value}
            return DirectFileSystem(**others, **not_anonymous(options)), strip_protocol(url)
        return _of_url(url, _of_s3(options) if _is_of(scheme, "s3", "s3fs.") else options)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        if extra is None:
            raise ConfigError(f"{key}={scheme}://...: fsspec needs another library for it: {error}", key=key) from None
        raise MissingExtra(f"{scheme}:// cannot be written to: {error}", extra=extra) from None
    except ValueError as error:
        raise ConfigError(f"{key}={scheme}://...: {error}", key=key) from None
    except Exception as error:
        raise failure_of(error, f"{scheme}://...") or ConfigError(
            f"{key}={scheme}://...: no filesystem can be made of these options ({type(error).__name__})", key=key
        ) from as_cause(error)


def _of_url(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """fsspec's filesystem of a URL, and the path in it.

    Filesystems of SSH hand each option on to their client, which refuses that of listings.
    """
    from fsspec.core import url_to_fs  # noqa: PLC0415 - as above

    try:
        found: tuple[Any, str] = url_to_fs(url, **options)
    except TypeError:
        taken = {name: value for name, value in options.items() if name != "use_listings_cache"}
        found = url_to_fs(url, **{**taken, "skip_instance_cache": True})
        found[0].dircache.use_listings_cache = False
        close_ssh_with(found[0])
    return found


def direct(filesystem: Any) -> Any:
    """A filesystem that another library has opened, as one that follows no redirect if it is of S3, GCS or Azure."""
    kind, options = type(filesystem), filesystem.storage_options
    library = kind.__module__.partition(".")[0]
    if library == "adlfs":
        from remote_fetch.sdks.azure import DirectFileSystem  # noqa: PLC0415 - as above

        return DirectFileSystem(**options)
    if library == "gcsfs":
        return kind(**_of_gcs(options))
    return kind(**_of_s3(options)) if library == "s3fs" else filesystem


def _is_of(scheme: str, extra: str, library: str) -> bool:
    """Whether a library opens the URLs of an extra's scheme: another one may have registered itself for them."""
    from fsspec import get_filesystem_class  # noqa: PLC0415 - as above

    return _EXTRAS.get(scheme) == extra and get_filesystem_class(scheme).__module__.startswith(library)


def _of_s3(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of s3fs with a session that follows no redirect: what is written could go to any host."""
    from remote_fetch.sdks.s3 import DirectSession  # noqa: PLC0415 - as above

    given = options.get("config_kwargs") or {}
    return {**options, "config_kwargs": {"http_session_cls": DirectSession, **given}}


def _of_gcs(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of gcsfs with sessions that follow no redirect."""
    from remote_fetch.sdks.gcs import DirectSessions, without_slash  # noqa: PLC0415 - as above

    given = options.get("session_kwargs") or {}
    traces = [*(given.get("trace_configs") or ()), DirectSessions()]
    return {**without_slash(options), "session_kwargs": {**given, "trace_configs": traces}}


def is_object_store(filesystem: Any) -> bool:
    """Whether the filesystem is a store without directories, whose paths begin with a bucket or container."""
    return bool(protocols_of(filesystem) & _OBJECT_STORES)


def protocols_of(filesystem: Any) -> set[str]:
    """The names under which fsspec knows a filesystem."""
    return {filesystem.protocol} if isinstance(filesystem.protocol, str) else set(filesystem.protocol)
