"""A rehearsal of the move from stock Kafka with `ottla mirror switch`, while producers and a group are running.

Idempotent producers, a transactional one and a group stop at stock Kafka and go on at Ottla, with the same ids. Every
acknowledged record is there once and in order, transactions are whole, and the group reads each record once.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
import pytest

from ottla.cli.main import main
from ottla.clients.admin import Admin
from ottla.common.ids import TopicPartition
from tests.chaos.cluster_load import (
    PARTITIONS,
    TIMEOUT_S,
    TOPIC,
    Writer,
    check,
    stop,
    stored,
    three_writers,
)
from tests.cluster.processes import wait_until
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import StockKafka

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("mirror-of-stock")]

GROUP = "readers"
RECORDS = 200


class GroupMember(threading.Thread):
    """A consumer of the group, which commits each record that it reads, until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.values: list[str] = []
        self._servers = bootstrap
        self._stop_event = threading.Event()

    def run(self) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe([TOPIC])
        while not self._stop_event.is_set():
            messages = [each for each in consumer.consume(100, 0.2) if each.error() is None]
            if messages:
                self.values += [(each.value() or b"").decode() for each in messages]
                consumer.commit(asynchronous=False)
        consumer.close()

    def stop(self) -> None:
        self._stop_event.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()


def started(bootstrap: str, before: Sequence[Writer] = ()) -> list[Writer]:
    writers = three_writers(bootstrap, 1, before)
    for writer in writers:
        writer.start()
    return writers


def run_until(condition: Callable[[], bool], writers: list[Writer]) -> None:
    wait_until(condition, TIMEOUT_S)
    assert not [problem for writer in writers for problem in writer.problems]


def grown(writers: list[Writer]) -> Callable[[], bool]:
    sizes = [len(writer.acknowledged) for writer in writers]
    return lambda: all(len(writer.acknowledged) >= sizes[i] + RECORDS for i, writer in enumerate(writers))


def ottla(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


def test_clients_of_stock_kafka_move_to_ottla_and_go_on(tmp_path: Path) -> None:
    with StockKafka(tmp_path / "stock") as source, OttlaProcess(tmp_path / "ottla") as target:
        writers: list[Writer] = []
        at_target = ("-b", target.bootstrap)
        try:
            with Admin(source.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=PARTITIONS)
                admin.alter_group_offsets(GROUP, {TopicPartition(TOPIC, each): 0 for each in range(PARTITIONS)})
            writers = started(source.bootstrap)
            reader = GroupMember(source.bootstrap)
            reader.start()
            create = ("mirror", "create", "move", "--from", source.bootstrap, "--topics", ".*", "--groups", ".*")
            assert ottla(*create, *at_target)[0] == 0
            run_until(grown(writers), writers)
            wait_until(lambda: ottla("mirror", "switch", "move", "--dry-run", *at_target)[0] == 0, TIMEOUT_S)
            assert len(reader.values) > RECORDS

            switched: list[tuple[int, str, str]] = []
            words = ("mirror", "switch", "move", "--wait-for-producers", "1min", "--verify", "100", "--yes", "--json")
            switch = threading.Thread(target=lambda: switched.append(ottla(*words, *at_target)), daemon=True)
            switch.start()
            stop(writers)
            reader.stop()
            switch.join(2 * TIMEOUT_S)
            [(code, out, err)] = switched
            assert code == 0, err
            [*checks, result] = [json.loads(line) for line in out.splitlines()]
            assert "problem" not in [row["result"] for row in checks]
            assert (result["topics"], result["late_records"]) == ([TOPIC], 0)
            code, out, err = ottla("mirror", "verify", "move", "--json", *at_target)
            assert (code, {json.loads(line)["result"] for line in out.splitlines()}) == (0, {"equal"}), err
            print(f"closed for {result['closed_ms']} ms")

            writers = started(result["bootstrap_servers"], writers)
            later = GroupMember(result["bootstrap_servers"])
            later.start()
            run_until(grown(writers), writers)
            stop(writers)
            found = stored(target.bootstrap)
            everything = sorted(f"{name}:{number}" for name, numbers in found.items() for number in numbers)
            wait_until(lambda: len(reader.values) + len(later.values) >= len(everything), TIMEOUT_S)
            later.stop()
            check(writers, found)
            assert sorted(reader.values + later.values) == everything
            target.assert_no_traceback()
        finally:
            for writer in writers:
                writer.stop()
