"""A dict of bounded size."""

from __future__ import annotations

from remote_fetch.recent import Recent


def test_the_keys_that_were_set_last_are_kept() -> None:
    recent: Recent[str, int] = Recent(3)
    for number, key in enumerate("abcad"):
        recent[key] = number
    assert list(recent.items()) == [("c", 2), ("a", 3), ("d", 4)]
    recent.update({"e": 5, "c": 6})
    assert list(recent.items()) == [("d", 4), ("e", 5), ("c", 6)]
