"""The shared options: what they set, and which wins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from remote_fetch.cli.options import (
    add_common_options,
    add_range_options,
    config_from,
    pairs_from,
    partitions_from,
)
from remote_fetch.cli.parser import about
from remote_fetch.cli.restore import target_from
from remote_fetch.errors import ConfigError

SECRET = "hunter2"


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_common_options(parser)
    add_range_options(parser, topic_required=False)
    return parser.parse_args(argv)


def test_defaults() -> None:
    arguments = parsed()
    assert config_from(arguments) == {}
    assert partitions_from(arguments) is None
    assert (arguments.topic, arguments.offsets, arguments.end, arguments.log_start) == (None, [], None, None)
    assert arguments.isolation is None


def test_every_option_has_its_key() -> None:
    arguments = parsed("--url", "u", "--layout", "l", "-b", "b1,b2", "-X", "client.id=me", "-X", "x.y = a=b ")
    assert config_from(arguments) == {
        "remote.storage.url": "u",
        "remote.storage.layout": "l",
        "bootstrap.servers": "b1,b2",
        "client.id": "me",
        "x.y": "a=b ",
    }


def test_options_win_over_x_and_x_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "\ufeff# a comment\n\nremote.storage.url=of-file\n  client.id = of-file \nclient.rack=of-file\n",
        encoding="utf-8",
    )
    arguments = parsed("-F", str(file), "-X", "remote.storage.url=of-x", "-X", "client.id=of-x", "--url", "own")
    assert config_from(arguments) == {"remote.storage.url": "own", "client.id": "of-x", "client.rack": "of-file"}


def test_brokers_under_librdkafkas_other_name(tmp_path: Path) -> None:
    """The last one counts, whatever its name, and `-b` wins over each."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=of-file\n", encoding="utf-8")
    given = "-F", str(file), "-X", "metadata.broker.list=of-x"
    assert config_from(parsed(*given)) == {"bootstrap.servers": "of-x"}
    assert config_from(parsed(*given, "-b", "own")) == {"bootstrap.servers": "own"}
    target = argparse.Namespace(to_property=["metadata.broker.list=of-x"])
    assert target_from(target, None, "t").properties["bootstrap.servers"] == "of-x"


@pytest.mark.parametrize("line", [SECRET, f"={SECRET}", f"  = {SECRET}", f"sasl.password:{SECRET}"])
def test_a_line_that_is_no_pair_is_named_but_not_shown(tmp_path: Path, line: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"client.id=me\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"client\.properties, line 2: KEY=VALUE expected") as caught:
        config_from(parsed("-F", str(file)))
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError, match="-X, number 1: KEY=VALUE expected") as caught:
        config_from(parsed("-X", line))
    assert SECRET not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"-F .*no-such-file.*No such file"):
        config_from(parsed("-F", str(tmp_path / "no-such-file")))
    with pytest.raises(ConfigError, match="Is a directory"):
        config_from(parsed("-F", str(tmp_path)))
    binary = tmp_path / "binary"
    binary.write_bytes(b"sasl.password=\xff\xfe" + SECRET.encode())
    with pytest.raises(ConfigError, match="utf-8") as caught:
        config_from(parsed("-F", str(binary)))
    assert SECRET not in str(caught.value)


def test_partitions_may_be_repeated_and_listed() -> None:
    assert partitions_from(parsed("-p", "3", "-p", "0,1")) == [3, 0, 1]


@pytest.mark.parametrize("number", ["", "x", "1_0", "\u0663"])
def test_partitions_are_whole_numbers(number: str) -> None:
    with pytest.raises(ConfigError, match="partition numbers expected"):
        partitions_from(parsed("-p", number))


def test_a_topic_may_be_required() -> None:
    parser = argparse.ArgumentParser()
    add_range_options(parser, topic_required=True)
    assert parser.parse_args(["-t", "shop"]).topic == "shop"
    with pytest.raises(SystemExit):
        parser.parse_args([])


def test_help_is_the_first_paragraph() -> None:
    assert about("What it does,\nand how.\n\nRules: none.\n") == "What it does,\nand how."
    assert about(None) == ""  # python -OO


def test_signs_that_end_a_line_elsewhere_are_part_of_a_value(tmp_path: Path) -> None:
    """A file of kcat has lines that a line feed ends. A password may have the other signs."""
    file = tmp_path / "conf"
    file.write_bytes("sasl.password= a\u0085b\u2028c\x0b\x1cd\u0085\xa0\x1c \t\r\nclient.id=e\rgroup.id=f".encode())
    assert config_from(parsed("-F", str(file))) == {
        "sasl.password": "a\u0085b\u2028c\x0b\x1cd\u0085\xa0\x1c", "client.id": "e\rgroup.id=f"
    }  # fmt: skip


def test_the_name_of_a_key_that_was_given_last_counts(tmp_path: Path) -> None:
    """Of the other name too, as in kcat. librdkafka takes the last one of two names."""
    file = tmp_path / "conf"
    file.write_text("bootstrap.servers=a\nmetadata.broker.list=b\nsasl.mechanism=PLAIN\nsasl.mechanisms=PLAIN\n")
    given = parsed("-F", str(file), "-X", "bootstrap.servers=c", "-X", "sasl.mechanism=GSSAPI")
    assert list(config_from(given).items()) == [
        ("bootstrap.servers", "c"), ("sasl.mechanisms", "PLAIN"), ("sasl.mechanism", "GSSAPI")
    ]  # fmt: skip


def test_a_file_without_a_name() -> None:
    with pytest.raises(ConfigError, match="-F : No such file or directory"):
        config_from(parsed("-F", ""))


def test_properties_of_another_client_are_utf8() -> None:
    assert pairs_from(["client.id=\u00e9"], "--to-property") == {"client.id": "\u00e9"}
    with pytest.raises(ConfigError, match="the name is not UTF-8"):
        pairs_from(["a\udcff=b"], "--to-property")


@pytest.mark.parametrize(("brokers", "topic"), [("b:9092\udcff", "copy"), ("b:9092", "copy\udcff"), ("b:9092", "")])
def test_a_target_has_names_that_librdkafka_takes(brokers: str, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"is not UTF-8|is not a topic name"):
        target_from(argparse.Namespace(to_property=[]), brokers, topic)
