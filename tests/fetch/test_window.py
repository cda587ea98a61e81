"""The window: halved once for a burst of refusals, wider again after successes, and always open for one call."""

from __future__ import annotations

import threading
import time

from remote_fetch.fetch.window import Window
from tests.at_once import at_once


def narrowed(most: int, times: int) -> Window:
    window = Window(most)
    for _ in range(times):
        window.throttled(time.monotonic())
    return window


def test_it_is_halved_down_to_one() -> None:
    assert [narrowed(16, times).size for times in range(7)] == [16, 8, 4, 2, 1, 1, 1]


def test_refusals_of_one_burst_count_once() -> None:
    window = Window(16)
    began_at = time.monotonic()
    for _ in range(10):
        window.throttled(began_at)
    assert window.size == 8


def test_each_round_of_answers_makes_room_for_one_more() -> None:
    window, sizes = narrowed(4, 2), []
    for _ in range(8):
        window.answered()
        sizes.append(window.size)
    assert sizes == [2, 2, 3, 3, 3, 4, 4, 4]  # rounds of one, two and three


def test_a_refusal_begins_the_round_anew() -> None:
    window = narrowed(16, 2)
    for _ in range(3):
        window.answered()
    window.throttled(0.0)  # an old one
    window.answered()
    assert window.size == 4


def test_no_more_than_its_size_pass_at_once_and_all_of_them_in_the_end() -> None:
    window = narrowed(8, 2)
    lock, inside, most = threading.Lock(), 0, 0

    def pass_through() -> None:
        nonlocal inside, most
        window.enter()
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.002)
        with lock:
            inside -= 1
        window.leave()

    at_once([pass_through] * 12)
    assert 1 <= most <= 2


def test_closing_lets_everybody_pass() -> None:
    window = Window(1)
    window.enter()
    waiting = threading.Thread(target=window.enter)
    waiting.start()
    window.close()
    waiting.join(10)
    assert not waiting.is_alive()
