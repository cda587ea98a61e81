"""`restore`, `offsets` and `replay` on the command line, with a topic in memory as target."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from remote_fetch.cli import replay, restore
from remote_fetch.observe import Notice, Observer, ignore
from remote_fetch.restore.verify import Compared, Unlike
from remote_fetch.session.session import Session
from tests.restore.fake_target import FakeTarget
from tests.restore.test_restore import PARTITIONS, bucket, expected, hurry

if TYPE_CHECKING:
    from tests.cli.conftest import Run

__all__ = ["bucket", "hurry"]


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> FakeTarget:
    made = FakeTarget(topic="orders")

    def chosen(arguments: Any, brokers: str | None, topic: str, shared: Any = None) -> FakeTarget:
        assert brokers == "other:9092"
        made.topic = topic
        return made

    # Both modules are imported by now. A first import of `replay` after `restore` is patched would copy the patch.
    for module in (restore, replay):
        monkeypatch.setattr(module, "target_from", chosen)
    return made


def arguments_of(bucket: Path, tmp_path: Path) -> tuple[str, ...]:
    return ("--url", str(bucket), "-t", "orders", "--to", "other:9092", "--journal", str(tmp_path / "journal"))


def test_a_restore(run: Run, bucket: Path, target: FakeTarget, tmp_path: Path) -> None:
    done = run("restore", *arguments_of(bucket, tmp_path), "--no-verify", "--topic-config", "retention.ms=-1")
    assert done.code == 0, done.stderr
    wanted = expected(bucket, "read_committed")
    assert target.logs == wanted
    assert target.config == {"retention.ms": "-1"}
    count = sum(map(len, wanted.values()))
    assert done.lines[0].startswith(f"orders: {count} records in {PARTITIONS} partitions, with other offsets, which ")
    again = run("restore", *arguments_of(bucket, tmp_path), "--no-verify", "-J", "-q")
    outcome = json.loads(again.stdout)
    assert (outcome["records"], outcome["records_of_this_run"], outcome["different"]) == (count, 0, {})
    assert outcome["report"]["fallbacks"] == {}
    assert again.stderr == ""


def test_the_partitions_of_a_new_topic(run: Run, bucket: Path, target: FakeTarget, tmp_path: Path) -> None:
    arguments = ("restore", *arguments_of(bucket, tmp_path), "--no-verify", "--partitions")
    few = run(*arguments, str(PARTITIONS - 1))
    assert few.code == 1
    assert f"--partitions is {PARTITIONS - 1}, and the tier has partition {PARTITIONS - 1} of 'orders'" in few.stderr
    assert target.logs == {}
    done = run(*arguments, str(PARTITIONS + 2))
    assert done.code == 0, done.stderr
    assert target.partitions() == tuple(range(PARTITIONS + 2))
    assert {number: log for number, log in target.logs.items() if log} == expected(bucket, "read_committed")


def test_a_dry_run_writes_nothing(run: Run, bucket: Path, target: FakeTarget, tmp_path: Path) -> None:
    done = run("restore", *arguments_of(bucket, tmp_path), "--dry-run", "--to-topic", "copy")
    assert done.code == 0
    assert done.lines[0].startswith("orders-0 to copy-0: 80 offsets, ")
    assert len(done.lines) == PARTITIONS
    as_json = run("restore", *arguments_of(bucket, tmp_path), "--dry-run", "--to-topic", "copy", "-J")
    first = json.loads(as_json.lines[0])
    assert {name: first[name] for name in ("topic", "partition", "target", "offsets")} == {
        "topic": "orders", "partition": 0, "target": "copy", "offsets": 80,
    }  # fmt: skip
    assert target.logs == {}
    assert not (tmp_path / "journal").exists()


def test_offsets_that_are_too_many_are_not_cut(
    run: Run, bucket: Path, target: FakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("restore", *arguments_of(bucket, tmp_path), "--no-verify", "-q").code == 0
    monkeypatch.setattr("remote_fetch.cli.offsets._MAX_BYTES", 20)
    exported = tmp_path / "exported"
    exported.write_text("orders,0,1\norders,0,2\n")
    done = run("offsets", str(tmp_path / "journal"), str(exported))
    assert (done.code, done.lines) == (1, [])
    assert "more than 20 bytes" in done.stderr


def test_offsets_of_groups(run: Run, bucket: Path, target: FakeTarget, tmp_path: Path) -> None:
    assert run("restore", *arguments_of(bucket, tmp_path), "--no-verify", "-q", "--to-topic", "copy").code == 0
    exported = tmp_path / "groups.csv"
    exported.write_text(
        '"billing",orders,0,7\nbilling,"orders",2,47\naudit,clicks,0,3\norders,2,120\n', encoding="utf-8"
    )
    done = run("offsets", str(tmp_path / "journal"), str(exported))
    assert done.code == 0
    assert done.lines == ["billing,copy,0,7", "billing,copy,2,5", f"copy,2,{len(target.logs[2])}"]
    assert "% 1 row left out, of other topics than " in done.stderr
    as_json = run("offsets", str(tmp_path / "journal"), str(exported), "--json")
    assert [json.loads(line) for line in as_json.lines][1:] == [
        {"group": "billing", "topic": "copy", "partition": 2, "offset": 5},
        {"group": None, "topic": "copy", "partition": 2, "offset": len(target.logs[2])},
    ]


@pytest.mark.parametrize("row", ["orders,0", "orders,x,1", "orders,0,-1", "orders,0,1,2,3", "orders,9,1"])
def test_rows_that_are_no_offsets(run: Run, bucket: Path, target: FakeTarget, tmp_path: Path, row: str) -> None:
    assert run("restore", *arguments_of(bucket, tmp_path), "--no-verify", "-q").code == 0
    exported = tmp_path / "groups.csv"
    exported.write_text(f"orders,0,1\n{row}\n", encoding="utf-8")
    done = run("offsets", str(tmp_path / "journal"), str(exported))
    assert done.code == 1
    assert "row 2" in done.stderr


def test_a_replay(run: Run, bucket: Path, target: FakeTarget) -> None:
    target.logs = {number: [] for number in range(PARTITIONS)}
    arguments = ("replay", "--url", str(bucket), "-t", "orders", "--to", "other:9092", "--to-topic", "again")
    dry = run(*arguments, "-p", "0", "-o", "10", "--end", "30", "--dry-run")
    assert dry.lines[0].startswith("20 offsets, ")
    assert target.logs[0] == []
    done = run(*arguments, "-p", "0", "-o", "10", "--end", "30", "--max-records-per-second", "100000")
    assert done.code == 0, done.stderr
    assert target.logs[0] == expected(bucket, "read_committed")[0][10:30]
    assert done.lines[0].endswith("sent; next offset of each partition: 0: 30")
    as_json = run(*arguments, "-p", "0", "-o", "10", "--end", "30", "--json")
    outcome = json.loads(as_json.stdout)
    assert (outcome["records"], outcome["next_offsets"], outcome["report"]["records"]) == (20, {"0": 30}, 20)


def test_a_replay_into_the_topic_that_is_read(
    run: Run, bucket: Path, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its consumers would get the records twice. A topic of the same name in another cluster has another id."""
    (folder,) = (path for path in bucket.rglob("orders-0-*") if path.is_dir())
    monkeypatch.setattr(target, "topic_id", lambda: folder.name.removeprefix("orders-0-"))
    target.logs = {number: [] for number in range(PARTITIONS)}
    arguments = ("replay", "--url", str(bucket), "-t", "orders", "--to", "other:9092", "--to-topic", "orders")
    done = run(*arguments, "-q")
    assert (done.code, target.logs[0]) == (1, [])
    assert "'orders' is the topic that is read" in done.stderr
    assert "--same-topic" in done.stderr
    assert run(*arguments, "--same-topic", "-q").code == 0
    assert target.logs[0]


