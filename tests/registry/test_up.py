"""`ottla up --registry`: a registry beside the brokers, also with users and certificates."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ottla.config import load_properties
from ottla.network.sasl_settings import parse_jaas
from tests.registry.registrations import register, schema_text, wait_until

START_S, STOP_S = 60.0, 40.0
QUICK = ["-X", "group.initial.rebalance.delay.ms=0"]


@contextlib.contextmanager
def up(directory: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """The process, and the addresses of the broker and of the registry."""
    out, log = directory / "out", directory / "log"
    command = [sys.executable, "-m", "ottla.cli.main", "up", "--data", str(directory / "data"), *QUICK, *words]
    with out.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=stdout, stderr=stderr)
    try:
        deadline = time.monotonic() + START_S
        while "registry=" not in out.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        lines = out.read_text().splitlines()
        registry = next(line for line in lines if line.startswith("registry="))
        yield process, lines[0].removeprefix("bootstrap="), registry.removeprefix("registry=")
        process.terminate()
        assert process.wait(STOP_S) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(STOP_S)


def is_served(url: str) -> bool:
    try:
        httpx.get(f"{url}/subjects", timeout=2)
    except httpx.TransportError:
        return False
    return True


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_registry_runs_and_stops_with_the_brokers(tmp_path: Path, brokers: str) -> None:
    with up(tmp_path, "--registry=127.0.0.1:0", "--brokers", brokers) as (_, _, url), httpx.Client() as client:
        register(client, url, "a", schema_text("A"))
    assert not is_served(url)


def test_registry_does_not_outlive_a_killed_broker(tmp_path: Path) -> None:
    with contextlib.suppress(AssertionError), up(tmp_path, "--registry=127.0.0.1:0") as (process, _, url):
        os.kill(process.pid, signal.SIGKILL)
        process.wait(STOP_S)
    wait_until(lambda: not is_served(url))


def test_secured_registry_has_the_users_of_the_broker(tmp_path: Path) -> None:
    with up(tmp_path, "--secure", "--registry=127.0.0.1:0") as (_, _, url):
        security = tmp_path / "data-security"
        _, login = parse_jaas(load_properties(security / "admin.properties")["sasl.jaas.config"])
        trusted = ssl.create_default_context(cafile=str(security / "ca.pem"))
        assert url.startswith("https://")
        with httpx.Client(verify=trusted) as client:
            assert client.get(f"{url}/subjects").status_code == 401
            client.auth = httpx.BasicAuth(login["username"], login["password"])
            register(client, url, "a", schema_text("A"))
