"""`ottla mirror` between two brokers: from the creation of a mirror to its promotion, and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli.mirror_parts import mirror_names, move
from ottla.clients import Admin, Producer
from ottla.clients.errors import error_for
from ottla.common.errors import ErrorCode
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.metadata.mirrors import FAILBACK
from tests.cluster.processes import wait_until
from tests.ottla_process import ForkedOttla, OttlaProcess

from .conftest import Answer, Run

WAIT_S = 60.0


@pytest.fixture
def source(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "source") as process:
        yield process


@pytest.fixture
def target(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "target") as process:
        yield process


def rows(ottla: Run, name: str, at: OttlaProcess) -> list[dict[str, Any]]:
    answer = ottla("mirror", "status", name, "--json", "-b", at.bootstrap)
    assert answer.code == 0, answer.err
    return answer.objects


def write(at: OttlaProcess, *values: bytes) -> None:
    with Producer(bootstrap_servers=at.bootstrap) as producer:
        for value in values:
            producer.send("orders", value).result(WAIT_S)


def test_mirror_from_its_creation_to_the_failback(plain: Run, source: OttlaProcess, target: OttlaProcess) -> None:
    def ottla(*words: str, at: OttlaProcess = target) -> str:
        answer = plain("mirror", *words, "-b", at.bootstrap)
        assert answer.code == 0, answer.err
        return answer.out + answer.err

    def error(*words: str, at: OttlaProcess = target) -> str:
        answer = plain("mirror", *words, "-b", at.bootstrap)
        assert answer.code
        return answer.err

    with Admin(source.bootstrap) as admin:
        admin.create_topic("orders")
        write(source, b"1", b"2", b"3")
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 2})
    security = target.directory / "source.properties"
    security.write_text("security.protocol=PLAINTEXT\n")
    assert "There is no mirror" in ottla("list")
    source_config = ("--source-config", str(security))
    created = ottla("create", "dr", "--from", source.bootstrap, "--topics", "ord.*", "--groups", ".*", *source_config)
    assert "`ottla mirror status dr`" in created
    assert "exists already" in error("create", "dr", "--from", source.bootstrap, "--topics", "x")
    assert "'orders|payments'" in error("create", "list", "--from", source.bootstrap, "--topics", "orders, payments")
    assert "not a regular expression" in error("create", "bad", "--from", source.bootstrap, "--topics", "orders[")
    assert "HOST:PORT" in error("create", "bad", "--from", "kafka", "--topics", "orders")
    [listed] = plain("mirror", "list", "--json", "-b", target.bootstrap).objects
    assert (listed["mirror"], listed["source"], listed["state"]) == ("dr", source.bootstrap, "RUNNING")
    wait_until(lambda: [(row["end"], row["lag"]) for row in rows(plain, "dr", target)] == [(3, 0)], WAIT_S)
    assert "MIRRORING" in ottla("status", "dr")
    ottla("alter", "dr", "--topics", "ord.*|payments")
    assert "nothing is changed" in error("alter", "dr")
    wait_until(lambda: [row["lag"] for row in rows(plain, "dr", target)] == [0], WAIT_S)
    assert "No cause of trouble" in ottla("why", "dr")
    [compared] = plain("mirror", "verify", "dr", "--json", "-b", target.bootstrap).objects
    assert (compared["result"], compared["start"], compared["end"], compared["skipped"]) == ("equal", 0, 3, [])
    assert "not promoted" in error("stop", "dr")
    assert "MIRRORING already" in error("failback", "dr", "orders")
    ottla("create", "itself", "--from", source.bootstrap, "--topics", "", at=source)
    assert "is this cluster itself" in error("failback", "itself", "orders", "--yes", at=source)
    ottla("stop", "itself", at=source)

    # The copy was not promoted, so that the original stays open for writes.
    ottla("create", "early", "--from", target.bootstrap, "--topics", "", at=source)
    for words in ((), ("--dry-run",)):
        refused = error("failback", "early", "orders", "--yes", *words, at=source)
        assert "is MIRRORING, and so read-only too" in refused
        assert "Promote it at the source first" in refused
    assert "does not wait" in error("failback", "early", "orders", "--cancel", at=source)
    with Admin(source.bootstrap) as admin:
        move(admin, "early", ["orders"], FAILBACK)
        wait_until(lambda: "--cancel" in ottla("why", "early", at=source), WAIT_S)
        assert "open again" in ottla("failback", "early", "orders", "--cancel", at=source)
        write(source, b"3.5")
    ottla("stop", "early", at=source)

    ottla("pause", "dr")
    wait_until(lambda: [row["state"] for row in rows(plain, "dr", target)] == ["PAUSED"], WAIT_S)
    write(source, b"4")
    refused = error("promote", "dr", "--timeout", "1s", "--yes")
    assert "is paused: the promotion waits until `ottla mirror resume dr`" in refused
    assert "not complete" in refused
    ottla("resume", "dr")
    assert "would wait for the last records of the source, and open orders" in ottla("promote", "dr", "--dry-run")
    assert "MIRRORING" in ottla("status", "dr"), "a dry run changes nothing"

    assert "Promoted orders" in ottla("promote", "dr", "--yes")
    with Admin(target.bootstrap) as admin:
        assert admin.list_group_offsets("billing")[TopicPartition("orders", 0)].offset == 2
    write(target, b"5")
    assert "1 were promoted" in ottla("status", "dr")
    assert "mirror stop dr" in ottla("why", "dr")
    ottla("stop", "dr")
    assert "There is no mirror" in ottla("list")

    write(source, b"lost")
    ottla("create", "back", "--from", target.bootstrap, "--topics", "", at=source)
    differing = plain("mirror", "verify", "back", "orders", "-b", source.bootstrap)
    assert (differing.code, "orders-0: offsets 5 to 5" in differing.err) == (1, True)
    assert "1 records would be dropped" in ottla("failback", "back", "orders", "--dry-run", at=source)
    [dropped] = plain("mirror", "failback", "back", "orders", "--dry-run", "--json", "-b", source.bootstrap).objects
    assert (dropped["records"], dropped["start"], dropped["end"]) == (1, 5, 6)
    assert dropped["last_timestamp_ms"] == dropped["first_timestamp_ms"] > 0
    ottla("failback", "back", "orders", "--yes", at=source)
    wait_until(lambda: [row["truncated"] for row in rows(plain, "back", source)] == [1], WAIT_S)
    wait_until(lambda: [row["lag"] for row in rows(plain, "back", source)] == [0], WAIT_S)
    assert "1 offsets were dropped" in ottla("why", "back", at=source)
    target.kill()
    unplanned = ("promote", "back", "--unplanned")
    shown = ottla(*unplanned, "--dry-run", at=source)
    assert ("no records were missing" in shown, "wait for" in shown) == (True, False)
    [promoted] = plain("mirror", *unplanned, "--yes", "--json", "-b", source.bootstrap).objects
    assert promoted == {"topic": "orders", "promoted": True, "missing": []}
    security.write_text("default.api.timeout.ms=1000\nrequest.timeout.ms=1000\n")
    assert "the source of mirror 'back' does not answer" in error("verify", "back", *source_config, at=source)


def test_switch_checks_the_mirror_waits_for_the_producers_and_promotes(
    plain: Run, source: OttlaProcess, target: OttlaProcess
) -> None:
    def switch(*words: str) -> Answer:
        return plain("mirror", "switch", "move", *words, "-b", target.bootstrap)

    def results(answer: Answer) -> dict[str, str]:
        return {row["check"]: row["result"] for row in answer.objects if "check" in row}

    with Admin(source.bootstrap) as admin:
        admin.create_topic("orders")
        admin.create_topic("payments")
        write(source, b"1", b"2", b"3")
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 2})
    create = ("create", "move", "--from", source.bootstrap, "--topics", ".*", "--groups", ".*")
    assert plain("mirror", *create, "-b", target.bootstrap).code == 0
    # A mirror that is paused before its first comparison creates no topic.
    wait_until(lambda: len(rows(plain, "move", target)) == 2, WAIT_S)
    assert plain("mirror", "pause", "move", "-b", target.bootstrap).code == 0
    wait_until(lambda: [row["state"] for row in rows(plain, "move", target)] == ["PAUSED"] * 2, WAIT_S)
    paused = switch("--dry-run", "--json")
    assert (paused.code, results(paused)["partitions"]) == (1, "problem")
    assert "nothing was changed" in paused.err
    assert plain("mirror", "resume", "move", "-b", target.bootstrap).code == 0
    wait_until(lambda: switch("--dry-run").code == 0, WAIT_S)
    ready = switch("--dry-run", "--verify", "2", "--json")
    assert results(ready) == dict.fromkeys(("source", "topics", "lag", "groups", "verify"), "ok")

    with Producer(bootstrap_servers=source.bootstrap, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"4").result(WAIT_S)
        open_still = switch("--wait-for-producers", "1s", "--yes")
        assert (open_still.code, "open transactions: orders-0" in open_still.err) == (1, True)
        producer.commit_transaction()
    assert "'others' is not a copy" in switch("others", "--yes").err
    switched = switch("orders", "--wait-for-producers", "1min", "--json", "--yes")
    assert switched.code == 0, switched.err
    [*_, result] = switched.objects
    assert (result["topics"], result["late_records"]) == (["orders"], 0)
    assert result["bootstrap_servers"] == target.bootstrap
    write(target, b"5")
    with Admin(target.bootstrap) as admin:
        assert admin.list_group_offsets("billing")[TopicPartition("orders", 0)].offset == 2
    assert [(row["topic"], row["state"]) for row in rows(plain, "move", target)] == [("payments", "MIRRORING")]
    assert "'orders' was promoted before" in switch("orders", "--yes").err
    assert "Promoted payments" in plain("mirror", "promote", "move", "payments", "--yes", "-b", target.bootstrap).out
    assert "no topic to promote" in switch("--yes").err

    # The source was not promoted: it cannot compare the leader epochs of the records that were written here.
    assert plain("mirror", "failback", "move", "orders", "--yes", "-b", target.bootstrap).code == 0

    def is_copy_again() -> bool:
        [row] = rows(plain, "move", target) or [{"lag": None}]
        return row["lag"] == 0 and row["truncated"] > 0

    wait_until(is_copy_again, WAIT_S)
    assert plain("mirror", "verify", "move", "orders", "-b", target.bootstrap).code == 0


def test_cluster_of_stock_kafka_has_no_mirrors() -> None:
    def refuse(_: object) -> None:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, None)

    with pytest.raises(Failure, match="not Ottla"):
        mirror_names(cast("Any", SimpleNamespace(list_config_resources=refuse)))


def test_report_about_many_partitions_is_complete(plain: Run, source: OttlaProcess, target: OttlaProcess) -> None:
    # More than one string of the protocol can have.
    count = 200
    with Admin(source.bootstrap) as admin:
        admin.create_topic("orders", partitions=count)
    created = plain("mirror", "create", "dr", "--from", source.bootstrap, "--topics", "ord.*", "-b", target.bootstrap)
    assert created.code == 0, created.err
    wait_until(lambda: [row["lag"] for row in rows(plain, "dr", target)] == [0] * count, WAIT_S)
    assert [row["partition"] for row in rows(plain, "dr", target)] == list(range(count))
    assert plain("mirror", "list", "-b", target.bootstrap).code == 0
