"""Which process of a session runs which test files.

Rules of the file:

- A file runs in one process, whole. The files of `_WITH_SPARK` run in one process together, so that Spark is started
  once: a second start, and its first queries, take 12 s of a core.
- A broker takes two seconds of a core to start, and a twentieth of a core at rest. So the first `_BROKER_PROCESSES`
  processes take the files with brokers, and the others help with them only if nothing else is left.
- This changes the order and the place of tests, and nothing else: every file runs.
"""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["group_of", "group_scheduling", "has_brokers", "suits"]

_BROKER_PROCESSES = 3
_WITH_SPARK = ("tests/rig/test_spark", "tests/spark/", "tests/stores/test_backfill_targets.py")
"""The beginnings of paths."""
_SPARK_GROUP = "tests/rig/ and others, with Spark"
_WITH_BROKERS = ("tests/rig/", "tests/contract/")


def group_of(nodeid: str) -> str:
    """The group of a test: files that run in one process, one after the other."""
    return _SPARK_GROUP if nodeid.startswith(_WITH_SPARK) else nodeid.partition("::")[0]


def has_brokers(group: str) -> bool:
    """Whether the files of the group use a shared broker."""
    return group.startswith(_WITH_BROKERS)


def suits(group: str, process: int) -> bool:
    """Whether the process with this number (from 0) takes the group before others."""
    return has_brokers(group) == (process < _BROKER_PROCESSES)


def group_scheduling(config: pytest.Config, log: object) -> object:
    """A scheduler of xdist that follows the rules of this file."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class GroupScheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            process = list(self.assigned_work).index(node)
            wanted = next((group for group in self.workqueue if suits(group, process)), None)
            if wanted is not None:
                self.workqueue.move_to_end(wanted, last=False)
            super()._assign_work_unit(node)

    return GroupScheduling(config, log)
