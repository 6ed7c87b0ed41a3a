"""Run a node of the schema registry in the foreground until a signal stops it: `ottla registry serve`.

The first line on standard output is `registry=URL`, once schemas can be read and registered. With the environment
variable of `stopping.SUPERVISED`, the node also stops when its standard input ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Final

from ottla.common.garbage import search_less
from ottla.common.style import Style
from ottla.launch.console import discard_standard_output, start_logging
from ottla.launch.settings import listen_address
from ottla.launch.stopping import SUPERVISED
from ottla.registry.configuration import RegistrySettings, read_settings
from ottla.registry.server import run as run_node
from ottla.tools.file_modes import exposure
from ottla.tools.values import name_and_value, read_properties

logger = logging.getLogger("ottla.registry")

ANNOUNCEMENT: Final = "registry="
_STORE: Final = "kafkastore."


def run(options: SimpleNamespace, clients: Mapping[str, object]) -> int:
    """Run a node until a signal arrives. `clients` are the settings of the connection by the names of clients."""
    start_logging(options.log_level, options.log_format)
    # It logs a line for each forwarded request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    settings = read_settings(_given(options, clients))
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings))
    return 0


async def _run(settings: RegistrySettings) -> None:
    if os.environ.get(SUPERVISED):
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), _stop_with_parent, loop)
    await run_node(settings, _announce)
    logger.info("Stopped cleanly")


def _stop_with_parent(loop: asyncio.AbstractEventLoop) -> None:
    loop.remove_reader(sys.stdin.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


def _given(options: SimpleNamespace, clients: Mapping[str, object]) -> dict[str, str]:
    """The settings of the file, the connection and `-X`, which overrides the others."""
    given = read_properties(options.config) if options.config else {}
    if options.config and (problem := exposure(options.config, given)):
        logger.warning("%s", problem)
    if not (options.config and _STORE + "bootstrap.servers" in given and options.bootstrap_server is None):
        given |= {_STORE + name: str(value) for name, value in clients.items() if name != "client.id"}
    if options.listen:
        given["listeners"] = _listener(options.listen)
    if options.insecure:
        given["ottla.insecure"] = "true"
    if options.access_log:
        given["ottla.access.log"] = "true"
    given.update(name_and_value(override, "-X") for override in options.overrides)
    return given


def _listener(text: str) -> str:
    if "://" in text:
        return text
    host, port = listen_address(text)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _announce(urls: list[str]) -> None:
    search_less()
    style = Style.of(sys.stdout)
    lines = [
        f"{ANNOUNCEMENT}{','.join(urls)}",
        "",
        f"  {style.green('The schema registry is up.')} Clients use schema.registry.url={style.bold(urls[0])}",
        "",
    ]
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        discard_standard_output()
