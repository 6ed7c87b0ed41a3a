"""Stock Apache Kafka on this machine: brokers in processes of their own, tools in one warm JVM.

`StockKafka(directory)` formats and starts brokers 1..N on free loopback ports and stops them within a deadline; the
directory outlives it, so that another broker can open what this one wrote. `tool(name, ...)` runs a command-line tool
to its end inside a shared JVM (ToolServer.java); `start_tool` runs one beside the test, for consumers that go on.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from .cache import HERE, KAFKA

TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-compatibility": "org.apache.kafka.tools.ClientCompatibilityTest",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "storage": "kafka.tools.StorageTool",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}
LOG4J = """\
Configuration:
  status: WARN
  appenders:
    Console: {name: STDERR, target: SYSTEM_ERR, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: STDERR}]}
"""
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0


class ToolError(Exception):
    """A tool did not come to its end in time, or took its JVM with it."""


# Short-lived JVMs on few cores: the first compiler tier and the serial collector start fastest.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# As Kafka's own start script has it, for benchmarks.
FULL_SPEED = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")


@cache
def class_archive() -> Path:
    """The archive of loaded classes for this JVM, which `archive_classes` makes; a start takes half the CPU time."""
    program = Path(shutil.which("java") or "java").resolve()
    age = program.stat().st_mtime_ns if program.exists() else 0
    return KAFKA / f"classes-{zlib.crc32(f'{program} {age}'.encode()):08x}.jsa"


def archive_classes(directory: Path) -> None:
    """Archive the classes that a stock broker loads, once for a JVM: ten seconds. `directory` is for its data."""
    archive = class_archive()
    if archive.exists():
        return
    made = directory / "classes.jsa"
    with StockKafka(directory, jvm_options=(f"-XX:ArchiveClassesAtExit={made}",)) as stock:
        address = ("--bootstrap-server", stock.bootstrap, "--topic", "t")
        tool("console-producer", *address, input="one\n")
        tool("console-consumer", *address, "--from-beginning", "--max-messages", "1", "--group", "g")
    if made.exists():  # a JVM that cannot archive classes works without
        unfinished = archive.with_suffix(f".{os.getpid()}")
        shutil.copy(made, unfinished)
        unfinished.replace(archive)


def java(
    main: str, *arguments: str, heap: str = "512m", options: tuple[str, ...] = QUICK_START, more: tuple[str, ...] = ()
) -> list[str]:
    """The command line that runs a class (or a .java file) with Kafka's jars."""
    jvm = [f"-Xmx{heap}", "-Djava.awt.headless=true", *more]
    if options == QUICK_START and not more and class_archive().exists():
        # The JVM ignores an archive of other jars, and warns on standard output by default.
        jvm += [f"-XX:SharedArchiveFile={class_archive()}", "-Xlog:disable", "-Xlog:all=error:stderr"]
    log4j = f"-Dlog4j2.configurationFile={KAFKA / 'log4j2.yaml'}"
    return ["java", *jvm, *options, log4j, "-cp", f"{KAFKA}/*", main, *arguments]


def stop_process(process: subprocess.Popen[str], timeout_s: float = STOP_TIMEOUT_S) -> int:
    """SIGTERM, and SIGKILL after the deadline; returns the exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait(timeout_s)


class _ToolJvm:
    """The warm JVM; it is replaced after a tool that hung or killed it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._lock = threading.Lock()

    def run(
        self, main: str, arguments: tuple[str, ...], input_text: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        with self._lock:
            process = self._process if self._process and self._process.poll() is None else self._start()
            assert process.stdin is not None
            process.stdin.write(" ".join(_encode(word) for word in (main, input_text, *arguments)) + "\n")
            process.stdin.flush()
            command = [main, *arguments]
            try:
                answer = self._answers.get(timeout=timeout_s)
            except queue.Empty:
                self.close()
                raise ToolError(f"{' '.join(command)} did not end within {timeout_s} s") from None
        if not answer:
            raise ToolError(f"{' '.join(command)} ended its JVM")
        code, out, err = answer.split()
        return subprocess.CompletedProcess(command, int(code), _decode(out), _decode(err))

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            java(str(HERE / "ToolServer.java")), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answers = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=_pump, args=(self._process.stdout, self._answers), daemon=True).start()
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            self._process = None


def _pump(lines: IO[str], answers: queue.Queue[str]) -> None:
    with contextlib.suppress(ValueError):  # closed by close() while we wait
        for line in lines:
            answers.put(line)
    answers.put("")


def _encode(text: str) -> str:
    return "b" + base64.b64encode(text.encode()).decode()


def _decode(word: str) -> str:
    return base64.b64decode(word[1:]).decode()


_tool_jvm = _ToolJvm()
atexit.register(_tool_jvm.close)


