"""Exit codes, errors in one line, and a closed stdout or stderr."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, libversion

import remote_fetch.cli
from remote_fetch.cli import ls, main
from remote_fetch.cli.app import _COMMANDS
from remote_fetch.cli.app import run as run_app
from remote_fetch.errors import ConfigError
from remote_fetch.failures.broker_errors import BrokerStalled
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import MetadataUnusable, Notice
from remote_fetch.session.event_log import LogObserver
from remote_fetch.session.session import IN_PLAIN_PYTHON
from tests.own_processes import killed_after

if TYPE_CHECKING:
    from tests.cli.conftest import Run

COMMAND = (sys.executable, "-c", "from remote_fetch.cli import main; raise SystemExit(main())")
COMMANDS = ("ls", "plan", "cat", "config", "demo")


def raising(error: BaseException) -> Callable[[Any], int]:
    def command(_: Any) -> int:
        raise error

    return command


@pytest.mark.parametrize("argv", [("--help",), *((name, "--help") for name in COMMANDS)])
def test_help(run: Run, argv: tuple[str, ...]) -> None:
    outcome = run(*argv)
    assert outcome.code == 0
    assert outcome.lines[0].startswith("usage: remote-fetch")
    assert b"Rules of the file" not in outcome.stdout


def test_every_command_that_prints_facts_prints_json(run: Run) -> None:
    """The tour is text for people, the service prints its URL, and a shell reads a script."""
    for name in _COMMANDS.keys() - {"completion", "demo", "serve"}:
        help_text = run(*(("config", "check") if name == "config" else (name,)), "--help").stdout
        assert b"-J, --json " in help_text, name


@pytest.mark.parametrize("argv", [("--version",), ("-V",), ("-V", "cat")])
def test_versions(run: Run, argv: tuple[str, ...]) -> None:
    outcome = run(*argv)
    assert outcome.code == 0
    (line,) = outcome.lines
    assert line.startswith(f"remote-fetch {version('remote-fetch')} (decoder ")
    assert f"librdkafka {libversion()[0]}, Python " in line


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param((), id="no command"),
        pytest.param(("fetch",), id="unknown command"),
        pytest.param(("cat",), id="no topic"),
        pytest.param(("ls", "--colour"), id="unknown option"),
        pytest.param(("cat", "-t", "shop", "-c", "many"), id="no number"),
        pytest.param(("plan", "-t", "shop", "--log-start", "here"), id="no offset"),
        pytest.param(("cat", "-t", "shop", "-J", "--binary", "hex"), id="unknown encoding"),
    ],
)
def test_a_wrong_command_line_is_2(run: Run, argv: tuple[str, ...]) -> None:
    outcome = run(*argv)
    assert outcome.code == 2
    assert outcome.stdout == b""
    assert outcome.stderr.startswith("usage: ")


@pytest.mark.parametrize(
    "argv", [("-C", "-b", "localhost:9092", "-t", "shop"), ("--bootstrap-server", "localhost:9092", "--topic", "shop")]
)
def test_options_before_the_command(run: Run, argv: tuple[str, ...]) -> None:
    """As users of kcat and of Kafka's own tools type them: argparse would take the address for the command."""
    outcome = run(*argv)
    assert outcome.code == 2
    assert "error: the command comes before its options" in outcome.stderr
    assert "localhost" not in outcome.stderr


def test_no_command_shows_all_commands(run: Run) -> None:
    said = run().stderr
    assert [name for name in _COMMANDS if f"\n    {name} " not in said] == []


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(("ls",), "no remote storage is configured", id="no url"),
        pytest.param(("ls", "--url", "gopher://x"), "gopher", id="unknown scheme"),
        pytest.param(("ls", "--url", "{bucket}", "--layout", "piles"), "no layout is called 'piles'", id="layout"),
        pytest.param(("ls", "--url", "{bucket}", "-t", "shoe"), "topics there: shop", id="unknown topic"),
        pytest.param(("ls", "--url", "{bucket}", "-p", "one"), "-p one: partition numbers expected", id="partition"),
        pytest.param(
            ("cat", "--url", "{bucket}", "-t", "shop", "-p", "9"),
            "no partition 9 was found; there are 0, 1",
            id="no such",
        ),
        pytest.param(
            ("cat", "--url", "{bucket}", "-t", "shop", "--isolation", "serializable"),
            "choose read_uncommitted or read_committed",
            id="isolation",
        ),
        pytest.param(
            ("cat", "--url", "{bucket}", "-t", "shop", "-p", "0", "-o", "77"),
            "lies outside the tier, which has offsets 0 to 9 (exclusive)",
            id="offset",
        ),
        pytest.param(
            ("cat", "--url", "{bucket}", "-t", "shop", "-p", "0", "--log-start", "-3"), "give an offset", id="log start"
        ),
        pytest.param(
            ("cat", "--url", "{bucket}", "-t", "shop", "-X", "fetch.remote.range.byte=1"),
            "the nearest one is 'fetch.remote.range.bytes'",
            id="misspelt key",
        ),
        pytest.param(
            ("cat", "--url", "{bucket}", "-t", "shop", "-X", "no.such.key=1"), "librdkafka refuses", id="strange key"
        ),
        pytest.param(
            ("plan", "--url", "{bucket}", "-t", "shop", "-X", "remote.locator=metadata-topic"),
            "needs bootstrap.servers",
            id="no broker for the metadata topic",
        ),
    ],
)
def test_a_mistake_is_1_and_one_line(run: Run, bucket: str, argv: tuple[str, ...], said: str) -> None:
    outcome = run(*(word.format(bucket=bucket) for word in argv))
    assert outcome.code == 1
    assert outcome.stdout == b""
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("remote-fetch: ")
    assert said in line


