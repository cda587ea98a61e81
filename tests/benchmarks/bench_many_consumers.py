"""Many RemoteConsumers, of one process or of many, that begin on a cluster with a large metadata topic.

Rules of the file:

- The metadata topic is that of `tests/benchmarks/metadata_topic.py`, with as many records as the command asks for.
- Its segments are in no store. So each consumer looks, finds an object missing, and reads from the broker.
- These figures count: the time to the first record, the longest `poll(1.0)`, threads and memory of all processes, and
  the bytes of the metadata topic that the broker has sent, by its own count.
- Each number of consumers is measured in processes of its own. Importing modules is not counted.
- With `--locator service` each row is measured twice: through the metadata topic, and through a `remote-fetch serve`
  that has read it. Both have the same broker, with SASL, TLS and ACLs, and the same principal. The bytes of the
  service's answers, by its access log, stand beside those of the broker.
- With `--cache` each row is measured twice: with an empty directory, and with the files that this left behind. Then one
  reader replays the topic cold, saving and resumed, and its timelines have to be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import urllib3
from confluent_kafka import Producer, TopicPartition

from remote_fetch import RemoteConsumer
from remote_fetch.deadline import Deadline
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.metadata_replay import METADATA_TOPIC
from remote_fetch.locate.metadata_replay import MetadataTopic as ReplayedTopic
from remote_fetch.locate.replay_cache import ReplayCache
from remote_fetch.session.file_stores import Directory, TimedStore
from tests.benchmarks.commands import ROOT, printed
from tests.benchmarks.metadata_topic import MetadataTopic, metadata_topic
from tests.rig.acls import allow
from tests.rig.metrics import topic_metrics
from tests.rig.topics import QUIET
from tests.stores.s3_server import s3_server
from tests.stores.servers import Server, free_port, serving

PARTITIONS_EACH = 20
RECORDS_EACH = 5
HEAD = (
    "| metadata records | processes | consumers of each | cache | last first record s | longest poll(1.0) s | threads "
    "| memory | metadata read |\n|---|---|---|---|---|---|---|---|---|"
)
SERVICE_HEAD = (
    "| metadata records | processes | consumers of each | locator | last first record s | longest poll(1.0) s "
    "| threads | memory | metadata read | answers of the service |\n|---|---|---|---|---|---|---|---|---|---|"
)
REPLAY_HEAD = "| metadata records | one reader | wall s | CPU s | metadata read | segments |\n|---|---|---|---|---|---|"
_BATCH_RECORDS = 1000
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Job:
    """How many consumers are to begin, and where. `first` is the number of the first one. `cache` "": none.

    `client` has the settings of the clients.
    """

    client: dict[str, str]
    topic: str
    consumers: int
    store: str
    cache: str = ""
    first: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """When the last of the consumers had its first record, and what the process took until then."""

    first_record_s: float
    longest_poll_s: float
    threads: int
    memory_mb: float


def measure(job: Job) -> Result:
    """Begin with all consumers at once, each in a thread and with partitions of its own."""
    firsts, polls = [0.0] * job.consumers, [0.0] * job.consumers
    began_s = time.monotonic()

    def consume(number: int) -> None:
        configuration = {
            **job.client,
            "group.id": f"many-{number}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "fetch.remote.enabled": True,
            "remote.storage.url": job.store,
            **({"remote.locator.cache": job.cache} if job.cache else {}),
        }
        first = (job.first + number) * PARTITIONS_EACH
        with RemoteConsumer(configuration) as consumer:
            numbers = range(first, first + PARTITIONS_EACH)
            consumer.assign([TopicPartition(job.topic, partition, 0) for partition in numbers])
            while not firsts[number] and time.monotonic() - began_s < _TIMEOUT_S:
                asked_s = time.monotonic()
                message = consumer.poll(1.0)
                polls[number] = max(polls[number], time.monotonic() - asked_s)
                if message is not None and message.error() is None:  # the principal may not use the group
                    firsts[number] = time.monotonic() - began_s
            ready.wait(_TIMEOUT_S)  # the others are measured with this one still there

    ready = threading.Barrier(job.consumers + 1)
    threads = [threading.Thread(target=consume, args=(number,)) for number in range(job.consumers)]
    for thread in threads:
        thread.start()
    most_threads = 0
    while ready.n_waiting < job.consumers:
        time.sleep(0.05)
        most_threads = max(most_threads, _status("Threads"))
    memory_mb = _status("VmHWM") / 1024
    ready.wait(_TIMEOUT_S)
    for thread in threads:
        thread.join(_TIMEOUT_S)
    return Result(max(firsts), max(polls), most_threads, memory_mb)


def _status(name: str) -> int:
    """A number of this process's, as Linux tells it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def run(job: Job, processes: int = 1) -> Result:
    """Measure in processes of their own, which begin together. Threads and memory are added up."""
    jobs = [replace(job, first=number * job.consumers) for number in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        results = list(pool.map(_run, jobs))
    return Result(
        max(result.first_record_s for result in results),
        max(result.longest_poll_s for result in results),
        sum(result.threads for result in results),
        sum(result.memory_mb for result in results),
    )


def _run(job: Job) -> Result:
    given = json.dumps(asdict(job))
    lines = printed("tests.benchmarks.bench_many_consumers", "--job", given, timeout_s=2 * _TIMEOUT_S).splitlines()
    return Result(**json.loads(lines[-1]))


def fill(topic: MetadataTopic) -> None:
    """A few records for each partition of the wanted topic."""
    producer = Producer({"bootstrap.servers": topic.bootstrap, "log_level": 0})
    for partition in topic.wanted:
        for number in range(RECORDS_EACH):
            producer.produce(partition.topic, b"%d" % number, partition=partition.partition)
    if producer.flush(_TIMEOUT_S):
        raise TimeoutError("not all records were delivered")


def replays(topic: MetadataTopic, records: int, cache: Path) -> list[str]:
    """One reader of the whole wanted topic: without a cache, one that saves, one that goes on from there.

    Raises AssertionError if the timelines are not equal.
    """
    lines, found = [], {}
    for name, place in (("cold", None), ("saving", cache), ("resumed", cache)):
        before = topic_metrics(topic.rig, METADATA_TOPIC)
        began_s, cpu_s = time.monotonic(), time.process_time()
        cluster = Cluster({"bootstrap.servers": topic.bootstrap, **QUIET}, timeout_ms=_TIMEOUT_S * 1000)
        files = None if place is None else ReplayCache(TimedStore(Directory(place), _TIMEOUT_S * 1000))
        reader = ReplayedTopic(cluster, timeout_ms=_TIMEOUT_S * 1000, cache=files)
        reader.read_for(topic.wanted)
        found[name] = [reader.timeline(partition) for partition in topic.wanted]
        wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
        reader.close()
        read_mb = (topic_metrics(topic.rig, METADATA_TOPIC) - before).bytes_out / 1e6
        segments = sum(len(timeline.segments) for timeline in found[name])
        lines.append(f"| {records:,} | {name} | {wall_s:.2f} | {cpu_s:.2f} | {read_mb:,.1f} MB | {segments:,} |")
        print(lines[-1], flush=True)
    if not found["cold"] == found["saving"] == found["resumed"]:
        raise AssertionError("the timelines differ")
    saved_mb = sum(file.stat().st_size for file in cache.rglob("*.replay")) / 1e6
    print(f"The timelines are equal. The files have {saved_mb:,.1f} MB.")
    return lines


@contextmanager
def service(topic: MetadataTopic, folder: Path, options: Sequence[str]) -> Iterator[Server]:
    """A service over the metadata topic, which has read it, and over a store that is empty."""
    tls, port = topic.rig.certificates, free_port()
    assert tls is not None
    file = folder / "service.properties"
    command = [
        *(sys.executable, "-m", "remote_fetch", "serve", "-F", str(file), "--listen", f"127.0.0.1:{port}"),
        *("--tls-cert", str(tls.certificate), "--tls-key", str(tls.key), *options),
    ]
    with s3_server(folder / "s3", folder / "store", tls) as s3:
        given = {**topic.rig.secured_client("service"), **s3.configs()}
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()), encoding="utf-8")
        log = folder / "service.log"
        with serving(Server(command, log, port, {"PYTHONPATH": str(ROOT)}, "https")) as server:
            _wait_ready(server, tls.authority)
            yield server


