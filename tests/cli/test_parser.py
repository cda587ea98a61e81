"""Values that begin with a dash, as kcat takes them."""

from __future__ import annotations

import pytest

from remote_fetch.cli import main
from remote_fetch.cli.parser import Parser


def parser() -> Parser:
    found = Parser(prog="p")
    command = found.add_subparsers(dest="command", required=True).add_parser("cat")
    command.add_argument("-t", dest="topic")
    command.add_argument("-o", dest="offsets", action="append")
    command.add_argument("-D", dest="delimiter", default=r"\n")
    command.add_argument("--end")
    command.add_argument("-n", dest="number", type=int)
    command.add_argument("--share", type=float, default=1.0)
    command.add_argument("-e", dest="exit", action="store_true")
    return found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-t", "-dash"), {"topic": "-dash"}),
        (("-t", "-dash", "-e"), {"topic": "-dash", "exit": True}),
        (("-e", "-t", "--dash"), {"topic": "--dash", "exit": True}),
        (("-t-e",), {"topic": "-e"}),
        (("-o", "-5", "-o", "e@7"), {"offsets": ["-5", "e@7"]}),
        (("-D", ""), {"delimiter": ""}),
        (("-D", "-"), {"delimiter": "-"}),
        (("-D", "--", "--end", "--", "-e"), {"delimiter": "--", "end": "--", "exit": True}),
        (("--end", "-1x"), {"end": "-1x"}),
        (("--end=-1x", "-t", "x"), {"end": "-1x", "topic": "x"}),
    ],
)
def test_the_word_after_an_option_is_its_value(words: tuple[str, ...], expected: dict[str, object]) -> None:
    defaults = {"command": "cat", "topic": None, "offsets": None, "delimiter": r"\n", "end": None, "number": None}
    assert vars(parser().parse_args(["cat", *words])) == {**defaults, "share": 1.0, "exit": False, **expected}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-t",), "argument -t: expected one argument"),
        (("-t", "-e"), "argument -t: expected one argument"),
        (("-e", "-dash"), "unrecognized arguments: -dash"),
        (("-n", "--"), "argument -n: invalid int value: '--'"),
        (("-n", "1_0"), "argument -n: invalid int value: '1_0'"),
        (("-n", "\u0663"), "argument -n: invalid int value: '\u0663'"),
        (("--share", "1_0"), "argument --share: invalid float value: '1_0'"),
        (("--topic", "t", "--start=5"), "unrecognized arguments: --topic (here -t), --start (here -o), 1 word without"),
        (("--max-messages", "5"), "unrecognized arguments: --max-messages, 1 word without an option"),
    ],
)
def test_a_forgotten_value_is_an_error(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["cat", *words])
    assert said in capsys.readouterr().err


def test_the_processes_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["p", "cat", "-t", "-dash"])
    assert parser().parse_args().topic == "-dash"


@pytest.mark.parametrize(
    "words",
    [
        ("cat", "-t", "t", "sasl.password=my s3cret"),
        ("cat", "-t", "t", "-X", "sasl.password", "s3cret"),
        ("cat", "-t", "t", "--X=sasl.password=s3cret"),
        ("-X", "sasl.password=s3cret", "cat"),
        ("cat", "-X", "sasl.password=it's s3cret", "-c", "x=s3cret"),
    ],
)
def test_no_message_repeats_a_value(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert "error:" in shown
    assert "s3cret" not in shown
