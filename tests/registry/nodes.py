"""Several nodes of one registry as processes, and the records that they wrote."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from ottla.clients import Consumer
from tests.registry_process import RegistryProcess

SESSION_MS = 1500
NODE = {"kafkagroup.session.timeout.ms": SESSION_MS, "kafkagroup.heartbeat.interval.ms": 300}
GROUPS = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 500}
"""Settings of a broker, so that a failed node leaves its group soon."""


@contextlib.contextmanager
def nodes(directory: Path, bootstrap: str, count: int, **more: object) -> Iterator[list[RegistryProcess]]:
    """Nodes in the order of their URLs, so that the first one is the primary."""
    every = [RegistryProcess(directory / f"node-{i}", bootstrap, **NODE, **more) for i in range(count)]
    every.sort(key=lambda node: node.url)
    with contextlib.ExitStack() as stack:
        for node in every:
            stack.enter_context(node)
        yield every


def schemas_of(bootstrap: str) -> list[tuple[int, str]]:
    """The id and the text of each committed record of a schema."""
    found = []
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([("_schemas", 0)])
        end = consumer.end_offsets([("_schemas", 0)])
        while consumer.position(("_schemas", 0)) < next(iter(end.values())):
            for record in consumer.poll(0.1):
                if record.value and b'"SCHEMA"' in record.key:
                    value = json.loads(record.value)
                    found.append((value["id"], value["schema"]))
    return found
