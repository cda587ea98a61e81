"""Exports that are killed: `python -m tests.tables.killed_exports DIRECTORY FORMAT SEED POINTS` prints JSON.

Rules of the file:

- An export is killed by SIGKILL at the nth thing that it does to its target: a file is opened, renamed or removed, a
  directory made, a transaction of the catalog begun or committed, a commit of the library begun or done.
- Each runs in a process of its own, forked from this one, which has everything loaded and starts no thread.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import fsspec.implementations.local  # noqa: F401 - loaded before the forks
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow
import sqlalchemy.event

from tests.tables.tables import Topic, export, files_below, files_of, held, opened, same, target

_SEEN = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "sqlite3.connect")


class Steps:
    """Counts the steps of this process, and ends it at one of them. `kill_at` 0: never."""

    def __init__(self, lake: Path, kill_at: int) -> None:
        self._lake, self._kill_at = str(lake), kill_at
        self.names: list[str] = []

    def take(self, name: str) -> None:
        """One more step."""
        self.names.append(name)
        if len(self.names) == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """Take a step for each thing that is done to the target, from now on."""

        def hear(event: str, arguments: tuple[Any, ...]) -> None:
            if event in _SEEN and self._lake in str(arguments[0]):
                self.take(f"{event} {str(arguments[0]).rpartition('/')[2]}")

        sys.addaudithook(hear)
        for name in ("begin", "commit"):
            sqlalchemy.event.listen(sqlalchemy.Engine, name, lambda *_, name=name: self.take(f"catalog {name}"))
        for owner, name in (
            (deltalake.DeltaTable, "create_write_transaction"),
            (deltalake.DeltaTable, "create"),
            (pyiceberg.catalog.sql.SqlCatalog, "commit_table"),
        ):
            setattr(owner, name, self._around(getattr(owner, name), name))

    def _around(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def stepping(*given: Any, **named: Any) -> Any:
            self.take(f"before {name}")
            answer = call(*given, **named)
            self.take(f"after {name}")
            return answer

        return stepping


def forked(run: Callable[[], object]) -> int:
    """Run a function in a forked process. Returns what `os.wait` tells of its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitpid(child, 0)[1]


def exported(topic: Topic, format_: str, lake: Path, end: int | str) -> None:
    """An export up to `end`."""
    export(topic, target(format_, lake), partition_by=["hour"], end=end)


def killed(topic: Topic, format_: str, lake: Path, kill_at: int) -> tuple[int, list[str]]:
    """An export that is killed at a step. Returns how it ended, and its steps, if it was not killed."""
    log = lake.with_suffix(".steps")
    log.unlink(missing_ok=True)

    def run() -> None:
        steps = Steps(lake, kill_at)
        steps.watch()
        exported(topic, format_, lake, "tier")
        log.write_text(json.dumps(steps.names))

    ended = forked(run)
    return ended, json.loads(log.read_text()) if log.exists() else []


def load(run: Callable[[], object], log: Path) -> None:
    """Load the modules that a function loads in a forked process: each later process would load them, too."""

    def running() -> None:
        run()
        log.write_text(json.dumps(list(sys.modules)))

    assert forked(running) == 0
    for name in json.loads(log.read_text()):
        if name not in sys.modules:
            importlib.import_module(name)


def finish(topic: Topic, format_: str, lake: Path) -> None:
    """The export once more: each record is in the table once then, and nothing else is left."""
    exported(topic, format_, lake, "tier")
    where = target(format_, lake)
    assert same(held(where), topic.rows())
    assert opened(where).folder().jobs() == []
    assert files_below(where) == files_of(where)


def main(directory: Path, format_: str, seed: int, points: int) -> None:
    """Kill the first export of a table at many points, and a later one at as many."""
    warnings.simplefilter("ignore")
    topic, lake, base = Topic(directory / "tier").grow(2), directory / "lake", directory / "base"
    finished = partial(finish, topic, format_, lake)
    base.mkdir()
    load(finished, directory / "modules.json")
    gc.freeze()
    told: list[str] = []
    for stage in ("first", "later"):
        if stage == "later":
            put_back(base, lake)
            assert forked(partial(exported, topic, format_, lake, 12)) == 0
            put_back(lake, base)
        put_back(base, lake)
        ended, names = killed(topic, format_, lake, 0)
        assert ended == 0
        assert names
        dice = random.Random(seed)
        wanted = {1 + len(names) * at // points for at in range(points)}
        wanted |= {dice.randint(1, len(names)) for _ in range(1 + points // 8)}
        for at in sorted(wanted):
            put_back(base, lake)
            ended, _ = killed(topic, format_, lake, at)
            assert os.WIFSIGNALED(ended), f"not killed at {at} of {len(names)}"
            assert forked(finished) == 0, names[at - 1]
            told.append(names[at - 1])
    print(json.dumps(told))


def put_back(source: Path, lake: Path) -> None:
    """Make `lake` a copy of `source`. Iceberg writes the place of a table into its files, so that it stays the same."""
    shutil.rmtree(lake, ignore_errors=True)
    shutil.copytree(source, lake)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
