"""Runs the commands and the Python of README.md, unchanged, in an empty folder, on a topic of a real broker.

Rules of the file:

- Every block is run, or is marked as output (`text`). Another block is an error that names it.
- The test replaces the directory of the tier, the address of the broker, and the environment that `make` installs.
- The test adds the broker's own file if a command names it, and a session of Spark.
- The loop of a service ends after all records. As it stands in the README, it has no end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from tests.rig import topics
from tests.rig.rig import Rig, single
from tests.rig.tutorials import run_command
from tests.spark.session import QUICK_JVM

ROOT = Path(__file__).parents[2]
TIER = "/mnt/kafka-tier"
BROKER = "broker:9092"
TOPIC = "orders"
PARTITIONS = 2
RECORDS = 60
PROPERTIES = "server.properties"
SPARK = """
from pyspark.sql import SparkSession
settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
"""
OUTPUT = ("text",)
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIMEOUT_S = 300


class Block(NamedTuple):
    """A fenced block: its language, and its text."""

    language: str
    text: str

    def __str__(self) -> str:
        return f"the block ```{self.language} that begins with {self.text.splitlines()[0]!r}"


def blocks(page: str) -> list[Block]:
    return [Block(language.strip(), text) for language, text in FENCE.findall(page)]


def readme(language: str) -> list[Block]:
    return [block for block in blocks((ROOT / "README.md").read_text(encoding="utf-8")) if block.language == language]


def commands(first_word: str) -> list[str]:
    lines = [line.partition("#")[0].strip() for block in readme("bash") for line in block.text.splitlines()]
    return [line for line in lines if line.split(" ", 1)[0] == first_word]


def not_run(page: str) -> list[str]:
    """The blocks in another language, and the commands of other programs, which no test here runs."""
    found = []
    for block in blocks(page):
        lines = [line for line in block.text.splitlines() if line.strip() and not line.startswith("#")]
        is_run = block.language == "python" or (
            block.language == "bash" and all(line.split(" ", 1)[0] in ("make", "remote-fetch") for line in lines)
        )
        if not is_run and block.language not in OUTPUT:
            found.append(str(block))
    return found


@pytest.fixture(scope="module")
def rig(needs_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A broker without other topics, because `doctor` looks at all of them."""
    with single(tmp_path_factory.mktemp("readme")) as running:
        yield running


@pytest.fixture(scope="module")
def tier(rig: Rig) -> Path:
    """The directory of a tier with the topic that the README reads. Its records are new, and only in the tier."""
    topics.create_topic(rig, TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": rig.bootstrap, **topics.QUIET})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"order {number}", f"user {number % 7}", number % PARTITIONS)
    assert producer.flush(60) == 0
    topics.wait_tiered(rig, TOPIC, range(PARTITIONS))
    return rig.remote


def run(command: list[str], folder: Path) -> str:
    """The output of a command. The command must succeed, and print no failure on stderr."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return run_command(command, folder, environment, _TIMEOUT_S)


def test_no_block_is_left_out() -> None:
    assert not_run((ROOT / "README.md").read_text(encoding="utf-8")) == []


def test_a_block_that_would_be_left_out_is_named() -> None:
    page = "```\nls\n```\n\n```text\n5 records\n```\n\n```bash\nmake demo\npip install x\n```\n```python\n1\n```\n"
    assert not_run(page) == [
        "the block ``` that begins with 'ls'",
        "the block ```bash that begins with 'make demo'",
    ]


def test_python_into_a_frame(tier: Path, tmp_path: Path) -> None:
    block, _, _ = readme("python")
    script = block.text.replace(TIER, str(tier)) + "\nprint(frame.height, frame.width)\n"
    assert TIER in block.text
    assert run([sys.executable, "-W", "error", "-c", script], tmp_path) == f"{RECORDS} 8\n"


def test_python_in_a_service(rig: Rig, tier: Path, tmp_path: Path) -> None:
    _, block, _ = readme("python")
    script = block.text.replace(TIER, str(tier)).replace(BROKER, rig.bootstrap)
    assert TIER in block.text
    assert BROKER in block.text
    for old, new in (
        ("try:\n", f"left = {RECORDS}\ntry:\n"),
        ("while True:", "while left:"),
        ("finally:", "        left -= 1\nfinally:"),
    ):
        assert block.text.count(old) == 1
        script = script.replace(old, new)
    printed = run([sys.executable, "-W", "error", "-c", script], tmp_path).splitlines()
    assert sorted(line.split(" ", 1)[1] for line in printed) == sorted(str(b"order %d" % n) for n in range(RECORDS))


@pytest.mark.scheduled  # a change runs the block in the session that is there: test_spark.py
def test_python_in_spark(rig: Rig, tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, block = readme("python")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK_JVM)
    # Spark looks for the data source in directories of installed packages. Here it is used from the sources.
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "remote_fetch" / "spark" / "discovery"))
    script = SPARK + block.text.replace(TIER, str(tier)).replace(BROKER, rig.bootstrap) + "\nprint(orders.count())\n"
    assert TIER in block.text
    assert BROKER in block.text
    assert run([sys.executable, "-c", script], tmp_path).split() == [str(RECORDS)]


@pytest.mark.parametrize("command", commands("remote-fetch"))
def test_a_command(command: str, rig: Rig, tier: Path, tmp_path: Path) -> None:
    assert TIER in command or PROPERTIES in command
    shutil.copy(rig.nodes[1].folder / PROPERTIES, tmp_path)
    command = command.replace(TIER, str(tier)).replace(BROKER, rig.bootstrap)
    printed = run(["bash", "-euc", command], tmp_path)
    if " check " in command:
        assert str(tier) in printed
        assert "ok " in printed
    elif " cat " in command:
        records = [json.loads(line) for line in printed.splitlines()]
        assert [record["offset"] for record in records] == list(
            range(RECORDS // PARTITIONS - 10, RECORDS // PARTITIONS)
        )
    elif " doctor " in command:
        # It chooses a topic, perhaps one that another test left on this broker.
        assert "segments" in printed
        assert f"bootstrap.servers={rig.bootstrap}" in printed
    else:
        assert "segments" in printed
        assert TOPIC in printed


def make(target: str, *options: str) -> list[str]:
    """A command for `make` in the environment of this test, so that `make` installs no package."""
    installed = [f"--old-file=.venv/{name}.stamp" for name in ("made", "demo", "dev")]
    return ["make", "--no-print-directory", *installed, *options, f"BIN={Path(sys.executable).parent}", target]


@pytest.mark.parametrize("command", commands("make"))
def test_make(command: str) -> None:
    target = command.removeprefix("make ")
    if target == "test":  # this test is a part of it, so it would never end
        assert "pytest" in run(make(target, "--dry-run"), ROOT)
    else:
        assert "records" in run(make(target), ROOT)


def test_there_is_something_to_run() -> None:
    assert len(readme("python")) == 3
    assert [command.split()[1] for command in commands("remote-fetch")] == ["ls", "plan", "cat", "config", "doctor"]
    assert commands("make") == ["make demo", "make test"]
