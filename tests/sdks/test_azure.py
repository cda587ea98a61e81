"""Clients of Azure and redirects: what the host sees to which an endpoint redirects."""

from __future__ import annotations

import base64

import pytest
from adlfs import AzureBlobFileSystem

from remote_fetch.errors import ConfigError
from remote_fetch.session.filesystems import direct, is_object_store, open_filesystem
from tests.redirecting import check_refused, redirecting

KEY = base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nothing_is_written_to_the_host_of_a_redirect(status: int) -> None:
    """It would have the records of an export, and the export would be taken for done. Also in another process."""
    with redirecting(status) as server:
        endpoint = f"BlobEndpoint=http://127.0.0.1:{server.server_port}/account"
        connection = f"DefaultEndpointsProtocol=http;AccountName=account;AccountKey={KEY};{endpoint}"
        filesystem, path = open_filesystem("az://container/prefix", {"connection_string": connection}, key="to")
        theirs = direct(AzureBlobFileSystem(connection_string=connection))  # as pyiceberg opens it
        for opened in (filesystem, theirs):
            check_refused(opened, path)
    assert server.asked == []
    assert server.redirected == ["PUT"] * 2


def test_the_account_comes_from_the_url_or_the_options() -> None:
    url = "abfs://container@account.dfs.core.windows.net/a/b"
    for options in ({"account_key": KEY}, {"account_key": KEY, "account_name": "account"}):
        filesystem, path = open_filesystem(url, options, key="to")
        assert (filesystem.account_name, path) == ("account", "container/a/b")
        assert filesystem.service_client.account_name == "account"
        assert is_object_store(filesystem)
    with pytest.raises(ConfigError, match="no filesystem can be made of these options"):
        open_filesystem(url, {"account_key": KEY, "account_name": "another"}, key="to")


def test_an_account_alone_is_not_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    """adlfs before 2026.4 takes it so."""
    monkeypatch.delenv("AZURE_STORAGE_ANON", raising=False)
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    filesystem, _ = open_filesystem("abfs://container@account.dfs.core.windows.net/a", {}, key="to")
    assert filesystem.storage_options["anon"] is False
    assert filesystem.credential is not None
