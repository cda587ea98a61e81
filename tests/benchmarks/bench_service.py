"""The service under 200 clients, of which 20 read a byte a second: its memory, and who is refused.

    python -m tests.benchmarks.bench_service [--seconds 300] [--clients 200] [--slow 20] [--write]

Rules of the file:

- The service is a process of its own with TLS (`tests/service/process.py`). Its brokers and its signer are fakes, so
  the figures are those of the service, not of a cluster or a store.
- Each client is a principal with a connection of its own. A well-behaved one asks about once a second and reads at
  once. It must never be refused. A slow one asks for a whole answer and reads a byte a second, until it is cut off.
- Memory is that of the service's process (`VmRSS`), looked at once a second. It must end where it was in the middle.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import ssl
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.benchmarks.document import machine, write
from tests.rig.certificates import make_certificates
from tests.service.fakes import basic
from tests.service.process import running

SEGMENTS = 1_000
ROUTE = "/v1/topics/topic/partitions/0/segments"
HEAD = (
    "| clients | slow | seconds | answers | refused | median ms | p99 ms | slow cut off | memory at the beginning MB "
    "| middle MB | end MB | most MB |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
)
_WARM_UP_S = 4.0
_SLOW_S = 60.0
"""A service cuts a connection off before that (`keep_alive_s` and `drain_timeout_s`)."""
_GROWTH_MB = 8.0
"""The allocator may keep as much of the second half."""


@dataclass
class Seen:
    """The answers that the clients have seen."""

    statuses: Counter[int] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    cut_off: int = 0
    errors: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Place:
    """The address of the service."""

    host: str
    port: int
    context: ssl.SSLContext

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection with small buffers, so that what is not read stays with the service."""
        plain = socket.socket()
        plain.setblocking(False)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 10)
        await asyncio.get_running_loop().sock_connect(plain, (self.host, self.port))
        return await asyncio.open_connection(sock=plain, ssl=self.context, server_hostname=self.host, limit=1 << 12)


def request(user: str, query: str) -> bytes:
    """A request as a client writes it."""
    return f"GET {ROUTE}?{query} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(user)['Authorization']}\r\n\r\n".encode()


async def well_behaved(place: Place, user: str, until_s: float, seen: Seen) -> None:
    """Ask about once a second on one connection, and read each answer at once."""
    await asyncio.sleep(random.random())
    reader, writer = await place.connect()
    try:
        while time.monotonic() < until_s:
            began_s = time.monotonic()
            first = random.randrange(SEGMENTS * 10 - 200)
            writer.write(request(user, f"from={first}&to={first + 200}&objects=log,offset"))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            seen.statuses[int(head.split(b" ", 2)[1])] += 1
            if not head.startswith(b"HTTP/1.1 200"):
                seen.errors[body.decode()] += 1
            seen.waits_s.append(time.monotonic() - began_s)
            await asyncio.sleep(0.5 + random.random())
    except (OSError, asyncio.IncompleteReadError) as error:
        seen.errors[type(error).__name__] += 1
    finally:
        writer.close()


async def slow(place: Place, user: str, until_s: float, seen: Seen) -> None:
    """Ask for a whole answer and read a byte a second, for a minute, and begin again.

    A client that hardly reads does not see that its connection was cut off.
    """
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        reader, writer = await place.connect()
        try:
            writer.write(request(user, "objects=all"))
            while await reader.read(1) and time.monotonic() < min(until_s, began_s + _SLOW_S):
                await asyncio.sleep(1)
        except OSError:
            pass  # cut off
        finally:
            writer.transport.abort()


async def memory(pid: int, until_s: float) -> list[float]:
    """The memory of a process in MB, once a second."""
    found = []
    while time.monotonic() < until_s:
        await asyncio.sleep(1)
        status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
        found.append(int(status.partition("VmRSS:")[2].split()[0]) / 1024)
    return found


async def load(place: Place, pid: int, arguments: argparse.Namespace) -> tuple[Seen, list[float]]:
    """All clients at once, and the memory of the service from the end of the warm-up on."""
    seen = Seen()
    until_s = time.monotonic() + _WARM_UP_S + arguments.seconds
    names = [f"user{number}" for number in range(arguments.clients)]
    kinds = [slow if number < arguments.slow else well_behaved for number in range(arguments.clients)]
    tasks = [asyncio.create_task(kind(place, name, until_s, seen)) for kind, name in zip(kinds, names, strict=True)]
    await asyncio.sleep(_WARM_UP_S)
    found = await memory(pid, until_s)
    await asyncio.gather(*tasks)
    return seen, found


def cut_off(url: str, context: ssl.SSLContext) -> int:
    """How many connections the service has cut off, because their answer was not read."""
    with urllib.request.urlopen(f"{url}/metrics", context=context, timeout=20) as answer:
        text: str = answer.read().decode()
    return int(float(text.partition('connections_cut_off_total{at="writing"} ')[2].partition("\n")[0]))


def row(arguments: argparse.Namespace, seen: Seen, memory_mb: list[float]) -> str:
    """The row of the table."""
    waits_ms = sorted(wait_s * 1000 for wait_s in seen.waits_s)
    refused = seen.errors.total()
    cells = (
        arguments.clients, arguments.slow, arguments.seconds, seen.statuses[200], refused,
        f"{waits_ms[len(waits_ms) // 2]:.0f}", f"{waits_ms[len(waits_ms) * 99 // 100]:.0f}", seen.cut_off,
        *(f"{mb:.0f}" for mb in (memory_mb[0], memory_mb[len(memory_mb) // 2], memory_mb[-1], max(memory_mb))),
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Run the load, print the table, and return 1 if a well-behaved client was refused or memory grew."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="write the table into docs/performance/")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = make_certificates(Path(folder) / "tls")
        options: tuple[str, ...] = (
            "--segments",
            str(SEGMENTS),
            "--tls-cert",
            str(files.certificate),
            "--tls-key",
            str(files.key),
        )
        options += ("--users", str(arguments.clients), "--log-level", "INFO")
        with running(*options, log=Path(folder, "log"), timeout_s=arguments.seconds + 120) as (process, url):
            context = ssl.create_default_context(cafile=files.authority)
            parts = urlsplit(url)
            place = Place(str(parts.hostname), parts.port or 0, context)
            seen, memory_mb = asyncio.run(load(place, process.pid, arguments))
            seen.cut_off = cut_off(url, context)
            process.terminate()
            process.wait(60)
    table = f"{machine('uvicorn', 'starlette', 'h11')} The clients are on the same cores.\n\n{HEAD}\n"
    table += row(arguments, seen, memory_mb)
    print(table)
    if seen.errors or set(seen.statuses) != {200}:
        print(f"refused: {dict(seen.statuses)} {dict(seen.errors)}")
        return 1
    if memory_mb[-1] - memory_mb[len(memory_mb) // 2] > _GROWTH_MB:
        print(f"the memory grew: {[round(mb) for mb in memory_mb]}")
        return 1
    if arguments.write:
        write("bench_service", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
