"""Runs the native decoder under AddressSanitizer: `python -m tools.sanitize`.

Builds the Rust code and the C libraries of the codecs in a scratch directory, shows that a read past a buffer is
noticed, then runs the tests of the decoder and a short fuzz with that build. It needs cargo and gcc, and changes no
file of the checkout.

Rules of the file:

- The first step proves that code built in this way notices a read past a buffer, and that the library is built so.
- Python and Arrow take memory from malloc, because their own allocators would hide such a read.
- The build also has Rust's debug assertions: they check the preconditions of most unsafe functions of its library.
- The stable compiler has the sanitizer as an unstable option. RUSTC_BOOTSTRAP=1 permits the option.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.sanitized_decoder import LIBRARY_KEY

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "remote_fetch" / "decode" / "native"
FLAGS = ("-Zsanitizer=address", "-Cforce-frame-pointers=yes")
C_FLAGS = "-fsanitize=address -fno-omit-frame-pointer -g"
PROFILE = {"DEBUG": "1", "DEBUG_ASSERTIONS": "true", "LTO": "off", "CODEGEN_UNITS": "16", "STRIP": "none"}
REPORT = re.compile(r"AddressSanitizer: heap-buffer-overflow.*?\n +#0 [^\n]*read_past_the_end", re.DOTALL)
"""The innermost frame is that of the canary. A report from a function that the runtime replaces would prove nothing."""
TESTS = ("tests/decode",)
FUZZED = ("log", "batch", "run", "stream in a run")
"""The targets that decode, and make messages."""

CANARY = """
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn read_past_the_end(index: usize) -> u8 {
    let bytes = std::hint::black_box(vec![1_u8; 61]);
    unsafe { *bytes.as_ptr().add(std::hint::black_box(index)) }
}
"""
CALL_OF_CANARY = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).read_past_the_end(ctypes.c_size_t(61)))"
FUZZ = """
import sys
from tools import sanitized_decoder
sanitized_decoder.install()
from tools import fuzz
sys.exit(fuzz.main(sys.argv[1:]))
"""


def _build(scratch: Path) -> tuple[Path, Path]:
    """The decoder and a canary, both built for the sanitizer. Raises CalledProcessError, and SystemExit."""
    known = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = known.partition("host: ")[2].split()[0]
    environment = {
        **os.environ,
        **{f"CARGO_PROFILE_RELEASE_{key}": value for key, value in PROFILE.items()},
        "RUSTC_BOOTSTRAP": "1",
        "RUSTFLAGS": " ".join(FLAGS),
        "CFLAGS": C_FLAGS,
        "CC": "gcc",
        "CARGO_TARGET_DIR": str(scratch),
    }
    # With a target the flags are not those of build scripts.
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--target", host]
    subprocess.run(command, check=True, cwd=NATIVE, env=environment)
    library = scratch / host / "release" / "lib_native.so"
    if b"__asan_report_load" not in library.read_bytes():
        raise SystemExit(f"{library} was not built for AddressSanitizer")
    source, canary = scratch / "canary.rs", scratch / "canary.so"
    source.write_text(CANARY, encoding="utf-8")
    command = ["rustc", "--edition=2024", "--crate-type=cdylib", "-O", "-g", *FLAGS, str(source), "-o", str(canary)]
    subprocess.run(command, check=True, env=environment)
    return library, canary


def _environment(library: Path) -> dict[str, str]:
    asked = ["gcc", "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(runtime).is_absolute():
        raise SystemExit("gcc has no AddressSanitizer: on Debian and Ubuntu it comes with gcc itself")
    # The interpreter itself leaks at its end. Freed memory is set aside, in small amounts because tests measure memory.
    return {
        **os.environ,
        LIBRARY_KEY: str(library),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99:quarantine_size_mb=1",
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "PYTHONPATH": str(ROOT),
    }


def _notices(canary: Path, environment: Mapping[str, str]) -> bool:
    """Whether a read past a buffer ends the process with a report."""
    command = [sys.executable, "-c", CALL_OF_CANARY, str(canary)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    noticed = done.returncode == 99 and REPORT.search(done.stderr) is not None
    if not noticed:
        print(done.stdout, done.stderr)
    return noticed


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the native decoder, check the build, and run the tests. The exit code is 0 if no error was found."""
    parser = argparse.ArgumentParser(
        prog="tools.sanitize", description="Run the native decoder under AddressSanitizer."
    )
    parser.add_argument("--mutations", type=int, default=2_000, help="of each fuzzed target (default: %(default)s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sanitize-") as directory:
        library, canary = _build(Path(directory))
        environment = _environment(library)
        if not _notices(canary, environment):
            print("a read past a buffer went unnoticed: this build proves nothing")
            return 1
        print("a read past a buffer is noticed", flush=True)
        tests = ["-m", "pytest", "-q", "-p", "tools.sanitized_decoder", *TESTS]
        fuzzed = ["--jobs=0", f"--mutations={options.mutations}", *(f"--target={name}" for name in FUZZED)]
        fuzz = ["-c", FUZZ, *fuzzed]
        runs = [subprocess.run([sys.executable, *run], cwd=ROOT, env=environment, check=False) for run in (tests, fuzz)]
    codes = [run.returncode for run in runs]
    print("sanitizer: nothing found" if not any(codes) else f"sanitizer: exit codes {codes}")
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