def test_a_target_in_the_cluster_that_is_read_has_its_credentials() -> None:
    """Without --to they would have to be given twice. With it they would go to another cluster."""
    options = {"to_property": ["sasl.username=writer"]}
    shared = {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.password": "p",
    }
    config = SimpleNamespace(librdkafka={**shared, "sasl.username": "reader", "fetch.max.bytes": 9})
    session: Any = SimpleNamespace(config=config)
    arguments = Namespace(to=None, **options)
    with closing(restore.target_from(arguments, None, "new", replay._shared(arguments, session))) as made:
        found = {name: value for name, value in made.properties.items() if name in config.librdkafka}
    assert found == {**shared, "sasl.username": "writer"}
    assert replay._shared(Namespace(to="other:9092"), session) == {}
    elsewhere = Namespace(to=None, to_property=["bootstrap.servers=other:9092"])
    with closing(restore.target_from(elsewhere, None, "new", replay._shared(arguments, session))) as made:
        assert not [name for name in made.properties if name.startswith("sasl.")]


WAIT = Notice("the broker gives nothing", is_warning=True, is_wait=True)


def test_a_replay_that_waits_says_why(
    run: Run, bucket: Path, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Session.open

    def waits(config: Any, observer: Observer = ignore) -> Session:
        session = opened(config, observer)
        session.observe(WAIT)
        return session

    monkeypatch.setattr(Session, "open", waits)
    target.logs = {number: [] for number in range(PARTITIONS)}
    arguments = ("replay", "--url", str(bucket), "-t", "orders", "--to", "other:9092", "--to-topic", "again", "-p", "0")
    assert "% the broker gives nothing\n" in run(*arguments, "--dry-run").stderr
    assert run(*arguments, "--dry-run", "-q").stderr == ""


def test_a_comparison_that_waits_says_why(
    run: Run, bucket: Path, target: FakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the new topic by a session of its own."""
    opened = Session.open

    @contextmanager
    def waits(observer: Observer) -> Iterator[None]:
        observer(WAIT)
        yield

    def open_session(config: Any, observer: Observer = ignore) -> Any:
        return waits(observer) if "bootstrap.servers" in config else opened(config, observer)

    monkeypatch.setattr(Session, "open", open_session)
    monkeypatch.setattr(restore, "compare", lambda *_: Compared(None))
    monkeypatch.setattr(target, "properties", {"bootstrap.servers": "other:9092"}, raising=False)
    done = run("restore", *arguments_of(bucket, tmp_path))
    assert done.code == 0, done.stderr
    assert "% the broker gives nothing\n" in done.stderr


@pytest.mark.parametrize(
    ("unlike", "gives_up"),
    [
        (Unlike(None, 80), True),
        (Unlike(None, 79), False),
        (Unlike(9, None), False),
        (Unlike(9, 9), False),
    ],
)
def test_records_of_others_that_the_comparison_finds(
    run: Run, bucket: Path, target: FakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    unlike: Unlike, gives_up: bool,
) -> None:  # fmt: skip
    """The tier may have got as many records when the next run counts. A record that the map has is no other one."""
    opened = Session.open

    def open_session(config: Any, observer: Observer = ignore) -> Any:
        return nullcontext() if "bootstrap.servers" in config else opened(config, observer)

    monkeypatch.setattr(Session, "open", open_session)
    monkeypatch.setattr(
        restore, "compare", lambda plan, *_: Compared(None if plan.opened.partition.partition else unlike)
    )
    monkeypatch.setattr(target, "properties", {"bootstrap.servers": "other:9092"}, raising=False)
    assert run("restore", *arguments_of(bucket, tmp_path)).code == 3
    again = run("restore", *arguments_of(bucket, tmp_path))
    assert again.code == (1 if gives_up else 3)
    assert ("partition 0 of the target has records that are not of this restore" in again.stderr) == gives_up


_TOKENS = ("--to-property", "security.protocol=SASL_SSL", "--to-property", "sasl.mechanism=OAUTHBEARER")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("restore", "-t", "orders", "--url", "/x"), "--to HOST:PORT"),
        (("restore", "-t", "orders", "--url", "/x", "--to", ""), "bootstrap.servers names no address"),
        (("restore", "-t", "orders", "--url", "/x", "--to", "h:1", "--to-property", "x"), "--to-property, number 1"),
        (("restore", "-t", "orders", "--url", "/x", "--to", "h:1", *_TOKENS), "OAUTHBEARER: nothing gives tokens"),
        (("restore", "-t", "orders", "--url", "/x", "--to", "h:1", "--to-topic", ""), "'' is not a topic name"),
        (("replay", "-t", "orders", "--url", "/x", "--to", "h:1"), "--to-topic TOPIC"),
        (
            ("replay", "-t", "orders", "--url", "/x", "-b", "h:1", "--to", "", "--to-topic", "t"),
            "bootstrap.servers names no address",
        ),
        (
            ("replay", "-t", "o", "--url", "/x", "--to", "h:1", "--to-topic", "t", "--max-records-per-second", "0"),
            "above 0",
        ),
        (("offsets", "/no/such/journal"), "the journal /no/such/journal: No such file or directory"),
    ],
)
def test_arguments_that_cannot_be_used(run: Run, arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.code == 1
    assert said in done.stderr


def test_a_topic_with_too_few_partitions(run: Run, bucket: Path, target: FakeTarget) -> None:
    target.logs = {0: []}
    arguments = ("replay", "--url", str(bucket), "-t", "orders", "--to", "other:9092", "--to-topic", "again")
    done = run(*arguments)
    assert done.code == 1
    assert "no partition 1" in done.stderr
    assert run(*arguments, "--partition-by", "key").code == 0
    assert len(target.logs[0]) == sum(map(len, expected(bucket, "read_committed").values()))
