"""From argv to a command, and from the errors of a command to an exit code.

Rules of the file:

- A user's mistake ends in one line on stderr, never in a stack trace.
- Standard output that its reader has closed is not an error of a command that only prints. For a command that checks or
  writes it is one: exit code 0 would say that all is done. Any other broken pipe is one, such as that of a store.
- Output that cannot be written is an error, also if Python still holds it in its buffer.
- An error is printed behind the warnings that explain it, unless these are on stderr already or the user said -q.
- A message that cannot be written to stderr is lost, as with kcat and Kafka's tools: the command goes on without it.
- A character that the encoding of standard output lacks is escaped, as Python does on stderr.
- SIGTERM ends a command as Ctrl-C does, so that a member of a group commits, and a report is written.
- Only the chosen command is loaded, so that help appears at once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from typing import Any, TextIO, cast

from remote_fetch.cli.parser import Parser, about
from remote_fetch.errors import RemoteFetchError
from remote_fetch.failures.file_errors import file_fault

__all__ = ["run", "whole_parser"]

_DESCRIPTION = "Read Kafka's tiered log segments straight from object storage."
_COMMANDS = {
    "ls": "list segments",
    "bounds": "show where the log of each partition lies",
    "plan": "show what a read would fetch",
    "cat": "print records",
    "grep": "print the records that have a key, a header or a value",
    "verify": "compare the tier with the broker, record for record",
    "audit": "compare the metadata topic with the storage",
    "dump": "print the batches of a segment, its indexes, or metadata records",
    "export": "write records to Parquet files or a table",
    "restore": "write a topic of the tier into another cluster",
    "offsets": "translate committed offsets for a restored topic",
    "replay": "write a range of records into a topic once again",
    "config": "check a configuration, list its keys",
    "doctor": "find out why a set-up does not work, and how much a reader gains",
    "serve": "give readers access without a key to the bucket",
    "demo": "a tour of a small bucket that ships with the package",
    "completion": "print the script of a shell's completion",
}
"""The commands. Each is a module of this package with the functions `add_options` and `run`."""
_PRINTING = frozenset({"ls", "bounds", "plan", "cat", "grep", "dump", "offsets", "demo", "completion"})
"""The commands that only print. The reader of their output may have had enough of it."""
_MODULES = {"bounds": "bounds_table"}
"""The modules of commands that have another name."""


def run(argv: Sequence[str] | None = None) -> int:
    """Parse `argv` (default: the process's) and run the command. Returns the exit code."""
    if not _is_open(sys.stderr):
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    messages = _Messages(sys.stderr)
    with contextlib.redirect_stderr(cast("TextIO", messages)), contextlib.closing(messages):
        return _ended(argv)


def _ended(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        with _ended_by_sigterm():
            code = _outcome(words)
    except SystemExit:  # argparse has printed a help
        fault = _write_out()
        if fault is not None and not isinstance(fault, BrokenPipeError):
            raise SystemExit(_output_failed(fault)) from None
        raise
    fault = _write_out()
    if code or fault is None:
        return code
    return _without_reader(words[0]) if isinstance(fault, BrokenPipeError) else _output_failed(fault)


def _outcome(words: list[str]) -> int:
    try:
        return _run(words)
    except RemoteFetchError as error:
        return _failed(str(error))
    except KeyboardInterrupt as error:
        return _code_of(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
            _give_up(sys.stdout)
            return _without_reader(words[0])
        fault = _write_out() if error.filename is None else None
        if fault is not None:
            return _output_failed(fault)
        return _failed(file_fault(error) if error.filename is None else f"{file_fault(error)}: {error.filename}")
    except Exception as error:
        if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
            return _code_of(error.__cause__)  # some calls of confluent_kafka's AdminClient hand Ctrl-C on so
        said = _broker_says(error)
        if said is None:
            raise
        return _failed(said)


def _write_out() -> OSError | None:
    """Write what Python holds of the output, and return the error of that. At exit Python would have its own code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _give_up(sys.stdout)
        return error
    return None


def _without_reader(command: str) -> int:
    """The exit code of a command whose output is closed by its reader."""
    return 0 if command in _PRINTING else _failed("the reader of standard output closed it before the end")


class _Terminated(KeyboardInterrupt):
    """SIGTERM. All that ends in order for Ctrl-C does so for SIGTERM."""


def _code_of(interrupt: KeyboardInterrupt) -> int:
    return 128 + (signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Raise _Terminated for SIGTERM, unless the program around this has a handler of its own."""

    def end(number: int, frame: object) -> None:
        raise _Terminated

    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(words: list[str]) -> int:
    if not _is_open(sys.stdout):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
        return _failed("standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = _parser(words[:1])
    if not words:
        parser.print_help(sys.stderr)
        return 2
    if words[0].startswith("-") and not words[0].startswith(("-h", "--h", "-V", "--v")):
        # Users of kcat and of Kafka's own tools type this. argparse would take the value of the option for the command.
        parser.error("the command comes before its options, as in: remote-fetch cat -b HOST:PORT -t TOPIC")
    arguments = parser.parse_args(words)
    # The report has the problems of the read. Without a handler Python would print them a second time.
    # gcsfs would log the stack of a request that it gives up, whose error this package tells.
    for name in ("remote_fetch", "gcsfs"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    contact = logging.getLogger("remote_fetch.contact")
    if not contact.handlers:
        contact.addHandler(_Waits())
    with contextlib.nullcontext() if getattr(arguments, "quiet", False) else _kept_warnings():
        code: int = arguments.run(arguments)
    return code


@contextlib.contextmanager
def _kept_warnings() -> Iterator[None]:
    """Keep the warnings of all sessions of a command for the error that may end it."""
    handler, logger = _Untold(logging.WARNING), logging.getLogger("remote_fetch")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _parser(loaded: Collection[str]) -> Parser:
    """The parser of all commands. Those in `loaded` have their options."""
    parser = Parser(prog="remote-fetch", description=_DESCRIPTION)
    parser.add_argument("-V", "--version", action=_Version, nargs=0, help="show the versions and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in _COMMANDS.items():
        if name in loaded:
            module = import_module(f"remote_fetch.cli.{_MODULES.get(name, name)}")
            command = commands.add_parser(name, help=summary, description=about(module.__doc__))
            command.set_defaults(run=module.run)
            module.add_options(command)
        else:
            commands.add_parser(name, help=summary)
    return parser


def whole_parser() -> Parser:
    """The parser with the options of all commands."""
    return _parser(_COMMANDS)


def _is_open(stream: object) -> bool:
    """Whether the stream is open. Python has None for a stream that was closed at its start."""
    return stream is not None


def _failed(text: str) -> int:
    if isinstance(sys.stderr, _Messages):
        for warning in tuple(sys.stderr.untold):
            if warning not in text:
                print(f"% note: {warning}", file=sys.stderr)
    print(f"remote-fetch: {text}", file=sys.stderr, flush=True)
    return 1


def _output_failed(fault: OSError) -> int:
    return _failed(f"{file_fault(fault)}: standard output")


def _has_no_reader(output: TextIO) -> bool:
    """Whether the reader of an output has closed it."""
    try:
        output.flush()
    except BrokenPipeError:
        return True
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    poll.register(output, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _give_up(output: TextIO) -> None:
    """Drop what Python holds of an output, which would raise an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


class _Messages:
    """Standard error, without the errors of a full disk or of a closed pipe. All else is that of the stream.

    `untold` are the warnings that were kept and are not written yet, in the order of their coming.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.untold: dict[str, None] = {}

    def write(self, text: str) -> int:
        for warning in [one for one in tuple(self.untold) if one in text]:
            self.untold.pop(warning, None)
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def close(self) -> None:
        """Write what Python holds, or drop it."""
        try:
            self._stream.flush()
        except OSError:
            _give_up(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Untold(logging.Handler):
    """Keeps the warnings of a session, unless they are about the decoder. Other lines of the log are none."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "is_notice", False) and isinstance(sys.stderr, _Messages):
            from remote_fetch.session.session import IN_PLAIN_PYTHON  # noqa: PLC0415 - loaded: it has logged the notice

            text = record.getMessage()
            if text != IN_PLAIN_PYTHON:
                sys.stderr.untold[text] = None


class _Waits(logging.Handler):
    """Prints that the command waits for a broker. A report would come too late: it is made after the wait."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"% {record.getMessage()}", file=sys.stderr, flush=True)


class _Version(argparse.Action):
    """Prints the facts that a bug report needs: the versions in use, and whether the decoder is native."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - these are loaded for it

        from confluent_kafka import libversion  # noqa: PLC0415 - as above

        from remote_fetch import __version__  # noqa: PLC0415 - as above
        from remote_fetch.decode.run_decoder import is_native  # noqa: PLC0415 - as above

        decoder = "native" if is_native() else "plain Python"
        with contextlib.suppress(BrokenPipeError):
            print(
                f"remote-fetch {__version__} (decoder {decoder}, pyarrow {version('pyarrow')}, "
                f"librdkafka {libversion()[0]}, Python {sys.version.split()[0]})"
            )
        parser.exit()


def _broker_says(error: Exception) -> str | None:
    """The text of a broker's error. None for another error.

    The client is looked up only if it has been loaded, because most commands never load it.
    """
    client = sys.modules.get("confluent_kafka")
    if client is None or not isinstance(error, client.KafkaException):
        return None
    from remote_fetch.failures.broker_errors import broker_says  # noqa: PLC0415 - as above

    return broker_says(error)
