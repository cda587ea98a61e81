"""The stand-in for Cython: every name does nothing. That it has all names is tested beside the inner loop."""

from __future__ import annotations

from remote_fetch.decode import _shadow


def test_every_name_does_nothing() -> None:
    def function() -> str:
        return "unchanged"

    for decorator in (
        _shadow.cclass,
        _shadow.cfunc,
        _shadow.inline,
        _shadow.nogil,
        _shadow.exceptval(check=False),
    ):
        assert decorator(function) is function
    with _shadow.nogil:
        assert _shadow.declare(_shadow.longlong, 7) == 7
    assert _shadow.declare(_shadow.int, visibility="readonly") is None
    assert _shadow.compiled is False
