"""Vended access without its service: a fetcher whose URLs another fetcher signs, in the same process.

Rules of the file:

- There is no service. `SIGNERS` has the answers that it would give, by its URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fetchers.vended import VendedFetcher
from remote_fetch.fetch.spi import ObjectSigner
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from tests.stores.servers import PATIENCE

__all__ = ["KINDS", "SIGNERS", "SignedBy", "SignedReader"]

KINDS = ("log", *(kind.value for kind in IndexType))


class SignedBy:
    """A LocationSource whose URLs a fetcher with credentials signs. `asked` counts its answers."""

    def __init__(self, signer: ObjectSigner, layout: str, options: Mapping[str, str], expires_s: int = 300) -> None:
        self.signer = signer
        self.named = layout, options
        self.expires_s = expires_s
        self.asked = 0

    def layout(self) -> tuple[str, Mapping[str, str]]:
        return self.named

    def locations(self, metadata: RemoteLogSegmentMetadata, *, refused: bool) -> Mapping[str, str]:
        self.asked += 1
        return self.signer.sign(metadata, KINDS, self.expires_s)


SIGNERS: dict[str, SignedBy] = {}
"""The sources by `remote.locator.url`."""


class SignedReader(VendedFetcher):
    """The fetcher `vended` with a source of `SIGNERS`, as a session would give it one."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `VendedFetcher.configure`."""
        super().configure(configs)
        self.take_locations(SIGNERS[configs["remote.locator.url"]])

    @staticmethod
    def config(url: str) -> dict[str, Any]:
        """The configuration of a reader."""
        return {
            "remote.storage.fetcher.class": "tests.stores.vended_reader:SignedReader",
            "remote.locator.url": url,
            **PATIENCE,
        }
