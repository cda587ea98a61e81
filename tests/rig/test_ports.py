"""No two processes of the machine get the same port."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.own_processes import killed_after
from tests.rig.ports import Ports, free_port

TIMEOUT_S = 150
FEW = range(18_990, 18_999)
"""None of the numbers that servers of other tests get."""
TAKES = """
import sys
from pathlib import Path
from tests.rig.ports import Ports

ports = Ports(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))
print(*(ports.take() for _ in range(int(sys.argv[4]))), flush=True)
sys.stdin.read()
"""


def test_what_another_process_has_taken_is_left_to_it_until_it_ends(tmp_path: Path) -> None:
    lock_file = tmp_path / "lock"
    command = [sys.executable, "-c", TAKES, str(lock_file), str(FEW[0]), str(FEW[-1] + 1), "5"]
    ports = Ports(lock_file, FEW)
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        killed_after(TIMEOUT_S, process),
    ):
        assert process.stdout is not None
        theirs = {int(port) for port in process.stdout.readline().split()}
        ours = {ports.take() for _ in range(len(FEW) - 5)}
        assert theirs | ours == set(FEW)
        with pytest.raises(RuntimeError, match="no port is free between 18990 and 18998"):
            ports.take()
        process.communicate(timeout=TIMEOUT_S)
    assert {ports.take() for _ in range(5)} == theirs


def test_a_port_that_is_listened_on_is_not_given(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", FEW[0])):
        ports = Ports(tmp_path / "lock", FEW[:2])
        assert ports.take() == FEW[1]
        with pytest.raises(RuntimeError):
            ports.take()
    assert ports.take() == FEW[0]


def test_no_port_is_given_twice_or_to_outgoing_connections() -> None:
    found = [free_port() for _ in range(50)]
    assert len(set(found)) == 50
    assert max(found) < 32_768
