"""Shows on stderr how far a command is: one line that changes on a terminal, a line a minute elsewhere.

Rules of the file:

- Nothing goes to stdout. `rich` would redirect it, and may not.
- Nothing is shown with `-q`, and no progress if the records themselves go to the terminal.
- A read that waits says why at once, for its report may never come.
- With `rich` (extra `cli`) a bar stands before the line. The text is the same without it.
- The thread that made the `Progress` draws. Events of other threads are only counted.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from remote_fetch.observe import Event, Notice, ReadPlanned, RecordsRead
from remote_fetch.progress import LINE_EVERY_S, Meter, Position, ReadPosition

__all__ = ["Progress"]

_DRAWN_EVERY_S = 0.2
_BAR_WIDTH = 24


class _Display(Protocol):
    def show(self, text: str, position: Position) -> None:
        """Show a position in place of the one before."""

    def clear(self) -> None:
        """Remove the shown position, so that other lines are not mixed with it."""


class Progress:
    """A context manager and an observer of reads. `step` names what the command does with offsets.

    - A read is followed by its events. Other work calls `at`.
    - `clear` comes before each line that the command prints on a terminal.
    - A read that ends after `most` records is measured by them.
    - `waits`: the reasons for which a read waits are printed. By default they are if progress is `enabled`.
    """

    def __init__(
        self,
        step: str = "offsets read",
        *,
        enabled: bool,
        waits: bool | None = None,
        most: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._read = ReadPosition(step, most)
        self._display = _display(sys.stderr) if enabled else None
        self._tells_waits = enabled if waits is None else waits
        is_line = isinstance(self._display, _LogLines)
        every_s = LINE_EVERY_S if is_line else _DRAWN_EVERY_S
        self._meter = Meter(every_s, clock(), wait_s=every_s if is_line else 0.0)

    def __call__(self, event: Event) -> None:
        """Take an event of a read."""
        self.tell_wait(event)
        if self._display is None:
            return
        with self._lock:
            self._read(event)
            position = self._read.position() if self._read.is_planned else None
        if position is not None and isinstance(event, (ReadPlanned, RecordsRead)):
            self.at(position)

    def tell_wait(self, event: Event) -> None:
        """Take an event of a read whose offsets tell no share. Only the reason of a wait is printed."""
        if isinstance(event, Notice) and event.is_wait and self._tells_waits:
            if threading.get_ident() == self._thread:
                self.clear()
            print(f"% {event.text}", file=sys.stderr, flush=True)

    def at(self, position: Position) -> None:
        """Take a position, and show it if it is time."""
        if self._display is None or threading.get_ident() != self._thread:
            return
        now_s = self._clock()
        self._meter.take(position, now_s)
        if self._meter.is_due(now_s):
            self._display.show(self._meter.line(position, now_s), position)

    def begin(self, step: str) -> None:
        """Give the next read another name."""
        self._read.step = step

    def clear(self) -> None:
        """Remove the line from the terminal. It comes again with the next position that is shown."""
        if self._display is not None:
            self._display.clear()

    def stop(self) -> None:
        """Remove the line, and show no other."""
        self.clear()
        self._display = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _display(file: TextIO) -> _Display:
    if not file.isatty():
        return _LogLines(file)
    return _rich_bar() or _TerminalLine(file)


class _LogLines:
    """Lines that stay. The meter says when one is due."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def show(self, text: str, position: Position) -> None:
        print(f"% {text}", file=self._file, flush=True)

    def clear(self) -> None:
        pass


class _TerminalLine:
    """A line of a terminal that is written again. It uses no escape codes, so that any terminal can show it."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._shown = 0

    def show(self, text: str, position: Position) -> None:
        line = f"% {text}"[: _columns(self._file) - 1]
        self._file.write("\r" + line.ljust(self._shown))
        self._file.flush()
        self._shown = len(line)

    def clear(self) -> None:
        if self._shown:
            self._file.write("\r" + " " * self._shown + "\r")
            self._file.flush()
            self._shown = 0


def _columns(file: TextIO) -> int:
    with suppress(OSError, ValueError):  # a stream without a file
        return os.get_terminal_size(file.fileno()).columns or 80
    return 80


class _Bar:
    """A bar of `rich` with the line behind it."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)
        self._is_shown = False

    def show(self, text: str, position: Position) -> None:
        if not self._is_shown:
            self._bar.start()
            self._is_shown = True
        self._bar.update(self._task, description=text, total=position.total, completed=position.done, refresh=True)

    def clear(self) -> None:
        if self._is_shown:
            self._bar.stop()
            self._is_shown = False


def _rich_bar() -> _Bar | None:
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra, and only for a terminal
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - as above
        from rich.table import Column  # noqa: PLC0415 - as above
    except ImportError:
        return None
    console = Console(stderr=True)
    if console.is_dumb_terminal:  # rich draws no bar there
        return None
    text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    return _Bar(
        Progress(
            BarColumn(bar_width=_BAR_WIDTH),
            text,
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
    )
