"""Runs of how-to pages of the stores: pages that fail, and pages whose server cannot be built.

Rules of the file:

- `tests/test_docs.py` runs the real pages. The pages here fail.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.stores import pages
from tests.stores.artifacts import BuildError, MissingTool


def test_a_page_that_says_something_else() -> None:
    pages._run("page.md", "```python\nname = 1\n```\n\n```python\nprint(name)\n```\n\n```text\n1\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md says\n2\nand prints\n1"):
        pages._run("page.md", "```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError):
        pages._run("page.md", "```python\nprint(1)\n```\n")
    with pytest.raises(AssertionError, match="nothing to run"):
        pages._run("page.md", "nothing\n")


def test_the_tabs_of_one_store() -> None:
    """Blocks in a list of a tab count, and those of other tabs and behind the tabs do not."""
    page = (
        '=== "S3"\n\n    ```python\n    name = 1\n    ```\n\n=== "GCS"\n\n    ```python\n    name = 2\n    ```\n\n'
        "A line.\n\n    ```python\n    name = 3\n    ```\n\n"
        '=== "S3"\n\n    - An entry:\n\n        ```python\n        print(name)\n        ```\n\n'
        "        ```text\n        1\n        ```\n"
    )
    pages._run("page.md", pages._tabs(page, "S3"))
    with pytest.raises(AssertionError, match="nothing to run"):
        pages._run("page.md", pages._tabs(page, "Azure"))


@pytest.mark.parametrize(
    "error", [MissingTool("go is missing"), BuildError("go is missing\nand more")], ids=["tool", "build"]
)
@pytest.mark.parametrize("store", ["s3", "gcs", "azure"])
def test_without_a_server(store: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says that it was recorded; where every tool has to be there, it is an error."""

    def missing(store: str, folder: Path) -> object:
        raise error

    monkeypatch.setattr(pages, "_server", missing)
    monkeypatch.delenv("REMOTE_FETCH_STRICT", raising=False)
    assert "was recorded: go is missing.*" in pages.run_page(store)
    monkeypatch.setenv("REMOTE_FETCH_STRICT", "1")
    with pytest.raises(type(error)):
        pages.run_page(store)


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pages._environment({"AWS_DEFAULT_REGION": "us-east-1"}):
        assert "AWS_PROFILE" not in os.environ
        assert os.environ["AWS_DEFAULT_REGION"] == "us-east-1"
    assert os.environ["AWS_PROFILE"] == "mine"
    assert "AWS_DEFAULT_REGION" not in os.environ
