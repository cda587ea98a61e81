"""Writes the bill of materials of a release, in CycloneDX 1.6: `python -m tools.sbom FILE`.

Rules of the file:

- The components are those of the lock files: the Python packages of `requirements/runtime.lock` without those that only
  build (`requirements/build.lock`), and the crates of the native decoder. Crates that only build it are among them.
- A package has the hash of each of its files, as the lock file has. A crate has that of its archive.
- A text that does not follow the schema is an error, and is not written.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

__all__ = ["bill", "main", "text_of"]

_PIN = re.compile(r"^([a-z0-9][\w.-]*)==([^ ;]+)([^\n]*\\\n(?: {4}--hash=sha256:[0-9a-f]{64}[ \\]*\n)+)", re.MULTILINE)
_HASH = re.compile(r"sha256:([0-9a-f]{64})")


def bill(root: Path) -> Bom:
    """The bill of the project at `root`. Its own component depends on all others."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = str(project["name"]), str(project["version"])
    bom = Bom()
    bom.metadata.component = _component("pypi", name, version, (), ComponentType.APPLICATION)
    for component in (*_packages(root), *_crates(root)):
        bom.components.add(component)
    bom.register_dependency(bom.metadata.component, bom.components)
    return bom


def text_of(bom: Bom) -> str:
    """The bill as JSON. Raises ValueError if it does not follow the schema."""
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        raise ValueError(f"the bill does not follow the schema of CycloneDX: {error.data}")
    return text + "\n"


def _packages(root: Path) -> Iterator[Component]:
    texts = {
        name: (root / "requirements" / f"{name}.lock").read_text(encoding="utf-8") for name in ("runtime", "build")
    }
    building = {pin[1] for pin in _PIN.finditer(texts["build"])}
    for pin in _PIN.finditer(texts["runtime"]):
        if pin[1] not in building:
            yield _component("pypi", pin[1], pin[2], _HASH.findall(pin[3]))


def _crates(root: Path) -> Iterator[Component]:
    lock = tomllib.loads((root / "remote_fetch/decode/native/Cargo.lock").read_text(encoding="utf-8"))
    for package in lock["package"]:
        if "source" in package:  # the crate of this project has none
            yield _component("cargo", package["name"], package["version"], [package["checksum"]])


def _component(
    kind: str, name: str, version: str, hashes: Sequence[str], is_a: ComponentType = ComponentType.LIBRARY
) -> Component:
    purl = PackageURL(kind, None, name, version)
    known = [HashType(alg=HashAlgorithm.SHA_256, content=each) for each in hashes]
    return Component(name=name, version=version, type=is_a, purl=purl, bom_ref=str(purl), hashes=known)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bill of this project into the file."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if len(words) != 1:
        print("usage: python -m tools.sbom FILE", file=sys.stderr)
        return 2
    target = Path(words[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text_of(bill(Path(__file__).resolve().parents[1])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
