"""A worker in memory, with its REST API on a free port of this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ottla.connect.herder.herder import Environment, Herder
from ottla.connect.herder.installed_plugins import InstalledPlugins
from ottla.connect.herder.memory import MemoryStore
from ottla.connect.herder.sole_member import SoleMember
from ottla.connect.herder.validation import Validator, WorkerRules
from ottla.connect.rest.application import Application
from ottla.connect.rest.forwarding import Forwarding
from ottla.web.guard import BodyLimits
from ottla.web.listeners import bind_all, parse_listener, tls_config
from ottla.web.server import ServerLimits, serve
from tests.unit.connect.herder.simple_runtime import SimpleRuntime

CONVERTERS = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
}
START_S = 20.0


async def cluster_id() -> str:
    return "abcdefghijklmnopqrstuv"


def herder_in_memory(url: str = "http://127.0.0.1:8083", worker_id: str = "127.0.0.1:8083") -> Herder:
    """Return a herder without a topic and without tasks. Its `membership` has to be started."""
    plugins, store = InstalledPlugins(), MemoryStore()
    member = SoleMember(store, url, worker_id)
    rules = WorkerRules(CONVERTERS, group_id="connect-cluster")
    herder = Herder(
        store,
        lambda listener: SimpleRuntime(plugins, listener),
        member,
        Validator(plugins, rules),
        Environment(cluster_id),
    )
    store.listener = member.listener = herder
    return herder


class Serving(NamedTuple):
    """The address of a worker in this process, and its herder, which belongs to another thread."""

    host: str
    port: int
    herder: Herder


@contextmanager
def serving(*, body_bytes: int = 1 << 20, idle_s: float = 5.0) -> Iterator[Serving]:
    """Run a worker in a thread."""
    listeners = bind_all((parse_listener("127.0.0.1:0"),), tls_config({}), authenticates=False, insecure=False)
    address = listeners[0].address
    herder = herder_in_memory(address.url, f"{address.host}:{address.port}")
    ready, failures = threading.Event(), []
    stops: list[Callable[[], object]] = []

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(stop.set))
        forwarding = Forwarding(5.0)
        assert isinstance(herder.membership, SoleMember)
        await herder.membership.start()
        limits = ServerLimits(BodyLimits(body_bytes, idle_s))
        await serve(Application(herder, forwarding, 20.0), listeners, stop, limits, ready=ready.set)
        await herder.close()
        await herder.membership.close()
        await forwarding.close()

    def thread() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            ready.set()

    running = threading.Thread(target=thread, name="worker")
    running.start()
    assert ready.wait(START_S)
    try:
        yield Serving(address.host, address.port, herder)
    finally:
        for each in stops:
            each()
        running.join(START_S)
        for listener in listeners:
            listener.close()
    assert not failures
