"""Statuses in the topic `__ottla_streams`, and a run that cannot publish them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest

from ottla.streams import publishing
from ottla.streams.publishing import Publisher
from ottla.streams.status import TOPIC, Run, Status

if TYPE_CHECKING:
    from ottla.testing import Ottla

STATUS = Status(Run("p", "p.q"), at_ms=1)


def test_latest_status_is_published_at_the_end(ottla: Ottla) -> None:
    publisher = Publisher({"bootstrap.servers": ottla.bootstrap})
    publisher.offer(STATUS)
    publisher.offer(Status(STATUS.run, at_ms=2))  # neither due nor another phase
    ottla.wait_until(lambda: len(ottla.records(TOPIC)) == 1)
    publisher.offer(Status(STATUS.run, "stopped", at_ms=3))
    publisher.close()
    records = ottla.records(TOPIC)
    assert [record.key for record in records] == [b"p/p.q", b"p/p.q"]
    assert [Status.loads(record.value or b"").phase for record in records] == ["running", "stopped"]
    again = Publisher({"bootstrap.servers": ottla.bootstrap})
    again.offer(STATUS)
    again.close()
    assert len(ottla.records(TOPIC)) == 3


def test_unavailable_broker_is_one_warning_and_no_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(publishing, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(publishing, "CLOSE_S", 0.5)
    caplog.set_level(logging.WARNING, "ottla.streams")
    publisher = Publisher({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "100"})
    started_s = time.monotonic()
    publisher.offer(STATUS)
    assert time.monotonic() - started_s < 0.1
    publisher.close()
    assert time.monotonic() - started_s < 5
    warnings = [each for each in caplog.records if each.name == "ottla.streams"]
    assert len(warnings) <= 1
    publisher._thread.join(10)
    assert not publisher._thread.is_alive()
