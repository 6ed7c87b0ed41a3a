"""Command line of the peers: fetch them, or run stock Kafka by hand.

    python -m tests.peers fetch                   all peers into the cache; quick and silent when they are there
    python -m tests.peers tool NAME ARGS...       one stock tool (`topics`, `dump-log`, ...) in the foreground
    python -m tests.peers kafka DIR               a stock broker, until Ctrl-C or SIGTERM; prints bootstrap=HOST:PORT

Peers that cannot be fetched are named on standard error; the exit code tells only when CI=true, where a peer that is
absent would turn tests into silent skips.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from . import kafka
from .cache import CONNECTOR, FRANZ, HERE, KAFKA, KAFKAJS, STREAMS, STREAMS_PROGRAMS, in_ci

FETCH_TIMEOUT_S = 600


class Absent(Exception):
    """A peer cannot be had here; the text says what to do about it."""


def run(command: list[str], cwd: Path | None = None) -> None:
    """Run a fetching command; raises Absent with the end of its output if it fails."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Absent(f"`{command[0]}` took longer than {FETCH_TIMEOUT_S} s") from None
    if done.returncode:
        tail = "\n    ".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise Absent(f"`{' '.join(command[:4])} ...` failed:\n    {tail}")


def fetch_into(folder: Path, declaration: Path, programs: tuple[str, ...], fetch: Callable[[Path], None]) -> None:
    """Fill `folder` unless it was filled for this declaration; an incomplete one is filled again."""
    wanted = hashlib.sha256(declaration.read_bytes()).hexdigest()
    mark = folder / ".complete"
    if mark.exists() and mark.read_text().strip() == wanted:
        return
    for program in programs:
        if shutil.which(program) is None:
            raise Absent(f"needs `{program}` on the PATH")
    print(f"Fetching {folder.name} into {folder} ...", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    fetch(folder)
    mark.write_text(wanted)


def fetch_kafka() -> None:
    """Stock Kafka's jars, by Maven. Maven wants a JDK 17 or newer."""

    def fetch(folder: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        run(["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), *goal])
        (folder / "log4j2.yaml").write_text(kafka.LOG4J)

    fetch_into(KAFKA, HERE / "pom.xml", ("java", "javac", "mvn"), fetch)
    if shutil.which("java") is not None:
        try:
            with tempfile.TemporaryDirectory() as directory:
                kafka.archive_classes(Path(directory))
        except (OSError, RuntimeError, kafka.ToolError) as error:
            print(f"Stock Kafka will start slowly: {error}", file=sys.stderr)


def fetch_connector() -> None:
    """Spark's Kafka connector, by Maven, and what stands in for the part of it that is not everywhere."""
    home = HERE / "connector"

    def fetch(folder: Path) -> None:
        import pyspark

        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        run(["mvn", "-q", "-B", "-f", str(home / "pom.xml"), *goal])
        spark, classes = Path(pyspark.__file__).parent / "jars" / "*", folder / "classes"
        sources = sorted(map(str, home.glob("*.java")))
        run(["javac", "-nowarn", "-cp", str(spark), "-d", str(classes), *sources])
        run(["jar", "cf", str(folder / "stand-ins.jar"), "-C", str(classes), "."])

    fetch_into(CONNECTOR, home / "pom.xml", ("java", "javac", "jar", "mvn"), fetch)


def fetch_streams() -> None:
    """Kafka Streams, by Maven, and the programs of tests and benchmarks that run in it."""
    home = HERE / "streams"

    def fetch(folder: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        run(["mvn", "-q", "-B", "-f", str(home / "pom.xml"), *goal])
        (folder / "log4j2.yaml").write_text(kafka.LOG4J)

    fetch_into(STREAMS, home / "pom.xml", ("java", "javac", "jar", "mvn"), fetch)
    # The programs change more often than the jars.
    jar, sources = STREAMS_PROGRAMS, sorted(home.glob("*.java"))
    if not jar.exists() or jar.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        with tempfile.TemporaryDirectory() as classes:
            run(["javac", "-nowarn", "-cp", f"{STREAMS}/*", "-d", classes, *map(str, sources)])
            run(["jar", "cf", str(jar), "-C", classes, "."])


def fetch_kafkajs() -> None:
    """kafkajs, by npm."""

    def fetch(folder: Path) -> None:
        shutil.copy(HERE / "kafkajs" / "package.json", folder)
        run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"], cwd=folder)

    fetch_into(KAFKAJS, HERE / "kafkajs" / "package.json", ("node", "npm"), fetch)


def fetch_franz() -> None:
    """A program with franz-go, by Go."""
    home = HERE / "franz"

    def fetch(folder: Path) -> None:
        run(["go", "build", "-o", str(folder / "franz"), "."], cwd=home)

    fetch_into(FRANZ, home / "main.go", ("go",), fetch)


def fetch_kcat() -> None:
    """kcat, by apt-get where we may; elsewhere the person installs it."""
    if shutil.which("kcat") is not None:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Absent("install it with your system's packages (Debian: apt-get install kcat)")
    print("Installing kcat ...", file=sys.stderr)
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "kcat"]
    try:
        run(install)
    except Absent:  # package lists may be absent or old
        run(["apt-get", "update", "-qq"])
        run(install)


def fetch_all() -> int:
    """Fetch every peer; returns the exit code."""
    absent = 0
    peers = {
        "Apache Kafka": fetch_kafka,
        "Spark's Kafka connector": fetch_connector,
        "Kafka Streams": fetch_streams,
        "kafkajs": fetch_kafkajs,
        "franz-go": fetch_franz,
        "kcat": fetch_kcat,
    }
    for name, fetch in peers.items():
        try:
            fetch()
        except Absent as error:
            absent += 1
            print(f"*** ABSENT: {name}: {error}\n*** Tests that need {name} will be skipped.", file=sys.stderr)
    return 1 if absent and in_ci() else 0


def serve_kafka(directory: Path) -> int:
    """Run a stock broker until it is interrupted or terminated."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # otherwise the JVM would run on
    with kafka.StockKafka(directory) as broker:
        print(f"bootstrap={broker.bootstrap}", flush=True)
        try:
            while broker.alive():
                time.sleep(0.5)
        except KeyboardInterrupt:
            return 0
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch")
    tool = commands.add_parser("tool")
    tool.add_argument("name", choices=sorted(kafka.TOOLS))
    tool.add_argument("arguments", nargs=argparse.REMAINDER)
    commands.add_parser("kafka").add_argument("directory", type=Path)
    options = parser.parse_args()
    if options.command == "fetch":
        return fetch_all()
    if options.command == "kafka":
        return serve_kafka(options.directory)
    return subprocess.run(kafka.java(kafka.TOOLS[options.name], *options.arguments), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
