"""Serve Confluent's REST APIs v2 and v3 for the topics of a cluster.

Each request uses its own credentials at the brokers: Basic credentials with SASL PLAIN or SCRAM, a bearer token with
OAUTHBEARER. The proxy has no rights of its own. Needs `ottla[rest]`.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.commands import Group, Option, Options
from ottla.cli.log_options import log_options
from ottla.common.failure import Failure
from ottla.common.garbage import search_less
from ottla.launch.console import start_logging
from ottla.tools.values import name_and_value, read_properties

if TYPE_CHECKING:
    from ottla.web.listeners import BoundListener

logger = logging.getLogger("ottla.rest")

COMMAND = Group(
    __doc__,
    """
    ottla rest serve -b 127.0.0.1:9092
    ottla rest serve --config kafka-rest.properties
    """,
)


@COMMAND.verb(
    "serve",
    Option("-b, --bootstrap-server HOST:PORT,..", "addresses of brokers; default: localhost:9092"),
    Option("--listen HOST:PORT", "the address for HTTP clients; default: 127.0.0.1:8082. Port 0 is a free one"),
    Option("--registry URL", "the schema registry of the formats avro, jsonschema and protobuf"),
    Option("--config FILE", "a properties file with Confluent's names (kafka-rest.properties)"),
    Option("-X NAME=VALUE", "any setting by its name; may be repeated", name="settings", multiple=True),
    Option("--insecure", "let other machines connect although the brokers identify no users"),
    *log_options(),
    examples="""
    ottla rest serve -b 127.0.0.1:9092 --listen 127.0.0.1:8082
    ottla rest serve -b kafka:9093 -X client.security.protocol=SASL_SSL
    ottla rest serve --config kafka-rest.properties
    """,
)
def _serve(options: Options) -> None:
    """Run the proxy. Its first line on standard output is `rest=URL`. Ctrl-C or SIGTERM stops it."""
    start_logging(options.log_level, options.log_format)
    server = _module("server")
    settings = _module("settings").read_settings(_settings(options))
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(server.run(settings, insecure=options.insecure, ready=_announce))


def _module(name: str) -> Any:
    """Import a module of the proxy. Raises Failure without the extra."""
    try:
        return importlib.import_module(f"ottla.rest.{name}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("ottla"):
            raise
        raise Failure(f"The REST proxy needs {error.name}", "`pip install 'ottla[rest]'` installs it.") from error


def _settings(options: Options) -> dict[str, object]:
    """Return the settings of the file, then of -X, then of the options."""
    settings: dict[str, object] = {}
    if options.config:
        known = _module("settings").known
        for name, value in read_properties(options.config).items():
            if known(name):
                settings[name] = value
            else:
                logger.warning("Ignoring the setting %s: the proxy does not have it", name)
    settings.update(name_and_value(word, "-X") for word in options.settings)
    given = {
        "bootstrap.servers": options.bootstrap_server,
        "listeners": options.listen,
        "schema.registry.url": options.registry,
    }
    return settings | {name: value for name, value in given.items() if value is not None}


def _announce(listeners: Sequence[BoundListener]) -> None:
    search_less()
    urls = ",".join(listener.address.url for listener in listeners)
    print(f"rest={urls}", flush=True)


def _loop_factory() -> Any:
    return importlib.import_module("uvloop").new_event_loop