def _wait_ready(server: Server, authority: Path) -> None:
    deadline = Deadline.after(_TIMEOUT_S)
    with urllib3.PoolManager(ca_certs=str(authority)) as pool:
        while pool.request("GET", f"{server.endpoint}/readyz", timeout=30).status != 200:
            if deadline.is_over:
                raise TimeoutError(server.log_tail())
            time.sleep(0.2)


def answered_mb(server: Server) -> tuple[float, int]:
    """The size of a service's answers so far, and their number, by its access log."""
    sizes = [int(size) for size in re.findall(r" GET /v1/\S+ \d+ (\d+) B ", server.log())]
    return sum(sizes) / 1e6, len(sizes)


def beside_a_service(records: int, shapes: Sequence[tuple[int, int]], options: Sequence[str]) -> list[str]:
    """The lines of one size, each shape through the metadata topic and through a service."""
    lines = []
    with (
        tempfile.TemporaryDirectory(prefix="remote-fetch-bench-") as name,
        metadata_topic(Path(name), records, batch_records=_BATCH_RECORDS, secured=True) as topic,
    ):
        fill(topic)
        folder, wanted = Path(name), topic.wanted[0].topic
        (folder / "store" / "kafka-tiered-storage").mkdir(parents=True)
        for user in ("service", "reader"):
            allow(topic.rig, user, "READ", METADATA_TOPIC)
        allow(topic.rig, "service", "DESCRIBE", "*")
        allow(topic.rig, "reader", "READ", wanted)
        before = topic_metrics(topic.rig, METADATA_TOPIC)
        with service(topic, folder, options) as server:
            once_mb = (topic_metrics(topic.rig, METADATA_TOPIC) - before).bytes_out / 1e6
            print(f"The service has read {once_mb:,.1f} MB, once.", flush=True)
            client = topic.rig.secured_client("reader")
            through = {"remote.locator": "service", "remote.locator.url": server.endpoint}
            for process_count, count in shapes:
                for locator, more in (("metadata-topic", {}), ("service", through)):
                    before, (answers_mb, answers) = topic_metrics(topic.rig, METADATA_TOPIC), answered_mb(server)
                    found = run(Job({**client, **more}, wanted, count, str(folder / "store")), process_count)
                    read_mb = (topic_metrics(topic.rig, METADATA_TOPIC) - before).bytes_out / 1e6
                    after_mb, after = answered_mb(server)
                    lines.append(
                        f"| {records:,} | {process_count} | {count} | {locator} | {found.first_record_s:.1f} "
                        f"| {found.longest_poll_s:.2f} | {found.threads} | {found.memory_mb:,.0f} MB "
                        f"| {read_mb:,.1f} MB | {after_mb - answers_mb:,.1f} MB in {after - answers} |"
                    )
                    print(f"{lines[-1]} load average {os.getloadavg()[0]:.1f}", flush=True)
    return lines


