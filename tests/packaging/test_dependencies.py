"""The packages of an installation: size, licences, and the bill of materials."""

from __future__ import annotations

import re
import zlib
from importlib import metadata
from pathlib import Path

import pytest
from tools import dependencies

ROOT = Path(__file__).parents[2]
LARGEST_DOWNLOAD = 15_000_000
LARGEST_INSTALLATION = 45_000_000
PROJECT = dependencies.project_table()


def files_of(name: str) -> list[Path]:
    """The files of an installed package, without compiled bytecode."""
    distribution = metadata.distribution(name)
    paths = [Path(str(distribution.locate_file(file))) for file in distribution.files or []]
    return [path for path in paths if path.is_file() and path.suffix != ".pyc"]


def test_base_installation_is_small() -> None:
    """Wheels are zip files, so that the sum of compressed files is what pip downloads."""
    base = [each.name for each in dependencies.dependencies(PROJECT) if dependencies.BASE in each.extras]
    assert base == ["click", "cramjam", "crc32c", "google-re2", "lz4", "uvloop"]
    own = [path for path in (ROOT / "src").rglob("*") if path.is_file()]
    own = [path for path in own if "__pycache__" not in path.parts and path.suffix not in {".c", ".pyc"}]
    own = [path for path in own if not any(part.endswith(".egg-info") for part in path.parts)]
    contents = [path.read_bytes() for path in own + [path for name in base for path in files_of(name)]]
    assert sum(len(zlib.compress(content, 6)) for content in contents) < LARGEST_DOWNLOAD
    assert sum(map(len, contents)) < LARGEST_INSTALLATION


def test_licences_of_all_dependencies_are_known_and_compatible() -> None:
    incompatible = {
        each.name: each.licence
        for each in dependencies.dependencies(PROJECT)
        if not dependencies.is_compatible(each.licence)
    }
    assert not incompatible


@pytest.mark.parametrize(
    ("expression", "compatible"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("MIT AND (GPL-3.0-only OR AGPL-3.0-only)", False),
        ("(GPL-3.0-only OR MIT) AND Zlib", True),
        ("SSPL-1.0", False),
    ],
)
def test_expression_of_licences_is_compatible_if_one_alternative_is(expression: str, compatible: bool) -> None:
    assert dependencies.is_compatible(expression) is compatible


def test_page_of_licences_lists_the_dependencies() -> None:
    """Dependencies of dependencies differ between releases: those on the page must have the licence that it names."""
    page = (ROOT / "docs" / "licenses.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w.-]+) \| ([^|]+) \|", page, re.MULTILINE)[1:])
    found = {each.name: each.licence for each in dependencies.dependencies(PROJECT)}
    direct = {dependencies.canonical(requirement.name) for _, requirement in dependencies.requirements(PROJECT)}
    assert direct <= rows.keys()
    shared = rows.keys() & found.keys()
    assert {name: rows[name] for name in shared} == {name: found[name] for name in shared}
    assert len(shared) > 0.9 * len(found)


def test_bill_of_materials_is_complete_and_consistent() -> None:
    bill = dependencies.sbom(PROJECT, "0.1.0")
    assert bill == dependencies.sbom(PROJECT, "0.1.0")
    references = {component["bom-ref"] for component in bill["components"]} | {"pkg:pypi/ottla@0.1.0"}
    assert len(references) == len(bill["components"]) + 1
    for each in bill["dependencies"]:
        assert {each["ref"], *each["dependsOn"]} <= references
    required = {component["name"] for component in bill["components"] if component["scope"] == "required"}
    assert required == {"click", "cramjam", "crc32c", "google-re2", "lz4", "uvloop"}
