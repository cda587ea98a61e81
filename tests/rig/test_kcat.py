"""Compares the output of `cat` with that of kcat, for each set of flags, on one topic of a real broker.

If kcat is not installed, a recording of its output is used.
"""

from __future__ import annotations

import pytest

from remote_fetch.cli import main
from tests.rig.kcat import FLAGS, TOPIC, as_documented, kcat, live, make_topic, recorded
from tests.rig.rig import Rig


@pytest.fixture(scope="module")
def compared(rig_43: Rig) -> Rig:
    """A broker that has the topic."""
    make_topic(rig_43)
    return rig_43


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_the_output_is_kcats(compared: Rig, flags: tuple[str, ...], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    program = kcat()
    printed = recorded(flags) if program is None else live(program, compared, flags)
    assert printed == recorded(flags)
    options = ["-b", compared.bootstrap, "--url", str(compared.remote), "-X", "log_level=0", "-t", TOPIC, "-e", "-q"]
    assert main(["cat", *options, *flags]) == 0
    assert capfdbinary.readouterr().out == as_documented(flags, printed)
