"""The choice of the previous release, from which the upgrade test starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.previous_release import ROOT, previous

DAY_S = 24 * 3600
NOW_S = 1_700_000_000
# CI may have no settings of git.
NAMES = {f"GIT_{role}_{field}": "test" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


@pytest.fixture(autouse=True)
def _nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_PREVIOUS", raising=False)


def git(root: Path, *words: str, at_s: int = NOW_S) -> str:
    dates = {"GIT_AUTHOR_DATE": f"{at_s} +0000", "GIT_COMMITTER_DATE": f"{at_s} +0000"}
    environment = {**os.environ, **NAMES, **dates}
    done = subprocess.run(
        ["git", *words], cwd=root, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with commits three days, two hours and no time old."""
    git(tmp_path, "init", "--quiet")
    for age_s in (3 * DAY_S, 2 * 3600, 0):
        git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "x", at_s=NOW_S - age_s)
    return tmp_path


def commit(clone: Path, name: str) -> str:
    return git(clone, "rev-parse", name)


def test_previous_release_is_the_newest_tag_before_this_commit(clone: Path) -> None:
    for name, at in (("v0.9.0", "HEAD~2"), ("v0.10.0", "HEAD~1"), ("v0.11.0", "HEAD")):
        git(clone, "tag", name, at)
    assert previous(clone).commit == "v0.10.0"


def test_before_the_first_release_it_is_the_last_commit_of_an_earlier_day(clone: Path) -> None:
    assert previous(clone).commit == commit(clone, "HEAD~2")
    git(clone, "tag", "v1.0.0", "HEAD")
    assert previous(clone).commit == commit(clone, "HEAD~2")


def test_without_an_earlier_day_it_is_the_parent(clone: Path) -> None:
    git(clone, "checkout", "--quiet", "--orphan", "other")
    for _ in range(3):
        git(clone, "commit", "--quiet", "--allow-empty", "--message", "x")
    found = previous(clone)
    assert found.commit == commit(clone, "HEAD~1")
    assert "the parent of HEAD" in found.reason


def test_environment_names_another_one(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PREVIOUS", "HEAD~1")
    assert previous(clone).commit == "HEAD~1"


def test_shallow_clone_and_source_archive_have_none(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shallow = tmp_path_factory.mktemp("shallow") / "clone"
    git(clone, "clone", "--quiet", "--depth", "1", f"file://{clone}", str(shallow))
    assert previous(shallow).commit is None
    assert "--unshallow" in previous(shallow).reason
    archive = clone / "archive"
    archive.mkdir()
    assert previous(archive).commit is None


def test_workflow_fetches_the_history() -> None:
    import yaml

    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    (checkout,) = (step for step in jobs["test"]["steps"] if "checkout" in step.get("uses", ""))
    assert checkout["with"]["fetch-depth"] == 0
