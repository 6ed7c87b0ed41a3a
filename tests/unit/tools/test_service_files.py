"""`ottla service` below a root directory: files, repetition, removal, and systemd's own check of the unit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.config import BrokerConfig
from ottla.tools import service_files
from ottla.tools.values import read_properties


def test_installation_is_repeatable_and_keeps_settings_and_data(tmp_path: Path) -> None:
    assert set(service_files.install(tmp_path, "/usr/bin/ottla").values()) == {"written"}
    settings = tmp_path / service_files.SETTINGS
    assert settings.stat().st_mode & 0o007 == 0
    settings.write_text("node.id=7\n")
    again = service_files.install(tmp_path, "/opt/ottla/bin/ottla")
    assert again[service_files.SETTINGS] == "unchanged"
    assert (
        "ExecStart=/opt/ottla/bin/ottla up --config /etc/ottla/server.properties"
        in (tmp_path / service_files.UNIT).read_text()
    )
    assert service_files.status(tmp_path, {})["installed"] is True
    assert service_files.uninstall(tmp_path)[service_files.UNIT] == "deleted"
    assert settings.read_text() == "node.id=7\n"
    assert service_files.status(tmp_path, {"ActiveState": "inactive", "MainPID": "0"}) == {
        "installed": False,
        "files": {service_files.USER_FILE: False, service_files.SETTINGS: True, service_files.UNIT: False},
        "active": "inactive",
        "enabled": None,
        "pid": None,
    }


def test_first_settings_are_a_node_for_this_machine_only(tmp_path: Path) -> None:
    service_files.install(tmp_path, "/usr/bin/ottla")
    config = BrokerConfig(read_properties(str(tmp_path / service_files.SETTINGS)))
    assert config.log_dirs == [service_files.DATA]
    assert {listener.host for listener in config.listeners} == {"127.0.0.1"}


def test_unit_is_valid_for_systemd(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    service_files.install(tmp_path, shutil.which("true") or "/bin/true")
    done = subprocess.run(
        [analyze, "verify", "--man=no", tmp_path / service_files.UNIT],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if "ottla.service" in line]
    assert not complaints
