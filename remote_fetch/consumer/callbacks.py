"""Keeps the errors of the application's callbacks away from librdkafka, until its call has ended.

Rules of the file:

- If a callback raises, librdkafka (2.16) may forget the record that comes next in its queue, and confluent_kafka drops
  those that the call has taken: the application never gets them. A forgotten record holds its partition, so `close`
  waits for ever.
- So a guarded callback raises nothing. `poll`, `consume` and `close` raise its error when the records are safe.
- A handler of a signal waits while librdkafka waits. Python calls the handler as the next function begins, before the
  first line of that function. Often this is a callback, so the guard is entered inside of a `try`.
- `oauth_cb` is not guarded. librdkafka calls it in a thread of its own, and has to know that it has failed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from operator import methodcaller
from types import SimpleNamespace
from typing import Any, cast

__all__ = ["Callbacks"]

_LOG = logging.getLogger("remote_fetch")
_NAMES = ("error_cb", "on_commit", "stats_cb", "throttle_cb")


class Callbacks:
    """The callbacks of one consumer. `kept` has the error that is to be raised, or nothing."""

    def __init__(self) -> None:
        self.kept: list[BaseException] = []

    def guard_all(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The properties, with guarded callbacks."""
        guarded: dict[str, Any] = {
            name: self.guard(properties[name]) for name in _NAMES if callable(properties.get(name))
        }
        if callable(log := getattr(properties.get("logger"), "log", None)):
            guarded["logger"] = SimpleNamespace(log=self.guard(log))
        return {**properties, **guarded}

    def guard(self, callback: Callable[..., Any]) -> Callable[..., None]:
        """The callback, which raises nothing."""

        def guarded(*args: Any) -> None:
            try:
                callback(*args)
            except BaseException as error:  # a handler of a signal may run in the callback
                self.keep(error)

        return cast("Callable[..., None]", _Guard(guarded, self.keep))

    def keep(self, error: BaseException) -> None:
        """Keep an error for `raise_kept`: the first one, but rather one that ends the program. Others are logged."""
        if self.kept and not isinstance(error, Exception):
            self.kept[0], error = error, self.kept[0]
        if self.kept:
            _LOG.error("a callback failed, and another error is raised", exc_info=error)
        else:
            self.kept.append(error)

    def log_kept(self) -> None:
        """Log the error that is kept, because no call may come that raises it. Not one that ends the program."""
        if self.kept and isinstance(self.kept[0], Exception):
            _LOG.error("a callback failed", exc_info=self.kept[0])

    def raise_kept(self, prepare: Callable[[], None] = lambda: None) -> None:
        """If an error is kept, call `prepare` and raise the error."""
        if self.kept:
            prepare()
            raise self.kept.pop()


class _Guard:
    """Calls `guarded`. If a handler of a signal waits, Python calls it first, and `keep` gets its error.

    The generator goes on inside of its `try`, and only returns `guarded`, so that a callback may run in a callback.
    Before the generator goes on, functions in C alone run.
    """

    __call__ = property(methodcaller("enter"))

    def __init__(self, guarded: Callable[..., None], keep: Callable[[BaseException], None]) -> None:
        # A second signal may end a generator in `keep`. Then another one follows.
        self.enter = chain.from_iterable(iter(partial(_gate, guarded, keep), None)).__next__
        self.enter()


def _gate(guarded: Callable[..., None], keep: Callable[[BaseException], None]) -> Iterator[Callable[..., None]]:
    while True:
        try:
            while True:
                yield guarded
        except GeneratorExit:
            return
        except BaseException as error:
            keep(error)
