"""Runs the C code under AddressSanitizer and UndefinedBehaviorSanitizer: `python -m tools.sanitize`.

Builds the modules of Cython in a scratch directory, shows that a read past a buffer is noticed, then runs their tests
and a short fuzz with them. It needs gcc with its sanitizers, and changes no file of the checkout.

Rules of the file:

- The first step proves that the build notices a read past a buffer.
- Python and Arrow take memory from malloc, because their own allocators would hide such a read.
- The native decoder is not built here, because gcc does not compile Rust. Its tests are in tests/decode.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.interpreted_decoder import INNER_LOOPS
from tools.sanitized_decoder import LIBRARIES_KEY

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
FLAGS = (
    "-shared", "-fPIC", "-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
)  # fmt: skip
REPORT = re.compile(r"AddressSanitizer: heap-buffer-overflow.*?\n +#0 [^\n]*_messages", re.DOTALL)
"""The innermost frame is in our code. A report from a function that the runtime replaces would prove nothing."""
TESTS = ("tests/decode/test_messages.py",)
FUZZED = ("log", "batch")
"""The targets that make messages."""

CANARY = """
from tools import sanitized_decoder
sanitized_decoder.install()
from remote_fetch.decode import run_reference
from remote_fetch.decode.messages import MESSAGE_COLUMNS, MessageCursor
from remote_fetch.decode.run_decoder import BatchReader
from remote_fetch.formats.batches import read_header
from remote_fetch.testing.records import Record, encode_batch
data = memoryview(encode_batch(0, [Record(0)]))
reader = BatchReader("topic", 0, MESSAGE_COLUMNS, engine=run_reference)
rows, = reader.read(read_header(data, 0, position=0), data[61:], 0, 1)
MessageCursor(rows, "topic", 0, lambda *fields: fields)._rows.messages(0, 1000)  # there is one row
"""
FUZZ = """
import sys
from tools import sanitized_decoder
sanitized_decoder.install()
from tools import fuzz
sys.exit(fuzz.main(sys.argv[1:]))
"""


def _build(compiler: str, scratch: Path) -> None:
    """Compile every module of Cython to `<name>.so` in `scratch`. Raises CalledProcessError."""
    for module, source in INNER_LOOPS.items():
        translated = scratch / f"{source.stem}.c"
        cython = [sys.executable, "-m", "cython", "-3", "--module-name", module, str(source), "-o", str(translated)]
        subprocess.run(cython, check=True, cwd=scratch)
        include = f"-I{sysconfig.get_path('include')}"
        command = [compiler, *FLAGS, include, str(translated), "-o", str(scratch / f"{source.stem}.so")]
        subprocess.run(command, check=True)


def _environment(compiler: str, libraries: Path) -> dict[str, str]:
    asked = [compiler, "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(runtime).is_absolute():
        raise SystemExit(f"{compiler} has no AddressSanitizer: on Debian and Ubuntu it comes with gcc itself")
    return {
        **os.environ,
        LIBRARIES_KEY: str(libraries),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",  # the interpreter itself leaks at its end
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "PYTHONPATH": str(ROOT),
    }


def _notices(environment: Mapping[str, str]) -> bool:
    """Whether a read past a buffer ends the process with a report."""
    done = subprocess.run(
        [sys.executable, "-c", CANARY], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    noticed = done.returncode == 99 and REPORT.search(done.stderr) is not None
    if not noticed:
        print(done.stderr)
    return noticed


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the C code, check the build, and run the tests. The exit code is 0 if no error was found."""
    parser = argparse.ArgumentParser(prog="tools.sanitize", description="Run the C code under sanitizers.")
    parser.add_argument("--mutations", type=int, default=2_000, help="of each fuzzed target (default: %(default)s)")
    parser.add_argument("--compiler", default="gcc", help="a compiler with libasan (default: %(default)s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sanitize-") as directory:
        _build(options.compiler, Path(directory))
        environment = _environment(options.compiler, Path(directory))
        if not _notices(environment):
            print("a read past a buffer went unnoticed: this build proves nothing")
            return 1
        print("a read past a buffer is noticed", flush=True)
        tests = ["-m", "pytest", "-q", "-p", "tools.sanitized_decoder", *TESTS]
        fuzzed = ["--jobs=0", f"--mutations={options.mutations}", *(f"--target={name}" for name in FUZZED)]
        fuzz = ["-c", FUZZ, *fuzzed]
        runs = [subprocess.run([sys.executable, *run], cwd=ROOT, env=environment, check=False) for run in (tests, fuzz)]
    codes = [run.returncode for run in runs]
    print("sanitizers: nothing found" if not any(codes) else f"sanitizers: exit codes {codes}")
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
