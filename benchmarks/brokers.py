"""The two brokers of a race as processes, and their cost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.ottla_process import OttlaProcess
from tests.peers.kafka import StockKafka, free_ports
from tests.peers.secured import Certificates

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


PASSWORD = "bench-secret"
# Groups begin at once, so that no race waits for what it does not measure; deleted topics soon make room.
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "log.segment.delete.delay.ms": 1000}


class Address(Protocol):
    """A broker or a cluster that clients connect to."""

    @property
    def name(self) -> str: ...

    @property
    def bootstrap(self) -> str: ...


class Start(Protocol):
    """Starts one more broker of its kind in a directory."""

    def __call__(
        self, directory: Path, settings: Mapping[str, object] = SETTINGS
    ) -> contextlib.AbstractContextManager[Broker]: ...


def cpu_times(pid: int) -> tuple[float, float]:
    """User time and system time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) / _TICKS, int(fields[12]) / _TICKS


def resident_mb(pid: int) -> float:
    """Memory that a process holds now, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6


@dataclass(frozen=True)
class Broker:
    """A running broker."""

    name: str
    bootstrap: str
    pid: int
    another: Start
    data: Path
    """Where its partitions' directories are."""
    secured: Mapping[str, str] = field(default_factory=dict)
    """The settings of librdkafka for its listener with SASL_SSL, where it has one."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.bootstrap.rsplit(":", 1)
        return host, int(port)

    def cpu_seconds(self) -> float:
        """User and system time of its process so far."""
        return sum(self.cpu_times())

    def cpu_times(self) -> tuple[float, float]:
        """User time and system time of its process so far, in seconds."""
        return cpu_times(self.pid)

    def age_seconds(self) -> float:
        """How long ago its process began, to a hundredth of a second."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS

    def stop_in_order(self, seconds: float = 100.0) -> None:
        """Ask it to stop and wait until it has: one with many partitions takes longer than who starts it waits."""
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not stop within {seconds} s")
            time.sleep(0.05)

    def resident_mb(self) -> float:
        """Memory that it holds now, in MB."""
        return resident_mb(self.pid)


class _Listener:
    """A listener with SASL_SSL and PLAIN, beside the one without: its settings for a broker and for librdkafka."""

    def __init__(self, directory: Path) -> None:
        certificates = Certificates(directory / "certificates")
        self.url = f"SASL_SSL://127.0.0.1:{free_ports(1)[0]}"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self.broker: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificates.server,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} required user_bench="{PASSWORD}";',
        }
        self.client = {
            "bootstrap.servers": self.url.removeprefix("SASL_SSL://"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "bench",
            "sasl.password": PASSWORD,
        }


class _Ottla(OttlaProcess):
    """Ottla with one more listener."""

    def __init__(self, directory: Path, settings: Mapping[str, object], listener: _Listener) -> None:
        super().__init__(directory, {**settings, **listener.broker})
        self._listener = listener

    def command(self) -> list[str]:
        command = super().command()
        place = command.index("--listen")
        listeners = f"listeners=PLAINTEXT://{command[place + 1]},{self._listener.url}"
        return [*command[:place], *command[place + 2 :], "-X", listeners]


class _Kafka(StockKafka):
    """Stock Kafka with one more listener."""

    def __init__(self, directory: Path, settings: Mapping[str, object], listener: _Listener) -> None:
        super().__init__(directory, overrides={**settings, **listener.broker}, for_speed=True)
        self._listener = listener

    def _settings(self, index: int, ports: list[int]) -> dict[str, object]:
        settings = super()._settings(index, ports)
        settings["listeners"] = f"{settings['listeners']},{self._listener.url}"
        settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
        return settings


@contextlib.contextmanager
def start_ottla(directory: Path, settings: Mapping[str, object] = SETTINGS) -> Iterator[Broker]:
    """Ottla with its defaults."""
    listener = _Listener(directory)
    with _Ottla(directory, settings, listener) as process:
        yield Broker("ottla", process.bootstrap, process.pid, start_ottla, process.data, listener.client)


@contextlib.contextmanager
def start_kafka(directory: Path, settings: Mapping[str, object] = SETTINGS) -> Iterator[Broker]:
    """Stock Kafka, one node, controller and broker, with the JVM's own defaults and a heap of 1 GiB."""
    listener = _Listener(directory)
    kafka = _Kafka(directory, settings, listener)
    formatted = kafka.data() / "meta.properties"
    if formatted.exists():
        kafka.cluster_id = formatted.read_text().partition("cluster.id=")[2].split()[0]
    with kafka:
        yield Broker("kafka", kafka.bootstrap, kafka.pids[0], start_kafka, kafka.data(), listener.client)
