"""The SCRAM password of a connector's user is changed while its worker runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.clients import Admin
from ottla.clients.admin import ScramUpsertion
from ottla.testing import Ottla
from tests.connect.secured.workers import (
    ADMIN,
    BROKER,
    GROUP,
    TEAM,
    WORKER,
    WORKER_ACLS,
    SecuredWorker,
    Stores,
    accepted,
    allow,
    connector_acls,
    running,
    states,
    until,
)

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("connect-secured")]
OLD, NEW = "first-secret", "second-secret"


def test_a_changed_password_is_named_and_the_new_one_is_used_after_a_restart(
    ottla_broker: Callable[..., Ottla], tmp_path: Path
) -> None:
    kafka = ottla_broker(BROKER, security="SASL_SSL", users=[ADMIN, WORKER, TEAM])
    secrets, out = tmp_path / "secrets.properties", tmp_path / "out.txt"
    secrets.write_text(f"team={OLD}\n")
    with Admin(kafka.settings(user=ADMIN)) as admin:
        allow(admin, WORKER, WORKER_ACLS)
        allow(admin, TEAM, connector_acls("copy", "lines"))
        admin.create_topic("lines")
        admin.alter_scram_credentials([ScramUpsertion(TEAM, OLD)])
    copy = {
        "connector.class": "FileStreamSink", "topics": "lines", "file": str(out),
        "consumer.override.sasl.mechanism": "SCRAM-SHA-512", "consumer.override.sasl.username": TEAM,
        "consumer.override.sasl.password": f"${{file:{secrets}:team}}",
    }  # fmt: skip
    settings = {
        **kafka.settings(user=WORKER), "group.id": GROUP, "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "200", "value.converter": "StringConverter",
    }  # fmt: skip
    worker = SecuredWorker(tmp_path / "w", Stores(tmp_path), settings, "serve")
    with running(worker):
        accepted(worker, "PUT", "/connectors/copy/config", copy)
        until(lambda: states(worker, "copy") == ["RUNNING"] * 2, worker.log)
        with Admin(kafka.settings(user=ADMIN)) as admin:
            admin.alter_scram_credentials([ScramUpsertion(TEAM, NEW)])
        # An open connection stays; the next one has to log in.
        accepted(worker, "POST", "/connectors/copy/restart?includeTasks=true")
        until(lambda: states(worker, "copy") == ["RUNNING", "FAILED"], worker.log)
        status = worker.request("GET", "/connectors/copy/status").text
        for text in (status, worker.log()):
            assert "refuses to log in by SCRAM-SHA-512" in text
            assert "invalid credentials" in text
        secrets.write_text(f"team={NEW}\n")
        accepted(worker, "POST", "/connectors/copy/restart?includeTasks=true&onlyFailed=true")
        until(lambda: states(worker, "copy") == ["RUNNING"] * 2, worker.log)
        for secret in (OLD, NEW):
            assert secret not in worker.log() + status
        assert worker.stop() == 0
