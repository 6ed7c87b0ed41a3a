"""`ottla connect serve`: one worker of a group, until it is stopped.

Order of the start: listeners are bound, the topics are read, the API answers (409 until there is an assignment), the
worker joins its group. A stop goes the other way: no more requests, the work ends and its states are written, the
worker leaves the group, so that others take over at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from ottla.clients.errors import ClientError
from ottla.common.failure import Failure
from ottla.connect.cluster.membership import GroupMembership
from ottla.connect.cluster.settings import ClusterSettings
from ottla.connect.cluster.store import KafkaStore
from ottla.connect.errors import ConnectError
from ottla.connect.herder.herder import Herder
from ottla.connect.process import Worker
from ottla.connect.rest.server import RestServer
from ottla.connect.rest.settings import RestSettings

DEFAULT_GROUP = "connect-cluster"


async def run(
    settings: Mapping[str, str],
    stop: asyncio.Event,
    ready: Callable[[Sequence[str]], None],
    *,
    insecure: bool = False,
) -> None:
    """Run a worker until `stop` is set; `ready` gets its addresses when it has its first assignment. Raises Failure."""
    worker = Worker({**default_settings(settings.get("group.id", DEFAULT_GROUP)), **settings})
    rest = RestServer(RestSettings.read(worker.given), worker.given, insecure=insecure)
    try:
        async with _started(worker, rest) as (herder, membership, store):
            member = membership.start(herder)
            serving = asyncio.create_task(rest.serve(herder, stop, lambda: None), name="serve the REST API")
            announcing = asyncio.create_task(_announce(membership, ready, rest.urls))
            try:
                await asyncio.wait([member, serving, *store.failed], return_when=asyncio.FIRST_COMPLETED)
            finally:
                announcing.cancel()
                stop.set()
                await serving
            if member.done():
                member.result()
            for each in store.failed:
                if each.done() and each.exception() is not None:
                    raise Failure(f"the worker cannot read its topics any more: {each.exception()}")
    finally:
        rest.close()


def default_settings(group_id: str) -> dict[str, str]:
    """Return the names of the group and its topics; groups do not share topics."""
    prefix = "connect" if group_id == DEFAULT_GROUP else group_id
    topics = {f"{kind}.storage.topic": f"{prefix}-{name}"
              for kind, name in (("config", "configs"), ("offset", "offsets"), ("status", "status"))}  # fmt: skip
    return {"group.id": group_id, **topics}


async def _announce(membership: GroupMembership, ready: Callable[[Sequence[str]], None], urls: Sequence[str]) -> None:
    await membership.joined()
    ready(urls)


@contextlib.asynccontextmanager
async def _started(worker: Worker, rest: RestServer) -> AsyncIterator[tuple[Herder, GroupMembership, KafkaStore]]:
    """Read the topics, and stop everything at the end of the block."""
    cluster = ClusterSettings.read(worker.given, rest.tls)
    store = KafkaStore(cluster.store, _now_ms)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        membership = GroupMembership(cluster, store, rest.address.url, _now_ms)
        stack.push_async_callback(membership.close)
        herder = worker.herder(store, membership)
        stack.push_async_callback(herder.close)
        store.listener = herder
        try:
            await store.start()
        except (ClientError, ConnectError) as error:
            raise Failure(f"the worker cannot read its topics: {error}") from error
        yield herder, membership, store


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
