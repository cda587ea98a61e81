"""The workflows as data: what they call exists, a release waits for all else, and only its job may write."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def workflow(name: str) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    return loaded


def runs(name: str) -> str:
    """The commands of a workflow."""
    jobs = workflow(name)["jobs"].values()
    return "\n".join(step.get("run", "") for job in jobs for step in job.get("steps", ()))


def test_what_the_workflows_run_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for name in ("ci", "docs", "wheels"):
        text = runs(name)
        assert set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)) <= targets
        modules = re.findall(r"-m (tools\.\w+)", text)
        assert [module for module in modules if not (ROOT / f"{module.replace('.', '/')}.py").exists()] == []
    assert set(workflow("ci")["jobs"]["schedule"]["strategy"]["matrix"]["target"]) <= targets
    assert "examples/container/Containerfile" in runs("wheels")
    locks = re.findall(r"requirements/\w+\.lock", (FOLDER / "wheels.yml").read_text(encoding="utf-8"))
    assert locks
    assert all((ROOT / lock).exists() for lock in locks)


def test_a_release_waits_for_all_other_jobs_and_for_the_tests_of_a_change() -> None:
    jobs = workflow("wheels")["jobs"]
    assert set(jobs["release"]["needs"]) == jobs.keys() - {"release"}
    assert jobs["release"]["if"] == jobs["tests"]["if"] == "github.ref_type == 'tag'"
    assert jobs["tests"]["uses"] == "./.github/workflows/ci.yml"
    ci = workflow("ci")
    assert "workflow_call" in ci[True]  # YAML 1.1 takes `on` for a truth value
    door = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert ci["jobs"]["change"]["steps"][-1]["run"] == "make test" == door.rstrip().rpartition("exec ")[2]
    assert ci["env"]["REMOTE_FETCH_STRICT"] == "1"
    exported = door.replace('"', "")
    assert [name for name, value in ci["jobs"]["change"]["env"].items() if f" {name}={value}" not in exported] == []


def test_only_the_release_may_write() -> None:
    for name in ("ci", "wheels"):
        loaded = workflow(name)
        assert loaded["permissions"] == {"contents": "read"}
        assert {job for job, told in loaded["jobs"].items() if "permissions" in told} <= {"release"}


def test_every_python_that_is_promised_is_tried() -> None:
    promised = [found[1] for each in PROJECT["classifiers"] if (found := re.search(r"Python :: (3\.\d+)$", each))]
    oldest, *later = promised
    assert workflow("wheels")["jobs"]["pythons"]["strategy"]["matrix"]["python"] == later
    assert PROJECT["requires-python"] == f">={oldest}"
    assert f"cp{oldest.replace('.', '')}-*" == workflow("wheels")["env"]["CIBW_BUILD"]
    (ci,) = {
        step["with"]["python-version"] for step in workflow("ci")["jobs"]["change"]["steps"] if "python" in str(step)
    }
    assert ci == oldest


def test_every_extra_of_users_is_tried() -> None:
    (tried,) = re.findall(r"^ *extras=(\S+)$", runs("wheels"), re.MULTILINE)
    assert tried.split(",") == sorted(PROJECT["optional-dependencies"].keys() - {"dev"})


def test_the_files_of_a_release_are_signed() -> None:
    steps = workflow("wheels")["jobs"]["release"]["steps"]
    signed = {step["uses"].split("@")[0]: step["with"] for step in steps if "attest" in step.get("uses", "")}
    assert signed["actions/attest-build-provenance"]["subject-path"] == "dist/*"
    assert signed["actions/attest-sbom"]["sbom-path"] in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert (
        workflow("wheels")["jobs"]["release"]["permissions"].items()
        >= {"id-token": "write", "attestations": "write"}.items()
    )
