"""The notice about a URL that seems to be wrong: it comes once, and only from a fetcher that can tell."""

from __future__ import annotations

import threading

from remote_fetch.errors import ErrorKind, StorageDenied
from remote_fetch.model import Survey
from remote_fetch.observe import Event, Notice
from remote_fetch.session.surveyor import Surveyor, surveyed
from tests.scan.bucket import Bucket


class Misplaced(Bucket):
    """A fetcher that can tell that its URL is wrong; later it may not look any more."""

    asked = 0

    def survey(self) -> Survey:
        self.asked += 1
        if self.asked > 1:
            raise StorageDenied("no listing")
        return Survey("s3://bucket/x", "it is empty", "Set another")


def test_a_wrong_url_is_said_once() -> None:
    bucket, heard = Misplaced(), list[Event]()
    surveyor = Surveyor(bucket, heard.append, 10_000)
    surveyor.close()
    surveyor.explain(ErrorKind.AUTH)
    assert bucket.asked == 0, "then it may be the right one"
    for waits in (True, False, True):
        surveyor.explain(ErrorKind.NOT_FOUND, waits=waits)
    surveyor.close()
    text = "no segment is in the remote storage s3://bucket/x: it is empty. Set another"
    assert heard == [Notice(text, is_warning=True)]
    assert bucket.asked == 1
    assert surveyed(bucket) is None, "it may not list"
    assert surveyed(Bucket()) is None, "it cannot tell"


def test_a_survey_that_fails_ends_no_read() -> None:
    class Failing(Misplaced):
        def survey(self) -> Survey:
            raise OSError(40, "Too many levels of symbolic links")

    heard: list[Event] = []
    surveyor = Surveyor(Failing(), heard.append, 10_000)
    surveyor.explain(ErrorKind.NOT_FOUND)
    surveyor.close()
    assert heard == []


def test_a_survey_that_hangs_holds_nobody_up() -> None:
    may_go = threading.Event()

    class Hanging(Misplaced):
        def survey(self) -> Survey:
            may_go.wait(60)
            return super().survey()

    heard: list[Event] = []
    surveyor = Surveyor(Hanging(), heard.append, 20)
    surveyor.explain(ErrorKind.NOT_FOUND)
    surveyor.close()
    assert heard == []
    may_go.set()
