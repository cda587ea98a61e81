"""The wheel of this machine and the source distribution, used in an environment that has only what they need.

Rules of the file:

- The crates that the checkout has built are used again. A build leaves nothing in the checkout.
- No network for Python: the build uses what is installed here, and the environment borrows the libraries of this one.
- The wheel's own package comes first, so that the checkout cannot stand in for it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
NO_SOURCES = (".rs", ".c", ".h", ".pyx", "Cargo.toml", "Cargo.lock")


def build(kind: str, source: Path, place: Path) -> Path:
    """The one file that a build of this kind leaves in `place`. Intermediate files are there, too."""
    place.mkdir(parents=True)
    settings = place / "settings.cfg"
    settings.write_text(f"[build]\nbuild_base={place / 'build'}\n[egg_info]\negg_base={place}\n", encoding="utf-8")
    environment = {
        **os.environ,
        "DIST_EXTRA_CONFIG": str(settings),
        "CARGO_TARGET_DIR": str(ROOT / "remote_fetch" / "decode" / "native" / "target"),
    }
    call = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    done = subprocess.run(
        (sys.executable, "-c", call, str(place / "dist")),
        cwd=source, env=environment, capture_output=True, text=True, timeout=850, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (place / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with what a source checkout needs: a Rust compiler and a C compiler."""
    if shutil.which("cargo") is None:
        pytest.skip("no Rust compiler: the wheel would hold plain Python only")
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel") / "of_checkout")


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_what_the_wheel_holds(wheel: Path) -> None:
    """One wheel a platform, for every later version of Python; the library and no source of it."""
    assert re.fullmatch(r"remote_fetch-[\d.]+-cp311-abi3-\w+\.whl", wheel.name)
    names = contents(wheel)
    libraries = [name for name in names if name.endswith((".so", ".pyd"))]
    assert [Path(name).stem.partition(".")[0] for name in libraries] == ["_native"]
    assert Path(libraries[0]).parent == Path("remote_fetch/decode")
    assert {"remote_fetch/decode/_native.pyi", "remote_fetch/py.typed", "fetchers/py.typed"} <= names
    licenses = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    assert licenses == {"LICENSE", "NOTICE"}
    assert not [name for name in names if name.endswith(NO_SOURCES)]


def test_the_demo_with_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """The command runs in an empty environment, with the native decoder."""
    place = tmp_path / "environment"
    venv.create(place, symlinks=os.name != "nt")
    scripts = Path(sysconfig.get_path("scripts", "venv", {"base": str(place)}))
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(place)}))
    python = scripts / Path(sys.executable).name
    install = (*PIP, "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel))
    subprocess.run(install, timeout=300, check=True)
    # The libraries of this environment, after the wheel. Its .pth files, that of the checkout among them, are not read.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def output(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    code = "from remote_fetch.decode import _native, run_decoder; print(_native.__file__, run_decoder.is_native())"
    library, is_used = output(str(python), "-c", code).split()
    assert Path(library).is_relative_to(packages)
    assert is_used == "True"
    command = str(scripts / "remote-fetch")
    assert "decoder native" in output(command, "--version")
    assert "The records of tx-1 under both isolation levels" in output(command, "demo")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unpacked source distribution."""
    place = tmp_path_factory.mktemp("source")
    with tarfile.open(build("sdist", ROOT, place / "sdist")) as opened:
        opened.extractall(place / "sources", filter="data")
    (source,) = (place / "sources").iterdir()
    return source


def test_the_source_distribution_has_no_part_of_the_tests(source: Path) -> None:
    """setuptools adds `tests/test*.py`, which cannot run without the files beside them."""
    folders = {path.name for path in source.iterdir() if path.is_dir() and path.suffix != ".egg-info"}
    assert folders == {"remote_fetch", "fetchers"}


@pytest.mark.scheduled  # the library is compiled once more, in another folder
def test_the_wheel_of_the_source_distribution_is_the_same(wheel: Path, source: Path, tmp_path: Path) -> None:
    assert contents(build("wheel", source, tmp_path / "of_sdist")) == contents(wheel)
