"""The source of the previous release, out of this clone's own history: nothing is downloaded.

The first of these that exists:

1. the commit or tag that OTTLA_PREVIOUS names,
2. the newest tag `v*` of a release before HEAD,
3. before the first release, the last commit of an earlier day than HEAD: where each landing is one commit, mostly the
   landing before,
4. the parent of HEAD, if all history is of one day.

A shallow clone and a source archive have none: the caller skips, with the reason. The header of each test run shows
the choice (tests/conftest.py).
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
ENOUGH_S: Final = 24 * 3600
GIT_S: Final = 60.0


class Previous(NamedTuple):
    """A commit, or None if there is none; and why it was chosen, for people."""

    commit: str | None
    reason: str


def previous(root: Path = ROOT) -> Previous:
    """Choose the previous release of the checkout in `root`."""
    if named := os.environ.get("OTTLA_PREVIOUS"):
        return Previous(named, f"{named}, named by OTTLA_PREVIOUS")
    # A source archive inside of another repository has no history of its own.
    if not (root / ".git").exists() or not (rows := _history(root)):
        return Previous(None, f"{root} is not a clone of the repository: it has no history")
    tags = _git(root, "tag", "--list", "v*", "--sort=-version:refname", "--merged", "HEAD", "--no-contains", "HEAD")
    if tags:
        return Previous(tags.split()[0], f"the tag {tags.split()[0]}")
    (head, head_s), *older = rows
    if not older:
        return Previous(None, f"the clone has only the commit {head[:8]}: fetch its history (git fetch --unshallow)")
    for commit, at_s in older:
        if head_s - at_s >= ENOUGH_S:
            return Previous(commit, f"the commit {commit[:8]}, a day before HEAD: there is no tag v*")
    commit, _ = older[0]
    return Previous(commit, f"the commit {commit[:8]}, the parent of HEAD: there is no tag v*, and no older day")


def unpack(commit: str, directory: Path) -> Path:
    """Unpack the source of a commit, and return the directory for PYTHONPATH. Raises CalledProcessError."""
    archive = subprocess.run(
        ["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, timeout=GIT_S, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(directory, filter="data")
    return directory / "src"


def _history(root: Path) -> list[tuple[str, int]]:
    """The commits of the first parents from HEAD on, each with its time in seconds."""
    rows = _git(root, "log", "--first-parent", "--format=%H %ct", "HEAD").splitlines()
    return [(commit, int(at_s)) for commit, at_s in (row.split() for row in rows)]


def _git(root: Path, *words: str) -> str:
    """The output of git; "" without git, or if it fails."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, timeout=GIT_S, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
