"""The filesystem of a target, whose failures are errors of this package.

Rules of the file:

- Staging and commit call a filesystem, and the files that it opens, through this.
- A file that is not there is a FileNotFoundError, whatever the store says. Callers rely on it.
- A disk has no SDK. Its own OSErrors say what failed, and are passed on. So is any OSError without a library's cause.
- No text of a store or an SDK is repeated, because it may hold secrets. The URL of a file is shown without them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from remote_fetch.errors import ConfigError, RemoteFetchError, SegmentNotFound, StorageUnavailable
from remote_fetch.failures.causes import as_cause
from remote_fetch.failures.store_errors import failure_of
from remote_fetch.hosts import shown_url
from remote_fetch.session.filesystems import protocols_of
from remote_fetch.tables.commit import is_local

__all__ = ["TargetFilesystem", "of_target"]

_HINT = (
    "This is the target: check to, to_options (--to, --to-option) and the credentials in the environment. "
    "The same call again goes on where this one ended"
)
_UNKNOWN_OPTION = re.compile(r"unexpected keyword argument '(\w+)'")
_OF_OPTIONS = (AttributeError, KeyError, TypeError, ValueError)
"""SDKs raise these for options that they do not take. Some look at them with the first call."""


def of_target(filesystem: Any) -> Any:
    """The fsspec filesystem with the errors of this package. That of this machine stays as it is."""
    stays = isinstance(filesystem, TargetFilesystem) or is_local(filesystem)
    return filesystem if stays else TargetFilesystem(filesystem)


class _Mapped:
    """Hands everything on to `inner`. `error_of` makes the error of a call that failed; None: it is passed on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except Exception as error:
            ours = self._error_of(error, arguments)
            if ours is None:
                raise
            raise ours from as_cause(error)

    def _error_of(self, error: Exception, arguments: tuple[Any, ...]) -> Exception | None:
        raise NotImplementedError


class TargetFilesystem(_Mapped):
    """An fsspec filesystem. Pickles with it.

    Calls raise FileNotFoundError, StorageDenied, StorageUnavailable and the other errors of a store, ConfigError for
    options that the filesystem does not take, and OSError if no store is asked.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return TargetFilesystem, (self._inner,)

    def open(self, name: str, mode: str) -> Any:
        """A file of the filesystem, whose calls raise the same errors."""
        return _TargetFile(self._call(self._inner.open, name, mode), self._shown(name))

    def _error_of(self, error: Exception, arguments: tuple[Any, ...]) -> Exception | None:
        ours = _failure_of(error, self._shown(arguments[0]) if arguments else "")
        if ours is None and isinstance(error, _OF_OPTIONS):
            unknown = _UNKNOWN_OPTION.search(str(error))
            what = f"does not know {unknown[1]!r}" if unknown else f"does not take them ({type(error).__name__})"
            scheme = min(protocols_of(self._inner))
            return ConfigError(
                f"to_options: the filesystem {scheme!r} {what}", key="to_options", hint="Check to_options (--to-option)"
            )
        return ours

    def _shown(self, name: Any) -> str:
        return shown_url(str(self._inner.unstrip_protocol(name))) if isinstance(name, str) else ""


class _TargetFile(_Mapped):
    """A file that is open for writing."""

    def __init__(self, inner: Any, name: str) -> None:
        super().__init__(inner)
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._inner.close)

    def _error_of(self, error: Exception, arguments: tuple[Any, ...]) -> Exception | None:
        return _failure_of(error, self._name)


def _failure_of(error: Exception, name: str) -> Exception | None:
    """The error of ours for a failure of the store; None for one that is passed on."""
    is_python = type(error).__module__ == "builtins"
    if isinstance(error, RemoteFetchError) or (is_python and isinstance(error, OSError) and error.__cause__ is None):
        return None
    failure = failure_of(error, name)
    if isinstance(failure, SegmentNotFound) and failure.is_absent:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if failure is not None:
        return type(failure)(failure.message, object_name=name, hint=_HINT)
    if is_python:
        return None
    text = f"the filesystem failed ({type(error).__module__.partition('.')[0]}.{type(error).__qualname__})"
    return StorageUnavailable(text, object_name=name, hint=_HINT)