@pytest.fixture
def bucket_of_lost_logs(bucket: str, tmp_path: Path) -> str:
    """The bucket without the only log of partition 1."""
    tier = shutil.copytree(bucket, tmp_path / "tier")
    (lost,) = tier.rglob("shop-1-*/*.log")
    lost.unlink()
    return str(tier)


@pytest.mark.parametrize("command", ["cat", "plan", "bounds", "export"])
def test_a_warning_explains_an_error(run: Run, bucket_of_lost_logs: str, command: str) -> None:
    to = ("--to", f"{bucket_of_lost_logs}-out") if command == "export" else ()
    outcome = run(command, "--url", bucket_of_lost_logs, "-t", "shop", "-p", "1", *to)
    assert outcome.code == 1
    warning, error = outcome.stderr.splitlines()
    assert warning.startswith("% note: shop-1: the store has files of segment ")
    assert error == "remote-fetch: topic 'shop': no partition 1 was found; there are 0"


def test_a_quiet_command_prints_an_error_without_warnings(run: Run, bucket_of_lost_logs: str) -> None:
    outcome = run("cat", "--url", bucket_of_lost_logs, "-t", "shop", "-p", "1", "-q")
    assert outcome.stderr == "remote-fetch: topic 'shop': no partition 1 was found; there are 0\n"


