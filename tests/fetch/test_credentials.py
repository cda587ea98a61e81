"""When credentials are looked for again: once for everybody who was refused, and not all the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from remote_fetch.errors import ConfigError, StorageDenied, StorageTimeout, StorageUnavailable
from remote_fetch.fetch import credentials
from remote_fetch.fetch.credentials import Renewal
from remote_fetch.fetch.spi import CredentialRefresher
from remote_fetch.testing.stores import SegmentStore
from tests.clock import Clock


class Refreshing(SegmentStore):
    """Counts how often it is asked to look for credentials."""

    def __init__(self) -> None:
        super().__init__()
        self.refreshed = 0
        self.error: Exception | None = None

    def refresh_credentials(self) -> None:
        self.refreshed += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(credentials, "time", SimpleNamespace(monotonic=clock))
    return clock


def test_the_port() -> None:
    assert isinstance(Refreshing(), CredentialRefresher)
    assert not isinstance(SegmentStore(), CredentialRefresher)


def test_where_nothing_can_be_renewed_a_refusal_stands() -> None:
    renewal = Renewal(SegmentStore())
    assert not renewal.refresh_after_refusal(renewal.generation)


def test_a_refusal_renews_and_the_next_one_stands_for_a_while(clock: Clock) -> None:
    fetcher = Refreshing()
    renewal = Renewal(fetcher)
    assert renewal.refresh_after_refusal(renewal.generation)
    assert (fetcher.refreshed, renewal.generation) == (1, 1)
    clock.now_s += 9
    assert not renewal.refresh_after_refusal(renewal.generation)
    clock.now_s += 2
    assert renewal.refresh_after_refusal(renewal.generation)
    assert fetcher.refreshed == 2


def test_all_who_were_refused_together_renew_once() -> None:
    fetcher = Refreshing()
    renewal = Renewal(fetcher)
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(renewal.refresh_after_refusal(0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert answers == [True] * 8
    assert fetcher.refreshed == 1


def test_a_look_up_that_finds_a_mistake_leaves_the_refusal(clock: Clock) -> None:
    """Another program may write the file at this moment. The broker is asked, and the next look-up comes later."""
    fetcher = Refreshing()
    fetcher.error = ConfigError("no such profile", hint="Name one")
    renewal = Renewal(fetcher)
    with pytest.raises(StorageDenied, match="looking for credentials again failed: no such profile") as caught:
        renewal.refresh_after_refusal(0)
    assert caught.value.hint == "Name one"
    assert not renewal.refresh_after_refusal(0)
    assert fetcher.refreshed == 1


def test_a_look_up_that_failed_is_not_repeated_for_a_while(clock: Clock) -> None:
    fetcher = Refreshing()
    fetcher.error = StorageTimeout("the metadata service of the machine does not answer")
    renewal = Renewal(fetcher)
    with pytest.raises(StorageTimeout):
        renewal.refresh_after_refusal(0)
    clock.now_s += 9
    assert not renewal.refresh_after_refusal(0)
    assert fetcher.refreshed == 1
    clock.now_s += 2
    fetcher.error = None
    assert renewal.refresh_after_refusal(0)
    assert fetcher.refreshed == 2


def test_a_look_up_that_failed_in_passing_is_repeated_with_its_call(clock: Clock) -> None:
    fetcher = Refreshing()
    fetcher.error = StorageUnavailable("the token service was reset")
    renewal = Renewal(fetcher)
    with pytest.raises(StorageUnavailable):
        renewal.refresh_after_refusal(0)
    fetcher.error = None
    assert renewal.refresh_after_refusal(0)
    assert fetcher.refreshed == 2


class Listing:
    """Lists numbers. Each call ends with an error after some of them: `ends`, by calls, -1 for none."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)

    def ask(self) -> Iterator[int]:
        end = self.ends.pop(0)
        for number in (1, 2, 3):
            if end == number - 1:
                raise StorageDenied("expired")
            yield number

    def ask_at_once(self) -> list[int]:
        return list(self.ask())


def same(number: int) -> int:
    return number


@pytest.mark.parametrize("end", [0, 2])
def test_a_refused_listing_is_made_again(end: int) -> None:
    """A consumer that makes listings and reads nothing would stay refused. Nothing comes twice."""
    fetcher = Refreshing()
    for listing in (Listing(end, -1), Listing(-1)):
        assert list(Renewal(fetcher).listed(listing.ask, same) or ()) == [1, 2, 3]
    assert list(Renewal(fetcher).listed(Listing(end, -1).ask_at_once, same) or ()) == [1, 2, 3]
    assert fetcher.refreshed == 2
    assert Renewal(fetcher).listed(lambda: None, same) is None


def test_a_listing_that_is_refused_again_or_cannot_be_renewed() -> None:
    with pytest.raises(StorageDenied):
        list(Renewal(Refreshing()).listed(Listing(1, 1).ask, same) or ())
    with pytest.raises(StorageDenied):
        Renewal(Refreshing()).listed(Listing(1, 1).ask_at_once, same)
    for listing in (Listing(1), Listing(0)):
        with pytest.raises(StorageDenied):
            list(Renewal(SegmentStore()).listed(listing.ask, same) or ())
    with pytest.raises(StorageDenied):
        Renewal(SegmentStore()).listed(Listing(1).ask_at_once, same)


def test_a_listing_is_made_again_once() -> None:
    """The second refusal is the answer, also if the first one came before there was a listing."""
    asked: list[Listing] = []

    def ask() -> Iterator[int]:
        asked.append(Listing(2))
        if len(asked) == 1:
            raise StorageDenied("expired")
        return asked[-1].ask()

    with pytest.raises(StorageDenied):
        list(Renewal(Refreshing()).listed(ask, same) or ())
    assert len(asked) == 2


def test_a_listing_that_has_changed_gives_nothing_twice() -> None:
    """Its items need no hash."""

    def ask() -> Iterator[list[int]]:
        sizes.append(len(sizes))
        yield [1, len(sizes)]
        if len(sizes) == 1:
            raise StorageDenied("expired")
        yield [2, len(sizes)]

    sizes: list[int] = []
    assert list(Renewal(Refreshing()).listed(ask, lambda item: item[0]) or ()) == [[1, 1], [2, 2]]
