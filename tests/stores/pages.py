"""Runs the snippets of the stores' how-to page against real servers, and compares what they print with the page.

Rules of the file:

- The page has tabs, one for each store. The plain `python` blocks in the tabs of a store are run in order, in one
  namespace. A `text` block right after a block is its expected output.
- The server holds the bucket that ships with the package. The snippets find it by environment variables, as the store's
  own tools do.
- If the server cannot be built, the page keeps its recorded output and says so.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from importlib.resources import files
from pathlib import Path

from tests.stores.artifacts import AZURITE, FAKE_GCS_SERVER, VERSITYGW, BuildError, MissingTool
from tests.stores.azure_server import azure_server
from tests.stores.gcs_server import gcs_server
from tests.stores.s3_server import s3_server
from tests.stores.servers import StoreServer, put_tree

__all__ = ["run_page"]

_PAGE = Path(__file__).parents[2] / "docs" / "howto" / "read-from-a-store.md"
_TABS = {"s3": "S3", "gcs": "Google Cloud Storage", "azure": "Azure Blob Storage"}
_BLOCK = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$"
    r"(?:\n\n(?P=indent)```text\n(?P<output>.*?)^(?P=indent)```$)?",
    re.MULTILINE | re.DOTALL,
)
_NAMES = {
    "s3": f"versitygw {VERSITYGW}",
    "gcs": f"fake-gcs-server {FAKE_GCS_SERVER}",
    "azure": f"Azurite {AZURITE}",
}
_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST")


def run_page(store: str) -> str:
    """Run the snippets in the tabs of a store. Return a Markdown sentence that says against which server.

    If the server cannot be built, the sentence says so, or the error is raised (REMOTE_FETCH_STRICT). Raises
    AssertionError if a snippet prints something other than the page shows.
    """
    try:
        with tempfile.TemporaryDirectory() as folder, _server(store, Path(folder)) as server:
            put_tree(server, Path(str(files("remote_fetch.cli") / "demo_bucket")))
            with _environment(_found_by(store, server)):
                _run(_PAGE.name, _tabs(_PAGE.read_text(encoding="utf-8"), _TABS[store]))
    except (MissingTool, BuildError) as error:
        if os.environ.get("REMOTE_FETCH_STRICT", "") not in ("", "0"):
            raise
        return f"*What the snippets print was recorded: {str(error).splitlines()[0]}.*"
    return f"*The snippets were run against {_NAMES[store]} when this page was built.*"


def _server(store: str, folder: Path) -> AbstractContextManager[StoreServer]:
    if store == "s3":
        return s3_server(folder / "s3", folder / "tier")
    return gcs_server(folder) if store == "gcs" else azure_server(folder)


def _found_by(store: str, server: StoreServer) -> Mapping[str, str]:
    """The variables by which the SDK finds the server."""
    options = {name.rpartition(".")[2]: value for name, value in server.configs().items()}
    if store == "s3":
        return {
            "AWS_ENDPOINT_URL_S3": options["endpoint_url"],
            "AWS_ACCESS_KEY_ID": options["key"],
            "AWS_SECRET_ACCESS_KEY": options["secret"],
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    if store == "gcs":
        return {"STORAGE_EMULATOR_HOST": options["endpoint_url"]}
    return {"AZURE_STORAGE_CONNECTION_STRING": options["connection_string"]}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables, and none other that a store's SDK looks at."""
    hidden = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
    for name in hidden:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(hidden)


def _tabs(text: str, title: str) -> str:
    """The text in the tabs of one title."""
    found: list[str] = []
    is_wanted = False
    for line in text.splitlines():
        if line.startswith("=== "):
            is_wanted = line == f'=== "{title}"'
        elif line and not line.startswith(" "):
            is_wanted = False
        elif is_wanted:
            found.append(line)
    return textwrap.dedent("\n".join(found)) + "\n"


def _run(page: str, text: str) -> None:
    names: dict[str, object] = {}
    blocks = list(_BLOCK.finditer(text))
    assert blocks, f"{page} has nothing to run"
    for block in blocks:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(textwrap.dedent(block["code"]), page, "exec"), names)
        expected = textwrap.dedent(block["output"] or "")
        assert printed.getvalue() == expected, f"{page} says\n{expected}and prints\n{printed.getvalue()}"
