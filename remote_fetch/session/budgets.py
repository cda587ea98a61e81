"""The budgets of this process: sessions that are open at the same time with the same limits share one.

Rules of the file:

- A session takes its budget when it opens, and gives it back when it closes.
"""

from __future__ import annotations

from remote_fetch.config.settings import Settings
from remote_fetch.fetch.budget import Budget
from remote_fetch.locate.leases import Leases

__all__ = ["BudgetLease"]

_MIN_RANGE_BYTES = 64 << 10

_BUDGETS: Leases[Budget] = Leases()


class BudgetLease:
    """One session's use of a budget. `budget` is None without a limit."""

    def __init__(self, settings: Settings) -> None:
        limits = settings.max_bytes_per_second, settings.max_gets_per_second
        share = settings.budget_processes
        size, gets = (None if limit is None else limit / share for limit in limits)
        self._size_per_s = size
        self._key = None if size is None and gets is None else (size, gets)
        self.budget = None if self._key is None else _BUDGETS.take(self._key, lambda: Budget(size, gets))

    def range_bytes(self, wanted: int) -> int:
        """The largest range of one GET: about a second of the budget. A larger one would exceed it for longer."""
        return wanted if self._size_per_s is None else min(wanted, max(int(self._size_per_s), _MIN_RANGE_BYTES))

    def give_back(self) -> None:
        """End the use. May be called twice."""
        key, self._key = self._key, None
        if key is not None:
            _BUDGETS.give_back(key)
