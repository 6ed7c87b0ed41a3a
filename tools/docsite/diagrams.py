"""The library that draws the diagrams of the site: one file of an npm package, copied into the site.

Material would load it from another server on each page with a diagram. npm fetches it once, into build/docsite; later
builds need no network. The version and the digest are fixed, so that two builds of one commit have the same file.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "mermaid@11.17.2"
MEMBER: Final = "package/dist/mermaid.min.js"
SHA256: Final = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
IN_SITE: Final = "assets/mermaid.min.js"
"""Its place in the site."""
FETCH_S: Final = 300.0
_FETCHED: Final = ROOT / "build" / "docsite" / f"{PACKAGE}.min.js"


class LibraryMissing(Exception):
    """The library could not be fetched; the message says why, and what to do."""


def library() -> Path:
    """Return the file, fetched if it is not here. Raises LibraryMissing."""
    if not _is_intact(_FETCHED):
        if shutil.which("npm") is None:
            raise LibraryMissing(f"{_FETCHED} does not exist, and there is no npm to fetch {PACKAGE}: install Node.js")
        _FETCHED.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_FETCHED.parent) as directory:
            _fetch(Path(directory))
    return _FETCHED


def _fetch(directory: Path) -> None:
    done = subprocess.run(
        ["npm", "pack", "--silent", PACKAGE],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=FETCH_S,
        check=False,
    )
    if done.returncode != 0:
        raise LibraryMissing(f"npm cannot fetch {PACKAGE}: {done.stderr.strip() or done.stdout.strip()}")
    (archive,) = directory.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extract(MEMBER, directory, filter="data")
    if not _is_intact(directory / MEMBER):
        raise LibraryMissing(f"{MEMBER} of {PACKAGE} has another SHA-256 than {SHA256}")
    (directory / MEMBER).replace(_FETCHED)


def _is_intact(path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
