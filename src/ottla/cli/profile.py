"""Manage named addresses and settings of several clusters, in ~/.config/ottla/config.toml.

--profile NAME or $OTTLA_PROFILE choose a profile for one command, `ottla profile use` for all later commands. Settings
are Kafka's client settings; passwords are never printed.
"""

import sys
from typing import Any

import click

from ottla.cli import profile_file
from ottla.cli.commands import Argument, Command, Group, Option, Options
from ottla.cli.names import confirm_deletion
from ottla.cli.output import Column, Output, output_options
from ottla.cli.suggestions import did_you_mean
from ottla.cli.terminal import Failure
from ottla.cli.values import name_and_value, read_properties

EXAMPLES = """
ottla profile set local bootstrap.servers=127.0.0.1:9092
ottla profile use local
ottla topic list --profile local
"""


def _name(*, required: bool = True) -> click.Parameter:
    return Argument("name", "PROFILE", required=required, help="the profile")


_LIST_PARAMETERS = [
    Option("-q", "--quiet", is_flag=True, help="only names, one per line"),
    *output_options(),
]


_SHOW_PARAMETERS = [
    _name(required=False),
    *output_options(),
]


_SET_PARAMETERS = [
    _name(),
    Argument("changes", "SETTING=VALUE", nargs=-1, help="settings of Kafka's clients"),
    Option("--unset", multiple=True, metavar="SETTING", help="remove a setting"),
    Option("--from-file", metavar="FILE", help="take the settings of a properties file"),
]


_USE_PARAMETERS = [
    _name(required=False),
    Option("--none", is_flag=True, help="use no profile"),
]


_DELETE_PARAMETERS = [
    _name(),
    Option("-y", "--yes", is_flag=True, help="do not ask"),
]


def _list(options: Options) -> int:
    output = Output(options)
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
    if options.quiet and not output.json:
        for row in rows:
            output.line(str(row["profile"]))
        return 0
    if not rows and not output.json:
        output.note("There is no profile yet. `ottla profile set NAME bootstrap.servers=HOST:PORT` creates one.")
        return 0
    columns = [
        Column("in_use", "", show=lambda used: "*" if used else "", colour=lambda used: "green" if used else None),
        Column("profile"),
        Column("bootstrap_servers", "BOOTSTRAP SERVERS", narrow=True),
        Column("security_protocol", "SECURITY"),
    ]
    output.table(columns, rows)
    return 0


def _show(options: Options) -> int:
    output = Output(options)
    name = options.name or profile_file.load().get("current")
    if not name:
        raise Failure("no profile is in use", "`ottla profile list` shows the existing profiles.", exit_code=2)
    secret = _secrets()
    shown = {
        setting: "(hidden)" if setting in secret or profile_file.looks_secret(setting) else _text(value)
        for setting, value in sorted(profile_file.settings_of(name).items())
    }
    if output.json:
        output.object({"profile": name, "settings": shown})
        return 0
    output.line(output.style.bold(name))
    output.record(shown, [Column(setting, setting) for setting in shown])
    return 0


def _set(options: Options) -> int:
    if not options.name.strip() or options.name.startswith("-"):
        raise Failure(f"a profile cannot be called {options.name!r}", exit_code=2)
    changes: dict[str, object] = dict.fromkeys(options.unset)
    if options.from_file:
        changes.update(read_properties(options.from_file))
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
    return 0


def _use(options: Options) -> int:
    if bool(options.name) == options.none:
        raise Failure("name one profile, or give --none", exit_code=2)
    if options.name:
        profile_file.settings_of(options.name)
    profile_file.use(options.name)
    print(f"{options.name}: in use" if options.name else "no profile is in use")
    return 0


def _delete(options: Options) -> int:
    profile_file.settings_of(options.name)
    confirm_deletion(f"Delete the profile {options.name}?", yes=options.yes)
    profile_file.store(options.name, None)
    print(f"{options.name}: deleted")
    return 0


def _rows() -> dict[str, Any]:
    """Return the settings of all clients by name."""
    from ottla.clients.consumer.settings import CONSUMER_OPTIONS
    from ottla.clients.producer.settings import PRODUCER_OPTIONS

    rows: dict[str, Any] = {}
    for row in (*CONSUMER_OPTIONS, *PRODUCER_OPTIONS):
        rows.update(dict.fromkeys((row.name, *getattr(row, "aliases", ())), row))
    return rows


def _secrets() -> frozenset[str]:
    return frozenset(name for name, row in _rows().items() if getattr(row, "secret", False))


def _check(name: str, value: object) -> None:
    from ottla.clients.errors import ConfigurationError

    rows = _rows()
    if name not in rows:
        raise Failure(f"no client has a setting {name!r}", *did_you_mean(name, rows), exit_code=2)
    try:
        rows[name].read(value)
    except ConfigurationError as error:
        raise Failure(str(error), exit_code=2) from error


def _read_secret(name: str) -> str:
    """Read a value from standard input; a terminal does not show it."""
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass(f"{name}: ")
    return sys.stdin.readline().rstrip("\n")


def _text(value: object) -> str | None:
    return ",".join(map(str, value)) if isinstance(value, list) else None if value is None else str(value)


COMMAND = Group(
    __doc__,
    {
        "list": Command(_list, _LIST_PARAMETERS, "list profiles", examples="ottla profile list", aliases=("ls",)),
        "show": Command(
            _show,
            _SHOW_PARAMETERS,
            "show a profile's settings",
            description="Show a profile's settings; secrets are hidden.",
            examples="ottla profile show local",
        ),
        "set": Command(
            _set,
            _SET_PARAMETERS,
            "create a profile or change its settings",
            description="Create a profile or change its settings. The value - is read from the terminal or standard\n"
            "input: other users and the shell's history can see a password on the command line.",
            examples="""
                ottla profile set prod bootstrap.servers=broker1:9092,broker2:9092
                ottla profile set prod security.protocol=SASL_SSL
                ottla profile set prod sasl.mechanism=SCRAM-SHA-512 sasl.username=ann
                ottla profile set prod sasl.password=-
                ottla profile set prod --unset client.id
                """,
        ),
        "use": Command(
            _use,
            _USE_PARAMETERS,
            "make a profile the current one",
            examples="""
                ottla profile use prod
                ottla profile use --none
                """,
        ),
        "delete": Command(
            _delete,
            _DELETE_PARAMETERS,
            "delete a profile",
            examples="ottla profile delete prod --yes",
            aliases=("rm",),
        ),
    },
    EXAMPLES,
)
