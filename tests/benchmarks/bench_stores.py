"""Bytes out of each store's server on loopback, beside the parallel download of the store's own SDK.

Rules of the file:

- Whole objects with 32 MiB of noise are read. remote-fetch reads them in order and within the budget of a reader. The
  SDKs read object by object, with the same number of parallel requests of the same size.
- Every reader is a separate process. It opens its connections before the clock starts. Its bytes are compared once.
- `--write` puts the table into docs/performance/.
- If the server of a store cannot be built, the store is left out and named.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from remote_fetch.config import Config
from remote_fetch.fetch.readahead import RangeReader, RangeRequest
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.fetch.retry_policy import RetryPolicy
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.observe import RangeFetched
from tests.benchmarks.document import machine, write
from tests.stores.artifacts import MissingTool
from tests.stores.azure_server import ACCOUNT, CONTAINER, KEY, azure_server
from tests.stores.gcs_server import gcs_server
from tests.stores.s3_server import BUCKET, s3_server
from tests.stores.servers import StoreServer

OBJECT_BYTES = 32 << 20
RANGE_BYTES = 8 << 20
MAX_BYTES = 64 << 20
PARALLEL = MAX_BYTES // RANGE_BYTES
PARTITION = TopicIdPartition(Uuid(bytes(range(1, 17))), "bench", 0)
MARK = "bench_stores"


@dataclass(frozen=True, slots=True)
class Job:
    """The task of one process: `objects` objects, by `reader`, from the store of that name."""

    store: str
    reader: str
    endpoint: str
    configs: Mapping[str, str]
    objects: int


@dataclass(frozen=True, slots=True)
class Result:
    """Wall time, bytes and their checksum, GETs (None if they are not counted), memory on top of the start's."""

    seconds: float
    size_bytes: int
    checksum: int
    gets: int | None
    peak_bytes: int


Take = Callable[[memoryview], None]
"""Takes the bytes of an object, in order."""


def segment(number: int) -> RemoteLogSegmentMetadata:
    """The segment whose log is the object of that number."""
    identity = RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16, "big")))
    return RemoteLogSegmentMetadata(identity, number, number, OBJECT_BYTES)


def name_of(number: int) -> str:
    """The object's name, in the layout kafka_local."""
    one = segment(number)
    folder = f"{PARTITION.topic}-{PARTITION.partition}-{PARTITION.topic_id}"
    return f"kafka-tiered-storage/{folder}/{number:020d}-{one.segment_id.id}.log"


# ------------------------------------------------------------------------------------------------------ in a process


def ours(job: Job, gets: list[RangeFetched]) -> Iterator[Callable[[Take], None]]:
    """The fetch stage, as a read uses it."""
    fetcher = load_fetcher(Config.parse({**job.configs, "fetch.remote.read.timeout.ms": 60_000}))

    def observe(event: object) -> None:
        if isinstance(event, RangeFetched):
            gets.append(event)

    policy = RetryPolicy(60_000, 100)
    reader = RangeReader(fetcher, policy, max_bytes=MAX_BYTES, range_bytes=RANGE_BYTES, observer=observe)
    reader.read(RangeRequest(segment(0), 0, 1))
    gets.clear()

    def read(take: Take) -> None:
        requests = (
            RangeRequest(segment(number), start, start + RANGE_BYTES)
            for number in range(job.objects)
            for start in range(0, OBJECT_BYTES, RANGE_BYTES)
        )
        for _, wait in reader.read_ahead(requests):
            take(wait())

    yield read
    reader.close()


def boto3_download(job: Job, gets: list[RangeFetched]) -> Iterator[Callable[[Take], None]]:
    """`download_fileobj` of boto3's transfer manager."""
    import boto3
    from boto3.s3.transfer import TransferConfig

    options = {name.rpartition(".")[2]: value for name, value in job.configs.items()}
    keys = {"aws_access_key_id": options["key"], "aws_secret_access_key": options["secret"]}
    client = boto3.client("s3", endpoint_url=job.endpoint, region_name="us-east-1", **keys)
    client.get_object(Bucket=BUCKET, Key=name_of(0), Range="bytes=0-0")["Body"].read()
    config = TransferConfig(multipart_threshold=RANGE_BYTES, multipart_chunksize=RANGE_BYTES, max_concurrency=PARALLEL)

    def read(take: Take) -> None:
        for number in range(job.objects):
            buffer = io.BytesIO()
            client.download_fileobj(BUCKET, name_of(number), buffer, Config=config)
            take(buffer.getbuffer())

    yield read


