"""Serve read-only tools over a cluster to an assistant, by the Model Context Protocol (MCP).

The assistant starts this command, and talks to it over standard input and output. The tools act as the user of the
client settings, whose ACLs decide; none of them changes anything. Needs `ottla[mcp]`.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from typing import Any

from ottla.cli.commands import Command, Option, Options
from ottla.cli.connect import client_settings, connection_options, registry_settings
from ottla.cli.log_options import log_options
from ottla.common.failure import Failure
from ottla.launch.console import start_logging

EXAMPLES = """
ottla mcp -b 127.0.0.1:9092
ottla mcp --profile production --mask masks.toml
ottla mcp --registry http://127.0.0.1:8081 --connect http://127.0.0.1:8084
"""

_PARAMETERS = [
    Option("--registry URL,..", "a schema registry; default: $OTTLA_REGISTRY, or the profile's"),
    Option("--connect URL", "a Connect worker, whose connectors are shown"),
    Option("--mask FILE", "rules for fields of records that the assistant must not see"),
    *log_options(),
    *connection_options("admin", "consumer"),
]


def run(options: Options) -> int:
    """Serve until standard input ends. Standard output has only messages of the protocol."""
    start_logging(options.log_level, options.log_format)
    for name in ("httpx", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)
    serving = _module("ottla.mcp_server.serving")
    settings = _settings(options)
    calls, sessions = _module("ottla.console.calls"), _module("ottla.console.sessions")
    console = calls.Console(settings, sessions.Sessions(settings, time.monotonic), calls.templates(), {})
    session = sessions.Session(settings, _user(settings), "", time.monotonic)
    try:
        importlib.import_module("anyio").run(serving.serve, console, session)
    finally:
        session.close()
    return 0


def _settings(options: Options) -> Any:
    module, masking = _module("ottla.console.settings"), _module("ottla.console.masking")
    clients = {kind: client_settings(options, kind) for kind in ("admin", "consumer")}
    registry = registry_settings(options)
    url = options.registry or registry.pop("schema.registry.url", None) or os.environ.get("OTTLA_REGISTRY")
    return module.ConsoleSettings(
        clients=clients,
        registry={**registry, "schema.registry.url": url} if url else None,
        connect=options.connect,
        masks=masking.Masks() if options.mask is None else masking.read_masks(options.mask),
        read_only=True,
        signs_in=False,
    )


def _user(settings: Any) -> str:
    return str(settings.clients["admin"].get("sasl.username") or "")


def _module(name: str) -> Any:
    """Import a module. Raises Failure without the extra."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("ottla"):
            raise
        raise Failure(f"`ottla mcp` needs {error.name}", "`pip install 'ottla[mcp]'` installs it.") from error


COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
