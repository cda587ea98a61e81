"""A tutorial's page on a real broker: its topic, and its commands and scripts as they stand in the text.

Rules of the file:

- A block runs unchanged, in the reader's folder. The environment has the broker, the tier and this Python's commands.
- A block that only sets the reader's environment is passed over.
- Each block must succeed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.rig import topics
from tests.rig.rig import Rig

__all__ = ["blocks_of", "half_tiered_topic", "run_blocks", "run_command"]

_TIMEOUT_S = 120
_BLOCK = re.compile(r"```(bash|python)\n(.*?)```", re.DOTALL)


def half_tiered_topic(rig: Rig, topic: str) -> None:
    """Make a topic of two partitions with 100 records each in the tier, and 20 more that only the broker has."""
    topics.create_topic(rig, topic, 2)
    for partition in (0, 1):
        topics.produce(rig, topic, 100, partition=partition, seed=partition)
    topics.wait_tiered(rig, topic, (0, 1))
    topics.set_config(rig, topic, local_retention_ms=-2)
    topics.produce(rig, topic, 20, seed=5)


def blocks_of(text: str) -> list[tuple[str, str]]:
    """The blocks of a page: `bash` or `python`, and the text."""
    return _BLOCK.findall(text)


def run_command(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float = _TIMEOUT_S
) -> str:
    """The standard output of a command. The command must succeed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=folder,
        env=environment,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}: {done.stderr}"
    return done.stdout


def run_blocks(
    rig: Rig, blocks: Sequence[tuple[str, str]], folder: Path, python_options: Sequence[str] = ()
) -> list[str]:
    """Run the blocks in order. Returns the standard output of each."""
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "BROKER": rig.bootstrap,
        "TIER": str(rig.remote),
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
    }
    printed = []
    for kind, text in blocks:
        if text.startswith("export"):
            continue
        command = ["bash", "-euc", text] if kind == "bash" else [sys.executable, *python_options, "-c", text]
        printed.append(run_command(command, folder, environment))
    return printed
