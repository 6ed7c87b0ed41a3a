"""Log lines about records that fail."""

from __future__ import annotations

import logging

import pytest

from ottla.connect.errors import DataError
from ottla.connect.records import SourceRecord
from ottla.connect.runtime import TaskId
from ottla.connect.worker.control import TaskControl
from ottla.connect.worker.providers import Secrets
from ottla.connect.worker.task_settings import ErrorSettings
from ottla.connect.worker.tolerance import Failure, Stage, Tolerance


def test_log_of_a_failed_record_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    settings = ErrorSettings.read(
        {"errors.tolerance": "all", "errors.log.enable": "true", "errors.log.include.messages": "true"}
    )
    tolerance = Tolerance(TaskId("c", 0), settings, TaskControl(), hide=Secrets(["hunter2"]).hide)
    record = SourceRecord("t", None, None, None, None, None, source_partition={"url": "http://u:hunter2@h"})
    with caplog.at_level(logging.ERROR):
        tolerance.failed(Failure(Stage.VALUE_CONVERTER, "C", DataError("login by hunter2 failed"), source=record))
    assert "for topic t: login by" in caplog.text
    assert "hunter2" not in caplog.text
