"""The console of a mirror's target: the page of a copy says so, and refused changes show the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.clients import Admin
from tests.cluster.processes import wait_until
from tests.conftest import TEST_PROPERTIES
from tests.mirrors import PARTITIONS, TOPIC, WAIT_S, mirror, produce, transaction, wait_until_copied
from tests.ottla_process import ForkedOttla, OttlaProcess

from .conftest import StartConsole, csrf, post

PAGE = f"/topics/{TOPIC}"
COPIED = "mirror dr copies it from another cluster"
# Path, fields, and the reason.
CHANGES: tuple[tuple[str, dict[str, str], str], ...] = (
    ("produce", {"value": "a", "partition": "0"}, COPIED),
    ("delete-records", {"partition": "0", "before": "1", "confirm": "1"}, COPIED),
    ("alter", {"config": "retention.ms=1000"}, "retention.ms can only be changed at its source"),
    ("alter", {"partitions": "5"}, "its source has the partitions"),
    ("delete", {"confirm": TOPIC}, "Mirror dr would create topic orders again"),
)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[OttlaProcess]:
    """The target of a mirror, with a copy."""
    with (
        ForkedOttla(tmp_path / "source", TEST_PROPERTIES) as source,
        ForkedOttla(tmp_path / "target", TEST_PROPERTIES) as target,
    ):
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        produce(source.bootstrap, 0, 10)
        producer = transaction(source.bootstrap, "open", [b"open"], None)
        mirror(source.bootstrap, target.bootstrap)
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            wait_until(lambda: TOPIC in {each.name for each in admin.list_topics()}, WAIT_S)
        wait_until_copied(source.bootstrap, target.bootstrap)
        yield target
        producer.close(0)
        target.assert_no_traceback()


def test_page_of_a_copy_and_the_reasons_of_refused_changes(
    target: OttlaProcess, start_console: StartConsole, capsys: pytest.CaptureFixture[str]
) -> None:
    console = start_console({"bootstrap.servers": target.bootstrap})
    found = console.json(PAGE)
    assert (found["mirror"], found["records"]) == ({"name": "dr", "state": "MIRRORING"}, 12)
    assert "read-only until `ottla mirror promote dr orders`" in console.http.get(PAGE).text
    assert len(console.json(f"{PAGE}/messages")["records"]) == 12
    assert console.http.get(f"{PAGE}/settings").status_code == 200
    token = csrf(console.http)
    for path, fields, reason in CHANGES:
        assert console.http.get(f"{PAGE}/{path}").status_code == 200
        answer = post(console.http, f"{PAGE}/{path}", token, **fields)
        assert (answer.status_code, reason in answer.text) == (400, True), (path, answer.text)
    place = {"topic": TOPIC, "partition": "0", "start": "5"}
    answer = post(console.http, "/transactions/abort", token, **place)
    assert (answer.status_code, "mirror dr copies it, with its transactions" in answer.text) == (400, True)
    delete = ["topic", "delete-records", TOPIC, "-p", "0", "--all", "--yes", "-b", target.bootstrap]
    assert main(delete) == 1
    assert COPIED in capsys.readouterr().err

    assert main(["mirror", "promote", "dr", "--yes", "-b", target.bootstrap]) == 0
    assert console.json(PAGE)["mirror"] == {"name": "dr", "state": "STOPPED"}
    assert "read-only" not in console.http.get(PAGE).text
    for path, fields, _ in CHANGES[:-1]:
        assert post(console.http, f"{PAGE}/{path}", token, **fields).status_code == 303
    assert found["records"] < console.json(PAGE)["records"]
