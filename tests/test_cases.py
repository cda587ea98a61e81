"""Cases of one test in one item."""

from __future__ import annotations

import inspect

import pytest

from tests.cases import check_each, each_of


def test_every_case_is_tried_and_each_failure_is_named() -> None:
    tried = []

    def check(case: int) -> None:
        tried.append(case)
        assert case % 2 or case == 4
        if case == 3:
            with pytest.raises(ValueError, match="x"):
                pass

    with pytest.raises(AssertionError, match=r"3 of 5 cases failed:\n  <0>: .*\n  <2>: .*\n  <3>: ") as caught:
        check_each(range(5), check, "<{}>".format)
    assert tried == [0, 1, 2, 3, 4]
    cause = caught.value.__cause__
    assert isinstance(cause, BaseExceptionGroup)
    assert [error.__notes__ for error in cause.exceptions] == [["case: <0>"], ["case: <2>"], ["case: <3>"]]


def test_no_cases_prove_nothing() -> None:
    with pytest.raises(AssertionError, match="no cases"):
        check_each([], print)


def test_an_interrupt_ends_the_test() -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_each([1], interrupted)


def test_fixtures_are_left_and_arguments_are_given() -> None:
    given = []

    @each_of("third", [True, False])
    @each_of(("first", "second"), [(1, 2), pytest.param(3, 4, id="other")])
    def test(fixture: str, first: int, second: int, third: bool) -> None:
        given.append((fixture, first, second, third))

    assert list(inspect.signature(test).parameters) == ["fixture"]
    test(fixture="f")
    assert given == [("f", 1, 2, True), ("f", 3, 4, True), ("f", 1, 2, False), ("f", 3, 4, False)]


def test_cases_have_the_names_that_parametrize_gives() -> None:
    @each_of("value", [1, pytest.param(2, id="two"), "x"], ids=lambda value: type(value).__name__)
    def fails(value: object) -> None:
        raise ValueError(value)

    with pytest.raises(AssertionError, match="  int: ValueError: 1\n  two: ValueError: 2\n  str: ValueError: x"):
        fails()

    @each_of(("first", "second"), [(1, 2), (3, 4)], ids=["a", "b"])
    def nested(first: int, second: int) -> None:
        assert first == 1

    with pytest.raises(AssertionError, match="1 of 2 cases failed:\n  b: "):
        nested()


def test_an_argument_that_the_test_does_not_take() -> None:
    with pytest.raises(AssertionError, match="does not take all of"):
        each_of("absent", [1])(lambda: None)


def test_a_mark_belongs_to_an_item() -> None:
    with pytest.raises(AssertionError, match="a mark"):
        each_of("value", [pytest.param(1, marks=pytest.mark.slow)])
