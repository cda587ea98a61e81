"""The bill of materials of a release has all that is locked and shipped, and follows the schema of CycloneDX."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

from remote_fetch import __version__
from tools import sbom

ROOT = Path(__file__).parents[1]


def test_the_bill_of_this_project(tmp_path: Path) -> None:
    target = tmp_path / "new" / "bill.json"
    assert sbom.main([str(target)]) == 0  # it is checked against the schema before it is written
    bill = json.loads(target.read_text(encoding="utf-8"))
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"]) == ("remote-fetch", __version__)
    urls = {unquote(each["purl"]) for each in bill["components"]}
    lock = (ROOT / "requirements/runtime.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    packages = {f"pkg:pypi/{name}@{version}" for name, version in pinned}
    left_out = {"setuptools", "setuptools-rust", "semantic-version"}
    assert {url for url in urls if url.startswith("pkg:pypi/")} == {
        url for url in packages if url.split("/")[1].split("@")[0] not in left_out
    }
    crates = tomllib.loads((ROOT / "remote_fetch/decode/native/Cargo.lock").read_text(encoding="utf-8"))["package"]
    assert {url for url in urls if url.startswith("pkg:cargo/")} == {
        f"pkg:cargo/{crate['name']}@{crate['version']}" for crate in crates if crate["name"] != "remote-fetch-native"
    }
    assert sum(len(each["hashes"]) for each in bill["components"]) > len(urls) > 30
    (depends,) = (each["dependsOn"] for each in bill["dependencies"] if each["ref"] == own["bom-ref"])
    assert {unquote(each) for each in depends} == urls


def test_every_hash_of_the_lock_file_is_in_the_bill() -> None:
    lock = (ROOT / "requirements/runtime.lock").read_text(encoding="utf-8")
    entry = lock.split("\npyarrow==")[1].split("\n    # via")[0]
    (pyarrow,) = (each for each in sbom.bill(ROOT).components if each.name == "pyarrow")
    assert {each.content for each in pyarrow.hashes} == set(re.findall("sha256:([0-9a-f]{64})", entry))


def test_a_bill_that_breaks_the_schema_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sbom, "JsonV1Dot6", lambda _: type("Broken", (), {"output_as_string": lambda *_, **__: "{}"})())
    with pytest.raises(ValueError, match="does not follow the schema"):
        sbom.text_of(sbom.bill(ROOT))
