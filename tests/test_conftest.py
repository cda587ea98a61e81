"""The session's own behaviour: strictness about skipped tests, and the choice of the decoder.

Rules of the file:

- Each case runs a whole pytest session in a separate process.
- Stand-ins are there for the modules that the conftest takes brokers, Spark and limits from. No case wants these, and
  their imports take three times as long as such a session. The session that runs this file has the modules themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remote_fetch.decode.run_decoder import is_native
from tests.process_groups import group_of, has_brokers, suits

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent

SKIPPED = "import pytest\n\ndef test_a(): pass\n\n@pytest.mark.skip(reason='no broker here')\ndef test_b(): pass\n"
SKIPPED_FILE = "import pytest\n\npytest.skip('no JVM here', allow_module_level=True)\n"
XFAILED = "import pytest\n\n@pytest.mark.xfail(reason='known')\ndef test_a(): assert False\n"
PASSED = "def test_a(): pass\n"
SEARCHED = "import pytest\n\n@pytest.mark.soak\ndef test_a(): assert False\n"
FAILED = "import pytest\n\ndef test_a(): assert False\n\ndef test_b(): pytest.skip('no broker here')\n"


STAND_INS = {
    "rig/brokers.py": "needs_broker = new_topic = newest_broker = rig = rig_39 = rig_43 = stop_newest = None\n",
    "rig/rig.py": "VERSIONS = ()\nclass Rig: pass\n",
    "spark/session.py": "spark = None\n",
    "patience.py": "SHIPPED, UNHURRIED = {}, {}\ndef set_limits(limits): pass\n",
    "searches.py": "def take_time(): pass\n",
}


def session(directory: Path, source: str, *arguments: str, strict: str = "") -> subprocess.CompletedProcess[str]:
    """Run pytest over one test file of `source` under this project's conftest."""
    (directory / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (directory / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (directory / "test_it.py").write_text(source, encoding="utf-8")
    for name, text in STAND_INS.items():
        (directory / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / "tests" / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", *arguments]
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "REMOTE_FETCH_STRICT": strict,
        "PYTHONPATH": f"{directory}{os.pathsep}{TESTS.parent}",
    }
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    ("source", "strict", "code", "reason"),
    [
        pytest.param(SKIPPED, "0", 0, "no broker here", id="a skipped test is tolerated"),
        pytest.param(SKIPPED, "1", 1, "test_it.py::test_b: no broker here", id="a skipped test fails a strict session"),
        pytest.param(SKIPPED_FILE, "", 5, "no JVM here", id="a skipped file leaves no test"),
        pytest.param(SKIPPED_FILE, "1", 1, "test_it.py: no JVM here", id="a skipped file fails a strict session"),
        pytest.param(XFAILED, "1", 0, "known", id="an expected failure is no skip"),
        pytest.param(FAILED, "1", 1, "no broker here", id="failed anyway"),
    ],
)
def test_exit_code_and_summary(tmp_path: Path, source: str, strict: str, code: int, reason: str) -> None:
    result = session(tmp_path, source, strict=strict)
    assert result.returncode == code
    assert reason in result.stdout
    skips = source != XFAILED
    assert ("no test may be skipped" in result.stdout) == (skips and strict == "1")


PASSES_LATER = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range(2))
def test_a(number):
    seen = pathlib.Path(f"seen-{number}")
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")

def test_b():
    with open("others", "a") as file:
        file.write("x")
"""


def test_what_failed_is_run_once_more(tmp_path: Path) -> None:
    result = session(tmp_path, PASSES_LATER, "--second-run", "2")
    assert result.returncode == 0, result.stdout
    assert "Once more, alone" in result.stdout
    assert result.stdout.count("AssertionError: the first time") >= 2  # the failures stay in the report
    assert (tmp_path / "others").read_text() == "x"  # the test that passed was not run again


def test_what_fails_twice_fails_the_session(tmp_path: Path) -> None:
    result = session(tmp_path, FAILED, "--second-run", "2")
    assert result.returncode == 1
    assert "Once more, alone" in result.stdout


HANGS = """
import pathlib
import time

def test_a():
    if pathlib.Path("seen").exists():
        time.sleep(1_000)
    pathlib.Path("seen").touch()
    raise AssertionError("the first time")
