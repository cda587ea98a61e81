"""Damages bytes that real writers made, and expects our own errors or none. `python -m tools.fuzz`, or `make fuzz`.

Rules of the file: a run is repeatable from its random seed; a parser breaks its promise with any exception outside
`remote_fetch.errors`, with a call that takes seconds, and with memory out of proportion to its input.
"""

from __future__ import annotations

import argparse
import base64
import random
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remote_fetch.errors import RemoteFetchError
from tools.fuzz_targets import Target, targets

__all__ = ["Finding", "fuzz", "main", "mutate"]

SLOW_MS = 2_000
MAX_GROWTH_MIB = 512
MAX_FINDINGS = 5
"""Findings of one target that are shown: the rest is mostly more of the same."""

_EDGES = tuple(
    value.to_bytes(width, "big")
    for width in (1, 2, 4, 8)
    for value in (0, 1, (1 << 8 * width - 1) - 1, 1 << 8 * width - 1, (1 << 8 * width) - 1)
)


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that made a parser break its promise."""

    target: str
    data: bytes
    what: str

    def __str__(self) -> str:
        return f"{self.target}: {self.what}\n  input (base64): {base64.b64encode(self.data).decode('ascii')}"


def mutate(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to four damages: flipped bits, edge values, bytes taken out, doubled or put in, a cut."""
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(damaged) + 1)
        length = chance.choice((1, 2, 4, 8, 13, 64))
        match chance.randrange(6):
            case 0 if at < len(damaged):
                damaged[at] ^= 1 << chance.randrange(8)
            case 1:
                edge = chance.choice(_EDGES)
                damaged[at : at + len(edge)] = edge
            case 2:
                del damaged[at : at + length]
            case 3:
                damaged[at:at] = damaged[at : at + length]
            case 4:
                damaged[at:at] = chance.randbytes(length)
            case _:
                del damaged[at:]
    return bytes(damaged)


def fuzz(target: Target, mutations: int, chance: random.Random) -> Iterator[Finding]:
    """Try `mutations` of each seed of `target`, half of them with their checksum renewed."""
    for seed in target.seeds:
        for _ in range(mutations):
            data = mutate(seed, chance)
            if chance.random() < 0.5:
                data = target.reseal(data)
            what = _broken_promise(target, data)
            if what is not None:
                yield Finding(target.name, data, what)


def _broken_promise(target: Target, data: bytes) -> str | None:
    began_ns = time.perf_counter_ns()
    try:
        target.parse(data)
    except RemoteFetchError:
        pass
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    took_ms = (time.perf_counter_ns() - began_ns) // 1_000_000
    return f"took {took_ms} ms" if took_ms > SLOW_MS else None


def _peak_mib() -> int:
    """The most memory this process has held; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> 20 if sys.platform == "darwin" else peak >> 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz every target, or those named, and print what was found; the exit code is 1 if anything was."""
    parser = argparse.ArgumentParser(prog="tools.fuzz", description="Fuzz the parsers of foreign bytes.")
    parser.add_argument("--mutations", type=int, default=2_000, help="of each seed (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (default: %(default)s)")
    parser.add_argument("--target", action="append", help="a target by its name; repeatable (default: all)")
    options = parser.parse_args(arguments)
    failed = False
    for target in targets():
        if options.target and target.name not in options.target:
            continue
        before_mib = _peak_mib()
        findings = list(fuzz(target, options.mutations, random.Random(options.seed)))
        growth_mib = _peak_mib() - before_mib
        print(f"{target.name}: {len(target.seeds)} seeds, {len(findings)} findings, peak memory +{growth_mib} MiB")
        for finding in findings[:MAX_FINDINGS]:
            print(finding)
        failed = failed or bool(findings) or growth_mib > MAX_GROWTH_MIB
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
