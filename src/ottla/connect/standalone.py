"""`ottla connect run`: one worker that runs the connectors of files, until it is stopped.

Configurations are from the files, and in memory; they and the states are new at each start. Offsets are in a topic, so
that a restart goes on where the last run committed, and exactly-once sources commit them with their records. Stock's
standalone worker has them in a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.common.failure import Failure
from ottla.connect.errors import ConnectError
from ottla.connect.herder.herder import Herder
from ottla.connect.herder.memory import MemoryStore
from ottla.connect.herder.sole_member import SoleMember
from ottla.connect.process import Worker
from ottla.connect.rest.server import RestServer
from ottla.connect.rest.settings import RestSettings

DEFAULTS: Final = {
    "group.id": "connect-standalone",
    "offset.storage.topic": "connect-standalone-offsets",
    "exactly.once.source.support": "enabled",
}
"""Defaults that differ from a worker of a group."""


async def run(
    settings: Mapping[str, str],
    connectors: Sequence[Mapping[str, str]],
    stop: asyncio.Event,
    ready: Callable[[Sequence[str]], None],
    *,
    insecure: bool = False,
) -> None:
    """Run connectors until `stop` is set; `ready` gets the addresses of the REST API. Raises Failure."""
    worker = Worker({**DEFAULTS, **settings})
    rest = RestServer(RestSettings.read(worker.given), worker.given, insecure=insecure)
    try:
        store = MemoryStore()
        member = SoleMember(store, rest.address.url, rest.worker_id)
        herder = worker.herder(store, member, remembers_tasks=False)
        store.listener = member.listener = herder
        await member.start()
        try:
            for config in connectors:
                await _create(herder, config)
            await rest.serve(herder, stop, lambda: ready(rest.urls))
        finally:
            await herder.close()
            await member.close()
    finally:
        rest.close()


async def _create(herder: Herder, config: Mapping[str, str]) -> None:
    name = config["name"]
    try:
        await herder.put_config(name, config, replace=False)
    except ConnectError as error:
        problem, *more = str(error).splitlines()
        raise Failure(f"the connector {name} cannot be created: {problem}", *more[:-1]) from error