def gcs_download(job: Job, gets: list[RangeFetched]) -> Iterator[Callable[[Take], None]]:
    """`download_chunks_concurrently` of google-cloud-storage, which writes a file."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage
    from google.cloud.storage import transfer_manager

    credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
    client = storage.Client("tests", credentials, client_options={"api_endpoint": job.endpoint})
    bucket = client.bucket("tier")
    bucket.blob(name_of(0)).download_as_bytes(start=0, end=0)
    options = {"chunk_size": RANGE_BYTES, "max_workers": PARALLEL, "worker_type": transfer_manager.THREAD}

    def read(take: Take) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(job.objects):
                path = Path(folder) / "object"
                blob = bucket.blob(name_of(number))
                transfer_manager.download_chunks_concurrently(blob, str(path), crc32c_checksum=False, **options)
                take(memoryview(path.read_bytes()))

    yield read


def azure_download(job: Job, gets: list[RangeFetched]) -> Iterator[Callable[[Take], None]]:
    """`download_blob` of azure-storage-blob."""
    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient(
        job.endpoint, credential=KEY, max_single_get_size=RANGE_BYTES, max_chunk_get_size=RANGE_BYTES
    ) as client:
        client.get_blob_client(CONTAINER, name_of(0)).download_blob(0, 1).readall()

        def read(take: Take) -> None:
            for number in range(job.objects):
                blob = client.get_blob_client(CONTAINER, name_of(number))
                take(memoryview(blob.download_blob(max_concurrency=PARALLEL).readall()))

        yield read


READERS: Mapping[str, Callable[[Job, list[RangeFetched]], Iterator[Callable[[Take], None]]]] = {
    "remote-fetch": ours,
    "boto3": boto3_download,
    "google-cloud-storage": gcs_download,
    "azure-storage-blob": azure_download,
}
SDKS = {"s3": "boto3", "gcs": "google-cloud-storage", "azure": "azure-storage-blob"}


def run(job: Job) -> Result:
    """Read everything once for the clock; what came is summed up while it comes, by a sum over a part of it."""
    gets: list[RangeFetched] = []
    size_bytes, checksum = 0, 0

    def take(data: memoryview) -> None:
        nonlocal size_bytes, checksum
        for at in range(0, data.nbytes, RANGE_BYTES):
            checksum = crc32(data[at : at + 4096], checksum)
        size_bytes += data.nbytes

    opened = READERS[job.reader](job, gets)
    read = next(opened)
    before_bytes = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # from here on counts the largest
    began = time.monotonic()
    read(take)
    seconds = time.monotonic() - began
    peak_bytes = _memory("VmHWM") - before_bytes
    next(opened, None)
    return Result(seconds, size_bytes, checksum, len(gets) or None, peak_bytes)


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"/proc/self/status has no {field}")


# ------------------------------------------------------------------------------------------------------ all of them


def measure(job: Job, rounds: int) -> Result:
    """The fastest of the rounds, each in a process of its own; the most memory of any."""
    results = []
    for _ in range(rounds):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            results.append(pool.apply(run, (job,)))
    best = min(results, key=lambda result: result.seconds)
    most_bytes = max(result.peak_bytes for result in results)
    return Result(best.seconds, best.size_bytes, best.checksum, best.gets, most_bytes)


def rows(store: str, server: StoreServer, sizes_mb: Sequence[int], rounds: int) -> Iterator[str]:
    """The table's rows of one store."""
    account = f"/{ACCOUNT}" if store == "azure" else ""
    endpoint = f"http://127.0.0.1:{server.server.port}{account}"
    noise = random.Random(store)
    for number in range(_objects(sizes_mb[-1])):
        server.put(name_of(number), noise.randbytes(OBJECT_BYTES))
    for size_mb in sizes_mb:
        jobs = [Job(store, reader, endpoint, server.configs(), _objects(size_mb)) for reader in _readers(store)]
        mine, theirs = (measure(job, rounds) for job in jobs)
        if (mine.size_bytes, mine.checksum) != (theirs.size_bytes, theirs.checksum):
            raise ValueError(f"{store}: {mine.size_bytes} bytes and {theirs.size_bytes}, or other ones")
        gets = mine.gets or 0
        yield (
            f"| {store} | {mine.size_bytes >> 20} MiB | {_speed(mine):,.0f} | {SDKS[store]} {_speed(theirs):,.0f} "
            f"| **{theirs.seconds / mine.seconds:.2f}** | {gets} | {mine.size_bytes / gets / 2**20:.1f} MiB "
            f"| {mine.peak_bytes >> 20} MiB | {theirs.peak_bytes >> 20} MiB |"
        )


def _readers(store: str) -> tuple[str, str]:
    return "remote-fetch", SDKS[store]


def _objects(size_mb: int) -> int:
    return max(1, (size_mb << 20) // OBJECT_BYTES)


def _speed(result: Result) -> float:
    return result.size_bytes / 1e6 / result.seconds


def measured_on() -> str:
    """The machine, which the server has too, and the libraries that are compared."""
    libraries = (
        "s3fs",
        "aiobotocore",
        "gcsfs",
        "adlfs",
        "aiohttp",
        "boto3",
        "google-cloud-storage",
        "azure-storage-blob",
    )
    return f"{machine(*libraries)} The server is on the same cores."


def main() -> int:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64], metavar="MB", help="MiB read (32 64)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds, the best of which counts (default: 1)")
    parser.add_argument("--stores", nargs="+", choices=tuple(SDKS), default=list(SDKS))
    parser.add_argument("--write", action="store_true", help="write the table into docs/performance/")
    arguments = parser.parse_args()
    lines = [
        "| store | read | MB/s | the SDK's own, MB/s | ratio | GETs | mean GET | peak memory | the SDK's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for store in arguments.stores:
        with tempfile.TemporaryDirectory(prefix="remote-fetch-bench-") as name:
            folder = Path(name)
            servers: dict[str, Callable[[], AbstractContextManager[StoreServer]]] = {
                "s3": lambda folder=folder: s3_server(folder / "s3", folder / "tier"),  # type: ignore[misc]
                "gcs": lambda folder=folder: gcs_server(folder / "gcs"),  # type: ignore[misc]
                "azure": lambda folder=folder: azure_server(folder / "azure"),  # type: ignore[misc]
            }
            try:
                with servers[store]() as server:
                    for line in rows(store, server, sorted(arguments.sizes), arguments.rounds):
                        print(line, flush=True)
                        lines.append(line)
            except MissingTool as error:
                print(f"bench_stores: {store} was not measured: {error}", file=sys.stderr)
                if arguments.write:
                    return 1
    if arguments.write:
        write(MARK, "\n".join([measured_on(), "", *lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
