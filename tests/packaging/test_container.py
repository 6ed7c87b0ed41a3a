"""The container image without a container runtime: its steps in a plain directory, as Kafka's users start the image.

`layout.sh` creates the image's paths below a directory, and OTTLA_CONTAINER_ROOT makes the entry point use them.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from tools import dependencies

from ottla.clients import Admin, Consumer, Producer
from ottla.testing.ports import ReservedPort

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "container"
EXAMPLES = ROOT / "examples" / "testcontainers"
# A minimal Debian 12 with its Python and compiled bytecode, without perl, apt and gconv: measured with debootstrap.
BASE_BYTES = 96_000_000
LARGEST_IMAGE_BYTES = 150_000_000
WITH_BYTECODE = 2.75
"""Bytes of a module and its bytecode for each byte of the module: 2.71 for Ottla and 2.18 for its dependencies."""
# The scripts that modules of testcontainers copy into the image and run, with other paths and names for the hosts.
JAVA = """#!/bin/bash
export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{client},BROKER://localhost:{broker}
{root}/etc/kafka/docker/run
"""
PYTHON = """#!/bin/bash
sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' {root}/etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t x -c /etc/kafka.properties' >> {root}/etc/confluent/docker/configure
echo '' > {root}/etc/confluent/docker/ensure
export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{client},BROKER://localhost:{broker}
. {root}/etc/confluent/docker/bash-config
{root}/etc/confluent/docker/configure
{root}/etc/confluent/docker/launch
"""
RUNNING = {"bash": r".*Transitioning from RECOVERY to RUNNING.*", "sh": r".*Kafka Server started.*"}


class Image:
    """The paths of the image below a directory, the environment of a module of testcontainers, and its process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        subprocess.run([DEPLOY / "layout.sh", root, sys.executable], check=True, timeout=60)
        self.ports = {name: ReservedPort() for name in ("client", "broker", "controller")}
        numbers = {name: port.number for name, port in self.ports.items()}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
            "PATH": f"{root}/usr/local/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OTTLA_CONTAINER_ROOT": str(root),
            "OTTLA_DATA": str(root / "var/lib/kafka/data"),
            "CLUSTER_ID": "4L6g3nShT+eMCtK++X86sw==",
            "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:{client},BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:{controller}",
            "KAFKA_NODE_ID": "1",
            "KAFKA_BROKER_ID": "1",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": str(2**63 - 1),
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        }
        self.environment |= {
            name: value.format(**numbers) for name, value in self.environment.items() if name.startswith("KAFKA_")
        }
        self.bootstrap = f"127.0.0.1:{numbers['client']}"
        self._numbers = numbers
        self._process: subprocess.Popen[bytes] | None = None
        self._log = root / "log"

    def start(self, shell: str, script: str, deadline_s: float = 90) -> None:
        """Run a start script, and wait for the line that the module waits for."""
        path = self.root / "tmp" / "testcontainers_start.sh"
        path.write_text(script.format(root=self.root, **self._numbers))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [shell, path], env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, process_group=0
            )
        deadline = time.monotonic() + deadline_s
        while not re.search(RUNNING[shell], self._log.read_text()):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the environment of the image, as `docker exec` does."""
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, check=False)

    def stop(self, deadline_s: float = 60) -> str:
        """Stop its processes, and return the output. The shell ends before the broker, which is its child."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(deadline_s)
            deadline = time.monotonic() + deadline_s
            with contextlib.suppress(ProcessLookupError):
                while time.monotonic() < deadline:
                    os.killpg(process.pid, 0)
                    time.sleep(0.05)
                os.killpg(process.pid, signal.SIGKILL)
        return self._log.read_text() if self._log.exists() else ""


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    image = Image(tmp_path / "image")
    yield image
    image.stop()


