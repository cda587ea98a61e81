"""`dump` of objects in the stores, by their whole URLs: the lines are those of the same file on a disk.

Rules of the file:

- The object is one that a real broker tiered. tests/golden has what `kafka-dump-log` says of such objects.
"""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run, run
from tests.stores.range_server import RangeServer
from tests.stores.servers import StoreServer

__all__ = ["run"]


def lines_of_the_file(run: Run, path: Path) -> list[str]:
    outcome = run("dump", str(path))
    assert (outcome.code, outcome.stderr) == (0, "")
    assert len(outcome.lines) > 1
    return outcome.lines[1:]


def test_an_object_of_a_store(run: Run, tree: Path, store: StoreServer) -> None:
    configs = store.configs()
    root = configs["remote.storage.url"]
    options = [f"{name}={value}" for name, value in configs.items() if name.startswith("remote.storage.options.")]
    words = [word for option in options for word in ("-X", option)]
    for suffix in (".log", ".timeindex"):
        path = sorted(tree.rglob(f"*{suffix}"))[1]
        url = f"{root}/{path.relative_to(tree).as_posix()}"
        outcome = run("dump", *words, url)
        assert (outcome.code, outcome.stderr, outcome.lines[0]) == (0, "", f"Dumping {url}")
        assert outcome.lines[1:] == lines_of_the_file(run, path)


def test_an_object_of_a_web_server(run: Run, tree: Path) -> None:
    path = sorted(tree.rglob("*.log"))[1]
    name = path.relative_to(tree).as_posix()
    with RangeServer({name: path.read_bytes()}) as server:
        url = f"{server.url}/{name}"
        outcome = run("dump", url)
    assert (outcome.code, outcome.stderr, outcome.lines[0]) == (0, "", f"Dumping {url}")
    assert outcome.lines[1:] == lines_of_the_file(run, path)
