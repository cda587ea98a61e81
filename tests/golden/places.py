"""A test of every partition of a set, in one item."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from tests.cases import check_each

if TYPE_CHECKING:
    from tests.golden.conftest import Tier

__all__ = ["ISOLATION_LEVELS", "each_place"]

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


def each_place(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test for each set, with `place` being each of its partitions, and if it takes `isolation`, each level."""
    signature = inspect.signature(test)
    levels = ISOLATION_LEVELS if "isolation" in signature.parameters else (None,)

    @wraps(test)
    def each(tier: Tier, **fixtures: Any) -> None:
        def check(case: dict[str, Any]) -> None:
            test(**fixtures, **{name: value for name, value in case.items() if value is not None})

        cases = [{"place": place, "isolation": level} for place in tier.places for level in levels]
        check_each(cases, check, lambda case: " ".join(str(value) for value in case.values() if value is not None))

    tier = inspect.Parameter("tier", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    left = [parameter for name, parameter in signature.parameters.items() if name not in ("place", "isolation")]
    vars(each)["__signature__"] = signature.replace(parameters=[tier, *left])
    return each
