"""Errors of this package without their way through it, because Spark prints each traceback twice.

Rules of the file:

- Only errors of `remote_fetch.errors` are shortened. Their text names the place and the mend.
- All other errors keep their traceback: they are mistakes in the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from remote_fetch.errors import RemoteFetchError

__all__ = ["brief", "brief_each"]

P = ParamSpec("P")
T = TypeVar("T")


def brief(method: Callable[P, T]) -> Callable[P, T]:
    """The same method, whose errors of this package have this one frame alone."""

    @wraps(method)
    def kafka_remote(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except RemoteFetchError as error:
            raise error.with_traceback(None) from None

    return kafka_remote


def brief_each(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """As `brief`, for a method that returns an iterator: the errors of each step too."""

    @wraps(method)
    def kafka_remote(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except RemoteFetchError as error:
            raise error.with_traceback(None) from None

    return kafka_remote
