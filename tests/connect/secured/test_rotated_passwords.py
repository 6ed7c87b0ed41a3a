"""The SCRAM password of a connector's user, or of the worker's own, is changed while the worker runs."""

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


def test_a_changed_password_of_a_connector_is_named_and_the_new_one_is_used(
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

        def refused() -> str:
            text = worker.request("GET", "/connectors/copy/status").text
            return text if "refuses to log in by SCRAM-SHA-512" in text else ""

        status = until(refused, worker.log)
        assert states(worker, "copy") == ["RUNNING", "RESTARTING"]
        assert "refuses to log in by SCRAM-SHA-512" in worker.log()
        for text in (status, worker.log()):
            assert "invalid credentials" in text
        assert "The credentials are read again for each try" in status
        secrets.write_text(f"team={NEW}\n")
        until(lambda: states(worker, "copy") == ["RUNNING"] * 2, worker.log)
        for secret in (OLD, NEW):
            assert secret not in worker.log() + status
        assert worker.stop() == 0


def test_a_changed_password_of_the_worker_is_named_and_the_new_one_is_used(
    ottla_broker: Callable[..., Ottla], tmp_path: Path
) -> None:
    # Without this setting an open connection would stay for ever.
    kafka = ottla_broker({**BROKER, "connections.max.reauth.ms": 2000}, security="SASL_SSL", users=[ADMIN, WORKER])
    secrets, lines, out = tmp_path / "secrets.properties", tmp_path / "in.txt", tmp_path / "out.txt"
    secrets.write_text(f"worker={OLD}\n")
    lines.write_text("one\n")
    with Admin(kafka.settings(user=ADMIN)) as admin:
        for rights in (WORKER_ACLS, connector_acls("copy", "lines"), connector_acls("lines", "lines")):
            allow(admin, WORKER, rights)
        admin.create_topic("lines")
        admin.alter_scram_credentials([ScramUpsertion(WORKER, OLD)])
    settings = {
        **kafka.settings(user=WORKER), "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.password": f"${{file:{secrets}:worker}}", "group.id": GROUP, "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "200", "value.converter": "StringConverter",
    }  # fmt: skip
    # A consumer that cannot log in cannot leave its group: the next one waits for the end of its session.
    session = {"consumer.override.session.timeout.ms": "6000", "consumer.override.heartbeat.interval.ms": "1000"}
    copy = {"connector.class": "FileStreamSink", "topics": "lines", "file": str(out), **session}
    source = {"connector.class": "FileStreamSource", "topic": "lines", "file": str(lines)}
    worker = SecuredWorker(tmp_path / "w", Stores(tmp_path), settings, "serve")
    with running(worker):
        accepted(worker, "PUT", "/connectors/copy/config", copy)
        accepted(worker, "PUT", "/connectors/lines/config", source)
        until(lambda: out.exists() and out.read_text() == "one\n", worker.log)
        with Admin(kafka.settings(user=ADMIN)) as admin:
            admin.alter_scram_credentials([ScramUpsertion(WORKER, NEW)])

        def reported() -> str:
            return "".join(worker.request("GET", f"/connectors/{name}/reports").text for name in ("copy", "lines"))

        until(lambda: reported().count("The credentials are read again for each try") >= 2, worker.log)

        def is_unhealthy() -> bool:
            health = worker.request("GET", "/health")
            return health.status == 500 and "refuses to log in by SCRAM-SHA-512" in health.text

        until(is_unhealthy, worker.log)
        # The tasks wait for a file that is only half written, too.
        secrets.write_text("")
        until(lambda: "the credentials cannot be read: ${file:" in worker.log(), worker.log)
        secrets.write_text(f"worker={NEW}\n")
        lines.write_text("one\ntwo\n")
        until(lambda: out.read_text() == "one\ntwo\n", worker.log)
        for name in ("copy", "lines"):
            until(lambda name=name: states(worker, name) == ["RUNNING"] * 2, worker.log)  # type: ignore[misc]
        until(lambda: worker.request("GET", "/health").status == 200, worker.log)
        for secret in (OLD, NEW):
            assert secret not in worker.log() + reported()
        assert worker.stop() == 0
