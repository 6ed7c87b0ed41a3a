"""The settings of each kind of client, for profiles, files and `-X`.

All commands share a file or profile: settings for other kinds of clients are skipped. `-X` applies to one command: a
setting that this command cannot use is an error with exit code 2.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.clients.options import COMMON_OPTIONS, Option, unknown_setting
from ottla.common.failure import Failure
from ottla.tools import late
from ottla.tools.suggestions import did_you_mean
from ottla.tools.values import name_and_value

REGISTRY: Final = "registry"
# The commands set these settings themselves. A profile may have them for other programs; -X gets this advice.
_BYTES = "keys and values are bytes here; -f and --json say how they are written"
_SET_BY_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "admin": {},
    REGISTRY: {},
    "producer": {
        "allow.auto.create.topics": "--create lets the broker create the topic",
        "key.serializer": _BYTES,
        "value.serializer": _BYTES,
    },
    "consumer": {
        "group.id": "`ottla consume --group GROUP` joins a group",
        "enable.auto.commit": "`ottla consume --group GROUP` commits the records that it has printed",
        "auto.offset.reset": "`ottla consume -o beginning` or `-o end` says where reading begins",
        "allow.auto.create.topics": "reading creates no topics; `ottla topic create` does",
        "key.deserializer": _BYTES,
        "value.deserializer": _BYTES,
        "on.deserialization.error": _BYTES,
    },
}
# In a profile these belong to another member of a group; -X may set them for this member.
_NOT_SHARED = frozenset({"group.instance.id"})


def shared(settings: Mapping[str, object], kind: str) -> dict[str, object]:
    """Return the settings of a file or profile for a client of this kind.

    Settings that belong only to other kinds are skipped. Unknown settings are included: the client rejects them.
    """
    settings = {name.replace("_", "."): value for name, value in settings.items() if not late.is_registry_setting(name)}
    if set(settings) <= {option.name for option in COMMON_OPTIONS}:
        return settings
    own = _options(kind)
    skipped = {*_options("producer"), *_options("consumer")} - set(own) | set(_SET_BY_COMMANDS[kind]) | _NOT_SHARED
    return {name: value for name, value in settings.items() if name not in skipped}


def given(words: Iterable[str], kinds: Sequence[str], kind: str) -> dict[str, object]:
    """Return the settings of `-X NAME=VALUE` for a client of this kind; raises Failure with exit code 2.

    `kinds` are the clients of the command. Settings of all of them are accepted, and the settings of `kind` are
    returned.
    """
    settings: dict[str, object] = {}
    for word in words:
        name, value = name_and_value(word, "-X")
        name = name.replace("_", ".")
        if late.is_registry_setting(name) and REGISTRY in kinds:
            continue
        _check(name, kinds)
        if name in _options(kind):
            settings[name] = value
    return settings


def of_registry(settings: Mapping[str, object], words: Iterable[str]) -> dict[str, object]:
    """Return the settings of the registry's client in a file or profile, and in `-X NAME=VALUE`, which win."""
    found = {name.replace("_", "."): value for name, value in settings.items() if late.is_registry_setting(name)}
    for word in words:
        name, value = name_and_value(word, "-X")
        if late.is_registry_setting(name):
            found[name.replace("_", ".")] = value
    return found


def names(kinds: Iterable[str]) -> list[str]:
    """Return the names of the settings that clients of these kinds accept from a command line."""
    own = [name for kind in kinds for name in _options(kind) if name not in _SET_BY_COMMANDS[kind]]
    return own + ([f"schema.registry.{row.name}" for row in late.SETTINGS] if REGISTRY in kinds else [])


def _check(name: str, kinds: Sequence[str]) -> None:
    """Raise Failure unless a client of one of the kinds accepts this setting from a command line."""
    known: dict[str, Option] = {}
    for kind in kinds:
        advice = _SET_BY_COMMANDS[kind].get(name)
        if advice is not None:
            raise Failure(f"-X {name}: the command sets it", f"{advice[:1].upper()}{advice[1:]}.", exit_code=2)
        known |= _options(kind)
    option = known.get(name)
    if option is not None:
        if option.kind == "object" and not isinstance(option.default, str):
            raise Failure(f"-X {name}: its value is a Python object, which a command line cannot give", exit_code=2)
        return
    owners = [kind for kind in ("producer", "consumer") if name in _options(kind)]
    if not owners:
        raise Failure(f"-X: {unknown_setting(name, known.values())}", exit_code=2)
    problem = f"-X {name}: a {owners[0]} has this setting, and this command has {_articled(kinds)}"
    raise Failure(problem, *did_you_mean(name, known), exit_code=2)


def _articled(kinds: Sequence[str]) -> str:
    return " and ".join({"admin": "an admin client"}.get(kind, f"a {kind}") for kind in kinds) + (
        " only" if len(kinds) == 1 else ""
    )


def _options(kind: str) -> dict[str, Option]:
    """Return the settings of a client by name and alias."""
    rows: Sequence[Option] = COMMON_OPTIONS
    if kind == "producer":
        rows = late.PRODUCER_OPTIONS
    elif kind == "consumer":
        rows = late.CONSUMER_OPTIONS
    return {name: row for row in rows for name in (row.name, *row.aliases)}
