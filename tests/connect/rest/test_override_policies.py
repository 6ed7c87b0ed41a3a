"""Policies for overrides of clients (KIP-458, KIP-1188), with the answers of a stock worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.connect.config.definition import SettingError
from ottla.connect.herder.overrides import ALLOWLIST, POLICY, OverridePolicy
from ottla.testing import Ottla
from tests.connect.rest.script import Answer, Step, run
from tests.connect.rest.steps import sink, source
from tests.connect.rest.worker_process import WorkerProcess
from tests.peers.stock_connect import StockWorker

OVERRIDES = {
    "plain": {},
    "linger": {"producer.override.linger.ms": "5"},
    "protocol": {"producer.override.security.protocol": "PLAINTEXT"},
    "two": {"producer.override.acks": "all", "producer.override.batch.size": "10"},
    "other client": {"consumer.override.max.poll.records": "5"},
}


def script(directory: Path) -> list[Step]:
    """Requests with overrides: validations, and new connectors."""
    found = []
    for number, (label, more) in enumerate(OVERRIDES.items()):
        config = source(f"c{number}", str(directory), **more)
        found.append(Step(f"validate {label}", "PUT", "/connector-plugins/FileStreamSource/config/validate", config))
        found.append(Step(f"create {label}", "POST", "/connectors", {"name": f"c{number}", "config": config}))
    reading = sink("s", str(directory), **{"consumer.override.max.poll.records": "5", "admin.override.acks": "1"})
    path = "/connector-plugins/FileStreamSink/config/validate"
    return [*found, Step("validate sink", "PUT", path, reading)]


def faults(answer: Answer) -> Any:
    """The status, the message of an error, and the errors of overrides."""
    rows = answer.body.get("configs", [])
    errors = {each["value"]["name"]: each["value"]["errors"] for each in rows if ".override." in each["value"]["name"]}
    return answer.status, answer.body.get("message"), {name: each for name, each in errors.items() if each}


@pytest.mark.jvm
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "settings",
    [{POLICY: "None"}, {POLICY: "Principal"}, {POLICY: "Allowlist", ALLOWLIST: "linger.ms,acks"}],
    ids=["None", "Principal", "Allowlist"],
)
def test_policies_answer_as_a_stock_worker(settings: dict[str, str], ottla: Ottla, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    given = {name.replace(".", "_"): value for name, value in settings.items()}
    with StockWorker(tmp_path / "stock", ottla.bootstrap, "stock", "stock", **given) as stock:
        host, _, port = stock.url.partition("://")[2].rpartition(":")
        theirs = run(script(tmp_path), host, int(port))
    words = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    with WorkerProcess(tmp_path / "ours", "serve", "-b", ottla.bootstrap, "--group", "ours", "--listen",
                       "127.0.0.1:0", *words) as worker:  # fmt: skip
        ours = run(script(tmp_path), worker.host, worker.port)
        assert worker.stop() == 0
    assert {name: faults(each) for name, each in ours.items()} == {name: faults(each) for name, each in theirs.items()}
    refused = [name for name, each in ours.items() if name.startswith("create") and each.status == 400]
    assert refused


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("All", None),
        ("None", set()),
        ("NoneConnectorClientConfigOverridePolicy", set()),
        ("org.apache.kafka.connect.connector.policy.AllowlistConnectorClientConfigOverridePolicy", {"acks"}),
    ],
)
def test_policies_have_kafkas_names(name: str, allowed: set[str] | None) -> None:
    assert OverridePolicy.read({POLICY: name, ALLOWLIST: "acks"}).allowed == allowed


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(SettingError, match="must be one of All, None, Principal, Allowlist"):
        OverridePolicy.read({POLICY: "com.example.Policy"})
    assert OverridePolicy.read({}).allowed is None
