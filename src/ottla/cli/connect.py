"""The connection of a command: from options, environment and profiles to the settings of a client.

The first of these wins: `-X`, `-b`, the `--command-config` file, the profile (`--profile`, $OTTLA_PROFILE),
$OTTLA_BOOTSTRAP, the current profile (`ottla profile use`), 127.0.0.1:9092.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import click

from ottla.cli.commands import Option, Options, section
from ottla.cli.terminal import warn_of_clients
from ottla.clients import admin as api
from ottla.clients.errors import BrokerUnavailable
from ottla.common.failure import Failure
from ottla.tools import client_kinds, profile_file
from ottla.tools.file_modes import VARIABLE, exposure, shown_to_others
from ottla.tools.values import read_properties

logger = logging.getLogger(__name__)

DEFAULT_PORT = 9092
LOOPBACK = "127.0.0.1"
DEFAULT_BOOTSTRAP = f"{LOOPBACK}:{DEFAULT_PORT}"
CLIENT_ID = "ottla-cli"
REFUSED_S, SILENT_S = 2.0, 15.0
# Texts of connection errors that a retry will not change.
_DEFINITE = ("refused", "TLS handshake", "at the first request")


class GivenSettings(NamedTuple):
    """The words of `-X NAME=VALUE`, and the kinds of clients whose settings these may be."""

    words: tuple[str, ...]
    kinds: tuple[str, ...]


def connection_options(*kinds: str) -> list[click.Parameter]:
    """Return the options that name the cluster and the settings of the connection.

    `kinds` are the clients that the command uses besides an admin client: "producer", "consumer". `-X` accepts only
    their settings.
    """

    def given(context: click.Context, _: click.Parameter, words: tuple[str, ...]) -> GivenSettings:
        problem = shown_to_others("-X", words, "--command-config FILE or -X 'NAME=${env:VARIABLE}'")
        if problem and not context.resilient_parsing:
            warn_of_clients()
            logger.warning("%s", problem)
        return GivenSettings(words, kinds or ("admin",))

    return [
        *cluster_options(),
        *section(
            "Connection",
            Option(
                "-X NAME=VALUE",
                f"a setting of the {' or '.join(kinds) or 'admin client'}, by Kafka's name; may be repeated",
                name="client_settings",
                multiple=True,
                callback=given,
                settings=lambda: client_kinds.names(kinds or ("admin",)),
            ),
        ),
    ]


def cluster_options() -> list[click.Parameter]:
    """Return the options that name the cluster."""
    return list(
        section(
            "Connection",
            Option(
                "-b, --bootstrap-server HOST:PORT,..",
                f"addresses of brokers (default port: {DEFAULT_PORT}; a port alone is on {LOOPBACK}); default: "
                "$OTTLA_BOOTSTRAP, the profile's, "
                f"or {DEFAULT_BOOTSTRAP}",
            ),
            Option("--profile PROFILE", "a cluster from `ottla profile`; default: $OTTLA_PROFILE"),
            Option("--command-config FILE", "a properties file with settings of Kafka's clients"),
        )
    )


def client_settings(options: Options, kind: str = "admin") -> dict[str, object]:
    """Return the settings for a client of a command, by Kafka's names; raises Failure as `connection_settings`.

    Commands are short and many: all have one client id, and push no metrics, or each would add series for good.
    """
    return {"client.id": CLIENT_ID, "enable.metrics.push": False, **connection_settings(options, kind)}


def connection_settings(options: Options, kind: str = "admin") -> dict[str, object]:
    """Return the given settings for a client of this `kind`, by Kafka's names; raises Failure with exit code 2.

    `kind` is "admin", "producer" or "consumer". All commands share a file or profile: its settings for other kinds are
    skipped. Each setting of `-X` must belong to a client that the command uses.
    """
    warn_of_clients()
    settings = client_kinds.shared(_shared(options), kind)
    if options.bootstrap_server is not None:
        if not options.bootstrap_server.strip(" ,"):
            raise Failure("-b is empty", "It names brokers: -b HOST:PORT,...", exit_code=2)
        settings["bootstrap.servers"] = options.bootstrap_server
    words = getattr(options, "client_settings", None)
    given = {} if words is None else client_kinds.given(words.words, words.kinds, kind)
    settings.update({name: _from_environment(name, value) for name, value in given.items()})
    settings.setdefault("bootstrap.servers", DEFAULT_BOOTSTRAP)
    settings["bootstrap.servers"] = _with_ports(settings["bootstrap.servers"])
    return settings


def registry_settings(options: Options) -> dict[str, object]:
    """Return the settings for a client of the schema registry; raises Failure with exit code 2.

    With basic.auth.credentials.source=SASL_INHERIT they have the name and password of the brokers' client.
    """
    client_kinds.given(options.client_settings.words, options.client_settings.kinds, "admin")  # rejects unknown names
    settings = client_kinds.of_registry(_shared(options), options.client_settings.words)
    settings = {name: _from_environment(name, value) for name, value in settings.items()}
    if settings.get("basic.auth.credentials.source") == "SASL_INHERIT":
        clients = client_settings(options)
        settings |= {name: clients[name] for name in ("sasl.username", "sasl.password") if name in clients}
    return settings


def _shared(options: Options) -> dict[str, object]:
    """Return the settings of the profile and the file."""
    shared = _of_profile(options)
    if options.command_config:
        shared.update(_of_file(os.fsdecode(options.command_config)))
    return {name: _from_environment(name, value) for name, value in shared.items()}


def spark_settings(options: Options) -> dict[str, str]:
    """Return the settings for the clients of Spark's tasks, as text. Each task has a client id of its own."""
    settings = connection_settings(options)
    settings.pop("client.id", None)
    return {name: str(value) for name, value in settings.items()}


