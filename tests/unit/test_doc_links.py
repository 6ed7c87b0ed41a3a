"""Each link of a page leads to a file, and to a heading if it names one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.races import RACES

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that a code host gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    dead = []
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", CODE.sub("", page.read_text())):
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (heading and heading not in anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("name", ["performance", "performance-races", "reliability", "scale", "simulation"])
def test_tests_and_benchmarks_that_a_page_names_exist(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text()
    files = set(re.findall(r"\b(?:tests|benchmarks|tools|examples)/[\w/.-]+\.(?:py|json|svg)", text))
    modules = set(re.findall(r"python -m benchmarks\.(\w+)", text))
    packages = {module for module in modules if (ROOT / "benchmarks" / module / "__main__.py").exists()}
    files |= {f"benchmarks/{module}.py" for module in modules - packages}
    files |= {
        f"tests/simulation/{test}" for test in re.findall(r"(?<![\w/])test_\w+\.py", text) if name == "simulation"
    }
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_races_that_a_page_names_exist() -> None:
    text = (ROOT / "docs/performance.md").read_text()
    named = {race for races in re.findall(r'RACE="?([\w -]+)', text) for race in races.split()}
    assert len(named) > 5
    assert named <= set(RACES)


def test_files_that_the_architecture_names_exist() -> None:
    files = set((ROOT / "src/ottla").rglob("*.py"))
    names = {path.name for path in files}
    missing = []
    for named in re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/ARCHITECTURE.md").read_text()):
        is_path = "/" in named
        exists = ROOT / "src/ottla" / named in files or (ROOT / named).exists() if is_path else named in names
        if not exists:
            missing.append(named)
    assert missing == []
