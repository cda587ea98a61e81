"""A service in a process of its own, over fake brokers and a signer that makes no signature.

    python -m tests.service.process --segments 1000 [--tls-cert FILE --tls-key FILE] [--request-timeout S]

Rules of the file:

- stdout has the URL as soon as the service listens. stderr has the log, by default with everything.
- The principals are those of `FakeBrokers`. The user `held` never gets an answer from the brokers.
- The segments have no bytes: nothing that reads them may be asked.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import LeaderEpoch, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.service import server
from remote_fetch.service.settings import TlsFiles
from remote_fetch.testing.log_builder import TOPIC_ID
from tests.locate.timelines import timeline_of
from tests.own_processes import killed_after
from tests.service.fakes import PASSWORD, SETTINGS, FakeBrokers, SigningBucket, open_service

__all__ = ["made_up_timeline", "running"]


def made_up_timeline(segments: int) -> Timeline:
    """A partition with this many segments of ten offsets each."""
    partition = TopicIdPartition(TOPIC_ID, "topic", 0)
    return timeline_of(
        partition,
        [
            RemoteLogSegmentMetadata(
                RemoteLogSegmentId(partition, Uuid((number + 1).to_bytes(16, "big"))),
                number * 10, number * 10 + 9, 1 << 30, 1, number, 1, (LeaderEpoch(0, number * 10),),
            )
            for number in range(segments)
        ],
    )  # fmt: skip


@contextmanager
def running(*options: str, log: Path, timeout_s: float = 200.0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its URL. It is killed after `timeout_s`, and at the end of the block."""
    command = [sys.executable, "-m", "tests.service.process", *options]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        killed_after(timeout_s, process),
    ):
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, log.read_text()
        yield process, url


def main(argv: Sequence[str] | None = None) -> None:
    """Run the service until a signal ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--segments", type=int, default=1_000)
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--request-timeout", type=float, default=20.0)
    parser.add_argument("--drain-timeout", type=float, default=SETTINGS.drain_timeout_s)
    parser.add_argument("--shutdown-timeout", type=int, default=20)
    parser.add_argument("--log-level", default="DEBUG")
    parser.add_argument("--users", type=int, default=0, help="principals user0, user1, ... that may read")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=arguments.log_level, stream=sys.stderr)
    named = [f"user{number}" for number in range(arguments.users)]
    brokers = FakeBrokers(held={"held"}, gate=threading.Event())
    brokers.gate.clear()
    brokers.users |= dict.fromkeys(named, PASSWORD)
    brokers.readers.update(named)
    settings = replace(
        SETTINGS,
        port=0,
        tls=TlsFiles(arguments.tls_cert, arguments.tls_key) if arguments.tls_cert else None,
        drain_timeout_s=arguments.drain_timeout,
        shutdown_timeout_s=arguments.shutdown_timeout,
    )
    timelines = [made_up_timeline(arguments.segments)]
    limits = {"rate": arguments.rate, "request_timeout_s": arguments.request_timeout}
    bucket = SigningBucket()
    bucket.records = False  # a list of all names would grow for ever
    with open_service(bucket, brokers, timelines=timelines, **limits) as service:
        server.run(service, settings, lambda url: print(url, flush=True))
        brokers.gate.set()


if __name__ == "__main__":
    main()
