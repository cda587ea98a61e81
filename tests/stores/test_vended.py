"""Segments through signed URLs of an S3 server that checks them: the records that the brokers gave a consumer.

Rules of the file:

- The reader has no credentials. A fetcher with credentials signs each URL, as a service does.
- The oracle is the brokers' own recording (tests/golden), under both isolation levels.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fetchers.s3 import S3Fetcher
from remote_fetch import Counters, read_arrow
from remote_fetch.errors import StorageDenied
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines
from remote_fetch.model import IndexType, Uuid
from tests.cases import of_a_change
from tests.golden.conftest import AivenTier, Tier, _lines_of
from tests.golden.places import ISOLATION_LEVELS
from tests.stores.artifacts import MissingTool
from tests.stores.s3_server import BUCKET, S3Server, s3_server
from tests.stores.vended_reader import KINDS, SIGNERS, SignedBy, SignedReader

TIERS = (Tier("local-4.1"), AivenTier("aiven-plain"), AivenTier("aiven-zstd"), AivenTier("aiven-zstd-aes"))
LAYOUT = "remote.storage.layout"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server with the tiers, each in a folder of its name."""
    folder = tmp_path_factory.mktemp("vended")
    for tier in TIERS:
        shutil.copytree(tier.url, folder / "tier" / tier.name)
    try:
        with s3_server(folder, folder / "tier") as running:
            yield running
    except MissingTool as error:
        pytest.skip(str(error))


@pytest.fixture
def source(request: pytest.FixtureRequest, s3: S3Server) -> Iterator[SignedBy]:
    """The answers of a service about a tier."""
    tier: Tier = request.param
    signer = S3Fetcher()
    options = {name: text for name, text in tier.config.items() if name.startswith(f"{LAYOUT}.")}
    layout = tier.config.get(LAYOUT, "kafka_local")
    signer.configure({**s3.configs(), "remote.storage.url": f"s3://{BUCKET}/{tier.name}", LAYOUT: layout, **options})
    told = {name.removeprefix(f"{LAYOUT}."): text for name, text in options.items() if ".encryption." not in name}
    found = SIGNERS[s3.endpoint] = SignedBy(signer, layout, told)
    yield found
    del SIGNERS[s3.endpoint]
    signer.close()


def config_of(tier: Tier, s3: S3Server, folder: Path) -> dict[str, Any]:
    """A reader without credentials: timelines, the service, and the keys of encrypted segments."""
    file = folder / "timelines"
    origin = SnapshotOrigin("recorded", Uuid(bytes(16)), 5, ())
    file.write_bytes(dump_timelines(tuple(tier.timelines.values()), origin=origin))
    keys = {name: text for name, text in tier.config.items() if ".encryption." in name}
    located = {"remote.locator": "snapshot", "remote.locator.snapshot.file": str(file)}
    return {**SignedReader.config(s3.endpoint), **located, **keys}


@pytest.mark.parametrize(
    ("tier", "source"),
    of_a_change([(tier, tier) for tier in TIERS], (TIERS[0],) * 2, (TIERS[-1],) * 2),
    ids=lambda tier: tier.name,
    indirect=["source"],
)
def test_the_records_of_the_broker(tier: Tier, source: SignedBy, s3: S3Server, tmp_path: Path) -> None:
    config = config_of(tier, s3, tmp_path)
    counters = Counters()
    compared = 0
    for topic in sorted({place.topic for place in tier.places}):
        places = [place for place in tier.places if place.topic == topic]
        log_start = {place.partition: place.log_start for place in places}
        for isolation in ISOLATION_LEVELS:
            wanted = [line for place in places for line in place.recorded(isolation)]
            arguments: dict[str, Any] = {"isolation": isolation, "log_start": log_start, "observer": counters}
            assert _lines_of(read_arrow(topic, config=config, **arguments)) == wanted, (topic, isolation)
            compared += len(wanted)
    report = counters.report()
    assert compared == report.records > 1000
    assert [report.fallbacks, report.rereads, report.retries, report.scans] == [{}, {}, {}, {}]


@pytest.mark.parametrize("source", [pytest.param(TIERS[0], id="local-4.1")], indirect=True)
def test_urls_that_expire_are_asked_for_again(source: SignedBy, s3: S3Server) -> None:
    """The first answer has expired when it comes, as after a long pause of the reader."""
    metadata = next(iter(source.signer.list_segments()))  # type: ignore[attr-defined]
    whole = bytes(source.signer.fetch_log_segment(metadata, 0))  # type: ignore[attr-defined]
    expired = source.signer.sign(metadata, KINDS, 1)
    time.sleep(2.1)
    fresh = source.signer.sign

    class Late(SignedBy):
        def locations(self, metadata: Any, *, refused: bool) -> Any:
            self.asked += 1
            return fresh(metadata, KINDS, 300) if refused else expired

    late = SIGNERS[s3.endpoint] = Late(source.signer, *source.named)
    reader = SignedReader()
    reader.configure({"remote.locator.url": s3.endpoint})
    assert bytes(reader.fetch_log_segment(metadata, 0)) == whole
    assert reader.fetch_index(metadata, IndexType.OFFSET) is not None
    assert late.asked == 2
    reader.close()
    late.locations = lambda metadata, *, refused: expired  # type: ignore[method-assign]
    again = SignedReader()
    again.configure({"remote.locator.url": s3.endpoint})
    for kind in IndexType:
        with pytest.raises(StorageDenied) as caught:
            again.fetch_index(metadata, kind)
        assert "X-Amz" not in "".join(traceback.format_exception(caught.value))
    again.close()