def _with_ports(servers: object) -> object:
    """Add the default port to each server that has none; the client rejects malformed servers."""
    each = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(each, list) or not all(isinstance(server, str) for server in each):
        return servers
    return ",".join(map(_with_port, map(str.strip, each)))


def _with_port(server: str) -> str:
    address = server.rpartition("://")[2]
    if address.count(":") > 1 and not address.startswith("["):
        raise Failure(
            f"{server!r} is not HOST:PORT", f"An IPv6 address has brackets: [::1]:{DEFAULT_PORT}", exit_code=2
        )
    if (bare_port := address.removeprefix(":")).isdecimal():
        return f"{LOOPBACK}:{bare_port}"  # as in `ottla up --listen`
    has_port = ":" in address.rpartition("]")[2]
    return server if not address or has_port else f"{server}:{DEFAULT_PORT}"


@contextmanager
def open_admin(options: Options) -> Iterator[api.Admin]:
    """Connect an admin client; raises its exceptions.

    Slow brokers get 15 seconds. The limit is 2 seconds if nothing listens, or the listener does not speak the protocol.
    """
    settings = client_settings(options)
    admin = api.Admin(settings)
    # A shorter timeout for calls applies to the connection, too.
    most_s = float(str(settings.get("default.api.timeout.ms", 1000 * SILENT_S))) / 1000
    try:
        try:
            admin.start(min(REFUSED_S, most_s))
        except BrokerUnavailable as error:
            problems = str(error).partition(": ")[2].split("; ")
            if not error.retriable or all(any(word in problem for word in _DEFINITE) for problem in problems):
                raise
            admin.start(max(0.001, min(SILENT_S, most_s) - REFUSED_S))
        yield admin
    finally:
        admin.close()


def connect(options: Options) -> api.Admin:
    """Connect an admin client until the end of the running command; raises its exceptions."""
    return click.get_current_context().with_resource(open_admin(options))


def _of_profile(options: Options) -> dict[str, object]:
    name = options.profile or os.environ.get("OTTLA_PROFILE")
    bootstrap = os.environ.get("OTTLA_BOOTSTRAP")
    if bootstrap and not name:
        return {"bootstrap.servers": bootstrap}
    settings = profile_file.settings_of(name) if name else profile_file.settings_in_use()
    profile_file.refuse_exposed(settings)
    return settings


def _of_file(path: str) -> dict[str, str]:
    settings = read_properties(path)
    problem = exposure(path, settings)
    if problem:
        # Kafka's tools accept these files.
        logger.warning("%s. Let only its owner read it: chmod 600 %s", problem, shlex.quote(path))
    return settings


def _from_environment(name: str, value: object) -> object:
    """Replace `${env:NAME}`, the value of an environment variable (KIP-887). Raises Failure without the variable."""
    match = VARIABLE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    try:
        return os.environ[match[1]]
    except KeyError:
        problem = f"{name} is ${{env:{match[1]}}}, but the environment has no variable {match[1]}"
        raise Failure(problem, exit_code=2) from None