def tool(
    name: str,
    *arguments: object,
    input: str = "",  # noqa: A002 - as subprocess.run has it
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run a stock tool to its end; stdout, stderr and exit code as of a process. Raises ToolError after `timeout` s."""
    return _tool_jvm.run(TOOLS[name], tuple(str(a) for a in arguments), input, timeout)


def start_tool(name: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a stock tool in a process of its own; end it with `stop_process`."""
    pipe = subprocess.PIPE
    command = java(TOOLS[name], *(str(a) for a in arguments), heap="256m")
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def free_ports(count: int) -> list[int]:
    """Loopback ports that are free now; all distinct."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _random_id() -> str:
    """A random id, with a fixed first byte: one that begins with "-" is an option to `storage format`."""
    return base64.urlsafe_b64encode(b"o" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


class StockKafka:
    """Stock brokers 1..N (the first three are the controllers too), formatted and started on entry, stopped on exit.

    `directory`/node-I/data is broker I's log directory; an already formatted directory is opened as it is.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 1,
        overrides: Mapping[str, object] | None = None,
        *,
        for_speed: bool = False,
        dynamic: bool = False,
        format_options: Sequence[str] = (),
        jvm_options: tuple[str, ...] = (),
    ) -> None:
        """`overrides` are settings of every broker. `dynamic`: the voters are in the log (kraft.version 1, KIP-853)."""
        self.directory = directory.resolve()
        self._options = FULL_SPEED if for_speed else QUICK_START
        self.cluster_id = _random_id()
        self.bootstrap = ""
        self._brokers = brokers
        self._overrides = dict(overrides or {})
        self._format_options = list(format_options)
        self._is_dynamic = dynamic
        self._jvm_options = jvm_options
        self._node_ports: list[int] = []
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def data(self, node: int = 1) -> Path:
        """The log directory of a broker."""
        return self.directory / f"node-{node}" / "data"

    @property
    def pids(self) -> list[int]:
        """The process ids of the brokers, in order."""
        return [process.pid for process in self._processes]

    def alive(self) -> bool:
        """Whether every broker process runs."""
        return all(process.poll() is None for process in self._processes)

    def start(self) -> str:
        """Format, start, wait until all listen; returns the bootstrap servers. Raises TimeoutError after 90 s."""
        self._node_ports = ports = free_ports(self._brokers * 2)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports[: self._brokers])
        if self._is_dynamic:
            voters = [f"{i + 1}@{address}:{_random_id()}" for i, address in enumerate(self.controllers)]
            self._format_options += ["--initial-controllers", ",".join(voters)]
        for index in range(self._brokers):
            self._format(index, ports)
        for index in range(self._brokers):
            self._processes.append(self._launch(index))
        try:
            self._wait_for(ports[: self._brokers], self._processes)
        except BaseException:
            self.stop()
            raise
        return self.bootstrap

    def stop(self) -> None:
        """Stop all brokers cleanly; kill those that do not end within 20 s."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            stop_process(process)
        self._processes.clear()

    def kill_node(self, node: int) -> None:
        """Kill -9."""
        self._processes[node - 1].kill()
        self._processes[node - 1].wait(STOP_TIMEOUT_S)

    def stop_node(self, node: int) -> None:
        """Stop a broker cleanly; it is killed if it does not end within 20 s."""
        stop_process(self._processes[node - 1])

    def start_node(self, node: int) -> None:
        """Start a broker again, and wait until it listens. Raises TimeoutError."""
        self._processes[node - 1] = self._launch(node - 1)
        self._wait_for(self._node_ports[node - 1 : node], self._processes[node - 1 : node])

    @property
    def controllers(self) -> list[str]:
        """The addresses of the controllers, in order."""
        return [f"127.0.0.1:{port}" for port in self._node_ports[self._brokers :][: min(self._brokers, 3)]]

    def _format(self, index: int, ports: list[int]) -> None:
        home = self.directory / f"node-{index + 1}"
        home.mkdir(parents=True, exist_ok=True)
        properties = home / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._settings(index, ports).items()))
        how = ("-t", self.cluster_id, "-c", properties, "--ignore-formatted", *self._format_options)
        formatted = tool("storage", "format", *how)
        if formatted.returncode:
            raise RuntimeError(f"cannot format {home}: {formatted.stdout}{formatted.stderr}")

    def _launch(self, index: int) -> subprocess.Popen[str]:
        home = self.directory / f"node-{index + 1}"
        with (home / "server.log").open("a") as log:
            properties = str(home / "server.properties")
            command = java("kafka.Kafka", properties, heap="1g", options=self._options, more=self._jvm_options)
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                cwd=home,
                env=os.environ | {"LC_ALL": "C.UTF-8"},
            )

    def _settings(self, index: int, ports: list[int]) -> dict[str, object]:
        replicas = min(self._brokers, 3)
        is_voter = index < len(self.controllers)
        listeners = f"PLAINTEXT://127.0.0.1:{ports[index]}"
        if is_voter:
            listeners += f",CONTROLLER://127.0.0.1:{ports[self._brokers + index]}"
        return {
            "node.id": index + 1,
            "process.roles": "broker,controller" if is_voter else "broker",
            **self._quorum_settings(),
            "listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.data(index + 1),
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": 8,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": max(1, replicas - 1),
            "transaction.state.log.num.partitions": 8,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": max(1, replicas - 1),
            "group.initial.rebalance.delay.ms": 0,
            **self._overrides,
        }

    def _quorum_settings(self) -> dict[str, object]:
        if self._is_dynamic:
            return {"controller.quorum.bootstrap.servers": ",".join(self.controllers)}
        voters = (f"{i + 1}@{address}" for i, address in enumerate(self.controllers))
        return {"controller.quorum.voters": ",".join(voters)}

    def _wait_for(self, ports: list[int], processes: list[subprocess.Popen[str]]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        for port in ports:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 0.2).close()
                    break
                except OSError:
                    ended = any(process.poll() is not None for process in processes)
                    if ended or time.monotonic() > deadline:
                        logs = self.directory / "node-*" / "server.log"
                        raise TimeoutError(f"stock Kafka does not listen on port {port}: see {logs}") from None
                    time.sleep(0.05)
