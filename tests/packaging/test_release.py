"""Checks before a release: one version, the form of CHANGELOG.md, workflows that run targets which exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from tools.wheels import build

from ottla import __version__

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
# https://keepachangelog.com/en/1.1.0/
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def workflow(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def test_newest_version_of_the_changelog_is_the_version_of_the_package() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    versions = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d|unreleased)", each) for each in headings[1:]]
    assert all(versions), "the form is ## [X.Y.Z] - YYYY-MM-DD"
    numbers = [tuple(map(int, each[1].split("."))) for each in versions if each]
    assert numbers == sorted(numbers, reverse=True)
    assert versions[0]
    assert versions[0][1] == __version__


def test_each_part_of_the_changelog_has_the_kinds_of_keep_a_changelog_once() -> None:
    for part in re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", part, re.MULTILINE)
        assert set(kinds) <= KINDS
        assert len(kinds) == len(set(kinds)), part.partition("\n")[0]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_of_the_makefile_with_few_rights(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    jobs = workflow(path)["jobs"]
    assert workflow(path)["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in jobs.values())
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = {name for command in commands for name in re.findall(r"\bmake ([a-z-]+)", command)}
    matrices = [job.get("strategy", {}).get("matrix", {}) for job in jobs.values()]
    for matrix in matrices:
        named |= {*matrix.get("target", ()), *(row["target"] for row in matrix.get("include", ()))}
    assert named
    assert named <= targets


def test_ci_runs_the_same_targets_as_a_landing() -> None:
    landing = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / ".ci" / "run").read_text()))
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert [target for target in landing if not re.search(rf"\b{target}\b", text)] == []


def test_ci_tests_each_supported_pyspark() -> None:
    text = (ROOT / "tools" / "spark_versions.py").read_text()
    (versions,) = re.findall(r"^VERSIONS = (\(.*\))$", text, re.MULTILINE)
    job = workflow(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["spark-versions"]
    assert tuple(job["strategy"]["matrix"]["pyspark"]) == ast.literal_eval(versions)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_issue_templates_have_the_form_that_the_host_reads(path: Path) -> None:
    form = workflow(path)
    assert {"name", "description", "body"} <= form.keys()
    for field in form["body"]:
        assert field["type"] in {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        assert "value" in field["attributes"] if field["type"] == "markdown" else field["attributes"]["label"]
    names = [field["id"] for field in form["body"] if "id" in field]
    assert len(names) == len(set(names))


def test_wheel_that_fails_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """All wheels take most of an hour."""

    def make(target: build.Target, material: build.Material, output: Path) -> Path:
        if target.python == "3.12":
            raise build.StepFailed("no compiler")
        wheel = tmp_path / f"{target.tag}.whl"
        wheel.touch()
        return wheel

    def environment_of(*_: object) -> Path:
        compiler = tmp_path / "lib/python3/site-packages/ziglang/zig"
        compiler.parent.mkdir(parents=True, exist_ok=True)
        compiler.touch()
        return tmp_path / "bin"

    doubles = {
        "WORK": tmp_path, "build": make, "environment_of": environment_of, "fetch_pythons": lambda: None,
        "commit_time": lambda: "0", "source_archive": lambda *_: tmp_path, "run": lambda *_: "a b",
        "check": lambda *_: None, "verify": lambda *_: "runs",
    }  # fmt: skip
    for name, double in doubles.items():
        monkeypatch.setattr(build, name, double)
    assert build.main(["3.11", "3.12", "3.13", "x86_64"]) == 1
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["cp311.whl", "cp313.whl"]
    assert printed.err == "wheels: CPython 3.12, x86_64: no compiler\n"
