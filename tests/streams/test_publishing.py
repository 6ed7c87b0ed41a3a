"""Statuses in the topic `__ottla_streams`, and a run that cannot publish them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest

from ottla.clients import Admin
from ottla.streams import publishing
from ottla.streams.publishing import Publisher, commit_offsets
from ottla.streams.status import TOPIC, Input, Partition, Run, Status

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


def stopped(query: str, batches: int) -> Status:
    inputs = (Input.of("lines", [Partition(0, 3, 5), Partition(1, 2, 2)]),)
    return Status(Run("p", query), "stopped", 1, batches=batches, inputs=inputs)


def test_stopped_query_has_no_lag_that_its_checkpoint_does_not_have(ottla: Ottla) -> None:
    ottla.topic("lines", 2)
    commit_offsets({"bootstrap.servers": ottla.bootstrap}, [stopped("p", 1), stopped("p.q", 2), stopped("new", 0)])
    with Admin(ottla.bootstrap) as admin:
        for group in ("p", "p.q"):
            found = admin.list_group_offsets(group)
            assert {tp.partition: row.offset for tp, row in found.items()} == {0: 3, 1: 2}
        assert "new" not in [each.group_id for each in admin.list_groups()]
        admin.delete_group("p")
        admin.delete_group("p.q")


def test_stop_does_not_wait_long_for_a_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(publishing, "COMMIT_S", 0.2)
    started_s = time.monotonic()
    commit_offsets({"bootstrap.servers": "127.0.0.1:1"}, [stopped("p", 1)])
    assert time.monotonic() - started_s < 5
    assert "not committed" in caplog.text
