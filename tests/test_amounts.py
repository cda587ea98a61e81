"""Sizes, times, counts and foreign texts as people read them."""

from __future__ import annotations

import pytest

from remote_fetch.amounts import counted, human_bytes, human_time, one_line, per_get


@pytest.mark.parametrize(("count", "shown"), [(0, "0 segments"), (1, "1 segment"), (2, "2 segments")])
def test_a_count_has_its_noun_in_the_right_number(count: int, shown: str) -> None:
    assert counted(count, "segment") == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (8 << 20, "8.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 50, "1.0 PiB"),
        (1 << 62, "4096.0 PiB"),
        (0.4, "0 B"),
    ],
)
def test_human_bytes(size_bytes: float, shown: str) -> None:
    assert human_bytes(size_bytes) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0:00"),
        (0.1, "0:01"),
        (59.9, "1:00"),
        (61, "1:01"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (7384, "2:03:04"),
        (86_399.5, "1 d 0 h"),
        (180_000, "2 d 2 h"),
    ],
)
def test_human_time(seconds: float, shown: str) -> None:
    assert human_time(seconds) == shown


def test_no_gets_have_no_mean_size() -> None:
    assert (per_get(0), per_get(2048)) == ("", ", mean 2.0 KiB per GET")


def test_a_foreign_text_is_one_line_that_a_terminal_only_shows() -> None:
    assert one_line("a b\\é") == "a b\\é"
    assert one_line("a\n\x1b[1m\u2028") == r"a\n\x1b[1m\u2028"
    assert one_line("a\n\x1b", "?") == "a??"
