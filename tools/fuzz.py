"""Damages bytes of real writers, and expects errors of this package or none. `python -m tools.fuzz`, or `make fuzz`.

Rules of the file:

- A run is repeatable from its random seed.
- A parser breaks its promise by an exception outside `remote_fetch.errors`, by a call that takes seconds, or by memory
  out of proportion to its input.
- Each target runs in its own process. The process saves its last input, so that a crash or a hang names the input too.
- A run counts how many inputs got past the outer checks, because a mutation that a checksum stops proves little.
"""

from __future__ import annotations

import argparse
import base64
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from remote_fetch.errors import RemoteFetchError
from tools.fuzz_damage import mutate
from tools.fuzz_memory import limit_memory, peak_bytes, reset_peak
from tools.fuzz_targets import Target, targets

__all__ = ["Finding", "Tally", "fuzz", "main"]

SLOW_MS = 2_000
"""The most processor time that one input may take. The clock would count the time that other processes take, too."""
HANG_MS = 20_000
"""The longest time, by the clock, that one input may take."""
MAX_GROWTH_BYTES = 64 << 20
"""The most that one input may add to the peak of memory: sixteen times the bound of a codec's output here."""
MAX_FINDINGS = 5
"""How many findings of one target are shown. The rest mostly repeats them."""
LAST_INPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that made a parser break its promise."""

    target: str
    data: bytes
    what: str

    def __str__(self) -> str:
        return f"{self.target}: {self.what}\n  input (base64): {base64.b64encode(self.data).decode('ascii')}"


@dataclass(slots=True)
class Tally:
    """How far the inputs of one target came: all, those past its outer checks, those that parsed to the end."""

    inputs: int = 0
    deep: int = 0
    accepted: int = 0

    def __str__(self) -> str:
        deep, accepted = (100 * part // max(self.inputs, 1) for part in (self.deep, self.accepted))
        return f"{self.inputs} inputs, {deep} % past lengths and checksums, {accepted} % accepted"


class _TooLongError(BaseException):
    """A call that does not end. It is a BaseException, so that no parser catches it."""


def fuzz(
    target: Target,
    mutations: int,
    chance: random.Random,
    *,
    tally: Tally | None = None,
    before: Callable[[bytes], object] = len,
) -> Iterator[Finding]:
    """Try `mutations` damaged copies of the seeds of `target`, in turn.

    A third is damaged blindly. A third then gets valid outer checks. A third is opened, damaged inside and closed again
    with valid checks. `before` is called with every input. `tally` counts how far each input came.
    """
    counted = tally if tally is not None else Tally()
    for number in range(mutations):
        data = _damaged(target, target.seeds[number % len(target.seeds)], chance)
        before(data)
        counted.inputs += 1
        counted.deep += target.gate is None or _passes(target.gate, data)
        what = _broken_promise(target, data, counted)
        if what is not None:
            yield Finding(target.name, data, what)


def _damaged(target: Target, seed: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(3)
    if kind == 2 and target.inside is not None:
        return target.inside(seed, chance)
    data = mutate(seed, chance)
    return target.reseal(data) if kind else data


def _passes(parse: Callable[[bytes], object], data: bytes) -> bool:
    try:
        parse(data)
    except RemoteFetchError:
        return False
    except Exception:  # the full parse reports it
        return True
    return True


def _broken_promise(target: Target, data: bytes, tally: Tally) -> str | None:
    began_ns = time.process_time_ns()
    began_bytes = peak_bytes()
    try:
        with _deadline():
            target.parse(data)
        tally.accepted += 1
    except RemoteFetchError:
        pass
    except _TooLongError:
        return f"no end within {HANG_MS} ms"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    took_ms = (time.process_time_ns() - began_ns) // 1_000_000
    if took_ms > SLOW_MS:
        return f"took {took_ms} ms of the processor"
    grown_bytes = peak_bytes() - began_bytes
    return f"took {grown_bytes} bytes of memory" if grown_bytes > MAX_GROWTH_BYTES else None


class _deadline:
    """Ends the block after HANG_MS, if the system has an alarm and this is the main thread."""

    def __enter__(self) -> None:
        self._armed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        if self._armed:
            self._before = signal.signal(signal.SIGALRM, _stop)
            signal.setitimer(signal.ITIMER_REAL, HANG_MS / 1000)

    def __exit__(self, *error: object) -> None:
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)


def _stop(*_: object) -> None:
    raise _TooLongError


def _run_here(target: Target, mutations: int, seed: int, last_input: Path | None = None) -> bool:
    """Fuzz one target in this process and print the result. Returns whether it kept its promise."""
    began = time.monotonic()
    tally = Tally()
    reset_peak()
    before_bytes = peak_bytes()
    if last_input is None:
        findings = list(fuzz(target, mutations, random.Random(seed), tally=tally))
    else:
        with last_input.open("r+b", buffering=0) as file:

            def keep(data: bytes) -> None:
                file.seek(0)
                file.write(len(data).to_bytes(8, "big") + data[:LAST_INPUT_BYTES])

            findings = list(fuzz(target, mutations, random.Random(seed), tally=tally, before=keep))
    growth_mib = (peak_bytes() - before_bytes) >> 20
    took_s = time.monotonic() - began
    print(
        f"{target.name}: {len(target.seeds)} seeds, {tally}, {len(findings)} findings, "
        f"+{growth_mib} MiB, {took_s:.0f} s"
    )
    for finding in findings[:MAX_FINDINGS]:
        print(finding)
    return not findings


def _run_apart(target: Target, mutations: int, seed: int) -> tuple[bool, str]:
    """Fuzz one target in its own process. Returns whether it kept its promise, and the text to print."""
    with tempfile.NamedTemporaryFile(prefix="fuzz-", delete=True) as file:
        command = [sys.executable, "-m", "tools.fuzz", "--jobs=0", f"--mutations={mutations}", f"--seed={seed}"]
        command += [f"--target={target.name}", f"--last-input={file.name}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode in (0, 1):
            return done.returncode == 0, done.stdout
        left = Path(file.name).read_bytes()
    size_bytes = int.from_bytes(left[:8], "big")
    finding = Finding(target.name, left[8 : 8 + size_bytes], f"the process ended with {done.returncode}")
    return False, f"{done.stdout}{finding}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz every target, or the named ones, and print the findings. The exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(prog="tools.fuzz", description="Fuzz the parsers of foreign bytes.")
    parser.add_argument("--mutations", type=int, default=20_000, help="of each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (default: %(default)s)")
    parser.add_argument("--target", action="append", help="a target by its name; repeatable (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once; 0: in this one (default: %(default)s)")
    parser.add_argument("--last-input", type=Path, help="a file that holds the input being tried (with --jobs=0)")
    options = parser.parse_args(arguments)
    known = targets()
    wanted = [target for target in known if not options.target or target.name in options.target]
    if not wanted:
        parser.error(f"no such target; there are {', '.join(target.name for target in known)}")
    if options.jobs < 1:
        if options.last_input is not None:
            limit_memory()
        fine = [_run_here(target, options.mutations, options.seed, options.last_input) for target in wanted]
        return 0 if all(fine) else 1
    kept = True
    with ThreadPoolExecutor(options.jobs) as pool:
        for is_fine, text in pool.map(lambda target: _run_apart(target, options.mutations, options.seed), wanted):
            print(text, end="", flush=True)
            kept = kept and is_fine
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
