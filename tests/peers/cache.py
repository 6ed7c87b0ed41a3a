"""Where the fetched peers are kept, and how a test learns that one is absent.

The cache is $OTTLA_PEERS or ~/.cache/ottla-peers. A profile's folder is whole once it holds the file `.complete`,
whose text names the version it was made for.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("OTTLA_PEERS") or Path.home() / ".cache" / "ottla-peers")
KAFKA = CACHE / "kafka"
KAFKAJS = CACHE / "kafkajs"
FRANZ = CACHE / "franz"
SARAMA = CACHE / "sarama"
CONNECTOR = CACHE / "spark-kafka"
STREAMS = CACHE / "kafka-streams"
STREAMS_PROGRAMS = STREAMS / "programs.jar"
CONNECT = CACHE / "kafka-connect"
CONFLUENT = CACHE / "confluent"
MYSQL = CACHE / "mysql"
DEBEZIUM = CACHE / "debezium"
DEBEZIUM_PROGRAMS = DEBEZIUM / "programs" / "programs.jar"
CONFLUENT_PROGRAMS = CONFLUENT / "programs" / "programs.jar"


def in_ci() -> bool:
    """Whether absent peers are failures (CI=true) instead of skips."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def missing_for_jvm() -> str | None:
    """Return the reason why stock Kafka cannot run, as a sentence, or None."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        return "no JDK 17+ (java, javac) on the PATH"
    if not (KAFKA / ".complete").exists():
        return f"no stock Kafka in {KAFKA}: run `make peers`"
    return None


def missing_for_connect() -> str | None:
    """Return why stock Kafka Connect cannot run, as a sentence, or None."""
    missing = missing_for_jvm()
    if missing is None and not (CONNECT / ".complete").exists():
        missing = f"no plugins of Kafka Connect in {CONNECT}: run `make peers`"
    return missing


def missing_for_streams() -> str | None:
    """Return why Kafka Streams cannot run, as a sentence, or None."""
    missing = missing_for_jvm()
    if missing is None and not STREAMS_PROGRAMS.exists():
        missing = f"no Kafka Streams in {STREAMS}: run `make peers`"
    return missing


def missing_for_confluent() -> str | None:
    """Return why Confluent's Java clients cannot run, as a sentence, or None."""
    if shutil.which("java") is None:
        return "no JDK 17+ (java, javac) on the PATH"
    if not CONFLUENT_PROGRAMS.exists():
        return f"no Java clients of Confluent in {CONFLUENT}: run `make peers`"
    return None


def missing_for_debezium() -> str | None:
    """Return why Debezium cannot run, as a sentence, or None."""
    if shutil.which("java") is None:
        return "no JDK 17+ (java, javac) on the PATH"
    if not DEBEZIUM_PROGRAMS.exists():
        return f"no Debezium in {DEBEZIUM}: run `make peers`"
    return None


def missing_for_mysql() -> str | None:
    """Return why no MySQL server can run, as a sentence, or None."""
    return None if (MYSQL / ".complete").exists() else f"no MySQL server in {MYSQL}: run `make peers`"


def connector_jars() -> list[str]:
    """The jars of Spark's Kafka connector: those that $OTTLA_CONNECTOR_JARS names, else the fetched ones, if any."""
    named = os.environ.get("OTTLA_CONNECTOR_JARS")
    if named:
        return named.split(",")
    return sorted(map(str, CONNECTOR.glob("*.jar"))) if (CONNECTOR / ".complete").exists() else []


def missing_for_node() -> str | None:
    """Return the reason why kafkajs cannot run, as a sentence, or None."""
    if shutil.which("node") is None:
        return "no Node.js (node) on the PATH"
    if not (KAFKAJS / ".complete").exists():
        return f"no kafkajs in {KAFKAJS}: run `make peers`"
    return None


def missing_for_go(program: Path = FRANZ) -> str | None:
    """Return the reason why a program in Go cannot run, as a sentence, or None."""
    if not (program / ".complete").exists():
        return f"no {program.name} in {program}: install Go 1.26 or newer, and run `make peers`"
    return None
