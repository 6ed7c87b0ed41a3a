"""`ottla up --console`: a console beside the brokers, with the registry beside it, and with users and certificates."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ottla.config import load_properties
from ottla.network.sasl_settings import parse_jaas
from ottla.testing.ports import ReservedPort

START_S, STOP_S = 60.0, 40.0


@contextmanager
def up(directory: Path, names: tuple[str, ...], *words: str) -> Iterator[dict[str, str]]:
    """The addresses that the processes print, by name; all processes must stop cleanly."""
    out, log = directory / "out", directory / "log"
    data = ["--data", str(directory / "data"), "--listen", "127.0.0.1:0"]
    command = [sys.executable, "-m", "ottla.cli.main", "up", *data, *words]
    with out.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
    try:
        deadline = time.monotonic() + START_S
        while any(f"{name}=" not in out.read_text() for name in names):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield dict(line.split("=", 1) for line in out.read_text().splitlines() if "=" in line)
        process.terminate()
        assert process.wait(STOP_S) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(STOP_S)


@pytest.mark.parametrize("brokers", ["1", "3"])
def test_console_runs_and_stops_with_the_brokers(tmp_path: Path, brokers: str) -> None:
    registry = ReservedPort()
    words = ("--console=127.0.0.1:0", f"--registry=127.0.0.1:{registry.number}", "--brokers", brokers)
    with up(tmp_path, ("bootstrap", "registry", "console"), *words) as addresses:
        url = addresses["console"]
        assert len(httpx.get(f"{url}/?format=json").json()["brokers"]) == int(brokers)
        assert httpx.get(f"{url}/schemas?format=json").json()["subjects"] == []
    with pytest.raises(httpx.TransportError):
        httpx.get(url)


def test_log_lines_of_all_processes_are_json_by_option(tmp_path: Path) -> None:
    words = ("--log-format", "json", "--brokers", "2", "--console=127.0.0.1:0", "--registry=127.0.0.1:0")
    with up(tmp_path, ("registry", "console"), *words):
        pass
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {line["node"] for line in lines if "node" in line} == {1, 2}
    loggers = {line["logger"] for line in lines}
    assert "ottla.up" in loggers
    assert any(name.startswith("ottla.registry.") for name in loggers)
    assert all(line["time"].endswith("Z") and line["message"] for line in lines)


def test_console_of_a_secured_broker_signs_users_in(tmp_path: Path) -> None:
    registry = ReservedPort()
    words = ("--secure", "--console=127.0.0.1:0", f"--registry=127.0.0.1:{registry.number}")
    with up(tmp_path, ("registry", "console"), *words) as addresses:
        security = tmp_path / "data-security"
        _, login = parse_jaas(load_properties(security / "admin.properties")["sasl.jaas.config"])
        trusted = ssl.create_default_context(cafile=str(security / "ca.pem"))
        accepts = {"accept": "application/json"}
        with httpx.Client(base_url=addresses["console"], verify=trusted, headers=accepts, timeout=30) as http:
            assert http.get("/").status_code == 401
            form = http.get("/login", headers={"accept": "text/html"}).text
            token = form.partition('name="csrf" value="')[2].partition('"')[0]
            fields = {"csrf": token, "user": login["username"], "password": login["password"]}
            assert http.post("/login", data=fields).status_code in (200, 303)
            assert len(http.get("/").json()["brokers"]) == 1
            # The registry has a certificate of the same authority, and the same users.
            assert http.get("/schemas").json()["subjects"] == []


def test_console_needs_its_packages(tmp_path: Path) -> None:
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text("import sys\nsys.modules['jinja2'] = None\n")
    command = [sys.executable, "-m", "ottla.cli.main", "up", "--data", str(tmp_path / "data"), "--console", "0"]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    found = subprocess.run(command, capture_output=True, text=True, timeout=START_S, env=environment, check=False)
    assert found.returncode == 1
    assert "pip install 'ottla[console]'" in found.stderr
    assert "Traceback" not in found.stderr
