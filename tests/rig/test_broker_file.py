"""A running broker's own `server.properties` is enough to find its tier. The broker confirms the result."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from remote_fetch.cli import main
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.test_read import from_store


@pytest.mark.scheduled
def test_a_brokers_file_and_its_address(
    rig_43: Rig, new_topic: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic("file")
    topics.make_tiered(rig_43, topic, 40)
    file = str(rig_43.nodes[1].folder / "server.properties")
    common = ["-b", rig_43.bootstrap, "-t", topic, "-X", "log_level=0"]
    assert main(["config", "check", "--broker-properties", file, *common]) == 0, capsys.readouterr().out
    told = capsys.readouterr().out
    assert f"{rig_43.remote}  (the broker's file)" in told
    assert [line.split(":")[0].split()[-1] for line in told.splitlines() if line.startswith("ok ")] == [
        "fetcher",
        "list",
        "locator",
        "metadata",
        "segment",
        "index",
    ]
    config = {"bootstrap.servers": rig_43.bootstrap, "remote.storage.broker.properties": file, "log_level": 0}
    found, report = from_store(config, topic, "read_committed")
    assert found == topics.broker_records(rig_43, topic, 0, isolation="read_committed")
    assert report.fallbacks == {}