def test_a_warning_of_the_report_is_not_printed_again_before_the_error(
    run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_after_a_report(_: Any) -> int:
        observer = LogObserver()
        for text in (IN_PLAIN_PYTHON, "told", "untold"):
            observer(Notice(text, is_warning=True))
        observer(Notice("no warning"))
        observer(MetadataUnusable(TopicIdPartition(Uuid(bytes(16)), "t", 0), 1, 1))
        print("% note: told", file=sys.stderr)
        raise ConfigError("it fails")

    monkeypatch.setattr(ls, "run", fail_after_a_report)
    for _ in range(2):  # the second command knows nothing of the first
        assert run("ls").stderr.splitlines() == ["% note: told", "% note: untold", "remote-fetch: it fails"]


def test_brokers_may_be_named_beside_the_listing_locator(run: Run, bucket: str) -> None:
    outcome = run("ls", "--url", bucket, "-b", "localhost:9092", "-X", "remote.locator=listing")
    assert (outcome.code, outcome.stderr) == (0, "")


def test_fine_is_0(run: Run, bucket: str) -> None:
    assert run("ls", "--url", bucket).code == 0


def test_interrupted_inside_confluent_kafka_is_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_on = SystemError("describe_topics returned a result with an exception set")
    handed_on.__cause__ = KeyboardInterrupt()
    monkeypatch.setattr(ls, "run", raising(handed_on))
    outcome = run("ls", "-b", "127.0.0.1:1")
    assert (outcome.code, outcome.stderr) == (130, "")


def test_interrupted_during_imports_is_130() -> None:
    program = (
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'remote_fetch.cli.app': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from remote_fetch.cli import main\n"
        "sys.exit(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_interrupted_is_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ls, "run", raising(KeyboardInterrupt()))
    outcome = run("ls")
    assert (outcome.code, outcome.stderr) == (130, "")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError._TIMED_OUT, "no answer from the brokers: Local: Timed out. Check bootstrap.servers (-b), "),
        (KafkaError._RESOLVE, "no answer from the brokers: Local: Host resolution failure. Check bootstrap.servers"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "the broker says: Broker: Topic authorization failed\n"),
    ],
)
def test_broker_and_client_errors_name_their_source(
    run: Run, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    monkeypatch.setattr(ls, "run", raising(KafkaException(KafkaError(code))))
    outcome = run("ls")
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert outcome.stderr.startswith(f"remote-fetch: {said}")


def test_a_broker_that_answers_without_records_is_not_looked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is right, and so is the network."""
    monkeypatch.setattr(ls, "run", raising(BrokerStalled(KafkaError(KafkaError._TIMED_OUT, "t-0: gave nothing"))))
    stderr = run("ls").stderr
    assert stderr.startswith("remote-fetch: t-0: gave nothing. See the log of the leader; remote-fetch audit names")
    assert "bootstrap.servers" not in stderr


def test_a_reader_that_has_enough(bucket: str) -> None:
    """A process whose output is closed after the first line ends quietly, with most of it unwritten."""
    template = "%o\n" + 100_000 * "x"
    argv = [*COMMAND, "cat", "--url", bucket, "-t", "shop", "-q", "-f", template]
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        killed_after(300, process),
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=300) == 0


def test_as_a_process(bucket: str) -> None:
    argv = [*COMMAND, "cat", "--url", bucket, "-t", "shop", "-p", "0", "-o", "6", "-f", "%o=%s;"]
    result = subprocess.run(argv, capture_output=True, timeout=300, check=False)
    assert (result.returncode, result.stdout) == (0, b"6=v6;7=v7;8=v8;")
    assert result.stderr.startswith(b"% 3 records in ")
    failed = subprocess.run([*COMMAND, "ls"], capture_output=True, timeout=300, check=False)
    assert failed.returncode == 1
    assert b"Traceback" not in failed.stderr


def test_the_script_is_main() -> None:
    (script,) = (entry for entry in entry_points(group="console_scripts") if entry.name == "remote-fetch")
    assert script.load() is remote_fetch.cli.main


def test_run_takes_the_arguments_of_the_process(monkeypatch: pytest.MonkeyPatch, bucket: str) -> None:
    monkeypatch.setattr(sys, "argv", ["remote-fetch", "ls", "--url", bucket])
    assert run_app() == 0


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (">/dev/full", "remote-fetch: No space left on device: standard output"),
        (">&-", "remote-fetch: standard output is closed"),
    ],
)
@pytest.mark.parametrize("command", ["ls", "cat"])
def test_output_that_cannot_be_written(bucket: str, command: str, output: str, said: str) -> None:
    line = f"{shlex.join([*COMMAND, command, '--url', bucket, '-t', 'shop'])} {output}"
    failed = subprocess.run(
        line, shell=True, stderr=subprocess.PIPE, text=True, timeout=300, check=False, env=buffering()
    )
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == said
    assert "Traceback" not in failed.stderr


def buffering() -> dict[str, str]:
    """The environment of a Python that keeps output in its buffer, as it does by default."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.parametrize("unbuffered", [True, False])
@pytest.mark.parametrize("words", [["--help"], ["-V"], ["ls", "--help"]])
def test_help_that_cannot_be_written(words: list[str], unbuffered: bool) -> None:
    line = f"{shlex.join([*COMMAND, *words])} >/dev/full"
    failed = subprocess.run(
        line, shell=True, stderr=subprocess.PIPE, text=True, timeout=300, check=False,
        env=buffering() | ({"PYTHONUNBUFFERED": "1"} if unbuffered else {}),
    )  # fmt: skip
    where = "" if unbuffered else ": standard output"  # Python has nothing left to write if it does not hold it
    assert (failed.returncode, failed.stderr) == (1, f"remote-fetch: No space left on device{where}\n")


def patched(body: str, output: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The process of a `ls` that is this function body. Its `output` is a redirection of a shell.

    The body may call `wait_for_end_of_reader` of a file, which may be a pipe.
    """
    program = (
        "import os, select, signal, stat, sys, time\n"
        "from remote_fetch.cli import ls, main\n"
        "from remote_fetch.errors import ConfigError\n"
        "def wait_for_end_of_reader(file):\n"
        "    unread = select.poll()\n"
        "    unread.register(file, 0)\n"
        "    assert not stat.S_ISFIFO(os.fstat(file).st_mode) or unread.poll(60_000)\n"
        f"def run(arguments):\n    {body}\n"
        "ls.run = run\n"
        "sys.argv = ['remote-fetch', 'ls']\n"
        "sys.exit(main())\n"
    )
    line = f"set -o pipefail; {shlex.join([sys.executable, *options, '-c', program])} {output}"
    command = ["bash", "-c", line]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=buffering())


@pytest.mark.parametrize("unbuffered", [True, False])
def test_a_closed_pipe_is_no_error(unbuffered: bool) -> None:
    body = "wait_for_end_of_reader(1); print('a line'); raise BrokenPipeError"
    ended = patched(body, "| true", "-u" if unbuffered else "-E")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", [True, False])
@pytest.mark.parametrize("words", ["--help", "-V", "verify --help"])
def test_a_help_whose_reader_has_enough_is_no_error(words: str, unbuffered: bool) -> None:
    environment = buffering() | ({"PYTHONUNBUFFERED": "1"} if unbuffered else {})
    line = ["bash", "-c", f"set -o pipefail; {shlex.join(COMMAND)} {words} | true"]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("words", ["doctor -b 127.0.0.1:1", "config check", "export -t shop -q --to"])
def test_a_check_whose_reader_has_enough_is_no_success(bucket: str, tmp_path: Path, words: str) -> None:
    """Python still holds the report of the export when the command ends."""
    target = shlex.quote(str(tmp_path / "out")) if words.endswith("--to") else ""
    line = f"set -o pipefail; {shlex.join(COMMAND)} {words} {target} --url {shlex.quote(bucket)} | true"
    ended = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=300, check=False, env=buffering()
    )
    assert ended.returncode == 1
    assert ended.stderr.endswith("remote-fetch: the reader of standard output closed it before the end\n")


def test_a_broken_pipe_of_another_file_is_an_error() -> None:
    """Such as that of a store's connection."""
    ended = patched("print('a line'); raise BrokenPipeError(32, 'Broken pipe')", "")
    assert (ended.returncode, ended.stdout) == (1, "a line\n")
    assert ended.stderr == "remote-fetch: Broken pipe\n"
    ended = patched("print('a line'); print('x', file=sys.stderr); raise ConfigError('wrong')", "2>/dev/full")
    assert (ended.returncode, ended.stdout) == (1, "a line\n")


@pytest.mark.parametrize("output", [">/dev/full", "| true"])
def test_an_error_while_python_holds_output_that_cannot_be_written(output: str) -> None:
    """Python writes it at exit, with an exit code of its own."""
    ended = patched("print('a line'); wait_for_end_of_reader(1); raise ConfigError('wrong')", output)
    assert ended.stderr == "remote-fetch: wrong\n"
    assert ended.returncode == 1


def test_the_stack_that_gcsfs_logs_is_not_printed() -> None:
    ended = patched("import logging; logging.getLogger('gcsfs.retry').error('gave up'); raise ConfigError('wrong')", "")
    assert (ended.returncode, ended.stderr) == (1, "remote-fetch: wrong\n")


def test_sigterm_ends_a_command_as_ctrl_c_does() -> None:
    body = "\n    ".join(
        [
            "try:",
            "    os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)",
            "finally:",
            "    print('in order')",
        ]
    )
    ended = patched(body, "")
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "in order\n", "")


@pytest.mark.parametrize(
    "words",
    ["cat -t shop -q", "cat -G readers shop", "export -t shop --to out", "plan -t shop", "verify -t shop", "ls"],
)
def test_a_configuration_from_a_pipe_is_read_once(words: str) -> None:
    """A shell's way to keep secrets off the disk. The last line is wrong, and each command says so."""
    given = "<(echo bootstrap.servers=127.0.0.1:1; echo fetch.remote.when=x)"
    line = f"{shlex.join(COMMAND)} {words} -F {given}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1
    assert "fetch.remote.when='x'" in ended.stderr


def test_errors_with_a_closed_stderr(bucket: str) -> None:
    line = f"{shlex.join([*COMMAND, 'cat', '--url', bucket, '-t', 'shop', '-c', '1', '-f', '%o'])} 2>&-"
    read = subprocess.run(line, shell=True, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    assert (read.returncode, read.stdout) == (0, "0")


@pytest.mark.parametrize("messages", ["2>/dev/full", "2> >(true)"])
def test_messages_that_cannot_be_written_end_no_command(messages: str) -> None:
    body = "wait_for_end_of_reader(2); print('note', file=sys.stderr, flush=True); print('all'); return 3"
    ended = patched(body, messages)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "all\n", "")


def test_a_name_that_the_encoding_of_the_output_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for encoding, errors, shown in (
        ("ascii", "strict", b"tier/\\xe9\\udcff"),
        ("utf-8", "strict", b"tier/\xc3\xa9\\udcff"),
        ("utf-8", "surrogateescape", b"tier/\xc3\xa9\xff"),  # as Python has it for the locale C
    ):
        output = io.BytesIO()
        wrapper = io.TextIOWrapper(output, encoding, errors)
        monkeypatch.setattr(sys, "stdout", wrapper)
        main(["config", "check", "--url", f"{tmp_path}/tier/\xe9\udcff"])
        wrapper.flush()
        assert shown in output.getvalue()