"""


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        pytest.param("_LONGEST_TEST_S", "Timeout (0:00:01)", id="a test that hangs"),
        pytest.param("_LONGEST_S", "did not end in 1 s", id="a second run that does not end"),
    ],
)
def test_a_second_run_that_hangs_fails_the_session(tmp_path: Path, limit: str, said: str) -> None:
    (tmp_path / "limits.py").write_text(f"from tests import second_run\n\nsecond_run.{limit} = 1\n", encoding="utf-8")
    result = session(tmp_path, HANGS, "--second-run", "1", "-p", "limits")
    assert result.returncode == 1
    assert said in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("source", "arguments", "code"),
    [
        pytest.param(PASSES_LATER, ("--second-run", "1"), 1, id="too many failed"),
        pytest.param(PASSES_LATER, (), 1, id="without the option"),
        pytest.param(PASSES_LATER, ("--second-run", "2", "-x"), 1, id="a session that stopped"),
        pytest.param(SEARCHED, ("--second-run", "2", "-W", "ignore"), 1, id="a random search"),
        pytest.param("raise ValueError", ("--second-run", "2"), 2, id="a file that cannot be read"),
    ],
)
def test_no_second_run(tmp_path: Path, source: str, arguments: tuple[str, ...], code: int) -> None:
    result = session(tmp_path, source, *arguments)
    assert result.returncode == code, result.stdout
    assert "Once more" not in result.stdout


def test_no_second_run_if_a_test_was_skipped(tmp_path: Path) -> None:
    source = PASSES_LATER + "\n@pytest.mark.skip(reason='no broker here')\ndef test_c(): pass\n"
    result = session(tmp_path, source, "--second-run", "2", strict="1")
    assert result.returncode == 1
    assert "Once more" not in result.stdout


CRASHES_FIRST = """
import os
import pathlib

def test_a():
    if not pathlib.Path("seen").exists():
        pathlib.Path("seen").touch()
        os._exit(3)
"""


def test_no_second_run_after_a_process_has_ended(tmp_path: Path) -> None:
    """Tests that the process had not yet run would be missing from a session that passes."""
    result = session(
        tmp_path, CRASHES_FIRST, "--second-run", "2", "-p", "xdist", "-n", "1", "--max-worker-restart", "0"
    )
    assert result.returncode == 1, result.stdout
    assert "Once more" not in result.stdout


def stand_in(root: Path) -> None:
    """A tree with a decoder that has no library beside it, and the plugin."""
    for name in ("remote_fetch/__init__.py", "remote_fetch/decode/__init__.py", "remote_fetch/decode/engine.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("", encoding="utf-8")
    (root / "tools").mkdir()
    plugin = TESTS.parent / "tools" / "interpreted_decoder.py"
    (root / "tools" / plugin.name).write_text(plugin.read_text(encoding="utf-8"), encoding="utf-8")


DECODING = """
def test_a():
    try:
        import remote_fetch.decode._native
    except ModuleNotFoundError as error:
        assert error.name == "remote_fetch.decode._native"
    else:
        raise AssertionError("it can be imported")
"""


@pytest.mark.scheduled
def test_interpreted_decoder(tmp_path: Path) -> None:
    stand_in(tmp_path)
    # A conftest that imports the decoder, as those of our packages do, comes after the plugin.
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "conftest.py").write_text("import remote_fetch.decode.engine\n", encoding="utf-8")
    (tmp_path / "deep" / "test_it.py").write_text(DECODING, encoding="utf-8")
    result = session(tmp_path, DECODING, "-p", "tools.interpreted_decoder", "deep")
    assert result.returncode == 0, result.stdout
    assert "decoder: plain Python" in result.stdout


@pytest.mark.scheduled
def test_interpreted_decoder_wants_to_be_first(tmp_path: Path) -> None:
    stand_in(tmp_path)
    (tmp_path / "remote_fetch" / "decode" / "_native.py").write_text("", encoding="utf-8")
    (tmp_path / "early.py").write_text("import remote_fetch.decode._native\n", encoding="utf-8")
    result = session(tmp_path, PASSED, "-p", "early", "-p", "tools.interpreted_decoder")
    assert result.returncode == 4
    assert "too late" in result.stderr


def test_three_of_five_processes_take_the_files_with_brokers() -> None:
    """Every other file has a process that prefers it too, and the files with Spark have one process for all."""
    takers = {
        path: [number for number in range(5) if suits(group_of(f"{path}::test_a"), number)]
        for path in (
            "tests/rig/test_read.py",
            "tests/rig/test_spark.py",
            "tests/contract/test_records.py",
            "tests/test_docs.py",
        )
    }
    assert list(takers.values()) == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 4]]
    assert has_brokers(group_of("tests/spark/test_source.py::test_a"))  # no broker stops while others of Spark follow
    assert group_of("tests/rig/test_spark.py::test_a") == group_of("tests/spark/test_source.py::test_b")
    assert group_of("tests/rig/test_read.py::test_a") != group_of("tests/rig/test_cat.py::test_a")


def test_a_session_without_failures_and_skips(tmp_path: Path) -> None:
    """It is strict and may run tests once more. Its head names the decoder."""
    variant = "native" if is_native() else "plain Python"
    result = session(tmp_path, PASSED, "--second-run", "2", strict="1")
    assert result.returncode == 0, result.stdout
    assert "Once more" not in result.stdout
    assert f"decoder: {variant}" in result.stdout
