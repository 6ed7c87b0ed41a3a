"""Connectors of installed packages, found by their entry points: a broken one must not hide the others."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ottla.testing import Ottla
from ottla.testing.waiting import wait_until
from tests.connect.rest.worker_process import WorkerProcess

GOOD = '''
from ottla.connect import source

@source("readings", topic="readings", wait_s=0.05)
def readings(config, after, limit):
    """Return one row."""
    return ([{"number": 1}], 1) if after is None else ([], after)
'''
UNFINISHED = """
from ottla.connect.api import Connector, Kind

class Unfinished(Connector):
    kind = Kind.SINK
"""
BROKEN = {
    "needs-a-package": ("weather.needs:connector", "import no_such_package_1\n", "needs the package no_such_package_1"),
    "raises": ("weather.raises:connector", "1 / 0\n", "ZeroDivisionError: division by zero"),
    "exits": ("weather.exits:connector", "import sys; sys.exit('bye')\n", "SystemExit: bye"),
    "not-a-connector": ("weather.text:connector", "connector = 'text'\n", "is not a Connector: it is a str"),
    "unfinished": ("weather.unfinished:Unfinished", UNFINISHED, "has no version and no config_def and no task_class"),
    "no-module": ("weather.nothing:connector", "", "There is no module weather.nothing"),
    "no-attribute": ("weather.good:nothing", "", "has no attribute nothing"),
}


def wheel(directory: Path) -> Path:
    """Write a wheel with a good connector and broken ones."""
    files = {"weather/__init__.py": "", "weather/good.py": GOOD}
    for target, text, _ in BROKEN.values():
        if text:
            files[target.partition(":")[0].replace(".", "/") + ".py"] = text
    info = "weather-1.2.dist-info"
    entries = {"weather": "weather.good:readings"} | {name: row[0] for name, row in BROKEN.items()}
    lines = "".join(f"{name} = {target}\n" for name, target in entries.items())
    files[f"{info}/entry_points.txt"] = f"[ottla.connectors]\n{lines}"
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: weather\nVersion: 1.2\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = directory / "weather-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        record = ""
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            record += f"{name},sha256={digest},{len(text.encode())}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with the installed package."""
    directory = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(directory)]
    subprocess.run([*command, str(wheel(tmp_path))], check=True, capture_output=True, timeout=120)
    return directory


def test_broken_connectors_of_a_package_are_logged_and_the_others_work(
    ottla: Ottla, tmp_path: Path, site: Path
) -> None:
    topic = ottla.topic()
    words = ("serve", "-b", ottla.bootstrap, "--group", topic, "--listen", "127.0.0.1:0")
    with WorkerProcess(tmp_path / "worker", *words, python_path=[site]) as worker:
        rows = worker.request("GET", "/connector-plugins?connectorsOnly=false").body
        classes = [row["class"] for row in rows]
        assert [row["type"] for row in rows if row["class"].startswith("weather")] == ["source"]
        assert "weather.good:readings" in classes
        assert "org.apache.kafka.connect.file.FileStreamSinkConnector" in classes
        for name, (target, _, text) in BROKEN.items():
            assert f"Skipping the connector {name} of the package weather 1.2, which cannot be loaded: " in worker.log()
            assert text in worker.log()
            assert target not in classes
            answer = worker.request("POST", "/connectors", {"name": "x", "config": {"connector.class": name}})
            assert answer.status in (400, 500), answer
            assert text in answer.body["message"]
        assert worker.log().count("Skipping the connector") == len(BROKEN)
        config = {"connector.class": "weather", "topic": topic, "value.converter": "JsonConverter"}
        assert worker.request("POST", "/connectors", {"name": "good", "config": config}).status == 201
        wait_until(lambda: len(ottla.records(topic)) == 1, 30.0)
        assert worker.stop() == 0
