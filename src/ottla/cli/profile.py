"""Manage named addresses and settings of several clusters, in ~/.config/ottla/config.toml.

--profile NAME or $OTTLA_PROFILE choose a profile for one command, `ottla profile use` for all later commands. Settings
are Kafka's client settings; passwords are never printed.
"""

from __future__ import annotations

import getpass
import sys

import click

from ottla.cli.commands import Argument, Group, Option, Options, quiet_option, yes_option
from ottla.cli.names import confirm_deletion
from ottla.cli.output import Column, Output, output_options
from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.errors import ConfigurationError
from ottla.clients.options import Option as ClientOption
from ottla.clients.producer.settings import PRODUCER_OPTIONS
from ottla.common.failure import Failure, failing_on
from ottla.registry_client.errors import RegistrySettingError
from ottla.registry_client.settings import check_setting, is_registry_setting
from ottla.tools import profile_file
from ottla.tools.file_modes import looks_secret, shown_to_others
from ottla.tools.suggestions import did_you_mean
from ottla.tools.values import name_and_value, read_properties

COMMAND = Group(
    __doc__,
    """
    ottla profile set local bootstrap.servers=127.0.0.1:9092
    ottla profile use local
    ottla topic list --profile local
    """,
)


def _name(*, required: bool = True) -> click.Parameter:
    return Argument("name", "PROFILE", required=required, help="the profile")


@COMMAND.verb("list", quiet_option(), *output_options(), examples="ottla profile list", aliases=("ls",))
def _list(options: Options) -> None:
    """List profiles."""
    document = profile_file.load()
    rows = [
        {
            "profile": name,
            "in_use": name == document.get("current"),
            "bootstrap_servers": _text(settings.get("bootstrap.servers")),
            "security_protocol": settings.get("security.protocol", "PLAINTEXT"),
        }
        for name, settings in ((name, profile_file.flat(table)) for name, table in document.get("profiles", {}).items())
    ]
    columns = [
        Column("in_use", "", show=lambda used: "*" if used else "", colour=lambda used: "green" if used else None),
        Column("profile"),
        Column("bootstrap_servers", "BOOTSTRAP SERVERS", narrow=True),
        Column("security_protocol", "SECURITY"),
    ]
    empty = "There is no profile yet. `ottla profile set NAME bootstrap.servers=HOST:PORT` creates one."
    Output(options).listing("profile", columns, rows, empty=empty)


@COMMAND.verb(
    "show",
    _name(required=False),
    *output_options(),
    examples="ottla profile show local",
    summary="show a profile's settings",
)
def _show(options: Options) -> None:
    """Show a profile's settings; secrets are hidden."""
    output = Output(options)
    name = options.name or profile_file.load().get("current")
    if not name:
        raise Failure("no profile is in use", "`ottla profile list` shows the existing profiles.", exit_code=2)
    shown = {
        setting: "(hidden)" if looks_secret(setting) else _text(value)
        for setting, value in sorted(profile_file.settings_of(name).items())
    }
    if output.json:
        output.object({"profile": name, "settings": shown})
        return
    output.line(output.style.bold(name))
    output.record(shown, [Column(setting, setting) for setting in shown])


@COMMAND.verb(
    "set",
    _name(),
    Argument("changes", "SETTING=VALUE", nargs=-1, help="settings of Kafka's clients"),
    Option("--unset SETTING", "remove a setting", multiple=True),
    Option("--from-file FILE", "take the settings of a properties file"),
    examples="""
    ottla profile set prod bootstrap.servers=broker1:9092,broker2:9092
    ottla profile set prod security.protocol=SASL_SSL
    ottla profile set prod sasl.mechanism=SCRAM-SHA-512 sasl.username=ann
    ottla profile set prod sasl.password=-
    ottla profile set prod --unset client.id
    """,
)
def _set(options: Options) -> None:
    """Create a profile or change its settings. The value - is read from the terminal or standard
    input: other users and the shell's history can see a password on the command line.
    """
    if not options.name.strip() or options.name.startswith("-"):
        raise Failure(f"a profile cannot be called {options.name!r}", exit_code=2)
    changes: dict[str, object] = dict.fromkeys(options.unset)
    if options.from_file:
        changes.update(read_properties(options.from_file))
    literal = (word for word in options.changes if not word.endswith("=-"))
    if problem := shown_to_others("profile set", literal, "SETTING=- or --from-file FILE"):
        Output(options).warn(problem)
    for name, text in map(name_and_value, options.changes):
        changes[name] = _read_secret(name) if text == "-" else text
    if not changes:
        raise Failure("nothing to set", "`ottla profile set --help` has examples.", exit_code=2)
    document = profile_file.load()
    settings = profile_file.flat(document.get("profiles", {}).get(options.name, {}))
    for name, value in ((name.replace("_", "."), value) for name, value in changes.items()):
        if value is None:
            settings.pop(name, None)
        else:
            _check(name, value)
            settings[name] = value
    is_new = options.name not in document.get("profiles", {})
    profile_file.store(options.name, settings)
    print(f"{options.name}: {'created' if is_new else 'changed'} in {profile_file.path()}")


@COMMAND.verb(
    "use",
    _name(required=False),
    Option("--none", "use no profile"),
    examples="""
    ottla profile use prod
    ottla profile use --none
    """,
)
def _use(options: Options) -> None:
    """Make a profile the current one."""
    if bool(options.name) == options.none:
        raise Failure("name one profile, or give --none", exit_code=2)
    if options.name:
        profile_file.settings_of(options.name)
    profile_file.use(options.name)
    print(f"{options.name}: in use" if options.name else "no profile is in use")


@COMMAND.verb("delete", _name(), yes_option(), examples="ottla profile delete prod --yes", aliases=("rm",))
def _delete(options: Options) -> None:
    """Delete a profile."""
    profile_file.settings_of(options.name)
    confirm_deletion(f"Delete the profile {options.name}?", yes=options.yes)
    profile_file.store(options.name, None)
    print(f"{options.name}: deleted")


def _rows() -> dict[str, ClientOption]:
    """Return the settings of all clients by name and alias."""
    return {name: row for row in (*CONSUMER_OPTIONS, *PRODUCER_OPTIONS) for name in (row.name, *row.aliases)}


def _check(name: str, value: object) -> None:
    if is_registry_setting(name):
        with failing_on(RegistrySettingError):
            check_setting(name, value)
        return
    rows = _rows()
    if name not in rows:
        raise Failure(f"no client has a setting {name!r}", *did_you_mean(name, rows), exit_code=2)
    with failing_on(ConfigurationError):
        rows[name].read(value)


def _read_secret(name: str) -> str:
    """Read a value from standard input; a terminal does not show it."""
    if sys.stdin.isatty():
        return getpass.getpass(f"{name}: ")
    return sys.stdin.readline().rstrip("\n")


def _text(value: object) -> str | None:
    return ",".join(map(str, value)) if isinstance(value, list) else None if value is None else str(value)
