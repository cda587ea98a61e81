"""Cases of one test in one item: each is tried, and all that failed are listed.

`@pytest.mark.parametrize` makes an item of each case, with fixtures of its own; a thousand of them cost more than what
they prove. `each_of` takes the same arguments and makes one item. Take it if the cases share their fixtures safely.

Rules of the file:

- A failed case does not stop the others. The report names it.
- A test without cases fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

import pytest

__all__ = ["check_each", "each_of", "of_a_change"]

T = TypeVar("T")

_NAME_CHARS = 100
_FAILURES = (Exception, pytest.fail.Exception)


def check_each(cases: Iterable[T], check: Callable[[T], object], name: Callable[[T], str] = str) -> None:
    """Call `check` with every case. Raises an AssertionError that names the failed ones, caused by all their errors."""
    count = 0
    failures: list[tuple[str, BaseException]] = []
    for count, case in enumerate(cases, 1):  # noqa: B007
        try:
            check(case)
        except _FAILURES as error:
            error.add_note(f"case: {name(case)}")
            failures.append((name(case), error))
    assert count, "there are no cases"
    if failures:
        names = "\n".join(f"  {failed}: {_first_line(error)}" for failed, error in failures)
        cause = BaseExceptionGroup("failed cases", [error for _, error in failures])
        raise AssertionError(f"{len(failures)} of {count} cases failed:\n{names}") from cause


def of_a_change(values: Sequence[Any], *kept: Any) -> list[Any]:
    """The values of a parameter: those in `kept`, else the first, run with every change, the others on a schedule.

    A tuple has the values of several parameters.
    """
    kept = kept or (values[0],)

    def left(value: Any) -> Any:
        return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.scheduled)

    return [value if value in kept else left(value) for value in values]


def each_of(
    names: str | Sequence[str], values: Iterable[Any], *, ids: Callable[[Any], object] | Sequence[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, but the test is one item, which tries all cases one after another."""
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [_case(arguments, value, ids, number) for number, value in enumerate(values)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def each(*args: Any, **fixtures: Any) -> None:
            check_each(cases, lambda case: test(*args, **fixtures, **case[1]), lambda case: case[0])

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        assert len(left) + len(arguments) == len(signature.parameters), f"the test does not take all of {arguments}"
        vars(each)["__signature__"] = signature.replace(parameters=left)
        return each

    return decorate


def _case(arguments: Sequence[str], value: Any, ids: Any, number: int) -> tuple[str, dict[str, Any]]:
    """The name of a case, and its arguments."""
    given: tuple[Any, ...] = (value,) if len(arguments) == 1 else tuple(value)
    if isinstance(value, _PARAM):
        assert not value.marks, "a mark belongs to an item, and a case is none"
        given = tuple(value.values)
    if isinstance(value, _PARAM) and value.id is not None:
        name = str(value.id)
    elif callable(ids):
        name = "-".join(str(ids(part)) for part in given)
    else:
        name = repr(given)[:_NAME_CHARS] if ids is None else ids[number]
    return name, dict(zip(arguments, given, strict=True))


_PARAM = type(pytest.param())


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
