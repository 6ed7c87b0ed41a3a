"""Workers with TLS on all sides: brokers with SASL_SSL and ACLs, HTTPS with client certificates, signed requests.

No password appears in a log, a status, an answer or a topic.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.connectors_client import Api
from ottla.clients import Admin, Consumer
from ottla.clients.admin import AclOperation, AclResource
from ottla.common.failure import Failure
from ottla.testing import Ottla
from tests.connect.cluster.counting import check_counts
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
    contents,
    running,
    states,
    until,
)

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("connect-secured")]
MakeBroker = Callable[..., Ottla]
COUNTING = "tests.connect.cluster.counting:CountingConnector"
WRONG = "wrong-password-of-a-test"
READABLE = (
    "/connectors?expand=status&expand=info",
    "/connectors/count/config",
    "/connectors/count/tasks",
    "/connectors/count/reports",
    "/connectors/copy/offsets",
    "/admin/loggers",
)


@pytest.fixture
def kafka(ottla_broker: MakeBroker) -> Ottla:
    kafka = ottla_broker(BROKER, security="SASL_SSL", users=[ADMIN, WORKER, TEAM])
    with Admin(kafka.settings(user=ADMIN)) as admin:
        allow(admin, WORKER, WORKER_ACLS)
    return kafka


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def worker_settings(kafka: Ottla, **more: str) -> dict[str, str]:
    return {
        **kafka.settings(user=WORKER),
        "group.id": GROUP,
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "offset.flush.interval.ms": "200",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def password_of(kafka: Ottla, user: str) -> str:
    return kafka.settings(user=user)["sasl.password"]


def overrides(client: str, user: str, password: str) -> dict[str, str]:
    return {f"{client}.override.sasl.username": user, f"{client}.override.sasl.password": password}


def test_secured_workers_share_work_and_show_no_password(kafka: Ottla, stores: Stores, tmp_path: Path) -> None:
    settings = worker_settings(kafka)
    workers = [SecuredWorker(tmp_path / f"w{number}", stores, settings, "serve") for number in range(2)]
    first, second = workers
    with Admin(kafka.settings(user=ADMIN)) as admin:
        allow(admin, WORKER, connector_acls("count", "counts"))
        allow(admin, WORKER, connector_acls("copy", "counts"))
    count = {"connector.class": COUNTING, "topic": "counts", "tasks.max": "2"}
    copy = {"connector.class": "FileStreamSink", "topics": "counts", "file": str(tmp_path / "out.txt")}
    answers: list[str] = []
    with running(*workers):
        accepted(first, "PUT", "/connectors/count/config", count)
        accepted(second, "PUT", "/connectors/copy/config", copy)  # one of both forwards it to the leader
        for name, tasks in (("count", 2), ("copy", 1)):
            until(lambda name=name, tasks=tasks: states(second, name) == ["RUNNING"] * (tasks + 1),
                  lambda name=name: second.request("GET", f"/connectors/{name}/status").text)  # fmt: skip
        owners = {
            each["worker_id"]
            for name in ("count", "copy")
            for each in first.request("GET", f"/connectors/{name}/status").body["tasks"]
        }
        assert owners == {each.worker_id for each in workers}
        until(lambda: (tmp_path / "out.txt").exists() and (tmp_path / "out.txt").stat().st_size > 100, first.log)
        for each in workers:
            # Forwarded over TLS by the worker that neither leads nor runs the task.
            accepted(each, "POST", "/connectors/copy/tasks/0/restart")
            accepted(each, "POST", "/connectors/count/restart?includeTasks=true")
            until(lambda: states(first, "count") == ["RUNNING"] * 3, first.log)
            answers += [accepted(each, "GET", path).text for path in READABLE]
        for each in workers:
            for method, path in (("POST", "/connectors/count/tasks"), ("PUT", "/connectors/count/fence")):
                answer = each.request(method, path, [])
                assert (answer.status, "missing required signature" in answer.text) == (400, True)
        accepted(first, "PUT", "/connectors/count/stop")
        until(lambda: states(second, "count") == ["STOPPED"], second.log)
        assert [each.stop() for each in workers] == [0, 0]
    with Consumer({**kafka.settings(user=ADMIN), "auto.offset.reset": "earliest",
                   "isolation.level": "read_committed"}) as consumer:  # fmt: skip
        partitions = [("counts", each) for each in consumer.partitions_of("counts")]
        consumer.assign(partitions)
        values: list[str] = []

        def read() -> bool:
            values.extend((record.value or b"").decode() for record in consumer.poll(0.2))
            return all(consumer.position(each) >= end for each, end in consumer.end_offsets(partitions).items())

        until(read, lambda: values)
    assert min(check_counts(values).values()) > 0
    logs = "".join(each.log() for each in workers)
    assert "Traceback" not in logs
    written = contents(kafka).decode(errors="replace")
    for secret in (password_of(kafka, WORKER), "PRIVATE KEY"):
        for place in (logs, *answers, written):
            assert secret not in place


def test_listener_refuses_clients_without_a_certificate_of_its_authority(
    kafka: Ottla, stores: Stores, tmp_path: Path
) -> None:
    worker = SecuredWorker(tmp_path / "w", stores, worker_settings(kafka), "serve")
    with running(worker):
        assert accepted(worker, "GET", "/connectors").body == []
        for certificate in (None, stores.rogue):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                worker.request("GET", "/connectors", tls=stores.context(certificate))
        api = Api(worker.url, str(stores.authority), str(stores.client))
        assert api.get("/connectors") == []
        assert api.of_worker(worker.worker_id).get("/connectors") == []
        with pytest.raises(Failure, match="no Connect worker can be reached"):
            Api(worker.url, str(stores.authority), str(stores.rogue)).get("/connectors")
    with pytest.raises(Failure, match="--cert"):
        Api(worker.url, str(stores.authority), str(stores.authority))


def test_connectors_log_in_as_other_users_by_overrides(kafka: Ottla, stores: Stores, tmp_path: Path) -> None:
    """The producer, the consumer and the admin client of a connector have a principal of their own."""
    with Admin(kafka.settings(user=ADMIN)) as admin:
        allow(admin, TEAM, connector_acls("count", "counts"))
        allow(admin, TEAM, connector_acls("copy", "counts"))
        # Offsets are committed in the transactions of the connector's producer.
        allow(admin, TEAM, ((AclResource.topic(f"{GROUP}-offsets"), (AclOperation.READ, AclOperation.WRITE)),))
    password = password_of(kafka, TEAM)
    variable = "${env:TEAM_PASSWORD}"
    clients = {name: value for client in ("producer", "consumer", "admin")
               for name, value in overrides(client, TEAM, variable).items()}  # fmt: skip
    count = {"connector.class": COUNTING, "topic": "counts", **clients}
    copy = {"connector.class": "FileStreamSink", "topics": "counts", "file": str(tmp_path / "out.txt"), **clients}
    worker = SecuredWorker(tmp_path / "w", stores, worker_settings(kafka), "serve")
    with running(worker, environment={"TEAM_PASSWORD": password, "WRONG_PASSWORD": WRONG}):
        # Without the overrides, the worker's user may not write to the topic.
        accepted(worker, "PUT", "/connectors/denied/config", {"connector.class": COUNTING, "topic": "counts"})
        until(lambda: "FAILED" in states(worker, "denied"),
              lambda: worker.request("GET", "/connectors/denied/status").text)  # fmt: skip
        accepted(worker, "PUT", "/connectors/count/config", count)
        accepted(worker, "PUT", "/connectors/copy/config", copy)
        for name in ("count", "copy"):
            until(lambda name=name: states(worker, name) == ["RUNNING"] * 2,
                  lambda name=name: worker.request("GET", f"/connectors/{name}/status").text)  # fmt: skip
        until(lambda: (tmp_path / "out.txt").exists() and (tmp_path / "out.txt").stat().st_size > 100, worker.log)
        wrong = {**count, **overrides("producer", TEAM, "${env:WRONG_PASSWORD}")}
        accepted(worker, "PUT", "/connectors/wrong/config", wrong)
        until(lambda: "Authentication" in worker.request("GET", "/connectors/wrong/status").text,
              lambda: worker.request("GET", "/connectors/wrong/status").text)  # fmt: skip
        paths = (*READABLE, "/connectors/wrong/tasks", "/connectors/wrong/reports")
        texts = [accepted(worker, "GET", path).text for path in paths]
        checked = worker.request("PUT", "/connector-plugins/FileStreamSink/config/validate", {**copy, "name": "copy"})
        assert checked.status == 200
        texts.append(checked.text)
        assert worker.stop() == 0
    written = contents(kafka).decode(errors="replace")
    assert variable in written
    for secret in (password, WRONG, password_of(kafka, WORKER)):
        for place in (worker.log(), *texts, written):
            assert secret not in place


def test_users_of_the_brokers_log_in_and_forwarded_requests_keep_their_credentials(
    kafka: Ottla, stores: Stores, tmp_path: Path
) -> None:
    settings = worker_settings(kafka, authentication_method="BASIC", authentication_mechanism="PLAIN")
    workers = [SecuredWorker(tmp_path / f"w{number}", stores, settings, "serve") for number in range(2)]
    user = f"{TEAM}:{password_of(kafka, TEAM)}"
    with Admin(kafka.settings(user=ADMIN)) as admin:
        allow(admin, WORKER, connector_acls("count", "counts"))
    with running(*workers):
        for number, each in enumerate(workers):
            assert each.request("GET", "/connectors").status == 401
            assert each.request("GET", "/connectors", user=f"{TEAM}:{WRONG}").status == 401
            config = {"connector.class": COUNTING, "topic": "counts", "streams": str(number + 1)}
            accepted(each, "PUT", "/connectors/count/config", config, user=user)
            until(lambda each=each: states(each, "count", user=user) == ["RUNNING"] * 2, each.log)
        assert [each.stop() for each in workers] == [0, 0]
    logs = "".join(each.log() for each in workers)
    assert password_of(kafka, TEAM) not in logs
    assert WRONG not in logs


def test_standalone_worker_with_mutual_tls(kafka: Ottla, stores: Stores, tmp_path: Path) -> None:
    with Admin(kafka.settings(user=ADMIN)) as admin:
        allow(admin, WORKER, connector_acls("lines", "lines"))
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    (tmp_path / "lines.properties").write_text(
        f"name=lines\nconnector.class=FileStreamSource\ntopic=lines\nfile={tmp_path / 'in.txt'}\n"
    )
    settings = {**worker_settings(kafka), "offset.storage.topic": f"{GROUP}-offsets"}
    worker = SecuredWorker(tmp_path / "w", stores, settings, "run", str(tmp_path / "lines.properties"))
    with running(worker):
        until(lambda: states(worker, "lines") == ["RUNNING"] * 2, worker.log)
        until(lambda: '"position":8' in worker.request("GET", "/connectors/lines/offsets").text.replace(" ", ""),
              worker.log)  # fmt: skip
        assert worker.stop() == 0
    assert password_of(kafka, WORKER) not in worker.log()
    assert "Traceback" not in worker.log()
