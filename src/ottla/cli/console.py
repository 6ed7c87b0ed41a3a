"""Run a web console for a cluster: topics, records, groups, access, nodes, schemas, connectors.

The console needs no rights of its own: with SASL, each user signs in with a user of the brokers, whose ACLs decide.
Without SASL it listens only on this machine, unless --insecure is given. Needs `ottla[console]`.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.commands import Command, Option, Options, section
from ottla.cli.connect import client_settings, cluster_options
from ottla.cli.log_options import log_options
from ottla.common.failure import Failure
from ottla.common.garbage import search_less
from ottla.launch.console import start_logging
from ottla.launch.stopping import SUPERVISED
from ottla.tools.values import name_and_value

if TYPE_CHECKING:
    from ottla.web.listeners import BoundListener

EXAMPLES = """
ottla console -b 127.0.0.1:9092
ottla console -b kafka:9092 --listen 127.0.0.1:9000 --read-only
ottla console --registry http://127.0.0.1:8081
ottla console --connect http://127.0.0.1:8084 --mask masks.toml
"""

_PARAMETERS = [
    *section(
        "Console",
        Option(
            "--listen HOST:PORT",
            "the address for browsers; default: 127.0.0.1:8083. Port 0 is a free one; https://HOST:PORT with "
            "--tls ssl.keystore.location=FILE",
        ),
        Option("--host NAME", "a name of this machine that browsers use; may be repeated", multiple=True),
        Option("--tls NAME=VALUE", "a TLS setting of the listener, by Kafka's name; may be repeated", multiple=True),
        Option("--registry URL", "a schema registry: records are decoded, subjects are shown"),
        Option("--connect URL", "a Connect worker, whose connectors are shown"),
        Option("--mask FILE", "rules for fields of records that some users must not see"),
        Option("--read-only", "refuse every change"),
        Option("--insecure", "let other machines connect although the brokers identify no users"),
        Option("--access-log", "log a line for each request"),
        *log_options(),
    ),
    *cluster_options(),
]


def run(options: Options) -> int:
    """Run the console. Its first line on standard output is `console=URL`. Ctrl-C or SIGTERM stops it."""
    start_logging(options.log_level, options.log_format)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    server, settings = _module("server"), _settings(options)
    with asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop) as runner:
        runner.run(_run(server, settings))
    return 0


async def _run(server: Any, settings: Any) -> None:
    if os.environ.get(SUPERVISED):
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _stop_with_parent)
    await server.run(settings, _announce)


def _stop_with_parent() -> None:
    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


def _settings(options: Options) -> Any:
    settings, masking = _module("settings"), _module("masking")
    clients = {kind: client_settings(options, kind) for kind in ("admin", "consumer", "producer")}
    given = settings.ConsoleSettings(
        clients=clients,
        listen=options.listen or settings.DEFAULT_LISTEN,
        registry=None if options.registry is None else _registry(options.registry, clients["admin"]),
        connect=options.connect,
        tls=dict(name_and_value(word, "--tls") for word in options.tls),
        hosts=frozenset(options.host),
        masks=masking.Masks() if options.mask is None else masking.read_masks(options.mask),
        read_only=options.read_only,
        insecure=options.insecure,
        access_log=options.access_log,
    )
    if given.masks.rules and not given.uses_sasl and any(rule.exempt for rule in given.masks.rules):
        raise Failure(f"{options.mask} names users, but the brokers identify none", exit_code=2)
    return given


def _registry(url: str, connection: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of the registry's clients, which trust the same authorities as the brokers' clients."""
    trusted = {name: value for name, value in connection.items() if name.startswith("ssl.truststore.")}
    return {"schema.registry.url": url, **trusted}


def _module(name: str) -> Any:
    """Import a module of the console. Raises Failure without the extra."""
    try:
        found = importlib.import_module(f"ottla.console.{name}")
        importlib.import_module("jinja2")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("ottla"):
            raise
        raise Failure(f"The console needs {error.name}", "`pip install 'ottla[console]'` installs it.") from error
    return found


def _announce(listeners: Sequence[BoundListener]) -> None:
    search_less()
    print(f"console={','.join(each.address.url for each in listeners)}", flush=True)


COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