def report(records: int, consumers: list[int], processes: list[int], cache: Path | None) -> list[str]:
    """The lines of one size. `processes` have one consumer each, `consumers` are those of one process."""
    shapes = [(1, count) for count in consumers] + [(count, 1) for count in processes]
    lines = []
    with (
        tempfile.TemporaryDirectory(prefix="remote-fetch-bench-") as folder,
        metadata_topic(Path(folder), records, batch_records=_BATCH_RECORDS) as topic,
    ):
        fill(topic)
        store = Path(folder) / "store"
        store.mkdir()
        for number, (process_count, count) in enumerate(shapes):
            for state in ("none",) if cache is None else ("none", "empty", "saved"):
                place = "" if cache is None or state == "none" else str(cache / f"{records}-{number}")
                job = Job({"bootstrap.servers": topic.bootstrap}, topic.wanted[0].topic, count, str(store), place)
                before = topic_metrics(topic.rig, METADATA_TOPIC)
                found = run(job, process_count)
                read_mb = (topic_metrics(topic.rig, METADATA_TOPIC) - before).bytes_out / 1e6
                lines.append(
                    f"| {records:,} | {process_count} | {count} | {state} | {found.first_record_s:.1f} "
                    f"| {found.longest_poll_s:.2f} | {found.threads} | {found.memory_mb:,.0f} MB | {read_mb:,.1f} MB |"
                )
                print(f"{lines[-1]} load average {os.getloadavg()[0]:.1f}", flush=True)
        if cache is not None:
            print(f"\n{REPLAY_HEAD}")
            lines += replays(topic, records, cache / f"{records}-replays")
    return lines


def main() -> None:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--events", "--sizes", type=int, nargs="+", default=[200_000], metavar="N", help="metadata records"
    )
    parser.add_argument("--consumers", type=int, nargs="*", default=[1, 20], metavar="N", help="of one process")
    parser.add_argument(
        "--processes", type=int, nargs="*", default=[], metavar="N", help="with one consumer each (default: none)"
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="an empty directory for saved replays")
    parser.add_argument("--locator", choices=("service",), help="measure it beside the metadata topic")
    parser.add_argument(
        "--serve-option", action="append", default=[], metavar="OPTION", help="of remote-fetch serve (--rate=500)"
    )
    parser.add_argument("--job", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(asdict(measure(Job(**json.loads(arguments.job))))))
        return
    if arguments.locator is not None:
        shapes = [(1, count) for count in arguments.consumers] + [(count, 1) for count in arguments.processes]
        print(SERVICE_HEAD)
        for records in arguments.events:
            beside_a_service(records, shapes, arguments.serve_option)
        return
    print(HEAD)
    for records in arguments.events:
        report(records, arguments.consumers, arguments.processes, arguments.cache)


if __name__ == "__main__":
    main()
