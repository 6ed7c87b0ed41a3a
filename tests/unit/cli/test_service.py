"""`ottla service`: the programs of systemd that it calls."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from ottla.cli import service
from ottla.common.failure import Failure
from ottla.tools import service_files


def test_removal_waits_longer_than_systemd_waits_for_the_broker_to_stop() -> None:
    (unit,) = (file.text for file in service_files.files("/usr/bin/ottla") if file.path == service_files.UNIT)
    stop_s = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert stop_s is not None
    assert int(stop_s[1]) + 30 <= service._DEADLINE_S


def test_program_of_systemd_that_does_not_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(words: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(words, options["timeout"])

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(Failure, match="systemctl disable --now ottla is still running after 180 s") as failure:
        service._run("systemctl", "disable", "--now", "ottla")
    assert "systemctl list-jobs" in failure.value.advice[0]