def test_start_scripts_of_testcontainers_start_a_broker(image: Image) -> None:
    """First the script of the modules for Python and Go, then the one for Java, on the same data."""
    image.start("sh", PYTHON)
    with Admin(bootstrap_servers=image.bootstrap) as admin:
        admin.create_topic("t", partitions=2)
        assert admin.describe_cluster().cluster_id == "4L6g3nShT-eMCtK--X86sw"
    with Producer(bootstrap_servers=image.bootstrap) as producer:
        producer.send("t", b"one").result(30)
    assert "Stopped cleanly" in image.stop()

    image.start("bash", JAVA)
    alive = image.run(str(image.root / "etc/kafka/docker/health"))
    assert (alive.returncode, alive.stdout) == (0, "live\n"), alive.stderr
    healthy = image.run("ottla", "health", "ready", "-b", image.bootstrap)
    assert (healthy.returncode, healthy.stdout) == (0, "node 1: ready\n"), healthy.stderr
    listed = image.run("kafka-topics", "--bootstrap-server", image.bootstrap, "--list")
    assert "t" in listed.stdout.split(), listed.stderr
    settings = {"bootstrap.servers": image.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe("t")
        values: list[bytes | None] = []
        for _ in range(60):
            values += [record.value for record in consumer.poll(1)]
            if values:
                break
    assert values == [b"one"]
    assert "Traceback" not in image.stop()
    stopped = image.run("ottla", "health", "live", "-b", image.bootstrap, "--timeout", "1s")
    assert (stopped.returncode, stopped.stdout[:17]) == (1, "node 1: silent; n"), stopped.stdout
    assert image.run(str(image.root / "etc/kafka/docker/health")).returncode == 1


def test_image_without_spark_is_small(tmp_path: Path) -> None:
    """The part of Ottla is measured, without compiling it."""
    if shutil.which("strip") is None:
        pytest.skip("needs strip (binutils)")
    site = tmp_path / "lib" / "python3" / "site-packages"
    project = dependencies.project_table()
    extras = {dependencies.BASE, "security"}
    for each in dependencies.dependencies(project):
        if each.extras & extras:
            for file in metadata.distribution(each.name).files or []:
                path = Path(str(file.locate()))
                if path.is_file() and ".." not in file.parts and path.suffix != ".pyc":
                    (site / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, site / file)
    shutil.copytree(
        ROOT / "src", site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.c", "__pycache__", "*.egg-info")
    )
    subprocess.run([DEPLOY / "slim.sh", tmp_path], check=True, timeout=120)
    files = [path for path in site.rglob("*") if path.is_file()]
    own = sum(path.stat().st_size * (WITH_BYTECODE if path.suffix == ".py" else 1) for path in files)
    assert not [path for path in files if path.suffix in {".pxd", ".pyx"}]
    assert own + BASE_BYTES < LARGEST_IMAGE_BYTES, f"{own / 1e6:.0f} MB"


def test_dockerfile_is_for_an_unprivileged_user_and_a_read_only_file_system() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    instructions = [line.split()[0] for line in lines if re.match(r"[A-Z]+ ", line)]
    assert instructions.count("FROM") == 4
    assert {"HEALTHCHECK", "USER", "VOLUME", "STOPSIGNAL", "CMD"} <= set(instructions)
    # A module of testcontainers replaces the command: an entry point would receive it as arguments.
    assert "ENTRYPOINT" not in instructions
    assert 'CMD ["/etc/kafka/docker/run"]' in lines
    for copied in re.findall(r"deploy/container/[\w.]+", "\n".join(lines)):
        assert (ROOT / copied).exists()


def test_node_that_recovers_for_hours_is_not_unhealthy() -> None:
    """Runtimes count failures during the start period only after the first success."""
    text = (DEPLOY / "Dockerfile").read_text()
    period = re.search(r"--start-period=(\d+)h ", text)
    assert period is not None
    assert int(period[1]) >= 6
    assert 'CMD ["/etc/kafka/docker/health"]' in text
    assert "program /etc/kafka/docker/health " in (DEPLOY / "layout.sh").read_text()


def test_entry_point_writes_only_below_tmp_if_its_directories_are_read_only(tmp_path: Path) -> None:
    image = Image(tmp_path / "image")
    shutil.rmtree(image.root / "opt/kafka/config")
    done = image.run(str(image.root / "etc/kafka/docker/configure"))
    assert done.returncode == 0, done.stderr
    assert "node.id=1\n" in (image.root / "tmp/ottla/server.properties").read_text()


def test_example_for_python_compiles_and_names_the_image() -> None:
    source = (EXAMPLES / "test_orders.py").read_text()
    ast.parse(source)
    assert 'KafkaContainer("ottla:latest")' in source


def test_example_for_go_is_formatted() -> None:
    gofmt = shutil.which("gofmt")
    if gofmt is None:
        pytest.skip("needs Go")
    done = subprocess.run(
        [gofmt, "-l", "-e", EXAMPLES / "orders_test.go"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_example_for_java_has_no_syntax_error(tmp_path: Path) -> None:
    """The parser runs alone: the classes of testcontainers are not on this machine."""
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("needs a JDK")
    command = [javac, "-proc:none", "-XDshould-stop.ifError=PARSE", "-d", tmp_path, EXAMPLES / "OrdersTest.java"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    unknown = re.compile(r"error: (package .* does not exist|cannot find symbol|static import only|.* not a directory)")
    assert not [line for line in errors if not unknown.search(line)], done.stderr
