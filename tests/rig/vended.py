"""Vended access on loopback: a secured broker, an S3 server over its tier, and a `remote-fetch serve` in between.

Rules of the file:

- Everything speaks TLS with certificates of one authority. The S3 server checks signatures.
- Only the service has a key to the bucket, and READ on the metadata topic.
- The service keeps an answer of the brokers about a permission only for a moment, so that tests need not wait.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

from fetchers.vended import VendedFetcher
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.model import Buffer, RemoteLogSegmentMetadata
from tests.locate.scripted_service import Question, Reply, ScriptedService, scripted_service
from tests.rig.acls import allow
from tests.rig.certificates import Certificates
from tests.rig.rig import VERSIONS, Rig, single
from tests.stores.s3_server import S3Server, s3_server
from tests.stores.servers import Server, free_port, serving

__all__ = ["BELIEVED_S", "Edit", "Vended", "fetcher", "halted", "vended"]

BELIEVED_S = 0.2
"""How long the service keeps the brokers' answer about a principal."""
_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 150

Edit = Callable[[str, Any], Any]
"""Changes an answer of the service. Takes the path with its query and the JSON, and returns other JSON."""


@dataclass(frozen=True, slots=True)
class Vended:
    """The running parts. `url` is the service's."""

    rig: Rig
    s3: S3Server
    service: Server
    certificates: Certificates

    @property
    def url(self) -> str:
        """The service's URL."""
        return self.service.endpoint

    def config(self, user: str, mechanism: str = "SCRAM-SHA-256", **more: Any) -> dict[str, Any]:
        """The configuration of a client: its credentials for the brokers, and where the service is."""
        return {
            **self.rig.secured_client(user, mechanism),
            "remote.locator": "service",
            "remote.locator.url": self.url,
            "remote.storage.options.ca_certs": str(self.certificates.authority),
            "fetch.remote.when": "always",
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    @contextmanager
    def edited(self, edit: Edit) -> Iterator[ScriptedService]:
        """A relay that edits the service's answers. A client gets its URL as `remote_locator_url`."""
        with urllib3.PoolManager(ca_certs=str(self.certificates.authority), retries=False, maxsize=8) as pool:

            def answer(question: Question) -> Reply:
                headers = {"Authorization": question.headers["authorization"]}
                found = pool.request("GET", self.url + question, headers=headers, timeout=_TIMEOUT_S)
                body = found.data
                if found.status == 200:
                    edited = edit(question, json.loads(body))
                    body = edited if isinstance(edited, bytes) else json.dumps(edited).encode()
                return Reply(found.status, body)

            with scripted_service(answer) as relay:
                yield relay


class _Halted(VendedFetcher):
    """Calls a function once, before it reads on in a segment that begins at a given offset or later."""

    def __init__(self, first_offset: int, happen: Callable[[], object]) -> None:
        super().__init__()
        self._first_offset, self._happen = first_offset, happen
        self._lock = threading.Lock()
        self._has_happened = False

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> Buffer:
        """As `VendedFetcher.fetch_log_segment`, but calls the function before, if it is due."""
        if metadata.start_offset >= self._first_offset and start_position > 0:
            with self._lock:
                if not self._has_happened:
                    self._has_happened = True
                    self._happen()
        return super().fetch_log_segment(metadata, start_position, end_position)


def fetcher() -> RemoteStorageFetcher:
    """The fetcher of `remote.storage.fetcher.class`. `halted` replaces this function."""
    return VendedFetcher()


@contextmanager
def halted(first_offset: int, happen: Callable[[], object]) -> Iterator[dict[str, Any]]:
    """The configuration of a read that calls `happen` in the middle of the first segment from an offset on.

    No range is fetched ahead of that.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.fetcher", lambda: _Halted(first_offset, happen))
        yield {
            "remote.storage.fetcher.class": f"{__name__}:fetcher",
            "fetch.remote.range.bytes": 1024,
            "fetch.remote.max.bytes": 1024,
            "fetch.remote.read.timeout.ms": 20_000,
        }


@contextmanager
def vended(folder: Path, version: str = VERSIONS[0], *options: str) -> Iterator[Vended]:
    """Start all parts. `options` go to `remote-fetch serve`. Raises MissingTool."""
    with ExitStack() as stack:
        rig = stack.enter_context(single(folder / "kafka", version, secured=True))
        assert rig.certificates is not None
        s3 = stack.enter_context(s3_server(folder / "s3", rig.remote, rig.certificates))
        rig.wait_tier_ready()
        allow(rig, "service", "READ", "__remote_log_metadata")
        allow(rig, "service", "DESCRIBE", "*")
        server = _service(folder, rig, s3, rig.certificates, options)
        stack.enter_context(serving(server))
        yield Vended(rig, s3, server, rig.certificates)


def _service(folder: Path, rig: Rig, s3: S3Server, tls: Certificates, options: tuple[str, ...]) -> Server:
    properties = folder / "service.properties"
    given = {**rig.secured_client("service"), **s3.configs()}
    properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    port = free_port()
    command = [
        *(sys.executable, "-m", "remote_fetch", "serve", "-F", str(properties), "--listen", f"127.0.0.1:{port}"),
        *("--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)),
        *("--mechanisms", "SCRAM-SHA-256,OAUTHBEARER"),
        *("--allowed-for", str(BELIEVED_S), "--refused-for", str(BELIEVED_S), "--refresh-ms", "100"),
        *options,
    ]
    return Server(command, folder / "service.log", port, {"PYTHONPATH": str(_ROOT)}, "https")
