"""The same script of requests against a stock worker of Kafka Connect 4.3 and against ours, with equal answers.

`DIFFERENCES` lists what differs, and why; docs/connect.md has the same list for users.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.admin import Admin
from ottla.connect.transforms.names import TRANSFORMATIONS
from ottla.testing import Ottla
from tests.connect.rest.compare import content, differences
from tests.connect.rest.script import Answer, run
from tests.connect.rest.steps import every_step
from tests.connect.rest.worker_process import WorkerProcess
from tests.peers.stock_connect import StockWorker

SETTINGS = {
    "offset.flush.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
    "exactly.once.source.support": "enabled",
    "offset.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
}
CLIENT_FAULT = "Stock answers 500 to a body that is not what the operation needs; ours is 400 and says what is wrong."
JAVA = "The message has Java's words for a Java class or pattern."
CONTENT = "schema.content"
"""The setting of JsonConverter for records without schema (KIP-1054), which ours does not have."""
TIMING = "The state changes while the request is answered."
DIFFERENCES: dict[str, str] = {
    r"(post|put|patch|offsets|set|validate) (no body|empty object|list|text|null|broken|not json|unknown field|.*body"
    r"|config list|config null|without config|nested value|number name|state wrong|state number|wrong)": CLIENT_FAULT,
    r"validate (no class|empty|unknown class|plugin version wrong)": CLIENT_FAULT,
    r"alter (without partition|unknown partition|wrong offset)": CLIENT_FAULT,
    r"validate producer override.*|validate consumer override": "A wrong override is a fault of its row, not 500; the "
    "definitions of Java's clients are not ours.",
    r"(post|put|patch) (without class|unknown class|empty|class away)": JAVA,
    r"validate (sink regex wrong|predicate pattern.*)": JAVA,
    r"validate transform (alias|type abstract|type wrong)": "Transformations have aliases here, too.",
    r"(strange) .*": "Stock cannot have a connector whose name has a question mark.",
    r"loggers|root logger|logger.*|set .*": "The loggers are Python's.",
    r"running after restart.*|stopped|sink stopped|topics after reset|unicode status|status .*|running again": TIMING,
    r"(alter|reset) sink offsets": "The message says that a sink may have offsets of its own.",
    r"(source|sink) (tasks|status)|restart with tasks|resumed.*|failing": TIMING,
    r"all plugins|plugins.*": "The plugins differ; all plugins of Kafka are here, see below.",
    r"one plugin|unknown path.*|wrong method.*|accept text|tasks-config|swagger|post (other|no) type":
    "Errors of the HTTP layer have a Content-Type here, and 405 has Allow.",
    r"missing .*tasks/.*": "Errors of the HTTP layer have a Content-Type here, and 405 has Allow.",
}  # fmt: skip
RECOMMENDED = re.compile(r"\.recommended_values")


def allowed(name: str) -> bool:
    if not TRANSFORMATIONS and re.search("transform|predicate|negate", name):
        return True  # they are not delivered yet
    return any(re.fullmatch(pattern, name) for pattern in DIFFERENCES)


@pytest.mark.jvm
@pytest.mark.timeout(400)
def test_answers_equal_the_answers_of_a_stock_worker(ottla: Ottla, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    with StockWorker(tmp_path / "stock", ottla.bootstrap, "stock", "stock",
                     exactly_once_source_support="enabled") as stock:  # fmt: skip
        host, _, port = stock.url.partition("://")[2].rpartition(":")
        theirs = run(steps_of(tmp_path), host, int(port))
    with Admin({"bootstrap.servers": ottla.bootstrap}) as admin:  # the other worker begins with topics of its own
        admin.delete_topics([each.name for each in admin.list_topics() if each.name.startswith("t-")])
    words = [word for name, value in SETTINGS.items() for word in ("-X", f"{name}={value}")]
    with WorkerProcess(tmp_path / "ours", "serve", "-b", ottla.bootstrap, "--group", "ours", "--listen",
                       "127.0.0.1:0", *words) as worker:  # fmt: skip
        ours = run(steps_of(tmp_path), worker.host, worker.port)
        assert worker.stop() == 0
        assert "Unhandled error" not in worker.log(), worker.log()
    wrong = {name: found for name, answer in theirs.items() if (found := faults(name, answer, ours[name]))}
    assert not wrong, json.dumps(wrong, indent=1)
    known = {(each["class"], each["type"]) for each in ours["all plugins"].body}
    missing = {(each["class"], each["type"]) for each in theirs["all plugins"].body} - known
    # MirrorMaker's connectors are not delivered here.
    absent = {each for each in missing if ".mirror." not in each[0]}
    assert not {each for each in absent if TRANSFORMATIONS or ".transforms." not in each[0]}


def steps_of(directory: Path) -> Any:
    (directory / "out.txt").unlink(missing_ok=True)
    return every_step(str(directory))


def faults(name: str, stock: Answer, ours: Answer) -> list[str]:
    """Return what differs and should not. A difference that is allowed must not be a fault of the worker, either."""
    if allowed(name):
        return [f"status {ours.status}"] if ours.status >= 500 else []
    return [
        each[:300]
        for each in differences(content(stock), content(ours))
        if not RECOMMENDED.search(each) and CONTENT not in each
    ]
