"""The lines of a backfill in the driver's log."""

from __future__ import annotations

import threading

from remote_fetch.spark.job_watch import watched


def test_lines_tell_how_many_tasks_are_done() -> None:
    """A listing that fails leaves out its line alone."""
    answers: list[list[int] | OSError] = [[], OSError("the store is away"), [0, 2, 99], [0, 1, 2, 3]]
    said: list[str] = []
    is_done = threading.Event()

    def finished() -> list[int]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            is_done.set()

    with watched(finished, [100, 200, 300, 400], every_s=0.01, say=say):
        assert is_done.wait(30)
    count = len(said)
    assert said[0].startswith("% backfill, tasks done: 2 of 4 (50%)")
    assert said[1].startswith("% backfill, tasks done: 4 of 4 (100%)")
    assert not [thread for thread in threading.enumerate() if thread.name == "remote-fetch-backfill"]
    assert len(said) == count
