"""The output of kcat for a few records of every kind: recorded, and live if kcat is installed.

    python -m tests.rig.kcat        writes the recording: starts a broker, and wants kcat (Debian: apt install kcat)

Rules of the file:

- kcat and remote-fetch get the same options.
- Every record and every set of options is written out here.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

from tests.rig import topics
from tests.rig.rig import Rig, single
from tests.rig.topics import QUIET

__all__ = ["FIRST_MS", "FLAGS", "RECORDS", "TOPIC", "as_documented", "kcat", "live", "make_topic", "recorded"]

TOPIC = "kcat-compared"
FIRST_MS = 1_700_000_000_000
"""Record N was written N seconds later."""

Headers = tuple[tuple[str, bytes | None], ...]
RECORDS: tuple[tuple[bytes | None, bytes | None, Headers], ...] = (
    (b"k0", b"v0", (("h", b"1"), ("g", b"2"))),
    (b"k1", None, (("n", None),)),
    (None, b"v2", (("n", None), ("e", b""), ("n", b"again"))),
    (b"", b"", ()),
    ("ключ".encode(), b'q"u/o\\t\\u001fe\x01\x1f\x7f\t\r\n end', ()),
    (b"\xff", b"\x80not UTF-8", (("x", b"\xfe"),)),
    (b"Zrest", b"\x00\x01\xff\xfe\x80\x00\x00\x07\x7f\xff\xff\xff\xff\xff\xff\xfftail", ()),
    (b"k7", b"v7", ()),
)

PACKED = ("-o", "6", "-c", "1", "-f", r"%k|%s\n")
FLAGS: tuple[tuple[str, ...], ...] = (
    (),
    ("-u",),
    ("-Z",),
    ("-K", ":"),
    ("-K", ":", "-Z"),
    ("-K", r"\t", "-D", r"\x1e"),
    ("-D", ""),
    ("-J",),
    ("-J", "-Z"),
    ("-J", "-D", ";"),
    ("-f", r"%o %k %s %S %K\n"),
    ("-f", r"%o %k %s %S %K\n", "-Z"),
    ("-f", r"%t [%p] at %o, %T: %h\n"),
    ("-f", r"%%%o\t%R\x41\n"),
    ("-f", r"%o,", "-o", "5"),
    ("-f", r"%o,", "-o", "-3"),
    ("-f", r"%o,", "-o", "2", "-c", "3"),
    ("-f", r"%o,", "-o", f"s@{FIRST_MS + 4000}"),
    ("-f", r"%o,", "-o", f"s@{FIRST_MS + 1000}", "-o", f"e@{FIRST_MS + 4000}"),
    ("-s", "value=hH I q s", *PACKED),
    ("-s", "value=>b B b B >i Q", "-s", "key=c s$", *PACKED),
    ("-s", "value=c", "-s", "key=B", *PACKED),
    ("-s", "c", "-K", ":", "-o", "7"),
    ("-s", "c", "-Z", "-K", ":", "-o", "1", "-c", "3"),
)
"""The options beside `-C`, the broker, the topic and `-e -q`, which all commands have."""

_RECORDING = Path(__file__).with_name("kcat-1.7.1.json")
_TIMEOUT_S = 150


def kcat() -> str | None:
    """The path of kcat on this machine, under either name. None if it is not installed."""
    return shutil.which("kcat") or shutil.which("kafkacat")


def recorded(flags: tuple[str, ...]) -> bytes:
    """The recorded output of kcat. Raises KeyError."""
    found: dict[str, str] = json.loads(_RECORDING.read_text(encoding="utf-8"))
    return base64.b64decode(found[" ".join(flags)])


def as_documented(flags: tuple[str, ...], printed: bytes) -> bytes:
    """Convert kcat's output to that of remote-fetch, whose JSON has no broker, and whose text is UTF-8."""
    if "-J" not in flags:
        return printed
    return printed.decode("utf-8", "replace").encode().replace(b'"broker":1,', b'"broker":-1,')


def live(program: str, rig: Rig, flags: tuple[str, ...]) -> bytes:
    """The output of kcat for the topic, from the broker."""
    command = [program, "-C", "-b", rig.bootstrap, "-t", TOPIC, "-e", "-q", *flags]
    return subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True).stdout


def make_topic(rig: Rig) -> None:
    """Make the topic with its records, which are only in the tier."""
    topics.create_topic(rig, TOPIC)
    producer = Producer({"bootstrap.servers": rig.bootstrap, **QUIET})
    for number, (key, value, headers) in enumerate(RECORDS):
        producer.produce(
            TOPIC, key=key, value=value, headers=list(headers), partition=0, timestamp=FIRST_MS + number * 1000
        )
        producer.flush(_TIMEOUT_S)  # each record has its own batch
    topics.wait_tiered(rig, TOPIC)


def _main() -> int:
    program = kcat()
    if program is None:
        print("kcat is not on this machine. On Debian and Ubuntu: apt install kcat", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, single(Path(folder)) as rig:
        rig.wait_tier_ready()
        make_topic(rig)
        printed = {" ".join(flags): base64.b64encode(live(program, rig, flags)).decode() for flags in FLAGS}
    _RECORDING.write_text(json.dumps(printed, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
