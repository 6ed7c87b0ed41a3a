"""Which cluster a command talks to: from options, environment and profiles to the settings of a client.

The stronger wins: `-X`, then `-b`, then the `--command-config` file, then the profile (`--profile`, $OTTLA_PROFILE),
then $OTTLA_BOOTSTRAP, then the profile in use (`ottla profile use`), then 127.0.0.1:9092.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.cli.terminal import Failure

if TYPE_CHECKING:
    from ottla.clients.admin import Admin

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
REFUSED_S, SILENT_S = 2.0, 15.0


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say which cluster, and how to talk to it."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT,..",
        help=f"some brokers; default: $OTTLA_BOOTSTRAP, the profile's, or {DEFAULT_BOOTSTRAP}",
    )
    group.add_argument("--profile", metavar="NAME", help="a cluster from `ottla profile`; default: $OTTLA_PROFILE")
    group.add_argument("--command-config", metavar="FILE", help="a properties file with settings of Kafka's clients")
    group.add_argument(
        "-X",
        dest="client_settings",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one client setting, by Kafka's name; may be repeated",
    )


def client_settings(options: argparse.Namespace, kind: str = "admin") -> dict[str, object]:
    """The settings asked for, by Kafka's names; raises Failure with exit code 2 if they cannot be read.

    `kind` is the client that they are for: "admin", "producer", "consumer". What a file or a profile holds for one of
    the other two is left out; everything else is passed on, so that the client itself refuses what it does not know.
    """
    shared = _of_profile(options)
    if options.command_config:
        shared.update(settings_of_file(options.command_config))
    settings = _for_kind(shared, kind)
    if options.bootstrap_server:
        settings["bootstrap.servers"] = options.bootstrap_server
    for text in options.client_settings:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise Failure(f"-X {text!r} is not of the form NAME=VALUE", exit_code=2)
        settings[name.strip().replace("_", ".")] = value
    settings.setdefault("bootstrap.servers", DEFAULT_BOOTSTRAP)
    settings.setdefault("client.id", f"ottla-cli-{os.getpid()}")
    return settings


@contextmanager
def open_admin(options: argparse.Namespace) -> Iterator["Admin"]:
    """An admin client of that cluster, connected; raises what its calls raise.

    Brokers that are slow get 15 seconds, but where nothing listens a person need not wait for what is not there.
    """
    from ottla.clients.admin import Admin
    from ottla.clients.errors import BrokerUnavailable

    settings = client_settings(options)
    admin = Admin(settings)
    # Whoever allows a call less time has no more for this one.
    most_s = float(str(settings.get("default.api.timeout.ms", 1000 * SILENT_S))) / 1000
    try:
        try:
            admin.start(min(REFUSED_S, most_s))
        except BrokerUnavailable as error:
            problems = str(error).partition(": ")[2].split("; ")
            if not error.retriable or all("refused" in problem for problem in problems):
                raise
            admin.start(max(0.001, min(SILENT_S, most_s) - REFUSED_S))
        yield admin
    finally:
        admin.close()


def _of_profile(options: argparse.Namespace) -> dict[str, object]:
    from ottla.cli import profiles

    name = options.profile or os.environ.get("OTTLA_PROFILE")
    if name:
        return profiles.settings_of(name)
    bootstrap = os.environ.get("OTTLA_BOOTSTRAP")
    if bootstrap:
        return {"bootstrap.servers": bootstrap}
    return profiles.settings_in_use()


def settings_of_file(path: str) -> dict[str, str]:
    """The settings of a properties file; raises Failure with exit code 2."""
    from pathlib import Path

    from ottla.config.properties import load_properties

    try:
        return load_properties(Path(path))
    except OSError as error:
        raise Failure(f"the file {path} cannot be read: {error.strerror}", exit_code=2) from error
    except ValueError as error:
        raise Failure(str(error), exit_code=2) from error


def _for_kind(settings: dict[str, object], kind: str) -> dict[str, object]:
    """The settings without those that only clients of another kind have."""
    from ottla.clients.options import COMMON_OPTIONS

    settings = {name.replace("_", "."): value for name, value in settings.items()}
    common = {option.name for option in COMMON_OPTIONS}
    if common.issuperset(settings):
        return settings
    from ottla.clients.consumer.options import CONSUMER_OPTIONS
    from ottla.clients.producer.settings import PRODUCER_OPTIONS

    known = {
        "admin": common,
        "producer": {o.name for o in PRODUCER_OPTIONS},
        "consumer": {o.name for o in CONSUMER_OPTIONS},
    }
    elsewhere = set().union(*known.values()) - known[kind]
    return {name: value for name, value in settings.items() if name not in elsewhere}
