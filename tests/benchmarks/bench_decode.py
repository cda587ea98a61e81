"""From the bytes of a segment to Arrow record batches, beside the floors and two Python clients.

Rules of the file:

- The bytes come from a foreign writer (aiokafka).
- Every contender reads the same bytes in the same run, in turn. It checks the CRC, decompresses, and returns record
  batches with the same columns.
- `--write` puts the table and the plot into the documentation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from remote_fetch.decode import run_reference
from tests.benchmarks import work
from tests.benchmarks.document import PAGES, machine, write
from tools.svg_plot import Bars, render

PLOT = PAGES / "decode.svg"
SERIES = ("copy", "bare", "ours", "aiokafka")
KAFKA_PYTHON_MAX_MB = 64
"""It takes minutes for more, and its time a record is the same."""
ALL_CASES_MAX_MB = 256

HEAD = (
    "| value bytes | batch | codec | headers | data | copy | loop | bare | ours | ours, GB/s | million/s | aiokafka "
    "| kafka-python | loop / copy | ours / bare | aiokafka / ours | kafka-python / ours | runs | runs / ours |\n|"
    + "---|"
    * 19
)


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table."""

    value_bytes: int
    batch_bytes: int
    codec: str
    headers: bool
    size_mb: int

    @property
    def label(self) -> str:
        """The words beside the bars of the plot."""
        batch = "1 MB" if self.batch_bytes > 1 << 19 else "16 KB"
        return f"{self.value_bytes} B, {self.codec}, {batch} batches"


def cases(sizes_mb: list[int]) -> Iterator[Case]:
    """Codec, value size and batch size in all combinations; headers, or none, where nothing else is in the way.

    Of large data, which take minutes to be written, only large batches of two codecs.
    """
    for size_mb in sizes_mb:
        if size_mb > ALL_CASES_MAX_MB:
            for value_bytes in (100, 1000):
                for codec in ("none", "zstd"):
                    yield Case(value_bytes, 1_000_000, codec, True, size_mb)
            continue
        for batch_bytes in (16_384, 1_000_000):
            for value_bytes in (100, 1000):
                for codec in ("none", "lz4", "zstd", "snappy", "gzip"):
                    yield Case(value_bytes, batch_bytes, codec, True, size_mb)
        yield Case(100, 16_384, "none", False, size_mb)


def row_of(case: Case, rounds: int) -> tuple[str, dict[str, float]]:
    """One line of the table, and the numbers in it."""
    segment = work.make_segment(
        case.value_bytes, case.codec, case.size_mb, batch_bytes=case.batch_bytes, headers=case.headers
    )
    contenders = {
        "copy": work.copy(segment),
        "loop": work.loop(segment),
        "bare": work.bare(segment),
        "ours": work.ours(segment),
        "runs": work.runs(segment),
        "aiokafka": work.aiokafka(segment),
    }
    if work.kafka_python_reads(case.codec) and case.size_mb <= KAFKA_PYTHON_MAX_MB:
        contenders["kafka-python"] = work.kafka_python(segment)
    best = work.measure(contenders, segment.records, rounds)
    ours = best["ours"]
    other = best.get("kafka-python")
    cells = [
        f"{case.value_bytes:,}",
        "16 KB" if case.batch_bytes == 16_384 else "1 MB",
        case.codec,
        "a quarter" if case.headers else "none",
        f"{case.size_mb:,} MB",
        *(f"{best[name]:,.0f}" for name in ("copy", "loop", "bare", "ours")),
        f"{len(segment.areas) / segment.records / ours:.2f}",
        f"{1000 / ours:.1f}",
        f"{best['aiokafka']:,.0f}",
        "-" if other is None else f"{other:,.0f}",
        f"{best['loop'] / best['copy']:.1f}",
        f"{ours / best['bare']:.1f}",
        f"{best['aiokafka'] / ours:.1f}",
        "-" if other is None else f"{other / ours:.1f}",
        f"{best['runs']:,.0f}",
        f"{best['runs'] / ours:.2f}",
    ]
    return f"| {' | '.join(cells)} |", best


def in_plain_python(value_bytes: int, rounds: int) -> str:
    """A line about the decoder where there is no Rust compiler, on 1 MB."""
    segment = work.make_segment(value_bytes, "none", 1)
    contenders = {"plain": work.runs(segment, engine=run_reference), "aiokafka": work.aiokafka(segment)}
    best = work.measure(contenders, segment.records, rounds)
    return f"- {value_bytes:,} bytes a value: {best['plain']:,.0f} ns a record, aiokafka {best['aiokafka']:,.0f}."


def main() -> None:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="MB", help="data sizes (default: 1; to write, 16)")
    parser.add_argument("--rounds", type=int, help="rounds, the best of which counts (default: 2; to write, 3)")
    parser.add_argument("--write", action="store_true", help="write table and plot into docs/")
    arguments = parser.parse_args()
    sizes_mb = arguments.sizes or ([16] if arguments.write else [1])
    rounds = arguments.rounds or (3 if arguments.write else 2)
    lines, groups = [machine("pyarrow", "aiokafka", "kafka-python"), "", HEAD], []
    print(HEAD)
    for case in cases(sizes_mb):
        line, best = row_of(case, rounds)
        lines.append(line)
        print(line, flush=True)
        if case.size_mb == sizes_mb[0] and case.headers and case.value_bytes == 100:
            groups.append((case.label, {name: best[name] for name in SERIES}))
    lines += ["", "In plain Python, uncompressed, 1 MB:", ""]
    lines += [in_plain_python(value_bytes, rounds) for value_bytes in (100, 1000)]
    print("\n".join(lines[-2:]))
    if arguments.write:
        write("bench_decode", "\n".join(lines))
        PLOT.parent.mkdir(exist_ok=True)
        title = f"From bytes to Arrow, values of 100 bytes, {sizes_mb[0]} MB"
        PLOT.write_text(render(Bars(title, "ns a record", SERIES, groups)), encoding="utf-8")


if __name__ == "__main__":
    main()
